"""Rules on layers: their kinds, windows, and which of them rotate."""

from __future__ import annotations

from typing import Any

from posenc.arguments import shown
from posenc.hf.config.facts import ModelFacts
from posenc.hf.config.layers import patterned
from posenc.hf.config.non_rotary import is_non_rotary
from posenc.hf.config.rope_keys import BLOCKS, unread_block_keys
from posenc.hf.config.text_config import layer_types, layers_without_rope
from posenc.hf.families.family import FULL, KINDS, SLIDING
from posenc.hf.findings import Finding
from posenc.hf.limits import LAYERS, TOKENS, is_count, is_number
from posenc.hf.rules.case import ConfigRule
from posenc.hf.rules.releases import release_like


def layers_unread(facts: ModelFacts) -> Finding | None:
    """Keys of the layers that cannot be read."""
    text = facts.text
    try:
        facts.layer_kinds  # noqa: B018 - which names what cannot be understood
    except ValueError as error:
        level = "suspicion" if text.known or is_non_rotary(text.family) else "note"
        return Finding("layer_types", f"cannot be read: {error}", "layers-unread", level)  # type: ignore[arg-type]
    return None


def _kinds(facts: ModelFacts) -> list[str]:
    """The kind of each layer; none where they cannot be read."""
    try:
        return facts.layer_kinds if facts.text.known else []
    except ValueError:
        return []


def orders_differ(facts: ModelFacts) -> Finding | None:
    """A period next to a list of another order, and letters without a list: vllm-project/vllm-metal#676."""
    text, kinds = facts.text, _kinds(facts)
    pattern = text.family.layers
    listed, period = (
        layer_types(text) if text.known else [],
        text.get(pattern.period_key) if pattern.period_key else None,
    )
    if isinstance(period, str) and kinds and not listed:
        line = f"= {period!r} is read by other programs; transformers fails without layer_types: "
        return Finding(
            pattern.period_key, f"{line}write the list", "layer-orders-differ", "fault", {"layer_types": kinds}, True
        )
    if not listed or not (isinstance(period, str) or is_count(period, LAYERS)) or patterned(text, len(kinds)) == kinds:
        return None
    line = f"= {shown(period)} means another order of layers than layer_types, which is read: correct the wrong key"
    return Finding(pattern.period_key, line, "layer-orders-differ", "suspicion")


def sliding_lost(facts: ModelFacts) -> Finding | None:
    """All layers full where the releases alternate, or kinds exchanged (ggml-org/llama.cpp#26848 lost a window)."""
    text, kinds = facts.text, _kinds(facts)
    pattern = text.family.layers
    if not pattern.cycle or pattern.only_listed or not text.get(pattern.types_key) or pattern.period_key in text.config:
        return None
    built = patterned(text, len(kinds))
    other = {*pattern.cycle} - {FULL}
    if len(other) != 1 or {*built} != {*pattern.cycle} or built == kinds:
        return None
    (kind,) = other
    exchange = {FULL: kind, kind: FULL}
    if [exchange.get(of, of) for of in built] == kinds:
        line = f"has full attention where this family has {kind}, and the reverse: were the two kinds exchanged?"
        return Finding(pattern.types_key, line, "layer-kinds-exchanged", "suspicion")
    if {*kinds} == {FULL} and release_like(text) is not None:
        line = f"lists full attention for all {len(kinds)} layers, and published models of these sizes have "
        line += f"{built.count(kind)} of {kind}: the windows are lost"
        return Finding(pattern.types_key, line, "sliding-layers-lost", "suspicion")
    return None


def window_switch(facts: ModelFacts) -> Finding | None:
    """A window that no layer has, for want of its switch: Blackwellboy/model-serving-minefield#107."""
    text, kinds = facts.text, _kinds(facts)
    pattern = text.family.layers
    switch, window = pattern.window.switch, text.get("sliding_window")
    if not switch or not text.known:
        return None
    if is_count(window, TOKENS) and switch not in text.config and SLIDING not in kinds:
        line = f"= {window:,} has no effect without {switch}: true, and every layer attends to the whole context"
        return Finding("sliding_window", line, "window-of-no-layer")
    if text.get(switch) is not True or (SLIDING in kinds and "sliding_window" not in text) or not kinds:
        return None
    if not window and "sliding_window" in text:
        line = (
            f"is true, and sliding_window is {shown(window)}: no layer has a window; write its size, or {switch}: false"
        )
        return Finding(switch, line, "window-of-no-layer", "suspicion")
    if window and SLIDING not in kinds:
        why = f"{pattern.sliding_from_key} = {shown(text.get(pattern.sliding_from_key))}"
        line = f"is true and sliding_window {shown(window)}, and none of {len(kinds)} layers has a window ({why})"
        return Finding(switch, line, "window-of-no-layer", "suspicion")
    return None


def nope_layers(facts: ModelFacts) -> Finding | None:
    """no_rope_layers, in which 1 means that a layer rotates, read the other way round; nothing else tells."""
    text, flags = facts.text, facts.text.get("no_rope_layers")
    if text.rotation.unrotated_every is None or not isinstance(flags, list) or not flags:
        return None
    every = text.get("no_rope_layer_interval", text.rotation.unrotated_every)
    if not is_count(every, LAYERS):
        return None
    usual = [int((layer + 1) % every != 0) for layer in range(len(flags))]
    unrotated = layers_without_rope(text)
    line = f"(1 means that a layer rotates): {len(unrotated)} of {len(flags)} layers do not rotate"
    if flags == [1 - flag for flag in usual] or len(unrotated) == len(flags) > 1:
        line += "; with the usual list exactly the others do not: the flags were inverted"
        return Finding("no_rope_layers", line, "nope-layers-inverted", "suspicion", {"no_rope_layers": usual})
    if not unrotated and 0 in usual:
        line += f"; in this family every {every}. layer does not, and its weights were trained so"
        return Finding("no_rope_layers", line, "nope-layers-lost", "suspicion", {"no_rope_layers": usual})
    return None


def block_of_no_layer(facts: ModelFacts) -> Finding | None:
    """A block for a kind that no layer is, and keys outside of the blocks: four published files (Laguna)."""
    text = facts.text
    for name in BLOCKS:
        block: Any = text.get(name)
        if not isinstance(block, dict) or not any(isinstance(value, dict) for value in block.values()):
            continue
        for kind in unread_block_keys(text, block):
            if isinstance(block[kind], dict):
                line = f"has a block for {shown(kind)}, which no layer is: it is not read"
                known = kind in KINDS  # classes save blocks of kinds not in use
                return Finding(name, line, "block-of-no-layer", "note" if known else "suspicion")
            line = f"has {kind} = {shown(block[kind])} outside the blocks of layers, where transformers ignores it"
            return Finding(name, line, "key-outside-blocks")
    return None


def flat_block(facts: ModelFacts) -> Finding | None:
    """A flat block where the class has one for each kind of layers: saved by transformers 5.0 to 5.15 (OLMo 3)."""
    text, block = facts.text, facts.text.get(BLOCKS[0])
    if not text.rotation.flat_dropped or not isinstance(block, dict) or not block:
        return None
    if any(isinstance(value, dict) for value in block.values()):
        return None
    read = {part.kind: part.effective for part in facts.blocks}
    base, one_key = read[FULL]["rope_theta"], len({keys.theta_key for keys in text.rotation.kinds.values()}) == 1
    if block.get("rope_type", "default") == "default" and block.get("rope_theta", base) == base:
        line = "is flat, and the class of this family has a block for each kind of layers: these defaults say the same"
        return Finding(BLOCKS[0], line, "flat-block-dropped")
    line = "is flat, and the class of this family has a block for each kind of layers: transformers 5.23 computes with "
    line += f"its defaults (base {base:g} in full attention, no scaling) and drops {shown(block)} without a word"
    of_windows = block.get("rope_theta") if one_key else None
    sliding = {"rope_type": "default", "rope_theta": of_windows or read[SLIDING]["rope_theta"]}
    keys = {BLOCKS[0]: {FULL: {"rope_theta": base, **block}, SLIDING: sliding}}
    return Finding(BLOCKS[0], line, "flat-block-dropped", "fault", keys)


def softmax_scale(facts: ModelFacts) -> Finding | None:
    """Granite's multiplier lost, for which its class takes 1 (OpenNMT/CTranslate2#1882): 64 to 128 times too sharp.

    Gemma's scale taken for the quotient, 224 in the place of 256: huggingface/transformers#31891.
    """
    text = facts.text
    key = text.family.attention.scale
    if key not in ("query_pre_attn_scalar", "attention_multiplier") or not text.known:
        return None
    value = text.get(key)
    granite = text.model_type.startswith("granite") and key == "attention_multiplier"
    if granite and (value is None or is_number(value, 1, above=True)):
        has = "is not given, which means 1" if value is None else f"is {shown(value)}"
        line = (
            f"{has}, and the attention logits are multiplied by it; published models have 1/64 to 1/128, the inverse "
        )
        return Finding(key, f"{line}of the width of a head: copy the original's", "softmax-scale", "suspicion")
    width, heads, stream = (text.get(name) for name in ("head_dim", "num_attention_heads", "hidden_size"))
    gemma = text.model_type.startswith("gemma") and stream not in _GEMMA_27B
    quotient = stream // heads if is_count(stream) and is_count(heads) else None
    if gemma and is_count(width) and value is not None and value == quotient != width:
        line = (
            f"is {value:g}, the stream's width over the number of heads, and releases of this size have the width of a "
        )
        return Finding(key, f"{line}head, {width}", "softmax-scale", "suspicion", {key: width})
    return None


_GEMMA_27B = (4608, 5376)  # channels of the streams of Gemma 2 and 3 27B, whose scale is that of the quotient


OF_CONFIGS: tuple[ConfigRule, ...] = (
    layers_unread, orders_differ, sliding_lost, window_switch, nope_layers, block_of_no_layer,
    flat_block, softmax_scale,
)  # fmt: skip
