"""Hugging Face configurations: read, explained, written. Needs no torch for that.

`read_rope` and `rope_from_config` read, `RopeConfig.to_config` and `rope_to_config` write, `preset` gives well-known
configurations, `explain` reports what one means, as `posenc explain` prints it; `extend_config` and `convert_config`
change the text of a config.json; `write_gguf`, `serve_flags` and `plugin_block` hand a rotation to engines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from posenc.lazy_imports import lazy_names

if TYPE_CHECKING:
    from posenc.hf.batches import CheckBatch as CheckBatch
    from posenc.hf.caches import CacheEditor as CacheEditor
    from posenc.hf.config.convert import ConfigConversion as ConfigConversion
    from posenc.hf.config.convert import convert_config as convert_config
    from posenc.hf.config.convert import rope_to_config as rope_to_config
    from posenc.hf.config.facts import ModelFacts as ModelFacts
    from posenc.hf.config.layers import LayerFacts as LayerFacts
    from posenc.hf.config.rope_config import RopeConfig as RopeConfig
    from posenc.hf.config.rope_config import model_from_config as model_from_config
    from posenc.hf.config.rope_config import read_rope as read_rope
    from posenc.hf.config.rope_config import rope_from_config as rope_from_config
    from posenc.hf.explanation.layer_attention import LayerAttention as LayerAttention
    from posenc.hf.explanation.layer_attention import encodings_of as encodings_of
    from posenc.hf.explanation.report import Explanation as Explanation
    from posenc.hf.explanation.report import as_text as as_text
    from posenc.hf.explanation.report import explain as explain
    from posenc.hf.explanation.report import facts as facts
    from posenc.hf.extend.config_only import ConfigExtension as ConfigExtension
    from posenc.hf.extend.config_only import extend_config as extend_config
    from posenc.hf.findings import Finding as Finding
    from posenc.hf.gguf import write_gguf as write_gguf
    from posenc.hf.serving.lines import serve_flags as serve_flags
    from posenc.hf.serving.plugin_block import plugin_block as plugin_block
    from posenc.hf.sources.presets import PRESETS as PRESETS
    from posenc.hf.sources.presets import preset as preset

__getattr__, __dir__, _ = lazy_names(
    __name__,
    {
        "posenc.hf.batches": "CheckBatch",
        "posenc.hf.caches": "CacheEditor",
        "posenc.hf.config.convert": "ConfigConversion convert_config rope_to_config",
        "posenc.hf.config.rope_config": "RopeConfig model_from_config read_rope rope_from_config",
        "posenc.hf.explanation.layer_attention": "LayerAttention encodings_of",
        "posenc.hf.config.facts": "ModelFacts",
        "posenc.hf.config.layers": "LayerFacts",
        "posenc.hf.explanation.report": "Explanation as_text explain facts",
        "posenc.hf.extend.config_only": "ConfigExtension extend_config",
        "posenc.hf.findings": "Finding",
        "posenc.hf.gguf": "write_gguf",
        "posenc.hf.serving.lines": "serve_flags",
        "posenc.hf.serving.plugin_block": "plugin_block",
        "posenc.hf.sources.presets": "PRESETS preset",
    },
)

__all__ = [
    "as_text",
    "CacheEditor",
    "CheckBatch",
    "ConfigConversion",
    "ConfigExtension",
    "convert_config",
    "encodings_of",
    "explain",
    "extend_config",
    "Explanation",
    "facts",
    "LayerAttention",
    "LayerFacts",
    "ModelFacts",
    "model_from_config",
    "plugin_block",
    "preset",
    "PRESETS",
    "read_rope",
    "Finding",
    "rope_from_config",
    "rope_to_config",
    "RopeConfig",
    "serve_flags",
    "write_gguf",
]
