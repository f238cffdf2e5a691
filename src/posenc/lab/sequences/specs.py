"""Which encodings a generated task trains, and up to which length each is defined."""

from __future__ import annotations

from collections.abc import Iterable

from posenc.lab.sequences.puzzle import Puzzle
from posenc.lab.sequences.settings import SequenceSettings
from posenc.lab.specs import check_specs as check_text_specs
from posenc.lab.specs import entry_of, names


def check_specs(specs: Iterable[str], puzzle: Puzzle[SequenceSettings], settings: SequenceSettings) -> list[str]:
    """As for text, but where there are numbers, encodings of ids are welcome."""
    return check_text_specs(specs, settings.shape, ids=puzzle.ids)


def defined(spec: str, settings: SequenceSettings, length: int, largest_id: int = 0) -> bool:
    """Whether no table of a spec ends before ``length`` tokens with ids up to ``largest_id``."""
    ends = [entry_of(name) for name in names(spec) if entry_of(name).table_bound]
    shape = settings.shape
    return all(largest_id < shape.ids if entry.own_positions else length <= shape.train_length for entry in ends)
