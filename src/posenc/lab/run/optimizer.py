"""AdamW with a parameter group for encodings, the learning-rate schedule, and the factors that tuning chooses.

Adam moves a parameter by about the learning rate per step, whatever its gradient. A bias that must reach several units
would never get there at a rate that suits weights of 0.02, so an encoding's parameters have their own rate:

    lr(model) = configured lr · lr factor          lr(encoding's parameters) = lr(model) · own factor

``own`` is the class's ``lr_multiplier`` unless it was tuned. Tuned values are factors, not rates, so that those found
at one size serve at another; they are stored in tuned.json of the run folder. The schedule is warm-up, constant,
linear decay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, NotRequired

import torch
from torch import nn
from typing_extensions import TypedDict

from posenc.lab.config import Config, Training
from posenc.lab.files import write_json
from posenc.lab.models.decoder import LabModel
from posenc.lab.schema import Factors, Facts, Line, Number, Spec, read_record

BETAS = (0.9, 0.95)


def make_optimizer(model: LabModel, training: Training) -> torch.optim.AdamW:
    """Three kinds of groups: matrices (decayed), vectors, and the encodings' parameters by their rate."""
    multipliers = model.lr_multipliers
    shared = [parameter for parameter in model.parameters() if parameter not in multipliers]
    groups = [
        _group("matrices", [p for p in shared if p.dim() >= 2], training.weight_decay, 1.0),
        _group("vectors", [p for p in shared if p.dim() < 2], 0.0, 1.0),
    ]
    for multiplier in sorted(set(multipliers.values())):
        groups.append(_group("encoding", [p for p, m in multipliers.items() if m == multiplier], 0.0, multiplier))
    fused = next(model.parameters()).device.type in ("cpu", "cuda")
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=training.lr, betas=BETAS, fused=fused)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Give every group its share of the common learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["multiplier"]


def lr_at(step: int, training: Training) -> float:
    """The common learning rate of step 0 ≤ ``step`` < ``training.steps``."""
    warmup = min(training.warmup, training.steps // 5)
    decay = round(training.decay * training.steps)
    rise = (step + 1) / (warmup + 1) if step < warmup else 1.0
    fall = (training.steps - step) / (decay + 1) if step > training.steps - decay - 1 else 1.0
    return training.lr * min(rise, fall)


def _group(name: str, parameters: list[nn.Parameter], weight_decay: float, multiplier: float) -> dict[str, object]:
    return {"name": name, "params": parameters, "weight_decay": weight_decay, "multiplier": multiplier}


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
    procedures: NotRequired[dict[Spec, Line]]


def with_tuned_lr(config: Config, tuned: Mapping[str, float]) -> Config:
    """The numbers with the model's own learning rate."""
    return config.replaced({"lr": config.training.lr * tuned["lr"]}) if "lr" in tuned else config


def apply_to_model(model: LabModel, tuned: Mapping[str, float]) -> None:
    """Give the encodings' parameters their own rate."""
    if "own" in tuned:
        model.lr_multipliers = dict.fromkeys(model.lr_multipliers, tuned["own"])


def describe_factors(tuned: Mapping[str, float]) -> str:
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


def read_procedures(folder: Path) -> dict[str, str]:
    """How each spec of a folder's tuned.json was tuned, in words; also those whose default rates were best."""
    path = folder / FILE
    return dict(read_record(path, TunedRecord).get("procedures", {})) if path.exists() else {}


class EarlierTuning(NamedTuple):
    """What a folder's tuned.json says, by spec: factors, the losses that they rest on, and how they were found."""

    encodings: dict[str, Tuned]
    losses: dict[str, object]
    procedures: dict[str, str]


def read_earlier_tuning(folder: Path, numbers: Mapping[str, object], data: Mapping[str, object]) -> EarlierTuning:
    """What was tuned there before; a ValueError where that was for other numbers or data, so that none is lost."""
    path = folder / FILE
    if not path.exists():
        return EarlierTuning({}, {}, {})
    record = read_record(path, TunedRecord)
    requested = json.loads(json.dumps([dict(numbers), dict(data)]))
    if [record.get("numbers"), record.get("data")] != requested:
        raise ValueError(f"{path} is of other numbers or data: move it away, or choose another --out")
    return EarlierTuning(read_tuned(folder), dict(record.get("losses", {})), read_procedures(folder))


def write_tuned(folder: Path, tuned: Mapping[str, Tuned], facts: Mapping[str, object]) -> None:
    """Write tuned.json; ``facts`` say how it was found."""
    write_json(folder / FILE, {"format": FORMAT, "encodings": dict(tuned), **facts})
