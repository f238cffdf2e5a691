"""Context extension of transformers models, with measurements: `posenc extend`; of a config alone: --config-only.

    from posenc.hf.extend import extend, extend_config
    print(extend_config("Qwen/Qwen3-8B", 131072))
    print(extend("my-model", 32768, "yarn", out="my-model-32k"))

`extend` rebuilds the rotary modules of the live model, not only its configuration, and evaluates it before and after
(`posenc.hf.evaluate`); it needs the package transformers. `extend_config` changes keys of the config, without weights
or torch.

extension    extend(): evaluated before and after, and written;  folder: the extended model, with commands for engines
config_only  extend_config(): the plan (`posenc.hf.plan`), written, with lines that serve it (`posenc.hf.serving`)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from posenc.lazy_imports import lazy_names

if TYPE_CHECKING:
    from posenc.hf.attach.scaling_methods import METHODS as METHODS
    from posenc.hf.extend.config_only import ConfigExtension as ConfigExtension
    from posenc.hf.extend.config_only import extend_config as extend_config
    from posenc.hf.extend.extension import Extension as Extension
    from posenc.hf.extend.extension import extend as extend

__getattr__, __dir__, _ = lazy_names(
    __name__,
    {
        "posenc.hf.extend.config_only": "ConfigExtension extend_config",
        "posenc.hf.extend.extension": "Extension extend",
        "posenc.hf.attach.scaling_methods": "METHODS",
    },
)
