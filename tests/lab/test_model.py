"""The decoder: what all encodings share, and where each of them acts."""

from __future__ import annotations

import pytest
import torch

from posenc.encoding import Encoding
from posenc.lab.model import Decoder
from posenc.lab.specs import Shape, build_encodings, check_specs, ends_at_table, is_control, trained

SHAPE = Shape(dim=16, heads=2, layers=2, train_length=8)
SPECS = ["nope", "sinusoidal", "learned", "rope", "alibi", "t5", "shaw", "rope+alibi"]


def _model(spec: str, seed: int = 0) -> Decoder:
    return Decoder(spec, SHAPE, hidden=32, seed=seed)


def _shared(model: Decoder) -> dict[str, torch.Tensor]:
    return {name: p for name, p in model.named_parameters() if p not in model.lr_multipliers}


@pytest.mark.parametrize("spec", SPECS)
def test_shared_weights_are_the_same_bits_for_all_encodings(spec: str) -> None:
    torch.manual_seed(123)  # the surroundings must not matter
    reference, model = _shared(_model("nope")), _shared(_model(spec))
    assert reference.keys() == model.keys()
    assert all(torch.equal(reference[name], model[name]) for name in reference)
    other = _shared(_model(spec, seed=1))
    assert not torch.equal(other["head.weight"], model["head.weight"])


@pytest.mark.parametrize("spec", ["learned", "t5", "shaw"])
def test_an_encodings_own_weights_depend_on_the_seed_alone(spec: str) -> None:
    torch.manual_seed(1)
    first = _model(spec).state_dict()
    torch.manual_seed(2)
    second = _model(spec).state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_building_a_model_leaves_the_random_numbers_alone() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    _model("shaw")
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("spec", SPECS)
def test_the_model_is_causal(spec: str) -> None:
    model, tokens = _model(spec), torch.randint(256, (2, 8), generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % 256
    before, after = model(tokens), model(changed)
    assert before.shape == (2, 8, 256)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5], after[:, 5])


def test_t5_is_shared_by_all_layers_and_shaw_is_not() -> None:
    shared, own = build_encodings("t5", SHAPE).attention, build_encodings("shaw", SHAPE).attention
    assert shared[0][0] is shared[1][0]
    assert own[0][0] is not own[1][0]


def test_embedding_encodings_act_once_and_others_in_every_layer() -> None:
    model = _model("sinusoidal")
    assert len(model.embedding_encodings) == 1
    assert all(not isinstance(m, Encoding) for block in model.blocks for m in block.modules())
    mixed = build_encodings("learned+rope", SHAPE)
    assert [type(e).__name__ for e in mixed.embedding] == ["Learned"]
    assert [[type(e).__name__ for e in layer] for layer in mixed.attention] == [["RoPE"], ["RoPE"]]


def test_a_sliding_window_hides_what_is_older() -> None:
    model = _model("rope")
    tokens = torch.randint(256, (1, 12), generator=torch.Generator().manual_seed(0))
    older = tokens.clone()
    older[:, 0] = (older[:, 0] + 1) % 256
    # Two layers of a window of 4 reach 6 bytes back.
    torch.testing.assert_close(model(tokens, window=4)[:, 7:], model(older, window=4)[:, 7:])
    assert not torch.allclose(model(tokens, window=4)[:, 6], model(older, window=4)[:, 6])
    assert not torch.allclose(model(tokens)[:, 7:], model(older)[:, 7:])
    torch.testing.assert_close(model(tokens[:, :4], window=4), model(tokens[:, :4]))


def test_parameters_of_the_quick_profile() -> None:
    shape = Shape(dim=128, heads=4, layers=4, train_length=64)
    total, own = Decoder("learned", shape, hidden=352, seed=0).parameter_counts()
    assert own == 64 * 128
    assert total - own == 2 * 256 * 128 + 4 * (4 * 128 * 128 + 3 * 128 * 352 + 2 * 128) + 128


def test_specs() -> None:
    assert trained("rope+window") == "rope"
    assert is_control("rope+window")
    assert not is_control("rope+alibi")
    assert ends_at_table("learned+rope")
    assert not ends_at_table("rope+window")
    assert check_specs(["RoPE", "alibi", "rope"], SHAPE) == ["rope", "alibi"]
    with pytest.raises(ValueError, match="alibi"):
        check_specs(["albi"], SHAPE)
    with pytest.raises(ValueError, match="even"):
        check_specs(["rope"], Shape(dim=6, heads=2, layers=1, train_length=8))
