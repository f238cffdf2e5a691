"""``posenc recommend``: which encoding to take, each reason with its row."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from posenc.cli.columns import labelled, paragraph
from posenc.recommend import Answer, Needs, Reason, recommend
from posenc_cli.recommend import QUESTIONS

LENGTH = 4096  # tokens, where none is given


def run(
    *, model: str | None, task: str | None, engine: str | None, train_length: int | None, length: int | None,
    tune: bool, as_json: bool,
) -> int:  # fmt: skip
    """Ask what is missing, where somebody sits before a terminal; print the choices.

    Raises:
        ValueError: for needs that contradict each other, and for an answer that is none.
    """
    given = {"model": model, "task": task, "engine": engine}
    if sys.stdin.isatty() and sys.stdout.isatty() and not as_json and all(v is None for v in given.values()):
        given = {name: _asked(name) for name in QUESTIONS}
        train_length = train_length or _asked_length("At how many tokens is, or was, it trained?", LENGTH)
        length = length or _asked_length("How many tokens must it read?", train_length)
    words = {name: value or QUESTIONS[name][1][0] for name, value in given.items()}
    trained = LENGTH if train_length is None else train_length
    needs = Needs(**words, train_length=trained, length=trained if length is None else length, tune=tune)
    answer = recommend(needs)
    sys.stdout.write(json.dumps(asdict(answer), indent=2) + "\n" if as_json else _told(answer))
    return 0


def _asked(name: str) -> str:
    question, answers = QUESTIONS[name]
    given = input(f"{question} [{' | '.join(answers)}] ").strip().lower() or answers[0]
    if given not in answers:
        raise ValueError(f"{name} must be one of {', '.join(answers)}, got {given!r}")
    return given


def _asked_length(question: str, default: int) -> int:
    given = input(f"{question} [{default}] ").strip().replace(",", "") or str(default)
    if not given.isascii() or not given.isdecimal():
        raise ValueError(f"a whole number of tokens is needed, got {given!r}")
    return int(given)


def _told(answer: Answer) -> str:
    lines = []
    for number, choice in enumerate(answer.choices, 1):
        lines += ["", *paragraph(f"{number}. {choice.spec}: {choice.words}", sys.stdout)]
        lines += labelled([_line(reason) for reason in choice.reasons], sys.stdout)
    if answer.remarks:
        lines += ["", "Mind:", *labelled([_line(reason) for reason in answer.remarks], sys.stdout)]
    return "\n".join(lines) + "\n"


def _line(reason: Reason) -> tuple[str, str]:
    return f"  {reason.sure}", f"{reason.words} ({reason.row})"
