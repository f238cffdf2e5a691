"""tuned.json: the learning rates that `posenc tune` chose, as factors, which `posenc compare` reads in its folder.

    lr(model) = configured lr · lr factor          lr(encoding's parameters) = lr(model) · own factor

``own`` is the class's ``lr_multiplier`` unless it was tuned. Factors found at one size serve at another.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from posenc.lab.files import Factors, Facts, Spec, read_record, write_json

FORMAT, FILE, TRIALS = "posenc-lab-tuned/1", "tuned.json", "trials.csv"
Tuned = Factors  # "lr", "own" or both; what is absent is as without tuning


class TunedRecord(TypedDict):
    """What tuned.json holds; whoever writes it by hand may leave out how the factors were found."""

    format: Literal["posenc-lab-tuned/1"]
    encodings: dict[Spec, Factors]
    numbers: NotRequired[dict[str, Any]]
    data: NotRequired[Facts]
    procedures: NotRequired[Facts]  # by spec, also of those whose default rates were best


def read_tuned(folder: Path) -> TunedRecord:
    """A folder's tuned.json; without entries if there is none."""
    path = folder / FILE
    return read_record(path, TunedRecord) if path.exists() else {"format": "posenc-lab-tuned/1", "encodings": {}}


def factors_of(folder: Path) -> dict[str, Tuned]:
    """The factors by spec."""
    return read_tuned(folder)["encodings"]


def write_tuned(folder: Path, tuned: Mapping[str, Tuned], facts: Mapping[str, object]) -> None:
    """Write tuned.json; ``facts`` say how it was found."""
    write_json(folder / FILE, {"format": FORMAT, "encodings": dict(tuned), **facts})


def describe_factors(tuned: Mapping[str, float]) -> str:
    """``learning rate × 2, own parameters × 10``."""
    parts = {"lr": "learning rate", "own": "own parameters"}
    return ", ".join(f"{words} × {tuned[key]:g}" for key, words in parts.items() if key in tuned)
