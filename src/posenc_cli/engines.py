"""The arguments of ``posenc engines`` and ``posenc probe``."""

from __future__ import annotations

import argparse

from posenc_cli.parsing import Parser, tokens


def engines_parser() -> argparse.ArgumentParser:
    """The parser of ``posenc engines``."""
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


def probe_parser() -> argparse.ArgumentParser:
    """The parser of ``posenc probe``."""
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
