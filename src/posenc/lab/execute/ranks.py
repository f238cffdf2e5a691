"""How many ranks torchrun started, and which one this process is; read from the environment alone."""

from __future__ import annotations

import os


def count() -> int:
    """How many ranks torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this process prints and writes."""
    return int(os.environ.get("RANK", "0")) == 0
