"""Plug-ins of vLLM and SGLang: ``get_rope`` understands the rope type "posenc" (`posenc.hf.serving.plugin_block`).

Both engines read cos and sin from a table that their class computes in float32, wrong by 0.12 at two million tokens.
Here the table is exact, and everything else, kernels included, is the engine's own.
Source: vLLM and SGLang, layers/rotary_embedding: RotaryEmbedding, get_rope; vLLM, design/plugin_system (entry point
    vllm.general_plugins); SGLang 0.5, srt/plugins (entry point sglang.srt.plugins).
"""

from __future__ import annotations

import functools
import inspect
import json
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from posenc.frequencies.spectrum import Spectrum
from posenc.hf.config.rope_keys import Block
from posenc.hf.serving.plugin_block import ROPE_TYPE, check_block
from posenc.rotary._rotation_table import RotationTable


def table(block: Block, start: int, end: int) -> Tensor:
    """cos and sin of positions start … end − 1, ``(end − start, 2 · pairs)``, float32, on the default device."""
    theta = torch.tensor(block["theta"], dtype=torch.float64, device="cpu")
    waves = RotationTable.constant(
        Spectrum(theta, None, torch.tensor(block["gain"], dtype=torch.float64, device="cpu"))
    )
    return torch.cat(waves.table(torch.arange(start, end), torch.float32), -1)


def around(base: Callable[[], type[Any]]) -> Callable[..., Any]:
    """An engine's ``get_rope`` with the rope type "posenc": a function (original, *args, **kwargs).

    Args:
        base: gives the engine's RotaryEmbedding.
    """
    modules: dict[str, Any] = {}

    def get_rope(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(original).bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = bound.arguments
        block = arguments.get("rope_parameters") or arguments.get("rope_scaling") or {}
        if block.get("rope_type", block.get("type")) != ROPE_TYPE:
            return original(*args, **kwargs)
        check_block(block, arguments["head_size"])
        if arguments.get("dual_chunk_attention_config") is not None:
            raise ValueError("rope_type 'posenc' has no dual chunks: leave dual_chunk_attention_config out")
        dtype = arguments.get("dtype") or torch.get_default_dtype()
        rows = max(arguments["max_position"], block.get("tokens", 0))
        neox = not block["interleaved"] if "interleaved" in block else arguments["is_neox_style"]
        key = json.dumps([block, arguments["head_size"], rows, neox, str(dtype), str(torch.get_default_device())])
        if key not in modules:  # one module for all layers, as the engines have it
            cls = rotary_class(base(), block)
            width, theta = block.get("rotary_dim", arguments["head_size"]), block.get("rope_theta", 10000.0)
            modules[key] = cls(arguments["head_size"], width, rows, theta, neox, dtype)
        return modules[key]

    return get_rope


def rotary_class(base: type[Any], block: Block) -> type[Any]:
    """An engine's RotaryEmbedding with the frequencies of a block."""
    values = {"gain": 1.0, **block}

    class Posenc(base):  # type: ignore[misc]
        """The engine's class: its kernels, its interface; the table is posenc's."""

        cos_sin_cache: Tensor

        def _compute_inv_freq(self, base: float) -> Tensor:
            return torch.tensor(values["theta"], dtype=torch.float32)

        def _compute_cos_sin_cache(self) -> Tensor:
            start = getattr(self, "position_start", 0)
            return table(values, start, start + self.max_position_embeddings)

        def _ensure_cos_sin_cache_length(self, needed_max_pos: int) -> None:
            """SGLang's: more rows."""
            old = self.cos_sin_cache
            if needed_max_pos < len(old):
                return
            start = getattr(self, "position_start", 0)
            more = table(values, start + len(old), start + needed_max_pos + 1)
            self.cos_sin_cache = torch.cat([old, more.to(old.device, old.dtype)])

    return Posenc


def register_vllm() -> None:
    """Entry point of vLLM, which calls it in each of its processes before models are loaded; twice is as once.

    Modules that imported ``get_rope`` earlier get the new one too.
    """
    engine = import_module("vllm.model_executor.layers.rotary_embedding")
    original = engine.get_rope
    if getattr(original, "of_posenc", False):
        return
    get_rope = functools.partial(around(lambda: engine.RotaryEmbedding), original)
    wrapped: Any = functools.wraps(original)(get_rope)
    wrapped.of_posenc = True
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get("get_rope") is original:
            vars(module)["get_rope"] = wrapped


def register_sglang() -> None:
    """Entry point of SGLang, which applies the hook once all plug-ins are there, also to modules imported before."""
    hooks, where = import_module("sglang.srt.plugins.hook_registry"), "sglang.srt.layers.rotary_embedding"
    get_rope = around(lambda: import_module(f"{where}.base").RotaryEmbedding)
    hooks.HookRegistry.register(f"{where}.factory.get_rope", get_rope, hooks.HookType.AROUND)
