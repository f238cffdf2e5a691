"""Recall: pairs of a key and a value are shown, then keys are asked for their values.

    k3 v1 k7 v4 k2 v1 k7 v4 .. .. k3 v1 …
                      └ v4        └ v1

Multi-query associative recall after Arora et al., Zoology, arXiv 2312.04927, section 4.1; keys are drawn evenly, and
each may come as often as it likes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from posenc.lab.sequences.puzzle import UNASKED, Drawn, Puzzle, integers
from posenc.lab.sequences.settings import SequenceSettings
from posenc.lab.sequences.sizes import profile_of
from posenc.lab.tasks.task import Profile

NOISE = 8  # tokens without meaning


@dataclass(frozen=True)
class RecallSettings(SequenceSettings):
    """Numbers of the recall task."""

    task: ClassVar[str] = "recall"

    steps: int = 600
    pairs: int = 8  # of a sequence
    symbols: int = 16  # keys, and as many values
    noise: float = 0.5  # share of the slots after the pairs that ask nothing


class Recall(Puzzle[RecallSettings]):
    """Retrieval by content."""

    settings = RecallSettings
    title = "Which value belongs to a key"
    asked = (
        "A sequence begins with pairs of a key and a value; then keys come back in any order, amid tokens without "
        "meaning, and after each its value is due, and shown."
    )
    shows = (
        "Who solves it looks for an earlier place with the same content and reads what stands beside it. The pairs "
        "stay as many at all lengths, and come back as often: what is lost, is lost to the length alone."
    )

    def profile(self, name: str) -> Profile[RecallSettings]:
        """See `posenc.lab.sequences.sizes`."""
        return profile_of(name, RecallSettings(), lambda s: replace(s, pairs=32, symbols=64))

    def vocabulary(self, settings: RecallSettings) -> int:
        """Keys, values, noise."""
        return 2 * settings.symbols + NOISE

    def shortest(self, settings: RecallSettings) -> int:
        """The pairs, and a question."""
        return 2 * settings.pairs + 2

    def chance(self, settings: RecallSettings) -> float:
        """One value of all."""
        return 1 / settings.symbols

    def check(self, settings: RecallSettings) -> None:
        """See `Puzzle`."""
        if not 1 <= settings.pairs <= settings.symbols:
            raise ValueError(f"pairs {settings.pairs}: at least 1 and at most symbols {settings.symbols} are needed")
        if not 0 <= settings.noise < 1:
            raise ValueError(f"noise {settings.noise}: a share from 0 to below 1 is needed")
        super().check(settings)

    def draw(self, settings: RecallSettings, length: int, count: int, generator: torch.Generator) -> Drawn:
        """See the module."""
        pairs, symbols, slots = settings.pairs, settings.symbols, length // 2
        keys = torch.rand((count, symbols), generator=generator, dtype=torch.float64).argsort(1)[:, :pairs]
        values = symbols + integers(symbols, (count, pairs), generator)
        slot = torch.arange(slots).expand(count, slots)
        which = torch.where(slot < pairs, slot, integers(pairs, (count, slots), generator))
        quiet = torch.rand((count, slots), generator=generator, dtype=torch.float64) < settings.noise
        quiet &= (slot >= pairs) & (slot < slots - 1)  # each sequence has a question, the last one
        noise = 2 * symbols + integers(NOISE, (count, slots, 2), generator)
        shown = torch.stack([keys.gather(1, which), values.gather(1, which)], -1)
        tokens = torch.where(quiet[..., None], noise, shown).flatten(1)
        due = torch.where((slot >= pairs) & ~quiet, shown[..., 1], UNASKED)
        return Drawn(tokens, torch.stack([due, torch.full_like(due, UNASKED)], -1).flatten(1))
