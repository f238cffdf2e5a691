"""Rules on keys: read by another family or version, misspelt, at two levels of a file, or read by nothing."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from posenc.arguments import shown
from posenc.hf.config.facts import ModelFacts
from posenc.hf.config.non_rotary import is_non_rotary, position_schemes
from posenc.hf.config.rope_keys import BLOCKS, OUTSIDE, RopeBlock, at
from posenc.hf.config.rotation import text_rope
from posenc.hf.config.text_config import OTHER_LENGTHS, TextConfig, length_key, max_length
from posenc.hf.families import FAMILIES, Family
from posenc.hf.families.family import FULL
from posenc.hf.findings import Finding
from posenc.hf.limits import TOKENS, is_count, is_number
from posenc.hf.rules.case import BlockRule, Case, ConfigRule, in_block
from posenc.hf.rules.releases import WIDTHS, release_like
from posenc.hf.sources.load import Config

_SAME = {
    "n_embd": "hidden_size", "d_model": "hidden_size", "n_head": "num_attention_heads",
    "n_heads": "num_attention_heads", "n_positions": "max_position_embeddings", "n_ctx": "max_position_embeddings",
}  # fmt: skip
_NATIVE_KEYS = {"dbrx": ("d_model", "n_heads"), "nomic_bert": tuple(_SAME)}
_AS_RELEASED = ("minimax", "minimax_m3_vl_text")  # whose released files have a rotary_dim that transformers ignores
FIXED = ("gptj", "codegen", "esm")  # rotate by frequencies of their own code, which reads no block (transformers 5.23)


def _read(case: Case, key: str, default: float) -> Any:
    """The value that transformers reads under a key of version 5, other spellings of it aside."""
    values = (at(case.text.config, path) for path in case.block.sources.get(key, ()) if path[-1] == key)
    return next((value for value in values if value is not None), default)


def base_key_ignored(case: Case) -> Finding | None:
    """A base under the name that another family's code reads."""
    return _under_another_name(case, "rope_theta", ("rotary_emb_base",), case.family.theta_key, case.family.base)


def share_key_ignored(case: Case) -> Finding | None:
    """A share under the name that another family's code reads: a published file has it."""
    keys = ("rotary_pct", "rope_pct")
    return _under_another_name(case, "partial_rotary_factor", keys, case.family.share_key, case.family.share)


def _under_another_name(case: Case, name: str, keys: tuple[str, ...], own: str, default: float) -> Finding | None:
    """A key that the family's code does not read, unless it says what is read anyway."""
    stands = {path[0] for paths in case.block.sources.values() for path in paths if len(path) == 1}
    for key in keys:
        value, read = case.text.get(key), _read(case, name, default)
        if key in stands and key != own and (case.text.known or key == "rope_pct") and value not in (None, read):
            text = f"= {shown(value)} is ignored by transformers in this family, which reads {name}: {shown(read)}"
            return Finding(key, text, "key-ignored", "fault")
    value = case.text.get(name)  # version 5's name, outside the block of a family that has another name there
    if name in stands and own in keys and own not in stands and value not in (None, default):
        text = f"= {shown(value)} is ignored by transformers outside the block in this family, which reads {own}: "
        return Finding(name, f"{text}{shown(default)}", "key-ignored", "fault")
    return None


def type_ignored(case: Case) -> Finding | None:
    """The old name of the rope type, in families whose class reads the new one alone."""
    named = [path[-1] for path in case.block.sources.get("rope_type", ())]
    if case.block.kind not in case.family.kinds or named != ["type"] or case.family.scaled:
        return None
    return Finding(
        "type", "is ignored by transformers in this family, which reads rope_type alone", "key-ignored", "fault"
    )


def share_ignored(case: Case) -> Finding | None:
    """A share that the class does not read: a published file says 64 channels where 128 rotate."""
    family, share = case.family, case.values.get("partial_rotary_factor", 1)
    if not case.text.known or family.fixed:
        return None
    own = "partial_rotary_factor" in case.given and share != family.share  # a share of the record is always read
    if own and share != 1 and case.rope_type == "default" and not family.default_share and not family.latent:
        text = "is ignored by transformers in this family for rope type 'default'"
        return Finding("partial_rotary_factor", text, "share-ignored", "fault")
    if family.share_key == "rotary_dim" or ("rotary_dim",) not in case.block.sources.get("rotary_dim", ()):
        return None
    width = case.text.get("head_dim")
    width = width if is_count(width) else family.head_dim
    of_share = _read(case, "partial_rotary_factor", family.share)
    read = int(width * of_share) if width is not None and is_number(of_share, 0) else None
    if read == case.text["rotary_dim"]:
        return None
    text = f"= {shown(case.text['rotary_dim'])} is ignored by the code of this family in transformers"
    text += "" if read is None else f", which rotates {read} channels"
    return Finding("rotary_dim", text, "share-ignored", "note" if case.text.model_type in _AS_RELEASED else "fault")


def base_ignored(case: Case) -> Finding | None:
    """DBRX's base as released."""
    inner = case.text.get("attn_config")
    released = inner.get("rope_theta") if case.text.model_type == "dbrx" and isinstance(inner, dict) else None
    if not is_number(released, 1) or released == case.values["rope_theta"]:
        return None
    text = f"= {shown(released)} is the base as released; transformers 5.23 ignores it and rotates by base "
    text += f"{case.values['rope_theta']:g} (a fault of transformers, not of the file)"
    return Finding("attn_config.rope_theta", text, "base-ignored-by-transformers")


def sections_of_mrope(case: Case) -> Finding | None:
    """Sections missing (nine published files), or in a family that rotates by one position."""
    family, sections = case.family, case.given.get("mrope_section")
    if family.sections is None:
        if "mrope_section" not in case.values or not case.text.known:
            return None
        text = "is ignored by transformers in this family, which rotates by one position"
        return Finding("mrope_section", text, "sections-ignored", "fault")
    spelled = [at(case.text.config, path) for path in case.block.sources.get("rope_type", ())]
    if sections is None and "mrope" in spelled:
        text = f"is missing next to the type 'mrope': transformers 5 takes {list(family.sections)}; version 4 and vLLM "
        text += "have no default, and fail or rotate by one position"
        keys = in_block(case, {"mrope_section": list(family.sections)})
        return Finding("mrope_section", text, "sections-lost", "suspicion", keys)
    if sections is None:
        return Finding(
            "mrope_section", f"is not given: {list(family.sections)} is this family's default", "sections-default"
        )
    interleaved = family.order == "interleaved"
    if case.given.get("mrope_interleaved", interleaved) != interleaved:  # vLLM reads the key
        text = f"is {case.given['mrope_interleaved']}, but the order of this family's pairs is {family.order!r}, and "
        return Finding("mrope_interleaved", f"{text}read so", "order-of-sections", "suspicion")
    return None


def base_of_all_layers(case: Case) -> Finding | None:
    """One base for OLMo 3's two kinds of layers."""
    one = case.text.model_type == "olmo3" and case.block.kind != FULL and len(case.block.target) < 2
    if not one or case.values["rope_theta"] == case.family.base:
        return None
    text = f"is for all layers; transformers 5.23 gives sliding ones {case.family.base:g}"
    return Finding("rope_theta", text, "base-of-sliding-ignored", "fault")


def width_of_releases(case: Case) -> Finding | None:
    """A head of another width than all releases have: marin-community/marin#2098, SafeAILab/EAGLE#315."""
    width, example = WIDTHS.get(case.text.model_type, (0, ""))
    own = text_rope(case.rope).head_dim
    if not width or own == width or release_like(case.text) is None:
        return None
    text = f"is {own}, and released models of this family have heads of {width} channels ({example}), whatever the "
    text += "stream's width over the number of heads is"
    return Finding("head_dim", text, "head-width-of-releases", "suspicion")


def stranger(facts: ModelFacts) -> Finding | None:
    """A size under another family's name: three published files."""
    text = facts.text
    if not text.known or text.rotation.fixed:
        return None
    for name, own in _SAME.items():
        value = text.get(name)
        if value is None or name in _NATIVE_KEYS.get(text.model_type, ()) or text.get(own) == value:
            continue
        said = f"= {shown(value)} is another family's key, and transformers does not read it in this one: it reads "
        said += f"{own}, which is {'missing' if text.get(own) is None else shown(text.get(own))}"
        return Finding(name, said, "key-of-another-family", "suspicion")
    return None


def levels_differ(facts: ModelFacts) -> Finding | None:
    """A scaling next to the text part, where nothing reads it and nothing tells."""
    text = facts.text
    if not text.path or facts.config.get("model_type") in _TWO_ROTATIONS:
        return None
    where = ".".join(text.path)
    for key in (*BLOCKS, "rope_theta", "max_position_embeddings", "sliding_window", "partial_rotary_factor"):
        outer, inner = facts.config.get(key), text.get(key)
        if outer in (None, {}) or outer == inner or not _concerns_text(key, outer):
            continue
        if is_count(outer, TOKENS) and is_count(inner, TOKENS) and 0.9 < outer / inner < 1.1:
            continue  # as 128,000 and 131,072 in Qwen2.5-VL as published
        if inner is None and (key not in BLOCKS or _has_type(text, outer)):
            continue  # left over from an older layout, and transformers' default of the part may agree
        has = "is missing there" if inner is None else f"is {shown(inner)} there"
        line = f"= {shown(outer)} stands at the top level, where nothing reads it, and {has} ({where}.{key}), which is "
        return Finding(key, f"{line}read: move the value that is meant into {where}", "levels-differ", "suspicion")
    return None


_TWO_ROTATIONS = ("musicflamingo",)  # the keys at its top level rotate audio by seconds


def _has_type(text: TextConfig, outer: Any) -> bool:
    """Whether a block that is read has the type of an outer one, at its top or for one kind of layers."""
    blocks = [block for name in BLOCKS if isinstance(block := text.get(name), dict)]
    blocks += [inner for block in blocks for inner in block.values() if isinstance(inner, dict)]
    of_outer = outer.get("rope_type", outer.get("type")) if isinstance(outer, dict) else None
    return any(block.get("rope_type", block.get("type")) == of_outer for block in blocks)


def _concerns_text(key: str, value: Any) -> bool:
    kind = value.get("rope_type", value.get("type")) if isinstance(value, dict) else None
    return key not in BLOCKS or kind not in (None, "default", "mrope")


def layout_key(facts: ModelFacts) -> Finding | None:
    """rope_interleave in a family whose code has one layout: karpathy/llama2.c#286 has the other."""
    text, value = facts.text, facts.text.get("rope_interleave")
    if not text.known or text.rotation.layout_key or value is None:
        return None
    line = f"is not read by the code of this family, whose layout is {text.rotation.layout!r}"
    agrees = value == (text.rotation.layout == "interleaved")
    return Finding("rope_interleave", line, "layout-key-ignored", "note" if agrees else "fault")


def scaling_unread(facts: ModelFacts) -> Finding | None:
    """A scaling of a model whose code reads none: facebookresearch/esm#628."""
    text = facts.text
    fixed = text.model_type in FIXED
    if not fixed and not position_schemes(text):
        return None
    for name in BLOCKS:
        block = text.get(name)
        kind = block.get("rope_type", block.get("type")) if isinstance(block, dict) else None
        if kind not in (None, "default"):
            why = "fixes the frequencies of its rotation" if fixed else "has no rotation"
            line = f"= {shown(block)} is not read: the code of {text.model_type} {why}"
            return Finding(name, line, "scaling-unread", "suspicion")
    return None


def position_type(facts: ModelFacts) -> Finding | None:
    """BERT's relative positions, which version 5 of transformers dropped."""
    text, kind = facts.text, facts.text.get("position_embedding_type")
    if not is_non_rotary(text.family) or not isinstance(kind, str) or not kind.startswith("relative_key"):
        return None
    line = (
        f"= {kind!r} asks for vectors of the distance, which version 4 of transformers had; version 5 ignores the key "
    )
    line += "and computes without them (a fault of transformers, not of the file)"
    return Finding("position_embedding_type", line, "position-type-ignored")


def padding_of_positions(facts: ModelFacts) -> Finding | None:
    """Another padding id in RoBERTa's kin, whose positions start behind its row: huggingface/transformers#9116."""
    text, padding = facts.text, facts.text.get("pad_token_id")
    usual = [
        scheme.table.padding for scheme in text.family.schemes if scheme.table and scheme.table.padding is not None
    ]
    if not isinstance(padding, int) or 1 not in usual or padding in usual:  # LiLT has another default than releases
        return None
    line = f"is {padding}, and positions start behind that row of the table, where models of this family have "
    line += f"{usual[0]}: each token reads the row of another position"
    return Finding("pad_token_id", line, "position-padding", "suspicion")


def unknown_family(facts: ModelFacts) -> Finding | None:
    """A model type without a record."""
    text = facts.text
    if text.known or facts.reading.layout is not None or all(block.values is None for block in facts.blocks):
        return None
    layout = "interleaved" if text.rotation.latent else "half"
    line = f"{text.model_type or 'none'} is unknown to posenc: the keys of its rotation are read as in a Llama, with "
    line += (
        f"layout {layout!r} (layout= overrides it); which layers rotate, windows, temperatures and sinks are not read"
    )
    return Finding("model_type", line, "unknown-family")


def learned_frequencies(facts: ModelFacts) -> Finding | None:
    """Mistral Large 4 multiplies its frequencies by learned numbers."""
    name = facts.text.model_type
    if not name.startswith("mistral_large4"):
        return None
    line = (
        f"{name} multiplies each frequency by a learned factor, exp of rotary_emb.alpha, which stands in the weights "
    )
    line += "and in no configuration: the frequencies are read without it; RopeConfig.with_factors adds it"
    return Finding("model_type", line, "learned-frequencies")


def dual_chunks(facts: ModelFacts) -> Finding | None:
    """Dual chunk attention next to the rotation, which vLLM computes: Qwen2.5-1M and Qwen3 as published."""
    dual = facts.text.get("dual_chunk_attention_config")
    if not isinstance(dual, dict):
        return None
    original = dual.get("original_max_position_embeddings")
    trained = f" beyond the {original:,} tokens of training" if is_count(original) else ""
    line = f"asks for dual chunk attention{trained}, which vLLM computes and transformers ignores; not read here"
    return Finding("dual_chunk_attention_config", line, "dual-chunk-unread")


_WORDS = {"rope", "rotary", "theta", "alibi", "ntk", "logn", "yarn"}
_UNDERSTOOD = {
    "alibi", "no_rope_layer_interval", "no_rope_layers", "qk_rope_head_dim", "rope_interleave", "rotary", *BLOCKS,
}  # fmt: skip


def unread_keys(facts: ModelFacts, blocks: list[RopeBlock]) -> Iterator[Finding]:
    """Keys of the text model that nothing reads and that speak of positions, or resemble a key that is read."""
    text, family = facts.text, facts.text.rotation
    used = {path[0] for block in blocks for paths in block.sources.values() for path in paths} | _UNDERSTOOD
    used |= {family.bases_key or "", family.rotates_if[0] if family.rotates_if else ""}
    used |= set(family.dynamic_keys[:2]) if family.dynamic_keys else set()
    used |= {"yarn_only_types", "partial_rotary_factors"} if family.by_layer else set()
    if any(len(block.target) > 1 for block in blocks):  # where they are defaults of the blocks
        used |= {kind.theta_key for kind in family.kinds.values()} | {n for names in OUTSIDE.values() for n in names}
    read = [block.effective for block in blocks if block.values is not None]
    known = _keys_of_family(text.family) if text.known or is_non_rotary(text.family) else None
    for key, value in text.config.items():
        if key in used or value in (None, False, [], {}):
            continue
        if read and all(values.get(key) == value for values in read):
            continue
        finding = _on_key(text, key, value, known)
        if finding is not None:
            yield finding


def misspelt(facts: ModelFacts) -> Finding | None:
    """A key that nothing reads and that misspells one that is read, such as rope_paramters; None under remote code."""
    if facts.config.get("auto_map"):  # whose code may read it
        return None
    return next((each for each in unread_keys(facts, facts.blocks) if each.name == "key-misspelt"), None)


def _on_key(text: TextConfig, key: str, value: Any, known: set[str] | None) -> Finding | None:
    """One key that is not read: misspelt, another length, or about positions."""
    near = None if known is None else _nearest(key, known)
    if near is not None and text.get(near) != value:
        return _misspelt(text.config, key, near)
    if _WORDS & set(re.split(r"[^a-z0-9]+|(?<=[a-z])(?=[0-9])", key.lower())):
        return Finding(key, "looks like a key for positions, but this model type does not read it", "key-unread")
    longest = max_length(text)
    differs = key in OTHER_LENGTHS and is_count(value, TOKENS) and longest is not None and value != longest
    if not differs or (known is not None and not text.known):
        return None
    line = f"= {value:,} is not read, and {length_key(text)} = {longest:,} is: the file does not say which of the two "
    return Finding(key, f"{line}lengths the model is meant for", "length-unread")


def _misspelt(config: Config, key: str, near: str) -> Finding:
    """A key that nothing reads, a misspelling of a key that this family reads and whose value differs."""
    value, other = config[key], config.get(near)
    if other is None:
        text = f"= {shown(value)} is not read; was {near} meant, which is missing?"
        return Finding(key, text, "key-misspelt", "suspicion", {key: None, near: value})
    text = f"= {shown(value)} is not read; {near} is, and says {shown(other)}: which of the two values is meant?"
    return Finding(key, text, "key-misspelt", "suspicion")


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
        keys |= {scheme.table.key, scheme.table.rows_key} if scheme.table else set()
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


OF_BLOCKS: tuple[BlockRule, ...] = (
    base_key_ignored, share_key_ignored, type_ignored, share_ignored, base_ignored, sections_of_mrope,
    base_of_all_layers, width_of_releases,
)  # fmt: skip
OF_CONFIGS: tuple[ConfigRule, ...] = (
    stranger, levels_differ, layout_key, scaling_unread, position_type, padding_of_positions,
    unknown_family, learned_frequencies, dual_chunks,
)  # fmt: skip
