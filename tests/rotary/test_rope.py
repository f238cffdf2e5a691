"""The rotation of one coordinate: every form of it, its angles far out, its tables, and transforms over it."""

from __future__ import annotations

import copy
import functools
import itertools
import pickle

import pytest
import torch

from posenc import AxialRoPE, Encoding, MRoPE, NTKAware, RoPE, YaRN, attention, create_encoding
from posenc.catalogue import CATALOGUE
from posenc.layers import KVCache, SelfAttention
from posenc.positions.checking import default_positions, is_default
from posenc.rotary import GRAPEM, ComRoPEAP, ComRoPELD, LieRE, MHRoPE, MixedRoPE, VJEPARoPE, permute_layout
from posenc.rotary import _default_tables as default_tables
from posenc.testing import exactness
from tests.samples import gap, qkv

LAYOUTS = ("half", "interleaved")


class TestLayouts:
    @pytest.mark.parametrize("rotary_dim", [8, 6, 2])
    @pytest.mark.parametrize("to", LAYOUTS)
    def test_permuted_projections_give_equal_scores(self, to, rotary_dim):
        torch.manual_seed(0)
        heads, dim, source = 3, 10, "interleaved" if to == "half" else "half"
        x, positions = torch.randn(1, 5, dim, dtype=torch.float64), torch.arange(5)
        projections = [torch.randn(heads * 8, dim, dtype=torch.float64) for _ in range(2)]

        def scores(weights, layout):
            q, k = ((x @ w.T).unflatten(-1, (heads, 8)).transpose(1, 2) for w in weights)
            q, k = RoPE(8, layout=layout, rotary_dim=rotary_dim)(q, k, positions, positions)
            return q @ k.mT

        permuted = [permute_layout(w, 8, to=to, rotary_dim=rotary_dim) for w in projections]
        assert gap(scores(projections, source), scores(permuted, to)) < 1e-12
        if rotary_dim > 2:
            assert gap(scores(projections, source), scores(projections, to)) > 1e-3

    def test_norm_weights_and_biases_permute_as_well(self):
        assert permute_layout(torch.arange(8), 8, to="half").tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
        assert permute_layout(torch.arange(8), 8, to="interleaved").tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
        assert permute_layout(torch.arange(8), 8, to="half", rotary_dim=4).tolist() == [0, 2, 1, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("name", "value"),
    [("base", 1e6), ("scaling", NTKAware(2.0)), ("scaling", None), ("rotary_dim", 8), ("head_dim", 32)],
)
def test_what_the_tables_follow_from_cannot_be_set_afterwards(name: str, value: object) -> None:
    rope = RoPE(16)
    with pytest.raises(ValueError, match=rf"{name} is fixed .* use replace\({name}=…\)"):
        setattr(rope, name, value)
    assert (rope.base, rope.rotary_dim, rope.scaling) == (10_000.0, 16, None)
    rope.layout = "interleaved"
    other = pickle.loads(pickle.dumps(copy.deepcopy(rope)))
    assert repr(other) == repr(rope)


def test_replaced_arguments() -> None:
    scaling = YaRN(4.0, original_length=1024)
    rope = RoPE(64, base=5e5, layout="interleaved", rotary_dim=32, scaling=scaling)
    other = rope.replace(base=1e6)
    assert (other.head_dim, other.base, other.layout, other.rotary_dim) == (64, 1e6, "interleaved", 32)
    assert other.scaling is scaling
    assert torch.equal(rope.replace().spectrum().theta, rope.spectrum().theta)
    assert rope.base == 5e5, "the original stays"
    with pytest.raises(TypeError):
        rope.replace(theta=1.0)


# The rotation of pairs: every form against complex numbers in float64, what it keeps, and what it leaves alone.


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


# Rotations that see differences of positions alone, to 1e-12 in float64; and those that are shown not to.


HEADS, WIDTH = 2, 48
TWO = ("rope-vit", "qwen-vl", "llama-4", "sam-2", "dinov3")
THREE = ("pixtral", "eva-02", "v-jepa-2", "gemma-4", "kimi-k2.5")
CONVENTIONS = {**dict.fromkeys(TWO, 2), **dict.fromkeys(THREE, 3)}
EXACT = {
    "rope": lambda: RoPE(WIDTH),
    **{f"axial {name}": lambda name=name, axes=axes: AxialRoPE(WIDTH, axes=axes, convention=name)
       for name, axes in CONVENTIONS.items()},
    "axial, given frequencies": lambda: AxialRoPE(12, frequencies=[[1.0, 0.3, 0.1], [2.0, 0.5, 0.0]]),
    "mixed": lambda: MixedRoPE(WIDTH, num_heads=HEADS),
    "mixed, halves": lambda: MixedRoPE(WIDTH, num_heads=HEADS, axes=3, layout="half"),
    "mixed, three axes": lambda: MixedRoPE(WIDTH, num_heads=HEADS, axes=3),
    "mixed, golden directions": lambda: MixedRoPE(WIDTH, num_heads=HEADS, axes=3, directions="golden", learned=False),
    "mrope": lambda: MRoPE(WIDTH, sections=(8, 8, 8)),
    "mhrope": lambda: MHRoPE(WIDTH, num_heads=HEADS, heads=(1, 1, HEADS - 2)),
    "mrope, interleaved": lambda: MRoPE(WIDTH, sections=(12, 6, 6), interleaved=True, layout="interleaved"),
    "vjepa": lambda: VJEPARoPE(WIDTH),
    "grape_m": lambda: GRAPEM(WIDTH, num_heads=HEADS),
    "liere, blocks of 2": lambda: LieRE(WIDTH, num_heads=HEADS, block=2),
    "liere, one axis": lambda: LieRE(WIDTH, num_heads=HEADS, axes=1),
    "comrope_ap": lambda: ComRoPEAP(WIDTH, num_heads=HEADS),
    "comrope_ap, three axes": lambda: ComRoPEAP(WIDTH, num_heads=HEADS, axes=3),
    "comrope_ap, blocks of 2": lambda: ComRoPEAP(WIDTH, num_heads=HEADS, block=2),
    "comrope_ld": lambda: ComRoPELD(WIDTH, num_heads=HEADS),
    "comrope_ld, three axes": lambda: ComRoPELD(WIDTH, num_heads=HEADS, axes=3, block=4),
}  # fmt: skip
NOT_EXACT = {
    "liere, blocks of 4": lambda: LieRE(WIDTH, num_heads=HEADS, block=4),
    "liere, blocks of 8": lambda: LieRE(WIDTH, num_heads=HEADS, block=8),
    "liere, whole head": lambda: LieRE(WIDTH, num_heads=HEADS),
    "liere, small generators": lambda: LieRE(WIDTH, num_heads=HEADS, block=8, init_scale=0.3),
    "vjepa, released": lambda: VJEPARoPE(WIDTH, released=True),
}


def measured(make, dtype=torch.float64, pairs=40):
    torch.manual_seed(0)
    encoding = make()
    shape = (pairs, encoding.axes) if encoding.axes > 1 else (pairs,)
    if type(encoding).__name__.startswith(("LieRE", "ComRoPE")):  # made for coordinates from 0 to 1
        x, y = (torch.randint(0, 65, shape).double() / 64 for _ in "xy")
    else:
        x, y = (torch.randint(-1000, 1000, shape) for _ in "xy")
    return exactness(encoding, x, y, num_heads=HEADS, head_dim=encoding.head_dim, dtype=dtype)


@pytest.mark.parametrize("name", EXACT)
def test_differences_alone(name):
    assert max(measured(EXACT[name])) < 1e-12
    assert max(measured(EXACT[name], torch.float32)) < 1e-5


@pytest.mark.parametrize("name", NOT_EXACT)
def test_more_than_differences(name):
    result = measured(NOT_EXACT[name], pairs=8)
    assert result.relativity > 0.03
    assert (result.orthogonality > 0.5) == (name == "vjepa, released"), "all others are rotations all the same"


@pytest.mark.parametrize("name", [name for name, entry in CATALOGUE.items() if entry.hook_point == "rotary"])
def test_the_lists_know_every_rotation(name):
    """Spectra differ in their frequencies alone: RoPE stands for all of them. Three are not rotations."""
    if name in ("fope", "pope", "rope_pp"):
        return
    built = create_encoding(name, dim=HEADS * WIDTH, num_heads=HEADS, train_length=32, max_length=128)
    kinds = {type(make()) for make in EXACT.values()}
    assert type(built) in kinds


# Tables of default positions are kept within one limit, and never traced.


def test_a_table_of_default_positions_is_computed_once_and_equals_a_fresh_one():
    rope, (q, k, v) = RoPE(8), qkv(1, 2, 40, head_dim=8)
    with torch.autograd.profiler.profile() as profile:
        for _ in range(3):
            attention(q, k, v, [rope])
    assert sum(event.name == "aten::cos" for event in profile.function_events) == 1
    for start, stop in ((0, 40), (39, 40), (3, 9)):
        kept = rope.table(default_positions(stop - start, torch.device("cpu"), start))
        for got, expected in zip(kept, RoPE(8).table(torch.arange(start, stop)), strict=True):
            assert torch.equal(got, expected)


def test_steps_share_a_table_until_the_text_outgrows_it():
    layer, x, cache = SelfAttention(32, 2, encodings=[RoPE(16)]).eval(), torch.randn(1, 20, 32), KVCache()
    with torch.no_grad(), torch.autograd.profiler.profile() as profile:
        for token in x.split(1, 1):
            layer(token, cache=cache)
    assert sum(event.name == "aten::cos" for event in profile.function_events) == 2  # of 16 and of 32 tokens


def test_all_tables_of_the_process_have_one_limit(monkeypatch):
    """Sixteen modules at a thousand tokens; the newest stay."""
    monkeypatch.setattr(default_tables, "_KEPT", {})
    monkeypatch.setattr(default_tables, "LIMIT", 2**20)
    q = torch.randn(1, 1, 1000, 64)
    ropes = [RoPE(64, base=base) for base in range(100, 116)]
    for rope in ropes:
        attention(q, q, q, [rope])
    assert 0 < sum(kept.bytes for kept in default_tables._KEPT.values()) <= 2**20
    assert [kept.frequencies for kept in default_tables._KEPT.values()][-1] is ropes[-1]._constant_table
    long = torch.randn(1, 1, 5000, 64)  # a table above the limit is not kept, and drops no other
    before = list(default_tables._KEPT)
    attention(long, long, long, [ropes[0]])
    assert list(default_tables._KEPT) == before


def test_positions_that_were_written_into_are_counted_anew():
    positions = default_positions(7, torch.device("cpu"))
    assert default_positions(7, torch.device("cpu"))._base is positions._base
    positions += 1
    assert default_positions(7, torch.device("cpu")).tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert not is_default(positions)


def test_tables_follow_the_position_and_not_the_default_device():
    rope, (q, k, _) = RoPE(8), qkv(1, 2, 1, head_dim=8)
    places = torch.arange(4).split(1)
    with torch.device("meta"):
        rotated = [rope(q, k, place, place)[0] for place in places]
    for got, place in zip(rotated, places, strict=True):
        assert gap(got, RoPE(8)(q, k, place, place)[0]) < 5e-7


# Rotations by blocks under torch.func and forward mode: the same derivatives as by a backward pass.


BUILDERS = {
    "comrope-ap": lambda: ComRoPEAP(8, num_heads=4, axes=2, block=4),
    "comrope-ap, one axis": lambda: ComRoPEAP(8, num_heads=4, axes=1, block=4),
    "comrope-ld, grouped keys": lambda: ComRoPELD(8, num_heads=4, num_kv_heads=2, axes=2, block=4),
    "liere 4": lambda: LieRE(8, num_heads=4, axes=2, block=4),
    "liere 8": lambda: LieRE(8, num_heads=4, axes=2, block=8),
}


@pytest.fixture(params=BUILDERS)
def case(request):
    torch.manual_seed(0)
    encoding: Encoding = BUILDERS[request.param]().double()
    q, k, v = qkv(2, 4, 5, num_kv_heads=2 if "grouped" in request.param else 4, dtype=torch.float64)
    places = torch.randint(0, 4, (5,) if encoding.axes == 1 else (5, encoding.axes))

    def call(q):
        return attention(q, k, v, [encoding], q_pos=places, k_pos=places, causal=True)

    return call, q


def test_gradients(case):
    call, q = case
    leaf = q.clone().requires_grad_()
    (expected,) = torch.autograd.grad(call(leaf).square().sum(), leaf)
    assert gap(torch.func.grad(lambda q: call(q).square().sum())(q), expected) < 1e-10


def test_tangents(case):
    call, q = case
    tangent = torch.randn(q.shape, generator=torch.Generator().manual_seed(1), dtype=q.dtype)
    _, result = torch.func.jvp(call, (q,), (tangent,))
    step = 1e-6
    assert gap(result, (call(q + step * tangent) - call(q - step * tangent)) / (2 * step)) < 1e-7


def test_maps(case):
    call, q = case
    several = torch.stack([q, q * 0.5])
    assert gap(torch.func.vmap(call)(several), torch.stack([call(item) for item in several])) < 1e-10
