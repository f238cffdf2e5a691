"""What a training leaves in its job's folder: the state between two steps, and the losses of its first steps.

Checkpoints are written atomically and read without running any code in them (`torch.load` with ``weights_only``).

A run's identity does not depend on source text, so that a study of months survives a changed docstring, a moved file
or a refactoring. Recomputing the first losses is the guard instead: see `posenc.lab.run.reproduce`.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from posenc.lab.config import Config
from posenc.lab.files import write_atomically, write_json
from posenc.lab.run.machine import processor
from posenc.lab.schema import Count, Line, Number, read_record

FORMAT = "posenc-lab-checkpoint/2"


@dataclass
class Checkpoint:
    """Everything the next step depends on; batches and random numbers are functions of the step."""

    identity: str  # of the job
    step: int  # steps done
    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    norms: Tensor  # (step,) gradient norms before clipping
    losses: Tensor  # (step,) training losses, nats
    probes: Tensor  # (probes, 2) step, and the deciding metric at the trained length after it
    seconds: float  # spent in steps
    peak_memory: int  # bytes


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Save tensors and plain data, so that `read_checkpoint` can refuse anything else."""
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **vars(checkpoint)}, buffer)
    write_atomically(path, buffer.getvalue())


def read_checkpoint(path: Path, identity: str) -> Checkpoint | None:
    """The checkpoint of a job, None if there is none yet; a truncated or foreign file is a ValueError naming it."""
    if not path.exists():
        return None
    if not path.is_file():
        raise ValueError(f"{path} is no plain file; {_LEFT}")
    try:
        record = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, pickle.UnpicklingError) as error:
        raise ValueError(f"{path} is truncated or no checkpoint; {_LEFT}") from error
    if not isinstance(record, dict) or record.pop("format", None) != FORMAT:
        raise ValueError(f"{path} was not written by this version of posenc compare; {_LEFT}")
    if set(record) != set(Checkpoint.__dataclass_fields__) or type(record["step"]) is not int:
        raise ValueError(f"{path} lacks parts of a checkpoint; {_LEFT}")
    if record["identity"] != identity:
        raise ValueError(f"{path} is the checkpoint of another configuration or corpus; {_LEFT}")
    return Checkpoint(**record)


_LEFT = "it was left as it is: move it away to train this job from the start"


FILE = "first_losses.json"
COUNT = 10


@dataclass(frozen=True)
class FirstLosses:
    """Losses of the first steps of one job; of a given model, which is not trained, those of its first texts."""

    losses: tuple[Number, ...]  # nats
    seconds: Number  # spent on them
    processor: Line
    device: Line
    threads: Count


def write_first_losses(folder: Path, config: Config, losses: Sequence[float], seconds: float) -> None:
    """Write the first losses of a job and the machine that computed them."""
    machine = {"processor": processor(), "device": config.machine.device, "threads": config.machine.threads}
    write_json(folder / FILE, {"losses": list(losses), "seconds": seconds, **machine})


def read_first_losses(folder: Path) -> FirstLosses | None:
    """The first losses of a job; None where it has not come as far."""
    path = folder / FILE
    return read_record(path, FirstLosses) if path.exists() else None
