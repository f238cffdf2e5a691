"""Models of transformers for longer texts than they were trained at: `posenc extend`.

    from posenc.hf.extend import extend
    print(extend("my-model", 32768, "yarn", out="my-model-32k"))

The rotation modules of the live model are built again, never only its configuration; what that is worth is measured.
Needs the package transformers.

extension    extend();  result: what it gives;  job: the work between
progressive  LongRoPE's recipe, resumable;  searching;  tuning: its training loop
methods      by name: scalings of the frequencies, the search, distances moved;  applied: put into a model
rotations    the rotary modules of a live model, put in and taken out
loading, folder, serving    models and GGUF files in; folders out, with lines for engines
measured, decoding, verdict, book    what is measured, in words, and kept (on which tokens: `posenc.hf.texts`)
"""

from posenc.hf.extend.extension import extend as extend
from posenc.hf.extend.measured import Measured as Measured
from posenc.hf.extend.methods import METHODS as METHODS
from posenc.hf.extend.result import Extension as Extension
from posenc.hf.extend.tuning import Recipe as Recipe
