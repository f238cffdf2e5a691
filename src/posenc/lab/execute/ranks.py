"""How many processes torchrun has started, and which of them this one is; read from the environment alone."""

from __future__ import annotations

import os


def count() -> int:
    """How many processes torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this process is the one that prints."""
    return int(os.environ.get("RANK", "0")) == 0
