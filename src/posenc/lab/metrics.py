"""metrics.jsonl: the course of a training, one row an interval."""

from __future__ import annotations

import json
from pathlib import Path

from posenc.lab.checkpoint import Checkpoint
from posenc.lab.files import MOST_RESULTS, naming, parse_json, read_bytes, write_atomically
from posenc.lab.optimizer import lr_at
from posenc.lab.tasks import task_of
from posenc.lab.tasks.task import Numbers

ROWS = 100  # of a whole training, about


class Metrics:
    """metrics.jsonl: one row an interval. Rows after the checkpoint that a training continues from are dropped."""

    def __init__(self, path: Path, step: int, settings: Numbers) -> None:
        self.settings, self.interval, self.task = settings, max(1, settings.steps // ROWS), task_of(settings)
        rows = read_bytes(path, MOST_RESULTS).splitlines(keepends=True) if path.exists() else []
        kept = [row for row in rows if row.endswith(b"\n") and parse_json(path, row)["step"] <= step]
        write_atomically(path, b"".join(kept))
        self.path, self.file = path, path.open("a", encoding="utf-8")

    def add(self, state: Checkpoint, rate: float) -> None:
        """Write a row if the interval is over; ``rate`` in the task's unit."""
        if state.step % self.interval and state.step != self.settings.steps:
            return
        recent = slice(-self.interval, None)
        row = {
            "step": state.step,
            self.task.loss_name: state.losses[recent].mean().item() / self.task.loss_unit,
            "grad_norm": state.norms[recent].mean().item(),
            "lr": lr_at(state.step - 1, self.settings),
            self.task.rate_name: rate,
        }
        with naming(self.path):
            self.file.write(json.dumps(row) + "\n")
            self.file.flush()

    def close(self) -> None:
        """Nothing more will come."""
        self.file.close()
