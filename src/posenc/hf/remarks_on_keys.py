"""Remarks on keys of one kind of layers: those that the family's code has under another name, or does not read."""

from __future__ import annotations

from collections.abc import Iterator

from posenc.hf.family import FULL
from posenc.hf.numbers import is_count
from posenc.hf.part import ALL, OUTSIDE, Part
from posenc.hf.remark import Remark
from posenc.hf.section import Section

_STRANGERS = ("n_embd", "n_head", "d_model", "n_heads", "n_positions", "n_ctx")
_OWN = {"dbrx": ("d_model", "n_heads")}


def on_keys(section: Section, part: Part) -> Iterator[Remark]:
    values, family = part.values, section.family
    own = family.kinds.get(part.kind)
    beside = OUTSIDE["rope_theta"] if own is None else (own.theta_key,)
    if "rope_theta" not in (part.found or {}) and all(section.config.get(name) is None for name in beside):
        whose = "this family's" if section.known else "the usual"
        yield Remark("rope_theta", f"is not given: {values['rope_theta']:g} is {whose} default", "base-default")
    stands = {path[0] for paths in part.places.values() for path in paths if len(path) == 1}
    if "rope_theta" in stands and family.theta_key == "rotary_emb_base" and "rotary_emb_base" not in stands:
        text = "is ignored by transformers beside the block in this family, which reads rotary_emb_base"
        yield Remark("rope_theta", text, "key-ignored", "fault")
    for key, read, own_key in (
        ("rotary_emb_base", "rope_theta", family.theta_key), ("rotary_pct", "partial_rotary_factor", family.share_key)
    ):  # fmt: skip
        if key in stands and key != own_key and section.known:
            text = f"is ignored by transformers in this family, which reads {read}"
            yield Remark(key, text, "key-ignored", "fault")
    if "rope_pct" in stands:
        text = "is ignored by transformers, which reads partial_rotary_factor"
        yield Remark("rope_pct", text, "key-ignored", "fault")
    share = values.get("partial_rotary_factor", 1)
    default_type = values.get("rope_type", "default") == "default"
    if share != 1 and default_type and section.known and not family.default_share and not family.latent:
        text = "is ignored by transformers in this family for rope type 'default'"
        yield Remark("partial_rotary_factor", text, "share-ignored", "fault")
    named = [path[-1] for path in part.places.get("rope_type", ())]
    if own is not None and named == ["type"]:
        text = "is ignored by transformers in this family, which reads rope_type alone"
        yield Remark("type", text, "key-ignored", "fault")
    yield from _on_widths(section, part)
    yield from _on_sections(section, part)
    if "llama_4_scaling_beta" in values:
        yield Remark(
            "llama_4_scaling_beta",
            "scales queries by their position, which is no part of a rotation: not read here, but "
            "model_from_config tells it of families whose code has it",
            "temperature",
        )
    if (
        section.model_type == "olmo3"
        and part.kind != FULL
        and len(part.home) < 2
        and values["rope_theta"] != family.base
    ):
        text = f"is for all layers; transformers 5.23 gives sliding ones {family.base:g}"
        yield Remark("rope_theta", text, "base-of-sliding-ignored", "fault")


def _on_widths(section: Section, part: Part) -> Iterator[Remark]:
    """On keys of a head's width and of lengths that other families have."""
    config, family = section.config, section.family
    key, other = "qk_rope_head_dim" if family.latent else family.head_key, config.get("head_dim")
    if part.kind in (ALL, FULL) and family.head_dim is not None and _silent_width(section) and not family.kinds:
        yield Remark(key, f"is not given: {family.head_dim} is this family's default", "head-width-default")
    if not section.known or family.fixed:
        return
    wide = is_count(other) and int(other * part.values.get("partial_rotary_factor", 1.0))
    if key != "head_dim" and other is not None and config.get(key, family.head_dim) not in (other, wide):
        text = f"is not the width that turns, {key}; transformers takes the one for the other"
        yield Remark("head_dim", text, "head-width-differs", "fault")
    for name in _STRANGERS:
        if config.get(name) is not None and name not in _OWN.get(section.model_type, ()):
            text = "is the key of another family, which transformers does not read in this one"
            yield Remark(name, text, "key-of-another-family", "suspicion")
    if family.share_key != "rotary_dim" and ("rotary_dim",) in part.places.get("rotary_dim", ()):
        text = "beside the block is ignored by transformers in this family"
        yield Remark("rotary_dim", text, "share-ignored", "fault")


def _silent_width(section: Section) -> bool:
    """Whether the width of a head stands nowhere, and the stream over the heads says another one than the family."""
    config, family = section.config, section.family
    width, heads = config.get("hidden_size"), config.get("num_attention_heads")
    key = "qk_rope_head_dim" if family.latent else family.head_key
    if key in config:
        return False
    return family.latent or not is_count(width) or not is_count(heads) or width != heads * (family.head_dim or 0)


def _on_sections(section: Section, part: Part) -> Iterator[Remark]:
    """On M-RoPE, and on the key that has the same name in one family."""
    values, found, family = part.values, part.found or {}, section.family
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
