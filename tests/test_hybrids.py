"""Hybrids are lists: each against its formula, written out here without the library."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from posenc import FIRE, ALiBi, CoPE, ForgetGate, RoPE, Sinusoidal, YaRN, attention, explain
from posenc.backends.call import BACKENDS
from posenc.encoding import EmbeddingEncoding, Encoding, ScoreEncoding
from posenc.layers import KVCache, SelfAttention
from tests.samples import bounded, gap

HEADS, KV_HEADS, WIDTH, DIM = 4, 2, 8, 32
KEYS, QUERIES = 9, 6
POSITIONS = torch.tensor([2, 3, 4, 7, 8, 11, 15, 16, 30])  # gaps, and no start at 0
SCALE = WIDTH**-0.5


@dataclass(frozen=True)
class Scene:
    """One layer of the formulas: x (batch, keys, dim) and its q, k, v, all of them (batch, heads, tokens, width)."""

    x: Tensor
    q: Tensor
    k: Tensor  # repeated, one a query head
    v: Tensor

    @property
    def distance(self) -> Tensor:
        """(queries, keys), in tokens, as a number ≥ 0."""
        return (POSITIONS[-QUERIES:, None] - POSITIONS).abs().double()

    @property
    def seen(self) -> Tensor:
        """(queries, keys), True where a query may look."""
        return torch.arange(KEYS - QUERIES, KEYS)[:, None] >= torch.arange(KEYS)


def rotated_pairs(x: Tensor, theta: list[float], gain: float = 1.0) -> Tensor:
    """x rotated by its positions, pairs (i, i + 4); theta in radians per token."""
    angle = POSITIONS[-x.shape[2] :, None].double() * torch.tensor(theta, dtype=torch.float64)
    a, b = x[..., : WIDTH // 2], x[..., WIDTH // 2 :]
    return gain * torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def rope_scores(scene: Scene, theta: list[float] | None = None, gain: float = 1.0) -> Tensor:
    theta = [10_000 ** (-2 * j / WIDTH) for j in range(WIDTH // 2)] if theta is None else theta
    return rotated_pairs(scene.q, theta, gain) @ rotated_pairs(scene.k, theta, gain).mT * SCALE


def alibi_bias(scene: Scene, slopes: list[float]) -> Tensor:
    return -torch.tensor(slopes, dtype=torch.float64).view(-1, 1, 1) * scene.distance


def rope_alibi(scene: Scene, encodings: list[Encoding]) -> Tensor:
    return rope_scores(scene) + alibi_bias(scene, [1 / 4, 1 / 16, 1 / 64, 1 / 256])


def rope_alibi_on_some_heads(scene: Scene, encodings: list[Encoding]) -> Tensor:
    scores = rope_scores(scene)
    biased = scores[:, [0, 2]] + alibi_bias(scene, [0.5, 0.125])
    return torch.stack([biased[:, 0], scores[:, 1], biased[:, 1], scores[:, 3]], 1)


def rope_forget(scene: Scene, encodings: list[Encoding]) -> Tensor:
    gate = encodings[1]
    total = (scene.x @ gate.weight.T + gate.bias).sigmoid().log().mT.cumsum(-1)  # (batch, heads, keys)
    return rope_scores(scene) + total[:, :, -QUERIES:, None] - total[:, :, None, :]


def rope_fire(scene: Scene, encodings: list[Encoding]) -> Tensor:
    fire = encodings[1]
    limit = torch.maximum(POSITIONS[-QUERIES:, None].double(), (fire.multiplier * 20).abs())
    ratio = (1 + (fire.c * scene.distance).abs()).log() / ((1 + (fire.c * limit).abs()).log() + 1e-6)
    hidden = (ratio[..., None] * fire.inner.weight[:, 0] + fire.inner.bias).clamp(min=0)
    return rope_scores(scene) + (hidden @ fire.outer.weight.T + fire.outer.bias).permute(2, 0, 1)


def cope_term(scene: Scene, encodings: list[Encoding], q: Tensor, k: Tensor) -> Tensor:
    table, gates = encodings[1].table, (q @ k.mT * SCALE).sigmoid() * scene.seen
    counts = torch.stack([gates[..., j:].sum(-1) for j in range(KEYS)], -1).clamp(max=3)
    z, term = q @ table, 0
    for p in range(4):  # a hat function around each whole count
        term = term + z[..., p, None] * (1 - (counts - p).abs()).clamp(min=0)
    return term


def rope_cope_of_content(scene: Scene, encodings: list[Encoding]) -> Tensor:
    return rope_scores(scene) + cope_term(scene, encodings, scene.q, scene.k)


def rope_cope_rotated(scene: Scene, encodings: list[Encoding]) -> Tensor:
    theta = [10_000 ** (-2 * j / WIDTH) for j in range(WIDTH // 2)]
    return rope_scores(scene) + cope_term(
        scene, encodings, rotated_pairs(scene.q, theta), rotated_pairs(scene.k, theta)
    )


def sinusoidal_alibi(scene: Scene, encodings: list[Encoding]) -> Tensor:
    return scene.q @ scene.k.mT * SCALE + alibi_bias(scene, [1 / 4, 1 / 16, 1 / 64, 1 / 256])


def waves(x: Tensor) -> Tensor:
    """x with sines and cosines added, alternating."""
    angle = POSITIONS[:, None].double() * 10_000 ** (-torch.arange(0, DIM, 2, dtype=torch.float64) / DIM)
    return x + torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)


def yarn_alibi(scene: Scene, encodings: list[Encoding]) -> Tensor:
    def index(turns: float) -> float:  # of the pair that makes that many turns within 64 tokens
        return WIDTH * math.log(64 / (turns * 2 * math.pi)) / (2 * math.log(10_000))

    low, high = max(math.floor(index(4)), 0), min(math.ceil(index(0.25)), WIDTH - 1)
    theta = []
    for j in range(WIDTH // 2):
        unscaled, ramp = 10_000 ** (-2 * j / WIDTH), min(max((j - low) / (high - low), 0), 1)
        theta.append(unscaled * (1 - ramp) + unscaled / 8 * ramp)
    assert 0.1 / 8 < theta[1] < 0.1, "one pair lies on the ramp"
    return rope_scores(scene, theta, 0.1 * math.log(8) + 1) + alibi_bias(scene, [1 / 4, 1 / 16, 1 / 64, 1 / 256])


@dataclass(frozen=True)
class Hybrid:
    """A list, and its scores by hand."""

    make: Callable[[], list[Encoding]]
    scores: Callable[[Scene, list[Encoding]], Tensor]
    embed: Callable[[Tensor], Tensor] = torch.clone


def yarn() -> YaRN:
    return YaRN(8.0, original_length=64, beta_fast=4.0, beta_slow=0.25)


HYBRIDS = {
    "rope+alibi": Hybrid(lambda: [RoPE(8), ALiBi(4)], rope_alibi),
    "rope+alibi_on_some_heads": Hybrid(
        lambda: [RoPE(8), ALiBi(4, slopes=[0.5, 0, 0.125, 0])], rope_alibi_on_some_heads
    ),
    "rope+fox": Hybrid(lambda: [RoPE(8), ForgetGate(32, num_heads=4)], rope_forget),
    "rope+fire": Hybrid(lambda: [RoPE(8), FIRE(4, hidden=6, threshold=20)], rope_fire),
    "rope+cope": Hybrid(lambda: [RoPE(8), CoPE(8, max_position=3)], rope_cope_of_content),
    "rope+cope_rotated": Hybrid(lambda: [RoPE(8), CoPE(8, max_position=3, rotated=True)], rope_cope_rotated),
    "sinusoidal+alibi": Hybrid(lambda: [Sinusoidal(32), ALiBi(4)], sinusoidal_alibi, waves),
    "yarn+alibi": Hybrid(lambda: [RoPE(8, scaling=yarn()), ALiBi(4)], yarn_alibi),
}
UNSEEN = {"FIRE.outer.bias"}  # one number for all keys of a query: softmax does not see it, alone or in a mix
EACH = pytest.mark.parametrize("name", HYBRIDS)


def build(name: str, dtype: torch.dtype = torch.float64) -> list[Encoding]:
    """The list with every parameter moved, so that zero tables matter."""
    torch.manual_seed(3)
    encodings = [encoding.to(dtype) for encoding in HYBRIDS[name].make()]
    with torch.no_grad():
        for parameter in (p for encoding in encodings for p in encoding.parameters()):
            parameter.add_(torch.randn_like(parameter) * 0.5)
    return encodings


def inputs() -> dict[str, Tensor]:
    """x and the projections, float64 leaves."""
    source = torch.Generator().manual_seed(1)
    shapes = {"x": (2, KEYS, DIM), "wq": (DIM, HEADS * WIDTH), "wk": (DIM, KV_HEADS * WIDTH)}
    shapes["wv"] = shapes["wk"]
    samples = {name: torch.randn(shape, generator=source, dtype=torch.float64) for name, shape in shapes.items()}
    return {n: (t if n == "x" else t * DIM**-0.5).requires_grad_() for n, t in samples.items()}


def projected(x: Tensor, arrays: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = ((x @ arrays[w]).unflatten(-1, (-1, WIDTH)).transpose(1, 2) for w in ("wq", "wk", "wv"))
    return q[:, :, -QUERIES:], k, v


def call_of(encodings: list[Encoding], arrays: dict[str, Tensor]) -> tuple[tuple, dict]:
    """Arguments of `attention`: embeddings act before the projections, everything else inside."""
    x, inside = arrays["x"], [e for e in encodings if not isinstance(e, EmbeddingEncoding)]
    for encoding in encodings:
        x = encoding(x, POSITIONS) if isinstance(encoding, EmbeddingEncoding) else x
    return (*projected(x, arrays), inside), {"q_pos": POSITIONS[-QUERIES:], "k_pos": POSITIONS, "x": x}


def by_library(encodings: list[Encoding], arrays: dict[str, Tensor], backend: str) -> Tensor:
    arguments, options = call_of(encodings, arrays)
    return attention(*arguments, **options, backend=backend)


def by_hand(name: str, encodings: list[Encoding], arrays: dict[str, Tensor]) -> Tensor:
    x = HYBRIDS[name].embed(arrays["x"])
    q, k, v = projected(x, arrays)
    scene = Scene(x, q, *(t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (k, v)))
    scores = HYBRIDS[name].scores(scene, encodings)
    return scores.masked_fill(~scene.seen, -torch.inf).softmax(-1) @ scene.v


def serving(name: str) -> list[str]:
    """The backends that take such a call, by what explain says."""
    arguments, options = call_of(build(name), inputs())
    results = []
    for backend in BACKENDS:
        with suppress(ValueError):
            results.append(explain(*arguments, **options, backend=backend).backend)
    return results


@EACH
def test_values_and_gradients_equal_the_formula(name):
    assert "dense" in serving(name)
    for backend in ("auto", *serving(name)):
        values_and_gradients_are_those_of_the_formula(name, backend)


def values_and_gradients_are_those_of_the_formula(name: str, backend: str) -> None:
    encodings, arrays = build(name), inputs()
    out, expected = by_library(encodings, arrays, backend), by_hand(name, encodings, arrays)
    assert gap(out, expected) < 1e-12, backend
    leaves = {**arrays, **{f"{type(e).__name__}.{n}": p for e in encodings for n, p in e.named_parameters()}}
    downstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    got = torch.autograd.grad(out, list(leaves.values()), downstream)
    exact = torch.autograd.grad(expected, list(leaves.values()), downstream)
    for leaf, gradient, other in zip(leaves, got, exact, strict=True):
        assert gap(gradient, other) < 1e-11, (backend, leaf)
        assert (gradient.abs().max() > 1e-6) == (leaf not in UNSEEN), f"nothing flows to {leaf}"


@EACH
def test_explain_names_the_backend(name):
    encodings = build(name)
    arguments, options = call_of(encodings, inputs())
    explanation = explain(*arguments, **options)
    assert {explanation.backend, *explanation.refused} == set(BACKENDS)
    assert explanation.backend in serving(name)
    if not any(isinstance(encoding, ScoreEncoding) for encoding in encodings):
        assert explanation.backend != "dense", "rotations and biases need no full matrix of scores"


@EACH
def test_each_member_matters(name):
    """The sizes above are such that no half of a list could be ignored unseen."""
    encodings, arrays = build(name), inputs()
    full = by_library(encodings, arrays, "auto")
    for left_out in range(2):
        assert gap(full, by_library([encodings[1 - left_out]], arrays, "auto")) > 1e-3


@EACH
def test_order_between_hook_points_follows_the_data_flow(name):
    encodings, arrays = build(name), inputs()
    turned_around = by_library(encodings[::-1], arrays, "auto")
    assert gap(turned_around, by_library(encodings, arrays, "auto")) < 1e-13


@EACH
@settings(bounded, max_examples=5)
@given(sizes=st.lists(st.integers(1, 6), min_size=2, max_size=6))
def test_decoding_in_any_chunks(name, sizes):
    layer = SelfAttention(DIM, HEADS, num_kv_heads=KV_HEADS, encodings=build(name, torch.float32))
    x = torch.randn(2, sum(sizes), DIM, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        cache = KVCache()
        parts = [layer(part, cache=cache) for part in torch.split(x, sizes, 1)]
        assert gap(torch.cat(parts, 1), layer(x)) < 1e-5
    assert len(cache) == sum(sizes)
