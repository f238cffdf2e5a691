"""The commands: what each does, in a line, and which extra it needs; and the help text."""

from __future__ import annotations

import difflib
import shutil
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from posenc_cli import explore, figure, recommend


class Command(NamedTuple):
    """One command."""

    summary: str
    module: str = ""  # with ``run``; of the laboratory's commands `posenc.lab.commands` knows where they are


PLAIN = {
    "list": Command("All encodings: where they act, and what they are.", "posenc.cli.listing"),
    "info": Command("One encoding: formula, source, class, options, cost, where it was measured.", "posenc.cli.info"),
    "explain": Command("What a Hugging Face configuration means for the rotation.", "posenc.cli.explain"),
    "explore": Command(explore.SUMMARY, "posenc.cli.explore"),
    "recommend": Command(recommend.SUMMARY, "posenc.cli.recommend"),
    "figure": Command(figure.SUMMARY, "posenc.cli.figure"),
    "gguf": Command("Copy a GGUF file under another rotation (posenc[gguf]).", "posenc.cli.gguf"),
    "serve-flags": Command("The flags with which engines serve a rotation.", "posenc.cli.serve_flags"),
}
CHECKPOINTS = {
    "inspect": Command("What each layer of a checkpoint does with positions.", "posenc.cli.inspect"),
    "doctor": Command("What is wrong with the positions of a checkpoint, and its correction.", "posenc.cli.doctor"),
    "attach": Command("Write a checkpoint with other encodings in its layers.", "posenc.cli.attach"),
    "extend": Command("Extend a checkpoint to longer texts, and measure what that is worth.", "posenc.cli.extend"),
}
LAB = {
    "compare": Command("Train one small model per encoding, and measure all of them past the trained length."),
    "tune": Command("Find learning rates for each encoding, which compare then uses."),
    "cost": Command("Measure what encodings cost: time and memory by length."),
    "report": Command("Write the report of finished runs again, or of several runs together."),
    "export": Command("Write a model that compare has trained as a folder for transformers."),
}
COMMANDS = {**PLAIN, **CHECKPOINTS, **LAB}
_NAMES = max(map(len, COMMANDS)) + 2  # columns of the names
_WIDEST = 100  # columns that text is easily read in


def help_text() -> str:
    """What ``posenc --help`` prints: every command, whether or not its extra is installed."""
    width = min(_WIDEST, shutil.get_terminal_size().columns)
    lines = ["usage: posenc [--version] COMMAND ...", ""]
    lines += textwrap.wrap(
        "Positional encodings for transformers: what there is, and what survives past the trained length.", width
    )
    for title, part in (
        ("Encodings and configurations:", PLAIN),
        ("Checkpoints (pip install 'posenc[hf]'):", CHECKPOINTS),
        ("The laboratory (pip install 'posenc[lab]'):", LAB),
    ):
        lines += ["", *textwrap.wrap(title, width)]
        for name, command in part.items():
            lines += textwrap.wrap(f"  {name:<{_NAMES}}{command.summary}", width, subsequent_indent=" " * (_NAMES + 2))
    lines += ["", *textwrap.wrap("posenc COMMAND --help tells more.", width)]
    return "\n".join(lines) + "\n"


def nearest(word: str, known: Sequence[str]) -> str:
    """ "; did you mean …?", or nothing where no known word is near."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
