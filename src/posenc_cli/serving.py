"""The arguments of gguf and serve-flags: a rotation handed to other engines."""

from __future__ import annotations

import argparse

Parser = argparse.ArgumentParser


def gguf(parser: Parser) -> Parser:
    """Arguments of ``posenc gguf``."""
    parser.add_argument("source", metavar="SOURCE", help="a GGUF file")
    parser.add_argument("target", metavar="TARGET", help="where the copy goes")
    parser.add_argument(
        "--rope", required=True, metavar="ROPE",
        help="what it is to say: a block of rope_parameters as JSON, or a config.json, a folder or a GGUF file",
    )  # fmt: skip
    parser.add_argument("--replace", action="store_true", help="overwrite TARGET, which may then be SOURCE")
    return parser


def serve_flags(parser: Parser) -> Parser:
    """Arguments of ``posenc serve-flags``."""
    parser.add_argument("path", metavar="PATH", help="a config.json, or the folder of a checkpoint that has one")
    parser.add_argument(
        "--rope", metavar="ROPE", help="serve it under another rotation: as for posenc gguf (default: its own)"
    )
    parser.add_argument(
        "--exact", action="store_true", help="through posenc's plug-in: exact angles, and spectra without a rope type"
    )
    parser.add_argument(
        "--length", type=int, metavar="TOKENS",
        help="tokens to serve (default: what the configuration declares, or what --rope reaches)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", dest="as_json", help="print the flags as JSON")
    return parser
