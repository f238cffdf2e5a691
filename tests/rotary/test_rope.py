"""RoPE: layouts and their permutations, and arguments that are fixed."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from posenc import NTKAware, RoPE, YaRN
from posenc.rotary import permute_layout
from tests.samples import gap

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
