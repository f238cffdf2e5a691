"""Whether a draft model of speculative decoding fits its target, and up to which length: ``posenc doctor --draft``.

A draft runs at the target's positions. A separate draft model has a rotation of its own, and needs to reach as far as
the target. A draft head (EAGLE, DFlash) also reads the target's hidden states; it is trained and served as a small
model with its own config.json, in which converters have lost the scaling and trainers the base.

Source: vllm-project/vllm#48894 (the head's table of cos and sin ends at its own max_position_embeddings),
    sgl-project/sglang#6783 (beyond it slower than without a draft), vllm-project/speculators#574 (scaling lost in
    conversion), NVIDIA-NeMo/Automodel#2399 (a head that fell back to another rope type), sgl-project/SpecForge#270
    (base not read), wejoncy/sfllm#32 (a head trained at base 10,000 beside a target of 1,000,000: 2.50 accepted tokens
    there, 2.39 at the target's base).
"""

from __future__ import annotations

from collections.abc import Iterator

from posenc.arguments import one_line
from posenc.hf.config.rope_config import RopeConfig
from posenc.hf.config.rotation import Rotation, text_rope
from posenc.hf.config.text_config import max_length
from posenc.hf.doctor.report import Report, report_of
from posenc.hf.findings import Finding
from posenc.hf.serving.lines import reach_of
from posenc.hf.sources.load import Config

_HEAD_KEYS = ("eagle_config", "dflash_config", "draft_vocab_size", "speculators_model_type")
_HEAD_NAMES = ("eagle", "dflash", "medusa", "mtp", "draft")


def examine_draft(draft: RopeConfig, target: RopeConfig, source: str = "the draft") -> Report:
    """The findings on a draft's rotation and lengths, held against its target's.

    Args:
        draft, target: their configs, as `read_rope` gives them.
        source: what the report names.

    Returns:
        A report whose first note says up to which length the draft fits: a fault where it ends before the target, a
        suspicion where a draft head rotates otherwise than the target.
    """
    findings = [*_on_length(draft, target)]
    is_head = _is_head(draft.config)
    first, second = (next((r for r in c.rotations.values() if r is not None), None) for c in (draft, target))
    if is_head and first is not None and second is not None:
        findings += _on_rotation(draft, first, second)
    kind = "a draft head" if is_head else "a separate draft model"
    checked = ("lengths", *(("base", "scaling") if is_head else ()))
    return report_of(source, findings, checked, (), f"{kind} for {target.model_type}")


def _is_head(config: Config) -> bool:
    """Whether a config is of a head that reads a target's hidden states, by its keys and the name of its class."""
    names = " ".join(str(name).lower() for name in config.get("architectures") or [])
    return any(key in config for key in _HEAD_KEYS) or any(name in names for name in _HEAD_NAMES)


def _reach(config: RopeConfig) -> int | None:
    """Tokens that a model takes: what its rotation is meant for, and what its config declares; None: not said."""
    return reach_of(config.facts) or max_length(config.text_config)


def _on_length(draft: RopeConfig, target: RopeConfig) -> Iterator[Finding]:
    length, needed = _reach(draft), _reach(target)
    if length is None or needed is None:
        which = "draft" if length is None else "target"
        text = f"is not declared by the {which}: up to where the draft fits is not known"
        yield Finding("length", text, "draft-length-unknown", "suspicion")
    elif length < needed:
        text = (
            f"{length:,} tokens is all that the draft takes, and the target takes {needed:,}: beyond, engines fail or "
            f"accept almost no draft; serve at most {length:,}, or train and extend the draft for more"
        )
        yield Finding("max_position_embeddings", text, "draft-too-short", "fault")
    else:
        yield Finding("length", f"fits: the draft takes {length:,} tokens, the target {needed:,}", "draft-length-fits")


def _on_rotation(draft: RopeConfig, own: Rotation, targets: Rotation) -> Iterator[Finding]:
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
