"""Which encodings the lab trains, and which it sends back."""

from __future__ import annotations

import pytest

from posenc import info, list_encodings
from posenc.lab.specs import Shape, check_specs, standard_encodings

SHAPE = Shape(dim=32, heads=4, layers=2, train_length=32)


def test_every_encoding_that_is_there_from_the_start_is_trained():
    trained = standard_encodings()
    assert {"nope", "rope", "xpos", "alibi", "multiscale", "resonance", "kerple", "fire"} <= set(trained)
    assert [name for name in list_encodings() if info(name).stretches and name in trained] == []
    assert "abacus" not in trained


@pytest.mark.parametrize("name", ["yarn", "rope+yarn", "clex", "longrope"])
def test_what_stretches_a_trained_model_is_sent_back(name):
    with pytest.raises(ValueError, match="stretches a model that was trained without it"):
        check_specs([name], SHAPE)


@pytest.mark.parametrize("spec", ["abacus", "fire+abacus", "abacus+window"])
def test_what_needs_positions_of_its_own_is_sent_back(spec):
    with pytest.raises(ValueError, match=r"abacus.*: its positions are not places in the text"):
        check_specs([spec], SHAPE)


def test_specs_are_kept_once():
    assert check_specs(["RoPE", "rope", "rope+alibi", "rope + ALiBi"], SHAPE) == ["rope", "rope+alibi"]
