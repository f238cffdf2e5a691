"""The arguments of figure."""

from __future__ import annotations

import argparse

SUMMARY = "Write a figure of a mechanism as SVG or PDF, with its numbers beside it."


def fill(parser: argparse.ArgumentParser) -> None:
    """Tell a parser what the command takes."""
    parser.description = f"{SUMMARY} Drawn from the encodings themselves, in their initial state."
    parser.add_argument("name", nargs="?", metavar="NAME", help="an encoding, or a mechanism; none: list what there is")
    parser.add_argument("--out", metavar="FILE", help="with the ending .svg or .pdf (default: NAME.svg)")
