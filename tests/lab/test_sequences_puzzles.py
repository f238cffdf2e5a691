"""Generated tasks: every answer is right by a solver that knows nothing of how it was drawn."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
import torch

from posenc.lab.sequences import addition, counting, flipflop, passkey, recall
from posenc.lab.sequences.puzzle import UNASKED, Puzzle
from posenc.lab.tasks.sequences import PUZZLES

BY_NAME = {puzzle.settings.task: puzzle for puzzle in PUZZLES}


def _answers_of_passkey(tokens: list[int], digits: int = 4) -> dict[int, int]:
    mark, ask = tokens.index(passkey.MARK), tokens.index(passkey.ASK)
    assert (tokens.count(passkey.MARK), tokens.count(passkey.ASK)) == (1, 1)
    assert len(tokens) - ask == digits
    key = tokens[mark + 1 : mark + 1 + digits]
    assert all(token < passkey.DIGITS for token in key)
    filler = [token for token in tokens[:ask] if token >= passkey.FILLER]
    assert len(filler) == ask - digits - 1
    assert all((b - a) % passkey.PERIOD == 1 for a, b in itertools.pairwise(filler))
    return {ask + i: digit for i, digit in enumerate(key)}


def _answers_of_flipflop(tokens: list[int]) -> dict[int, int]:
    found, written = {}, -1
    for place in range(0, len(tokens), 2):
        order, bit = tokens[place : place + 2]
        if order == flipflop.WRITE:
            written = bit
        elif order == flipflop.READ:
            found[place] = written
            assert bit == written
    return found


def _answers_of_counting(tokens: list[int]) -> dict[int, int]:
    found, count = {}, 0
    for place, token in enumerate(tokens):
        count = 0 if token == counting.RESET else count + (token == counting.TICK)
        found[place] = counting.ZERO + count
    return found


def _answers_of_copy(tokens: list[int]) -> dict[int, int]:
    return {place: tokens[place - 7] for place in range(7, len(tokens))}


def _answers_of_recall(tokens: list[int], pairs: int, symbols: int) -> dict[int, int]:
    known, found = dict[int, int](), dict[int, int]()
    for place in range(0, len(tokens), 2):
        key, value = tokens[place : place + 2]
        if place < 2 * pairs:
            assert key < symbols <= value < 2 * symbols
            assert key not in known
            known[key] = value
        elif key < symbols:
            found[place] = known[key]
            assert value == known[key]
        else:
            assert min(key, value) >= 2 * symbols
    return found


def _answers_of_addition(tokens: list[int]) -> dict[int, int]:
    plus, equals = tokens.index(addition.PLUS), tokens.index(addition.EQUALS)
    parts = [tokens[:plus], tokens[plus + 1 : equals]]
    assert len(parts[0]) == len(parts[1])
    total = sum(int("".join(map(str, reversed(part)))) for part in parts)
    digits = [int(digit) for digit in f"{total:0{len(parts[0]) + 1}d}"[::-1]]
    assert tokens[equals + 1 :] == digits
    return {equals + i: answer for i, answer in enumerate([*digits, addition.END])}


def _solve(settings: Any, tokens: list[int]) -> dict[int, int]:
    if isinstance(settings, recall.RecallSettings):
        return _answers_of_recall(tokens, settings.pairs, settings.symbols)
    return {
        "passkey": _answers_of_passkey, "flipflop": _answers_of_flipflop, "counting": _answers_of_counting,
        "copy": _answers_of_copy, "addition": _answers_of_addition,
    }[settings.task](tokens)  # fmt: skip


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("times", [0, 1, 4])  # the shortest, the training length, four times that
def test_a_solver_finds_the_answers(name: str, times: int) -> None:
    puzzle = BY_NAME[name]
    settings = puzzle.settings()
    length = times * settings.train_length or puzzle.trained_lengths(settings)[0]
    drawn = puzzle.draw(settings, length, 40, torch.Generator().manual_seed(3))
    assert drawn.tokens.shape == drawn.answers.shape == (40, length)
    assert drawn.tokens.dtype == drawn.answers.dtype == torch.int64
    vocabulary = puzzle.vocabulary(settings)
    assert 0 <= int(drawn.tokens.min()) <= int(drawn.tokens.max()) < vocabulary < 255
    for tokens, answers in zip(drawn.tokens.tolist(), drawn.answers.tolist(), strict=True):
        asked = {place: answer for place, answer in enumerate(answers) if answer != UNASKED}
        assert asked
        assert asked == _solve(settings, tokens)


@pytest.mark.parametrize("name", BY_NAME)
def test_sequences_depend_on_the_generator_alone(name: str) -> None:
    puzzle = BY_NAME[name]
    settings = puzzle.settings()
    first, again, other = (
        puzzle.draw(settings, settings.train_length, 8, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.tokens, other.tokens)


@pytest.mark.parametrize("name", BY_NAME)
def test_chance_is_what_the_best_blind_guess_gets(name: str) -> None:
    puzzle = BY_NAME[name]
    settings = puzzle.settings()
    drawn = puzzle.draw(settings, 8 * settings.train_length, 400, torch.Generator().manual_seed(0))
    if puzzle.whole:
        assert puzzle.chance(settings) == 0
        return
    answers = drawn.answers[:, settings.train_length :]
    answers = answers[answers != UNASKED]
    best = answers.bincount().max().item() / len(answers)
    assert puzzle.chance(settings) == pytest.approx(best, abs=0.035)


@pytest.mark.parametrize("name", BY_NAME)
def test_trained_lengths_end_at_the_training_length(name: str) -> None:
    puzzle = BY_NAME[name]
    settings = puzzle.settings()
    trained = puzzle.trained_lengths(settings)
    assert trained[-1] == settings.train_length
    assert all(length % puzzle.unit == 0 and length >= puzzle.shortest(settings) for length in trained)
    least = puzzle.shortest(settings)
    shortest = dataclasses.replace(settings, train_length=-(-least // puzzle.unit) * puzzle.unit)
    puzzle.check(shortest)
    assert list(puzzle.trained_lengths(shortest)) == [shortest.train_length]


def test_the_number_lies_anywhere_in_the_text() -> None:
    puzzle = BY_NAME["passkey"]
    drawn = puzzle.draw(puzzle.settings(), 24, 2000, torch.Generator().manual_seed(0))
    starts = (drawn.tokens == passkey.MARK).nonzero()[:, 1]
    assert starts.unique().tolist() == list(range(24 - 2 * 4))


def test_ids_of_addition_count_digits_and_shift_in_training_only() -> None:
    puzzle = BY_NAME["addition"]
    settings = puzzle.settings(train_length=9, shift=5)
    tokens = torch.tensor([[7, 3, addition.PLUS, 4, 4, addition.EQUALS, 1, 8, 0]])
    assert puzzle.ids_of(settings, tokens).tolist() == [[1, 2, 0, 1, 2, 0, 1, 2, 3]]
    shifts = {int(puzzle.ids_of(settings, tokens, torch.Generator().manual_seed(s))[0, 0]) - 1 for s in range(60)}
    assert shifts == set(range(6))
    assert settings.shape.ids == 5 + 3 + 1  # rows 0 … shift + digits of the longest sum
    assert all(p.ids_of(p.settings(), tokens) is None for p in PUZZLES if not p.ids)


@pytest.mark.parametrize(
    ("name", "numbers", "words"),
    [
        ("passkey", {"digits": 0}, "digits 0: at least 1"),
        ("passkey", {"train_length": 8}, "--train-length 8: at least 10"),
        ("flipflop", {"train_length": 63}, "--train-length 63: --task flipflop needs a multiple of 2"),
        ("flipflop", {"ignored": 1.0}, "ignored 1.0: a share"),
        ("counting", {"limit": 0}, "limit 0: at least 1"),
        ("copy", {"lag": 0}, "lag 0 and symbols 16"),
        ("copy", {"symbols": 300}, "--task copy: at most 255 different tokens, got 300"),
        ("recall", {"pairs": 17}, "pairs 17: .* at most symbols 16"),
        ("recall", {"noise": -0.1}, "noise -0.1"),
        ("addition", {"train_length": 31}, "needs a multiple of 3"),
        ("addition", {"shift": -1}, "shift -1"),
        ("addition", {"lengths": (2, 4)}, "--lengths 2,4"),
        ("copy", {"dim": 30}, "--dim 30"),
        ("copy", {"windows": 1}, "--windows 1: at least 2"),
    ],
)
def test_numbers_that_make_no_sense_are_named(name: str, numbers: dict[str, Any], words: str) -> None:
    puzzle: Puzzle[Any] = BY_NAME[name]
    with pytest.raises(ValueError, match=words):
        puzzle.check(puzzle.settings(**numbers))
