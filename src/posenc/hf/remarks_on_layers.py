"""Remarks on layers: windows, kinds and orders of layers that contradict one another, and keys that no layer reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from posenc.hf.families.layer_patterns import CHUNKED, FULL, KINDS, SLIDING
from posenc.hf.layer_kinds import lacks_window, layer_kinds, patterned
from posenc.hf.non_rotary import is_non_rotary, position_schemes
from posenc.hf.numbers import LAYERS, TOKENS, is_count, is_number, shown
from posenc.hf.part import BLOCKS
from posenc.hf.remark import Level, Remark
from posenc.hf.section import Section, layer_types, length_key, max_length
from posenc.hf.spelling import beside_blocks

_OTHER_LENGTHS = ("model_max_length", "max_sequence_length", "seq_length", "seq_len", "max_seq_len")


def on_layers(section: Section) -> Iterator[Remark]:
    """Remarks on the layers and lengths of a text model."""
    yield from _on_other_lengths(section)
    yield from _on_no_rotation(section)
    yield from _on_blocks(section)
    yield from _on_bases(section)
    try:
        kinds = layer_kinds(section)
    except ValueError as error:  # which the reader of layers tells by itself
        yield Remark("layer_types", f"cannot be read: {error}", "layers-unread")
        return
    yield from _on_kinds(section, kinds)
    dual = section.config.get("dual_chunk_attention_config")
    if isinstance(dual, dict):
        original = dual.get("original_max_position_embeddings")
        trained = f" beyond the {original:,} tokens of training" if is_count(original) else ""
        text = f"asks for dual chunk attention{trained}, which vLLM computes and transformers ignores; not read here"
        yield Remark("dual_chunk_attention_config", text, "dual-chunk-unread")


def _on_other_lengths(section: Section) -> Iterator[Remark]:
    """A length under a key that transformers does not read, beside another under the key that it reads."""
    longest = max_length(section)
    for name in _OTHER_LENGTHS:
        length = section.config.get(name)
        if section.known and longest is not None and is_count(length, TOKENS) and length != longest:
            text = (
                f"= {length:,} is not read by transformers, and {length_key(section)} says {longest:,}: for which of "
            )
            text += "the two lengths the model is meant the file does not say"
            yield Remark(name, text, "length-unread")


def _on_no_rotation(section: Section) -> Iterator[Remark]:
    """Keys of a rotation in a model whose code has none."""
    config = section.config
    kind = config.get("position_embedding_type")
    if is_non_rotary(section.family) and isinstance(kind, str) and kind.startswith("relative_key"):
        text = f"= {kind!r} asks for vectors of the distance, which version 4 of transformers had; version 5 ignores "
        text += "the key and computes without them (a fault of transformers, not of the file)"
        yield Remark("position_embedding_type", text, "position-type-ignored")
    if not position_schemes(section):
        return
    for name in BLOCKS:
        block = config.get(name)
        kind = block.get("rope_type", block.get("type")) if isinstance(block, dict) else None
        if kind not in (None, "default"):
            text = f"= {shown(block)} is read by nobody: the code of {section.model_type} has no rotation"
            yield Remark(name, text, "scaling-unread", "suspicion")


def _on_blocks(section: Section) -> Iterator[Remark]:
    for name in BLOCKS:
        block: Any = section.config.get(name)
        if not isinstance(block, dict) or not any(isinstance(value, dict) for value in block.values()):
            continue
        for kind in beside_blocks(section, block):
            if isinstance(block[kind], dict):
                text = f"has a block for {shown(kind)}, and there are no such layers: nobody reads it"
                level: Level = "note" if kind in KINDS else "suspicion"  # classes save blocks of kinds not in use
                yield Remark(name, text, "block-of-no-layer", level)
            else:
                text = f"has {kind} = {shown(block[kind])} beside the blocks of layers, where transformers ignores it"
                yield Remark(name, text, "key-beside-blocks")


def _on_bases(section: Section) -> Iterator[Remark]:
    """A base of sliding layers above that of full ones, which no released model has."""
    own = section.rotation.kinds
    if set(own) != {FULL, SLIDING}:
        return
    wide, local = (section.config.get(own[kind].theta_key, own[kind].base) for kind in (FULL, SLIDING))
    if is_number(wide, 1) and is_number(local, 1) and local > wide:
        text = f"= {shown(local)} is the base of the sliding layers, above the {shown(wide)} of the full ones "
        text += f"({own[FULL].theta_key}); were the two exchanged?"
        yield Remark(own[SLIDING].theta_key, text, "bases-exchanged", "suspicion")


def _on_kinds(section: Section, kinds: list[str]) -> Iterator[Remark]:
    listed, pattern = layer_types(section), section.family.layers
    unknown = [kind for kind in dict.fromkeys(kinds) if kind not in KINDS]
    if unknown and section.known:
        text = f"names {', '.join(map(shown, unknown[:4]))}, which transformers does not know"
        yield Remark("layer_types", text, "layer-kind-unknown", "suspicion")
    for kind in dict.fromkeys(kinds or [FULL]):
        if lacks_window(section, kind):
            key = "attention_chunk_size" if kind == CHUNKED else pattern.window.key
            count = f"{kinds.count(kind)} layers" if kinds else "layers"
            text = f"gives no window, which {count} of {kind} need: transformers fails on them"
            yield Remark(key, text, "window-missing", "fault")
    period = section.config.get(pattern.period_key) if pattern.period_key else None
    if listed and is_count(period, LAYERS) and patterned(section, len(kinds)) != kinds:
        text = f"= {period} means another order of layers than layer_types, which transformers reads"
        yield Remark(pattern.period_key, text, "layer-orders-differ", "suspicion")
