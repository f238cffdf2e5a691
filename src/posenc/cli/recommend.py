"""``posenc recommend``: which encoding to use, each reason with its evidence."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from posenc.cli.columns import labelled, paragraph
from posenc.recommend import Answer, Needs, Reason, recommend
from posenc_cli.arguments import QUESTIONS

LENGTH = 4096  # tokens, where none is given


def run(
    *, model: str | None, task: str | None, engine: str | None, train_length: int | None, length: int | None,
    tune: bool, as_json: bool,
) -> int:  # fmt: skip
    """Print the choices; on a terminal, ask first for what is missing.

    Raises:
        ValueError: for needs that contradict each other, and for an answer that is not possible.
    """
    answers = {"model": model, "task": task, "engine": engine}
    if sys.stdin.isatty() and sys.stdout.isatty() and not as_json and all(v is None for v in answers.values()):
        answers = {name: _ask(name) for name in QUESTIONS}
        train_length = train_length or _ask_length("What is its training length in tokens?", LENGTH)
        length = length or _ask_length("What is the longest context in tokens?", train_length)
    words = {name: value or QUESTIONS[name][1][0] for name, value in answers.items()}
    trained = LENGTH if train_length is None else train_length
    needs = Needs(**words, train_length=trained, length=trained if length is None else length, tune=tune)
    answer = recommend(needs)
    sys.stdout.write(json.dumps(asdict(answer), indent=2) + "\n" if as_json else _as_text(answer))
    return 0


def _ask(name: str) -> str:
    question, answers = QUESTIONS[name]
    answer = input(f"{question} [{' | '.join(answers)}] ").strip().lower() or answers[0]
    if answer not in answers:
        raise ValueError(f"{name} must be one of {', '.join(answers)}, got {answer!r}")
    return answer


def _ask_length(question: str, default: int) -> int:
    text = input(f"{question} [{default}] ").strip().replace(",", "") or str(default)
    if not text.isascii() or not text.isdecimal():
        raise ValueError(f"a whole number of tokens is needed, got {text!r}")
    return int(text)


def _as_text(answer: Answer) -> str:
    lines = []
    for number, choice in enumerate(answer.choices, 1):
        lines += ["", *paragraph(f"{number}. {choice.spec}: {choice.words}", sys.stdout)]
        lines += labelled([_line(reason) for reason in choice.reasons], sys.stdout)
    if answer.remarks:
        lines += ["", "Caveats:", *labelled([_line(reason) for reason in answer.remarks], sys.stdout)]
    return "\n".join(lines) + "\n"


def _line(reason: Reason) -> tuple[str, str]:
    return f"  {reason.sure}", f"{reason.words} ({reason.row})"
