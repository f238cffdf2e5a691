"""How a checkpoint reads a long text: as it is, the end of it alone, in chunks, or under a context extension."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from posenc.evaluation.log import locked
from posenc.evaluation.report import AS_IS, CHUNKED, CUT
from posenc.hf.atomic_write import write_atomically
from posenc.hf.attach import detach
from posenc.hf.attach.rotary_modules import RotaryModules, apply
from posenc.hf.attach.scaling_methods import AUTO, BY_NEEDLES, DISTANCES, RESONANT, SEARCHES, check_method
from posenc.hf.evaluate.search import FactorSearch
from posenc.search import Settings

UNCHANGED = (AS_IS, CUT, CHUNKED)
_NAME = re.compile(r"([a-z0-9_]+(?:\+resonance)?)(?:@([0-9]+(?:\.[0-9]+)?))?")


class Method(NamedTuple):
    """A method by name; ``yarn@2`` is for twice the trained length, ``yarn`` for the longest length that is read."""

    name: str
    times: float | None = None

    @classmethod
    def parse(cls, text: str) -> Method:
        """From text.

        Raises:
            ValueError: for an unknown name, a method that trains or chooses, and a factor that is not above 1.
        """
        match = _NAME.fullmatch(text)
        if match is None:
            raise ValueError(f"methods: names like as_is, cut, chunked, yarn and yarn@2 are needed, got {text!r}")
        name, times = match[1], float(match[2]) if match[2] else None
        if name not in UNCHANGED:
            name = check_method(name)
            if name in (AUTO, BY_NEEDLES):
                raise ValueError(f"methods: {name} chooses; posenc extend does that, then evaluate its folder")
        if times is not None and (times <= 1 or name in UNCHANGED):
            what = "takes no factor" if name in UNCHANGED else f"needs a factor above 1, got {match[2]}"
            raise ValueError(f"methods: {text}: {name} {what}")
        return cls(name, times)

    def target(self, trained: int, longest: int) -> int:
        """Tokens that the model is extended to."""
        return longest if self.times is None else round(self.times * trained)

    def __str__(self) -> str:
        return self.name if self.times is None else f"{self.name}@{self.times:g}"


@contextmanager
def applied(
    method: Method,
    rotations: RotaryModules | None,
    trained: int,
    longest: int,
    *,
    search: Settings,
    pieces: Sequence[Tensor],
    scored: int,
    folder: Path | None,
    digest: str,
) -> Iterator[None]:
    """Context manager: the model under a method, restored afterwards.

    Args:
        method: of reading.
        rotations: of the model; None if its methods leave it unchanged.
        trained: tokens.
        longest: tokens that are read at most.
        search: sizes of LongRoPE's search.
        pieces: texts that it judges by, of at least the target's tokens; none of them is evaluated.
        scored: tokens of each at its end.
        folder: where the search keeps what it has found; None: nowhere.
        digest: of `search_digest`, for the names of its files.
    """
    target = method.target(trained, longest)
    if rotations is None or method.name in UNCHANGED or target <= trained:
        yield
    elif method.name in DISTANCES:
        apply(rotations, method.name, trained, target)
        try:
            yield
        finally:
            detach(rotations.model)
    elif method.name in SEARCHES:
        searcher = FactorSearch(
            rotations, original_length=trained, length=target, last=scored, settings=search, seed=0,
            resonant=method.name.endswith(RESONANT),
        )  # fmt: skip
        path = None if folder is None else folder / f"{method.name}-{target}-{digest}.json"
        factors = _searched_factors(searcher, [piece[:target] for piece in pieces], trained, target, path)
        with rotations.temporarily(searcher.config((1.0,) * searcher.pairs, factors)):
            yield
    else:
        with rotations.temporarily(rotations.planned_config(method.name, trained, target)):
            yield


def search_digest(weights: str, trained: int, settings: Settings, pieces: Sequence[Tensor], scored: int) -> str:
    """A hash of everything but the target that decides the factors of LongRoPE's search.

    Args:
        weights: the model's `posenc.evaluation.log.fingerprint`.
        trained, settings, pieces, scored: as `applied` and `FactorSearch` take them.
    """
    content = json.dumps([weights, trained, asdict(settings), [piece.tolist() for piece in pieces], scored])
    return hashlib.sha256(content.encode()).hexdigest()[:8]


def _searched_factors(
    searcher: FactorSearch, pieces: Sequence[Tensor], trained: int, target: int, path: Path | None
) -> tuple[float, ...]:
    """LongRoPE's factors; one of several processes searches them, and the others wait for what it has found."""
    if path is None:
        return searcher.search(pieces, trained=trained, factor=target / trained)
    with locked(path, wait=True):
        if not path.exists():
            factors = searcher.search(
                pieces, trained=trained, factor=target / trained, journal=path.with_suffix(".jsonl")
            )
            text = json.dumps({"target": target, "factors": factors}, indent=1) + "\n"
            write_atomically(path, lambda temporary: temporary.write_text(text))
        return tuple(map(float, json.loads(path.read_text())["factors"]))
