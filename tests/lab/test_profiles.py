"""Numbers, and what they must fulfil."""

from __future__ import annotations

import pytest

from posenc.lab.tasks.numbers import override
from posenc.lab.text.profiles import check, parse_lengths, profile


def test_the_quick_profile_is_the_documented_one() -> None:
    quick = profile("quick")
    named = ("nope", "sinusoidal", "learned", "rope", "rope+window", "alibi", "t5", "fox", "stick-breaking")
    assert quick.encodings == named
    s = quick.settings
    assert (s.train_length, s.lengths, s.longest, s.scored) == (64, (1, 2, 4, 8, 16), 1024, 32)
    assert (s.dim, s.layers, s.heads, s.hidden) == (128, 4, 4, 352)


@pytest.mark.parametrize("name", ["quick", "standard", "full"])
def test_profiles_are_sound(name: str) -> None:
    chosen = profile(name)
    check(chosen.settings)
    assert "rope+window" in chosen.encodings
    assert len(set(chosen.encodings)) == len(chosen.encodings)


def test_the_standard_profile_has_every_text_encoding_and_a_mix() -> None:
    assert {"nope", "sinusoidal", "learned", "rope", "alibi", "t5", "shaw", "rope+alibi"} <= set(
        profile("standard").encodings
    )


def test_what_is_given_overrides_and_the_rest_stays() -> None:
    changed = override(profile("quick"), ["rope"], {"steps": 7, "lr": None, "seeds": 2})
    assert (changed.encodings, changed.seeds) == (("rope",), 2)
    assert changed.settings.steps == 7
    assert changed.settings.lr == profile("quick").settings.lr


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"train_length": 7}, "--train-length 7: an even number"),
        ({"train_length": 2}, "--train-length 2: at least 4"),
        ({"lengths": (1, 4, 4)}, "--lengths 1,4,4: .* grow"),
        ({"lengths": (1, 4, 2)}, "grow"),
        ({"lengths": (2, 4)}, "start at 1"),
        ({"steps": 0}, "--steps 0"),
        ({"windows": 1}, "--windows 1: at least 2"),
        ({"dim": 130}, "--dim 130: .* multiple of --heads 4"),
        ({"lr": 0.0}, "--lr 0.0: a positive number"),
        ({"lr": float("nan")}, "--lr nan"),
        ({"clip": -1.0}, "--clip"),
        ({"decay": 2.0}, "--decay"),
        ({"seeds": 0}, "--seeds 0"),
        ({"precision": "half"}, "--precision half"),
        ({"checkpoint_every": 0}, "--checkpoint-every 0"),
    ],
)
def test_numbers_that_make_no_sense_are_named(numbers: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        override(profile("quick"), [], numbers)


def test_lengths_are_read_from_text() -> None:
    assert parse_lengths("1, 2,16") == (1, 2, 16)
    with pytest.raises(ValueError, match="whole numbers"):
        parse_lengths("1,two")


def test_an_unknown_profile_gets_a_suggestion() -> None:
    with pytest.raises(ValueError, match="did you mean quick"):
        profile("quik")
