"""Batches, tests and exact numbers for a model that is known."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import Tensor

from posenc.lab.sequences.data import draw_batch, load_sequences, make_sequences, store_sequences
from posenc.lab.sequences.measure import measure
from posenc.lab.sequences.puzzle import UNASKED
from posenc.lab.tasks.sequences import PUZZLES, TASKS

TINY = {"windows": 6, "lengths": (1, 2, 4), "batch_size": 4}


@pytest.mark.parametrize("puzzle", PUZZLES, ids=lambda p: p.settings.task)
def test_a_batch_depends_on_seed_and_step_alone(puzzle) -> None:  # type: ignore[no-untyped-def]
    settings = puzzle.settings(**TINY)
    torch.manual_seed(1)
    first = draw_batch(puzzle, settings, seed=3, step=7)
    torch.manual_seed(2)
    again = draw_batch(puzzle, settings, seed=3, step=7)
    assert len(first) == 2 + puzzle.ids
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    others = [draw_batch(puzzle, settings, seed=s, step=t) for s, t in ((4, 7), (3, 8))]
    assert not any(o[0].shape == first[0].shape and torch.equal(o[0], first[0]) for o in others)
    lengths = {draw_batch(puzzle, settings, seed=0, step=t)[0].shape[1] for t in range(200)}
    assert lengths == set(puzzle.trained_lengths(settings))


@pytest.mark.parametrize("puzzle", PUZZLES, ids=lambda p: p.settings.task)
def test_tests_are_the_same_for_all_and_come_back_from_their_files(puzzle, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    settings = puzzle.settings(**TINY)
    data = make_sequences(puzzle, settings)
    changed = dataclasses.replace(settings, steps=3, lr=1.0, batch_size=8)  # numbers of the training
    assert make_sequences(puzzle, changed).facts == data.facts
    assert make_sequences(puzzle, dataclasses.replace(settings, windows=7)).facts.sha256 != data.facts.sha256
    store_sequences(data, tmp_path)
    loaded = load_sequences(tmp_path)
    assert loaded.facts == data.facts
    for a, b in zip(loaded.tests, data.tests, strict=True):
        assert torch.equal(a.tokens, b.tokens)
        assert torch.equal(a.answers, b.answers)
    path = tmp_path / f"{settings.tested[1]}.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="truncated or not of this run"):
        load_sequences(tmp_path)


def test_tests_are_no_batches_of_the_training() -> None:
    puzzle = next(p for p in PUZZLES if p.settings.task == "copy")
    settings = puzzle.settings(**TINY)
    tests = {tuple(row) for row in make_sequences(puzzle, settings).tests[0].tokens.tolist()}
    for step in range(50):
        assert not tests & {tuple(row) for row in draw_batch(puzzle, settings, seed=0, step=step)[0].tolist()}


def test_a_known_model_has_its_exact_accuracy_and_progress_ends_at_one() -> None:
    puzzle = next(p for p in PUZZLES if p.settings.task == "passkey")
    settings = puzzle.settings(**TINY)
    tests = make_sequences(puzzle, settings).tests
    shares: list[float] = []

    def oracle(tokens: Tensor, ids: Tensor | None) -> Tensor:
        """Right, but for the first digit of the first sequence."""
        assert ids is None
        test = next(t for t in tests if t.tokens.shape[1] == tokens.shape[1])
        said = test.answers.clone()
        said[0, -settings.digits] = (said[0, -settings.digits] + 1) % 10
        rows = [int((test.tokens == row).all(1).nonzero()[0]) for row in tokens]
        return torch.nn.functional.one_hot(said[rows].clamp(min=0), puzzle.vocabulary(settings)).float()

    reach = {n: n < settings.tested[-1] for n in settings.tested}
    found = measure(oracle, tests, reach=reach.__getitem__, on_forward=shares.append)
    assert found["answers"][:2] == [pytest.approx(1 - 1 / (6 * settings.digits))] * 2
    assert found["whole"][:2] == [pytest.approx(5 / 6)] * 2
    assert found["answers"][2] is None
    assert found["whole"][2] is None
    assert found["wrong"] == [[1, 0, 0, 0, 0, 0]] * 2 + [None]
    assert found["asked"] == [6 * settings.digits] * 2 + [None]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)


def test_the_loss_weighs_sequences_alike_however_they_are_shared() -> None:
    task = TASKS["flipflop"]
    settings = dataclasses.replace(task.profile("quick").settings, batch_size=8, dim=16, layers=1, heads=2)
    data, _ = task.read("generated", settings)
    model = task.model("nope", settings, data, 0)
    tokens, answers = task.batch(data, settings, 0, 0)
    assert len({int(n) for n in (answers != UNASKED).sum(1)}) > 1
    whole = task.loss(model, (tokens, answers))
    shares = [task.loss(model, (tokens[rank::2], answers[rank::2])) for rank in range(2)]
    torch.testing.assert_close(whole, sum(shares) / 2)


def test_sequences_have_no_source_but_themselves() -> None:
    task = TASKS["recall"]
    with pytest.raises(ValueError, match=r"--data book\.txt: --task recall makes its own sequences"):
        task.read("book.txt", task.profile("quick").settings)
