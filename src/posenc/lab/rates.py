"""What tuning decides about a training: two factors, of the common learning rate and of the encoding's own.

    lr(model) = lr of the configuration · lr          lr(encoding's parameters) = lr(model) · own

Factors, not rates, so that what was found at one size serves at another. ``own`` is its class's
``lr_multiplier`` unless it was tuned. Tuned factors lie in tuned.json of a run's folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from posenc.lab.config import Config
from posenc.lab.files import read_json, write_json
from posenc.lab.foreign import check_factors, check_spec
from posenc.lab.tasks.task import LabModel

FORMAT = "posenc-lab-tuned/1"
FILE = "tuned.json"
Tuned = dict[str, float]  # "lr", "own" or both; what is absent is as without tuning


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
    record = read_json(path, ("format", "encodings"))
    found = record["encodings"]
    if record["format"] != FORMAT or not isinstance(found, dict):
        raise ValueError(
            f'{path}: factors "lr" and "own" for each encoding, all positive, are needed; posenc tune writes it'
        )
    return {check_spec(spec, path): check_factors(tuned, path) for spec, tuned in found.items()}


class Before(NamedTuple):
    """What a folder's tuned.json says: factors, and the losses that they rest on, by spec."""

    encodings: dict[str, Tuned]
    losses: dict[str, object]


def read_found(folder: Path, numbers: Mapping[str, object], data: Mapping[str, object]) -> Before:
    """What was tuned there before; a ValueError where that was for other numbers or data, so that none is lost."""
    path = folder / FILE
    if not path.exists():
        return Before({}, {})
    record = read_json(path, ("format", "encodings", "losses", "numbers", "data"))
    asked = json.loads(json.dumps([dict(numbers), dict(data)]))
    if [record["numbers"], record["data"]] != asked or not isinstance(record["losses"], dict):
        raise ValueError(f"{path} is of other numbers or data: move it away, or choose another --out")
    return Before(read_tuned(folder), record["losses"])


def write_tuned(folder: Path, tuned: Mapping[str, Tuned], facts: Mapping[str, object]) -> None:
    """Write tuned.json; ``facts`` say how it was found."""
    write_json(folder / FILE, {"format": FORMAT, "encodings": dict(tuned), **facts})
