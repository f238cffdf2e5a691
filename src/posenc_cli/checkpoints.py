"""The arguments of the commands for checkpoints: inspect, doctor and attach."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

from posenc_cli import extend_arguments
from posenc_cli.extend_arguments import trust
from posenc_cli.parsing import Parser

_MOST_LAYERS = 4096
_PATH = "the folder of a checkpoint, a config.json or a GGUF file"


def _inspect() -> argparse.ArgumentParser:
    parser = Parser(
        "posenc inspect",
        description="What each layer of a checkpoint does with positions, a line a layer.",
        epilog="posenc explain tells more of the rotation: wavelengths, lengths, gain.",
    )
    parser.add_argument("path", help=_PATH)
    parser.add_argument(
        "--live", action="store_true",
        help="build the model (with the folder's weights, if it has any) and measure its modules against that",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", dest="as_json", help="print the lines as JSON")
    trust(parser)
    return parser


def _doctor() -> argparse.ArgumentParser:
    parser = Parser(
        "posenc doctor",
        description="What is wrong with the positions of a checkpoint, what it costs, and what to write instead.",
        epilog="Exit code: 0 for nothing or notes, 1 for a fault, 3 for a suspicion without a fault, 2 for bad usage "
        "or an unreadable input. After --fix and --in-place: of what is left.",
    )
    parser.add_argument("path", help=_PATH)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--fix", metavar="OUT", dest="out", help="write a corrected copy to this new folder")
    where.add_argument(
        "--in-place", action="store_true", help="correct the files themselves; each stays beside as NAME.original"
    )
    parser.add_argument(
        "--guesses", action="store_true", help="write corrections too whose numbers only the model's makers know"
    )
    parser.add_argument(
        "--weights", action="store_true",
        help="load the model too, and measure its loss within the trained length, past it, and under other rotations",
    )  # fmt: skip
    parser.add_argument("--text", metavar="FILE", help="text for that (default: English documentation of Python)")
    parser.add_argument(
        "--most", type=int, default=4096, metavar="TOKENS", help="longest text that is measured (default: %(default)s)"
    )
    parser.add_argument(
        "--accept", action="append", default=[], metavar="NAME", help="a finding that is meant to be so; repeatable"
    )
    parser.add_argument("--strict", action="store_true", help="a suspicion ends with exit code 1 too, as a fault does")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print the findings as JSON")
    trust(parser)
    return parser


def _attach() -> argparse.ArgumentParser:
    parser = Parser(
        "posenc attach",
        description="Write a checkpoint with other encodings in the place of its layers' rotation.",
        epilog="The folder opens with posenc.hf.attach.load, and its config.json says so.",
    )
    parser.add_argument("path", metavar="folder", help="a folder with a model and its weights")
    parser.add_argument("encodings", help="names joined by +, as posenc list gives them; own is the model's rotation")
    parser.add_argument("--out", required=True, metavar="OUT", help="folder to write, which must be new")
    parser.add_argument(
        "--layers", type=_layers, metavar="NUMBERS", help="layers from 0, as 0,3 or 0-5 (default: all with attention)"
    )
    trust(parser)
    return parser


def _extend() -> argparse.ArgumentParser:
    return extend_arguments.fill(Parser("posenc extend"))


def _layers(text: str) -> list[int]:
    """Numbers and ranges of numbers."""
    if not re.fullmatch(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"numbers of layers are needed, such as 0,3 or 0-5, got {text[:24]}")
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    if not found or max(found) >= _MOST_LAYERS:
        raise argparse.ArgumentTypeError(f"numbers of layers from 0 to {_MOST_LAYERS - 1} are needed, got {text[:24]}")
    return found


PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "inspect": _inspect, "doctor": _doctor, "attach": _attach, "extend": _extend,
}  # fmt: skip
