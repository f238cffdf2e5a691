"""``posenc attach``: a checkpoint with other encodings in its layers in the place of its own positions."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from posenc.hf.attach.checkpoint import attach_to_folder


def run(options: Namespace) -> int:
    """Write the folder, and print how to load it and, if it was measured, what it costs.

    Raises:
        ValueError: as `posenc.hf.attach.checkpoint.attach_to_folder`.
    """
    where = (Path(options.path), options.encodings, Path(options.out), options.layers)
    if options.measure:
        from posenc.cli.extend import print_progress
        from posenc.hf.evaluate.attachment import attach_and_measure

        cost = attach_and_measure(
            *where, text=options.text, windows=options.windows, trust_remote_code=options.trust_remote_code,
            progress=print_progress,
        )  # fmt: skip
        sys.stdout.write(f"{cost}\n")
    else:
        attach_to_folder(*where, trust_remote_code=options.trust_remote_code)
    sys.stdout.write(f"written to {options.out}; load it with posenc.hf.attach.load\n")
    return 0
