"""Compares tiled calls with the definition: lists of encodings by name, values and gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from posenc import ALiBi, AttentionSink, BiasEncoding, ForgetGate, RoPE, ScoreEncoding, T5Bias, attention
from posenc.backends.tiles import operator
from posenc.bias import FIRE, KERPLE
from posenc.encoding import Context, Encoding
from posenc.score import DAPE, CoPE, Shaw, TransformerXL
from posenc.structure import Column, Decay
from posenc.testing import Case, backends
from posenc.weight import StickBreaking
from tests.samples import gap, qkv

BORDERS = [1, 2, 63, 64, 65, 255, 256, 257, 513]
CROSS = [(1, 300), (2, 70), (16, 17), (65, 70), (70, 600), (257, 300)]
HEADS, KV_HEADS, HEAD_DIM, VALUE_DIM, DIM = 4, 2, 8, 5, 12


class PerKey(ScoreEncoding):
    """A number for each key: read from the tokens, or the same for all rows of the batch."""

    def __init__(self, *, of_tokens: bool = True, size: float = 1.0) -> None:
        super().__init__()
        self.of_tokens, self.size = of_tokens, size
        self.weight = nn.Parameter(torch.randn(HEADS, DIM))

    def token_state(self, x: Tensor) -> Tensor | None:
        wide = torch.promote_types(x.dtype, torch.float32)
        return (x.to(wide) @ self.weight.to(wide).T).mT * self.size if self.of_tokens else None

    def values(self, context: Context) -> Tensor:
        if context.token_state is not None:
            return context.token_state
        wide = torch.promote_types(context.q.dtype, torch.float32)
        waves = torch.arange(context.k.shape[2], dtype=wide)[:, None] * torch.arange(1, DIM + 1)
        return (waves.cos() @ self.weight.to(wide).T).mT[None] * self.size

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        return scores + self.values(context).unsqueeze(-2)

    def structure(self, context: Context, *, future: bool) -> Sequence[Column]:
        return (Column(self.values(context).to(torch.promote_types(context.q.dtype, torch.float32))),)


class Fading(ScoreEncoding):
    """Forget gates that are given: a learned number for each head."""

    def __init__(self, *gates: float) -> None:
        super().__init__()
        self.gates = nn.Parameter(torch.tensor(gates, dtype=torch.float64))

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        gates = self.gates.to(scores.dtype)[None, :, None, None].expand(*scores.shape[:2], 1, scores.shape[-1])
        if context.mask is not None:
            gates = torch.where(context.mask, gates, 0.0)
        return scores + nn.functional.pad(gates.flip(-1).cumsum(-1).flip(-1), (0, 1))[..., 1:]  # of all later keys

    def structure(self, context: Context, *, future: bool) -> Sequence[Decay]:
        gates = self.gates.to(torch.promote_types(context.q.dtype, torch.float32))
        return (Decay(gates[None, :, None].expand(1, -1, context.k.shape[2])),)


class Bell(BiasEncoding):
    """A learned function of the distance that all heads share."""

    def __init__(self) -> None:
        super().__init__()
        self.width = nn.Parameter(torch.ones(()))

    def of_distance(self, distance: Tensor) -> Tensor:
        return 3 * (-(distance * self.width / 20).square()).exp()[None]

    def forward(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return self.of_distance(k_pos - q_pos[..., None])


RECIPES: dict[str, Callable[[], list[Encoding]]] = {
    "nope": list,
    "alibi": lambda: [ALiBi(HEADS)],
    "t5": lambda: [T5Bias(HEADS, init_std=1.0, bidirectional=True)],
    "one row for all heads": lambda: [Bell()],
    "per key": lambda: [PerKey()],
    "per key, one batch": lambda: [PerKey(of_tokens=False)],
    "fox": lambda: [ForgetGate(DIM, num_heads=HEADS, init_std=1.0)],
    "fox bias": lambda: [ForgetGate(DIM, num_heads=HEADS, kind="bias", decay_time=(2, 200), scaled=True)],
    "shaw": lambda: [Shaw(HEAD_DIM, max_distance=9, value_dim=VALUE_DIM, init_std=0.5)],
    "shaw far": lambda: [Shaw(HEAD_DIM, max_distance=90, value_dim=VALUE_DIM, init_std=0.5)],
    "shaw keys": lambda: [Shaw(HEAD_DIM, max_distance=70, values=False, init_std=0.5)],
    "xl": lambda: [TransformerXL(DIM, num_heads=HEADS, head_dim=HEAD_DIM)],
    "xl clamped": lambda: [TransformerXL(DIM, num_heads=HEADS, head_dim=HEAD_DIM, clamp=30)],
    "cope": lambda: [CoPE(HEAD_DIM, max_position=20)],
    "cope scaled": lambda: [CoPE(HEAD_DIM, max_position=7, scaled=True)],
    "cope separate": lambda: [CoPE(HEAD_DIM, max_position=20, gates="separate", dim=DIM, num_kv_heads=KV_HEADS)],
    "cope relative": lambda: [CoPE(HEAD_DIM, max_position=20, relative=7)],
    "rope+cope rotated": lambda: [RoPE(HEAD_DIM), CoPE(HEAD_DIM, max_position=20, rotated=True)],
    "fire": lambda: [FIRE(HEADS, threshold=40)],
    "dape": lambda: [DAPE(KERPLE(HEADS), hidden=5)],
    "dape over fire": lambda: [RoPE(HEAD_DIM), DAPE(FIRE(HEADS, threshold=40, leak=0.01))],
    "terms+dape": lambda: [
        T5Bias(HEADS, init_std=1.0, bidirectional=True),
        Shaw(HEAD_DIM, max_distance=9, value_dim=VALUE_DIM, init_std=0.5),
        DAPE(KERPLE(HEADS)),
        PerKey(),
        AttentionSink(HEADS),
    ],
    "sticks": lambda: [StickBreaking()],
    "sticks current": lambda: [StickBreaking(attend_current=True)],
    "sticks own": lambda: [StickBreaking(remainder="own")],
    "sticks vector": lambda: [
        StickBreaking(attend_current=True, remainder="vector", num_heads=HEADS, value_dim=VALUE_DIM)
    ],
    "t5+fox": lambda: [T5Bias(HEADS, init_std=1.0, bidirectional=True), ForgetGate(DIM, num_heads=HEADS, init_std=1.0)],
    "alibi+per key": lambda: [ALiBi(HEADS), PerKey()],
    "t5+fire": lambda: [T5Bias(HEADS, init_std=1.0, bidirectional=True), FIRE(HEADS, threshold=40)],
    "fox+sticks": lambda: [ForgetGate(DIM, num_heads=HEADS, init_std=1.0), StickBreaking()],
    "two copes+sticks": lambda: [
        RoPE(HEAD_DIM),
        CoPE(HEAD_DIM, max_position=20),
        CoPE(HEAD_DIM, max_position=7, rotated=True),
        StickBreaking(),
    ],
    "shaw+sticks own": lambda: [
        Shaw(HEAD_DIM, max_distance=9, value_dim=VALUE_DIM, init_std=0.5),
        StickBreaking(remainder="own"),
    ],
    "shaw+sticks current own": lambda: [
        Shaw(HEAD_DIM, max_distance=9, value_dim=VALUE_DIM, init_std=0.5),
        StickBreaking(remainder="own", attend_current=True),
    ],
    "shaw+sticks": lambda: [Shaw(HEAD_DIM, max_distance=9, value_dim=VALUE_DIM, init_std=0.5), StickBreaking()],
    "cope+alibi+sticks": lambda: [CoPE(HEAD_DIM, max_position=20), ALiBi(HEADS), StickBreaking()],
    "everything": lambda: [
        RoPE(HEAD_DIM),
        FIRE(HEADS, threshold=40),
        T5Bias(HEADS, init_std=1.0, bidirectional=True),
        ForgetGate(DIM, num_heads=HEADS),
        CoPE(HEAD_DIM, max_position=9),
        Shaw(HEAD_DIM, max_distance=9, value_dim=VALUE_DIM, init_std=0.5),
        PerKey(),
    ],
}


def random_tensor(shape: Sequence[int], seed: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


CASE = Case("a list", list, HEADS, KV_HEADS, HEAD_DIM)
SITUATIONS = {s.name: s for s in backends.SITUATIONS[1:] if s.queries == s.keys == 9 and not (s.softcap or s.dropout)}


def situation(name: str, queries: int, keys: int) -> dict[str, object]:
    """The keywords of `attention` in a situation of `posenc.testing`, at these lengths."""
    options = dict(backends.options(CASE, SITUATIONS[name]._replace(queries=queries, keys=keys)))
    return {name: value for name, value in options.items() if name != "x" and value is not None}


def build_encodings(name: str, dtype: torch.dtype = torch.float64) -> list[Encoding]:
    """The encodings of a name, with every parameter moved off its first value."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encodings = RECIPES[name]()
        with torch.no_grad():
            for encoding in encodings:
                for parameter in encoding.parameters():
                    parameter.add_(torch.rand_like(parameter) * 0.3)
    return [encoding.to(dtype) for encoding in encodings]


def called(
    queries: int, keys: int | None = None, *, batch: int = 2, dtype: torch.dtype = torch.float64, dim: int = DIM
) -> list[Tensor]:
    """q, k, v and x, as projections leave them: grouped heads, narrow values, transposed in memory."""
    keys = queries if keys is None else keys
    q, k, v = qkv(
        batch, HEADS, queries, keys, HEAD_DIM, num_kv_heads=KV_HEADS, value_dim=VALUE_DIM, dtype=dtype, transposed=True
    )
    return [q, k, v, (random_tensor((batch, keys, dim), 5) * 2 - 1).to(dtype)]


def differentiated(
    encodings: Sequence[Encoding], tensors: Sequence[Tensor], *, backend: str = "tiled", **options: object
) -> dict[str, Tensor]:
    """The result and the gradients of q, k, v, x and all parameters, for a gradient that every dtype holds exactly."""
    inputs = dict(zip("qkvx", (t.detach().requires_grad_() for t in tensors), strict=True))
    q, k, v, x = inputs.values()
    for at, encoding in enumerate(encodings):
        learned = {name: p for name, p in encoding.named_parameters() if p.requires_grad}
        inputs |= {f"{at} {type(encoding).__name__}.{name}": p for name, p in learned.items()}
    out = attention(q, k, v, encodings, x=x, backend=backend, **options)
    signs = torch.randint(0, 2, out.shape, generator=torch.Generator().manual_seed(5)) * 2 - 1
    gradients = torch.autograd.grad(out, list(inputs.values()), signs.to(out.dtype), materialize_grads=True)
    return {"result": out.detach(), **dict(zip(inputs, gradients, strict=True))}


def expect_same(got: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float = 1e-10) -> None:
    """Equal up to so many of the largest number, or of 1."""
    assert list(got) == list(expected)
    got, expected = ({name: t.detach() for name, t in actual.items()} for actual in (got, expected))
    for name in expected:
        size = max(1.0, float(expected[name].abs().max())) if expected[name].numel() else 1.0
        assert gap(got[name], expected[name]) < tolerance * size, (
            f"{name}: {gap(got[name], expected[name]):.1e} of {size}"
        )


def expect_same_as_dense(
    encodings: Sequence[Encoding], tensors: Sequence[Tensor], tolerance: float = 1e-10, *, backend="tiled", **options
) -> None:
    """A backend gives the values and gradients of the definition for q, k, v and x."""
    got, expected = (differentiated(encodings, tensors, backend=name, **options) for name in (backend, "dense"))
    expect_same(got, expected, tolerance)


def expect_dense(
    recipe: str | Sequence[Encoding], queries: int, keys: int | None = None, *, backend: str = "tiled", **options
) -> None:
    """A backend gives the values and gradients of the definition, in float64."""
    encodings = build_encodings(recipe) if isinstance(recipe, str) else recipe
    tensors = called(queries, keys, batch=2 if max(queries, keys or 0) < 200 else 1)
    expect_same_as_dense(encodings, tensors, backend=backend, **options)


def errors(
    recipe: str, dtype: torch.dtype, length: int = 300, backend: str = "tiled", **options: object
) -> dict[str, float]:
    """By how much results and gradients in a narrow dtype differ from the float64 definition, relative to the norm."""
    encodings = build_encodings(recipe, torch.float32)
    tensors = called(length, batch=1, dtype=dtype)
    got = differentiated(encodings, tensors, backend=backend, **options)
    assert got["result"].dtype == dtype
    wide = [copy.deepcopy(encoding).double() for encoding in encodings]
    expected = differentiated(wide, [t.double() for t in tensors], backend="dense", **options)
    return {
        name: float((got[name].double() - expected[name]).norm() / expected[name].norm().clamp(min=1e-3))
        for name in got
    }


class Largest(TorchDispatchMode):
    """The largest storage that any operation returned, in elements; views of a small one count as small.

    It looks inside this library's operators, which are one operation to other modes.
    """

    INSIDE: ClassVar = {
        "posenc::attend_tiled": operator._forward, "posenc::attend_tiled_backward": operator._backward
    }  # fmt: skip
    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        inside = self.INSIDE.get(func._schema.name)
        if inside is not None:
            with self:
                return inside(*args, **(kwargs or {}))
        out = func(*args, **(kwargs or {}))
        stored = [t.untyped_storage().nbytes() // t.element_size() for t in tree_leaves(out) if isinstance(t, Tensor)]
        self.elements = max(self.elements, *stored, 0)
        return out
