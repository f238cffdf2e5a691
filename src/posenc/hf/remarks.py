"""What a reader of a configuration should know, though it can be understood: defaults, doubts, and what others do.

Each remark names a key. Those on transformers were confirmed by running version 5.23, and
`tests/reference/test_hf_config.py` holds them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from posenc.hf.known_faults import on_faults
from posenc.hf.mrope import Rotation
from posenc.hf.numbers import is_number, shown
from posenc.hf.own import is_own
from posenc.hf.part import ALL, BLOCKS, OUTSIDE, Part
from posenc.hf.plain import plain_layers
from posenc.hf.reading import Reading
from posenc.hf.remark import Remark
from posenc.hf.remarks_on_block import on_engines, on_lengths, on_types, on_yarn
from posenc.hf.remarks_on_keys import on_keys
from posenc.hf.remarks_on_layers import on_layers
from posenc.hf.section import Section, section_of
from posenc.hf.source import Config
from posenc.hf.spelling import parts_of

_WORDS = {"rope", "rotary", "theta", "alibi", "ntk", "logn", "yarn"}
_BASES = {"rope_base", "rotary_base", "rotary_theta", "rope_embedding_base", "rotary_embedding_base"}
_TOP_LEVEL = ("rope_theta", "rope_scaling", "rope_parameters", "max_position_embeddings", "partial_rotary_factor",
              "original_max_position_embeddings", "sliding_window", "num_key_value_heads", "layer_types")  # fmt: skip
_MISSPELT = 0.88  # of a ratio of likeness: one or two letters of a name
_UNDERSTOOD = {
    "alibi", "no_rope_layer_interval", "no_rope_layers", "qk_rope_head_dim", "rope_interleave", "rotary", *BLOCKS,
}  # fmt: skip


def remarks_of(
    whole: Config, layers: Mapping[str, Rotation | None], reading: Reading, *, of_transformers: bool = True
) -> tuple[Remark, ...]:
    """All remarks on a configuration that was read; without those on transformers where it is not for that."""
    if is_own(whole):
        return ()
    section = section_of(whole)
    parts = [part.without(reading.ignore) for part in parts_of(section)]
    found = [*_on_model(section, parts, reading), *on_layers(section)]
    for part in parts:
        rope = layers[part.kind]
        if rope is None:
            continue
        own = [
            *on_lengths(part),
            *on_yarn(section, part, reading),
            *on_types(section, part, rope),
            *on_engines(section, part, reading),
            *on_keys(section, part),
            *on_faults(whole, section, part, rope),
        ]
        where = "" if part.kind == ALL else f"{part.kind}: "
        found += [remark._replace(text=where + remark.text) for remark in own]
    heard = [one for one in found if of_transformers or not ("transformers" in one.text or one.level == "note")]
    return tuple(dict.fromkeys(heard))


def _on_model(section: Section, parts: list[Part], reading: Reading) -> Iterator[Remark]:
    config, family, name = section.config, section.rotation, section.model_type
    if not section.known and reading.layout is None and any(part.found is not None for part in parts):
        layout = "interleaved" if family.latent else "half"
        yield Remark(
            "model_type",
            f"{name or 'none'} is unknown to posenc: the keys of its rotation are read as in a Llama, with layout "
            f"{layout!r} (layout= overrides it); which layers rotate, windows, temperatures and sinks are not read",
            "unknown-family",
        )
    if name.startswith("mistral_large4"):
        text = (
            "multiplies each frequency by a learned factor, exp of rotary_emb.alpha, which stands in the weights and "
        )
        text = f"{name} {text}in no configuration: the frequencies are read without it; RopeConfig.with_factors adds it"
        yield Remark("model_type", text, "learned-frequencies")
    if config.get("alibi") is True:
        yield Remark("alibi", "is true: this model has ALiBi instead of a rotation", "alibi")
    if any(len(part.home) > 1 for part in parts) and section.known and not (family.kinds or family.nested):
        text = "has a block for each kind of layers, which the code of this family in transformers does not read"
        yield Remark("rope_parameters", text, "blocks-of-kinds-ignored", "fault")
    if section.known and not family.layout_key and config.get("rope_interleave") is not None:
        text = f"is not read by the code of this family, whose layout is {family.layout!r}"
        agrees = config["rope_interleave"] == (family.layout == "interleaved")
        yield Remark("rope_interleave", text, "layout-key-ignored", "note" if agrees else "fault")
    if family.trailing:
        text = "in this family the last channels of a head turn, and RoPE turns the first: give it that slice"
        yield Remark("head_dim", text, "last-channels-turn")
    exempt = plain_layers(section) if section.known or "no_rope_layers" in config else []
    if exempt:
        text = f"{len(exempt)} layers do not turn: {', '.join(map(str, exempt))}"
        yield Remark("no_rope_layers", text, "layers-without-rotation")
    used = {path[0] for part in parts for paths in part.places.values() for path in paths} | _UNDERSTOOD
    used |= {family.bases_key or "", family.rotates_if[0] if family.rotates_if else ""}
    nested = any(len(part.home) > 1 for part in parts)
    if nested:  # where they hold for the blocks that are silent
        used |= {kind.theta_key for kind in family.kinds.values()} or {n for names in OUTSIDE.values() for n in names}
    yield from _on_unread(section, parts, used)


def _says_the_same(parts: list[Part], key: str, value: Any) -> bool:
    """Whether an unread key repeats what is read of every kind of layers that is rotated."""
    read = [part.values.get(key) for part in parts if part.found is not None]
    return bool(read) and all(one == value for one in read)


def _on_unread(section: Section, parts: list[Part], used: set[str]) -> Iterator[Remark]:
    """Keys of the text part that nobody reads here: a note, unless one contradicts what is read or is misspelt."""
    bases: set[Any] = {part.values.get("rope_theta") for part in parts if part.found is not None} - {None}
    for key, value in section.config.items():
        if key in used or value in (None, False, [], {}) or _says_the_same(parts, key, value):
            continue
        near = difflib.get_close_matches(key, _TOP_LEVEL, n=1, cutoff=_MISSPELT)
        qualified = bool(near) and (key.endswith(f"_{near[0]}") or key.startswith(f"{near[0]}_"))
        if near and not qualified and key not in _TOP_LEVEL and section.known:
            text = f"is read by nobody; was {near[0]} meant?"
            yield Remark(key, text, "key-misspelt", "suspicion")
        elif key in _BASES and bases and is_number(value, 1) and value not in bases:
            read = " and ".join(sorted(map(shown, bases)))
            text = f"= {shown(value)} is not read for this model type, and the base that is read is {read}"
            yield Remark(key, text, "base-unread", "suspicion" if section.known else "note")
        elif _WORDS & set(re.split(r"[^a-z0-9]+|(?<=[a-z])(?=[0-9])", key.lower())):
            yield Remark(key, "seems to concern positions, and is not read", "key-unread")
