"""The words of a command line that make engines serve a model under a rotation.

    vLLM         --hf-overrides, with a block in its convention;  --max-model-len
    SGLang       --json-model-override-args, the same in its own;  --context-length
    llama.cpp    --rope-*, --yarn-*, -c;  whatever these cannot say must stand in the file (`write_gguf`)

A fixed spectrum without a rope type goes as longrope, a factor for each pair; one that follows the length only under a
declared one, through the plug-ins (`posenc.hf.plugins`).
Source: vLLM, rotary_embedding/__init__.py (get_rope), engine arguments; SGLang 0.5.23, rotary_embedding/factory.py,
    server_args.py; llama.cpp, common/arg.cpp.
"""

from __future__ import annotations

import json
import shlex
from typing import NamedTuple

from posenc.arguments import check_flag, shown
from posenc.frequencies.longrope import LongRoPE
from posenc.hf.config import RopeConfig
from posenc.hf.family import FULL
from posenc.hf.lengths import reach
from posenc.hf.mrope import Rotation, keys_of, of_text
from posenc.hf.part import ALL
from posenc.hf.plugins.rotation import plugin_block
from posenc.hf.same import frozen
from posenc.hf.scalings import LENGTH, Convention, block_of
from posenc.hf.schema import Block
from posenc.hf.section import Section, length_key, max_length
from posenc.hf.write import share_of
from posenc.rotary.rope import RoPE


class Flags(NamedTuple):
    """What to add to an engine's command line.

    Attributes:
        engine: "vllm", "sglang" or "llama.cpp".
        words: to add, one by one; empty where its flags cannot say it.
        reason: why they cannot.
    """

    engine: str
    words: tuple[str, ...] = ()
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.engine}: {shlex.join(self.words) if self.words else f'not by flags: {self.reason}'}"


def serve_flags(config: RopeConfig, *, exact: bool = False) -> list[Flags]:
    """The flags of each engine.

    Args:
        config: as `read_rope` gives it, with the rotation to serve.
        exact: through posenc's plug-ins, which must be installed beside the engine: exact angles; a scaling that
            follows the length spans the declared one.

    Raises:
        ValueError: for something else than a RopeConfig.
    """
    check_flag("exact", exact)
    if not isinstance(config, RopeConfig):
        raise ValueError(f"config must be a RopeConfig, as read_rope gives it, got {shown(config)}")
    found = []
    for engine, flag, length_flag in (
        ("vllm", "--hf-overrides", "--max-model-len"), ("sglang", "--json-model-override-args", "--context-length"),
    ):  # fmt: skip
        try:
            words = [flag, json.dumps(_overrides(config, engine, exact)), *_length(config, length_flag)]
            found.append(Flags(engine, tuple(words)))
        except ValueError as error:
            found.append(Flags(engine, reason=str(error)))
    try:
        found.append(Flags("llama.cpp", tuple(_of_llama_cpp(config))))
    except ValueError as error:
        found.append(Flags("llama.cpp", reason=str(error)))
    return found


def _declared(config: RopeConfig) -> int | None:
    """Tokens that the model is to serve: what it declares, or what its rotation reaches."""
    return max((one for one in (max_length(config.section), reach(config.layers)) if one), default=None)


def _length(config: RopeConfig, flag: str) -> list[str]:
    declared = _declared(config)
    return [] if declared is None else [flag, str(declared)]


def _overrides(config: RopeConfig, engine: str, exact: bool) -> Block:
    """What the engine is to read in the place of the configuration's own, in the part of its text model."""
    section, declared = config.section, _declared(config)
    blocks = {
        kind: None if rotation is None else _block(rotation, section, engine, declared, exact)
        for kind, rotation in config.layers.items()
    }
    if not any(blocks.values()):
        raise ValueError("no layer turns")
    found: Block = {"rope_parameters": blocks[ALL] if list(blocks) == [ALL] else blocks}
    if "rope_theta" in section.config and list(blocks) == [ALL]:  # version 4's, which must not say otherwise
        found["rope_theta"] = found["rope_parameters"]["rope_theta"]
    if declared is not None and declared != max_length(section):
        found[length_key(section)] = declared
    for name in reversed(section.path):
        found = {name: found}
    return found


def _block(rotation: Rotation, section: Section, engine: str, declared: int | None, exact: bool) -> Block:
    rope = of_text(rotation)
    if exact:
        if rope is not rotation:
            raise ValueError("the plug-in has no M-RoPE; leave --exact out")
        return plugin_block(rope, length=declared if rope.length_dependent else None, tokens=declared)
    convention: Convention = "vllm" if engine == "vllm" else "sglang"
    block = _in(convention, rope, declared)
    if rope.rotary_dim != rope.head_dim and not section.family.latent:
        block["partial_rotary_factor"] = share_of(rope)
    return {**block, **keys_of(rotation, section.family, {})}


def _in(convention: Convention, rope: RoPE, declared: int | None) -> Block:
    """The block in an engine's convention; for what has no rope type there, a factor for each pair."""
    if rope.length_dependent and not any(isinstance(part, LongRoPE) for part in rope.modules()):
        text = "it follows the length, which the engine fixes once: declare one with --exact and posenc's plug-in"
        raise ValueError(f"{' '.join(str(rope.scaling).split())}: {text}")
    try:
        block = block_of(rope, convention, {})
    except ValueError:
        rope = of_text(frozen(rope, declared))
        block = block_of(rope, convention, {})
    if block["rope_type"] == "proportional":
        raise ValueError("pairs that do not turn have no rope type in every engine; use --exact and posenc's plug-in")
    if block["rope_type"] == "longrope":  # engines read no attention_factor, and make a gain of lengths
        (part,) = (one for one in rope.modules() if isinstance(one, LongRoPE))
        block |= {"short_mscale": part.short_gain, "long_mscale": part.long_gain}
        block.pop("attention_factor", None)
    return {key: value for key, value in block.items() if key != LENGTH}


def _of_llama_cpp(config: RopeConfig) -> list[str]:
    rotation = config.layers.get(FULL, next(iter(config.layers.values())))
    if rotation is None:
        raise ValueError("no layer turns")
    rope, words = of_text(rotation), _length(config, "-c")
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
    what = "a gain or ramp of its own" if kind == "yarn" else "factors for each pair"
    raise ValueError(f"they have no {what}; write the file: posenc gguf")
