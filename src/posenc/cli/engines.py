"""``posenc engines`` and ``posenc probe``: what was measured for a config, and what a server does."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from pathlib import Path

from posenc.input_files import naming
from posenc_cli.exit_codes import FAULT, OK, SUSPICION
from posenc_cli.parsing import Parser, tokens

BENCH = "benchmarks/engines in posenc's repository runs an engine's own code on a config (python -m benchmarks.engines)"


def check_parser() -> Parser:
    """The options of the command."""
    parser = Parser(
        "engines",
        "Looks up the kinds of rotation of --checkpoint in the table of engines; nothing runs.",
        epilog="Exit code: 0 if every result is correct, 1 if an engine is off or ignores a key, 3 if it refuses or "
        "nothing was measured, 2 for bad usage.",
    )
    parser.add_argument("what", choices=("check",), help="what to do")
    parser.add_argument("--checkpoint", metavar="PATH", help="the model: a folder, a config.json or a GGUF file")
    parser.add_argument(
        "--engine", action="extend", nargs="+", default=[], metavar="NAME", dest="engines",
        help="engines of the table (default: all)",
    )  # fmt: skip
    parser.add_shared("--json")
    return parser


def check(options: Namespace) -> int:
    """Print what was measured of each engine for the kinds of rotation in a config: the rows of the table.

    Raises:
        ValueError: without a checkpoint, for a config that cannot be read, and for an engine that is not in the table.
    """
    from posenc.hf import read_rope
    from posenc.hf.serving.lines import Serving
    from posenc.hf.serving.table import engine_table

    known = list(engine_table())
    if options.checkpoint is None:
        raise ValueError(f"check needs --checkpoint PATH; {BENCH}")
    for engine in options.engines:
        if engine not in known:
            raise ValueError(f"--engine must be one of {', '.join(known)}, got {engine!r}")
    with naming(options.checkpoint):
        serving = Serving(read_rope(Path(options.checkpoint)).facts, None)
        verdicts = {engine: serving.verdict(engine) for engine in options.engines or known}
    lines = []
    for engine, verdict in verdicts.items():
        states = {result.state for result in verdict.results}
        wrong = next((state for state in ("off", "ignored", "refused", "disputed") if state in states), None)
        state, text = wrong or ("right" if verdict.right else "not run"), str(verdict)
        lines.append({"engine": engine, "state": state, "text": text if states else "the config has no rotation"})
    if options.as_json:
        sys.stdout.write(json.dumps(lines, indent=1) + "\n")
    else:
        for line in lines:
            prefix = "" if line["state"] == "not run" else f"{line['state']}. "
            sys.stdout.write(f"{line['engine']}: {prefix}{line['text']}\n")
        sys.stderr.write(f"{BENCH}\n")
    found = {line["state"] for line in lines} - {"not run"}
    if found & {"off", "ignored"}:
        return FAULT
    return OK if found == {"right"} else SUSPICION


def probe_parser() -> Parser:
    """The options of the command."""
    parser = Parser(
        "probe",
        "It asks for completions at growing lengths; no weights and no second engine are needed.",
        epilog="Exit code: 0 if positions are correct up to --length, 1 for a fault (scaling not applied, context "
        "capped, prompts truncated), 3 if inconclusive, 2 for bad usage or a server that cannot be reached.",
    )
    parser.add_argument("--endpoint", metavar="URL", required=True, help="base URL of a server with /v1/completions")
    parser.add_argument("--checkpoint", metavar="PATH", help="the model: a folder, a config.json or a GGUF file")
    parser.add_argument(
        "--original", type=tokens, metavar="TOKENS",
        help="training length before the scaling, assumed to work (default: from "
        "--checkpoint, or half of --length)",
    )  # fmt: skip
    parser.add_argument(
        "--length", type=tokens, metavar="TOKENS",
        help="longest prompt to send (default: from --checkpoint or the server, else 8192)",
    )  # fmt: skip
    parser.add_argument(
        "--model", default="", metavar="NAME", help="model name in requests (default: the server's first)"
    )
    parser.add_argument(
        "--api-key-env", default="", metavar="VARIABLE", help="environment variable with the key to send"
    )
    parser.add_argument(
        "--requests", type=int, default=40, metavar="N", help="maximum number of requests (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=1800.0, metavar="S", help="maximum time in seconds (default: %(default)g)"
    )
    parser.add_shared("--json")
    return parser


def probe(options: Namespace) -> int:
    """Probe a server, and print what was found.

    Raises:
        ValueError: as `posenc.engines.probe.probe`, for a checkpoint that cannot be read, and for an environment
            variable that is not set.
        OSError: for a server that cannot be reached.
    """
    from posenc.engines.endpoint import Endpoint
    from posenc.engines.probe import probe as probe_server

    original, length, key = options.original, options.length, options.api_key_env
    if options.checkpoint is not None:
        trained, longest = _lengths_of(options.checkpoint)
        original, length = original or trained, length or longest
    if key and key not in os.environ:
        raise ValueError(f"--api-key-env: the environment variable {key} is not set")
    server = Endpoint(options.endpoint, options.model, os.environ.get(key, ""), options.requests, options.seconds)
    result = probe_server(server, original=original, length=length, progress=_report)
    sys.stdout.write((result.json() if options.as_json else str(result)) + "\n")
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

    with naming(checkpoint):
        read = read_rope(Path(checkpoint))
    ropes = [text_rope(rotation) for rotation in read.rotations.values() if rotation is not None]
    trained = [length for rope in ropes if (length := read.facts.trained(rope)) is not None]
    longest = [length for rope in ropes if (length := read.facts.reachable(rope)) is not None]
    return max(trained, default=None), max(longest, default=None)
