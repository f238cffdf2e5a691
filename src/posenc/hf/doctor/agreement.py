"""Whether a trainer and an engine compute one rotation from one file: ``posenc doctor MODEL --trainer T --engine E``.

Reinforcement learning samples with an engine and trains with a trainer. Where one of them leaves out a key of the rope
block, such as attention_factor, their log probabilities differ by more than rounding, and no error says so. What each
computes is looked up in the table of engines, by the class that serves the model type, for texts within and beyond the
original length; nothing runs. Trainers that load the model by transformers compute what the file says by definition.
"""

from __future__ import annotations

from collections.abc import Iterator

from posenc.arguments import shown
from posenc.hf.config.rope_config import RopeConfig
from posenc.hf.doctor.report import Report, report_of
from posenc.hf.findings import Finding
from posenc.hf.serving.lines import ENGINES, Serving, column_of, differences_of, trainer_line
from posenc.hf.serving.table import (
    TITLES,
    UNKNOWN,
    WITHIN,
    EngineResult,
    engine_result,
    rows_of_blocks,
    spelling_of,
    version_of,
)

BY_TRANSFORMERS = ("transformers", "trl", "axolotl", "llama-factory", "verl")
IN_TABLE = ("litgpt", "torchtitan", "torchtune", "unsloth")  # columns of the table of engines
AGREEING_TRAINERS = (*BY_TRANSFORMERS, *IN_TABLE, "megatron")
_KEY = "rotation"


def examine_agreement(config: RopeConfig, trainer: str, engine: str, source: str = "the config") -> Report:
    """The findings on what a trainer and an engine make of a config's rotation.

    Args:
        config: of the model, as `read_rope` gives it.
        trainer: one of `AGREEING_TRAINERS`.
        engine: one of `posenc.hf.serving.lines.ENGINES`.
        source: what the report names.

    Returns:
        A report: a fault where one of the two was measured to compute another rotation than the file's, a suspicion
        where that was not measured, or where its code reads a key otherwise.

    Raises:
        ValueError: for a trainer or an engine that is not known.
    """
    for name, known, what in ((trainer, AGREEING_TRAINERS, "trainer"), (engine, ENGINES, "engine")):
        if name not in known:
            raise ValueError(f"{what} must be one of {', '.join(known)}, got {shown(name)}")
    serving = Serving(config.facts, None, source)
    findings = [*_of_trainer(serving, trainer)]
    if engine != "transformers":
        findings += [*_of_column(serving, column_of(engine))]
        findings += [Finding(_KEY, text, "read-otherwise", "suspicion") for text in differences_of(serving, engine)]
        if serving.beyond:
            text = f"alone was measured of {engine}; not compared: {', '.join(serving.beyond)}"
            findings.append(Finding(_KEY, text, "attention-not-compared"))
    if not any(finding.alarms for finding in findings):
        text = f"is the same in {trainer} and {engine}, by transformers' own code and the table of engines"
        findings.append(Finding(_KEY, text, "same-rotation"))
    subject = f"{config.model_type}, trained by {trainer}, served by {engine}"
    return report_of(source, findings, (trainer, engine), (), subject)


def _of_trainer(serving: Serving, trainer: str) -> Iterator[Finding]:
    if trainer in BY_TRANSFORMERS:
        if not serving.facts.text.known:
            text = f"of {shown(serving.facts.text.model_type)} is computed by code that posenc does not know"
            yield Finding(_KEY, text, "not-measured", "suspicion")
    elif trainer in IN_TABLE:
        yield from _of_column(serving, trainer)
    else:
        line = trainer_line(serving, trainer)
        if not line.command:
            yield Finding(_KEY, f"cannot be set in {line.name}: {line.text}", "rotation-differs", "fault")
        elif not line.right:
            yield Finding(_KEY, f"in {line.name} was not measured", "not-measured", "suspicion")


def _of_column(serving: Serving, column: str) -> Iterator[Finding]:
    """Faults and suspicions on each row of the table that the config belongs to."""
    if not version_of(column):
        yield Finding(_KEY, f"was not measured in {TITLES.get(column, column)}", "not-measured", "suspicion")
        return
    for result in _results(serving, column):
        if result.right is False:
            remedy = "" if result.remedy is None else f"; remedy: {result.remedy}"
            yield Finding(_KEY, f"differs: {result}{remedy}", "rotation-differs", "fault")
        elif not result.right:
            yield Finding(_KEY, f"is open: {result}", "not-measured", "suspicion")


def _results(serving: Serving, column: str) -> list[EngineResult]:
    """Of texts beyond the original length, and of short texts under the same served length; each once."""
    results = [*serving.verdict(column).results]
    for original in {block.get("original_max_position_embeddings") for block in serving.blocks if block} - {None}:
        within = [row for row in rows_of_blocks(serving.blocks, original) if row.endswith(WITHIN)]
        text = serving.facts.text
        model_type = text.model_type if text.known else UNKNOWN
        results += [engine_result(column, row, spelling_of(text), model_type) for row in within]
    return list(dict.fromkeys(results))
