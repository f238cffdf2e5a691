"""StickBreakingAttention: the steps of the authors' layer, and decoding equals reading at once."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from posenc import RoPE, attention
from posenc.layers import KVCache
from posenc.layers.stick_breaking import StickBreakingAttention
from posenc.positions import from_mask
from posenc.weight.stick_breaking import StickBreaking
from tests.samples import bounded, gap, refusals

DIM, HEADS, LENGTH = 32, 4, 9
FORMS = {
    "as in the source": {},
    "grouped, own": {"num_kv_heads": 2, "remainder": "own", "attend_current": True},
    "no norm, with RoPE": {"norm": False, "qk_norm": True, "encodings": [RoPE(8)]},
}
EACH_FORM = pytest.mark.parametrize("form", FORMS)


def layer(form="as in the source", **options) -> StickBreakingAttention:
    """A layer in float64 whose every parameter has been moved."""
    torch.manual_seed(0)
    built = StickBreakingAttention(DIM, HEADS, **{**FORMS[form], **options}).double()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    return built


def tokens(length=LENGTH) -> torch.Tensor:
    return torch.randn(2, length, DIM, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def heads(projected) -> torch.Tensor:
    return projected.view(2, LENGTH, -1, 8).transpose(1, 2)


@pytest.mark.parametrize("norm", [True, False])
def test_remainder_then_norm_then_projection(norm):
    module, x = layer(norm=norm, bias=True), tokens()
    q, k, v = (heads(p(x)) for p in (module.q_proj, module.k_proj, module.v_proj))
    out = attention(q, k, v, [StickBreaking()])
    left = 1 - attention(q, k, torch.ones_like(v), [StickBreaking()])
    vector = module.encodings[0].vector
    out = (out + left * vector[:, None]).transpose(1, 2)
    if norm:
        out = out - out.mean(-1, keepdim=True)
        out = out * (out.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        out = out * module.norm.weight.view(HEADS, 8) + module.norm.bias.view(HEADS, 8)
    assert gap(module(x), module.o_proj(out.flatten(2))) < 1e-13


@settings(bounded, max_examples=10)
@given(st.lists(st.integers(1, 4), min_size=2, max_size=5), st.sampled_from(sorted(FORMS)))
def test_decoding_in_any_chunks(sizes, form):
    module, x, cache = layer(form), tokens(sum(sizes)), KVCache()
    parts = [module(part, cache=cache) for part in torch.split(x, sizes, 1)]
    assert gap(torch.cat(parts, 1), module(x)) < 1e-12


@EACH_FORM
@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_rows_equal_rows_alone(side, form):
    module, x = layer(form), tokens()
    real = torch.ones(2, LENGTH, dtype=torch.bool)
    real[1, :3] = side == "right"
    real[1, 6:] = side == "left"
    out = module(x, from_mask(real), attention_mask=real)
    for row in range(2):
        assert gap(out[row : row + 1, real[row]], module(x[row : row + 1, real[row]])) < 1e-13


@EACH_FORM
def test_packed_documents_equal_documents_alone(form):
    module, x = layer(form), tokens()
    segments = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 2])
    out = module(x, segments=segments)
    for number in range(3):
        assert gap(out[:, segments == number], module(x[:, segments == number])) < 1e-13


def test_new_layer_is_as_the_source_starts():
    module = StickBreakingAttention(DIM, HEADS)
    assert not module.encodings[0].vector.any()
    assert (module.norm.num_groups, module.norm.num_channels, module.norm.eps) == (HEADS, DIM, 1e-5)
    assert not module(tokens()[:, :1].float()).any(), "the first token attends to nothing, and the vector is zero"


@EACH_FORM
def test_everything_learns(form):
    module = layer(form)
    module(tokens()).square().sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


def test_narrow_and_autocast():
    module, x = StickBreakingAttention(DIM, HEADS), tokens().float()
    expected = module(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert gap(module(x), expected) < 5e-2
    narrow = module.bfloat16()(x.bfloat16())
    assert narrow.dtype == torch.bfloat16
    assert gap(narrow, expected) < 5e-2


test_refusals = refusals(
    {
        "dim": [lambda: StickBreakingAttention(30, 4)],
        "remainder": [lambda: StickBreakingAttention(32, 4, remainder="keep")],
        "encodings": [lambda: StickBreakingAttention(32, 4, encodings=[StickBreaking()])],
        "num_heads": [lambda: StickBreakingAttention(32, 0)],
    }
)
