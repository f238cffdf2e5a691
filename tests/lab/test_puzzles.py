"""Generated tasks: every answer is right by a solver that knows nothing of how it was drawn."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from posenc.lab.config import Config
from posenc.lab.tasks import addition, counting, flipflop, task_named
from posenc.lab.tasks.sequences import NO_ANSWER, DrawnSequences, Sequences

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
        if order == flipflop.WRITE:
            written = place + 1
        elif order == flipflop.READ:
            answers[place] = tokens[written], place - written
            assert bit == tokens[written]
    assert len(tokens) - 2 in answers
    return answers


def of_counting(tokens: list[int]) -> Answers:
    answers, count, reset = Answers(), 0, -1
    for place, token in enumerate(tokens):
        count = 0 if token == counting.RESET else count + (token == counting.TICK)
        reset = place if token == counting.RESET else reset
        answers[place] = counting.ZERO + count, place - reset
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
