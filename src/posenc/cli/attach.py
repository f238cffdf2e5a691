"""``posenc attach``: a checkpoint with other encodings in its layers in the place of RoPE."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from posenc.hf.attach.checkpoint import attach_to_folder


def run(*, path: str, encodings: str, out: str, layers: Sequence[int] | None, trust_remote_code: bool) -> int:
    """Write the folder, and print how to load it.

    Raises:
        ValueError: as `posenc.hf.attach.checkpoint.attach_to_folder`.
    """
    attach_to_folder(Path(path), encodings, Path(out), layers, trust_remote_code=trust_remote_code)
    sys.stdout.write(f"written to {out}; load it with posenc.hf.attach.load\n")
    return 0
