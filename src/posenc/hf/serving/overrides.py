"""Overrides of a config on the command lines of vLLM and SGLang: a rope block in the engine's own convention.

A fixed spectrum without a rope type is written as longrope, with a factor for each pair. A length-dependent one needs a
declared length and posenc's plug-ins. Keys of the file's block that say something else than the rotation (temperatures,
sections) are kept, because an override replaces the block.
Source: vLLM 0.33, rotary_embedding/__init__.py (get_rope), engine arguments; SGLang 0.5.23,
    rotary_embedding/factory.py, server_args.py, utils/hf_transformers/config.py (it merges an override into the file's
    block, so every key of that block is written out).
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from posenc.arguments import one_line
from posenc.frequencies.host import steps_of
from posenc.frequencies.longrope import LongRoPE
from posenc.frequencies.rotation import RoPESpec
from posenc.hf.config.rope_config import RopeConfig
from posenc.hf.config.rope_keys import ALL, INTERLEAVED, PRESERVED, Block, find_rope_blocks
from posenc.hf.config.rope_keys import keys_of as keys_of_type
from posenc.hf.config.rotation import LENGTH, SILENT, Convention, Rotation, text_rope
from posenc.hf.config.text_config import length_key, max_length
from posenc.hf.config.write import block_of, keys_of, share_of, to_longrope
from posenc.hf.serving.lines import Line, Serving, has_lists
from posenc.hf.serving.plugin_block import plugin_block
from posenc.hf.serving.table import engine_result, newest


class Server(NamedTuple):
    """An engine that serves over HTTP and takes overrides of the config.

    Attributes:
        name: of the engine.
        column: its name in the table.
        start: words of its command before the folder.
        length_flag: of the tokens to serve.
        override_flag: takes the keys that replace the config's, as JSON.
        convention: of its rope blocks.
        merges: whether it merges an override into the file's block, instead of replacing it.
        from_outer: model types whose text model is built from the config outside text_config.
    """

    name: str
    column: str
    start: tuple[str, ...]
    length_flag: str
    override_flag: str
    convention: Convention
    merges: bool = False
    from_outer: tuple[str, ...] = ()


def server_line(server: Server, serving: Serving, notes: Sequence[str]) -> Line:
    """The line of a server: the folder with the length, and what overrides its config where the rotation changes."""
    folder = serving.folder
    length = () if serving.length is None else (server.length_flag, str(serving.length))
    line = Line(server.name, newest(server.column), "", None, "")
    blocks: dict[str, Block | None] = {}
    if not serving.overridden:
        checked, words = serving.verdict(server.column), length
    else:
        try:
            blocks = _blocks(server, serving)
        except ValueError as error:
            return line._replace(text=str(error))
        checked = serving.verdict(server.column, blocks.values(), "v5")
        words = (server.override_flag, json.dumps(_overrides(server, serving, blocks)), *length)
    if checked.wrong and not serving.overridden:  # flags may reach what the file's own keys do not
        by_flags = server_line(server, replace(serving, overridden=True), notes)
        if by_flags.command and by_flags.right is not False:
            return by_flags._replace(notes=(*by_flags.notes, f"as the file is: {checked}"))
    if checked.wrong and not serving.exact:
        multimodal = any(text_rope(rope) is not rope for rope in serving.config.rotations.values() if rope is not None)
        exact = ["posenc", "serve", folder, "--exact", *(["--length", str(serving.length)] if serving.length else [])]
        plug_in = "" if multimodal or checked.plug_in_failed else f"; or posenc's plug-in: {shlex.join(exact)}"
        return line._replace(right=False, text=f"{checked}{plug_in}")
    right, text = checked.right, str(checked)
    if serving.exact:
        if not _hands_on_blocks(server, serving):
            model_type = serving.text_config.model_type
            reason = f"{server.name}'s model class of {model_type} hands no rope block on to its rotary class"
            return line._replace(text=f"{reason}, so the plug-in would have no effect")
        right, text = True, "posenc's table in the engine's own class, compared with posenc's"
    command = shlex.join([*server.start, folder, *words])
    if serving.overridden and serving.text_config.path and not checked.override_ran:
        part, model_type = ".".join(serving.text_config.path), serving.text_config.model_type
        keys, serve = _inner_keys(server, serving, blocks), shlex.join([*server.start, folder, *length])
        return line._replace(
            text=f"an override of {part} was not run in this engine for {model_type}, and is lost or refused in some "
            f"classes: write {json.dumps(keys)} into {part} of config.json, then: {serve}"
        )
    return line._replace(command=command, right=right, text=text, words=words, notes=tuple(filter(None, notes)))


def longrope_note(serving: Serving, *, always: bool) -> str:
    """Which of LongRoPE's lists applies where an engine takes one list for all texts.

    Args:
        serving: what is served.
        always: whether the engine does so without posenc's plug-in too.
    """
    layers = serving.config.rotations.values()
    scalings = (step for rope in layers if rope is not None for step in steps_of(text_rope(rope).scaling))
    originals = [step.original_length for step in scalings if isinstance(step, LongRoPE) and step.short != step.long]
    if not originals or not (always or serving.exact):
        return ""
    long = serving.length is not None and serving.length > originals[0]
    return (
        f"every text gets the {'long' if long else 'short'} factors, while transformers uses the short factors up to "
        f"{originals[0]:,} tokens" + (f"; for those serve at most {originals[0]:,} tokens (--length)" if long else "")
    )


def _hands_on_blocks(server: Server, serving: Serving) -> bool:
    """Whether the model class was not measured to leave the block out: it then computes every scaling as none."""
    default, yarn = (
        engine_result(server.column, row, "v5", serving.text_config.model_type) for row in ("default", "yarn")
    )
    return not (default.wrong or (yarn.state == "ignored" and yarn.text == "all scaling"))


def _blocks(server: Server, serving: Serving) -> dict[str, Block | None]:
    """A block in the engine's convention for each kind of layers, None for layers that do not rotate."""
    config = serving.config
    blocks = {
        kind: None if rotation is None else _block(server, serving, rotation)
        for kind, rotation in config.rotations.items()
    }
    for before in () if serving.exact else config.facts.blocks:
        block = blocks.get(before.kind)
        if block is not None:
            block |= {key: value for key, value in _kept(before.effective).items() if key not in block}
    if not any(blocks.values()):
        raise ValueError("no layer rotates")
    return blocks


def _block(server: Server, serving: Serving, rotation: Rotation) -> Block:
    rope, text_config = text_rope(rotation), serving.text_config
    if serving.exact:
        if rope is not rotation:
            raise ValueError("the plug-in has no M-RoPE; leave --exact out")
        return plugin_block(rope, length=serving.length if rope.length_dependent else None, tokens=serving.length)
    block = block_in(server.convention, rope, serving.length)
    if rope.rotary_dim != rope.head_dim and not text_config.rotation.latent:
        block["partial_rotary_factor"] = share_of(rope.rotary_dim, rope.head_dim)
    elif text_config.get("partial_rotary_factor") not in (None, 1):  # the engine else takes the share outside the block
        block["partial_rotary_factor"] = 1.0
    return block | keys_of(rotation, text_config.rotation, {})


def block_in(convention: Convention, rope: RoPESpec, declared: int | None) -> Block:
    """The block in an engine's convention; for what has no rope type there, a factor for each pair.

    Raises:
        ValueError: for a rotation that follows the length.
    """
    if rope.length_dependent and not has_lists(rope):
        if declared is not None and all(getattr(s, "original_length", 0) >= declared for s in steps_of(rope.scaling)):
            return {"rope_type": "default", "rope_theta": rope.base}  # within it the base does not grow
        text = "it follows the length, which the engine fixes once: declare one with --exact and posenc's plug-in"
        raise ValueError(f"{one_line(rope.scaling)}: {text}")
    try:
        block = block_of(rope, convention, {})
    except ValueError:
        block = block_of(text_rope(to_longrope(rope, declared)), convention, {})
    if convention == "vllm" and block["rope_type"] == "yarn":  # gpt_oss.py takes them from the block without a default
        block = {**block, "beta_fast": block.get("beta_fast", 32.0), "beta_slow": block.get("beta_slow", 1.0)}
    return {key: value for key, value in block.items() if key != LENGTH}


def _kept(before: Block) -> Block:
    """Keys of the file's block that say something else than the rotation, because an override replaces the block."""
    separate = ("max_position_embeddings", INTERLEAVED)  # the served length, and what the rotation says itself
    return {key: before[key] for key in PRESERVED if before.get(key) is not None and key not in separate}


def _overrides(server: Server, serving: Serving, blocks: dict[str, Block | None]) -> Block:
    """The keys that override the config's own in the engine, nested as the text model's part is."""
    overrides = inner = _inner_keys(server, serving, blocks)
    for name in reversed(serving.text_config.path):
        overrides = {name: overrides}
    return {**inner, **overrides} if serving.text_config.model_type in server.from_outer else overrides


def _inner_keys(server: Server, serving: Serving, blocks: dict[str, Block | None]) -> Block:
    """The keys of the text model that change."""
    text_config, blocks = serving.text_config, _as_in_file(serving, blocks)
    if server.merges and not serving.exact and list(blocks) == [ALL]:
        in_file = next(block for block in find_rope_blocks(text_config) if block.values is not None)
        blocks[ALL] = _with_resets(blocks[ALL] or {}, in_file.effective)
    keys: Block = {"rope_parameters": blocks[ALL] if list(blocks) == [ALL] else blocks}
    if "rope_theta" in text_config and list(blocks) == [ALL]:  # version 4's key, which must not contradict the block
        keys["rope_theta"] = keys["rope_parameters"]["rope_theta"]
    longest = max((length for length in (serving.length, max_length(text_config)) if length), default=None)
    return keys if longest is None else {**keys, length_key(text_config): longest}


def _as_in_file(serving: Serving, blocks: dict[str, Block | None]) -> dict[str, Block | None]:
    """The blocks by kind of layers, or one for all where the code of the model decides which layers rotate.

    Cohere 2, EXAONE 4 and AFMoE leave their full-attention layers without a rotation by their code: the file has one
    block, and vLLM's and SGLang's classes of them read no other form (models/commandr.py, exaone4.py, afmoe.py).
    """
    in_file = serving.text_config.get("rope_parameters") or {}
    by_kind = any(isinstance(value, dict) for value in in_file.values())
    rotating = [block for block in blocks.values() if block is not None]
    read = serving.config.facts.as_read
    by_code = all(block is not None or read.get(kind) is None for kind, block in blocks.items())
    if len(rotating) < len(blocks) and by_code and not by_kind and all(block == rotating[0] for block in rotating):
        return {ALL: rotating[0]}
    return dict(blocks)


def _with_resets(block: Block, old: Block) -> Block:
    """The block with every other key of its type that the file's block may have set to its default, or null.

    SGLang merges an override into the file's block, so that a key which the override leaves out keeps its old value.
    """
    read = keys_of_type(block["rope_type"], "sglang")
    resets = {key: SILENT.get(key) for key in read if key not in block and (key in SILENT or key in old)}
    return {**block, **resets}


def gain_of_yarn(block: dict[str, Any]) -> tuple[float, float, float]:
    """The gain of a YaRN block on rotated queries and keys, and the scales (numerator, denominator) that give it.

    m(a) = 0.1 a ln(factor) + 1, and the gain is m(numerator) / m(denominator).

    Raises:
        ValueError: for a factor of 1 with another gain than 1.
    """
    scale, all_dim = float(block.get("mscale") or 0), float(block.get("mscale_all_dim") or 0)
    if block.get("attention_factor") is None:
        scale, all_dim = (scale, all_dim) if scale and all_dim else (1.0, 0.0)
        return _m(block["factor"], scale) / _m(block["factor"], all_dim), scale, all_dim
    gain = float(block["attention_factor"])
    if block["factor"] <= 1:
        raise ValueError("a gain needs a factor above 1 there")
    return gain, (gain - 1) / (0.1 * math.log(block["factor"])), 0.0


def _m(factor: float, scale: float) -> float:
    return 0.1 * scale * math.log(factor) + 1 if factor > 1 else 1.0


def steps_of_temperature(config: RopeConfig) -> Iterator[tuple[float, int]]:
    """Of each block whose temperature of the queries grows in steps: its beta, and the step in tokens."""
    rule = config.text_config.family.attention.temperature
    for block in config.facts.blocks:
        beta, step = (block.effective.get(key) for key in ("llama_4_scaling_beta", "original_max_position_embeddings"))
        if rule is not None and rule.form == "block steps" and beta and step:
            yield float(beta), int(step)
