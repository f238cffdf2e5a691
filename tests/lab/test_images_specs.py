"""Which encodings the lab trains on images, and which it sends back."""

from __future__ import annotations

import pytest

from posenc.lab.images.settings import ImageSettings, check, profile
from posenc.lab.images.specs import GridShape, check_specs, tables_end
from posenc.lab.specs import Shape
from posenc.lab.specs import check_specs as check_text_specs
from posenc.lab.tasks.numbers import override

SHAPE = ImageSettings().shape


@pytest.mark.parametrize("name", ["quick", "standard", "full"])
def test_profiles_are_sound(name: str) -> None:
    chosen = profile(name)
    check(chosen.settings)
    assert check_specs(chosen.encodings, chosen.settings.shape) == list(chosen.encodings)
    assert chosen.seeds >= 3


def test_the_quick_profile_is_the_documented_one() -> None:
    chosen = profile("quick")
    s = chosen.settings
    assert chosen.encodings == (
        "nope", "sinusoidal_grid", "learned_grid", "axial", "mixed", "liere", "comrope_ap", "comrope_ld"
    )  # fmt: skip
    assert (s.canvas, s.grid, s.dim, s.layers, s.heads, s.epochs, s.batch_size) == (12, 6, 48, 3, 3, 30, 64)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("rope", "rope: positions of RoPE have one coordinate, those of an image two; --task text"),
        ("axial+alibi", "axial.alibi: positions of ALiBi have one coordinate"),
        ("learned", "positions of Learned have one coordinate"),
        ("vjepa", "vjepa: positions of VJEPARoPE have 3 coordinates, those of an image two$"),
        ("fox", "fox: ForgetGate reads the order of a text, not rows and columns"),
        ("axial+window", "a sliding window is a control of --task text"),
        ("yarn", "yarn stretches a model"),
        ("abacus", "abacus: its positions are not rows and columns"),
        ("axal", "did you mean 'axial'"),
        ("axial+liere", r"axial\+liere: its encodings read different coordinates \(tokens, unit\)"),
    ],
)
def test_what_has_no_place_in_an_image_is_sent_back(spec: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_specs([spec], SHAPE)


@pytest.mark.parametrize("spec", ["axial", "learned_grid", "alibi_2d"])
def test_what_has_no_place_in_a_text_is_sent_back(spec: str) -> None:
    with pytest.raises(ValueError, match="have 2 coordinates, those of text one; --task images compares it"):
        check_text_specs([spec], Shape(dim=32, heads=4, layers=2, train_length=32))


def test_a_shape_that_does_not_fit_is_named() -> None:
    with pytest.raises(ValueError, match=r"axial: .*head_dim"):
        check_specs(["axial"], GridShape(dim=6, heads=2, layers=1, grid=4))


def test_embeddings_mix_with_anything_and_tables_end() -> None:
    assert check_specs(["Learned_grid + liere", "axial"], SHAPE) == ["learned_grid+liere", "axial"]
    assert tables_end("learned_grid+axial")
    assert not tables_end("swin+axial")


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"patch": 3}, "--patch 3: an even number"),
        ({"image_size": 9}, "--image-size 9: .* multiple of --patch 2"),
        ({"epochs": 0}, "--epochs 0: at least 1"),
        ({"dim": 50}, "--dim 50: .* multiple of --heads 3"),
        ({"lr": -1.0}, "--lr -1.0: a positive number"),
        ({"seeds": 0}, "--seeds 0"),
    ],
)
def test_numbers_that_make_no_sense_are_named(numbers: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        override(profile("quick"), [], numbers)
