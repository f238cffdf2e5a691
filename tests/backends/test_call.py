"""The call itself: precision, backends, explanations, features, transforms."""

from __future__ import annotations

import importlib

import pytest
import torch

import posenc
from posenc import FIRE, KERPLE, ALiBi, CoPE, RoPE, ScoreEncoding, Shaw, T5Bias, attention, explain
from posenc.backends.call import BACKENDS as ALL_BACKENDS
from posenc.backends.inputs.attention_call import prepare_call
from tests.samples import BACKENDS, gap, qkv

EACH_BACKEND = pytest.mark.parametrize("backend", BACKENDS)


@EACH_BACKEND
@pytest.mark.parametrize(
    "encodings", [[], [RoPE(8)], [ALiBi(4)], [T5Bias(4, bidirectional=True)]], ids=["nope", "rope", "alibi", "t5"]
)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-12), (torch.float32, 2e-6), (torch.bfloat16, 3e-2), (torch.float16, 4e-3)],
    ids=str,
)
def test_result_in_the_dtype_of_q_and_close_to_float64(dtype, tolerance, encodings, masked, backend):
    q, k, v = qkv(2, 4, 9, num_kv_heads=2, dtype=dtype)
    options = {"mask": torch.tensor([True] * 8 + [False]).expand(2, 1, -1)} if masked else {}
    with torch.no_grad():
        out = attention(q, k, v, encodings, backend=backend, **options)
        wide = attention(q.double(), k.double(), v.double(), encodings, backend="dense", **options)
    assert out.dtype == dtype
    assert gap(out, wide) < tolerance


@EACH_BACKEND
def test_autocast_decides_nothing(backend):
    q, k, v = qkv()
    encodings = [RoPE(8), T5Bias(4, init_std=1.0, bidirectional=True)]
    expected = attention(q, k, v, encodings, backend=backend)
    with torch.autocast("cpu", torch.bfloat16):
        got = attention(q, k, v, encodings, backend=backend)
        assert torch.equal(got, expected)
        assert (q @ k.mT).dtype == torch.bfloat16, "and goes on outside"


@EACH_BACKEND
@pytest.mark.parametrize("encodings", [[], [RoPE(8)], [RoPE(8), ALiBi(4)], [T5Bias(4, bidirectional=True)]], ids=repr)
def test_memory_layout_does_not_matter(encodings, backend):
    three_axes = qkv(2, 4, 9, num_kv_heads=2)
    projected = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in three_axes]
    columns = [t.mT.contiguous().mT for t in three_axes]
    expected = attention(*three_axes, encodings, backend=backend)
    assert gap(attention(*projected, encodings, backend=backend), expected) < 1e-6
    assert gap(attention(*columns, encodings, backend=backend), expected) < 1e-6


@EACH_BACKEND
def test_a_row_does_not_see_its_batch(backend):
    q, k, v = qkv(batch=5)
    encodings = [RoPE(8), ALiBi(4)]
    positions = torch.randint(0, 1000, (5, 6), generator=torch.Generator().manual_seed(0))
    full = attention(q, k, v, encodings, q_pos=positions, backend=backend)
    for row in range(5):
        first = [t[row : row + 1] for t in (q, k, v)]
        assert gap(attention(*first, encodings, q_pos=positions[row], backend=backend), full[row : row + 1]) < 1e-6


@EACH_BACKEND
def test_calls_leave_no_trace(backend):
    tensors, encodings = qkv(), [RoPE(8), T5Bias(4, bidirectional=True)]
    copies = [t.clone() for t in tensors]
    first = attention(*tensors, encodings, backend=backend)
    attention(*qkv(3, 4, 50), encodings, backend=backend)
    assert torch.equal(attention(*tensors, encodings, backend=backend), first)
    assert all(torch.equal(a, b) for a, b in zip(tensors, copies, strict=True))


@EACH_BACKEND
@pytest.mark.parametrize("heads", [1, 3, 7])
def test_any_number_of_heads(heads, backend):
    q, k, v = qkv(1, heads, 5, num_kv_heads=1)
    out = attention(q, k, v, [RoPE(8), ALiBi(heads)], backend=backend)
    assert out.shape == (1, heads, 5, 8)
    assert gap(out, attention(q, k, v, [RoPE(8), ALiBi(heads)], backend="dense")) < 1e-6


@EACH_BACKEND
def test_far_positions_change_nothing(backend):
    q, k, v = qkv()
    encodings = [RoPE(8), ALiBi(4), T5Bias(4, bidirectional=True)]
    expected = attention(q, k, v, encodings, backend=backend)
    for start in (2**21, 10**8, 2**31 - 7, -(10**8)):
        assert gap(attention(q, k, v, encodings, q_pos=torch.arange(6) + start, backend=backend), expected) < 1e-5


@EACH_BACKEND
def test_gradients_reach_positions(backend):
    q, k, v = qkv(1, 2, 4, head_dim=4, dtype=torch.float64)
    positions = torch.tensor([0.3, 1.1, 2.5, 4.25], dtype=torch.float64, requires_grad=True)
    encodings = [RoPE(4), ALiBi(2)]
    torch.autograd.gradcheck(lambda p: attention(q, k, v, encodings, q_pos=p, backend=backend), positions)


class Remembering(ScoreEncoding):
    """Adds one number a token, computed from the layer's input."""

    def forward(self, scores, context):
        return scores if context.features is None else scores + context.features.unsqueeze(-2)

    def remember(self, x):
        return x.sum(-1)[:, None]


def test_features_are_what_remember_gave():
    q, k, v = qkv()
    x, encodings = torch.randn(2, 6, 3), [ALiBi(4), Remembering(), RoPE(8)]
    from_x = attention(q, k, v, encodings, x=x)
    inputs = attention(q, k, v, encodings, features=[None, x.sum(-1)[:, None], None])
    assert torch.equal(from_x, inputs)
    assert gap(from_x, attention(q, k, v, [ALiBi(4), RoPE(8)])) > 1e-3


@EACH_BACKEND
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_function_transforms(backend):
    q, k, v = qkv()
    gradient = torch.func.grad(lambda q: attention(q, k, v, [RoPE(8), ALiBi(4)], backend=backend).sum())(q)
    (expected,) = torch.autograd.grad(
        attention(q.requires_grad_(), k, v, [RoPE(8), ALiBi(4)], backend=backend).sum(), q
    )
    assert gap(gradient, expected) < 1e-5
    many = torch.randn(3, *q.shape)
    each = torch.func.vmap(lambda q: attention(q, k, v, [RoPE(8), ALiBi(4)], backend=backend))(many)
    assert gap(each, torch.stack([attention(item, k, v, [RoPE(8), ALiBi(4)], backend=backend) for item in many])) < 1e-5


class TestExplain:
    def test_names_the_backend_and_why_not_each_other(self):
        explanation = explain(*qkv(queries=20), [RoPE(8), Shaw(8, max_distance=2)])
        assert explanation.backend == "tiled"
        assert "Shaw" in explanation.refused["sdpa"]
        first, *rest = str(explanation).splitlines()
        assert explanation.how in first
        assert len(rest) == len(explanation.refused) == len(ALL_BACKENDS) - 1
        for line, (backend, reason) in zip(rest, explanation.refused.items(), strict=True):
            assert backend in line
            assert reason
            assert reason in line

    @pytest.mark.parametrize(
        ("encodings", "options", "words"),
        [
            ([RoPE(8)], {}, "flag"),
            ([RoPE(8)], {"causal": False}, "no mask"),
            ([ALiBi(4)], {}, "blocks"),
            ([ALiBi(4)], {"backend": "tiled"}, "distance"),
            ([T5Bias(4, bidirectional=True)], {"causal": False, "backend": "tiled"}, "distance"),
            ([ALiBi(4)], {"q_pos": torch.arange(6)}, "blocks"),
            ([], {"mask": torch.ones(6, 6).bool()}, "blocks"),
            ([], {"segments": torch.zeros(6)}, "blocks"),
            ([], {"causal": "positions"}, "blocks"),
            ([ALiBi(4)], {"backend": "dense"}, "matrices"),
        ],
    )
    def test_strategies(self, encodings, options, words):
        explanation = explain(*qkv(), encodings, **options)
        assert words in explanation.how
        assert explanation.backend == options.get("backend", "sdpa")
        assert set(explanation.refused) == set(ALL_BACKENDS) - {explanation.backend}
        assert str(explanation).startswith(f"backend {explanation.backend}: ")

    def test_refuses_what_the_call_refuses(self):
        with pytest.raises(ValueError, match=r"num_heads\b.*\b8\b"):
            explain(*qkv(), [ALiBi(8)])


def test_attention_is_a_function_and_no_package():
    assert callable(posenc.attention)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("posenc.attention")


def test_the_static_part_is_equal_for_the_steps_of_a_generation():
    """A cache can be keyed by it: encodings and options, whatever the tensors and their lengths."""
    encodings = [RoPE(8), ALiBi(4), CoPE(8, max_position=4)]
    parts = {prepare_call(*qkv(1, 4, 1, keys), encodings, causal=True).static for keys in (5, 6)}
    assert len(parts) == 1
    rest = [prepare_call(*qkv(1, 4, 1, 5), encodings, **option).static for option in ({"scale": 1.0}, {"window": 3})]
    assert len({*parts, *rest}) == 3


@pytest.mark.parametrize("make", [lambda: T5Bias(4, init_std=1.0), lambda: KERPLE(4), lambda: FIRE(4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_query_under_parameters_that_were_cast_to_float64(make, dtype):
    bias = make()
    q, k, v = torch.randn(1, 4, 1, 8).to(dtype), *torch.randn(2, 1, 4, 20, 8).to(dtype)
    with torch.no_grad():
        for cast in (torch.float32, torch.float64):  # the second call is of a kind that is known from the first
            bias.to(cast)
            expected = attention(q.double(), k.double(), v.double(), [bias], backend="dense")
            assert (attention(q, k, v, [bias]).double() - expected).abs().max() < (
                2e-2 if dtype != torch.float32 else 1e-5
            )
