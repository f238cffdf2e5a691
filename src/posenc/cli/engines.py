"""``posenc engines``: what was measured of engines for the rotation of a config."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path

from posenc.engines.checkpoint import check_checkpoint
from posenc.input_files import naming
from posenc_cli.exit_codes import FAULT, OK, SUSPICION

BENCH = "benchmarks/engines in posenc's repository runs an engine's own code on a config (python -m benchmarks.engines)"


def run(options: Namespace) -> int:
    """Print the rows of the table for a config.

    Raises:
        ValueError: as `posenc.engines.checkpoint.check_checkpoint`, and without a checkpoint.
    """
    if options.checkpoint is None:
        raise ValueError(f"check needs --checkpoint PATH; {BENCH}")
    with naming(options.checkpoint):
        lines = check_checkpoint(Path(options.checkpoint), options.engines)
    if options.as_json:
        sys.stdout.write(json.dumps([line._asdict() for line in lines], indent=1) + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stderr.write(f"{BENCH}\n")
    states = {line.state for line in lines} - {"not run"}
    if states & {"off", "ignored"}:
        return FAULT
    return OK if states == {"right"} else SUSPICION
