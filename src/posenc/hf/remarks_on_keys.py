"""Remarks on keys of one kind of layers: those that the family's code has under another name, or does not read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from posenc.hf.families.layer_patterns import FULL
from posenc.hf.numbers import is_count, is_number, shown
from posenc.hf.part import ALL, OUTSIDE, Part, at
from posenc.hf.remark import Remark
from posenc.hf.section import Section, head_dim

_SAME = {
    "n_embd": ("hidden_size",), "d_model": ("hidden_size",), "n_head": ("num_attention_heads",),
    "n_heads": ("num_attention_heads",), "n_positions": ("max_position_embeddings",),
    "n_ctx": ("max_position_embeddings",),
}  # fmt: skip
_STRANGERS = ("n_embd", "n_head", "d_model", "n_heads", "n_positions", "n_ctx")
_OWN = {"dbrx": ("d_model", "n_heads")}


def on_keys(section: Section, part: Part) -> Iterator[Remark]:
    values, family = part.values, section.rotation
    own = family.kinds.get(part.kind)
    beside = OUTSIDE["rope_theta"] if own is None else (own.theta_key,)
    if "rope_theta" not in (part.found or {}) and all(section.config.get(name) is None for name in beside):
        whose = "this family's" if section.known else "the usual"
        null = "rope_theta" in part.places and section.known and not (family.fixed or family.null_base or family.kinds)
        if null:
            text = f"is null, with which transformers 5 fails; {values['rope_theta']:g} is read, this family's default"
            yield Remark("rope_theta", text, "base-null", "fault")
        else:
            yield Remark("rope_theta", f"is not given: {values['rope_theta']:g} is {whose} default", "base-default")
    inner = section.config.get("attn_config")
    released = inner.get("rope_theta") if section.model_type == "dbrx" and isinstance(inner, dict) else None
    if is_number(released, 1) and released != values["rope_theta"]:
        text = f"= {shown(released)} is the base as released; transformers 5.23 ignores it and rotates by base "
        text += f"{values['rope_theta']:g} (a fault of transformers, not of the file)"
        yield Remark("attn_config.rope_theta", text, "base-ignored-by-transformers")
    stands = {path[0] for paths in part.places.values() for path in paths if len(path) == 1}
    if "rope_theta" in stands and family.theta_key == "rotary_emb_base" and "rotary_emb_base" not in stands:
        text = "is ignored by transformers beside the block in this family, which reads rotary_emb_base"
        yield from _ignored(section, "rope_theta", family.base, text)
    default_share = family.share if family.share != 1 or not section.known else 1.0
    for key, own_key, name, read in (
        ("rotary_emb_base", family.theta_key, "rope_theta", _read(section, part, "rope_theta", family.base)),
        (
            "rotary_pct",
            family.share_key,
            "partial_rotary_factor",
            _read(section, part, "partial_rotary_factor", default_share),
        ),
        ("rope_pct", "", "partial_rotary_factor", _read(section, part, "partial_rotary_factor", default_share)),
    ):
        if key in stands and key != own_key and (section.known or key == "rope_pct"):
            yield from _ignored(section, key, read, f"is ignored by transformers in this family, which reads {name}")
    share = values.get("partial_rotary_factor", 1)
    default_type = values.get("rope_type", "default") == "default"
    if share != 1 and default_type and section.known and not family.default_share and not family.latent:
        text = "is ignored by transformers in this family for rope type 'default'"
        yield Remark("partial_rotary_factor", text, "share-ignored", "fault")
    named = [path[-1] for path in part.places.get("rope_type", ())]
    if own is not None and named == ["type"] and not family.scaled:
        text = "is ignored by transformers in this family, which reads rope_type alone"
        yield Remark("type", text, "key-ignored", "fault")
    yield from _on_widths(section, part)
    yield from _on_sections(section, part)
    temperature = section.family.attention.temperature
    if "llama_4_scaling_beta" in values and (
        temperature is None or temperature.form != "block steps"
    ):  # else the schedule tells it
        text = f"scales queries by their position in Ministral 3 and Mistral 4; of {section.model_type} it is not read"
        yield Remark("llama_4_scaling_beta", text, "temperature")
    if (
        section.model_type == "olmo3"
        and part.kind != FULL
        and len(part.home) < 2
        and values["rope_theta"] != family.base
    ):
        text = f"is for all layers; transformers 5.23 gives sliding ones {family.base:g}"
        yield Remark("rope_theta", text, "base-of-sliding-ignored", "fault")


def _read(section: Section, part: Part, key: str, default: float) -> Any:
    """The value that transformers reads under a key of version 5, other spellings of it aside."""
    given = (at(section.config, path) for path in part.places.get(key, ()) if path[-1] == key)
    return next((value for value in given if value is not None), default)


def _ignored(section: Section, key: str, read: object, text: str) -> Iterator[Remark]:
    """A key that the family's code does not read, unless it says what is read anyway."""
    given = section.config.get(key)
    if given is not None and given != read:
        yield Remark(key, f"= {shown(given)} {text}: {shown(read)}", "key-ignored", "fault")


def _on_widths(section: Section, part: Part) -> Iterator[Remark]:
    """On keys of a head's width and of lengths that other families have."""
    config, family = section.config, section.rotation
    key, other = "qk_rope_head_dim" if family.latent else family.head_key, config.get("head_dim")
    if part.kind in (ALL, FULL) and family.head_dim is not None and _silent_width(section) and not family.kinds:
        yield Remark(key, f"is not given: {family.head_dim} is this family's default", "head-width-default")
    if not section.known or family.fixed:
        return
    if part.kind in (ALL, FULL):
        yield from _on_null_width(section, part)
    share = part.values.get("partial_rotary_factor", 1.0)
    wide = int(other * share) if is_count(other) and is_number(share, 0) else None
    if family.head_dim_first and other is not None and config.get(key, family.head_dim) not in (other, wide):
        text = f"= {shown(other)} is not the width that is rotated, {key} = {shown(config.get(key, family.head_dim))}; "
        text += "the rotary module of transformers takes head_dim"
        yield Remark("head_dim", text, "head-width-differs", "fault")
    for name in _STRANGERS:
        if config.get(name) is not None and name not in _OWN.get(section.model_type, ()):
            yield from _on_stranger(section, name)
    if family.share_key != "rotary_dim" and ("rotary_dim",) in part.places.get("rotary_dim", ()):
        width = other if is_count(other) else family.head_dim
        given = _read(section, part, "partial_rotary_factor", family.share)
        read = int(width * given) if width is not None and is_number(given, 0) else None
        if read != config["rotary_dim"]:
            text = f"= {shown(config['rotary_dim'])} is ignored by the code of this family in transformers"
            text += "" if read is None else f", which rotates {read} channels"
            yield Remark("rotary_dim", text, "share-ignored", "note" if _as_released(section) else "fault")


def _on_null_width(section: Section, part: Part) -> Iterator[Remark]:
    """A head_dim that is null, or missing, where transformers multiplies by it."""
    config, family = section.config, section.rotation
    if family.latent or family.head_key != "head_dim" or config.get("head_dim") is not None:
        return
    scaled = part.values.get("rope_type", "default") != "default"
    null = "head_dim" in config
    default = family.head_dim is not None and family.null_head_dim != "allowed"
    if null and (default or family.null_head_dim == "fails"):
        text = "is null, with which transformers fails"
    elif scaled and family.null_head_dim == "fails if scaled":
        text = f"is {'null' if null else 'missing'}, and transformers multiplies by it for every scaled rope type: it "
        text += "fails (a fault of transformers, not of the file)"
    else:
        return
    width = family.head_dim or head_dim(section, part.kind, None)
    yield Remark("head_dim", f"{text}; write head_dim: {width}", "head-width-null", "fault")


def _on_stranger(section: Section, name: str) -> Iterator[Remark]:
    """A key under another family's name for something that this family's own key says, too."""
    config = section.config
    mine = next((config[key] for key in _SAME.get(name, ()) if config.get(key) is not None), None)
    if mine != config[name]:
        text = (
            f"= {shown(config[name])} is another family's key, and transformers does not read it in this one: it reads "
        )
        text += f"{_SAME[name][0]}, which is {'missing' if mine is None else shown(mine)}"
        yield Remark(name, text, "key-of-another-family", "suspicion")


def _as_released(section: Section) -> bool:
    """Families whose released files themselves have a key that transformers' code ignores: no fault of a file."""
    return section.model_type in ("minimax", "minimax_m3_vl_text")


def _silent_width(section: Section) -> bool:
    """Whether the width of a head stands nowhere, and the stream over the heads says another one than the family."""
    config, family = section.config, section.rotation
    width, heads = config.get("hidden_size"), config.get("num_attention_heads")
    key = "qk_rope_head_dim" if family.latent else family.head_key
    if key in config:
        return False
    return family.latent or not is_count(width) or not is_count(heads) or width != heads * (family.head_dim or 0)


def _on_sections(section: Section, part: Part) -> Iterator[Remark]:
    """On M-RoPE, and on the key that has the same name in one family."""
    values, found, family = part.values, part.found or {}, section.rotation
    if family.sections is None:
        if "mrope_section" in values and section.known:
            text = "is ignored by transformers in this family, which turns by one position"
            yield Remark("mrope_section", text, "sections-ignored", "fault")
    elif "mrope_section" not in found:
        text = f"is not given: {list(family.sections)} is this family's default"
        yield Remark("mrope_section", text, "sections-default")
    elif found.get("mrope_interleaved", family.order == "interleaved") != (family.order == "interleaved"):
        text = f"is {found['mrope_interleaved']}, but the order of this family's pairs is {family.order!r}, and read so"
        yield Remark("mrope_interleaved", text, "order-of-sections", "suspicion")
    if family.order == "time last" and values.get("rope_type", "default") != "default":
        text = "other than 'default' is refused by transformers 5.23 in this family"
        yield Remark("rope_type", text, "rope-type-refused", "fault")
    if "interleaved" in found:
        text = "is not read: mrope_interleaved says the order of axes, layout= what a pair is"
        yield Remark("interleaved", text, "interleaved-unread")
