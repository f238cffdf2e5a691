"""SGLang's plug-in: ``get_rope`` understands the rope type "posenc".

Source: SGLang 0.5, srt/plugins (entry point sglang.srt.plugins; hooks reach modules that imported a function before).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from posenc.hf.serving.plugin_rotation import around

_WHERE = "sglang.srt.layers.rotary_embedding"


def register() -> None:
    """Entry point: SGLang applies the hook once all plug-ins are there."""
    HookRegistry.register(f"{_WHERE}.factory.get_rope", around(_base), HookType.AROUND)


def _base() -> type[Any]:
    cls: type[Any] = import_module(f"{_WHERE}.base").RotaryEmbedding
    return cls
