"""A log of measurements, one JSON object a line: what is in it is not measured again.

Lines are appended and flushed one by one, so that a process that is killed loses at most the measurement that it was
making; a line that was cut off is removed before the next one is added.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from pathlib import Path
from typing import Any, Self

import filelock  # which torch brings
from torch import nn


class MeasurementLog:
    """Measurements by a key that contains everything that decides them.

    Args:
        path: of the file, which need not exist; None: they are kept in memory only.
        lock: whether this process alone may write, as long as it lives; readers are not kept out.

    Raises:
        ValueError: for a file that holds something else, naming the line; for a file that another process has locked.
    """

    def __init__(self, path: Path | None = None, *, lock: bool = False) -> None:
        self.path = path
        self.known: dict[str, Any] = {}
        self._complete: int | None = None  # bytes before a line that was cut off
        self._lock = lock_of(path) if path is not None and lock else None
        try:
            if self._lock is not None:
                self._lock.acquire(blocking=False)
        except filelock.Timeout:
            raise ValueError(
                f"{path}: another process is writing there: wait, or give each a part or folder of its own"
            ) from None
        if path is None or not path.exists():
            return
        content = path.read_bytes()
        complete = content[: content.rfind(b"\n") + 1]
        for number, line in enumerate(complete.splitlines(), start=1):
            try:
                record = json.loads(line)
                self.known[record["key"]] = record["value"]
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{path}: line {number} is not a measurement: remove the line or the file") from error
        if complete != content:  # killed within a line, or another process is writing it
            self._complete = len(complete)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._lock is not None:
            self._lock.release()

    def get(self, key: str) -> Any:
        """The value of a key; None where it was not measured."""
        return self.known.get(key)

    def put(self, key: str, value: Any) -> None:
        """Add the value of a key, flushed to the disk."""
        line = json.dumps({"key": key, "value": value}, allow_nan=False).encode() + b"\n"
        if self.path is not None:
            try:
                if self._complete is not None:
                    os.truncate(self.path, self._complete)
                    self._complete = None
                with self.path.open("ab") as file:
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:  # a full disk: the system's error of a write names no file
                saved = f"{len(self.known)} measurements before this one are saved there"
                raise OSError(error.errno, f"{error.strerror or error}; {saved}", str(self.path)) from error
        self.known[key] = value


def lock_of(path: Path) -> filelock.BaseFileLock:
    """The lock of a file, which the end of a process in any way frees."""
    return filelock.FileLock(path.with_name(f".{path.name}.lock"))


def fingerprint(model: nn.Module) -> str:
    """A hash of a model's weights: names, shapes and 64 numbers of each parameter and saved buffer.

    Quantised layers have their weights in buffers. Of weights that accelerate has offloaded there is the shape alone.
    """
    digest = hashlib.sha256()
    parameters = dict(model.named_parameters())
    buffers = {name: value for name, value in model.named_buffers() if name not in _transient_buffers(model)}
    for name, weight in {**parameters, **buffers}.items():
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        if not weight.is_meta:
            sample = weight.detach().flatten()[:: max(1, weight.numel() // 64)].float().cpu()
            digest.update(sample.numpy().tobytes())
    return digest.hexdigest()[:16]


def _transient_buffers(model: nn.Module) -> set[str]:
    """The names of buffers that a model does not save, such as tables of a rotation."""
    return {
        f"{prefix}.{name}".lstrip(".")
        for prefix, module in model.named_modules()
        for name in module._non_persistent_buffers_set
    }


def processor() -> str:
    """The processor's model, as the system names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
