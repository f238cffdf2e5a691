"""The commands in three groups, one for each kind of user: what each does, in a line, and which extra it needs."""

from __future__ import annotations

import difflib
import shutil
import textwrap
from collections.abc import Sequence
from typing import NamedTuple


class Command(NamedTuple):
    """One command."""

    summary: str
    function: str = ""  # below posenc.cli; empty for the laboratory's, which `posenc.lab.commands` loads
    extra: str = ""  # that the command cannot work without


GROUPS = {
    "Building a model:": {
        "list": Command(
            "List the positional encodings and where in attention each one acts.", "encodings.list_encodings"
        ),
        "info": Command("Show one encoding: formula, source, options, cost, attention backend.", "encodings.info"),
        "recommend": Command("Recommend an encoding for a model, with evidence.", "recommend.run"),
        "selftest": Command("Check backends and GPU kernels on this machine, and time calls.", "selftest.run"),
    },
    "Extending, serving or debugging a checkpoint:": {
        "explain": Command("Explain the positional encoding of a checkpoint, also per layer.", "explain.run"),
        "doctor": Command("Find and correct faults in a checkpoint's position settings.", "doctor.run"),
        "extend": Command("Extend a checkpoint's context length and evaluate the result.", "extend.extend", "hf"),
        "convert": Command("Rewrite a config's RoPE keys for transformers 4, 5 or both.", "config.convert"),
        "evaluate": Command("Measure loss and retrieval of a checkpoint by length.", "extend.evaluate", "hf"),
        "attach": Command("Replace the rotary encoding in a checkpoint's layers.", "extend.attach", "hf"),
        "gguf": Command("Copy a GGUF file with other RoPE settings.", "config.gguf", "gguf"),
        "serve": Command("Print the command that serves a model in vLLM, SGLang, llama.cpp, mlx.", "config.serve"),
        "probe": Command("Test whether a running server computes positions correctly.", "engines.probe", "hf"),
        "check-batch": Command("Test whether a batch is correct for a model.", "check_batch.run", "hf"),
        "engines": Command("Tell which engines compute a config correctly, as measured.", "engines.check"),
    },
    "Comparing and learning:": {
        "compare": Command("Train a small model per encoding and test beyond the training length.", extra="lab"),
        "tune": Command("Tune the learning rates of each encoding for compare.", extra="lab"),
        "cost": Command("Measure milliseconds and cache bytes of encodings.", extra="lab"),
        "report": Command("Write the report of one or several finished runs.", extra="lab"),
        "export": Command("Export a model trained by compare as a transformers folder.", extra="lab"),
        "explore": Command("Write an interactive page about encodings and configs.", "pages.explore"),
        "figure": Command("Draw how an encoding works, as SVG or PDF.", "pages.figure"),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}
ALIASES = {("serve-flags",): "serve", ("engines", "probe"): "probe"}  # how earlier pages called them
LAB = {name: command for name, command in COMMANDS.items() if not command.function}
STANDALONE = {name: command for name, command in COMMANDS.items() if command.function}
_NAMES = max(map(len, COMMANDS)) + 2  # columns of the names
_WIDEST = 100  # columns that text is easily read in


def help_text() -> str:
    """What ``posenc --help`` prints: every command, whether or not its extra is installed."""
    width = min(_WIDEST, shutil.get_terminal_size().columns)
    lines = ["usage: posenc [--version] COMMAND ...", ""]
    lines += textwrap.wrap("Positional encodings for transformers.", width)
    for title, group in GROUPS.items():
        lines += ["", *textwrap.wrap(title, width)]
        for name, (summary, _, extra) in group.items():
            text = f"  {name:<{_NAMES}}{summary}" + (f" [{extra}]" if extra else "")
            lines += textwrap.wrap(text, width, subsequent_indent=" " * (_NAMES + 2))
    more = "posenc COMMAND --help lists a command's options. [NAME]: needs an extra, pip install 'posenc[NAME]'."
    lines += ["", *textwrap.wrap(more, width)]
    return "\n".join(lines) + "\n"


def nearest(word: str, known: Sequence[str]) -> str:
    """ "; did you mean …?", or nothing where no known word is near."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
