"""The encoding of some heads, as tensor parallelism gives it to a rank, equals those heads of the whole one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from posenc import ALiBi, RoPE, T5Bias, attention, create_encoding, list_encodings
from posenc.encoding import Encoding, HeadAxis
from posenc.frequencies import MultiScale
from posenc.heads import by_key_head
from posenc.testing import Case
from tests.samples import gap

HEADS, KV_HEADS, WIDTH, TOKENS, BATCH = 12, 4, 8, 9, 2
SIZES = {"num_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim": WIDTH, "dim": HEADS * WIDTH}
SPEAKING = {"dape"}  # heads that read one another
INSIDE = [
    name for name in list_encodings()
    if name not in {"nope", *SPEAKING} and "embedding" not in Case.from_catalogue(name).hook_points
]  # fmt: skip
VARIANTS: list[tuple[str, dict[str, object]]] = [
    ("alibi", {"slopes": "geometric", "bias_scale": 0.5}),
    ("kerple", {"kind": "power"}),
    ("bam", {"shift": True}),
    ("fire", {"leak": 0.01}),
    ("distance_mlp", {"layers": 3, "norm": True}),
    ("fox", {"kind": "bias", "decay_time": (2.0, 50.0)}),
    ("fox", {"kind": "fixed", "decay_time": (2.0, 50.0)}),
    ("data_alibi", {"kind": "bidirectional"}),
    ("data_alibi", {"kind": "rows"}),
    ("transformer_xl", {"learned_distances": 5}),
    ("ssmax", {"bias": True}),
    ("sink", {"learned": False, "logit": 0.5}),
    ("grape_a", {"gate": "both"}),
    ("grape_context", {"per_head": True, "per_head_phase": True}),
    ("grape_m", {"per_head": True}),
    ("path", {"rank": None}),
    ("selective_rope", {"rank": None, "gate": "head", "bias": True}),
    ("selective_rope", {"gate": "pair", "taps": None}),
    ("cope", {"gates": "separate"}),
    ("mixture", {"adaptive": True}),
    ("fope", {"per_head": False}),
    ("fope", {"learned": True}),
    ("pope", {"initial": "uniform"}),
    ("mixed", {"learned": False, "directions": "golden"}),
    ("liere", {"per_head": False, "block": 4}),
    ("comrope_ld", {"per_head": True}),
    ("rope_pp", {"imaginary": "half"}),
    ("mhrope", {"heads": (1, 1)}),
]


def inputs() -> dict[str, Tensor]:
    source = torch.Generator().manual_seed(0)
    draw = {
        "q": (BATCH, HEADS, TOKENS, WIDTH), "k": (BATCH, KV_HEADS, TOKENS, WIDTH),
        "v": (BATCH, KV_HEADS, TOKENS, WIDTH), "x": (BATCH, TOKENS, HEADS * WIDTH),
        "loss": (BATCH, HEADS, TOKENS, WIDTH),
    }  # fmt: skip
    return {name: torch.randn(shape, generator=source, dtype=torch.float64) for name, shape in draw.items()}


def called(encodings: Sequence[Encoding], tensors: dict[str, Tensor], heads: slice, keys: slice) -> dict[str, Tensor]:
    """Results and gradients of some heads' attention."""
    axes = max([1, *(e.axes for e in encodings)])
    leaves = {
        "q": tensors["q"][:, heads].clone().requires_grad_(), "k": tensors["k"][:, keys].clone().requires_grad_(),
        "v": tensors["v"][:, keys].clone().requires_grad_(), "x": tensors["x"].clone().requires_grad_(),
    }  # fmt: skip
    places = Case("places", lambda: ALiBi(1)).positions(torch.arange(TOKENS))
    if axes > 1:
        places = torch.stack([torch.arange(TOKENS) // 3, *[torch.arange(TOKENS) % 3] * (axes - 1)], -1)
    out = attention(**leaves, encodings=encodings, q_pos=places, k_pos=places, causal=True)
    (out * tensors["loss"][:, heads]).sum().backward()
    return {"out": out.detach()} | {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}


def joined(full: Tensor, parts: list[Tensor], where: HeadAxis | None, per_query_head: bool) -> Tensor:
    """Parts of the ranks along their heads; what is of all heads is summed, or, where it is a value, the same."""
    if where is None:
        return sum(parts[1:], parts[0]) if not per_query_head else parts[0]
    by_head = [part.unflatten(where.axis, (where.repeats, -1, 1)) for part in parts]
    count = full.shape[where.axis] // where.repeats
    together = torch.cat(by_head, where.axis + 1)
    assert together.shape[where.axis + 1] == count
    return together.flatten(where.axis, where.axis + 2)


def check(make: Case, ranks: Sequence[tuple[int, int]]) -> None:
    """The shares' results and gradients are those of the whole, and their parameters parts of its."""
    encodings = make.make(torch.float64, sizes=SIZES)
    encodings = [e.train() for e in encodings]
    tensors, group = inputs(), HEADS // KV_HEADS
    full = called(encodings, tensors, slice(None), slice(None))
    by_share: list[dict[str, Tensor]] = []
    shares: list[list[Encoding]] = []
    for start, stop in ranks:
        share = [e.heads(start, stop, num_heads=HEADS) for e in encodings]
        keys = slice(start // group, (stop - 1) // group + 1)
        by_share.append(called(share, tensors, slice(start, stop), keys))
        shares.append(share)
    for name in ("out", "q"):
        torch.testing.assert_close(torch.cat([part[name] for part in by_share], 1), full[name], rtol=1e-9, atol=1e-9)
    if "x" in full:
        torch.testing.assert_close(
            joined(tensors["x"], [p["x"] for p in by_share], None, per_query_head=False), full["x"]
        )
    for i, encoding in enumerate(encodings):
        inner = {f"{n}.{name}" if n else name: axis for n, m in encoding.named_modules() if isinstance(m, Encoding)
                 for name, axis in m.head_axes().items()}  # fmt: skip
        for name, parameter in encoding.named_parameters():
            parts = [share[i].get_parameter(name) for share in shares]
            where = inner.get(name)
            whole_kv = getattr(encoding, "num_kv_heads", None)
            if where is not None and where.of_keys and whole_kv != sum(s[i].num_kv_heads for s in shares):
                continue  # key heads on several ranks
            torch.testing.assert_close(
                joined(parameter, [p.detach() for p in parts], where, per_query_head=True), parameter.detach()
            )
            if parameter.grad is not None:
                gradient = joined(
                    parameter,
                    [torch.zeros_like(p) if p.grad is None else p.grad for p in parts],
                    where,
                    per_query_head=False,
                )
                torch.testing.assert_close(gradient, parameter.grad, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", INSIDE)
def test_shares_of_heads_are_the_whole(name: str) -> None:
    check(Case.from_catalogue(name), [(0, 6), (6, 12)])


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_shares_of_heads_under_other_options(name: str, options: dict[str, object]) -> None:
    check(Case.from_catalogue(name, options), [(0, 3), (3, 9), (9, 12)])


@pytest.mark.parametrize("name", ["alibi", "t5", "fox", "pope", "mixed", "multiscale", "path"])
def test_ranks_may_share_a_key_head(name: str) -> None:
    check(Case.from_catalogue(name), [(start, start + 1) for start in range(HEADS)])


@pytest.mark.parametrize("name", ["alibi", "kerple", "sandwich", "mixed", "multiscale"])
def test_shares_of_shares(name: str) -> None:
    encoding = Case.from_catalogue(name).make(torch.float64, sizes=SIZES)[0]
    once, twice = encoding.heads(6, 9), encoding.heads(3, 12).heads(3, 6)
    assert str(once) == str(twice)
    for first, other in zip(once.parameters(), twice.parameters(), strict=True):
        torch.testing.assert_close(first, other)


def test_initial_values_are_the_wholes() -> None:
    """A share that is made on the meta device and drawn later begins where the whole one begins."""
    for name, options in (
        ("bam", {}),
        ("fox", {"kind": "bias", "decay_time": (2.0, 50.0)}),
        ("mixed", {"directions": "golden"}),
    ):
        full = Case.from_catalogue(name, options).fresh(sizes=SIZES)[0]
        with torch.device("meta"):
            share = Case.from_catalogue(name, options).fresh(sizes=SIZES)[0].heads(3, 9)
        share.to_empty(device="cpu").reset_parameters()  # type: ignore[operator]
        expected = full.heads(3, 9)
        for first, other in zip(share.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(first, other)


def test_slopes_of_heads_that_are_no_power_of_two() -> None:
    full = ALiBi(12)
    assert full.heads(0, 6).slopes + full.heads(6, 12).slopes == full.slopes
    assert full.heads(0, 6).slopes != ALiBi(6).slopes


def test_a_share_owns_its_parameters() -> None:
    full = T5Bias(8)
    share = full.heads(2, 4)
    with torch.no_grad():
        share.weight.zero_()
    assert bool((full.weight != 0).all())
    full.weight.requires_grad_(False)
    assert share.weight.requires_grad
    assert not full.heads(2, 4).weight.requires_grad
    assert share.load_state_dict({"weight": full.weight[:, 2:4]}).missing_keys == []


@pytest.mark.parametrize(
    ("recipe", "options"),
    [("alibi", {}), ("t5", {}), ("fox", {}), ("pope", {}), ("path", {}), ("cope", {"gates": "separate"})],
)
def test_whole_encodings_refuse_local_heads(recipe: str, options: dict[str, object]) -> None:
    encodings = Case.from_catalogue(recipe, options).make(torch.float64, sizes=SIZES)
    tensors = inputs()
    with pytest.raises(ValueError, match=r"heads\(start, stop\)"):
        called(encodings, tensors, slice(0, 3), slice(0, 1))


def test_wrong_shares_are_refused() -> None:
    for start, stop, words in (
        (0, 13, "0 … 12"),
        (3, 3, "start below stop"),
        (-1, 2, "start below stop"),
        (0.0, 2, "whole"),
    ):
        with pytest.raises(ValueError, match=words):
            ALiBi(12).heads(start, stop)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="num_heads of this ALiBi is 12"):
        ALiBi(12).heads(0, 6, num_heads=16)
    path = create_encoding("path", dim=96, head_dim=8, num_kv_heads=4)
    with pytest.raises(ValueError, match=r"num_heads=\.\.\."):
        path.heads(0, 6)
    with pytest.raises(ValueError, match="whole groups of 3"):
        path.heads(0, 5, num_heads=12)
    with pytest.raises(ValueError, match="multiple of the 4 key heads"):
        path.heads(0, 5, num_heads=10)
    with pytest.raises(ValueError, match="all heads at once"):
        create_encoding("dape", num_heads=4).heads(0, 2)


class OwnBases(nn.Module):
    """A scaling of one's own with a base a head, which posenc cannot cut."""

    def forward(self, spectrum):  # type: ignore[no-untyped-def]
        return spectrum._replace(theta=spectrum.theta * torch.tensor([[1.0], [0.5]], dtype=torch.float64))


def test_scalings_with_bases_a_head() -> None:
    full = RoPE(8, scaling=MultiScale(12, num_kv_heads=4))
    torch.testing.assert_close(full.heads(6, 9).spectrum().theta, full.spectrum().theta[6:9], rtol=0, atol=0)
    with pytest.raises(ValueError, match="cannot be cut"):
        RoPE(8, scaling=OwnBases()).heads(0, 1)


# The product over shared key heads: its numbers, and that no key is copied once for each query head.


SIZES_OF_HEADS = {"dim": 64, "num_heads": 32, "num_kv_heads": 8, "head_dim": 64, "max_length": 512, "train_length": 512}


class Largest(TorchDispatchMode):
    """How many numbers the largest new tensor has."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out.is_contiguous():
            self.numbers = max(self.numbers, out.numel())
        return out


@pytest.mark.parametrize("group", [1, 3])
def test_by_key_head(group):
    rows, per_key_head = torch.randn(2, 2 * group, 4, 5), torch.randn(2, 2, 5, 6)
    expected = rows @ per_key_head.repeat_interleave(group, 1)
    assert gap(by_key_head(rows, per_key_head), expected) < 1e-5
    assert gap(by_key_head(rows, per_key_head.flatten(0, 1)), expected) < 1e-5
    assert gap(by_key_head(rows.mT.contiguous().mT, per_key_head), expected) < 1e-5
    narrow = per_key_head.bfloat16()
    assert gap(by_key_head(rows, narrow), by_key_head(rows, narrow.float())) < 1e-5


@pytest.mark.parametrize("name", ["alibi", "cope", "dape", "fox", "grape_a", "grape_ap", "path", "shaw"])
def test_one_query_copies_no_key_for_each_head_of_its_group(name):
    encodings, x = [create_encoding(name, **SIZES_OF_HEADS)], torch.randn(1, 512, 64)
    q, (k, v) = torch.randn(1, 32, 1, 64), torch.randn(2, 1, 8, 512, 64)
    with torch.no_grad():
        token_states = [e.token_state(x) if hasattr(e, "token_state") else None for e in encodings]
        with Largest() as largest:
            attention(q, k, v, encodings, token_states=token_states, backend="dense")
    assert largest.numbers <= 1.1 * k.numel()
