"""Scores that read tokens: gates, paths, positions and rotations made of what stands there."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from posenc import Context, LogN, RoPE, attention, create_encoding, explain_backend
from posenc.bias import alibi_slopes
from posenc.layers import KVCache, SelfAttention
from posenc.score import GRAPEA, GRAPEContext, RePo, SelectiveRoPE, TokenRelativeBias
from posenc.score.cope import CoPE
from posenc.score.forget import ForgetGate
from posenc.score.path import PaTH, reflected
from posenc.visibility import VisibilityMask
from tests.backends.tiles.compare import Largest
from tests.samples import gap, qkv

DIM, HEADS, WIDTH = 16, 4, 4


def directions(keys: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Unit vectors and betas in (0, 2)."""
    source = torch.Generator().manual_seed(4)
    w = F.normalize(torch.randn(1, 1, keys, WIDTH, generator=source, dtype=torch.float64), dim=-1)
    return w, 2 * torch.rand(1, 1, keys, generator=source, dtype=torch.float64)


def by_the_formula(q, k, w, beta) -> torch.Tensor:
    """A_ij = q_i · H_i … H_{j+1} · k_j of the last query."""
    out = []
    for j in range(k.shape[2]):
        vector = q[:, :, -1]
        for t in range(k.shape[2] - 1, j, -1):
            vector = vector - beta[:, :, t, None] * (vector * w[:, :, t]).sum(-1, keepdim=True) * w[:, :, t]
        out.append((vector * k[:, :, j]).sum(-1))
    return torch.stack(out, -1).unsqueeze(2)


def test_blocks_follow_on_from_each_other():
    """Over several blocks of tokens, the newest row equals the products written out, and the last 60 tokens give
    among themselves what they give in one block, with the gradients."""
    q, k, _ = (t.requires_grad_() for t in qkv(1, 2, 130, 130, WIDTH, num_kv_heads=1, dtype=torch.float64))
    w, beta = (t.requires_grad_() for t in directions(130))
    last = (q[:, :, -1:] @ k.mT - by_the_formula(q.detach(), k.detach(), w.detach(), beta.detach())).detach()
    for queries in (130, 70, 1):
        several = reflected(q[:, :, -queries:], k, w, beta)
        assert gap(several.detach()[:, :, -1:], last) < 1e-11
        rows = min(queries, 60)
        single = reflected(q[:, :, -rows:], *(t[:, :, -60:] for t in (k, w, beta)))
        several, upstream = several[:, :, -rows:, -60:], torch.randn_like(single)
        assert gap(several.detach(), single.detach()) < 1e-11
        grads = [torch.autograd.grad(out, (q, k, w, beta), upstream) for out in (several, single)]
        assert all(gap(a, b) < 1e-9 for a, b in zip(*grads, strict=True))


def test_what_a_cache_must_keep_under_a_window():
    """`Scope.look_back` tokens before the oldest key in sight, and not one fewer."""
    for conv in (1, 2, 3, 5):
        torch.manual_seed(0)
        encoding, window = PaTH(DIM, head_dim=WIDTH, num_kv_heads=2, rank=3, conv=conv, init_std=0.7).double(), 4
        q, k, v = qkv(1, HEADS, 12, None, WIDTH, num_kv_heads=2, dtype=torch.float64)
        x = torch.randn(1, 12, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
        full = attention(q, k, v, [encoding], x=x, window=window)[:, :, -1:]
        for fewer, same in ((0, True), (1, False)):
            if fewer > encoding.scope.look_back:
                continue
            remaining = slice(12 - window - encoding.scope.look_back + fewer, None)
            out = attention(
                q[:, :, -1:], k[:, :, remaining], v[:, :, remaining], [encoding], x=x[:, remaining], window=window
            )
            assert (gap(out, full) < 1e-12) == same


def test_neighbours_in_a_text():
    at, documents = torch.arange(5), torch.tensor([[0, 0, 1, 1, 1]])

    def before(queries: int, **hidden: object) -> list:
        options = {"mask": None, "segments": None, "window": None, **hidden}
        return (
            VisibilityMask(causal=True, q_pos=at[-queries:], k_pos=at, **options)
            .token_order(queries, 5)
            .previous.tolist()
        )

    assert before(5) == before(2) == before(5, window=1) == [[-1, 0, 1, 2, 3]]
    assert before(5, mask=torch.ones(1, 1, 1, 5).bool()) == [[-1, 0, 1, 2, 3]]
    assert before(5, segments=(documents, documents)) == [[-1, 0, -1, 2, 3]]
    assert before(2, segments=(documents[:, 3:], documents)) == [[-1, -1, -1, 2, 3]], (
        "keys of earlier calls: which queries attend to them?"
    )


def test_no_matrix_of_queries_and_keys():
    """Forward and backward; the largest tensors are blocks of queries by all keys, and grow with the length."""
    length, encoding = 4096, PaTH(8, head_dim=4, num_kv_heads=1)
    leaves = [t.requires_grad_() for t in qkv(1, 1, length, head_dim=4)]
    with Largest() as seen:
        attention(*leaves, [encoding], x=torch.randn(1, length, 8)).square().sum().backward()
    assert seen.elements < length * length / 4


# FoX's forget gates: their kinds and first values.


class TestGates:
    def test_first_values(self):
        torch.manual_seed(0)
        gate = ForgetGate(512, num_heads=64)
        assert abs(gate.weight.std().item() - 0.02) < 1e-3
        assert not gate.bias.any()
        assert ForgetGate(8, num_heads=3, kind="bias").bias.tolist() == [0, 0, 0]

    @pytest.mark.parametrize("kind", ["data", "bidirectional", "rows"])
    def test_first_values_of_data_dependent_alibi(self, kind):
        torch.manual_seed(0)
        gate = create_encoding("data_alibi", dim=300, num_heads=64, kind=kind)
        assert abs(gate.weight.std().item() - 900**-0.5) < 1e-3
        assert (gate.bias is None) if kind == "rows" else bool((gate.bias == 5).all())

    @pytest.mark.parametrize("times", [(1, 64), (0.001, 1e6), (30, 30)])
    def test_decay_times(self, times):
        fixed, learned = (ForgetGate(8, num_heads=5, kind=kind, decay_time=times) for kind in ("fixed", "bias"))
        expected = torch.tensor(fixed.decay_times(), dtype=torch.float64)
        assert expected[0].item() == pytest.approx(times[0])
        assert expected[-1].item() == pytest.approx(times[1])
        assert torch.allclose(expected.log().diff(), expected.log().diff().mean().expand(4))
        got = -1 / F.logsigmoid(learned.double().bias)
        assert torch.allclose(got, expected, rtol=2e-6)  # a float32 bias of 13.8 is off by 1e-6
        assert ForgetGate(8, num_heads=1, kind="fixed", decay_time=times).decay_times() == [pytest.approx(times[0])]

    def test_strong_logits_stay_finite(self):
        gate = ForgetGate(DIM, num_heads=HEADS)
        torch.nn.init.constant_(gate.weight, 1e4)
        x = torch.randn(2, 9, DIM)
        gates = gate.token_state(torch.cat([x, -x]))
        assert gates.isfinite().all()
        assert gates.min() < -1e4
        assert gates.max() == 0


def context(q, k, mask, token_states):
    at = torch.arange(k.shape[2])
    return Context(q, k, k, at[-q.shape[2] :], at, 1.0, mask, token_states)


@pytest.mark.reference
@pytest.mark.parametrize("kind", ["data", "bidirectional", "rows"])
def test_kinds_of_the_installed_library(kind):
    theirs_of = pytest.importorskip("x_transformers.x_transformers")
    torch.manual_seed(0)
    if kind == "rows":
        reference = theirs_of.PerRowDataDependentAlibi(DIM, HEADS).double()
    else:
        reference = theirs_of.DataDependentAlibi(DIM, HEADS, causal=kind == "data").double()
    built = ForgetGate(DIM, num_heads=HEADS, kind=kind).double()
    built.load_state_dict({name.split(".")[-1]: p for name, p in reference.state_dict().items()})
    x = torch.randn(2, 30, DIM, dtype=torch.float64)
    q, k, _ = qkv(2, HEADS, 30, dtype=torch.float64)
    seen = torch.ones(30, 30, dtype=torch.bool)
    seen = (seen if kind == "bidirectional" else seen.tril())[None, None]
    got = built(torch.zeros(2, HEADS, 30, 30, dtype=torch.float64), context(q, k, seen, built.token_state(x)))
    assert gap(torch.where(seen, got - reference(x), 0.0), torch.zeros_like(got)) < 1e-12


# RePo: far positions in bfloat16, rho between steps.


def sample(**options):
    torch.manual_seed(0)
    encoding = RePo(32, head_dim=8, num_kv_heads=2, init_std=0.5, **options)
    return encoding, torch.randn(2, 9, 32), qkv(2, 4, 9, num_kv_heads=2)


def test_far_positions_in_bfloat16_models_keep_their_fractions():
    encoding, x, _ = sample()
    encoding.to(torch.bfloat16)
    positions = encoding.token_state(1000 * x.to(torch.bfloat16))
    assert positions.dtype == torch.float32
    assert positions.abs().max() > 1000
    assert gap(positions, positions.bfloat16().float()) > 1


def test_rho_can_be_annealed_between_steps():
    encoding, x, (q, k, v) = sample(rho=1.0)
    first = attention(q, k, v, [encoding], x=x)
    encoding.rho = 0.0
    assert gap(attention(q, k, v, [encoding], x=x), first) > 1e-3
    assert gap(attention(q, k, v, [encoding], x=x), attention(q, k, v, [encoding.eval()], x=x)) == 0


# Selective RoPE: fixed temperatures.


def context_of(q, k, rope, x, new=None):
    new = q.shape[2] if new is None else new
    at = torch.arange(k.shape[2])
    return Context(q[:, :, -new:], k, k, at[-new:], at, 1.0, token_state=rope.token_state(x))


@pytest.mark.parametrize("base", [0.9, 500_000])
def test_fixed_temperatures_are_those_that_learning_starts_from(base):
    q, k, _ = qkv(1, 2, 9, head_dim=8)
    x, options = torch.randn(1, 9, 16), {"head_dim": 8, "num_kv_heads": 2, "base": base}
    learned, fixed = SelectiveRoPE(16, learned=True, **options), SelectiveRoPE(16, **options)
    start = {name: p for name, p in learned.state_dict().items() if name != "temperature"}
    fixed.load_state_dict(start)
    assert gap(*(rope.angles(context_of(q, k, rope, x)) for rope in (learned, fixed))) < 1e-6


# A bias that the query's token mixes: a scale of zero, and a text in pieces.


def biased(max_distance: int = 4) -> TokenRelativeBias:
    torch.manual_seed(0)
    return TokenRelativeBias(12, num_heads=4, max_distance=max_distance, relative_dim=3, init_std=1.0).double()


def test_a_scale_of_zero_and_a_text_in_pieces() -> None:
    q, k, v = qkv(1, 4, 7, 7, dtype=torch.float64)
    x = torch.randn(1, 7, 12, dtype=torch.float64)
    assert explain_backend(q, k, v, [biased()], x=x, scale=0.0).backend != "tiled"
    assert gap(attention(q, k, v, [biased()], x=x, scale=0.0), attention(0 * q, k, v, [biased()], x=x)) < 1e-12
    layer = SelfAttention(12, 4, head_dim=8, encodings=[RoPE(8), biased(), LogN(3)]).double()
    cache, x = KVCache(), torch.randn(2, 11, 12, dtype=torch.float64)
    with torch.no_grad():
        steps = [layer(part, cache=cache) for part in x.split([4, 1, 1, 5], 1)]
        assert gap(torch.cat(steps, 1), layer(x)) < 1e-12


# GRAPE: large rates, and how tokens start moving.


def test_large_rates():
    """softplus(x) − x is e^−x, of which PyTorch's own leaves out up to 2e-9 from x = 20 on."""
    q = k = torch.tensor([[[[24.0], [30.0]]]], dtype=torch.float64).expand(1, 2, 2, 1)
    grape, at, along = GRAPEA(1, num_heads=2, start=25.0).double(), torch.arange(2), torch.tensor(24.0).double()
    with torch.no_grad():
        grape.u.fill_(1.0)
    bias = grape(torch.zeros(1, 2, 2, 2).double(), Context(q=q, k=k, v=k, q_pos=at, k_pos=at, scale=1.0))[0, :, 1, 0]
    omega, slopes = grape.omega.detach(), torch.tensor(alibi_slopes(2)).double()
    expected = -slopes * (omega + (-omega).exp().log1p()) * (along + (-along).exp().log1p())
    assert ((bias - expected) / expected).abs().max() < 1e-15


def test_tokens_start_moving_by_two_fifths():
    grape = GRAPEContext(32, head_dim=8, num_kv_heads=2, init_std=0.0)
    moves = (grape.token_state(torch.randn(2, 9, 32)).detach() / 16).sigmoid()
    assert abs(float(moves.mean()) - 0.394) < 1e-3


# CoPE: counts in low precision, and what is not a number.


def test_counts_in_low_precision():
    """bfloat16 cannot tell 256 from 257, so counts in it would stand still."""
    q, k, v = qkv(1, 1, 700, dtype=torch.bfloat16)
    encoding = CoPE(8, max_position=400).bfloat16()
    torch.nn.init.normal_(encoding.table, generator=torch.Generator().manual_seed(0))
    out = attention(q, k, v, [encoding])
    assert out.dtype == torch.bfloat16
    assert gap(out, attention(q.double(), k.double(), v.double(), [encoding.double()])) < 2e-2


def test_not_a_number_stays_one():
    q, k, v = qkv()
    q[0, 0, 2, 0] = torch.nan
    encoding = CoPE(8, max_position=3)
    torch.nn.init.normal_(encoding.table)
    out = attention(q, k, v, [encoding])
    assert out[0, 0, 2].isnan().all()
    assert out[1].isfinite().all()
