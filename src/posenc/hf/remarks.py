"""What a reader of a configuration should know, though it can be understood: defaults, doubts, and what others do.

Each remark names a key. Those on transformers were confirmed by running version 5.23, and
`tests/reference/test_hf_config.py` holds them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from posenc.hf.known_faults import on_faults
from posenc.hf.mrope import Rotation
from posenc.hf.own import is_own
from posenc.hf.part import ALL, BLOCKS, OUTSIDE, Part
from posenc.hf.plain import plain_layers
from posenc.hf.reading import Reading
from posenc.hf.remark import Remark
from posenc.hf.remarks_on_block import on_engines, on_lengths, on_types, on_yarn
from posenc.hf.remarks_on_keys import on_keys
from posenc.hf.section import Section, section_of
from posenc.hf.source import Config
from posenc.hf.spelling import parts_of

_LIKE_ROPE = re.compile(r"rope|rotary|theta|alibi|ntk|logn|yarn")
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
    found = list(_on_model(section, parts, reading))
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
    config, family, name = section.config, section.family, section.model_type
    if not section.known and reading.layout is None and any(part.found is not None for part in parts):
        layout = "interleaved" if family.latent else "half"
        yield Remark(
            "model_type",
            f"{name or 'none'} is not known: layout {layout!r} is assumed; give layout= if it is not; "
            "what its code does beside turning (windows, layers without rotation, temperatures, sinks) is not known",
            "unknown-family",
            "suspicion",
        )
    if name.startswith("mistral_large4"):
        text = (
            "multiplies each frequency by a learned factor, exp of rotary_emb.alpha, which stands in the weights and "
        )
        text = f"{name} {text}in no configuration: the frequencies are read without it; RopeConfig.with_factors adds it"
        yield Remark("model_type", text, "learned-frequencies", "suspicion")
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
    exempt = plain_layers(section)
    if exempt:
        text = f"{len(exempt)} layers do not turn: {', '.join(map(str, exempt))}"
        yield Remark("no_rope_layers", text, "layers-without-rotation")
    used = {path[0] for part in parts for paths in part.places.values() for path in paths} | _UNDERSTOOD
    used |= {family.bases_key or "", family.turns_if[0] if family.turns_if else ""}
    nested = any(len(part.home) > 1 for part in parts)
    if nested:  # where they hold for the blocks that are silent
        used |= {kind.theta_key for kind in family.kinds.values()} or {n for names in OUTSIDE.values() for n in names}
    for key, value in config.items():
        if _LIKE_ROPE.search(key) and key not in used and value not in (None, False, [], {}):
            yield Remark(key, "speaks of positions, as it seems, and is not read here", "key-unread", "suspicion")
