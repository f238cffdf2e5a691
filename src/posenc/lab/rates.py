"""What tuning decides about a training: two factors, of the common learning rate and of the encoding's own.

    lr(model) = lr of the configuration · lr          lr(encoding's parameters) = lr(model) · own

Factors, not rates, so that what was found at one size serves at another. ``own`` is its class's
``lr_multiplier`` unless it was tuned. Tuned factors lie in tuned.json of a run's folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, NotRequired

from typing_extensions import TypedDict

from posenc.lab.config import Config
from posenc.lab.files import write_json
from posenc.lab.model import LabModel
from posenc.lab.schema import Factors, Facts, Line, Number, Spec, read_record

FORMAT = "posenc-lab-tuned/1"
FILE = "tuned.json"
Tuned = dict[str, float]  # "lr", "own" or both; what is absent is as without tuning


class TunedRecord(TypedDict):
    """What tuned.json holds; whoever writes it by hand may leave out how the factors were found."""

    format: Literal["posenc-lab-tuned/1"]
    encodings: dict[Spec, Factors]
    losses: NotRequired[dict[Spec, dict[Line, Number]]]
    numbers: NotRequired[dict[Line, Any]]
    data: NotRequired[Facts]


def apply_to_config(config: Config, tuned: Mapping[str, float]) -> Config:
    """The numbers with the model's own learning rate."""
    return config.replaced({"lr": config.training.lr * tuned["lr"]}) if "lr" in tuned else config


def apply_to_model(model: LabModel, tuned: Mapping[str, float]) -> None:
    """Give the encodings' parameters their own rate."""
    if "own" in tuned:
        model.lr_multipliers = dict.fromkeys(model.lr_multipliers, tuned["own"])


def in_words(tuned: Mapping[str, float]) -> str:
    """``learning rate × 2, own parameters × 10``."""
    parts = {"lr": "learning rate", "own": "own parameters"}
    return ", ".join(f"{words} × {tuned[key]:g}" for key, words in parts.items() if key in tuned)


def read_tuned(folder: Path) -> dict[str, Tuned]:
    """Factors by spec from a folder's tuned.json; empty if there is none."""
    path = folder / FILE
    if not path.exists():
        return {}
    encodings = read_record(path, TunedRecord)["encodings"]
    return {spec: {str(name): factor for name, factor in factors.items()} for spec, factors in encodings.items()}


class Before(NamedTuple):
    """What a folder's tuned.json says: factors, and the losses that they rest on, by spec."""

    encodings: dict[str, Tuned]
    losses: dict[str, object]


def read_found(folder: Path, numbers: Mapping[str, object], data: Mapping[str, object]) -> Before:
    """What was tuned there before; a ValueError where that was for other numbers or data, so that none is lost."""
    path = folder / FILE
    if not path.exists():
        return Before({}, {})
    record = read_record(path, TunedRecord)
    asked = json.loads(json.dumps([dict(numbers), dict(data)]))
    if [record.get("numbers"), record.get("data")] != asked:
        raise ValueError(f"{path} is of other numbers or data: move it away, or choose another --out")
    return Before(read_tuned(folder), dict(record.get("losses", {})))


def write_tuned(folder: Path, tuned: Mapping[str, Tuned], facts: Mapping[str, object]) -> None:
    """Write tuned.json; ``facts`` say how it was found."""
    write_json(folder / FILE, {"format": FORMAT, "encodings": dict(tuned), **facts})
