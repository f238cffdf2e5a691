"""The journal of a search: a file of JSON lines, one for each evaluation, from which the search goes on.

The first line says what is searched. A last line without its end was being written when the search was killed: it is
dropped, and evaluated again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Container
from pathlib import Path
from typing import Any, NamedTuple

from posenc.search.space import Candidate

FORMAT = "posenc-longrope-search/1"  # a new number whenever another version would try other candidates


class Evaluation(NamedTuple):
    """One call of the objective.

    Attributes:
        generation: 0 is the population.
        candidate: what was tried.
        fitness: what the objective gave; infinite for anything that is no finite number.
        origin: where the candidate came from.
    """

    generation: int
    candidate: Candidate
    fitness: float
    origin: str


class Journal:
    """The evaluations that a file holds, and a way to add more; without a path nothing is held.

    Args:
        path: of the file, made if there is none.
        header: plain data that says what is searched.
    """

    def __init__(self, path: Path | None, header: dict[str, Any]) -> None:
        self.path = path
        self.known: dict[Candidate, float] = {}
        if path is None:
            return
        first = _line({"format": FORMAT, **header})
        content = path.read_bytes() if path.exists() else b""
        complete = content[: content.rfind(b"\n") + 1]
        if first.startswith(content):  # new, or killed in its first line
            path.write_bytes(first)
            return
        self._check_header(complete.partition(b"\n")[0], json.loads(first))
        self._read(complete)
        if complete != content:
            with path.open("r+b") as file:
                file.truncate(len(complete))

    def add(self, evaluation: Evaluation, value: float) -> None:
        """Write down an evaluation, with the value as the objective gave it: NaN and infinities are strings there."""
        if self.path is None:
            return
        record = {
            "generation": evaluation.generation,
            "origin": evaluation.origin,
            "fitness": value if math.isfinite(value) else str(value),
            "start_tokens": evaluation.candidate.start_tokens,
            "factors": evaluation.candidate.factors,
        }
        with self.path.open("ab") as file:
            file.write(_line(record))

    def check_tried(self, candidates: Container[Candidate]) -> None:
        """Raise a ValueError if the file holds a candidate that this search has not tried by now."""
        if any(candidate not in candidates for candidate in self.known):
            raise ValueError(f"journal {self.path} holds candidates that this search does not try; {_LEFT}")

    def _check_header(self, line: bytes, expected: dict[str, Any]) -> None:
        try:
            header = json.loads(line)
        except ValueError:
            header = None
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise ValueError(f"journal {self.path} is none of this version of posenc; {_LEFT}")
        for name in expected | header:
            if header.get(name) != expected.get(name):
                difference = f"{name} = {header.get(name)!r}, not {expected.get(name)!r}"
                raise ValueError(f"journal {self.path} is of another search, with {difference}; {_LEFT}")

    def _read(self, content: bytes) -> None:
        for number, line in enumerate(content.splitlines()[1:], start=2):
            try:
                record = json.loads(line)
                candidate = Candidate(tuple(map(float, record["factors"])), int(record["start_tokens"]))
                self.known.setdefault(candidate, float(record["fitness"]))
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(f"journal {self.path} cannot be read in line {number}; {_LEFT}") from error


_LEFT = "it was left as it is: move it away to start again"


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, allow_nan=False).encode() + b"\n"
