"""``posenc doctor``: what is wrong with the positions of a checkpoint, and its correction."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posenc.input_files import naming, read_text
from posenc_cli.parsing import PATH, Parser, tokens

if TYPE_CHECKING:
    from posenc.hf.doctor import Finding, Report


def run_parser() -> Parser:
    """The options of the command."""
    parser = Parser(
        "doctor",
        "Each finding says what is wrong, what it costs, and what to write.",
        epilog="Exit code: 0 without findings or with notes only, 1 for a fault, 3 for a suspicion without a fault, 2 "
        "for bad usage or unreadable input. After --fix and --in-place: of the findings that are left. With --compare: "
        "0 without drift, 1 with drift, 3 where only limits of other files differ.",
    )
    parser.add_argument("path", nargs="?", help=PATH)
    parser.add_argument(
        "--compare", nargs=2, metavar=("A", "B"),
        help="print what differs between two checkpoints or configurations in their positions, and examine neither",
    )  # fmt: skip
    parser.add_argument(
        "--draft", metavar="DRAFT",
        help="print whether this draft model of speculative decoding fits the checkpoint, and up to which length",
    )  # fmt: skip
    parser.add_argument(
        "--trainer", metavar="NAME",
        help="with --engine, print whether both compute one rotation from the file: transformers, trl, axolotl, "
        "llama-factory, verl, unsloth, litgpt, torchtitan, torchtune, megatron",
    )  # fmt: skip
    parser.add_argument("--engine", metavar="NAME", help="an engine of posenc serve, such as vllm or sglang")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--fix", metavar="OUT", dest="out", help="write a corrected copy to this new folder")
    where.add_argument(
        "--in-place", action="store_true", help="correct the files; a copy of each is kept as NAME.original"
    )
    parser.add_argument(
        "--guesses", action="store_true", help="also write corrections whose numbers only the model's authors know"
    )
    parser.add_argument(
        "--weights", action="store_true",
        help="also load the model and measure its loss within and beyond the training length, and with other rotations",
    )  # fmt: skip
    parser.add_argument("--text", metavar="FILE", help="text for --weights (default: English documentation of Python)")
    parser.add_argument(
        "--most", type=tokens, default=4096, metavar="TOKENS", help="longest context to measure (default: %(default)s)"
    )
    parser.add_argument(
        "--accept", action="append", default=[], metavar="NAME", help="a finding that is intended; repeatable"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 for a suspicion too")
    parser.add_shared("--json", "--trust-remote-code")
    return parser


def run(options: Namespace) -> int:
    """Print the findings and write corrections if requested; the exit code of the findings that are left.

    With ``--compare`` print what differs between two checkpoints instead, with ``--draft`` whether a draft model fits
    its target, with ``--trainer`` and ``--engine`` whether both compute one rotation from the file.

    Raises:
        ValueError: as `posenc.hf.doctor.examine`, `fix` and `compare`, and unless there is one or two to look at.
    """
    from posenc.hf.doctor import compare as compare_checkpoints
    from posenc.hf.doctor import examine, fix
    from posenc.hf.sources.load import hub_id, local_source

    path, out, in_place, as_json = options.path, options.out, options.in_place, options.as_json
    if (path is None) == (options.compare is None):
        raise ValueError("doctor: give one checkpoint to examine, or two after --compare")
    if options.draft is not None or options.trainer is not None or options.engine is not None:
        return _run_pair(options)
    if options.compare is not None:
        if out is not None or in_place or options.weights or options.accept:
            raise ValueError("--compare: --fix, --in-place, --weights and --accept are for one checkpoint")
        comparison = compare_checkpoints(*(Path(local_source(source)) for source in options.compare))
        sys.stdout.write((comparison.as_json() if as_json else str(comparison)) + "\n")
        return comparison.exit_code(strict=options.strict)
    if in_place and (model := hub_id(path)) is not None:
        raise ValueError(f"{model} is a model of the Hugging Face Hub, whose cache is not written to: give --fix OUT")
    path = str(local_source(path))
    how: dict[str, Any] = {name: getattr(options, name) for name in ("weights", "most", "trust_remote_code")}
    how["text"] = None if options.text is None else _text_of(Path(options.text))
    with naming(path):
        report = examine(Path(path), **how).accepting(set(options.accept))
    if out is None and not in_place:
        sys.stdout.write((report.as_json() if as_json else str(report)) + "\n")
        return report.exit_code(strict=options.strict)
    with naming(path):
        written = fix(path, out, in_place=in_place, guesses=options.guesses, accept=options.accept, **how)
    after = report
    if written:
        after = examine(Path(out or path), **how).accepting(set(options.accept))
    sys.stdout.write((_json(report, written, after) if as_json else _text(report, written, after)) + "\n")
    return after.exit_code(strict=options.strict)


def _run_pair(options: Namespace) -> int:
    """Print what a draft and its target, or a trainer and an engine, make of the rotation; the exit code."""
    from posenc.hf.config.rope_config import read_rope
    from posenc.hf.sources.load import local_source

    path = options.path
    pair = options.trainer is not None
    one = pair == (options.engine is not None) and pair == (options.draft is None)
    if path is None or not one or options.out is not None or options.in_place:
        raise ValueError("doctor: give --trainer and --engine with one model, or --draft DRAFT with its target")
    with naming(path):
        config = read_rope(local_source(path))
    if pair:
        from posenc.hf.doctor.pairs import examine_agreement

        report = examine_agreement(config, options.trainer, options.engine, str(path))
    else:
        from posenc.hf.doctor.pairs import examine_draft

        with naming(options.draft):
            draft = read_rope(local_source(options.draft))
        report = examine_draft(draft, config, str(options.draft))
    report = report.accepting(set(options.accept))
    sys.stdout.write((report.as_json() if options.as_json else str(report)) + "\n")
    return report.exit_code(strict=options.strict)


def _text_of(file: Path) -> str:
    from posenc.evaluation.likelihood import TEXT_BYTES  # loads torch, which a configuration does not need

    return read_text(file, TEXT_BYTES)


def _text(before: Report, written: list[Finding], after: Report) -> str:
    if not written:
        return f"{before}\nnothing is written: no finding has a correction that is certain"
    return f"{before}\nwritten: {', '.join(finding.name for finding in written)}\n{after}"


def _json(before: Report, written: list[Finding], after: Report) -> str:
    parts = {"before": before, "after": after}
    known = {name: json.loads(report.as_json()) for name, report in parts.items()}
    return json.dumps({**known, "written": [finding.name for finding in written]}, indent=2)
