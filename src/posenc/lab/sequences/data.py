"""Batches of the training, and the sequences of the tests, which are the same in every run.

OUT/corpus/ holds the tests: tests.json, and a file of bytes for each length, tokens before answers.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from posenc.lab.files import read_bytes, read_json, write_atomically
from posenc.lab.foreign import dataclass_of
from posenc.lab.sequences.puzzle import MOST_TOKENS, UNASKED, Drawn, Puzzle
from posenc.lab.sequences.settings import SequenceSettings
from posenc.lab.text.corpus import counter_seed

TEST_SEED = 0  # the same sequences for all encodings and all training seeds
S = TypeVar("S", bound=SequenceSettings)


@dataclass(frozen=True)
class SequenceFacts:
    """What a report states about its sequences."""

    name: str
    lengths: tuple[int, ...]  # tokens
    count: int  # sequences of each length
    answers: tuple[int, ...]  # that are asked for at each length
    sha256: tuple[str, ...]  # of each length's file

    def identity(self) -> dict[str, str]:
        """What tells these tests from others."""
        return {f"tests_{length}_sha256": digest for length, digest in zip(self.lengths, self.sha256, strict=True)}

    def shown(self) -> dict[str, str]:
        """Name, sizes, hashes."""
        lengths = ", ".join(f"{length:,}" for length in self.lengths)
        answers = ", ".join(f"{count:,}" for count in self.answers)
        hashes = {
            f"tests of {length:,} tokens, SHA-256": digest
            for length, digest in zip(self.lengths, self.sha256, strict=True)
        }
        return {
            "sequences": self.name,
            "training": "drawn anew for each step, from seed and step",
            "tests": f"{self.count:,} sequences each of {lengths} tokens, with {answers} answers",
            **hashes,
        }


@dataclass(frozen=True)
class Sequences:
    """The tests; training needs nothing but the numbers."""

    tests: tuple[Drawn, ...]  # by length
    facts: SequenceFacts


def make_sequences(puzzle: Puzzle[S], settings: S) -> Sequences:
    """Draw the tests."""
    tests = tuple(_test(puzzle, settings, length) for length in settings.tested)
    facts = SequenceFacts(
        f"{settings.task}, generated",
        settings.tested,
        settings.windows,
        tuple(int((test.answers != UNASKED).sum()) for test in tests),
        tuple(hashlib.sha256(_bytes(test)).hexdigest() for test in tests),
    )
    return Sequences(tests, facts)


def draw_batch(puzzle: Puzzle[S], settings: S, *, seed: int, step: int) -> tuple[Tensor, ...]:
    """Tokens, answers and, where there are any, ids of a step, each ``(batch_size, length)``; a pure function."""
    generator = torch.Generator().manual_seed(counter_seed(f"{settings.task} batch", seed, step))
    lengths = puzzle.trained_lengths(settings)
    length = lengths[int(torch.randint(len(lengths), (), generator=generator))]
    drawn = puzzle.draw(settings, length, settings.batch_size, generator)
    ids = puzzle.ids_of(settings, drawn.tokens, generator)
    return (*drawn,) if ids is None else (*drawn, ids)


def store_sequences(sequences: Sequences, folder: Path) -> None:
    """Write the tests where workers and other machines of a shared file system read them."""
    folder.mkdir(parents=True, exist_ok=True)
    for length, test in zip(sequences.facts.lengths, sequences.tests, strict=True):
        write_atomically(folder / f"{length}.bin", _bytes(test))
    write_atomically(folder / "tests.json", json.dumps({"facts": asdict(sequences.facts)}).encode())


def load_sequences(folder: Path) -> Sequences:
    """Read what `store_sequences` wrote, and check it against its hashes."""
    facts = dataclass_of(SequenceFacts, read_json(folder / "tests.json", ("facts",))["facts"], folder / "tests.json")
    if not len(facts.lengths) == len(facts.answers) == len(facts.sha256):
        raise ValueError(f"{folder / 'tests.json'}: lengths, answers and sha256 must be as many")
    tests = []
    for length, expected in zip(facts.lengths, facts.sha256, strict=True):
        path = folder / f"{length}.bin"
        stored = read_bytes(path, 2 * facts.count * length) if path.exists() else b""
        if hashlib.sha256(stored).hexdigest() != expected:
            raise ValueError(f"{path} is truncated or not of this run: remove {folder} and start again")
        both = torch.frombuffer(bytearray(stored), dtype=torch.uint8).view(2, facts.count, length).long()
        tests.append(Drawn(both[0], torch.where(both[1] == MOST_TOKENS, UNASKED, both[1])))
    return Sequences(tuple(tests), facts)


def _test(puzzle: Puzzle[S], settings: S, length: int) -> Drawn:
    generator = torch.Generator().manual_seed(counter_seed(f"{settings.task} test", TEST_SEED, length))
    return puzzle.draw(settings, length, settings.windows, generator)


def _bytes(test: Drawn) -> bytes:
    answers = torch.where(test.answers == UNASKED, MOST_TOKENS, test.answers)
    return torch.stack([test.tokens, answers]).to(torch.uint8).numpy().tobytes()
