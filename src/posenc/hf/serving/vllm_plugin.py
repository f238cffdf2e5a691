"""vLLM's plug-in: ``get_rope`` understands the rope type "posenc".

vLLM calls `register` in each of its processes before models are loaded; modules that imported ``get_rope`` earlier get
the new one too.
Source: vLLM, design/plugin_system (entry point vllm.general_plugins).
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from vllm.model_executor.layers import rotary_embedding

from posenc.hf.serving.plugin_rotation import around


def register() -> None:
    """Entry point; a second call does nothing."""
    original = rotary_embedding.get_rope
    if getattr(original, "of_posenc", False):
        return
    wrapped: Any = functools.wraps(original)(functools.partial(around(_base), original))
    wrapped.of_posenc = True
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get("get_rope") is original:
            vars(module)["get_rope"] = wrapped


def _base() -> type[Any]:
    cls: type[Any] = rotary_embedding.RotaryEmbedding
    return cls
