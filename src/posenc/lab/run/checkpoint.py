"""What a training leaves in its job's folder between two steps.

Checkpoints are written atomically and read without running any code in them (`torch.load` with ``weights_only``).
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from posenc.lab.files import write_atomically

FORMAT = "posenc-lab-checkpoint/2"
_LEFT = "it was left as it is: move it away to train this job from the start"


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
