"""``posenc recommend``: the default for a need, exceptions after it, and the evidence for each sentence."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentTypeError, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

from posenc.cli.columns import labelled, paragraph
from posenc.hf.sources.load import hub_id, local_source
from posenc.input_files import naming
from posenc.published import page_address
from posenc.recommend import SOURCES, Answer, Needs, Sentence, recommend
from posenc.recommend.needs import read_checkpoint
from posenc.recommend.rule import SECTIONS
from posenc_cli.arguments import QUESTIONS
from posenc_cli.parsing import tokens

LENGTH = 4096  # tokens, where none is given


def run(options: Namespace) -> int:
    """Print the answer; on a terminal, ask first if nothing was given.

    Raises:
        ValueError: for needs that contradict each other, an answer that is not possible, and a configuration that
            cannot be read.
    """
    path, train_length, length = options.path, options.train_length, options.length
    tune = options.tune or options.tune_tokens is not None
    answers = {name: getattr(options, name) for name in QUESTIONS}
    silent = path is None and all(value is None for value in answers.values())
    if sys.stdin.isatty() and sys.stdout.isatty() and not options.as_json and silent:
        answers = {name: _ask(name) for name in QUESTIONS}
        train_length = train_length or _ask_length("What is its training length in tokens?", LENGTH)
        length = length or _ask_length("What is the longest context in tokens?", train_length)
    choices: dict[str, Any] = {
        "model": "checkpoint" if tune else "new", "kind": "decoder", "task": "general", "engine": "any",
    }  # fmt: skip
    trained = LENGTH
    if path is not None:
        with naming(path):
            name = "" if hub_id(path) is None else path
            checkpoint, kind_read = read_checkpoint(Path(local_source(path)), name=name)
        choices |= {"model": "checkpoint", "kind": kind_read, "checkpoint": checkpoint}
        if checkpoint.declared is None and train_length is None:
            raise ValueError(
                f"{path}: declares no context length: give the training length of the model (--train-length)"
            )
        trained = checkpoint.declared or LENGTH
    choices |= {name: value for name, value in answers.items() if value is not None}
    trained = trained if train_length is None else train_length
    longest = trained if length is None else length
    needs = Needs(
        **choices, train_length=trained, length=longest, tune=tune, memory=options.memory,
        tune_tokens=options.tune_tokens,
    )  # fmt: skip
    answer = recommend(needs)
    sys.stdout.write(json.dumps(asdict(answer), indent=2) + "\n" if options.as_json else as_text(answer))
    return 0


def as_text(answer: Answer) -> str:
    """The answer as a terminal shows it: the default first, then a label for each section."""
    first, *rest = answer.sentences
    lines = [*paragraph(answer.question, sys.stdout), "", *paragraph(f"{first.text}{basis_of(first)}", sys.stdout), ""]
    facts, last = [], ""
    for sentence in rest:
        label = SECTIONS[sentence.section] if sentence.section != last else ""
        facts.append((label, f"{sentence.text}{basis_of(sentence)}"))
        last = sentence.section
    cited = dict.fromkeys(key for sentence in answer.sentences for key in sentence.sources if key in SOURCES)
    for number, key in enumerate(cited):
        source = SOURCES[key]
        facts.append(("Sources" if number == 0 else "", f"{source.title}: {source.where} ({source.shows})"))
    return "\n".join([*lines, *labelled(facts, sys.stdout)]) + "\n"


def basis_of(sentence: Sentence) -> str:
    """The evidence for a sentence, in brackets; nothing after a command."""
    if sentence.section == "check":
        return ""
    named = dict.fromkeys(SOURCES[key].title if key in SOURCES else page_address(key) for key in sentence.sources)
    return f"  [{sentence.basis}: {', '.join(named)}]"


def _ask(name: str) -> str:
    question, answers = QUESTIONS[name]
    answer = input(f"{question} [{' | '.join(answers)}] ").strip().lower() or answers[0]
    if answer not in answers:
        raise ValueError(f"{name} must be one of {', '.join(answers)}, got {answer!r}")
    return answer


def _ask_length(question: str, default: int) -> int:
    try:
        return tokens(input(f"{question} [{default}] ").strip() or str(default))
    except ArgumentTypeError as error:
        raise ValueError(str(error)) from error
