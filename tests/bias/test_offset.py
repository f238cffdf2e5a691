"""Functions of differences of coordinates: computed once for each distinct one, they are what each pair computes."""

from __future__ import annotations

import pytest
import torch

from posenc import attention
from posenc.bias import ALiBi2D, BEiTBias, LogCPB, SwinBias
from posenc.positions import NO_POSITION, grid
from tests.backends.tiles.compare import Largest
from tests.samples import gap, mostly_slow, qkv

LOST = torch.tensor([[NO_POSITION, 0], [NO_POSITION, 1]])
BIASES = {
    "swin": lambda: SwinBias(3, window=(4, 3)),
    "beit": lambda: BEiTBias(3, window=(4, 3)),
    "alibi_2d": lambda: ALiBi2D(3),
    "log_cpb": lambda: LogCPB(3, axes=2, hidden=8),
}
PLACES = {
    "grid": grid(9, 8),
    "int32": grid(9, 8).int(),
    "float64": grid(9, 8).double(),
    "other resolution": grid(14, 12) * (7 / 12),
    "patch centres": (grid(14, 8) + 0.5) / torch.tensor([14, 8]),
    "shifted and shuffled": grid(9, 8).flip(0)[torch.arange(72) * 7 % 72] + 1000,
    "with tokens without a place": torch.cat([LOST, grid(9, 8) + 40]),
    "fractions, with tokens without a place": torch.cat([LOST, grid(9, 8)]) * torch.tensor([1.0, 0.5]),
    "rows": torch.stack([torch.cat([LOST, grid(5, 8)]), grid(6, 7), grid(7, 6) * 2]),
}


def bias_of(name, dtype=torch.float64):
    bias = BIASES[name]().to(dtype)
    with torch.no_grad():
        for i, parameter in enumerate(bias.parameters()):
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i)))
    return bias


def both(bias, q_pos, k_pos):
    """The bias and the gradients of parameters: by distinct differences, and pair by pair as few pairs are computed."""
    results = []
    queries = [q_pos[..., i : i + 1, :] for i in range(q_pos.shape[-2])]
    for out in (bias(q_pos, k_pos), torch.cat([bias(query, k_pos) for query in queries], -2)):
        target = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)
        parameters = list(bias.parameters())
        results.append([out, *(torch.autograd.grad(out, parameters, target) if parameters else ())])
    return zip(*results, strict=True)


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("name", BIASES)
def test_equals_the_form_that_computes_each_pair(name, places):
    positions, bias = PLACES[places], bias_of(name)
    assert sum(seen_by(bias, positions)) < positions.shape[-2] * positions[..., 0].numel()
    for got, expected in both(bias, positions, positions):
        assert gap(got, expected) < 1e-5 * max(1.0, float(expected.detach().abs().max()))


def seen_by(bias, positions):
    """How many differences the bias was computed for."""
    seen = []
    bias.of_offset = lambda d: seen.append(d[..., 0].numel()) or type(bias).of_offset(bias, d)
    bias(positions, positions)
    del bias.of_offset
    return seen


def test_the_network_is_evaluated_once_per_difference():
    assert seen_by(LogCPB(2, axes=2, hidden=8), grid(16, 16)) == [31 * 31]
    assert seen_by(LogCPB(2, axes=2, hidden=8), torch.cat([LOST, grid(16, 16) + 1000])) == [31 * 31]
    assert seen_by(LogCPB(2, axes=2, hidden=8), torch.rand(256, 2)) == [256 * 256]
    assert seen_by(LogCPB(2, axes=2, hidden=8), grid(7, 7)) == [49 * 49], "a small window is not worth a search"
    assert seen_by(LogCPB(2, hidden=8), torch.arange(100)) == [199]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", mostly_slow(BIASES, "swin"))
def test_attention_never_holds_the_bias_of_all_pairs(name, causal):
    side, heads = 44, 3
    tokens = side * side
    q, k, v = (t.requires_grad_() for t in qkv(1, heads, tokens, head_dim=8))
    options = {"q_pos": grid(side, side), "k_pos": grid(side, side), "causal": causal}
    with Largest() as seen:
        attention(q, k, v, [bias_of(name, torch.float32)], **options).square().sum().backward()
    assert seen.elements <= heads * 512 * tokens < heads * tokens**2 / 3
