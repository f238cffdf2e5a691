"""The options of commands whose modules load torch; the modules of the others have their options themselves."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from posenc_cli.parsing import Parser, tokens

EXPLORER = "explorer.html"
QUESTIONS = {  # of `posenc.recommend.Needs`, with their possible answers; the first one is the default
    "model": ("A new model, or a trained one whose context is to be extended?", ("new", "checkpoint")),
    "kind": (
        "What kind of model?",
        ("decoder", "code", "research", "encoder", "encoder-decoder", "vision", "video", "vision-language",
         "image-generation", "speech", "music", "protein", "algorithmic", "other"),
    ),
    "task": (
        "What must work at the longest length?",
        ("general", "perplexity", "retrieval", "streaming", "arithmetic", "sorting", "copying", "counting", "state"),
    ),
    "engine": ("What will serve it?", ("any", "transformers", "vllm", "sglang", "llama.cpp", "mlx")),
}  # fmt: skip


def _list() -> argparse.ArgumentParser:
    epilog = "Where the output is not a terminal, each encoding is one line of fields separated by tabs."
    parser = Parser("list", epilog=epilog)
    parser.add_argument(
        "words", nargs="*", metavar="WORD", help="parts of name, hook point or title, all of which must occur"
    )
    parser.add_shared("--json")
    return parser


def _info() -> argparse.ArgumentParser:
    parser = Parser("info")
    parser.add_argument("name", metavar="name", help="as in posenc list, or the name of the class")
    parser.add_shared("--json")
    return parser


def _recommend() -> argparse.ArgumentParser:
    parser = Parser("recommend", "On a terminal it asks for what is missing; elsewhere defaults apply.")
    parser.add_argument(
        "path", nargs="?", metavar="CONFIG",
        help="a trained model: its config.json, folder or GGUF file, or org/name of the Hub; its own facts then count",
    )  # fmt: skip
    for name, (question, answers) in QUESTIONS.items():
        parser.add_argument(f"--{name}", choices=answers, help=f"{question} (default: {answers[0]})")
    parser.add_argument(
        "--train-length",
        type=tokens,
        metavar="TOKENS",
        help="training length (default: 4096; with CONFIG, as it declares)",
    )
    parser.add_argument(
        "--length", type=tokens, metavar="TOKENS", help="longest context (default: the training length)"
    )
    parser.add_argument("--tune", action="store_true", help="the checkpoint may be fine-tuned")
    parser.add_argument(
        "--tune-tokens", type=tokens, metavar="TOKENS", help="as --tune, with a budget of so many tokens, such as 500M"
    )
    parser.add_argument("--memory", type=float, metavar="GIB", help="for the key/value cache of one sequence")
    parser.add_shared("--json")
    return parser


def _explore() -> argparse.ArgumentParser:
    parser = Parser("explore", "One HTML file that opens from disk, without a network.")
    parser.add_argument(
        "paths", nargs="*", metavar="CONFIG", help="configs to show: a config.json, or the folder of a checkpoint"
    )
    parser.add_argument("--out", default=EXPLORER, metavar="FILE", help="file to write (default: %(default)s)")
    return parser


def _figure() -> argparse.ArgumentParser:
    parser = Parser(
        "figure", "The numbers come from the encoding itself, in its initial state, and are written as well."
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="an encoding or a mechanism (default: list all names)")
    parser.add_argument("--out", metavar="FILE", help="file to write, .svg or .pdf (default: NAME.svg)")
    return parser


def _selftest() -> argparse.ArgumentParser:
    parser = Parser(
        "selftest",
        "On an NVIDIA GPU: every kernel in each mode and dtype against float64 on the CPU, then a short benchmark. "
        "On a CPU: each backend against the definition.",
        epilog="Exit code: 0 if everything that was checked is correct, 1 if anything is wrong, 2 for bad usage.",
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: cuda where PyTorch finds a GPU")
    parser.add_argument(
        "--seconds", type=float, default=180.0, metavar="S", help="begin nothing after so long (default: %(default)g)"
    )
    parser.add_argument("--no-timings", action="store_true", help="check alone")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print records, one JSON object a line")
    return parser


PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {  # what each reads are the arguments of its ``run``
    "list": _list, "info": _info, "recommend": _recommend, "explore": _explore, "figure": _figure,
    "selftest": _selftest,
}  # fmt: skip
