"""Under which conditions costs are measured: the numbers of the model and of the measuring, checked."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from posenc.lab.tasks.numbers import check_lengths
from posenc.lab.text.profiles import Settings

LENGTHS = {"quick": (64, 256, 1024), "standard": (64, 256, 1024, 4096), "full": (512, 2048, 8192, 32768)}  # tokens
MOST_SECONDS = 24 * 3600  # of one cell
SECONDS = {"quick": 0.15, "standard": 1.0, "full": 3.0}  # for the timed rounds of one cell


@dataclass(frozen=True)
class Conditions:
    """The numbers that decide a cost. Two costs are comparable if and only if these and the machine are equal."""

    dim: int
    heads: int
    layers: int
    hidden: int  # width of the feed-forward layers
    train_length: int  # tokens that the whole model reads at a time
    batch_size: int  # of the whole model; a layer alone gets a batch of 1
    precision: str  # "float32" or "bfloat16"
    device: str
    threads: int
    lengths: tuple[int, ...]  # tokens that a layer alone reads, growing
    seconds: float  # for the timed rounds of one cell

    def shown(self) -> dict[str, str]:
        """Every number, in words."""
        return {
            "dim": str(self.dim),
            "heads": str(self.heads),
            "layers": str(self.layers),
            "training length": str(self.train_length),
            "batch size of the model": str(self.batch_size),
            "precision": self.precision,
            "device": self.device,
            "threads": str(self.threads),
            "lengths": ", ".join(map(str, self.lengths)),
            "seconds a cell": f"{self.seconds:g}",
        }


def conditions_of(settings: Settings, lengths: Sequence[int], seconds: float) -> Conditions:
    """The conditions that settings of a comparison of texts make, with device and precision decided.

    Raises:
        ValueError: for lengths that do not grow, no time, or a device or precision left open.
    """
    s = settings
    if not lengths or lengths[0] < 1 or any(b <= a for a, b in itertools.pairwise(lengths)):
        raise ValueError(f"--lengths {','.join(map(str, lengths))}: tokens from 1 on are needed, and they must grow")
    check_lengths("lengths", lengths, 1)
    if not 0 < seconds <= MOST_SECONDS:
        raise ValueError(f"--seconds {seconds}: a positive number up to {MOST_SECONDS:,} is needed")
    for name, value in (("device", s.device), ("precision", s.precision)):
        if value == "auto":
            raise ValueError(f"{name} is auto: costs are measured under one that is decided before")
    return Conditions(
        s.dim, s.heads, s.layers, s.hidden, s.train_length, s.batch_size, s.precision, s.device, s.threads,
        tuple(lengths), seconds,
    )  # fmt: skip


def parse_lengths(text: str) -> tuple[int, ...]:
    """``"512,2048"`` as tokens."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--lengths {text!r}: tokens separated by commas are needed, like 512,2048") from None
