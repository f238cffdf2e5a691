"""Changes that may make an engine compute a case right: other keys, flags, posenc's files and plug-ins.

    respelled    the same block with other keys: both versions' keys, a default written out, a gain under another name
    flags        options of the engine's command line, or of its own config where it reads no config.json
    rewritten    another rope type with the same frequencies and gain at the case's length
    tools        `posenc gguf` instead of the converter, posenc's plug-in in the engine (`serve-flags --exact`)

The check runs them in this order in the same engine and keeps the first that is right, with all that were tried before
it; for llama.cpp's converter, which reads few keys, flags and files come first. The target is the reference value of
the unchanged case.
Source: for what each engine reads, the lines that docs/engine-table.md links to, and vLLM 0.33.0 rotary_embedding,
    llama.cpp src/llama-context.cpp (yarn_attn_factor, rope_attn_factor), litgpt 0.5.13 model.py (build_rope_cache).
"""

from __future__ import annotations

import copy
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from benchmarks.engines.cases import MODELS, Case, Model, spelled

Block = dict[str, Any]
Truth = Mapping[str, tuple[list[float], float]]  # frequencies (radians a token) and gain by kind of layers
_PLACES = ("rope_parameters", "rope_scaling")
_OUTSIDE = ("rope_theta", "partial_rotary_factor")
_OTHER_KEYS = ("partial_rotary_factor", "mrope_section", "mrope_interleaved")  # whatever the rope type
_LLAMA_WORDS = {
    "rope_scaling_type": "--rope-scaling", "rope_freq_base": "--rope-freq-base", "rope_freq_scale": "--rope-freq-scale",
    "yarn_orig_ctx": "--yarn-orig-ctx", "yarn_beta_fast": "--yarn-beta-fast", "yarn_beta_slow": "--yarn-beta-slow",
}  # fmt: skip
_LLAMA_SCALINGS = {0: "none", 1: "linear", 2: "yarn"}  # LLAMA_ROPE_SCALING_TYPE_*


class Change(NamedTuple):
    """One thing to try.

    Attributes:
        how: "config": other keys; "flag": the engine's own options; "tool": posenc's file or plug-in.
        what: in words.
        config: the config.json after the change.
        options: what the engine is told next to it (`benchmarks.engines.adapters.Question`).
        flags: the same as words of the engine's command line.
        only: the texts for which the change can be right, where it cannot be for all.
    """

    how: Literal["config", "flag", "tool"]
    what: str
    config: Block
    options: Mapping[str, Any] = MappingProxyType({})
    flags: tuple[str, ...] = ()
    only: str = ""


def changes(engine: str, case: Case, truth: Truth) -> Iterator[Change]:
    """What to try, the simplest first.

    Args:
        engine: the adapter's name.
        case: the configuration.
        truth: of the case, by kind of layers.
    """
    if engine in _NO_CONFIG:
        yield from _NO_CONFIG[engine](case, truth)
        return
    keys, types = _respelled(case, truth), _rewritten(case, truth)
    flags, tools = (kind.get(engine, _none)(case, truth) for kind in (_FLAGS, _TOOLS))
    order = (flags, tools, keys, types) if engine == "llama_cpp_converter" else (keys, flags, types, tools)
    seen = [case.config]
    for change in itertools.chain(*order):
        if change.options or change.config not in seen:
            seen += [] if change.options else [change.config]
            yield change


_OVERRIDES = {"vllm": "--hf-overrides", "sglang": "--json-model-override-args"}


def as_flag(engine: str, change: Change, case: Case) -> Change | None:
    """Changed keys as the engine's own flag says them, with the file unchanged; None where it cannot."""
    keys = _overrides(change.config, case) if change.how == "config" and engine in _OVERRIDES else None
    if keys is None:
        return None
    flag = _OVERRIDES[engine]
    words = (flag, json.dumps(keys))
    return Change("flag", f"{change.what}, by {flag}", case.config, {"overrides": keys}, words, change.only)


def _overrides(config: Block, case: Case) -> Block | None:
    """The keys that differ from the case's, under version 5's name; None where a key would have to go."""
    after = _both_spellings(config) or config

    def changed(after: Block, before: Block) -> Block | None:
        if set(before) - set(after):
            return None
        new = {key: value for key, value in after.items() if before.get(key) != value}
        if "rope_parameters" in after:  # the engines' configs have one block under both names
            new |= {"rope_parameters": after["rope_parameters"]}
            new.pop("rope_scaling", None)
        return new

    if "text_config" not in after:
        return changed(after, case.config)
    inner = changed(after["text_config"], case.config["text_config"])
    return None if inner is None else {"text_config": inner}


# ------------------------------------------------------------------------------------------------------- other words


def _respelled(case: Case, truth: Truth) -> Iterator[Change]:
    theta, gain = next(iter(truth.values()))
    both = _both_spellings(case.config)
    blocks: dict[str, Callable[[Block], Block]] = {
        "betas written out": _betas,
        "attention_factor written out, without mscale": partial(_attention_factor, gain=gain),
        "attn_factor = attention_factor / (0.1 ln factor + 1)": partial(_attn_factor, gain=gain),
        "the gain as mscale and mscale_all_dim": partial(_gain_as_mscale, gain=gain),
        "short_mscale and long_mscale set to the gain": partial(_list_gains, gain=gain),
    }
    inner = case.config.get("text_config", case.config)
    share = 2 * len(theta) / inner["head_dim"] if len(truth) == 1 and "head_dim" in inner else 1.0
    wholes: dict[str, Callable[[Block], Block]] = {
        **{what: partial(_blocks_changed, change=change) for what, change in blocks.items()},
        "the share of rotated channels written out": partial(_share_written, share=share),
        "the share of rotated channels as rope_pct": partial(_share_written, share=share, names=("rope_pct",)),
    }
    for what, change in wholes.items():
        yield Change("config", what, change(case.config))
    if both is None:
        return
    yield Change("config", "both versions' keys", both)
    for what, change in wholes.items():
        yield Change("config", f"both versions' keys, {what}", change(both))


def _blocks_changed(config: Block, change: Callable[[Block], Block]) -> Block:
    result = copy.deepcopy(config)
    if "text_config" in result:
        return {**result, "text_config": _blocks_changed(result["text_config"], change)}
    for place in _PLACES:
        block = result.get(place)
        if isinstance(block, dict) and "rope_type" in block:
            result[place] = change(block)
    return result


def _yarn_gain(block: Block) -> float:
    return 0.1 * math.log(block["factor"]) + 1


def _gain_as_mscale(block: Block, gain: float) -> Block:
    """YaRN's gain is (0.1 m ln s + 1) / (0.1 a ln s + 1) of mscale m, mscale_all_dim a and factor s; a is 1 here."""
    if block["rope_type"] != "yarn" or not {"attention_factor", "mscale"} & set(block):
        return block
    usual = _yarn_gain(block)
    rest = {key: value for key, value in block.items() if key not in ("attention_factor", "mscale")}
    return {**rest, "mscale": (gain * usual - 1) / (usual - 1), "mscale_all_dim": 1.0}


def _attention_factor(block: Block, gain: float) -> Block:
    if block["rope_type"] != "yarn" or not {"mscale", "mscale_all_dim"} & set(block):
        return block
    rest = {key: value for key, value in block.items() if key not in ("mscale", "mscale_all_dim")}
    return {**rest, "attention_factor": gain}


def _attn_factor(block: Block, gain: float) -> Block:
    has_gain = block["rope_type"] == "yarn" and "attention_factor" in block
    return {**block, "attn_factor": gain / _yarn_gain(block)} if has_gain else block


def _list_gains(block: Block, gain: float) -> Block:
    return {**block, "short_mscale": gain, "long_mscale": gain} if block["rope_type"] == "longrope" else block


def _betas(block: Block) -> Block:
    return {"beta_fast": 32.0, "beta_slow": 1.0, **block} if block["rope_type"] == "yarn" else block


def _share_written(config: Block, share: float, names: tuple[str, ...] = ("partial_rotary_factor",)) -> Block:
    """The share of the head that rotates, at the top of the config too, where it is not the whole head."""
    return config if share == 1 or "text_config" in config else {**config, **dict.fromkeys(names, share)}


def _both_spellings(config: Block) -> Block | None:
    """The config with version-4 and version-5 keys; None where it has both, or a block for each kind of layers."""
    if "text_config" in config:
        inner = _both_spellings(config["text_config"])
        return None if inner is None else {**config, "text_config": inner}
    result, block = copy.deepcopy(config), config.get("rope_parameters")
    if block is None and "rope_theta" in config:
        inner = {key: value for key, value in (config.get("rope_scaling") or {}).items() if key != "type"}
        share = {key: config[key] for key in ("partial_rotary_factor",) if key in config}
        result["rope_parameters"] = {"rope_type": "default", **inner, "rope_theta": config["rope_theta"], **share}
        return result
    if not isinstance(block, dict) or "rope_type" not in block or "rope_scaling" in config:
        return None
    result |= {key: block[key] for key in _OUTSIDE if key in block}
    inner = {key: value for key, value in block.items() if key not in _OUTSIDE}
    result["rope_scaling"] = None if block["rope_type"] == "default" else {**inner, "type": block["rope_type"]}
    return result


# ------------------------------------------------------------------------------------------- another rope type


def _rewritten(case: Case, truth: Truth) -> Iterator[Change]:
    """Plain RoPE with another base where that says it, and LongRoPE with one list for all lengths.

    ``original_max_position_embeddings`` of LongRoPE is free where both lists are equal and the gain is written out;
    mlx-lm and exllamav3 compute the gain g as sqrt(ln D / ln L) from it and from the declared length D, so that
    L = D^(1/g²), rounded to a whole token, gives the wanted one there.
    """
    if _block_of(case.config) is None:
        yield from _layers_rewritten(case, truth)
        return
    theta, gain = next(iter(truth.values()))
    block, only = _block_of(case.config) or {}, _texts(case)
    other_keys: Block = {key: block[key] for key in _OTHER_KEYS if key in block}
    inner = case.config.get("text_config", case.config)
    share = 2 * len(theta) / inner["head_dim"]
    other_keys |= {"partial_rotary_factor": share} if share != 1 else {}
    base = _base_of(theta)
    if base is not None and gain == 1 and block.get("rope_type", "default") != "default":
        unscaled = {"rope_type": "default", "rope_theta": base, **other_keys}
        what = "rope type default with the rope_theta that this length gives"
        yield Change("config", what, _with(case, unscaled), only=only)
    if "mrope_section" in block or not all(frequency > 0 for frequency in theta):
        return  # LongRoPE has no sections in these engines, and no factor stops a pair
    declared = max(case.length, inner["max_position_embeddings"])
    lists = _lists(theta, gain, block["rope_theta"]) | other_keys
    what = "rope type longrope with factors for this case's frequencies, the gain written out"
    if block.get("rope_type") == "longrope":
        what = f"{'short' if case.length <= case.original else 'long'}_factor in both lists, the gain written out"
    originals = {what: case.original}
    if gain >= 1:
        originals[f"{what} and by original_max_position_embeddings"] = round(declared ** (1 / gain**2))
    for words, original in originals.items():
        full = {**lists, "original_max_position_embeddings": original, "factor": declared / original}
        yield Change("config", words, _with(case, full, declared), only=only)


def _lists(theta: list[float], gain: float, base: float) -> Block:
    """LongRoPE whose lists, equal ones, make these frequencies."""
    factors = [base ** (-pair / len(theta)) / frequency for pair, frequency in enumerate(theta)]
    return {"rope_type": "longrope", "rope_theta": base, "short_factor": factors, "long_factor": factors,
            "attention_factor": gain, "short_mscale": gain, "long_mscale": gain}  # fmt: skip


def _layers_rewritten(case: Case, truth: Truth) -> Iterator[Change]:
    """Each kind of layers whose block scales, under version 5's names."""
    config = case.config.get("text_config", case.config)
    nested = config.get("rope_parameters")
    if not isinstance(nested, dict) or any(not frequency > 0 for theta, _ in truth.values() for frequency in theta):
        return
    length = {"original_max_position_embeddings": case.original, "factor": case.length / case.original}
    blocks = {
        kind: block if block["rope_type"] == "default" else {**_lists(*truth[kind], block["rope_theta"]), **length}
        for kind, block in nested.items()
    }
    inner = {**config, "rope_parameters": blocks}
    changed = {**case.config, "text_config": inner} if "text_config" in case.config else inner
    yield Change("config", "rope type longrope for the kinds of layers that scale, the gain written out", changed)


def _block_of(config: Block) -> Block | None:
    """The one block with version-5 names; None for a block for each kind of layers."""
    config = config.get("text_config", config)
    older = {"rope_theta": config.get("rope_theta"), **(config.get("rope_scaling") or {})}
    block = config.get("rope_parameters") or older
    if any(isinstance(value, dict) for value in block.values()) or "rope_local_base_freq" in config:
        return None
    share = {key: config[key] for key in ("partial_rotary_factor",) if key in config}
    return {key: value for key, value in {**share, **block}.items() if key != "type"}


def _with(case: Case, block: Block, declared: int | None = None) -> Block:
    """The case's config with this block under both versions' names, and the length that it declares."""

    def of(config: Block) -> Block:
        if "text_config" in config:
            return {**config, "text_config": of(config["text_config"])}
        known = MODELS.get(config["model_type"], Model()).share_key
        gone = (*_PLACES, *_OUTSIDE, known, "original_max_position_embeddings")
        rest = {key: value for key, value in config.items() if key not in gone}
        rest["max_position_embeddings"] = max(declared or 0, rest["max_position_embeddings"])
        return spelled(rest, block, "both")

    return of(case.config)


def _base_of(theta: list[float]) -> float | None:
    """The base whose plain frequencies these are, or None."""
    if len(theta) < 2 or theta[0] != 1 or theta[1] <= 0:
        return None
    base = theta[-1] ** (-len(theta) / (len(theta) - 1))
    right = all(abs(base ** (-pair / len(theta)) / each - 1) < 1e-6 for pair, each in enumerate(theta) if each > 0)
    return base if right and all(each > 0 for each in theta) else None


def _texts(case: Case) -> str:
    """For which texts one fixed spectrum stands in a case's place."""
    block = _block_of(case.config) or {}
    follows = block.get("rope_type") == "dynamic" or (
        block.get("rope_type") == "longrope" and block["short_factor"] != block["long_factor"]
    )
    if not follows:
        return ""
    if case.length <= case.original:
        return f"at most {case.original:,} tokens"
    return f"{case.length:,} tokens" if block["rope_type"] == "dynamic" else f"more than {case.original:,} tokens"


# ------------------------------------------------------------------------------------------------- flags of engines


def _none(case: Case, truth: Truth) -> Iterable[Change]:
    return ()


def _vllm_flags(case: Case, truth: Truth) -> Iterator[Change]:
    block = _block_of(case.config) or {}
    if block.get("rope_type") == "longrope" and case.length <= case.original:
        limited_length = {"length": case.original}, ("--max-model-len", str(case.original)), _texts(case)
        yield Change("flag", "serve at most the original length", case.config, *limited_length)
        gain = next(iter(truth.values()))[1]
        config = _blocks_changed(case.config, partial(_list_gains, gain=gain))
        what = "serve at most the original length, with short_mscale and long_mscale set to the gain"
        yield Change("flag", what, config, *limited_length)
    if block.get("rope_type") == "yarn" and "mrope_section" in block:
        # The table of M-RoPE computes YaRN's ramp from four times the original length, and a ramp that starts at
        # beta rotations in L tokens starts at 4 beta in 4 L.
        betas = {"beta_fast": 4 * block.get("beta_fast", 32.0), "beta_slow": 4 * block.get("beta_slow", 1.0)}
        config = _blocks_changed(case.config, lambda block: {**block, **betas})
        words = _overrides(config, case) or {}
        fast, slow = betas.values()
        what = f"beta_fast {fast:g} and beta_slow {slow:g}, four times the case's, in vLLM only"
        yield Change("flag", what, case.config, {"overrides": words}, ("--hf-overrides", json.dumps(words)))


def _exllamav3_flags(case: Case, truth: Truth) -> Iterator[Change]:
    """Phi-3's config class alone takes it: exllamav3 1.6.5, architecture/phi3.py (override_dynamic_seq_len)."""
    if case.model == "phi3" and case.length <= case.original:
        yield Change("flag", "override_dynamic_seq_len at the original length", case.config,
                     {"override_max_position_embeddings": case.original},
                     (f"model_init.init(args, override_dynamic_seq_len={case.original})",), _texts(case))  # fmt: skip


def _llama_cpp_flags(case: Case, truth: Truth) -> Iterator[Change]:
    """llama.cpp's own scaling: a base, a scale, or YaRN with betas; its gain times ``rope.scaling.attn_factor``."""
    block = _block_of(case.config)
    if block is None or len(truth) != 1:
        return
    theta, gain = next(iter(truth.values()))
    kind, base = block.get("rope_type", "default"), _base_of(theta)
    fields: dict[str, Any] = {"rope_scaling_type": 0, "rope_freq_base": block["rope_theta"], "rope_freq_scale": 1.0}
    if base is not None:
        fields["rope_freq_base"] = base
    elif kind == "linear":
        fields |= {"rope_scaling_type": 1, "rope_freq_scale": 1 / block["factor"]}
    elif kind == "yarn":
        fields |= {
            "rope_scaling_type": 2, "rope_freq_scale": 1 / block["factor"],
            "yarn_orig_ctx": block["original_max_position_embeddings"],
            "yarn_beta_fast": block.get("beta_fast", 32.0), "yarn_beta_slow": block.get("beta_slow", 1.0),
        }  # fmt: skip
    else:
        return
    words = [
        word
        for name, flag in _LLAMA_WORDS.items()
        if name in fields
        for word in (flag, _flag_value(name, fields[name]))
    ]
    usual = _yarn_gain(block) if kind == "yarn" else 1.0
    if abs(gain / usual - 1) > 1e-9:
        key = f"{'llama' if case.model == 'mistral' else case.model}.rope.scaling.attn_factor"
        fields["kv_overrides"] = {key: gain / usual}
        words += ["--override-kv", f"{key}=float:{gain / usual:.9g}"]
    yield Change("flag", "llama.cpp's flags on the converted file", case.config, fields, tuple(words), _texts(case))


def _flag_value(name: str, value: float) -> str:
    return _LLAMA_SCALINGS[int(value)] if name == "rope_scaling_type" else f"{value:.9g}"


# ------------------------------------------------------------------------------------------------------------- tools


def _gguf_files(case: Case, truth: Truth) -> Iterator[Change]:
    """`posenc gguf` on the file of the unscaled config: with the case's block, and with its spectrum at this length."""
    block = _block_of(case.config)
    if block is None:
        return
    other = [change for change in _rewritten(case, truth) if "and by original" not in change.what]
    for change in (Change("tool", "", case.config), *other):
        rope = _block_of(change.config) or {}
        rope = {key: value for key, value in rope.items() if key not in ("short_mscale", "long_mscale")}
        what = "a file written by posenc gguf" + (f": {change.what}" if change.what else "")
        flags = ("posenc", "gguf", "unscaled.gguf", "--rope", json.dumps(rope))
        yield Change("tool", what, case.config, {"rope": rope}, flags, change.only)


def _plugin(flag: str, case: Case, truth: Truth) -> Iterator[Change]:
    """What `serve-flags --exact` prints for the case at its length."""
    from posenc.hf import read_rope
    from posenc.hf.config.rotation import text_rope
    from posenc.hf.serving.plugin_block import plugin_block

    blocks = {}
    for kind, rotation in read_rope(dict(case.config)).rotations.items():
        if rotation is None or text_rope(rotation) is not rotation:
            return  # the plug-in has no M-RoPE
        length = case.length if rotation.length_dependent else None
        blocks[kind] = plugin_block(rotation, length=length, tokens=case.length)
    inside = {"rope_parameters": next(iter(blocks.values())) if len(blocks) == 1 else blocks}
    words = {"text_config": inside} if "text_config" in case.config else inside
    yield Change("tool", "posenc's plug-in (posenc serve-flags --exact)", case.config,
                 {"overrides": words, "plugin": True}, (flag, json.dumps(words)), _texts(case))  # fmt: skip


# ------------------------------------------------------------------------------- engines that read no config.json


def _litgpt_config(case: Case, truth: Truth) -> Iterator[Change]:
    """litgpt weighs the two frequencies of YaRN the wrong way round, so that swapped ends of the ramp set it right.

    It rounds the swapped ends outwards, down the slow one and up the fast one: betas a quarter of a pair beyond the
    pairs where transformers' ramp ends are rounded to these.
    """
    block = _block_of(case.config) or {}
    if block.get("rope_type") != "yarn":
        return
    theta, gain = next(iter(truth.values()))
    start, end = _ramp(theta, block)
    width, base = 2 * len(theta), block["rope_theta"]

    def beta(pair: float) -> float:
        """Rotations within the original length of a wave at this place between the pairs."""
        return float(block["original_max_position_embeddings"] / (2 * math.pi) * base ** (-2 * pair / width))

    adjustments: dict[str, Any] = {
        "factor": block["factor"], "original_max_seq_len": block["original_max_position_embeddings"],
    }  # fmt: skip
    if abs(gain - 1) > 1e-12:  # mscale alone: mscale_all_dim would change the softmax scale of the model too
        adjustments["mscale"] = (gain - 1) / (_yarn_gain(block) - 1)
    swapped = {"beta_fast": block.get("beta_slow", 1.0), "beta_slow": block.get("beta_fast", 32.0)}
    exact = {"beta_fast": beta(round(end) + 0.25), "beta_slow": beta(round(start) - 0.25)}
    for what, betas in {
        "beta_fast and beta_slow swapped": swapped,
        "beta_fast and beta_slow swapped and adjusted so that litgpt's rounding meets the ends of the ramp": exact,
    }.items():
        options = {"rope_adjustments": {**adjustments, **betas}}
        yield Change("config", f"{what}, the gain as mscale", case.config, options)


def _ramp(theta: list[float], block: Block) -> tuple[float, float]:
    """The places between the pairs where YaRN's ramp leaves 0 and reaches 1, read off its frequencies.

    Raises:
        ValueError: where fewer than two pairs stand on the slope.
    """
    base_theta = [block["rope_theta"] ** (-pair / len(theta)) for pair in range(len(theta))]
    shares = [(1 - after / before) / (1 - 1 / block["factor"]) for before, after in zip(base_theta, theta, strict=True)]
    inside = [(pair, share) for pair, share in enumerate(shares) if 1e-6 < share < 1 - 1e-6]
    if len(inside) < 2:
        raise ValueError(f"YaRN's ramp has {len(inside)} pairs on its slope; two say where it starts and ends")
    (first, low), (last, high) = inside[0], inside[-1]
    slope = (high - low) / (last - first)
    return first - low / slope, first + (1 - low) / slope


_FLAGS: dict[str, Callable[[Case, Truth], Iterable[Change]]] = {
    "vllm": _vllm_flags, "exllamav3": _exllamav3_flags, "llama_cpp_converter": _llama_cpp_flags,
}  # fmt: skip
_TOOLS: dict[str, Callable[[Case, Truth], Iterable[Change]]] = {
    "vllm": partial(_plugin, "--hf-overrides"), "sglang": partial(_plugin, "--json-model-override-args"),
    "llama_cpp_converter": _gguf_files,
}  # fmt: skip
_NO_CONFIG: dict[str, Callable[[Case, Truth], Iterable[Change]]] = {
    "litgpt": _litgpt_config, "torchtitan": _none, "torchtune": _none, "llama_cpp_gguf": _gguf_files,
}  # fmt: skip
