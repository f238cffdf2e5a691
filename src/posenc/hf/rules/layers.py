"""Rules on layers: their kinds, windows, and which of them rotate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from posenc.arguments import shown
from posenc.hf.config.facts import ModelFacts
from posenc.hf.config.layers import patterned
from posenc.hf.config.rope_keys import BLOCKS, unread_block_keys
from posenc.hf.config.text_config import is_non_rotary, layer_types, layers_without_rope
from posenc.hf.families.family import FULL, KINDS, SLIDING
from posenc.hf.findings import Finding
from posenc.hf.limits import LAYERS, TOKENS, is_count, is_number
from posenc.hf.rules.releases import release_like

_GEMMA_27B = (4608, 5376)  # channels of the streams of Gemma 2 and 3 27B, whose scale is that of the quotient


def kinds_of_layers(facts: ModelFacts) -> Iterator[Finding]:
    """Kinds of layers that cannot be read, that two keys order differently, or that releases have otherwise.

    Two orders and letters without a list: vllm-project/vllm-metal#676. A lost window: ggml-org/llama.cpp#26848.
    """
    text = facts.text
    kinds = facts.layer_kinds if text.known else []
    if facts.layers_unread:
        level: Any = "suspicion" if text.known or is_non_rotary(text.family) else "note"
        yield Finding("layer_types", f"cannot be read: {facts.layers_unread}", "layers-unread", level)
        return
    pattern, listed = text.family.layers, layer_types(text) if text.known else []
    period = text.get(pattern.period_key) if pattern.period_key else None
    if isinstance(period, str) and kinds and not listed:
        line = f"= {period!r} is read by other programs; transformers fails without layer_types: write the list"
        yield Finding(pattern.period_key, line, "layer-orders-differ", "fault", {"layer_types": kinds}, True)
    if listed and (isinstance(period, str) or is_count(period, LAYERS)) and patterned(text, len(kinds)) != kinds:
        line = f"= {shown(period)} means another order of layers than layer_types, which is read: correct the wrong key"
        yield Finding(pattern.period_key, line, "layer-orders-differ", "suspicion")
    other = {*pattern.cycle} - {FULL}
    if len(other) != 1 or pattern.only_listed or not text.get(pattern.types_key) or pattern.period_key in text:
        return
    (kind,), built = other, patterned(text, len(kinds))
    if {*built} != {*pattern.cycle} or built == kinds:
        return
    exchange = {FULL: kind, kind: FULL}
    if [exchange.get(of, of) for of in built] == kinds:
        line = f"has full attention where this family has {kind}, and the reverse: were the two kinds exchanged?"
        yield Finding(pattern.types_key, line, "layer-kinds-exchanged", "suspicion")
    elif {*kinds} == {FULL} and release_like(text) is not None:
        line = (
            f"lists full attention for all {len(kinds)} layers, and published models of these sizes have "
            f"{built.count(kind)} of {kind}: the windows are lost"
        )
        yield Finding(pattern.types_key, line, "sliding-layers-lost", "suspicion")


def window_switch(facts: ModelFacts) -> Iterator[Finding]:
    """A window that no layer has, for want of its switch: Blackwellboy/model-serving-minefield#107."""
    text, switch = facts.text, facts.text.family.layers.window.switch
    if not switch or not text.known:
        return
    kinds = facts.layer_kinds
    if facts.layers_unread:  # another rule says so
        return
    window, given = text.get("sliding_window"), "sliding_window" in text
    if is_count(window, TOKENS) and switch not in text and SLIDING not in kinds:
        line = f"= {window:,} has no effect without {switch}: true, and every layer attends to the whole context"
        yield Finding("sliding_window", line, "window-of-no-layer")
    elif text.get(switch) is not True or not given or not kinds:
        return
    elif not window:
        line = f"is true, and sliding_window is {shown(window)}: no layer has a window; write its size, or "
        yield Finding(switch, f"{line}{switch}: false", "window-of-no-layer", "suspicion")
    elif SLIDING not in kinds:
        key = text.family.layers.sliding_from_key
        line = f"is true and sliding_window {shown(window)}, and none of {len(kinds)} layers has a window "
        yield Finding(switch, f"{line}({key} = {shown(text.get(key))})", "window-of-no-layer", "suspicion")


def two_windows(facts: ModelFacts) -> Iterator[Finding]:
    """ModernBERT's window under two keys that differ, of which transformers takes the other one than engines do."""
    text, window = facts.text, facts.text.family.layers.window
    own, other = text.get(window.key), text.get("sliding_window")
    if window.halved and window.key != "sliding_window" and is_count(own) and is_count(other) and own != 2 * other:
        line = f"= {own:,}, of both sides, is ignored by transformers next to sliding_window = {other:,}: keep one"
        yield Finding(window.key, line, "windows-differ", "suspicion")


def nope_layers(facts: ModelFacts) -> Iterator[Finding]:
    """no_rope_layers, in which 1 means that a layer rotates, read the other way round; nothing else tells.

    huggingface/transformers#43756, timtoole02/Camelid#535.
    """
    text, flags = facts.text, facts.text.get("no_rope_layers")
    if text.rotation.unrotated_every is None or not isinstance(flags, list) or not flags:
        return
    every = text.get("no_rope_layer_interval", text.rotation.unrotated_every)
    if not is_count(every, LAYERS):
        return
    usual = [int((layer + 1) % every != 0) for layer in range(len(flags))]
    unrotated = layers_without_rope(text)
    line = f"(1 means that a layer rotates): {len(unrotated)} of {len(flags)} layers do not rotate"
    if flags == [1 - flag for flag in usual] or len(unrotated) == len(flags) > 1:
        line += "; with the usual list exactly the others do not: the flags were inverted"
        yield Finding("no_rope_layers", line, "nope-layers-inverted", "suspicion", {"no_rope_layers": usual})
    elif not unrotated and 0 in usual:
        line += f"; in this family every {every}. layer does not, and its weights were trained so"
        yield Finding("no_rope_layers", line, "nope-layers-lost", "suspicion", {"no_rope_layers": usual})


def blocks_of_layers(facts: ModelFacts) -> Iterator[Finding]:
    """Blocks by kind of layers where no layer is of the kind, keys outside of them, and a flat block in their place.

    Kinds and keys: four published files (Laguna). Flat: saved by transformers 5.0 to 5.15 (OLMo 3).
    """
    text = facts.text
    for name in BLOCKS:
        block: Any = text.get(name)
        if not isinstance(block, dict) or not block:
            continue
        if not any(isinstance(value, dict) for value in block.values()):
            if name == BLOCKS[0] and text.rotation.flat_dropped:
                yield _flat_block(facts, block)
            continue
        unread = unread_block_keys(text, block)
        kind = unread[0] if unread else ""
        if unread and isinstance(block[kind], dict):
            line = f"has a block for {shown(kind)}, which no layer is: it is not read"
            known = kind in KINDS  # classes save blocks of kinds not in use
            yield Finding(name, line, "block-of-no-layer", "note" if known else "suspicion")
        elif unread:
            line = f"has {kind} = {shown(block[kind])} outside the blocks of layers, where transformers ignores it"
            yield Finding(name, line, "key-outside-blocks")


def _flat_block(facts: ModelFacts, block: dict[str, Any]) -> Finding:
    read, kinds = {part.kind: part.effective for part in facts.blocks}, facts.text.rotation.kinds.values()
    base, one_key = read[FULL]["rope_theta"], len({keys.theta_key for keys in kinds}) == 1
    line = "is flat, and the class of this family has a block for each kind of layers: "
    if block.get("rope_type", "default") == "default" and block.get("rope_theta", base) == base:
        return Finding(BLOCKS[0], f"{line}these defaults say the same", "flat-block-dropped")
    line += (
        f"transformers 5.23 computes with its defaults (base {base:g} in full attention, no scaling) and drops "
        f"{shown(block)} without a word"
    )
    of_windows = block.get("rope_theta") if one_key else None
    sliding = {"rope_type": "default", "rope_theta": of_windows or read[SLIDING]["rope_theta"]}
    keys = {BLOCKS[0]: {FULL: {"rope_theta": base, **block}, SLIDING: sliding}}
    return Finding(BLOCKS[0], line, "flat-block-dropped", "fault", keys)


def softmax_scale(facts: ModelFacts) -> Iterator[Finding]:
    """Granite's multiplier lost, for which its class takes 1 (OpenNMT/CTranslate2#1882): 64 to 128 times too sharp.

    Gemma's scale taken for the quotient, 224 in the place of 256: huggingface/transformers#31891.
    """
    text, key = facts.text, facts.text.family.attention.scale
    if key not in ("query_pre_attn_scalar", "attention_multiplier") or not text.known:
        return
    value = text.get(key)
    granite = text.model_type.startswith("granite") and key == "attention_multiplier"
    lost = value is None and text.family.attention.scale_number == 1
    if granite and (lost or is_number(value, 1, above=True)):
        has = "is not given, which means 1" if value is None else f"is {shown(value)}"
        line = (
            f"{has}, and the attention logits are multiplied by it; published models have 1/64 to 1/128, the inverse "
            "of the width of a head: copy the original's"
        )
        yield Finding(key, line, "softmax-scale", "suspicion")
    width, heads, stream = (text.get(name) for name in ("head_dim", "num_attention_heads", "hidden_size"))
    gemma = text.model_type.startswith("gemma") and stream not in _GEMMA_27B
    quotient = stream // heads if is_count(stream) and is_count(heads) else None
    if gemma and is_count(width) and value is not None and value == quotient != width:
        line = (
            f"is {value:g}, the stream's width over the number of heads, and releases of this size have the width of a "
            f"head, {width}"
        )
        yield Finding(key, line, "softmax-scale", "suspicion", {key: width})


RULES = (kinds_of_layers, window_switch, two_windows, nope_layers, blocks_of_layers, softmax_scale)
