"""torch.func's transforms, forward mode, second derivatives, recomputation: right on any backend, or refused."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, jvp, vjp, vmap
from torch.utils.checkpoint import checkpoint

from posenc import ALiBi, ForgetGate, RoPE, T5Bias, attention, explain_backend
from posenc.backends import BACKENDS
from posenc.catalogue import CATALOGUE
from posenc.encoding import Encoding
from posenc.score import CoPE, TransformerXL
from posenc.testing import Case
from posenc.testing.backends import SITUATIONS, call_of
from posenc.testing.cases import tokens_of
from posenc.testing.decoding import Layer
from posenc.weight import StickBreaking
from tests.samples import INSIDE_ATTENTION, few_spectra, gap, mostly_slow, qkv

LISTS = {
    "nope": list,
    "rope": lambda: [RoPE(4)],
    "alibi": lambda: [ALiBi(4)],
    "t5": lambda: [T5Bias(4, init_std=1.0, bidirectional=True)],
    "fox": lambda: [ForgetGate(6, num_heads=4)],
    "cope": lambda: [RoPE(4), CoPE(4, max_position=5)],
    "xl": lambda: [TransformerXL(16, num_heads=4)],
    "sticks": lambda: [StickBreaking(remainder="own")],
}
LENGTHS = [3, 70]  # few queries of grouped heads; more than a block


class Called:
    """A call as a function of its queries, by itself and by the definition."""

    def __init__(self, name: str, queries: int, **options: object) -> None:
        torch.manual_seed(0)
        self.q, self.k, self.v = qkv(1, 4, queries, head_dim=4, num_kv_heads=2, dtype=torch.float64)
        self.x = torch.randn(1, queries, 6, dtype=torch.float64)
        self.towards = torch.randn_like(self.q)
        self.encodings: list[Encoding] = [e.double() for e in LISTS[name]()]
        self.options, self.x_given = options, self.x if name == "fox" else None

    def __call__(self, q: Tensor) -> Tensor:
        return attention(q, self.k, self.v, self.encodings, x=self.x_given, **self.options)

    def definition(self, q: Tensor) -> Tensor:
        options = {**self.options, "backend": "dense"}
        return attention(q, self.k, self.v, self.encodings, x=self.x_given, **options)

    def loss(self, q: Tensor) -> Tensor:
        return self(q).square().sum()

    def gradient(self, q: Tensor) -> Tensor:
        q = q.clone().requires_grad_()
        return torch.autograd.grad(self.definition(q).square().sum(), q)[0]

    def moved(self, function, step: float = 1e-5) -> Tensor:
        """The derivative along `towards`, by differences."""
        return (function(self.q + step * self.towards) - function(self.q - step * self.towards)) / (2 * step)


@pytest.mark.parametrize("queries", LENGTHS)
@pytest.mark.parametrize("name", LISTS)
class TestTransforms:
    def test_forward_mode(self, name, queries):
        call = Called(name, queries)
        expected = call.moved(call.definition)
        assert gap(jvp(call, (call.q,), (call.towards,))[1], expected) < 1e-7
        with forward_ad.dual_level():
            tangent = forward_ad.unpack_dual(call(forward_ad.make_dual(call.q, call.towards))).tangent
        assert gap(tangent, expected) < 1e-7

    def test_one_gradient(self, name, queries):
        call = Called(name, queries)
        expected = call.gradient(call.q)
        assert gap(grad(call.loss)(call.q), expected) < 1e-10
        assert gap(vjp(call.loss, call.q)[1](torch.ones((), dtype=torch.float64))[0], expected) < 1e-10

    def test_mapped(self, name, queries):
        call = Called(name, queries)
        several = torch.stack([call.q, call.towards, call.q * 2])
        assert gap(vmap(call)(several), torch.stack([call(q) for q in several])) < 1e-12
        assert gap(vmap(grad(call.loss))(several), torch.stack([call.gradient(q) for q in several])) < 1e-10

    def test_second_derivatives(self, name, queries):
        """Forward over reverse, reverse over reverse, and one outside of torch.func."""
        call = Called(name, queries)
        expected = call.moved(call.gradient)
        size = max(1.0, float(expected.abs().max()))
        assert gap(jvp(grad(call.loss), (call.q,), (call.towards,))[1], expected) < 1e-6 * size
        assert gap(grad(lambda q: (grad(call.loss)(q) * call.towards).sum())(call.q), expected) < 1e-6 * size
        outer = call.q.clone().requires_grad_()
        (grad(call.loss)(outer) * call.towards).sum().backward()
        assert gap(outer.grad, expected) < 1e-6 * size


@pytest.mark.parametrize("name", ["nope", "alibi", "sticks", "fox"])
def test_forward_mode_over_long_texts(name):
    """Where tiles and checkpoints would serve."""
    call = Called(name, 600)
    got = jvp(call, (call.q,), (call.towards,))[1]
    assert gap(got, jvp(call.definition, (call.q,), (call.towards,))[1]) < 1e-10
    assert gap(grad(call.loss)(call.q), call.gradient(call.q)) < 1e-9


class TestPaths:
    @pytest.mark.parametrize("backend", ["tiled", "rows", "flex"])
    def test_operators_refuse_by_name(self, backend):
        q, k, v = qkv(1, 4, 70)
        call = lambda q: attention(q, k, v, [ALiBi(4)], backend=backend)  # noqa: E731
        with pytest.raises(ValueError, match=r"torch\.func"):
            vmap(call)(q[None])
        with pytest.raises(ValueError, match="forward mode"):
            jvp(call, (q,), (q,))

    def test_kernels_refuse_what_they_cannot(self):
        q, k, v = qkv(1, 4, 70)
        call = lambda q: attention(q, k, v, backend="sdpa").square().sum()  # noqa: E731
        with pytest.raises(ValueError, match="forward mode"):
            jvp(call, (q,), (q,))
        with pytest.raises(ValueError, match="second derivatives"):
            grad(lambda q: grad(call)(q).sum())(q)
        assert grad(call)(q).shape == q.shape

    def test_one_gradient_keeps_the_fused_kernel(self):
        """A long text under torch.func.grad builds no matrix where a plain call builds none."""
        q, k, v = qkv(1, 4, 200)
        backends = []

        def loss(q: Tensor) -> Tensor:
            backends.append(explain_backend(q, k, v).backend)
            return attention(q, k, v).sum()

        grad(loss)(q)
        vmap(grad(loss))(q[None])
        jvp(loss, (q,), (q,))
        assert backends == ["sdpa", "sdpa", "dense"]


@pytest.mark.parametrize("name", mostly_slow(["nope", "alibi", "sticks"], "alibi"))
def test_compiled(name):
    call = Called(name, 20)
    towards = call.towards
    for transformed in (grad(call.loss), lambda q: vmap(call)(q[None]), lambda q: jvp(call, (q,), (towards,))[1]):
        torch.compiler.reset()
        got = torch.compile(transformed, backend="eager", fullgraph=True)(call.q)
        assert gap(got, transformed(call.q)) < 1e-12
    torch.compiler.reset()


def second_gradients(name: str, backend: str) -> list[Tensor] | None:
    """Gradients of the squared gradients of a plain sum, whose own gradient needs none; None: there is no graph."""
    leaves, encodings, options = call_of(Case.from_catalogue(name), SITUATIONS[0])
    total = attention(*leaves, encodings, backend=backend, **options).sum()
    first = torch.autograd.grad(total, leaves, create_graph=True, allow_unused=True)
    squares = [gradient.square().sum() for gradient in first if gradient is not None]
    sum_of_squares = torch.stack(squares).sum()
    if not sum_of_squares.requires_grad:
        return None
    return list(torch.autograd.grad(sum_of_squares, leaves, allow_unused=True, materialize_grads=True))


@pytest.mark.parametrize("name", INSIDE_ATTENTION)
def test_they_are_right_or_refused(name: str) -> None:
    try:
        expected = second_gradients(name, "dense")
    except RuntimeError:
        pytest.skip("its definition has none: an error, as it should be")
    assert expected is not None
    assert any(gradient.abs().max() > 1e-6 for gradient in expected)
    for backend in (*BACKENDS, "auto"):
        try:
            actual = second_gradients(name, backend)
        except (ValueError, RuntimeError):  # the backend cannot serve the call, or has no second derivative
            assert backend != "dense", "which autograd goes through"
        else:
            assert actual is not None, backend
            for got, want in zip(actual, expected, strict=True):
                torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-9)


TEXTS = [n for n, entry in CATALOGUE.items() if not entry.own_positions and Case.from_catalogue(n).axes == 1]


@pytest.mark.parametrize("length", [1, 12])
@pytest.mark.parametrize("name", few_spectra(TEXTS))
def test_a_call_is_recomputed(name, length):
    case = Case.from_catalogue(name)
    layer, x = Layer(case).attend, tokens_of(case, length, batch=2).requires_grad_()
    out = checkpoint(layer, x, use_reentrant=False)
    actual = torch.autograd.grad(out.square().sum(), x)[0]
    assert gap(actual, torch.autograd.grad(layer(x).square().sum(), x)[0]) < 1e-9
