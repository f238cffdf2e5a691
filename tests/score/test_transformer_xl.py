"""Transformer-XL's positions against the formula, at any positions and far apart; shared parameters."""

from __future__ import annotations

import pytest
import torch

from posenc import attention
from posenc.score.transformer_xl import TransformerXL
from tests.samples import gap, qkv

FORMS = {"waves": {}, "clamped": {"clamp": 4}, "learned": {"learned_distances": 5}}


def xl(form="waves", dtype=torch.float64, **options) -> TransformerXL:
    """One for four heads of width 8, large enough to matter."""
    torch.manual_seed(0)
    encoding = TransformerXL(32, num_heads=4, **{"init_std": 1.0, **FORMS[form], **options}).double()
    if encoding.table_bias is not None:
        torch.nn.init.normal_(encoding.table_bias)
    return encoding.to(dtype)


def by_the_formula(q, k, encoding, q_pos, k_pos, scale) -> torch.Tensor:
    """The scores from r of each distance, which the code never forms."""
    n = q_pos.unsqueeze(-1).double() - k_pos.unsqueeze(-2).double()  # (batch, queries, keys)
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    content = (q + encoding.u[:, None]) @ k.mT
    if encoding.table is not None:
        row = n.long().clamp(0, encoding.learned_distances - 1)
        return scale * (
            content + torch.einsum("bhid,bijhd->bhij", q, encoding.table[row]) + encoding.table_bias[row].movedim(-1, 1)
        )
    n = n if encoding.clamp is None else n.clamp(-encoding.clamp, encoding.clamp)
    angle = n[..., None] * encoding.base ** (-torch.arange(0, encoding.dim, 2).double() / encoding.dim)
    waves = (
        torch.cat([angle.sin(), angle.cos()], -1) @ encoding.weight.T
    )  # W r, (batch, queries, keys, heads · head_dim)
    waves = waves.unflatten(-1, (encoding.num_heads, -1))
    return scale * (content + torch.einsum("bhid,bijhd->bhij", q + encoding.v[:, None], waves))


@pytest.mark.parametrize(
    ("form", "fractional"),
    [(f, fractional) for f in FORMS for fractional in (False, True) if f != "learned" or not fractional],
)
def test_any_positions_and_grouped_heads(form, fractional):
    q, k, v = qkv(2, 4, 3, 6, num_kv_heads=2, dtype=torch.float64)
    encoding = xl(form)
    k_pos = torch.tensor([[0, 1, 2, 3, 4, 5], [7, 3, 50, 4, 5, 21]])
    q_pos = torch.tensor([[3, 4, 5], [21, 6, 0]])
    if fractional:
        k_pos, q_pos = k_pos * 0.37, q_pos * 0.37
    out = attention(q, k, v, [encoding], q_pos=q_pos, k_pos=k_pos, causal=False, scale=0.3)
    expected = by_the_formula(q, k, encoding, q_pos, k_pos, 0.3).softmax(-1) @ v.repeat_interleave(2, 1)
    assert gap(out, expected) < 1e-12


def test_far_distances_in_float32():
    """A float32 product of position and frequency would be off by full turns."""
    q, k, v = qkv(1, 4, 6)
    q_pos, k_pos = torch.arange(6) + 10**9, torch.tensor([0, 5, 10**6, 10**8, 10**9 - 3, 10**9])
    encoding = xl()
    exact = attention(q.double(), k.double(), v.double(), [encoding], q_pos=q_pos, k_pos=k_pos, causal=False)
    expected = (
        by_the_formula(q.double(), k.double(), encoding, q_pos[None], k_pos[None], 8**-0.5).softmax(-1) @ v.double()
    )
    assert gap(exact, expected) < 1e-5, "the formula's own angles are off by 1e-7 here"
    assert gap(attention(q, k, v, [xl(dtype=torch.float32)], q_pos=q_pos, k_pos=k_pos, causal=False), exact) < 2e-4


def test_layers_may_share_u_and_v():
    first, second = TransformerXL(32, num_heads=4), TransformerXL(32, num_heads=4)
    second.u, second.v = first.u, first.v
    layers = torch.nn.ModuleList([first, second])
    assert sum(p.numel() for p in layers.parameters()) == 2 * 32 + 2 * 32 * 32
    layers.load_state_dict({name: value + 1 for name, value in layers.state_dict().items()}, strict=True)
    assert second.u is first.u
    assert not torch.equal(second.weight, first.weight)
