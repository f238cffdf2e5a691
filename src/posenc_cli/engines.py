"""The arguments of ``posenc engines``."""

from __future__ import annotations

import argparse

from posenc_cli.parsing import Parser, tokens


def engines_parser() -> argparse.ArgumentParser:
    """The parser of ``posenc engines``."""
    parser = Parser(
        "engines",
        "check: run engines' own code on tiny models of every rope type and compare with transformers. "
        "probe: ask a running server for completions at growing lengths; no weights and no second engine are needed.",
        epilog="Exit codes of probe: 0 if positions are right up to --length, 1 for a fault (scaling not applied, "
        "context capped, prompts truncated), 3 if inconclusive. Of check: 0 if every result is right, 1 if an engine "
        "is off or ignores a key, 3 if it refuses or nothing could be compared. Of both: 2 for bad usage or a server "
        "that cannot be reached.",
    )
    parser.add_argument("what", choices=("check", "probe"), help="what to do")
    parser.add_argument("--checkpoint", metavar="PATH", help="the model: a folder, a config.json or a GGUF file")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print the result as JSON")
    check = parser.add_argument_group("check")
    check.add_argument(
        "--engine", action="extend", nargs="+", default=[], metavar="NAME", dest="engines",
        help="engines to check (default: all that are installed); FILE.py:NAME is your own adapter",
    )  # fmt: skip
    check.add_argument(
        "--rope", action="extend", nargs="+", default=[], metavar="TYPE", dest="ropes",
        help="rope types (yarn) or rows of the table ('yarn: betas') (default: all)",
    )  # fmt: skip
    check.add_argument(
        "--python", action="append", default=[], metavar="NAME=PATH", dest="pythons",
        help="interpreter with that engine and posenc (default: this one)",
    )  # fmt: skip
    check.add_argument("--out", metavar="FILE", help="record of JSON lines; finished cases in it are not run again")
    check.add_argument(
        "--remedies",
        action="store_true",
        help="for each wrong result, try other keys, flags and plug-ins in the engine",
    )
    check.add_argument("--markdown", action="store_true", dest="as_markdown", help="print the table as Markdown")
    probe = parser.add_argument_group("probe")
    probe.add_argument("--endpoint", metavar="URL", help="base URL of a server with /v1/completions")
    probe.add_argument(
        "--original", type=tokens, metavar="TOKENS",
        help="training length before the scaling, up to which positions are assumed right (default: from "
        "--checkpoint, or half of --length)",
    )  # fmt: skip
    probe.add_argument(
        "--length", type=tokens, metavar="TOKENS",
        help="longest prompt to send (default: from --checkpoint or the server, else 8192)",
    )  # fmt: skip
    probe.add_argument(
        "--model", default="", metavar="NAME", help="model name in requests (default: the server's first)"
    )
    probe.add_argument(
        "--api-key-env", default="", metavar="VARIABLE", help="environment variable with the key to send"
    )
    probe.add_argument(
        "--requests", type=int, default=40, metavar="N", help="maximum number of requests (default: %(default)s)"
    )
    probe.add_argument(
        "--seconds", type=float, default=1800.0, metavar="S", help="maximum time in seconds (default: %(default)g)"
    )
    return parser
