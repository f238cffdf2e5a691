"""RoPE++: the authors' scores, weights, results and gradients in all modes; keys that are RoPE's."""

from __future__ import annotations

import pytest
import torch

from posenc import DynamicNTK, PositionInterpolation, RoPE, YaRN, attention, read_attention
from posenc.rotary import RoPEpp
from tests.golden import config, load, names
from tests.samples import FLOATS, gap, qkv, refusals

FILES = names("ropepp_*")
MODES = {"imag1": "odd", "imag2": "odd", "imagx": "odd", "imagh": "half", "imago": "all"}


def of_file(name):
    inputs = config(name)
    rope_config, scaling = inputs["rope_config"], None
    if rope_config:
        scaling = YaRN(rope_config["factor"], original_length=4096, ramp="rotations")
    return inputs, RoPEpp(
        inputs["head_dim"], num_heads=inputs["output_heads"], imaginary=MODES[inputs["mode"]],
        base=inputs["rope_theta"],
        scaling=scaling,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FILES)
def test_the_authors_numbers(name, dtype):
    (inputs, rope), arrays = of_file(name), load(name, dtype)
    torch.testing.assert_close(rope.spectrum().theta, load(name)["inv_freq"], rtol=1e-12, atol=0)
    assert rope.imaginary_heads() == arrays["imaginary_head"].tolist()
    leaves = [arrays[x].requires_grad_() for x in "qkv"]
    q, k, v = leaves
    shared = RoPEpp.doubled(q) if inputs["mode"] in ("imag1", "imag2") else q
    assert torch.equal(shared, q[:, arrays["source_query_head"]])
    for backend in ("dense", "sdpa"):
        out = attention(shared, k, v, [rope], backend=backend)
        assert gap(out, arrays["out"]) < FLOATS[dtype]
        actual = torch.autograd.grad(out, leaves, arrays["grad_out"], retain_graph=True)
        for got, expected in zip(actual, ("grad_q", "grad_k", "grad_v"), strict=True):
            assert gap(got, arrays[expected]) < 10 * FLOATS[dtype]
    read, seen = read_attention(shared, k, v, [rope]), arrays["allowed"]
    assert gap(read.scores[:, :, seen], arrays["scores"][:, :, seen]) < FLOATS[dtype]
    assert gap(read.weights, arrays["weights"]) < FLOATS[dtype]


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("rotary_dim", [None, 4])
def test_an_imaginary_head_is_the_imaginary_part(layout, rotary_dim):
    """Against complex numbers; and a real head and every key are RoPE's."""
    q, k, _ = qkv(2, 4, 6, num_kv_heads=2, dtype=torch.float64)
    options = {"layout": layout, "rotary_dim": rotary_dim, "base": 50.0}
    rope, mixed, at = RoPE(8, **options), RoPEpp(8, num_heads=4, **options), torch.arange(6)
    (plain_q, plain_k), (of_q, of_k) = rope(q, k, at, at), mixed(q, k, at, at)
    assert torch.equal(of_k, plain_k)
    assert torch.equal(of_q[:, ::2], plain_q[:, ::2])
    width = rotary_dim or 8
    split = (2, -1) if layout == "half" else (-1, 2)
    as_pairs = [t[..., :width].unflatten(-1, split) for t in (plain_q[:, 1::2], plain_k)]
    as_pairs = [t.mT if layout == "half" else t for t in as_pairs]
    a, b = (torch.view_as_complex(t.contiguous()) for t in as_pairs)
    imaginary = (a.unsqueeze(-2) * b.conj().unsqueeze(-3)).imag.sum(-1)
    still = plain_q[:, 1::2, :, width:] @ plain_k[..., width:].mT
    assert gap(of_q[:, 1::2] @ of_k.mT, imaginary + still) < 1e-12


@pytest.mark.parametrize("scaling", [lambda: PositionInterpolation(2), lambda: DynamicNTK(original_length=4)])
def test_scalings_are_ropes(scaling):
    q, k, v = qkv(2, 4, 9, num_kv_heads=2)
    first, other = RoPE(8, scaling=scaling()), RoPEpp(8, num_heads=4, scaling=scaling())
    assert gap(attention(q, k, v, [first])[:, ::2], attention(q, k, v, [other])[:, ::2]) < 1e-6
    assert other.length_dependent == first.length_dependent


test_refusals = refusals(
    {
        "rotary_dim": [lambda: RoPEpp(7, num_heads=2)],
        "num_heads": [lambda: attention(*qkv(1, 2, 3), [RoPEpp(8, num_heads=4)])],
    }
)
