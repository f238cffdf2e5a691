"""The arguments of the commands that need torch alone; those for checkpoints and engines: `checkpoints`, `serving`."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from posenc_cli import checkpoints, explore, figure, recommend, serving
from posenc_cli.parsing import Parser
from posenc_cli.parsing import UsageError as UsageError

HOOK_POINTS = ("embedding", "rotary", "bias", "score", "weight")  # of `posenc.encoding.HOOK_POINTS`
CONVENTIONS = ("transformers", "deepseek", "vllm", "sglang")  # of `posenc.hf.config.scalings.Convention`
WIDEST_HEAD = 2**16  # channels


def parser_of(command: str) -> argparse.ArgumentParser:
    """The parser of one command; what it gives are the arguments of the command's ``run``."""
    return _PARSERS[command]()


def _list() -> argparse.ArgumentParser:
    parser = Parser("posenc list", description="All encodings: where they act, and what they are.", epilog=_LIST_MORE)
    parser.add_argument("words", nargs="*", metavar="WORD", help="parts of the name or title, all of which must occur")
    parser.add_argument("--hook-point", choices=HOOK_POINTS, help="where it acts")
    parser.add_argument("--learned", action="store_true", help="only those with parameters of their own")
    parser.add_argument("--fixed", action="store_true", help="only those without")
    parser.add_argument("--stretches", action="store_true", help="only those made for models trained without them")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print all facts of each as JSON")
    return parser


_LIST_MORE = "Where the output is no terminal, each encoding is one line of fields with tabs between."


def _info() -> argparse.ArgumentParser:
    parser = Parser(
        "posenc info", description="One encoding: formula, source, class, options, cost, where it was measured."
    )
    parser.add_argument("name", metavar="name", help="as posenc list gives it, or the name of the class")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print the facts as JSON")
    return parser


def _explain() -> argparse.ArgumentParser:
    parser = Parser(
        "posenc explain",
        description="What a Hugging Face configuration means: base, wavelengths, scaling, lengths, and what to beware "
        "of.",
    )
    parser.add_argument("path", nargs="?", help="a config.json, or the folder of a checkpoint that has one")
    parser.add_argument("--families", action="store_true", help="list the families of models that are known, instead")
    parser.add_argument(
        "--convention", default="transformers", metavar="NAME",
        help=f"whose reading of YaRN's keys: {', '.join(CONVENTIONS)} (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--head-dim", type=_head_dim, metavar="CHANNELS", help="channels of a head, if the file does not say"
    )
    parser.add_argument(
        "--ignore", action="append", default=[], metavar="KEY", help="a key to leave unread; repeatable"
    )
    parser.add_argument("--json", action="store_true", dest="as_json", help="print the facts as JSON")
    return parser


def _explore() -> argparse.ArgumentParser:
    parser = Parser("posenc explore")
    explore.fill(parser)
    return parser


def _figure() -> argparse.ArgumentParser:
    parser = Parser("posenc figure")
    figure.fill(parser)
    return parser


def _recommend() -> argparse.ArgumentParser:
    parser = Parser("posenc recommend")
    recommend.fill(parser)
    return parser


def _head_dim(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= WIDEST_HEAD:
        raise argparse.ArgumentTypeError(f"a whole number from 1 to {WIDEST_HEAD} is needed, got {text[:24]}")
    return int(text)


def _gguf() -> argparse.ArgumentParser:
    text = "Copy a GGUF file under another rotation; its weights are not touched. Needs posenc[gguf]."
    return serving.gguf(Parser("posenc gguf", description=text))


def _serve_flags() -> argparse.ArgumentParser:
    text = "The flags that make vLLM, SGLang and llama.cpp serve a checkpoint under a rotation."
    return serving.serve_flags(Parser("posenc serve-flags", description=text))


_PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "list": _list, "info": _info, "explain": _explain, "explore": _explore, "recommend": _recommend,
    "figure": _figure, "gguf": _gguf, "serve-flags": _serve_flags, **checkpoints.PARSERS,
}  # fmt: skip
