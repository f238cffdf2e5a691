"""Context extension of transformers models, measured: `posenc extend`.

    from posenc.hf.extend import extend
    print(extend("my-model", 32768, "yarn", out="my-model-32k"))

The rotation modules of the live model are built again, never only its configuration; what that is worth is measured.
Needs the package transformers.

extension       extend(), from measuring to the folder;  result: what it gives
methods         by name: scalings of the frequencies, the search, remapped distances
search          LongRoPE's factors, alone or in its recipe, resumable;  tuning: the training loop
rotary_modules  the rotary modules of a live model, replaced and put back
loading         models and GGUF files in;  folder: the extended model, with lines for engines
measure         losses and decoding, before and after;  result_cache: numbers that are not measured twice
"""

from posenc.hf.extend.extension import extend as extend
from posenc.hf.extend.measure import Measured as Measured
from posenc.hf.extend.methods import METHODS as METHODS
from posenc.hf.extend.result import Extension as Extension
from posenc.hf.extend.tuning import Recipe as Recipe
