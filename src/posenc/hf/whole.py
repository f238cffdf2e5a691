"""Files and folders that are there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def whole(out: Path, make: Callable[[Path], object]) -> None:
    """Make something beside ``out``, and let it take that place when it is whole.

    Raises:
        ValueError: where something is there by then.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as name:
        temporary = Path(name) / out.name
        make(temporary)
        if os.path.lexists(out):
            raise ValueError(f"out: {out} exists; nothing is overwritten")
        temporary.rename(out)
