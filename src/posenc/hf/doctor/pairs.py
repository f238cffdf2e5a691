"""Two models, or two programs, of one rotation: ``posenc doctor MODEL --draft DRAFT``, ``--trainer T --engine E``.

**A draft of speculative decoding** runs at the target's positions. A separate draft model has a rotation of its own,
and needs to reach as far as the target. A draft head (EAGLE, DFlash) also reads the target's hidden states; it is
trained and served as a small model with its own config.json, in which converters have lost the scaling and trainers
the base.

**Trainer and engine**: reinforcement learning samples with an engine and trains with a trainer. Where one of them
leaves out a key of the rope block, such as attention_factor, their log probabilities differ by more than rounding, and
no error says so. What each computes is looked up in the table of engines, by the class that serves the model type, for
texts within and beyond the original length; nothing runs. Trainers that load the model by transformers compute what
the file says by definition.

Source: vllm-project/vllm#48894 (the head's table of cos and sin ends at its own max_position_embeddings),
    sgl-project/sglang#6783 (beyond it slower than without a draft), vllm-project/speculators#574 (scaling lost in
    conversion), NVIDIA-NeMo/Automodel#2399 (a head that fell back to another rope type), sgl-project/SpecForge#270
    (base not read), wejoncy/sfllm#32 (a head trained at base 10,000 beside a target of 1,000,000: 2.50 accepted tokens
    there, 2.39 at the target's base).
"""

from __future__ import annotations

from collections.abc import Iterator

from posenc.arguments import check_choice, one_line, shown
from posenc.hf.config.rope_config import RopeConfig
from posenc.hf.config.rotation import Rotation, text_rope
from posenc.hf.doctor.report import Report, report_of
from posenc.hf.findings import Finding
from posenc.hf.serving.lines import ENGINES, Serving, column_of, differences_of, reach_of, trainer_line
from posenc.hf.serving.table import (
    TITLES,
    UNKNOWN,
    WITHIN,
    engine_result,
    rows_of_blocks,
    spelling_of,
    version_of,
)
from posenc.hf.sources.load import Config

_HEAD_KEYS = ("eagle_config", "dflash_config", "draft_vocab_size", "speculators_model_type")
_HEAD_NAMES = ("eagle", "dflash", "medusa", "mtp", "draft")
BY_TRANSFORMERS = ("transformers", "trl", "axolotl", "llama-factory", "verl")
IN_TABLE = ("litgpt", "torchtitan", "torchtune", "unsloth")  # columns of the table of engines
AGREEING_TRAINERS = (*BY_TRANSFORMERS, *IN_TABLE, "megatron")
_KEY = "rotation"


def examine_draft(draft: RopeConfig, target: RopeConfig, source: str = "the draft") -> Report:
    """The findings on a draft's rotation and lengths, held against its target's.

    Args:
        draft, target: their configs, as `read_rope` gives them.
        source: what the report names.

    Returns:
        A report whose first note says up to which length the draft fits: a fault where it ends before the target, a
        suspicion where a draft head rotates otherwise than the target.
    """
    length, needed = (reach_of(config.facts) or config.facts.declared for config in (draft, target))
    if length is None or needed is None:
        which = "draft" if length is None else "target"
        text = f"is not declared by the {which}: up to where the draft fits is not known"
        findings = [Finding("length", text, "draft-length-unknown", "suspicion")]
    elif length < needed:
        text = (
            f"{length:,} tokens is all that the draft takes, and the target takes {needed:,}: beyond, engines fail or "
            f"accept almost no draft; serve at most {length:,}, or train and extend the draft for more"
        )
        findings = [Finding("max_position_embeddings", text, "draft-too-short", "fault")]
    else:
        text = f"fits: the draft takes {length:,} tokens, the target {needed:,}"
        findings = [Finding("length", text, "draft-length-fits")]
    first, second = (next((r for r in c.rotations.values() if r is not None), None) for c in (draft, target))
    is_head = _is_head(draft.config)
    if is_head and first is not None and second is not None:
        findings += _on_rotation(first, second)
    kind, checked = (
        ("a draft head", ("lengths", "base", "scaling")) if is_head else ("a separate draft model", ("lengths",))
    )
    return report_of(source, findings, checked, (), f"{kind} for {target.model_type}")


def _is_head(config: Config) -> bool:
    """Whether a config is of a head that reads a target's hidden states, by its keys and the name of its class."""
    names = " ".join(str(name).lower() for name in config.get("architectures") or [])
    return any(key in config for key in _HEAD_KEYS) or any(name in names for name in _HEAD_NAMES)


def _on_rotation(own: Rotation, targets: Rotation) -> Iterator[Finding]:
    """What differs between a head's rotation and its target's."""
    ours, theirs = text_rope(own), text_rope(targets)
    if ours.base != theirs.base:
        text = (
            f"is {ours.base:.10g} in the draft and {theirs.base:.10g} in the target: right only if the head was "
            "trained under it, which its training code decides"
        )
        yield Finding("rope_theta", text, "draft-base-differs", "suspicion")
    own_scaling, of_target = (None if rope.scaling is None else one_line(rope.scaling) for rope in (ours, theirs))
    if own_scaling is None and of_target is not None:
        text = f"is missing in the draft, and the target has {of_target}: converters of heads have dropped it"
        yield Finding("rope_scaling", text, "draft-scaling-lost", "suspicion")
    elif own_scaling != of_target:
        text = f"is {own_scaling} in the draft and {of_target or 'none'} in the target"
        yield Finding("rope_scaling", text, "draft-scaling-differs", "suspicion")
    elif ours.base == theirs.base:
        yield Finding("rotation", "has the target's base and scaling", "draft-rotation-fits")
    if type(own) is not type(targets):
        text = "is in one of draft and target alone: the other reads one position of a token (no M-RoPE)"
        yield Finding("mrope_section", text, "draft-sections-differ", "suspicion")


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
    check_choice("trainer", trainer, AGREEING_TRAINERS)
    check_choice("engine", engine, ENGINES)
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
    """Faults and suspicions on each row of the table that the config belongs to.

    Those are of texts beyond the original length, and of short texts under the same served length; each once.
    """
    if not version_of(column):
        yield Finding(_KEY, f"was not measured in {TITLES.get(column, column)}", "not-measured", "suspicion")
        return
    text, results = serving.facts.text, [*serving.verdict(column).results]
    for original in {block.get("original_max_position_embeddings") for block in serving.blocks if block} - {None}:
        within = [row for row in rows_of_blocks(serving.blocks, original) if row.endswith(WITHIN)]
        model_type = text.model_type if text.known else UNKNOWN
        results += [engine_result(column, row, spelling_of(text), model_type) for row in within]
    for result in dict.fromkeys(results):
        if result.right is False:
            remedy = "" if result.remedy is None else f"; remedy: {result.remedy}"
            yield Finding(_KEY, f"differs: {result}{remedy}", "rotation-differs", "fault")
        elif not result.right:
            yield Finding(_KEY, f"is open: {result}", "not-measured", "suspicion")
