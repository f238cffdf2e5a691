"""What was measured, as plain data: a cell for each encoding, pass and length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from posenc.lab.cost.conditions import Conditions

BASE = "nope"  # every cell is compared with the same cell of a model without encodings
LAYER_PASSES = {"forward": "forward", "train": "forward + backward", "decode": "decoding step"}
MODEL_PASSES = {"model-forward": "whole model, forward", "model": "whole model, forward + backward"}
PASSES = {**LAYER_PASSES, **MODEL_PASSES}  # in words


@dataclass(frozen=True)
class Cost:
    """One cell. What could not be measured is None, and ``why`` says so.

    Attributes:
        encoding: as the lab names it.
        work: a key of `PASSES`.
        length: tokens read; for "decode" tokens in the cache.
        milliseconds: of one call, median over the rounds.
        relative: the same over what `BASE` took in the same round, median over the rounds.
        low, high: quartiles of that ratio.
        memory: bytes of tensors that one call holds at most at the same time, beyond its inputs and parameters.
        path: of attention, as `posenc.attention.explain` names it.
        rounds: how many were timed.
        why: why a number is missing.
    """

    encoding: str
    work: str
    length: int
    milliseconds: float | None
    relative: float | None
    low: float | None
    high: float | None
    memory: int | None
    path: str
    rounds: int
    why: str | None = None


class Parameters(NamedTuple):
    """How many parameters a whole model has."""

    total: int
    own: int  # of the encodings


@dataclass(frozen=True)
class Costs:
    """All cells of one measuring, and what is needed to repeat it."""

    conditions: Conditions
    parameters: dict[str, Parameters]  # of each encoding's whole model
    cells: tuple[Cost, ...]
    versions: dict[str, str]
    machine: dict[str, str]
    command: str

    @property
    def encodings(self) -> tuple[str, ...]:
        """In the order of measuring; the first is `BASE`."""
        return tuple(self.parameters)

    def cell(self, encoding: str, work: str, length: int) -> Cost:
        """One cell; a KeyError where nothing of the kind was asked for."""
        for cell in self.cells:
            if (cell.encoding, cell.work, cell.length) == (encoding, work, length):
                return cell
        raise KeyError((encoding, work, length))

    def tokens_per_second(self, encoding: str) -> float | None:
        """Training throughput of the whole model: forward and backward, without the optimizer's step."""
        c = self.conditions
        took = self.cell(encoding, "model", c.train_length).milliseconds
        return None if took is None else 1000 * c.batch_size * c.train_length / took
