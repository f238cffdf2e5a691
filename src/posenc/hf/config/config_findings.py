"""Findings on a readable configuration: defaults in use, ambiguous keys, contradictions.

Each finding names a key. Those on transformers were confirmed by running version 5.23, and
`tests/reference/test_hf_config.py` holds them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from posenc.arguments import shown
from posenc.hf.config.block_findings import on_engines, on_keys, on_lengths, on_types, on_yarn
from posenc.hf.config.known_keys import nearest_key
from posenc.hf.config.layer_kinds import lacks_window, patterned
from posenc.hf.config.non_rotary import is_non_rotary, position_schemes
from posenc.hf.config.parse import ParsedConfig, Reading
from posenc.hf.config.posenc_config import is_posenc_config
from posenc.hf.config.rope_block import ALL, BLOCKS, OUTSIDE, RopeBlock
from posenc.hf.config.rope_keys import unread_block_keys
from posenc.hf.config.text_config import (
    TextConfig,
    head_dim,
    layer_types,
    layers_without_rope,
    length_key,
    max_length,
)
from posenc.hf.config.upstream_bugs import on_upstream_bugs
from posenc.hf.families.layer_patterns import CHUNKED, FULL, KINDS, SLIDING
from posenc.hf.findings import Finding, Level
from posenc.hf.limits import LAYERS, TOKENS, is_count, is_number

_OTHER_LENGTHS = ("model_max_length", "max_sequence_length", "seq_length", "seq_len", "max_seq_len")

_BLOCKLESS = ("gptj", "codegen")  # rotate by sines of their own code, which reads no block (transformers 5.23)


def _on_layers(parsed: ParsedConfig) -> Iterator[Finding]:
    """Findings on the layers and lengths of a text model."""
    text_config = parsed.text_config
    yield from _on_other_lengths(text_config)
    yield from _on_no_rotation(text_config)
    yield from _on_repo(text_config)
    yield from _on_blocks(text_config)
    yield from _on_bases(text_config)
    try:
        kinds = parsed.layer_kinds
    except ValueError as error:  # which the reader of layers tells by itself
        level: Level = "suspicion" if text_config.known or is_non_rotary(text_config.family) else "note"
        yield Finding("layer_types", f"cannot be read: {error}", "layers-unread", level)
        return
    yield from _on_kinds(text_config, kinds)
    dual = text_config.get("dual_chunk_attention_config")
    if isinstance(dual, dict):
        original = dual.get("original_max_position_embeddings")
        trained = f" beyond the {original:,} tokens of training" if is_count(original) else ""
        text = f"asks for dual chunk attention{trained}, which vLLM computes and transformers ignores; not read here"
        yield Finding("dual_chunk_attention_config", text, "dual-chunk-unread")


def _on_other_lengths(text_config: TextConfig) -> Iterator[Finding]:
    """A length under a key that transformers does not read, and another one under the key that it reads."""
    longest = max_length(text_config)
    for name in _OTHER_LENGTHS:
        length = text_config.get(name)
        if text_config.known and longest is not None and is_count(length, TOKENS) and length != longest:
            text = (
                f"= {length:,} is not read by transformers, and {length_key(text_config)} says {longest:,}: the file "
            )
            text += "does not say which of the two lengths the model is meant for"
            yield Finding(name, text, "length-unread")


def _on_no_rotation(text_config: TextConfig) -> Iterator[Finding]:
    """Keys of a rotation in a model whose code has none."""
    config = text_config.config
    kind = config.get("position_embedding_type")
    if is_non_rotary(text_config.family) and isinstance(kind, str) and kind.startswith("relative_key"):
        text = f"= {kind!r} asks for vectors of the distance, which version 4 of transformers had; version 5 ignores "
        text += "the key and computes without them (a fault of transformers, not of the file)"
        yield Finding("position_embedding_type", text, "position-type-ignored")
    if not position_schemes(text_config) and text_config.model_type not in _BLOCKLESS:
        return
    for name in BLOCKS:
        block = config.get(name)
        kind = block.get("rope_type", block.get("type")) if isinstance(block, dict) else None
        if kind not in (None, "default"):
            why = "reads no scaling of its rotation" if text_config.model_type in _BLOCKLESS else "has no rotation"
            text = f"= {shown(block)} is not read: the code of {text_config.model_type} {why}"
            yield Finding(name, text, "scaling-unread", "suspicion")


def _on_repo(text_config: TextConfig) -> Iterator[Finding]:
    """RePo's keys, as the authors' olmo2 class reads them: SakanaAI/repo@1508a73, Olmo2Model.__init__."""
    block: Any = text_config.get("pe_config")
    mode = block.get("dynamic_pe_mode", "none") if isinstance(block, dict) else "none"
    layers = text_config.get("num_hidden_layers")
    if mode == "none" or text_config.model_type != "olmo2" or not is_count(layers, LAYERS):
        return
    if mode != "swigluex_multihead":
        text = f"has dynamic_pe_mode = {shown(mode)}, a mode of SakanaAI/repo that posenc does not read; transformers "
        yield Finding("pe_config", text + "ignores pe_config", "repo-mode-unread", "suspicion")
        return
    start, listed = block.get("dynmaic_pe_start_layer", 0), block.get("dynmaic_pe_layer_ids") or ""
    ids = listed.split(",") if isinstance(listed, str) and listed else []
    if not is_number(start) or not isinstance(listed, str) or not all(i.strip().isdecimal() for i in ids):
        text = "must have a number under dynmaic_pe_start_layer and numbers with commas under dynmaic_pe_layer_ids: "
        yield Finding("pe_config", text + "layers with RePo cannot be read", "repo-layers-unread", "suspicion")
        return
    chosen = [i for i in (sorted({int(i) for i in ids}) if ids else range(layers)) if start <= i < layers]
    text = f"lets tokens choose their positions by RePo (arXiv 2512.14391) in {len(chosen)} of {layers} layers: "
    text += (
        f"{', '.join(map(str, chosen)) or 'none'}. posenc.score.RePo rotates by the frequencies described here; other "
    )
    text += "layers rotate by the index, and transformers' own olmo2 ignores pe_config"
    yield Finding("pe_config", text, "repo-positions")
    for spelling in ("start_layer", "layer_ids"):
        right, read = f"dynamic_pe_{spelling}", f"dynmaic_pe_{spelling}"
        if block.get(right) and read not in block:
            text = f"has {right} = {shown(block[right])}, but the authors' class reads {read} (sic), which is missing: "
            yield Finding("pe_config", text + "write both, as their converter does", "repo-key-misspelt", "suspicion")


def _on_blocks(text_config: TextConfig) -> Iterator[Finding]:
    for name in BLOCKS:
        block: Any = text_config.get(name)
        if not isinstance(block, dict) or not any(isinstance(value, dict) for value in block.values()):
            continue
        for kind in unread_block_keys(text_config, block):
            if isinstance(block[kind], dict):
                text = f"has a block for {shown(kind)}, which no layer is: it is not read"
                level: Level = "note" if kind in KINDS else "suspicion"  # classes save blocks of kinds not in use
                yield Finding(name, text, "block-of-no-layer", level)
            else:
                text = f"has {kind} = {shown(block[kind])} outside the blocks of layers, where transformers ignores it"
                yield Finding(name, text, "key-outside-blocks")


def _on_bases(text_config: TextConfig) -> Iterator[Finding]:
    """A base of sliding layers above the base of full ones, which no released model has."""
    kind_keys = text_config.rotation.kinds
    if set(kind_keys) != {FULL, SLIDING}:
        return
    wide, local = (text_config.get(kind_keys[kind].theta_key, kind_keys[kind].base) for kind in (FULL, SLIDING))
    if is_number(wide, 1) and is_number(local, 1) and local > wide:
        text = f"= {shown(local)} is the base of the sliding layers, above the {shown(wide)} of the full ones "
        text += f"({kind_keys[FULL].theta_key}); were the two exchanged?"
        yield Finding(kind_keys[SLIDING].theta_key, text, "bases-exchanged", "suspicion")


def _on_kinds(text_config: TextConfig, kinds: list[str]) -> Iterator[Finding]:
    listed, pattern = layer_types(text_config), text_config.family.layers
    unknown = [kind for kind in dict.fromkeys(kinds) if kind not in KINDS]
    if unknown and text_config.known:
        text = f"names {', '.join(map(shown, unknown[:4]))}, which transformers does not know"
        yield Finding("layer_types", text, "layer-kind-unknown", "suspicion")
    for kind in dict.fromkeys(kinds or [FULL]):
        if lacks_window(text_config, kind):
            key = "attention_chunk_size" if kind == CHUNKED else pattern.window.key
            count = f"{kinds.count(kind)} layers" if kinds else "layers"
            text = f"gives no window, which {count} of {kind} need: transformers fails on them"
            yield Finding(key, text, "window-missing", "fault")
    period = text_config.get(pattern.period_key) if pattern.period_key else None
    if listed and is_count(period, LAYERS) and patterned(text_config, len(kinds)) != kinds:
        text = f"= {period} means another order of layers than layer_types, which transformers reads"
        yield Finding(pattern.period_key, text, "layer-orders-differ", "suspicion")


OTHER_LENGTHS = (
    "model_max_length",
    "max_sequence_length",
    "max_seq_length",
    "max_seq_len",
    "seq_length",
    "seq_len",
)  # keys that repeat or contradict the declared length
_WORDS = {"rope", "rotary", "theta", "alibi", "ntk", "logn", "yarn"}
_BASES = {"rope_base", "rotary_base", "rotary_theta", "rope_embedding_base", "rotary_embedding_base"}
_UNDERSTOOD = {
    "alibi", "no_rope_layer_interval", "no_rope_layers", "qk_rope_head_dim", "rope_interleave", "rotary", *BLOCKS,
}  # fmt: skip


def findings_of(parsed: ParsedConfig) -> tuple[Finding, ...]:
    """All findings on a configuration that could be read.

    Notes, and what concerns transformers alone, are left out for a configuration of another program.
    """
    if is_posenc_config(parsed.config):
        return parsed.program_findings
    text_config, reading = parsed.text_config, parsed.reading
    rope_blocks = [rope_block.without(reading.ignore) for rope_block in parsed.rope_blocks]
    findings = [*_on_model(text_config, rope_blocks, reading), *_on_layers(parsed)]
    for rope_block in rope_blocks:
        rope = parsed.layers[rope_block.kind]
        if rope is None:
            continue
        block_findings = [
            *on_lengths(text_config, rope_block),
            *on_yarn(text_config, rope_block, reading),
            *on_types(text_config, rope_block, rope),
            *on_engines(text_config, rope_block, reading),
            *on_keys(text_config, rope_block),
            *on_upstream_bugs(parsed.config, text_config, rope_block, rope),
        ]
        where = "" if rope_block.kind == ALL else f"{rope_block.kind}: "
        findings += [finding._replace(text=where + finding.text) for finding in block_findings]
    if parsed.program:
        findings = [finding for finding in findings if "transformers" not in finding.text and finding.level != "note"]
    unique = {(finding.name, finding.key, finding.text): finding for finding in findings}
    return (*parsed.program_findings, *unique.values())


def _on_model(text_config: TextConfig, rope_blocks: list[RopeBlock], reading: Reading) -> Iterator[Finding]:
    config, family, name = text_config.config, text_config.rotation, text_config.model_type
    if not text_config.known and reading.layout is None and any(block.values is not None for block in rope_blocks):
        layout = "interleaved" if family.latent else "half"
        yield Finding(
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
        yield Finding("model_type", text, "learned-frequencies")
    if config.get("alibi") is True:
        yield Finding("alibi", "is true: this model has ALiBi and no rotation", "alibi")
    if (
        any(len(block.target) > 1 for block in rope_blocks)
        and text_config.known
        and not (family.kinds or family.nested)
    ):
        text = "has a block for each kind of layers, which the code of this family in transformers does not read"
        yield Finding("rope_parameters", text, "blocks-of-kinds-ignored", "fault")
    if text_config.known and not family.layout_key and config.get("rope_interleave") is not None:
        text = f"is not read by the code of this family, whose layout is {family.layout!r}"
        agrees = config["rope_interleave"] == (family.layout == "interleaved")
        yield Finding("rope_interleave", text, "layout-key-ignored", "note" if agrees else "fault")
    if family.trailing:
        text = "in this family the last channels of a head are rotated, and RoPE rotates the first: pass it that slice"
        yield Finding("head_dim", text, "last-channels-rotate")
    exempt = layers_without_rope(text_config) if text_config.known or "no_rope_layers" in config else []
    if exempt:
        text = f"{len(exempt)} layers do not rotate: {', '.join(map(str, exempt))}"
        yield Finding("no_rope_layers", text, "layers-without-rotation")
    used = {path[0] for block in rope_blocks for paths in block.sources.values() for path in paths} | _UNDERSTOOD
    used |= {family.bases_key or "", family.rotates_if[0] if family.rotates_if else ""}
    nested = any(len(rope_block.target) > 1 for rope_block in rope_blocks)
    if nested:  # where they are defaults of the blocks
        used |= {kind.theta_key for kind in family.kinds.values()} or {n for names in OUTSIDE.values() for n in names}
    yield from _on_null_head_dim(text_config, rope_blocks)
    yield from _on_unread(text_config, rope_blocks, used)


def _on_null_head_dim(text_config: TextConfig, rope_blocks: list[RopeBlock]) -> Iterator[Finding]:
    """A head_dim that is null, or missing where transformers' own default is null, with which transformers fails."""
    config, family = text_config.config, text_config.rotation
    null = "head_dim" in config
    if not text_config.known or family.head_key != "head_dim" or config.get("head_dim") is not None:
        return
    if not null and not family.head_dim_required:
        return
    typed = family.head_dim is not None and not family.latent  # their classes validate an integer
    effect = family.null_head_dim or ("fails" if typed else "allowed")
    scaled = any(block.effective.get("rope_type", "default") != "default" for block in rope_blocks)
    if effect == "allowed" or (effect == "fails if scaled" and not scaled):
        return
    text = "is null" if null else "is missing, for which transformers writes null"
    text += ": transformers 5.23 computes with it" + (" for every scaled rope type" if "scaled" in effect else "")
    text += " and fails" + (" (a fault of transformers, not of the file)" if effect != "fails" or not null else "")
    try:
        repair = f"write head_dim: {family.head_dim or head_dim(text_config, rope_blocks[0].kind, None)}"
    except ValueError:  # the config has no other size of a head
        repair = "write the width of a head"
    yield Finding("head_dim", f"{text}; {'remove the key' if family.latent else repair}", "head-width-null", "fault")


def _says_the_same(rope_blocks: list[RopeBlock], key: str, value: Any) -> bool:
    """Whether an unread key repeats what is read of every kind of layers that is rotated."""
    read = [rope_block.effective.get(key) for rope_block in rope_blocks if rope_block.values is not None]
    return bool(read) and all(other == value for other in read)


def _on_unread(text_config: TextConfig, rope_blocks: list[RopeBlock], used: set[str]) -> Iterator[Finding]:
    """Keys of the text model that are not read: a note, unless one contradicts what is read or is misspelt."""
    bases: set[Any] = {block.effective.get("rope_theta") for block in rope_blocks if block.values is not None} - {None}
    has_code = text_config.known or is_non_rotary(text_config.family)
    for key, value in text_config.items():
        if key in used or value in (None, False, [], {}) or _says_the_same(rope_blocks, key, value):
            continue
        near = nearest_key(text_config, key) if has_code else None
        if near is not None and text_config.get(near) != value:
            yield _misspelt(text_config, key, near)
        elif key in _BASES and bases and is_number(value, 1) and value not in bases:
            read = " and ".join(sorted(map(shown, bases)))
            text = f"= {shown(value)} is not read for this model type, and the base that is read is {read}"
            yield Finding(key, text, "base-unread", "suspicion" if text_config.known else "note")
        elif _WORDS & set(re.split(r"[^a-z0-9]+|(?<=[a-z])(?=[0-9])", key.lower())):
            yield Finding(key, "looks like a key for positions, but this model type does not read it", "key-unread")
        elif not has_code and key in OTHER_LENGTHS and is_count(value, TOKENS) and value != max_length(text_config):
            declared, read = max_length(text_config), length_key(text_config)
            if declared is not None:
                text = (
                    f"= {value:,} is not read, and {read} = {declared:,} is: the model's own code or its authors say "
                )
                text += "which of them is the training length"
                yield Finding(key, text, "length-unread")


def _misspelt(text_config: TextConfig, key: str, near: str) -> Finding:
    """A key that nothing reads, a misspelling of a key that this family reads and whose value differs."""
    value, other = text_config[key], text_config.get(near)
    if other is None:
        text = f"= {shown(value)} is not read; was {near} meant, which is missing?"
        return Finding(key, text, "key-misspelt", "suspicion", {key: None, near: value})
    text = f"= {shown(value)} is not read; {near} is, and says {shown(other)}: which of the two values is meant?"
    return Finding(key, text, "key-misspelt", "suspicion")
