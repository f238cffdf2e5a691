"""How far back heads attend: shares that are known by construction."""

from __future__ import annotations

import pytest
import torch

from posenc.lab.models.decoder import Decoder, attention_mass
from posenc.lab.specs import Shape

SHAPE = Shape(16, 2, 2, 16)


def test_attention_that_sees_nothing_is_spread_evenly_over_the_past() -> None:
    model = Decoder("nope", SHAPE, hidden=32, seed=0).eval()
    for block in model.blocks:
        torch.nn.init.zeros_(block.attention.q_proj.weight)
    edges, mass = attention_mass(model, torch.randint(256, (3, 16)))
    assert edges == [0, 1, 2, 4, 8, 16]
    assert mass.shape == (2 * 2, 6)
    expected = torch.zeros(6, dtype=torch.float64)
    for query in range(8, 16):
        for key in range(query + 1):
            bin_ = next(n for n, edge in enumerate(edges) if query - key <= edge)
            expected[bin_] += 1 / (query + 1) / 8
    torch.testing.assert_close(mass, expected.expand(4, 6), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("spec", ["rope", "t5", "cope", "fox", "learned", "rope@4", "rope+alibi"])
def test_shares_sum_to_one_and_the_model_is_as_before(spec: str) -> None:
    model, tokens = Decoder(spec, SHAPE, hidden=32, seed=0).eval(), torch.randint(256, (2, 16))
    before = model(tokens)
    edges, mass = attention_mass(model, tokens)
    torch.testing.assert_close(mass.sum(1), torch.ones(4, dtype=torch.float64), rtol=1e-5, atol=1e-5)
    assert torch.equal(model(tokens), before)
    if spec == "rope@4":
        assert mass[:, edges.index(8) :].sum() == 0
    assert (mass >= 0).all()


def test_stick_breaking_leaves_some_to_nobody() -> None:
    _, mass = attention_mass(Decoder("stick-breaking", SHAPE, hidden=32, seed=0).eval(), torch.randint(256, (2, 16)))
    assert (mass.sum(1) < 1).all()
