"""The tests of images: what each shows at which places, the model, and exact numbers for a model that is known."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from posenc.lab.images.coordinates import convert, inside
from posenc.lab.images.measure import FINER, LARGE, SHIFT, TRAINED, measure, names_of, views
from posenc.lab.images.model import Classifier, patches
from posenc.lab.images.pictures import Part, Pictures, make_pictures
from posenc.lab.images.settings import ImageSettings
from posenc.positions import grid

SETTINGS = ImageSettings(image_size=4, patch=2, constants=(1, 20), dim=16, layers=2, heads=2)
RELATIVE = ["nope", "axial", "mixed", "alibi_2d"]


@pytest.fixture
def pictures() -> Pictures:
    generator = torch.Generator().manual_seed(0)
    sides = [
        Part(torch.randint(256, (n, 4, 4), generator=generator).to(torch.uint8), torch.arange(n) % 3) for n in (12, 9)
    ]
    return make_pictures("noise", ("a", "b", "c"), *sides)


def _model(spec: str, seed: int = 0) -> Classifier:
    s = SETTINGS
    return Classifier(spec, s.shape, patch=s.patch, classes=3, hidden=s.hidden, seed=seed)


def test_places_of_all_tests() -> None:
    shown = views(SETTINGS)
    assert list(shown) == names_of(SETTINGS)
    assert SETTINGS.grid == 4
    places = {name: [view.places for view in of_test] for name, of_test in shown.items()}
    assert torch.equal(places[TRAINED][0], grid(4, 4))
    assert len(places[SHIFT]) == 8
    assert torch.equal(places["+20"][0], grid(4, 4) + 20)
    assert places[FINER[0]][0].unique().tolist() == [0, 0.5, 1, 1.5, 2, 2.5, 3]
    assert places[FINER[1]][0].unique().tolist() == list(range(7))
    assert places[LARGE[0]][0].unique().tolist() == [-0.25 + i / 2 for i in range(8)]
    assert places[LARGE[1]][0].unique().tolist() == list(range(8))
    kept = [name for name, of_test in places.items() if all(inside(p, 4) for p in of_test)]
    assert kept == [TRAINED, SHIFT, FINER[0], LARGE[0]]


def test_patches_lie_where_their_places_say() -> None:
    canvas = torch.zeros(1, 8, 8)
    canvas[0, 2:4, 4:6] = 1.0  # token (1, 2)
    for name, (view, *_) in views(SETTINGS).items():
        if name in (SHIFT, "+1", "+20"):
            continue
        full = view.tokens(canvas).sum(-1)[0] == 4
        found = view.places[full].double()
        wanted = {FINER[1]: [[2, 4]], LARGE[1]: None, LARGE[0]: None}.get(name, [[1, 2]])
        if wanted is not None:
            assert found.tolist() == wanted
    shifted = {tuple(view.places[view.tokens(canvas).sum(-1)[0] == 4][0].tolist()) for view in views(SETTINGS)[SHIFT]}
    assert shifted == {(1 + down, 2 + right) for down in (-1, 0, 1) for right in (-1, 0, 1)} - {(1, 2)}


def test_enlarging_puts_a_token_on_four_around_its_place() -> None:
    canvas = torch.zeros(1, 8, 8)
    canvas[0, 2:4, 4:6] = 1.0
    (view,) = views(SETTINGS)[LARGE[0]]
    weight = view.tokens(canvas).sum(-1)[0]
    centre = (weight[:, None] * view.places).sum(0) / weight.sum()
    torch.testing.assert_close(centre, torch.tensor([1.0, 2.0]))


def test_coordinates_of_each_convention() -> None:
    places = grid(1, 4)
    assert convert(places, "tokens", 4) is places
    assert convert(places, "unit", 4)[:, 1].tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert convert(places, "centres", 4)[:, 1].tolist() == [0.125, 0.375, 0.625, 0.875]
    assert convert(places + 20, "unit", 4)[:, 1].tolist() == pytest.approx([(20 + i) / 3 for i in range(4)])


class Oracle(nn.Module):
    """Answers with the class that it is told, and says where it was asked."""

    def __init__(self, answers: Tensor) -> None:
        super().__init__()
        self.answers, self.asked = answers, list[int]()

    def forward(self, tokens: Tensor, places: Tensor) -> Tensor:
        self.asked.append(len(places))
        return torch.nn.functional.one_hot(self.answers, 3).float()


def test_a_known_model_has_its_exact_accuracy_and_progress_ends_at_one(pictures: Pictures) -> None:
    shares: list[float] = []
    answers = pictures.test.labels.clone()
    answers[:3] = (answers[:3] + 1) % 3
    found = measure(Oracle(answers), pictures, SETTINGS, on_forward=shares.append)
    assert found == {name: pytest.approx(6 / 9) for name in names_of(SETTINGS)}
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)


def test_outside_a_table_there_is_no_number(pictures: Pictures) -> None:
    oracle = Oracle(pictures.test.labels)
    found = measure(oracle, pictures, SETTINGS, table=True)
    assert [name for name, accuracy in found.items() if accuracy is None] == ["+1", "+20", FINER[1], LARGE[1]]
    assert sorted(set(oracle.asked)) == [16, 49, 64]


@pytest.mark.parametrize("spec", [*RELATIVE, "sinusoidal_grid", "learned_grid", "log_cpb"])
def test_shared_weights_are_the_same_bits_for_all_encodings(spec: str) -> None:
    torch.manual_seed(123)  # the surroundings must not matter
    own = _model(spec)
    shared = {name: p for name, p in own.named_parameters() if p not in own.lr_multipliers}
    reference = dict(_model("nope").named_parameters())
    assert shared.keys() == reference.keys()
    assert all(torch.equal(reference[name], shared[name]) for name in reference)


@pytest.mark.parametrize("spec", RELATIVE)
def test_relative_encodings_read_differences_alone(spec: str, pictures: Pictures) -> None:
    model = _model(spec).double()
    tokens = patches(pictures.canvas(pictures.test, 2), 2).double()
    there = model(tokens, grid(4, 4) + 20)
    torch.testing.assert_close(model(tokens), there, rtol=0, atol=1e-5)
    shuffled = torch.randperm(16, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(model(tokens[:, shuffled], grid(4, 4)[shuffled]), model(tokens), rtol=0, atol=1e-5)
    if spec != "nope":
        assert not torch.allclose(model(tokens[:, shuffled]), model(tokens), atol=1e-3)


def test_attention_looks_both_ways(pictures: Pictures) -> None:
    model = _model("axial")
    tokens = patches(pictures.canvas(pictures.test, 2), 2).requires_grad_()
    x = model.embed(tokens)
    first = model.blocks[0](x, grid(4, 4), tables=None)[:, 0].sum()
    (gradient,) = torch.autograd.grad(first, tokens)
    assert (gradient.abs().sum((0, 2)) > 0).all()


def test_a_table_costs_its_parameters() -> None:
    total, own = _model("learned_grid").parameter_counts()
    assert own == 16 * 16
    assert total - own == _model("nope").parameter_counts()[0]
    assert dataclasses.replace(SETTINGS, train_images=100, epochs=3).steps == 4
