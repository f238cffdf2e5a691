"""Numbers that other people's code produced; `README.md` next to this file says which code, and how close to come."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

HERE = Path(__file__).parent


def names(pattern: str) -> list[str]:
    """The files that match, without their ending; a pattern that none matches would be a test of nothing."""
    found = sorted(str(path.relative_to(HERE).with_suffix("")) for path in HERE.glob(f"{pattern}.npz"))
    if not found:
        raise ValueError(f"pattern must match a file of {HERE.name}, got {pattern!r}")
    return found


def load(name: str, dtype: torch.dtype | None = torch.float64) -> dict[str, Tensor]:
    """The arrays of one file; those of floating point in ``dtype``, or as they were stored."""
    with np.load(HERE / f"{name}.npz") as arrays:
        tensors = {key: torch.from_numpy(arrays[key]) for key in arrays if arrays[key].dtype.kind != "U"}
    return {key: t.to(dtype or t.dtype) if t.is_floating_point() else t for key, t in tensors.items()}


def vision(name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The arrays of one file of ``vision/`` as they were stored, and what it says of itself."""
    name = f"vision/{name.removeprefix('vision/')}"
    return load(name, None), config(name)


def config(name: str) -> dict[str, Any]:
    """The configuration that the file was made with."""
    manifest = HERE / f"{name.rpartition('/')[0]}/manifest.json"
    if manifest.exists():
        return dict(json.loads(manifest.read_text())[name.rpartition("/")[2]])
    with np.load(HERE / f"{name}.npz") as arrays:
        parsed: dict[str, Any] = json.loads(str(arrays["config_json" if "config_json" in arrays else "meta"]))
    return parsed


def configs(name: str) -> list[dict[str, Any]]:
    """The lines of a file of configurations that other people published."""
    return [json.loads(line) for line in (HERE / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
