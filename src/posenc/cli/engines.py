"""``posenc engines``: what was measured of engines for a config, and whether a running server applies its scaling."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from posenc.engines.endpoint import Endpoint
from posenc.engines.probe import probe
from posenc.input_files import naming
from posenc_cli.exit_codes import FAULT, OK, SUSPICION

BENCH = "benchmarks/engines in posenc's repository runs an engine's own code on a config (python -m benchmarks.engines)"


def run(
    *,
    what: str,
    checkpoint: str | None,
    as_json: bool,
    engines: list[str],
    endpoint: str | None,
    original: int | None,
    length: int | None,
    model: str,
    api_key_env: str,
    requests: int,
    seconds: float,
) -> int:
    """Print what was measured of engines, or probe a server.

    Raises:
        ValueError: as `posenc.engines.probe.probe` and `posenc.engines.checkpoint.check_checkpoint`, for a checkpoint
            that cannot be read, and for an environment variable that is not set.
        OSError: for a server that cannot be reached.
    """
    if what == "check":
        if endpoint is not None:
            raise ValueError("--endpoint is an option of probe: posenc engines probe --endpoint URL")
        if checkpoint is None:
            raise ValueError(f"check needs --checkpoint PATH; {BENCH}")
        return _check(checkpoint, engines, as_json)
    if endpoint is None:
        raise ValueError("probe needs --endpoint URL, the root of a server with /v1/completions")
    if checkpoint is not None:
        trained, longest = _lengths_of(checkpoint)
        original, length = original or trained, length or longest
    if api_key_env and api_key_env not in os.environ:
        raise ValueError(f"--api-key-env: the environment variable {api_key_env} is not set")
    server = Endpoint(endpoint, model, os.environ.get(api_key_env, ""), requests, seconds)
    result = probe(server, original=original, length=length, progress=_report)
    sys.stdout.write((result.json() if as_json else str(result)) + "\n")
    if result.faults:
        return FAULT
    return OK if result.scaling == "applied" else SUSPICION


def _check(checkpoint: str, engines: list[str], as_json: bool) -> int:
    from posenc.engines.checkpoint import check_checkpoint

    with naming(checkpoint):
        lines = check_checkpoint(Path(checkpoint), engines)
    if as_json:
        sys.stdout.write(json.dumps([line._asdict() for line in lines], indent=1) + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stderr.write(f"{BENCH}\n")
    states = {line.state for line in lines} - {"not run"}
    if states & {"off", "ignored"}:
        return FAULT
    return OK if states == {"right"} else SUSPICION


def _report(line: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"{line}\n")


def _lengths_of(checkpoint: str) -> tuple[int | None, int | None]:
    """The trained length and the longest length that a checkpoint's configuration tells."""
    from posenc.hf import read_rope
    from posenc.hf.config.rotation import text_rope
    from posenc.hf.explanation.report import longest_length, trained_length

    with naming(checkpoint):
        read = read_rope(Path(checkpoint))
    ropes = [text_rope(rotation) for rotation in read.rotations.values() if rotation is not None]
    trained = [length for rope in ropes if (length := trained_length(read, rope)) is not None]
    longest = [length for rope in ropes if (length := longest_length(read, rope)) is not None]
    return max(trained, default=None), max(longest, default=None)
