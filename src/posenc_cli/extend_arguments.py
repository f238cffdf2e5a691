"""The arguments of extend."""

from __future__ import annotations

import argparse

_MORE = (
    "The checkpoint is never written to. Stopped in any way, the same command goes on. auto tries yarn, ntk, llama3 "
    "and dynamic_ntk; progressive searches, trains, searches again (LongRoPE's recipe)."
)


def fill(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Give a parser what the command takes."""
    parser.description = "Extend a checkpoint to longer texts, measure what that is worth, and write a new folder."
    parser.epilog = _MORE
    parser.add_argument("path", help="a folder of transformers, or a GGUF file")
    parser.add_argument("--length", type=int, required=True, metavar="TOKENS", help="to extend to")
    parser.add_argument(
        "--method", default="auto", metavar="NAME",
        help="auto, pi, ntk, ntk_by_parts, yarn, llama3 (each also with +resonance), dynamic_ntk, longrope, "
        "self_extend, rerope, leaky_rerope, dual_chunk, string, lm_infinite, streaming_llm, progressive "
        "(default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--out", metavar="FOLDER", help="new folder for the result; without it only the table is made")
    parser.add_argument("--overwrite", action="store_true", help="let it take the place of a folder that is there")
    parser.add_argument("--text", metavar="FILE", help="text to measure and train on (default: built-in English)")
    parser.add_argument("--windows", type=int, default=4, metavar="N", help="windows of text (default: %(default)s)")
    parser.add_argument("--last", type=int, metavar="N", help="scored tokens at the end of each (default: 512)")
    parser.add_argument(
        "--lengths", type=_numbers, metavar="N,N", help="contexts to measure (default: a quarter, all, the target)"
    )
    parser.add_argument("--original-length", type=int, metavar="TOKENS", help="trained length, if the file is wrong")
    parser.add_argument("--dtype", default="auto", help="of the weights (default: as they are; float32 for GGUF)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, ... (default: %(default)s)")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print the numbers as JSON")
    trust(parser)
    searched = parser.add_argument_group("longrope, progressive and auto")
    searched.add_argument("--search", type=int, metavar="N", help="candidates that a search begins with (default: 16)")
    searched.add_argument("--generations", type=int, default=4, metavar="N", help="after them (default: %(default)s)")
    searched.add_argument("--pieces", type=int, default=2, metavar="N", help="texts for each (default: %(default)s)")
    _fill_training(parser.add_argument_group("progressive (pip install 'posenc[extend]')"))
    return parser


def trust(parser: argparse.ArgumentParser) -> None:
    """Give a parser the flag without which no code of a folder runs."""
    parser.add_argument(
        "--trust-remote-code", action="store_true", help="let code of the folder run; without it none does"
    )


def _fill_training(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--intermediate", type=int, metavar="TOKENS", help="trained for (default: half of --length)")
    group.add_argument(
        "--tokens", type=int, metavar="N", help="of a row; fewer than --intermediate skip positions (PoSE)"
    )
    for name, default, text in (
        ("steps", 400, "of the training"),
        ("batch", 1, "rows of a step"),
        ("warmup", 20, "steps in which the learning rate rises"),
        ("rank", 0, "of LoRA; 0 trains all weights"),
        ("save-every", 10, "steps between two states on the disk"),
        ("seed", 0, "of rows and searches"),
    ):
        group.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"{text} (default: %(default)s)")
    group.add_argument("--lr", type=float, default=2e-5, metavar="RATE", help="learning rate (default: %(default)s)")


def _numbers(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdecimal() and len(part) < 12 for part in parts):
        raise argparse.ArgumentTypeError(f"whole numbers with commas between are needed, got {text[:24]}")
    return [int(part) for part in parts]
