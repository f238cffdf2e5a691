"""The arguments of recommend."""

from __future__ import annotations

import argparse

SUMMARY = "Which encoding to take, and the row that each reason rests on."
QUESTIONS = {  # of `posenc.recommend.Needs`, with what they may be answered with
    "model": ("A new model, or a checkpoint with RoPE that is to read longer texts?", ("new", "checkpoint")),
    "task": (
        "What must work at the longest length?",
        ("text", "retrieval", "counting", "state", "copying", "arithmetic", "images", "video"),
    ),
    "engine": ("What will serve it?", ("any", "transformers", "vllm", "sglang", "llama.cpp")),
}


def fill(parser: argparse.ArgumentParser) -> None:
    """Tell a parser what the command takes."""
    parser.description = f"{SUMMARY} What is not given is asked on a terminal, and takes its default elsewhere."
    for name, (question, answers) in QUESTIONS.items():
        parser.add_argument(f"--{name}", choices=answers, help=f"{question} (default: {answers[0]})")
    parser.add_argument("--train-length", type=int, metavar="TOKENS", help="length in training (default: 4096)")
    parser.add_argument("--length", type=int, metavar="TOKENS", help="longest length to read (default: as trained)")
    parser.add_argument("--tune", action="store_true", help="the checkpoint may be trained a little")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print the answer as JSON")
