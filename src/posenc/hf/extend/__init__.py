"""Context extension of transformers models, with measurements: `posenc extend`; of a config alone: --config-only.

    from posenc.hf.extend import extend, extend_config
    print(extend_config("Qwen/Qwen3-8B", 131072))
    print(extend("my-model", 32768, "yarn", out="my-model-32k"))

`extend` rebuilds the rotary modules of the live model, not only its configuration, and measures the loss before and
after; it needs the package transformers. `extend_config` changes keys of the config, without weights or torch.

extension       extend(), from the first measurement to the folder;  result: measurements in words
methods         by name: scalings of the frequencies, LongRoPE's search, remapped distances
search          LongRoPE's factors, alone or in its recipe, resumable;  tuning: the training loop
rotary_modules  rebuilds and restores the rotary modules of a live model
loading         loads folders and GGUF files;  folder: the extended model, its state, commands for engines
measure         losses and decoding before and after, cached in a file
config_only     extend_config();  recipes: what to write;  engine_lines: how to serve it
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from posenc.hf.extend.config_only import ConfigExtension as ConfigExtension
    from posenc.hf.extend.config_only import extend_config as extend_config
    from posenc.hf.extend.extension import extend as extend
    from posenc.hf.extend.measure import WindowLosses as WindowLosses
    from posenc.hf.extend.methods import METHODS as METHODS
    from posenc.hf.extend.result import Extension as Extension
    from posenc.hf.extend.tuning import Recipe as Recipe

_HOMES = {
    "ConfigExtension": "config_only", "extend_config": "config_only", "extend": "extension", "WindowLosses": "measure",
    "METHODS": "methods", "Extension": "result", "Recipe": "tuning",
}  # fmt: skip
__all__ = ["METHODS", "ConfigExtension", "Extension", "Recipe", "WindowLosses", "extend", "extend_config"]


def __getattr__(name: str) -> Any:
    """A public name from its module: `extend_config` must not import torch and transformers."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
