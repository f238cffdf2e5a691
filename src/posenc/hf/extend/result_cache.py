"""Measured numbers in a file of JSON lines, so that a run that was killed measures nothing twice."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import torch
from torch import nn


class ResultCache:
    """Numbers by a key that says all that decides them.

    Args:
        path: of the file; None: nothing is kept.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.known: dict[str, list[float]] = {}
        if path is None or not path.exists():
            return
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        for line in whole.splitlines():
            record = json.loads(line)
            self.known[record["key"]] = record["numbers"]
        if whole != content:  # killed in the midst of a line
            with path.open("r+b") as file:
                file.truncate(len(whole))

    def get(self, key: str) -> list[float] | None:
        """What is known."""
        return self.known.get(key)

    def put(self, key: str, numbers: list[float]) -> None:
        """Keep numbers."""
        self.known[key] = numbers
        if self.path is not None:
            with self.path.open("ab") as file:
                file.write(json.dumps({"key": key, "numbers": numbers}).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())


def fingerprint(model: nn.Module) -> str:
    """What tells one model's weights from another's: names, shapes and some numbers of each parameter."""
    digest = hashlib.sha256()
    for name, weight in model.named_parameters():
        some = weight.detach().flatten()[:: max(1, weight.numel() // 64)].float().cpu()
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode() + some.numpy().tobytes())
    return digest.hexdigest()[:16]


def write_atomically(path: Path, content: str) -> None:
    """Either the old content or the new one, whenever the process ends."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def keep(state: dict[str, object], path: Path) -> None:
    """Tensors and plain data, as `write_atomically`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
