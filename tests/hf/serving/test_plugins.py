"""The plug-ins in copies of the engines' interfaces: how they are found, whose class they make, which angles it has.

The interfaces are those of vLLM 0.11 to 0.13 (CustomOp and RotaryEmbedding; get_rope of both signatures) and of
SGLang 0.5.23 (get_rope, RotaryEmbedding with position_start and a table that grows; HookRegistry).
"""

from __future__ import annotations

import importlib
import math
import sys
import tomllib
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from posenc import DynamicNTK, RoPE, YaRN
from posenc.frequencies import MultiScale, Resonance
from posenc.hf.serving.plugin_block import plugin_block
from posenc.hf.serving.plugins import register_sglang, register_vllm


class RotaryEmbedding(nn.Module):
    """What both base classes do: a table in the constructor, rows of it in forward; flat heads."""

    def __init__(
        self, head_size: int, rotary_dim: int, max_position_embeddings: int, base: float, is_neox_style: bool,
        dtype: torch.dtype,
    ) -> None:  # fmt: skip
        super().__init__()
        self.head_size, self.rotary_dim, self.is_neox_style = head_size, rotary_dim, is_neox_style
        self.max_position_embeddings, self.base, self.dtype = max_position_embeddings, base, dtype
        self.position_start = 0
        self.register_buffer("cos_sin_cache", self._compute_cos_sin_cache().to(dtype), persistent=False)

    def _compute_inv_freq(self, base: float) -> Tensor:
        return base ** -(torch.arange(0, self.rotary_dim, 2, dtype=torch.float32) / self.rotary_dim)

    def _compute_cos_sin_cache(self) -> Tensor:
        angles = torch.arange(self.max_position_embeddings).float()[:, None] * self._compute_inv_freq(self.base)
        return torch.cat([angles.cos(), angles.sin()], -1)

    def forward(self, positions: Tensor, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = self.cos_sin_cache[positions.flatten()].chunk(2, -1)
        return self._rotate(query, cos, sin), self._rotate(key, cos, sin)

    def _rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        heads = x.view(len(cos), -1, self.head_size)
        turning, rest = heads[..., : self.rotary_dim], heads[..., self.rotary_dim :]
        pairs = turning.unflatten(-1, (2, -1) if self.is_neox_style else (-1, 2))
        a, b = pairs.unbind(-2 if self.is_neox_style else -1)
        cos, sin = cos[:, None], sin[:, None]
        out = torch.stack([a * cos - b * sin, b * cos + a * sin], -2 if self.is_neox_style else -1).flatten(-2)
        return torch.cat([out, rest], -1).reshape(x.shape)


def _rotary_class(head_size: int, rotary_dim: int, rows: int, base: float, neox: bool, dtype: Any, block: Any) -> Any:
    if block is not None and block.get("rope_type", "default") != "default":
        raise ValueError(f"Unknown RoPE scaling type {block}")
    return RotaryEmbedding(head_size, rotary_dim, rows, base, neox, dtype or torch.get_default_dtype())


def new_get_rope(
    head_size: int, max_position: int, is_neox_style: bool = True, rope_parameters: dict[str, Any] | None = None,
    dtype: torch.dtype | None = None, dual_chunk_attention_config: dict[str, Any] | None = None,
) -> Any:  # fmt: skip
    """vLLM 0.13's."""
    base = (rope_parameters or {}).get("rope_theta", 10000)
    return _rotary_class(head_size, head_size, max_position, base, is_neox_style, dtype, rope_parameters)


def old_get_rope(
    head_size: int, rotary_dim: int, max_position: int, base: float, is_neox_style: bool = True,
    rope_scaling: dict[str, Any] | None = None, dtype: torch.dtype | None = None, partial_rotary_factor: float = 1.0,
    dual_chunk_attention_config: dict[str, Any] | None = None,
) -> Any:  # fmt: skip
    """vLLM 0.11's and SGLang's."""
    return _rotary_class(head_size, rotary_dim, max_position, base, is_neox_style, dtype, rope_scaling)


def modules(monkeypatch: pytest.MonkeyPatch, *names: str) -> list[ModuleType]:
    """Empty modules with all their parents."""
    result = []
    for name in names:
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            path = ".".join(parts[:count])
            if path not in sys.modules or sys.modules[path].__spec__ is not None:
                monkeypatch.setitem(sys.modules, path, ModuleType(path))
            if count > 1:
                setattr(sys.modules[".".join(parts[: count - 1])], parts[count - 1], sys.modules[path])
        result.append(sys.modules[name])
    return result


def vllm(monkeypatch: pytest.MonkeyPatch, get_rope: Callable[..., Any]) -> ModuleType:
    engine, model = modules(monkeypatch, "vllm.model_executor.layers.rotary_embedding", "vllm.models.llama")
    engine.get_rope, engine.RotaryEmbedding = get_rope, RotaryEmbedding  # type: ignore[attr-defined]
    model.get_rope = get_rope  # type: ignore[attr-defined]  # imported before the plug-in came
    register_vllm()
    register_vllm()
    assert model.get_rope is engine.get_rope  # type: ignore[attr-defined]
    assert engine.get_rope.__wrapped__ is get_rope
    return model


class HookType(Enum):
    AROUND = "around"


class HookRegistry:
    """SGLang's, of hooks of one kind."""

    hooks: dict[str, Any] = {}  # noqa: RUF012

    @classmethod
    def register(cls, target: str, hook: Any, hook_type: HookType) -> None:
        assert hook_type is HookType.AROUND
        cls.hooks[target] = hook


def sglang(monkeypatch: pytest.MonkeyPatch, get_rope: Callable[..., Any]) -> ModuleType:
    where = "sglang.srt.layers.rotary_embedding"
    hooks, factory, base = modules(monkeypatch, "sglang.srt.plugins.hook_registry", f"{where}.factory", f"{where}.base")
    hooks.HookRegistry, hooks.HookType, base.RotaryEmbedding = HookRegistry, HookType, RotaryEmbedding  # type: ignore[attr-defined]
    register_sglang()
    (hook,) = (HookRegistry.hooks[name] for name in HookRegistry.hooks if name == f"{where}.factory.get_rope")
    factory.get_rope = lambda *a, **k: hook(get_rope, *a, **k)  # type: ignore[attr-defined]
    return factory


SPECTRA = {
    "resonant": RoPE(16, scaling=torch.nn.Sequential(YaRN(4.0, original_length=64), Resonance())),
    "interleaved part": RoPE(16, layout="interleaved", rotary_dim=8, base=100.0),
    "dynamic, declared": RoPE(16, scaling=DynamicNTK(original_length=64)),
}


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize(("engine", "get_rope"), [(vllm, new_get_rope), (vllm, old_get_rope), (sglang, old_get_rope)])
def test_serves_a_spectrum(monkeypatch: pytest.MonkeyPatch, engine: Any, get_rope: Any, name: str) -> None:
    rope = SPECTRA[name]
    length = 256 if rope.length_dependent else None
    block = plugin_block(rope, length=length, tokens=256)
    fake_engine = engine(monkeypatch, get_rope)
    call = {"head_size": 16, "max_position": 64, "is_neox_style": True, "dtype": torch.float32}
    call |= (
        {"rope_parameters": block} if get_rope is new_get_rope else {"rope_scaling": block, "rotary_dim": 16, "base": 1}
    )
    module = fake_engine.get_rope(**call)
    assert isinstance(module, RotaryEmbedding)
    assert module is fake_engine.get_rope(**call), "one table for all layers"
    assert module.cos_sin_cache.shape == (256, rope.rotary_dim)
    positions, q, k = torch.randint(0, 256, (7,)), torch.randn(7, 64), torch.randn(7, 32)
    table = rope.table(positions, length)
    for got, x in zip(module(positions, q, k), (q, k), strict=True):
        right = rope.rotate(x.view(7, -1, 16).transpose(0, 1)[None], table)[0].transpose(0, 1).reshape(x.shape)
        torch.testing.assert_close(got, right, rtol=1e-6, atol=1e-6)
    unchanged = fake_engine.get_rope(**{key: value for key, value in call.items() if not key.startswith("rope_")})
    assert type(unchanged) is RotaryEmbedding, "all else stays the engine's"


def test_angles_are_exact_and_tables_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the engine's own float32 table is wrong: far out, and beyond the rows of the start."""
    block = plugin_block(RoPE(4, base=10000.0))
    module = vllm(monkeypatch, new_get_rope).get_rope(4, 2**18, True, block, torch.float32)
    last = 2**18 - 1
    angles = [math.remainder(last * theta, 2 * math.pi) for theta in (1.0, 0.01)]
    right = torch.tensor([*map(math.cos, angles), *map(math.sin, angles)])
    torch.testing.assert_close(module.cos_sin_cache[last], right, rtol=0, atol=3e-7)
    assert (RotaryEmbedding(4, 4, 2**18, 10000.0, True, torch.float32).cos_sin_cache[last] - right).abs().max() > 2e-5
    small = vllm(monkeypatch, new_get_rope).get_rope(4, 8, True, block, torch.float32)
    small._ensure_cos_sin_cache_length(20)
    torch.testing.assert_close(small.cos_sin_cache, module.cos_sin_cache[:21], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"theta": [1.0]}, "theta"),
        ({"theta": [1.0, -1.0]}, "theta"),
        ({"gain": 0}, "gain"),
        ({"frequencies": [1.0]}, "frequencies"),
        ({"tokens": "x"}, "tokens"),
        ({"interleaved": "no"}, "interleaved"),
    ],
)
def test_blocks_that_cannot_be(monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], words: str) -> None:
    fake_engine = vllm(monkeypatch, new_get_rope)
    with pytest.raises(ValueError, match=words):
        fake_engine.get_rope(4, 8, True, {**plugin_block(RoPE(4)), **change})
    with pytest.raises(ValueError, match="dual"):
        fake_engine.get_rope(4, 8, True, plugin_block(RoPE(4)), None, {"chunk_size": 4})


def test_the_entry_points_are_there() -> None:
    points = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]["entry-points"]
    for group in ("vllm.general_plugins", "sglang.srt.plugins"):
        module, _, name = points[group]["posenc"].partition(":")
        assert callable(getattr(importlib.import_module(module), name))


def test_what_has_no_one_spectrum() -> None:
    for scaling in (DynamicNTK(original_length=64), MultiScale(4)):
        with pytest.raises(ValueError, match="spectrum"):
            plugin_block(RoPE(16, scaling=scaling))
