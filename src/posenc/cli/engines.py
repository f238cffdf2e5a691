"""``posenc engines``: whether a running server applies its model's positions."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from posenc.engines.endpoint import Endpoint
from posenc.engines.probe import probe
from posenc_cli.exit_codes import FAULT, OK, SUSPICION


def run(
    *,
    what: str,
    endpoint: str,
    original: int | None,
    length: int | None,
    checkpoint: str | None,
    model: str,
    api_key_env: str,
    requests: int,
    seconds: float,
    as_json: bool,
) -> int:
    """Probe a server and print what was found.

    Raises:
        ValueError: as `posenc.engines.probe.probe`, for a checkpoint that cannot be read, and for an environment
            variable that is not set.
        OSError: for a server that cannot be reached.
    """
    del what
    if checkpoint is not None:
        lengths = _lengths_of(checkpoint)
        original, length = original or lengths[0], length or lengths[1]
    if api_key_env and api_key_env not in os.environ:
        raise ValueError(f"--api-key-env: the environment variable {api_key_env} is not set")
    server = Endpoint(endpoint, model, os.environ.get(api_key_env, ""), requests, seconds)
    result = probe(server, original=original, length=length, progress=_report)
    sys.stdout.write((result.json() if as_json else str(result)) + "\n")
    if result.faults:
        return FAULT
    return OK if result.scaling == "applied" else SUSPICION


def _report(line: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"{line}\n")


def _lengths_of(checkpoint: str) -> tuple[int | None, int | None]:
    """The trained length and the longest length that a checkpoint's configuration tells."""
    from posenc.hf import read_rope
    from posenc.hf.config.rotation import text_rope
    from posenc.hf.explanation.report import longest_length, trained_length
    from posenc.input_files import naming

    with naming(checkpoint):
        read = read_rope(Path(checkpoint))
    ropes = [text_rope(rotation) for rotation in read.rotations.values() if rotation is not None]
    trained = [length for rope in ropes if (length := trained_length(read, rope)) is not None]
    longest = [length for rope in ropes if (length := longest_length(read, rope)) is not None]
    return max(trained, default=None), max(longest, default=None)
