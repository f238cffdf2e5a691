"""Command-line flags with which engines serve a model under a rotation.

    vLLM         --hf-overrides, with a block in its convention;  --max-model-len
    SGLang       --json-model-override-args, the same in its own;  --context-length
    llama.cpp    --rope-*, --yarn-*, -c;  whatever these cannot say must stand in the file (`write_gguf`)

A fixed spectrum without a rope type goes as longrope, a factor for each pair; one that follows the length only under a
declared one, through the plug-ins. No line is given that the engine was measured to compute wrong (`engine_table`): the
reason stands in its place.
Source: vLLM 0.33, rotary_embedding/__init__.py (get_rope), engine arguments; SGLang 0.5.23,
    rotary_embedding/factory.py, server_args.py, utils/hf_transformers/config.py (it merges an override into the block
    that the file has, so that every key of that block is said anew); llama.cpp, common/arg.cpp.
"""

from __future__ import annotations

import json
import shlex
from typing import NamedTuple

from posenc.arguments import check_flag, check_whole, shown
from posenc.frequencies.longrope import LongRoPE
from posenc.hf.config.block_schema import Block
from posenc.hf.config.block_schema import keys_of as keys_of_type
from posenc.hf.config.parse import layers_of
from posenc.hf.config.posenc_config import attached_names
from posenc.hf.config.rope_block import ALL
from posenc.hf.config.rope_config import RopeConfig
from posenc.hf.config.rope_keys import find_rope_blocks
from posenc.hf.config.rotation import Rotation, equivalent, keys_of, text_rope, to_longrope
from posenc.hf.config.scalings import LENGTH, SILENT, Convention, block_of
from posenc.hf.config.text_config import Section, length_key, max_length
from posenc.hf.config.write import Layers, extended_length, share_of
from posenc.hf.family import FULL
from posenc.hf.limits import TOKENS
from posenc.hf.serving.engine_table import SGLANG, VLLM, wrong
from posenc.hf.serving.plugin_rotation import plugin_block
from posenc.rotary.rope import RoPE


class Flags(NamedTuple):
    """What to add to an engine's command line.

    Attributes:
        engine: "vllm", "sglang" or "llama.cpp".
        words: to add, one by one; empty where its flags cannot say it, or where it computes them wrong.
        reason: why there are none.
        note: what to know of the words: of LongRoPE, which of its lists serves which texts.
    """

    engine: str
    words: tuple[str, ...] = ()
    reason: str = ""
    note: str = ""

    def __str__(self) -> str:
        line = shlex.join(self.words) if self.words else f"not by flags: {self.reason}"
        return f"{self.engine}: {line}" + (f"\n  {self.engine}: {self.note}" if self.note else "")


_NAMES = {"vllm": VLLM, "sglang": SGLANG}


def serve_flags(config: RopeConfig, *, exact: bool = False, length: int | None = None) -> list[Flags]:
    """The flags of each engine.

    Args:
        config: as `read_rope` gives it, with the rotation to serve.
        exact: through posenc's plug-ins, which must be installed beside the engine: exact angles; a scaling that
            follows the length spans ``length``.
        length: tokens to serve; default: what the configuration declares, or what a changed rotation reaches.

    Raises:
        ValueError: for something else than a RopeConfig, and for a length that is no count of tokens.
    """
    check_flag("exact", exact)
    if length is not None:
        check_whole("length", length, most=TOKENS)
    if not isinstance(config, RopeConfig):
        raise ValueError(f"config must be a RopeConfig, as read_rope gives it, got {shown(config)}")
    if attached_names(config.config) is not None:
        reason = "no engine computes the encodings that posenc attached to this model"
        return [Flags(engine, reason=reason) for engine in ("vllm", "sglang", "llama.cpp")]
    found, declared = [], length or _declared(config)
    for engine, flag, length_flag in (
        ("vllm", "--hf-overrides", "--max-model-len"), ("sglang", "--json-model-override-args", "--context-length"),
    ):  # fmt: skip
        try:
            words = [flag, json.dumps(_overrides(config, engine, exact, declared)), *_length(declared, length_flag)]
            found.append(Flags(engine, tuple(words), note=_note(config.layers, engine, exact, declared)))
        except ValueError as error:
            found.append(Flags(engine, reason=str(error)))
    try:
        found.append(Flags("llama.cpp", tuple(_of_llama_cpp(config, declared))))
    except ValueError as error:
        found.append(Flags("llama.cpp", reason=str(error)))
    return found


def _declared(config: RopeConfig) -> int | None:
    """Tokens that the model is to serve: what it declares, or what a changed rotation reaches."""
    declared = max_length(config.section)
    old = layers_of(config.config, config.reading)
    changed = any(not equivalent(rope, old.get(kind)) for kind, rope in config.layers.items())
    reached = extended_length(
        config.layers, recipes=changed
    )  # Llama 3.2 declares 131,072, and factor times original is twice it
    return max((one for one in (declared, reached) if one), default=None)


def _length(declared: int | None, flag: str) -> list[str]:
    return [] if declared is None else [flag, str(declared)]


def _note(layers: Layers, engine: str, exact: bool, declared: int | None) -> str:
    """Which of LongRoPE's lists serves which texts: one for all where vLLM or the plug-in is told a length."""
    lists = [rope_block for rope in layers.values() if rope is not None for rope_block in rope.modules()]
    originals = [
        rope_block.original_length
        for rope_block in lists
        if isinstance(rope_block, LongRoPE) and rope_block.short != rope_block.long
    ]
    if not originals or (engine != "vllm" and not exact):
        return ""
    long = declared is not None and declared > originals[0]
    return (
        f"texts of every length turn with the {'long' if long else 'short'} factors, and transformers takes the short "
        f"ones up to {originals[0]:,} tokens"
        + (f"; serve at most {originals[0]:,} (--length) for those" if long else "")
    )


def _overrides(config: RopeConfig, engine: str, exact: bool, declared: int | None) -> Block:
    """What the engine is to read in the place of the configuration's own, in the part of its text model."""
    section = config.section
    blocks = {
        kind: None if rotation is None else _block(rotation, section, engine, declared, exact)
        for kind, rotation in config.layers.items()
    }
    if not any(blocks.values()):
        raise ValueError("no layer turns")
    if engine == "sglang" and not exact and list(blocks) == [ALL]:
        (rope_block,) = find_rope_blocks(section)
        blocks[ALL] = _over(blocks[ALL] or {}, rope_block.effective)
    found: Block = {"rope_parameters": blocks[ALL] if list(blocks) == [ALL] else blocks}
    if "rope_theta" in section.config and list(blocks) == [ALL]:  # version 4's, which must not say otherwise
        found["rope_theta"] = found["rope_parameters"]["rope_theta"]
    said = max((one for one in (declared, max_length(section)) if one), default=None)
    if said is not None:  # also where the file has it, as the flags may be given beside the original weights
        found[length_key(section)] = said
    for name in reversed(section.path):
        found = {name: found}
    return found


def _block(rotation: Rotation, section: Section, engine: str, declared: int | None, exact: bool) -> Block:
    rope = text_rope(rotation)
    if exact:
        if rope is not rotation:
            raise ValueError("the plug-in has no M-RoPE; leave --exact out")
        return plugin_block(rope, length=declared if rope.length_dependent else None, tokens=declared)
    convention: Convention = "vllm" if engine == "vllm" else "sglang"
    block = _in(convention, rope, declared)
    if rope.rotary_dim != rope.head_dim and not section.family.latent:
        block["partial_rotary_factor"] = share_of(rope)
    found = wrong(_NAMES[engine], block)
    if found:
        text = "; ".join(one.text for one in found)
        raise ValueError(f"{text}; posenc's plug-in serves it (--exact)")
    return {**block, **keys_of(rotation, section.family, {})}


def _over(block: Block, old: Block) -> Block:
    """The block with every key of its type that the file may bring into it said anew; null where it must not count."""
    read = keys_of_type(block["rope_type"], "sglang")
    kept = {key: SILENT.get(key) for key in read if key not in block and (key in SILENT or key in old)}
    return {**block, **kept}


def _in(convention: Convention, rope: RoPE, declared: int | None) -> Block:
    """The block in an engine's convention; for what has no rope type there, a factor for each pair."""
    if rope.length_dependent and not any(isinstance(rope_block, LongRoPE) for rope_block in rope.modules()):
        text = "it follows the length, which the engine fixes once: declare one with --exact and posenc's plug-in"
        raise ValueError(f"{' '.join(str(rope.scaling).split())}: {text}")
    try:
        block = block_of(rope, convention, {})
    except ValueError:
        rope = text_rope(to_longrope(rope, declared))
        block = block_of(rope, convention, {})
    return {key: value for key, value in block.items() if key != LENGTH}


def _of_llama_cpp(config: RopeConfig, declared: int | None) -> list[str]:
    rotation = config.layers.get(FULL, next(iter(config.layers.values())))
    if rotation is None:
        raise ValueError("no layer turns")
    rope, words = text_rope(rotation), _length(declared, "-c")
    try:
        block = block_of(rope, "transformers", {})
    except ValueError:
        block = {}
    kind = block.get("rope_type")
    if kind == "default":
        return ["--rope-scaling", "none", "--rope-freq-base", f"{block['rope_theta']:.10g}", *words]
    base = ["--rope-freq-base", f"{rope.base:.10g}"]
    if kind == "linear":
        return ["--rope-scaling", "linear", "--rope-scale", f"{block['factor']:.10g}", *base, *words]
    plain = {"rope_type", "rope_theta", "factor", "original_max_position_embeddings", "beta_fast", "beta_slow"}
    if kind == "yarn" and set(block) <= plain:
        betas = [
            word for key in ("beta_fast", "beta_slow") if key in block
            for word in (f"--yarn-{key.replace('_', '-')}", f"{block[key]:.10g}")
        ]  # fmt: skip
        original = ["--yarn-orig-ctx", str(block["original_max_position_embeddings"])]
        return ["--rope-scaling", "yarn", "--rope-scale", f"{block['factor']:.10g}", *original, *betas, *base, *words]
    what = "gain or ramp of its own" if kind == "yarn" else "factors for each pair"
    raise ValueError(f"they have no {what}; write the file: posenc gguf")
