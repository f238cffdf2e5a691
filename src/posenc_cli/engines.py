"""The arguments of ``posenc engines``."""

from __future__ import annotations

import argparse

from posenc_cli.parsing import Parser


def engines_parser() -> argparse.ArgumentParser:
    """The parser of ``posenc engines``."""
    parser = Parser(
        "engines",
        "probe: ask a running server for completions at growing lengths; no weights and no second engine are needed.",
        epilog="Exit code: 0 where positions are right up to --length, 1 for a fault (scaling not applied, context "
        "capped, prompts truncated), 3 where that remains open, 2 for bad usage or a server that cannot be reached.",
    )
    parser.add_argument("what", choices=("probe",), help="what to do")
    parser.add_argument("--endpoint", required=True, metavar="URL", help="root of a server with /v1/completions")
    parser.add_argument(
        "--original", type=int, metavar="TOKENS",
        help="training length before the scaling, up to which positions are taken to be right (default: as "
        "--checkpoint says, or half of --length)",
    )  # fmt: skip
    parser.add_argument(
        "--length", type=int, metavar="TOKENS",
        help="longest context to ask for (default: as --checkpoint or the server says, or 8192)",
    )  # fmt: skip
    parser.add_argument(
        "--checkpoint", metavar="PATH", help="the model that it serves: a folder, a config.json or a GGUF file"
    )
    parser.add_argument("--model", default="", metavar="NAME", help="model to ask for (default: the server's first)")
    parser.add_argument(
        "--api-key-env", default="", metavar="VARIABLE", help="environment variable with the key to send"
    )
    parser.add_argument(
        "--requests", type=int, default=40, metavar="N", help="most requests to send (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=1800.0, metavar="S", help="most seconds to take (default: %(default)g)"
    )
    parser.add_argument("--json", action="store_true", dest="as_json", help="print the result as JSON")
    return parser
