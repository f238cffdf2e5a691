"""Generated tasks: batches, tests and files; what counts; exact numbers for a model that is known."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from posenc.lab.config import Config
from posenc.lab.decoder import LabModel
from posenc.lab.metrics import FULL, WINDOW, Values
from posenc.lab.tasks import addition, puzzles, task_named
from posenc.lab.tasks.sequences import NO_ANSWER, DrawnSequences, SequenceData, Sequences

NAMES = ("passkey", "recall", "flipflop", "counting", "copy", "addition")
TINY = {"windows": 6, "lengths": (1, 2, 4), "batch_size": 4, "dim": 16, "layers": 1, "heads": 2}
CPU = torch.device("cpu")


def task_and_config(name: str, **numbers: Any) -> tuple[Sequences[Any], Config]:
    """A task, and its quick numbers but for these."""
    task = task_named(name)
    assert isinstance(task, Sequences)
    config = task.profile("quick").config.replaced({**TINY, **numbers})
    config.check()
    task.check(config)
    return task, config


class Oracle(LabModel):
    """Right everywhere but where ``wrong`` (sequence, place from the end) says, whatever the length."""

    def __init__(self, data: SequenceData, vocabulary: int, wrong: list[tuple[int, int]]) -> None:
        super().__init__()
        self.data, self.vocabulary, self.wrong = data, vocabulary, wrong
        self.lr_multipliers, self.windows = {}, list[tuple[int, int | None]]()

    def forward(self, tokens: Tensor, window: int | None = None, ids: Tensor | None = None) -> Tensor:
        test = next(t for t in self.data.tests if t.tokens.shape[1] == tokens.shape[1])
        self.windows.append((tokens.shape[1], window))
        predicted = test.answers.clamp(min=0)
        for row, back in self.wrong:
            predicted[row, -back] = (predicted[row, -back] + 1) % self.vocabulary
        rows = [int((test.tokens == row).all(1).nonzero()[0]) for row in tokens]
        return torch.nn.functional.one_hot(predicted[rows], self.vocabulary).float()


def measured(task: Sequences[Any], config: Config, wrong: list[tuple[int, int]]) -> tuple[list[Values], Oracle]:
    data = task.data("generated", config)
    model = Oracle(data, task.vocabulary(config), wrong)
    return list(task.evaluate(model, data, "rope", config, CPU)), model


@pytest.mark.parametrize("name", NAMES)
def test_tests_are_the_same_for_all_and_drawn_again_alike(name: str, tmp_path: Path) -> None:
    task, config = task_and_config(name)
    data = task.data("generated", config)
    assert task.data("generated", config.replaced({"steps": 3, "lr": 1.0, "batch_size": 8})).facts() == data.facts()
    other = task.data("generated", config.replaced({"windows": 7}))
    assert not set(other.identity().values()) & set(data.identity().values())
    again = task.load(tmp_path, config)
    assert again.identity() == data.identity()
    for a, b in zip(again.tests, data.tests, strict=True):  # type: ignore[attr-defined]
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True) if y is not None)
    with pytest.raises(ValueError, match=rf"--data book\.txt: --task {name} makes its own sequences"):
        task.data("book.txt", config)


def test_a_sequence_has_the_share_of_its_late_answers_and_views_are_apart() -> None:
    task, config = task_and_config("copy", train_length=16, lengths=(1, 4))
    accuracies, model = measured(task, config, [(0, 1), (0, 8), (2, 8), (3, 9)])  # the last 8 of each sequence count
    assert [(v.metric, v.length, v.view) for v in accuracies] == [
        ("accuracy", 16, FULL), ("accuracy", 64, FULL), ("accuracy", 64, WINDOW),
    ]  # fmt: skip
    for values in accuracies:
        assert values.items == list(range(6))
        assert values.values == [0.75, 1.0, 0.875, 1.0, 1.0, 1.0]
    assert model.windows == [(16, None), (64, None), (64, 16)]
    data = model.data
    assert task.probe(model, data, config, CPU) == pytest.approx((0.75 + 0.875 + 4) / 6)


def test_whole_sequences_count_all_their_answers() -> None:
    task, config = task_and_config("addition", train_length=9, lengths=(1, 3))
    accuracies, _ = measured(task, config, [(0, 1), (1, 4), (2, 5)])  # 4 answers are due at 9 tokens, 10 at 27
    assert {(v.metric, v.length): v.values for v in accuracies if v.view == FULL} == {
        ("accuracy", 9): [0.0, 0.0, 1.0, 1.0, 1.0, 1.0], ("digits", 9): [0.75, 0.75, 1.0, 1.0, 1.0, 1.0],
        ("accuracy", 27): [0.0, 0.0, 0.0, 1.0, 1.0, 1.0], ("digits", 27): [0.9, 0.9, 0.9, 1.0, 1.0, 1.0],
    }  # fmt: skip


def test_past_the_trained_length_only_what_lies_beyond_it_counts_and_the_curve_has_all() -> None:
    task, config = task_and_config("passkey", windows=40, lengths=(1, 4))
    data = task.data("generated", config)
    first, last = data.tests
    assert first.distances is not None
    assert last.distances is not None
    back = last.distances[:, -1]
    far = (back > 64).nonzero()[:, 0].tolist()
    near = (back <= 64).nonzero()[:, 0].tolist()
    assert near
    accuracies, _ = measured(task, config, [(far[0], 1), (near[0], 1)])
    of = {(v.metric, v.length, v.view): v for v in accuracies}
    accuracy, curve = of["accuracy", 256, FULL], of["accuracy_by_distance", 256, WINDOW]
    assert of["accuracy", 64, FULL].items == list(range(40))
    assert accuracy.items == far
    assert accuracy.values == [0.75] + [1.0] * (len(far) - 1)
    for edge, share in zip(curve.items or (), curve.values, strict=True):
        inside = [i for i in range(40) if edge // 2 < int(back[i]) <= edge]
        assert inside
        assert share == pytest.approx(1 - sum(i in (far[0], near[0]) for i in inside) / 4 / len(inside))
    assert sum(sum(edge // 2 < int(b) <= edge for b in back) for edge in curve.items or ()) == 40


def test_the_loss_weighs_sequences_alike_however_they_are_shared() -> None:
    task, config = task_and_config("flipflop", batch_size=8)
    data = task.data("generated", config)
    model = task.model("nope", config, data, 0)
    tokens, answers = task.batch(data, config, 0, 0)
    assert len({int(n) for n in (answers != NO_ANSWER).sum(1)}) > 1
    joint = task.loss(model, (tokens, answers))
    shares = [task.loss(model, (tokens[rank::2], answers[rank::2])) for rank in range(2)]
    torch.testing.assert_close(joint, sum(shares) / 2)


@pytest.mark.parametrize(
    ("name", "numbers", "words"),
    [
        ("passkey", {"train_length": 8}, "--train-length 8"),
        ("flipflop", {"train_length": 63}, "--train-length 63"),
        ("recall", {"pairs": 17}, "--pairs 17"),
        ("copy", {"shift": 1}, "--shift"),
    ],
)
def test_numbers_that_make_no_sense_are_named(name: str, numbers: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        task_and_config(name, **numbers)


Answers = dict[int, tuple[int, int]]  # by place: what is due, and how many tokens back lies what it needs; 0: not told


def of_passkey(tokens: list[int]) -> Answers:
    words, needle, ask = 12, 4, len(tokens) - 4
    steps = [(b - a) % words for a, b in itertools.pairwise(tokens[:ask])]
    start = steps.index(0) + 1
    inside = steps[start : start + needle]
    assert all(step >= 2 for step in inside)
    assert all(step == 1 for step in steps[: start - 1] + steps[start + needle :])
    assert tokens[ask] == tokens[ask - 1]
    key = tokens[start + 1 : start + 1 + needle]
    assert tokens[ask + 1 :] == key[:-1]
    return {ask + i: (word, ask - start - 1) for i, word in enumerate(key)}


def of_flipflop(tokens: list[int]) -> Answers:
    answers, written = Answers(), -1
    for place in range(0, len(tokens), 2):
        order, bit = tokens[place : place + 2]
        if order == puzzles.WRITE:
            written = place + 1
        elif order == puzzles.READ:
            answers[place] = tokens[written], place - written
            assert bit == tokens[written]
    assert len(tokens) - 2 in answers
    return answers


def of_counting(tokens: list[int]) -> Answers:
    answers, count, reset = Answers(), 0, -1
    for place, token in enumerate(tokens):
        count = 0 if token == puzzles.RESET else count + (token == puzzles.TICK)
        reset = place if token == puzzles.RESET else reset
        answers[place] = puzzles.ZERO + count, place - reset
    return answers


def of_copy(tokens: list[int]) -> Answers:
    return {place: (tokens[place - 7], 0) for place in range(7, len(tokens))}


def of_recall(tokens: list[int]) -> Answers:
    symbols, known, answers = 16, dict[int, int](), Answers()
    for place in range(0, len(tokens), 2):
        key, value = tokens[place : place + 2]
        assert key < symbols or key >= 2 * symbols
        if key in known:
            answers[place] = tokens[known[key]], place - known.pop(key)
            assert value >= 2 * symbols
        elif key < symbols:
            assert symbols <= value < 2 * symbols
            assert key not in {tokens[query] for query in answers}
            known[key] = place + 1
    assert not known
    return answers


def of_addition(tokens: list[int]) -> Answers:
    plus, equals = tokens.index(addition.PLUS), tokens.index(addition.EQUALS)
    parts = [tokens[:plus], tokens[plus + 1 : equals]]
    assert len(parts[0]) == len(parts[1])
    total = sum(int("".join(map(str, reversed(part)))) for part in parts)
    digits = [int(digit) for digit in f"{total:0{len(parts[0]) + 1}d}"[::-1]]
    assert tokens[equals + 1 :] == digits
    return {equals + i: (answer, 0) for i, answer in enumerate([*digits, addition.END])}


SOLVERS: dict[str, Callable[[list[int]], Answers]] = {
    "passkey": of_passkey, "recall": of_recall, "flipflop": of_flipflop, "counting": of_counting, "copy": of_copy,
    "addition": of_addition,
}  # fmt: skip


def quick(name: str, **numbers: Any) -> tuple[Sequences[Any], Config]:
    task = task_named(name)
    assert isinstance(task, Sequences)
    return task, task.profile("quick").config.replaced(numbers)


def sequences_of(name: str, times: int, count: int, seed: int = 0) -> DrawnSequences:
    task, config = quick(name)
    length = times * config.training.train_length or task.trained_lengths(config)[0]
    return task.draw(config, length, count, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("times", [0, 1, 4])  # the shortest that is trained, the trained length, four times that
def test_a_solver_finds_the_answers_and_how_far_back_they_lie(name: str, times: int) -> None:
    task, config = quick(name)
    test = sequences_of(name, times, 40, seed=3)
    late = min(test.tokens.shape[1], config.training.train_length) // 2
    distances = torch.zeros_like(test.tokens) if test.distances is None else test.distances
    for tokens, answers, back in zip(test.tokens.tolist(), test.answers.tolist(), distances.tolist(), strict=True):
        expected = {n: (answer, back[n]) for n, answer in enumerate(answers) if answer != NO_ANSWER}
        assert expected == SOLVERS[name](tokens)
        assert max(expected) >= len(tokens) - late
        assert name != "recall" or (min(expected) >= len(tokens) - late and len(expected) == 8)
    assert test.checked(name, 40, test.tokens.shape[1], task.vocabulary(config)) is test


@pytest.mark.parametrize("name", SOLVERS)
def test_chance_is_what_the_best_blind_guess_gets(name: str) -> None:
    task, config = quick(name)
    answers = sequences_of(name, 8, 400).answers[:, config.training.train_length :]
    answers = answers[answers != NO_ANSWER]
    best = 0 if task.exact_match else answers.bincount().max().item() / len(answers)
    assert task.metrics_of(config)[0].chance == pytest.approx(best, abs=0.035)


@pytest.mark.parametrize(("times", "octaves", "least"), [(1, range(2, 6), 0.5), (16, range(6, 10), 0.9)])
def test_keys_are_asked_over_all_octaves_alike(times: int, octaves: range, least: float) -> None:
    test = sequences_of("recall", times, 1500)
    assert test.distances is not None
    back = test.distances[test.distances > 0].double()
    far = back > 64
    assert far.double().mean().item() == (0 if times == 1 else 0.5)
    those = back if times == 1 else back[far]
    shares = [((those > 2**n) & (those <= 2 ** (n + 1))).double().mean().item() for n in octaves]
    assert min(shares) > least * max(shares)
