"""Rules on keys and layers: keys read by another family or version, misspelt, or at two levels; kinds and windows."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from posenc.arguments import shown
from posenc.hf.config.facts import ModelFacts
from posenc.hf.config.layers import patterned
from posenc.hf.config.rope_keys import BLOCKS, OUTSIDE, RopeBlock, at, unread_block_keys
from posenc.hf.config.text_config import (
    OTHER_LENGTHS,
    TextConfig,
    is_non_rotary,
    layer_types,
    layers_without_rope,
    position_schemes,
)
from posenc.hf.families import FAMILIES, Family
from posenc.hf.families.family import FULL, KINDS, SLIDING
from posenc.hf.findings import Finding, Level
from posenc.hf.limits import LAYERS, TOKENS, is_count, is_number
from posenc.hf.rules.case import Case, in_block, release_like

_SAME = {
    "n_embd": "hidden_size", "d_model": "hidden_size", "n_head": "num_attention_heads",
    "n_heads": "num_attention_heads", "n_positions": "max_position_embeddings", "n_ctx": "max_position_embeddings",
}  # fmt: skip
_NATIVE_KEYS = {"dbrx": ("d_model", "n_heads"), "nomic_bert": tuple(_SAME)}
_AS_RELEASED = ("minimax", "minimax_m3_vl_text")  # whose released files have a rotary_dim that transformers ignores
FIXED = ("gptj", "codegen", "esm")  # rotate by frequencies of their own code, which reads no block (transformers 5.23)
_TWO_ROTATIONS = ("musicflamingo",)  # the keys at its top level rotate audio by seconds


def names_of_others(case: Case) -> Iterator[Finding]:
    """Base, share and type under names that another family's code reads: a published file has such a share."""
    family, sources, known = case.family, case.block.sources, case.text.known
    stands = {path[0] for paths in sources.values() for path in paths if len(path) == 1}
    for name, keys, own, default in (
        ("rope_theta", ("rotary_emb_base",), family.theta_key, family.base),
        ("partial_rotary_factor", ("rotary_pct", "rope_pct"), family.share_key, family.share),
    ):
        strange = [key for key in keys if key in stands and key != own and (known or key == "rope_pct")]
        differing = [key for key in strange if case.text.get(key) not in (None, _read(case, name, default))]
        value = case.text.get(name)
        for key in differing[:1]:
            read = shown(_read(case, name, default))
            text = f"= {shown(case.text[key])} is ignored by transformers in this family, which reads {name}: {read}"
            yield Finding(key, text, "key-ignored", "fault")
        if not differing and name in stands and own in keys and own not in stands and value not in (None, default):
            # version 5's name, outside the block of a family that has another name there
            text = f"= {shown(value)} is ignored by transformers outside the block in this family, which reads {own}: "
            yield Finding(name, f"{text}{shown(default)}", "key-ignored", "fault")
    named = [path[-1] for path in sources.get("rope_type", ())]
    if case.block.kind in family.kinds and named == ["type"] and not family.scaled:
        text = "is ignored by transformers in this family, which reads rope_type alone"
        yield Finding("type", text, "key-ignored", "fault")


def _read(case: Case, key: str, default: float) -> Any:
    """The value that transformers reads under a key of version 5, other spellings of it aside."""
    values = (at(case.text, path) for path in case.block.sources.get(key, ()) if path[-1] == key)
    return next((value for value in values if value is not None), default)


def share_ignored(case: Case) -> Iterator[Finding]:
    """A share that the class does not read: a published file says 64 channels where 128 rotate."""
    family, share, text_config = case.family, case.values.get("partial_rotary_factor", 1), case.text
    if not text_config.known or family.fixed:
        return
    stands = "partial_rotary_factor" in case.given or text_config.get("partial_rotary_factor") is not None
    own = stands and share != family.share  # a share of the record is always read
    if own and share != 1 and case.rope_type == "default" and not family.default_share and not family.latent:
        text = "is ignored by transformers in this family for rope type 'default'"
        yield Finding("partial_rotary_factor", text, "share-ignored", "fault")
    elif family.share_key != "rotary_dim" and ("rotary_dim",) in case.block.sources.get("rotary_dim", ()):
        width = text_config.get("head_dim")
        width = width if is_count(width) else family.head_dim
        of_share = _read(case, "partial_rotary_factor", family.share)
        read = int(width * of_share) if width is not None and is_number(of_share, 0) else None
        if read != text_config["rotary_dim"]:
            text = f"= {shown(text_config['rotary_dim'])} is ignored by the code of this family in transformers"
            text += "" if read is None else f", which rotates {read} channels"
            level: Level = "note" if text_config.model_type in _AS_RELEASED else "fault"
            yield Finding("rotary_dim", text, "share-ignored", level)


def base_ignored(case: Case) -> Iterator[Finding]:
    """Bases that transformers does not read: DBRX's as released, and one base for OLMo 3's two kinds of layers.

    Those that stand outside a block where the class has a default block (Ministral 3, MiMo-V2): its base counts then.
    """
    base, inner, family = case.values["rope_theta"], case.text.get("attn_config"), case.family
    released = inner.get("rope_theta") if case.text.model_type == "dbrx" and isinstance(inner, dict) else None
    if is_number(released, 1) and released != base:
        text = (
            f"= {shown(released)} is the base as released; transformers 5.23 ignores it and rotates by base {base:g} "
            "(a fault of transformers, not of the file)"
        )
        yield Finding("attn_config.rope_theta", text, "base-ignored-by-transformers")
    kind, flat = family.kinds.get(case.block.kind), any(case.text.get(name) for name in BLOCKS)
    key = "rope_theta" if kind is None else kind.theta_key
    default = (family.block or {}).get("rope_theta", family.base) if kind is None else kind.base
    if family.block_only and not flat and is_number(case.text.get(key), 1) and base != default:
        text = f"= {base:g} is ignored by transformers without a block in this family, which takes base {default:g}"
        yield Finding(key, f"{text}: write it into rope_parameters", "key-ignored", "fault")
    of_all = family.base  # what transformers 5.23 gives sliding layers of OLMo 3, and under a flat block of Dots 3 Note
    if kind is not None and kind.prefix and flat:
        of_all = case.text.get("rope_theta", next(iter(family.kinds.values())).base)
    elif case.text.model_type != "olmo3" or case.block.kind == FULL:
        of_all = base
    if len(case.block.target) < 2 and base != of_all:
        text = f"= {base:g} is not read for sliding layers: transformers 5.23 gives them {of_all:g}"
        yield Finding(key, text, "base-of-sliding-ignored", "fault")


def sections_of_mrope(case: Case) -> Iterator[Finding]:
    """Sections missing (nine published files), in another order, which vLLM reads, or in a family of one position."""
    family, sections, own = case.family, case.given.get("mrope_section"), list(case.family.sections or ())
    spelled = [at(case.text, path) for path in case.block.sources.get("rope_type", ())]
    if not own:
        if "mrope_section" in case.values and case.text.known:
            text = "is ignored by transformers in this family, which rotates by one position"
            yield Finding("mrope_section", text, "sections-ignored", "fault")
    elif sections is None and "mrope" in spelled:  # huggingface/transformers#33401
        text = (
            f"is missing next to the type 'mrope': transformers 5 takes {own}; version 4 and vLLM have no default, and "
            "fail or rotate by one position"
        )
        keys = in_block(case, {"mrope_section": own})
        yield Finding("mrope_section", text, "sections-lost", "suspicion", keys)
    elif sections is None:
        yield Finding("mrope_section", f"is not given: {own} is this family's default", "sections-default")
    elif (given := case.given.get("mrope_interleaved")) not in (None, family.order == "interleaved"):
        text = f"is {given}, but the order of this family's pairs is {family.order!r}, and read so"
        yield Finding("mrope_interleaved", text, "order-of-sections", "suspicion")


def misplaced(facts: ModelFacts) -> Iterator[Finding]:
    """A size under another family's name (three published files), or a value next to the text part.

    Nothing reads a scaling there, and nothing tells.
    """
    text = facts.text
    for name, own in _SAME.items() if text.known and not text.rotation.fixed else ():
        value, read = text.get(name), text.get(own)
        if value is not None and name not in _NATIVE_KEYS.get(text.model_type, ()) and read != value:
            said = f"= {shown(value)} is another family's key, and transformers does not read it in this one: it reads "
            said += f"{own}, which is {'missing' if read is None else shown(read)}"
            yield Finding(name, said, "key-of-another-family", "suspicion")
            break
    if not text.path or facts.config.get("model_type") in _TWO_ROTATIONS:
        return
    where = ".".join(text.path)
    for key in (*BLOCKS, "rope_theta", "max_position_embeddings", "sliding_window", "partial_rotary_factor"):
        outer, inner = facts.config.get(key), text.get(key)
        kind = outer.get("rope_type", outer.get("type")) if isinstance(outer, dict) else None
        if outer in (None, {}) or outer == inner or (key in BLOCKS and kind in (None, "default", "mrope")):
            continue
        if is_count(outer, TOKENS) and is_count(inner, TOKENS) and 0.9 < outer / inner < 1.1:
            continue  # as 128,000 and 131,072 in Qwen2.5-VL as published
        if inner is None and (key not in BLOCKS or _has_type(text, kind)):
            continue  # left over from an older layout, and transformers' default of the part may agree
        has = "is missing there" if inner is None else f"is {shown(inner)} there"
        line = f"= {shown(outer)} stands at the top level, where nothing reads it, and {has} ({where}.{key}), which is "
        yield Finding(key, f"{line}read: move the value that is meant into {where}", "levels-differ", "suspicion")
        return


def _has_type(text: TextConfig, kind: object) -> bool:
    """Whether a block that is read has this rope type, at its top or for one kind of layers."""
    blocks = [block for name in BLOCKS if isinstance(block := text.get(name), dict)]
    blocks += [inner for block in blocks for inner in block.values() if isinstance(inner, dict)]
    return any(block.get("rope_type", block.get("type")) == kind for block in blocks)


def not_read_by_its_class(facts: ModelFacts) -> Iterator[Finding]:
    """Keys that decide positions elsewhere, and that the code of this family does not read.

    The layout: karpathy/llama2.c#286 has the other. A scaling of a model without one: facebookresearch/esm#628.
    BERT's relative positions, which version 5 of transformers dropped. Another padding id in RoBERTa's kin, whose
    positions start behind its row: huggingface/transformers#9116.
    """
    text, name = facts.text, facts.text.model_type
    interleave, kind, padding = (text.get(k) for k in ("rope_interleave", "position_embedding_type", "pad_token_id"))
    if text.rotation.layout_key and interleave is False and release_like(text) is not None:
        line = "is false, and published models of these sizes have interleaved pairs: the weights would be mixed up"
        yield Finding("rope_interleave", line, "layout-inverted", "suspicion", {"rope_interleave": True})
    if text.known and not text.rotation.layout_key and interleave is not None:
        line = f"is not read by the code of this family, whose layout is {text.rotation.layout!r}"
        agrees = interleave == (text.rotation.layout == "interleaved")
        yield Finding("rope_interleave", line, "layout-key-ignored", "note" if agrees else "fault")
    for key in BLOCKS if name in FIXED or position_schemes(text) else ():
        block = text.get(key)
        if isinstance(block, dict) and block.get("rope_type", block.get("type")) not in (None, "default"):
            why = "fixes the frequencies of its rotation" if name in FIXED else "has no rotation"
            line = f"= {shown(block)} is not read: the code of {name} {why}"
            yield Finding(key, line, "scaling-unread", "suspicion")
            break
    if is_non_rotary(text.family) and isinstance(kind, str) and kind.startswith("relative_key"):
        line = (
            f"= {kind!r} asks for vectors of the distance, which version 4 of transformers had; version 5 ignores the "
            "key and computes without them (a fault of transformers, not of the file)"
        )
        yield Finding("position_embedding_type", line, "position-type-ignored")
    usual = [scheme.table.padding for scheme in text.family.schemes if scheme.table]
    if isinstance(padding, int) and 1 in usual and padding not in usual:  # LiLT has another default than releases
        line = (
            f"is {padding}, and positions start behind that row of the table, where models of this family have "
            f"{usual[0]}: each token reads the row of another position"
        )
        yield Finding("pad_token_id", line, "position-padding", "suspicion")


def not_read_here(facts: ModelFacts) -> Iterator[Finding]:
    """What posenc does not read: a model type without a record, learned frequencies, dual chunk attention.

    Mistral Large 4 multiplies its frequencies by learned numbers. vLLM computes dual chunks: Qwen2.5-1M and Qwen3 as
    published.
    """
    text, name, dual = facts.text, facts.text.model_type, facts.text.get("dual_chunk_attention_config")
    if not text.known and facts.reading.layout is None and any(block.values is not None for block in facts.blocks):
        layout = "interleaved" if text.rotation.latent else "half"
        line = (
            f"{name or 'none'} is unknown to posenc: the keys of its rotation are read as in a Llama, with layout "
            f"{layout!r} (layout= overrides it); which layers rotate, windows, temperatures and sinks are not read"
        )
        yield Finding("model_type", line, "unknown-family")
    if name.startswith("mistral_large4"):
        line = (
            f"{name} multiplies each frequency by a learned factor, exp of rotary_emb.alpha, which stands in the "
            "weights and in no configuration: the frequencies are read without it; RopeConfig.with_factors adds it"
        )
        yield Finding("model_type", line, "learned-frequencies")
    if isinstance(dual, dict):
        original = dual.get("original_max_position_embeddings")
        trained = f" beyond the {original:,} tokens of training" if is_count(original) else ""
        line = f"asks for dual chunk attention{trained}, which vLLM computes and transformers ignores; not read here"
        yield Finding("dual_chunk_attention_config", line, "dual-chunk-unread")


_WORDS = {"rope", "rotary", "theta", "alibi", "ntk", "logn", "yarn"}
_UNDERSTOOD = {
    "alibi", "no_rope_layer_interval", "no_rope_layers", "qk_rope_head_dim", "rope_interleave", "rotary", *BLOCKS,
}  # fmt: skip


def unread_keys(facts: ModelFacts, blocks: Iterable[RopeBlock]) -> Iterator[Finding]:
    """Keys of the text model that nothing reads and that speak of positions, or resemble a key that is read."""
    text, family, longest = facts.text, facts.text.rotation, facts.declared
    known = _keys_of_family(text.family) if text.known or is_non_rotary(text.family) else None
    used = {path[0] for block in blocks for paths in block.sources.values() for path in paths} | _UNDERSTOOD
    used |= {family.bases_key or "", *(family.rotates_if or ())[:1], *(family.dynamic_keys or ())[:2]}
    used |= {"yarn_only_types", "partial_rotary_factors"} if family.by_layer else set()
    if any(len(block.target) > 1 for block in blocks):  # where they are defaults of the blocks
        used |= {kind.theta_key for kind in family.kinds.values()} | {n for names in OUTSIDE.values() for n in names}
    of_lengths = OTHER_LENGTHS if known is None or text.known else ()
    read = [block.effective for block in blocks if block.values is not None]
    for key, value in text.items():
        if key in used or value in (None, False, [], {}):
            continue
        if read and all(values.get(key) == value for values in read):
            continue
        near = None if known is None else _nearest(key, known)
        meant = text.get(near) if near is not None else value
        if meant is None:
            line = f"= {shown(value)} is not read; was {near} meant, which is missing?"
            yield Finding(key, line, "key-misspelt", "suspicion", {key: None, str(near): value})
        elif meant != value:
            line = (
                f"= {shown(value)} is not read; {near} is, and says {shown(meant)}: which of the two values is meant?"
            )
            yield Finding(key, line, "key-misspelt", "suspicion")
        elif _WORDS & set(re.split(r"[^a-z0-9]+|(?<=[a-z])(?=[0-9])", key.lower())):
            line = "looks like a key for positions, but this model type does not read it"
            yield Finding(key, line, "key-unread")
        elif key in of_lengths and is_count(value, TOKENS) and longest not in (None, value):
            line = f"= {value:,} is not read, and {text.length_key} = {longest:,} is: the file does not say which "
            yield Finding(key, f"{line}of the two lengths the model is meant for", "length-unread")


def misspelt(facts: ModelFacts) -> Finding | None:
    """A key that nothing reads and that misspells one that is read, such as rope_paramters; None under remote code."""
    if facts.config.get("auto_map"):  # whose code may read it
        return None
    return next((each for each in unread_keys(facts, facts.blocks) if each.name == "key-misspelt"), None)


_COMMON = {"max_position_embeddings", "num_hidden_layers", "num_attention_heads"}
_OF_ROTATIONS = {"num_key_value_heads", "head_dim", "sliding_window", "layer_types", "original_max_position_embeddings",
                 "partial_rotary_factor", *BLOCKS}  # fmt: skip
_LIKENESS = 0.86  # by difflib's ratio
_LETTERS = 2  # by which the length differs at most; more make another name (max_2d_position_embeddings)
_CUT = 12  # letters of a key that lacks its last word; shorter ones are names of their own (rope_theta, head_dim)
_SHORTEST = 7  # letters of a key; shorter names are like too many others


def _nearest(key: str, known: set[str]) -> str | None:
    """The one of the known keys that a key is a misspelling of; None where it is another family's or like none.

    A longer name with a known one at its begin or end (``vision_rope_theta``) is a name of its own, but for a plural.
    """
    if len(key) < _SHORTEST or key in known or key in _NEIGHBOURS:
        return None
    longer = [name for name in known if name.startswith(f"{key}_")] if len(key) >= _CUT else []
    if len(longer) == 1 and key not in _keys_of_all():
        return longer[0]  # a name without its last word: rope_local_base of rope_local_base_freq
    near = difflib.get_close_matches(key.lower().replace("-", "_"), known, n=1, cutoff=_LIKENESS)
    if not near or key.endswith(f"_{near[0]}") or key.startswith(f"{near[0]}_"):
        return None
    return near[0] if abs(len(key) - len(near[0])) <= _LETTERS and key not in _keys_of_all() else None


_NEIGHBOURS = {  # published keys of other meanings that are one or two letters away from a known one
    "num_key_value_groups", "nope_layer_interval", "compress_rates",
}  # fmt: skip


def _keys_of_family(family: Family) -> set[str]:
    """Keys that the code of a family reads and that decide its positions."""
    pattern, attention = family.layers, family.attention
    keys = {*_COMMON, pattern.period_key, pattern.sliding_from_key, pattern.count_key, pattern.window.switch}
    if pattern.listing is not None:
        keys |= {pattern.listing.parent or pattern.listing.key, pattern.listing.offset_key}
    if pattern.chunk is not None:
        keys.add("attention_chunk_size")
    if attention.scale in ("attention_multiplier", "query_pre_attn_scalar"):
        keys.add(attention.scale)
    if attention.bidirectional_if is not None:
        keys.add("use_bidirectional_attention")
    for scheme in family.schemes:
        keys |= {scheme.table.key} if scheme.table else set()
        keys |= {scheme.buckets.count_key, scheme.buckets.distance_key} if scheme.buckets else set()
        keys |= {*scheme.switched_by}
    rotation = family.rotation
    if rotation is not None:
        keys |= {*_OF_ROTATIONS, pattern.types_key, pattern.cross_key, pattern.window.key}
        keys |= {rotation.theta_key, rotation.share_key, rotation.head_key, rotation.width_key}
        keys |= {kind.theta_key for kind in rotation.kinds.values()} | {rotation.bases_key or ""}
        keys |= {rotation.rotates_if[0]} if rotation.rotates_if else set()
        keys |= {"qk_rope_head_dim", "qk_nope_head_dim"} if rotation.latent else set()
        keys |= {"no_rope_layers", "no_rope_layer_interval"} if rotation.unrotated_every else set()
        keys |= {"rope_interleave"} if rotation.layout_key else set()
    return keys - {""}


@cache
def _keys_of_all() -> frozenset[str]:
    """Keys of all families, which are not misspellings wherever they stand."""
    return frozenset(key for family in FAMILIES.values() for key in _keys_of_family(family))


_GEMMA_27B = (4608, 5376)  # channels of the streams of Gemma 2 and 3 27B, whose scale is that of the quotient


def kinds_of_layers(facts: ModelFacts) -> Iterator[Finding]:
    """Kinds of layers that cannot be read, that two keys order differently, or that releases have otherwise.

    Two orders and letters without a list: vllm-project/vllm-metal#676. A lost window: ggml-org/llama.cpp#26848.
    """
    text = facts.text
    kinds = facts.layer_kinds if text.known else []
    if facts.layers_unread:
        level: Level = "suspicion" if text.known or is_non_rotary(text.family) else "note"
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


def windows(facts: ModelFacts) -> Iterator[Finding]:
    """A window that no layer has, for want of its switch: Blackwellboy/model-serving-minefield#107.

    ModernBERT's window under two keys that differ, of which transformers takes the other one than engines do.
    """
    text, rules = facts.text, facts.text.family.layers.window
    switch, kinds, window = rules.switch, facts.layer_kinds, text.get("sliding_window")
    own = text.get(rules.key)
    if rules.halved and rules.key != "sliding_window" and is_count(own) and is_count(window) and own != 2 * window:
        line = f"= {own:,}, of both sides, is ignored by transformers next to sliding_window = {window:,}: keep one"
        yield Finding(rules.key, line, "windows-differ", "suspicion")
    if not switch or not text.known or facts.layers_unread:  # of which another rule tells
        return
    if is_count(window, TOKENS) and switch not in text and SLIDING not in kinds:
        line = f"= {window:,} has no effect without {switch}: true, and every layer attends to the whole context"
        yield Finding("sliding_window", line, "window-of-no-layer")
    elif text.get(switch) is not True or "sliding_window" not in text or not kinds:
        return
    elif not window:
        line = f"is true, and sliding_window is {shown(window)}: no layer has a window; write its size, or "
        yield Finding(switch, f"{line}{switch}: false", "window-of-no-layer", "suspicion")
    elif SLIDING not in kinds:
        key = text.family.layers.sliding_from_key
        line = f"is true and sliding_window {shown(window)}, and none of {len(kinds)} layers has a window "
        yield Finding(switch, f"{line}({key} = {shown(text.get(key))})", "window-of-no-layer", "suspicion")


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


OF_BLOCKS = (names_of_others, share_ignored, base_ignored, sections_of_mrope)
OF_CONFIGS = (
    misplaced, not_read_by_its_class, not_read_here, kinds_of_layers, windows, nope_layers,
    blocks_of_layers, softmax_scale,
)  # fmt: skip
