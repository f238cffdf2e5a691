"""The rotation of pairs: every form against complex numbers in float64, what it keeps, and what it leaves alone."""

from __future__ import annotations

import functools
import itertools

import pytest
import torch

from posenc import RoPE, attention
from tests.samples import gap

LAYOUTS = ("half", "interleaved")
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
COMBINATIONS = list(itertools.product(LAYOUTS, DTYPES))
ULP = {
    torch.float64: 2e-15,
    torch.float32: 1e-6,
    torch.float16: 2**-11,
    torch.bfloat16: 2**-8,
}  # half a unit, and a bit


@functools.cache
def rope_of(head_dim, rotary_dim, layout):
    return RoPE(head_dim, rotary_dim=rotary_dim, layout=layout)


def rotate(x, cos, sin, layout):
    """x rotated by a table that the test made: cos and sin ``(tokens, pairs)``."""
    return rope_of(x.shape[-1], 2 * cos.shape[-1], layout).rotate(x, (cos, sin))


def rotate_(x, cos, sin, layout):
    """The same in the memory of x."""
    return rope_of(x.shape[-1], 2 * cos.shape[-1], layout).rotate_(x, (cos, sin))


def tables(tokens, pairs, dtype=torch.float32):
    angle = torch.randn(tokens, pairs, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 3
    return angle.cos().to(dtype), angle.sin().to(dtype)


def random(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def definition(x, cos, sin, layout):
    """Pairs as complex numbers, in float64, one at a time."""
    pairs = cos.shape[-1]
    rotary, rest = x.double()[..., : 2 * pairs], x.double()[..., 2 * pairs :]
    a, b = rotary.chunk(2, -1) if layout == "half" else (rotary[..., ::2], rotary[..., 1::2])
    product = torch.complex(a, b) * torch.complex(cos.double(), sin.double())
    members = [product.real, product.imag]
    joined = torch.cat(members, -1) if layout == "half" else torch.stack(members, -1).flatten(-2)
    return torch.cat([joined, rest], -1)


def strided(x, kind):
    """The same numbers under other strides."""
    if kind == "transposed":  # as a projection leaves heads
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    if kind == "sliced":  # q of a fused projection
        return torch.cat([x, x, x], -1)[..., : x.shape[-1]]
    if kind == "odd":  # no complex number lies here
        return torch.cat([x[..., :1], x], -1)[..., 1:]
    return x


@pytest.mark.parametrize(("layout", "dtype"), COMBINATIONS)
@pytest.mark.parametrize("kind", ["contiguous", "transposed", "sliced", "odd"])
@pytest.mark.parametrize("rotary", [16, 12])
@pytest.mark.parametrize("tokens", [1, 37, 600])
def test_every_form_is_right_to_one_rounding(layout, dtype, kind, rotary, tokens):
    cos, sin = tables(tokens, rotary // 2, torch.float64 if dtype == torch.float64 else torch.float32)
    x = strided(random(2, 8, tokens, 16, dtype=dtype), kind)
    before, expected = x.clone(), definition(x, cos, sin, layout)
    for grad in (False, True):
        got = rotate(x.requires_grad_(grad), cos, sin, layout)
        assert got.dtype == dtype
        assert ((got.detach().double() - expected).abs() <= ULP[dtype] * expected.abs().clamp(min=1.0)).all()
    assert torch.equal(x, before)
    learned = rotate(x, cos.requires_grad_(), sin.requires_grad_(), layout)
    assert gap(got, learned) <= 2 * ULP[dtype] * float(expected.abs().max())


def lying(shape, dtype, kind):
    """Random numbers of a shape, under strides and offsets that no complex number may have."""
    batch, heads, tokens, width = shape
    dense = (heads * tokens * width, tokens * width, width, 1)
    if kind == "expanded":
        return random(batch, 1, tokens, width, dtype=dtype).expand(shape)
    if kind == "one number":  # what the backward pass of a sum hands in
        return random(1, dtype=dtype).expand(shape)
    if kind == "negated":  # a view whose signs wait to be flipped
        return torch._neg_view(random(*shape, dtype=dtype))
    if kind == "channels apart":
        return random(*shape[:-1], 2 * width, dtype=dtype)[..., ::2]
    if kind == "channels first":
        return random(batch, heads, width, tokens, dtype=dtype).mT
    strides = {
        "odd rows": (heads * tokens * (width + 1), tokens * (width + 1), width + 1, 1),
        "odd batch": (dense[0] + 1, *dense[1:]),
        "odd where no one looks": tuple(7 if size == 1 else stride for size, stride in zip(shape, dense, strict=True)),
        "odd offset": dense,
    }[kind]
    room = random(4 + 2 * batch * heads * (tokens + 1) * (width + 1), dtype=dtype)
    return room.as_strided(shape, strides, 1 if kind == "odd offset" else 0)


@pytest.mark.parametrize(("layout", "dtype"), COMBINATIONS)
@pytest.mark.parametrize(
    "kind",
    ["expanded", "one number", "negated", "channels apart", "channels first", "odd rows", "odd batch",
     "odd where no one looks", "odd offset"],
)  # fmt: skip
def test_any_strides(layout, dtype, kind):
    """Also strides of axes of size 1 or 0, which carry no information but which complex views still check."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    for shape in itertools.product((1, 2), (1, 3), (0, 1, 5), (8,)):
        for rotary in (8, 6):
            cos, sin = tables(shape[2], rotary // 2, wide)
            x, other = lying(shape, dtype, kind), random(*shape, dtype=dtype, seed=3).requires_grad_()
            expected = definition(x, cos, sin, layout)
            slack = ULP[dtype] * expected.abs().clamp(min=1.0)
            assert ((rotate(x, cos, sin, layout).double() - expected).abs() <= slack).all(), shape
            (back,) = torch.autograd.grad(rotate(other, cos, sin, layout), other, x)
            wanted_back = definition(x, cos, -sin, layout)
            assert ((back.double() - wanted_back).abs() <= ULP[dtype] * wanted_back.abs().clamp(min=1.0)).all(), shape
            if kind not in ("expanded", "one number"):
                assert ((rotate_(x, cos, sin, layout).double() - expected).abs() <= slack).all(), shape


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_token_of_odd_strides_through_attention(layout):
    """A cache with room for one more number than a head is wide."""
    room = random(2, 4, 1, 17)
    q, k, v = (room.roll(n)[..., :16] for n in range(3))
    q, k = (t.as_strided(t.shape, (68, 17, 17, 1)).requires_grad_() for t in (q, k))
    rope, options = RoPE(16, layout=layout), {"q_pos": torch.tensor([5]), "k_pos": torch.tensor([5])}
    out = attention(q, k, v, [rope], **options)
    same = attention(q.contiguous(), k.contiguous(), v, [rope], **options)
    assert gap(out, same) < 1e-6
    gradients = torch.autograd.grad(out.sum(), (q, k))
    assert all(torch.isfinite(g).all() for g in gradients)


def test_in_place_through_rope_and_its_refusals():
    rope, x = RoPE(16), random(1, 2, 5, 16)
    table = rope.table(torch.arange(5))
    expected = rope.rotate(x, table)
    assert rope.rotate_(x, table) is x
    assert gap(x, expected) < 1e-6
    with pytest.raises(ValueError, match="x"):
        rope.rotate_(random(1, 2, 5, 16).requires_grad_(), table)
    with pytest.raises(ValueError, match="x"):
        rope.rotate_(random(1, 1, 5, 16).expand(1, 2, 5, 16), table)
    with pytest.raises(ValueError, match="head_dim"):
        rope.rotate_(random(1, 1, 5, 8), table)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_second_gradients_and_forward_mode(layout):
    cos, sin = tables(3, 4, torch.float64)
    x = random(1, 2, 3, 8, dtype=torch.float64).requires_grad_()
    call = lambda x: rotate(x, cos, sin, layout)  # noqa: E731
    torch.autograd.gradcheck(call, x, check_forward_ad=True)
    torch.autograd.gradgradcheck(call, x)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tokens", [64, 600])
def test_backward_keeps_the_tables_and_nothing_else(layout, dtype, tokens):
    cos, sin = tables(tokens, 8)
    x = random(2, 8, tokens, 16, dtype=dtype).requires_grad_()
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        rotate(x, cos, sin, layout)
    assert sum(t.numel() for t in saved) <= cos.numel() + sin.numel()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_memory_layout_of_heads_is_kept(layout):
    """(batch, tokens, heads, width) in memory stays so: what follows need not copy."""
    cos, sin = tables(300, 8)
    for dtype in (torch.float32, torch.bfloat16):
        x = strided(random(2, 4, 300, 16, dtype=dtype), "transposed")
        assert rotate(x, cos, sin, layout).stride() == x.stride()
