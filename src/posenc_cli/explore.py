"""The arguments of explore."""

from __future__ import annotations

import argparse

SUMMARY = "Write a page in which sliders show what positions do, also those of given configurations."
FILE = "explorer.html"


def fill(parser: argparse.ArgumentParser) -> None:
    """Tell a parser what the command takes."""
    parser.description = f"{SUMMARY} One HTML file that opens from disk, without a network."
    parser.add_argument(
        "paths", nargs="*", metavar="CONFIG", help="a config.json, or the folder of a checkpoint that has one"
    )
    parser.add_argument("--out", default=FILE, metavar="FILE", help="where to write it (default: %(default)s)")
