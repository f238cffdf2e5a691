"""Context extension of transformers models, with measurements: `posenc extend`.

    from posenc.hf.extend import extend
    print(extend("my-model", 32768, "yarn", out="my-model-32k"))

The rotary modules of the live model are rebuilt, not only its configuration, and the loss is measured before and after.
Needs the package transformers.

extension       extend(), from the first measurement to the folder;  result: measurements in words
methods         by name: scalings of the frequencies, LongRoPE's search, remapped distances
search          LongRoPE's factors, alone or in its recipe, resumable;  tuning: the training loop
rotary_modules  rebuilds and restores the rotary modules of a live model
loading         loads folders and GGUF files;  folder: the extended model, its state, commands for engines
weight_files    links weights that do not change
measure         losses and decoding before and after, cached in a file;  retrieval: facts hidden in texts
estimate        time and memory, before anything is measured
"""

from posenc.hf.extend.extension import extend as extend
from posenc.hf.extend.measure import WindowLosses as WindowLosses
from posenc.hf.extend.methods import METHODS as METHODS
from posenc.hf.extend.result import Extension as Extension
from posenc.hf.extend.tuning import Recipe as Recipe
