"""Command-line flags with which engines serve a model under a rotation.

    vLLM         --hf-overrides, with a block in vLLM's convention;  --max-model-len
    SGLang       --json-model-override-args, with a block in SGLang's convention;  --context-length
    llama.cpp    --rope-*, --yarn-*, -c;  whatever these cannot express must be in the file (`write_gguf`)

A fixed spectrum without a rope type is written as longrope, with a factor for each pair. A length-dependent one needs a
declared length and posenc's plug-ins. If an engine was measured to compute a block wrong (`posenc.hf.serving.engines`),
the reason and the remedy are returned instead of flags.
Source: vLLM 0.33, rotary_embedding/__init__.py (get_rope), engine arguments; SGLang 0.5.23,
    rotary_embedding/factory.py, server_args.py, utils/hf_transformers/config.py (it merges an override into the file's
    block, so every key of that block is written out); llama.cpp, common/arg.cpp.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from posenc.arguments import check_flag, check_whole, one_line, shown
from posenc.frequencies.host import steps_of
from posenc.frequencies.longrope import LongRoPE
from posenc.frequencies.rotation import RoPESpec
from posenc.hf.config.block_schema import PRESERVED, Block
from posenc.hf.config.block_schema import keys_of as keys_of_type
from posenc.hf.config.posenc_config import attached_names
from posenc.hf.config.rope_block import ALL
from posenc.hf.config.rope_config import RopeConfig
from posenc.hf.config.rope_keys import find_rope_blocks
from posenc.hf.config.rotation import INTERLEAVED, Rotation, equivalent, keys_of, text_rope, to_longrope
from posenc.hf.config.scalings import LENGTH, SILENT, Convention, block_of
from posenc.hf.config.text_config import TextConfig, length_key, max_length
from posenc.hf.config.write import Layers, extended_length, share_of
from posenc.hf.explanation.report import longest_length
from posenc.hf.families.layer_patterns import FULL
from posenc.hf.limits import TOKENS
from posenc.hf.serving.beyond import beyond_rotation, engine_notes
from posenc.hf.serving.engines import FLAGS, SGLANG, UNKNOWN, VLLM, Verdict, engine_result, newest, verdict, versions
from posenc.hf.serving.plugin_block import plugin_block

_FLAGS = {"vllm": ("--hf-overrides", "--max-model-len"), "sglang": ("--json-model-override-args", "--context-length")}
# SGLang 0.5.23 copies text_config's keys outside before it applies overrides, and builds this text model from the outer
# config (models/qwen3_vl.py:1342): an override inside text_config alone changes the granted length and no rotation.
_FROM_OUTER = "qwen3_vl_text"
# Whose text_config SGLang 0.5.23 reads as a plain dictionary, which an override replaces (get_config in
# utils/hf_transformers/config.py); its ModelConfig then refuses the config.
_REPLACED = ("minimax_m3_vl",)
# vLLM 0.33.0, config/speculative.py:1400: "Dict overrides stay target-only"; see benchmarks/engines/draft_heads.py.
_DRAFTS = (
    "a draft model or multi-token prediction (--speculative-config) does not get these overrides: write them into its "
    "config.json"
)
_ENGINES = {"vllm": VLLM, "sglang": SGLANG, "llama.cpp": FLAGS}  # as their records are named


_FLAGS_OF_YARN = {"rope_type", "rope_theta", "factor", "original_max_position_embeddings", "beta_fast", "beta_slow"}


class Flags(NamedTuple):
    """What to add to an engine's command line.

    Attributes:
        engine: "vllm", "sglang" or "llama.cpp".
        words: arguments to add, one by one; empty where flags cannot express the rotation, or the engine computes it
            wrong.
        reason: why there are no words.
        note: caveats: of LongRoPE, which list of factors the engine uses at which lengths; of vLLM, that a draft model
            does not get a changed rotation.
        version: of the engine that the words are for.
        right: whether that version was measured to compute the rotation right; None: not measured.
        measured: what was measured, or what was not.
    """

    engine: str
    words: tuple[str, ...] = ()
    reason: str = ""
    note: str = ""
    version: str = ""
    right: bool | None = None
    measured: str = ""

    def __str__(self) -> str:
        line = shlex.join(self.words) if self.words else f"not by flags: {self.reason}"
        further = [f"{f'{self.engine} {self.version}'.strip()}: {self.measured}"] if self.words else []
        further += [f"{self.engine}: {self.note}"] if self.note else []
        return "\n  ".join([f"{self.engine}: {line}", *further])


def serve_flags(
    config: RopeConfig,
    *,
    exact: bool = False,
    length: int | None = None,
    engine_versions: Mapping[str, str] | None = None,
) -> list[Flags]:
    """The flags of each engine.

    Args:
        config: as `read_rope` gives it, with the rotation to serve.
        exact: through posenc's plug-ins, which must be installed with the engine: exact angles; a scaling that
            follows the length spans ``length``.
        length: tokens to serve; default: what the configuration declares, or what a changed rotation reaches.
        engine_versions: versions by engine ("vllm", "sglang", "llama.cpp"); default: those that were measured.

    Raises:
        ValueError: for something else than a RopeConfig, for a length that is no count of tokens, and for an engine
            that is not one of the three.
    """
    check_flag("exact", exact)
    if length is not None:
        check_whole("length", length, most=TOKENS)
    if not isinstance(config, RopeConfig):
        raise ValueError(f"config must be a RopeConfig, as read_rope gives it, got {shown(config)}")
    if engine_versions is not None and not isinstance(engine_versions, Mapping):
        raise ValueError(f"engine_versions must be versions by engine, got {shown(engine_versions)}")
    versions_by_engine = dict(engine_versions or {})
    if set(versions_by_engine) - set(_ENGINES):
        raise ValueError(f"engine_versions must name {', '.join(_ENGINES)}, got {shown(engine_versions)}")
    if attached_names(config.config) is not None:
        reason = "no engine computes the encodings that posenc attached to this model"
        return [Flags(engine, reason=reason) for engine in _ENGINES]
    declared, reach = length or _declared(config), reach_of(config)
    if length is not None and reach is not None and length > reach:
        reason = f"this rotation reaches {reach:,} tokens, not {length:,}: extend it (posenc extend --config-only)"
        return [Flags(engine, reason=reason) for engine in _ENGINES]
    return [
        _of_engine(config, engine, exact, declared, versions_by_engine.get(engine, newest(record)))
        for engine, record in _ENGINES.items()
    ]


def reach_of(config: RopeConfig) -> int | None:
    """The longest context that a rotation is meant for, in tokens; None: no length bounds it, or none is declared."""
    ropes = [text_rope(rope) for rope in config.rotations.values() if rope is not None]
    lengths = [longest_length(config, rope) for rope in ropes]
    if any(rope.length_dependent and not _has_lists(rope) for rope in ropes):
        return None
    return max((length for length in lengths if length is not None), default=None)


def _has_lists(rope: RoPESpec) -> bool:
    return any(isinstance(step, LongRoPE) for step in steps_of(rope.scaling))


def _of_engine(config: RopeConfig, engine: str, exact: bool, declared: int | None, version: str) -> Flags:
    """The flags of one engine, or why there are none."""
    try:
        if engine == "llama.cpp":
            words, block = llama_cpp_words(config, declared)
            checked = _checked(config, engine, [block], declared, version)
            if checked.wrong:
                raise ValueError(f"{checked}; write the file: posenc gguf")
            return Flags(engine, tuple(words), "", "", version, checked.right, str(checked))
        blocks = _blocks(config, engine, exact, declared)
        checked = _checked(config, engine, blocks.values(), declared, version)
        if checked.wrong and not exact:
            multimodal = any(text_rope(rope) is not rope for rope in config.rotations.values() if rope is not None)
            no_plug_in = multimodal or checked.plug_in_failed
            raise ValueError(str(checked) if no_plug_in else f"{checked}; or posenc's plug-in (--exact)")
    except ValueError as error:
        return Flags(engine, reason=str(error), version=version)
    if exact and not _hands_on_blocks(config, engine, version):
        reason = f"{engine}'s model class of {config.text_config.model_type} hands no rope block on to its rotary class"
        return Flags(engine, reason=f"{reason}, so the plug-in would have no effect", version=version)
    if engine == "sglang" and config.text_config.path and config.config.get("model_type") in _REPLACED:
        reason = "SGLang replaces this model's whole text_config by an override: write config.json instead"
        return Flags(engine, reason=reason, version=version)
    flag, length_flag = _FLAGS[engine]
    words = [flag, json.dumps(_overrides(config, blocks, engine, exact, declared)), *_length(declared, length_flag)]
    notes = [_note(config.rotations, engine, exact, declared), _DRAFTS if engine == "vllm" and _changed(config) else ""]
    notes += () if exact else engine_notes(config, _ENGINES[engine], declared)
    note, right, measured = "; ".join(filter(None, notes)), checked.right, str(checked)
    if exact:
        tried = version in versions(_ENGINES[engine])
        right, measured = (True, "posenc's table in the engine's own class, compared with posenc's") if tried else (
            None, f"not measured: the plug-in was tried in {', '.join(versions(_ENGINES[engine]))}"
        )  # fmt: skip
    return Flags(engine, tuple(words), "", note, version, right, measured)


def _hands_on_blocks(config: RopeConfig, engine: str, version: str) -> bool:
    """Whether the model class was not measured to leave the block out: it then computes every scaling as none."""
    rows = [
        engine_result(_ENGINES[engine], row, "v5", config.text_config.model_type, version)
        for row in ("default", "yarn")
    ]
    return not (rows[0].wrong or (rows[1].state == "ignored" and rows[1].text == "all scaling"))


def _checked(
    config: RopeConfig, engine: str, blocks: Iterable[Block | None], declared: int | None, version: str
) -> Verdict:
    """The measurements of the blocks that an engine gets."""
    text_config = config.text_config
    model_type = text_config.model_type if text_config.known else UNKNOWN
    return verdict(
        _ENGINES[engine], blocks, model_type=model_type, length=declared, version=version,
        beyond=beyond_rotation(config),
    )  # fmt: skip


def _declared(config: RopeConfig) -> int | None:
    """Tokens that the model is to serve: what it declares, or what a changed rotation reaches."""
    declared = max_length(config.text_config)
    # Llama 3.2 declares 131,072, and factor times original length is twice that: an unchanged rotation adds nothing.
    reached = extended_length(config.rotations, recipes=_changed(config))
    return max((length for length in (declared, reached) if length), default=None)


def _changed(config: RopeConfig) -> bool:
    """Whether the rotation to serve differs from the file's."""
    old = config.parsed.layers
    return any(not equivalent(rope, old.get(kind)) for kind, rope in config.rotations.items())


def _length(declared: int | None, flag: str) -> list[str]:
    return [] if declared is None else [flag, str(declared)]


def _note(layers: Layers, engine: str, exact: bool, declared: int | None) -> str:
    """Which of LongRoPE's factor lists applies at which length: a single one if vLLM or the plug-in gets a length."""
    scalings = (step for rope in layers.values() if rope is not None for step in steps_of(text_rope(rope).scaling))
    originals = [step.original_length for step in scalings if isinstance(step, LongRoPE) and step.short != step.long]
    if not originals or (engine != "vllm" and not exact):
        return ""
    long = declared is not None and declared > originals[0]
    return (
        f"every text gets the {'long' if long else 'short'} factors, while transformers uses the short factors up to "
        f"{originals[0]:,} tokens" + (f"; for those serve at most {originals[0]:,} tokens (--length)" if long else "")
    )


def _blocks(config: RopeConfig, engine: str, exact: bool, declared: int | None) -> dict[str, Block | None]:
    """A block in the engine's convention for each kind of layers, None for layers that do not rotate."""
    blocks = {
        kind: None if rotation is None else _block(rotation, config.text_config, engine, declared, exact)
        for kind, rotation in config.rotations.items()
    }
    for before in () if exact else config.parsed.rope_blocks:
        block = blocks.get(before.kind)
        if block is not None:
            block |= {key: value for key, value in _kept(before.effective).items() if key not in block}
    if not any(blocks.values()):
        raise ValueError("no layer rotates")
    return blocks


def _overrides(
    config: RopeConfig, blocks: dict[str, Block | None], engine: str, exact: bool, declared: int | None
) -> Block:
    """The keys that override the config's own in the engine, nested as the text model's part is."""
    text_config, blocks = config.text_config, _as_in_file(config, blocks)
    if engine == "sglang" and not exact and list(blocks) == [ALL]:
        rope_block = next(block for block in find_rope_blocks(text_config) if block.values is not None)
        blocks[ALL] = _override(blocks[ALL] or {}, rope_block.effective)
    overrides: Block = {"rope_parameters": blocks[ALL] if list(blocks) == [ALL] else blocks}
    if "rope_theta" in text_config and list(blocks) == [ALL]:  # version 4's key, which must not contradict the block
        overrides["rope_theta"] = overrides["rope_parameters"]["rope_theta"]
    longest = max((length for length in (declared, max_length(text_config)) if length), default=None)
    if longest is not None:  # also where the file has it: the flags may be used with the original weights
        overrides[length_key(text_config)] = longest
    inner = overrides
    for name in reversed(text_config.path):
        overrides = {name: overrides}
    if engine == "sglang" and text_config.model_type == _FROM_OUTER:
        overrides = {**inner, **overrides}
    return overrides


def _as_in_file(config: RopeConfig, blocks: dict[str, Block | None]) -> dict[str, Block | None]:
    """The blocks by kind of layers, or one for all where the code of the model decides which layers rotate.

    Cohere 2, EXAONE 4 and AFMoE leave their full-attention layers without a rotation by their code: the file has one
    block, and vLLM's and SGLang's classes of them read no other form (models/commandr.py, exaone4.py, afmoe.py).
    """
    in_file = config.text_config.get("rope_parameters") or {}
    by_kind = any(isinstance(value, dict) for value in in_file.values())
    rotating = [block for block in blocks.values() if block is not None]
    by_code = all(block is not None or config.parsed.layers.get(kind) is None for kind, block in blocks.items())
    if len(rotating) < len(blocks) and by_code and not by_kind and all(block == rotating[0] for block in rotating):
        return {ALL: rotating[0]}
    return dict(blocks)


def _block(rotation: Rotation, text_config: TextConfig, engine: str, declared: int | None, exact: bool) -> Block:
    rope = text_rope(rotation)
    if exact:
        if rope is not rotation:
            raise ValueError("the plug-in has no M-RoPE; leave --exact out")
        return plugin_block(rope, length=declared if rope.length_dependent else None, tokens=declared)
    convention: Convention = "vllm" if engine == "vllm" else "sglang"
    block = _in(convention, rope, declared)
    if rope.rotary_dim != rope.head_dim and not text_config.rotation.latent:
        block["partial_rotary_factor"] = share_of(rope)
    elif text_config.get("partial_rotary_factor") not in (None, 1):  # the engine else takes the share outside the block
        block["partial_rotary_factor"] = 1.0
    return block | keys_of(rotation, text_config.rotation, {})


def _kept(before: Block) -> Block:
    """Keys of the file's block that say something else than the rotation, because an override replaces the block."""
    others = ("max_position_embeddings", INTERLEAVED)  # the served length, and what the rotation says itself
    return {key: before[key] for key in PRESERVED if before.get(key) is not None and key not in others}


def _override(block: Block, old: Block) -> Block:
    """The block with every other key of its type that the file's block may have set to its default, or null.

    SGLang merges an override into the file's block, so that a key which the override leaves out keeps its old value.
    """
    read = keys_of_type(block["rope_type"], "sglang")
    resets = {key: SILENT.get(key) for key in read if key not in block and (key in SILENT or key in old)}
    return {**block, **resets}


def _in(convention: Convention, rope: RoPESpec, declared: int | None) -> Block:
    """The block in an engine's convention; for what has no rope type there, a factor for each pair."""
    if rope.length_dependent and not _has_lists(rope):
        if declared is not None and all(getattr(s, "original_length", 0) >= declared for s in steps_of(rope.scaling)):
            return {"rope_type": "default", "rope_theta": rope.base}  # within it the base does not grow
        text = "it follows the length, which the engine fixes once: declare one with --exact and posenc's plug-in"
        raise ValueError(f"{one_line(rope.scaling)}: {text}")
    try:
        block = block_of(rope, convention, {})
    except ValueError:
        rope = text_rope(to_longrope(rope, declared))
        block = block_of(rope, convention, {})
    if convention == "vllm" and block["rope_type"] == "yarn":  # gpt_oss.py takes them from the block without a default
        block = {**block, "beta_fast": block.get("beta_fast", 32.0), "beta_slow": block.get("beta_slow", 1.0)}
    return {key: value for key, value in block.items() if key != LENGTH}


def llama_cpp_words(config: RopeConfig, declared: int | None) -> tuple[list[str], Block]:
    """Words of llama-server, and the block that they say, whether or not llama.cpp computes it right.

    Args:
        config: as `serve_flags` takes it.
        declared: tokens to serve; None: the server decides.

    Raises:
        ValueError: for a rotation that no flags say.
    """
    rotation = config.rotations.get(FULL, next(iter(config.rotations.values())))
    if rotation is None:
        raise ValueError("no layer rotates")
    rope = text_rope(rotation)
    try:
        block = _in("transformers", rope, declared)
    except ValueError:
        block = {}
    return [*words_of_block(block), *_length(declared, "-c")], block


def words_of_block(block: Block) -> list[str]:
    """Words of llama-server for a block.

    Raises:
        ValueError: for a block that no flags say.
    """
    kind, base = block.get("rope_type"), ["--rope-freq-base", f"{block.get('rope_theta', 0):.10g}"]
    if kind == "default":
        return ["--rope-scaling", "none", *base]
    if kind == "linear":
        return ["--rope-scaling", "linear", "--rope-scale", f"{block['factor']:.10g}", *base]
    if kind == "yarn" and set(block) - {"partial_rotary_factor"} <= _FLAGS_OF_YARN:
        betas = [
            word for key in ("beta_fast", "beta_slow") if key in block
            for word in (f"--yarn-{key.replace('_', '-')}", f"{block[key]:.10g}")
        ]  # fmt: skip
        original = ["--yarn-orig-ctx", str(block["original_max_position_embeddings"])]
        return ["--rope-scaling", "yarn", "--rope-scale", f"{block['factor']:.10g}", *original, *betas, *base]
    missing = "YaRN with another gain or ramp" if kind == "yarn" else "factors for each pair"
    raise ValueError(f"they have no {missing}; write the file: posenc gguf")
