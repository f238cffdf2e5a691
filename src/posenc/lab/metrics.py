"""metrics.jsonl: the course of a training, one row an interval."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TextIO

from posenc.lab.checkpoint import Checkpoint
from posenc.lab.files import write_atomically
from posenc.lab.optimizer import lr_at
from posenc.lab.profiles import Settings

ROWS = 100  # of a whole training, about


class Metrics:
    """metrics.jsonl: one row an interval. Rows after the checkpoint that a training continues from are dropped."""

    def __init__(self, path: Path, step: int, settings: Settings) -> None:
        self.settings, self.interval, self.start = settings, max(1, settings.steps // ROWS), step
        rows = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        kept = [row for row in rows if row.endswith(b"\n") and json.loads(row)["step"] <= step]
        write_atomically(path, b"".join(kept))
        self.file: TextIO = path.open("a")

    def add(self, state: Checkpoint, rate: float) -> None:
        """Write a row if the interval is over; ``rate`` in bytes a second."""
        if state.step % self.interval and state.step != self.settings.steps:
            return
        recent = slice(-self.interval, None)
        row = {
            "step": state.step,
            "loss_bits": state.losses[recent].mean().item() / math.log(2),
            "grad_norm": state.norms[recent].mean().item(),
            "lr": lr_at(state.step - 1, self.settings),
            "bytes_per_second": rate,
        }
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()

    def close(self) -> None:
        """Nothing more will come."""
        self.file.close()
