"""What a report states beside its numbers: settings, data, versions, machine, command."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from posenc.lab.tasks.task import Facts, Numbers

S_co = TypeVar("S_co", bound=Numbers, covariant=True)
F_co = TypeVar("F_co", bound=Facts, covariant=True)


@dataclass(frozen=True)
class RunRecord(Generic[S_co, F_co]):
    """Enough to repeat a run and to know whether the repetition may differ."""

    settings: S_co
    facts: F_co
    versions: dict[str, str]
    machine: dict[str, str]
    command: str
    rates: dict[str, str] = field(default_factory=dict)  # learning rates that were tuned, by spec, in words
