"""``posenc attach``: a checkpoint with other encodings in its layers in the place of its own positions."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from posenc.hf.attach.checkpoint import attach_to_folder


def run(
    *, path: str, encodings: str, out: str, layers: Sequence[int] | None, measure: bool, text: str | None,
    windows: int, trust_remote_code: bool,
) -> int:  # fmt: skip
    """Write the folder, and print how to load it and, if it was measured, what it costs.

    Raises:
        ValueError: as `posenc.hf.attach.checkpoint.attach_to_folder`.
    """
    if measure:
        from posenc.cli.extend import print_progress
        from posenc.hf.evaluate.attachment import attach_and_measure

        cost = attach_and_measure(
            Path(path), encodings, Path(out), layers, text=text, windows=windows, trust_remote_code=trust_remote_code,
            progress=print_progress,
        )  # fmt: skip
        sys.stdout.write(f"{cost}\n")
    else:
        attach_to_folder(Path(path), encodings, Path(out), layers, trust_remote_code=trust_remote_code)
    sys.stdout.write(f"written to {out}; load it with posenc.hf.attach.load\n")
    return 0
