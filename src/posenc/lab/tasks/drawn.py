"""Sequences with their right answers, and the files that tests of them are kept in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from posenc.lab.config import Config
from posenc.lab.files import read_bytes, write_atomically, write_json
from posenc.lab.schema import Facts, read_record

UNASKED = -100  # where nothing is to be said; what `cross_entropy` ignores
FILE = "tests.json"


class Drawn(NamedTuple):
    """Sequences, and what is to be said after each of their tokens."""

    tokens: Tensor  # (count, length) int64
    answers: Tensor  # (count, length) int64, UNASKED where nothing is to be said; each row has an answer
    distances: Tensor | None = None  # (count, length) int64: so many tokens back lies what an answer needs; 0: not said

    def checked(self, task: str, count: int, length: int, vocabulary: int) -> Drawn:
        """The same, if it is what a puzzle must draw; a ValueError that says what is wrong."""
        for name, part in zip(self._fields, self, strict=True):
            if part is not None and (part.shape != (count, length) or part.dtype != torch.int64):
                has = f"{part.dtype} {tuple(part.shape)}"
                raise ValueError(f"--task {task} drew {name} as {has}; torch.int64 {(count, length)} is needed")
        due = self.answers != UNASKED
        for name, part in (("tokens", self.tokens), ("answers", self.answers[due])):
            if part.numel() and not 0 <= int(part.min()) <= int(part.max()) < vocabulary:
                has = f"{int(part.min())} to {int(part.max())}"
                raise ValueError(f"--task {task} drew {name} {has}; its vocabulary has 0 to {vocabulary - 1}")
        if not bool(due.any(1).all()):
            raise ValueError(f"--task {task} drew a sequence of {length} tokens without an answer")
        return self


@dataclass(frozen=True)
class SequenceData:
    """The tests, which are the same in every run; training needs nothing but the numbers."""

    task: str
    tests: tuple[Drawn, ...]  # by length

    def identity(self) -> dict[str, str]:
        """SHA-256 of the sequences of each length."""
        return {f"tests_{n}_sha256": hashlib.sha256(content).hexdigest() for n, content in self._contents()}

    def facts(self) -> dict[str, str]:
        """Sizes and hashes."""
        lengths = ", ".join(f"{test.tokens.shape[1]:,}" for test in self.tests)
        answers = ", ".join(f"{int((test.answers != UNASKED).sum()):,}" for test in self.tests)
        return {
            "sequences": f"{self.task}, generated",
            "training": "drawn anew for each step, from seed and step",
            "tests": f"{len(self.tests[0].tokens):,} sequences each of {lengths} tokens, with {answers} answers",
            **{f"tests of {n:,} tokens, SHA-256": self.identity()[f"tests_{n}_sha256"] for n, _ in self._contents()},
        }

    def save(self, folder: Path) -> None:
        """A file of 32-bit integers for each length, and their hashes."""
        folder.mkdir(parents=True, exist_ok=True)
        for length, content in self._contents():
            write_atomically(folder / f"{length}.bin", content)
        write_json(folder / FILE, self.identity())

    def _contents(self) -> Iterator[tuple[int, bytes]]:
        for tokens, answers, distances in self.tests:
            parts = torch.stack([tokens, answers, torch.zeros_like(tokens) if distances is None else distances])
            yield tokens.shape[1], parts.numpy().astype("<i4").tobytes()


def read_sequences(folder: Path, config: Config) -> SequenceData:
    """Read what `SequenceData.save` wrote, and check it against its hashes; a ValueError names what is damaged."""
    count, tests = config.evaluation.windows, []
    names = [f"tests_{length}_sha256" for length in config.tested]
    record = read_record(folder / FILE, Facts)
    for length, name in zip(config.tested, names, strict=True):
        path = folder / f"{length}.bin"
        stored = read_bytes(path, 12 * count * length) if path.exists() else b""
        if len(stored) != 12 * count * length or hashlib.sha256(stored).hexdigest() != record.get(name):
            raise ValueError(f"{path} is truncated or not of this run: remove {folder} and start again")
        parts = torch.from_numpy(np.frombuffer(stored, "<i4").astype(np.int64)).view(3, count, length)
        tests.append(Drawn(*parts))
    return SequenceData(config.task, tuple(tests))
