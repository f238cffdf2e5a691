"""Context extension of transformers models, with measurements: `posenc extend`; of a config alone: --config-only.

    from posenc.hf.extend import extend, extend_config
    print(extend_config("Qwen/Qwen3-8B", 131072))
    print(extend("my-model", 32768, "yarn", out="my-model-32k"))

`extend` rebuilds the rotary modules of the live model, not only its configuration, and measures the loss before and
after; it needs the package transformers. `extend_config` changes keys of the config, without weights or torch.

extension       extend(), from the first measurement to the folder;  result: measurements in words
methods         by name: scalings of the frequencies, searched factors, remapped distances
search          factors of LongRoPE and LongRoPE2, alone or in their recipes, resumable;  tuning: the training loop
rotary_modules  rebuilds and restores the rotary modules of a live model
loading         loads folders and GGUF files;  folder: the extended model, its state, commands for engines
weight_files    links weights that do not change
measure         losses and decoding before and after, cached in a file;  retrieval: facts hidden in texts
estimate        time and memory, before anything is measured
plan            plan_extension(): type, factor, original length, or a refusal;  documented: the authors' recipes
config_only     extend_config(): the plan, written;  engine_lines: how to serve it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from posenc.lazy_imports import lazy_names

if TYPE_CHECKING:
    from posenc.hf.extend.config_only import ConfigExtension as ConfigExtension
    from posenc.hf.extend.config_only import extend_config as extend_config
    from posenc.hf.extend.extension import extend as extend
    from posenc.hf.extend.measure import WindowLosses as WindowLosses
    from posenc.hf.extend.methods import METHODS as METHODS
    from posenc.hf.extend.result import Extension as Extension
    from posenc.hf.extend.tuning import Recipe as Recipe

__getattr__, __dir__, _ = lazy_names(
    __name__,
    {
        "posenc.hf.extend.config_only": "ConfigExtension extend_config",
        "posenc.hf.extend.extension": "extend",
        "posenc.hf.extend.measure": "WindowLosses",
        "posenc.hf.extend.methods": "METHODS",
        "posenc.hf.extend.result": "Extension",
        "posenc.hf.extend.tuning": "Recipe",
    },
)
