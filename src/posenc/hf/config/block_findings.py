"""Findings on one block: keys under other names or without effect, lengths and rope types that disagree."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from posenc.arguments import shown
from posenc.frequencies.longrope import below_critical
from posenc.hf.config.block_schema import ENGINES, TRAINED, VLLM, WITH_ALPHA, Block
from posenc.hf.config.parse import Reading
from posenc.hf.config.rope_block import ALL, OUTSIDE, SCALED_FROM, RopeBlock, at
from posenc.hf.config.rotation import Rotation, rotates_nothing, text_rope
from posenc.hf.config.scalings import SILENT
from posenc.hf.config.text_config import TextConfig
from posenc.hf.families.layer_patterns import FULL
from posenc.hf.findings import Finding, Level
from posenc.hf.limits import is_count, is_number

_SAME = {
    "n_embd": ("hidden_size",), "d_model": ("hidden_size",), "n_head": ("num_attention_heads",),
    "n_heads": ("num_attention_heads",), "n_positions": ("max_position_embeddings",),
    "n_ctx": ("max_position_embeddings",),
}  # fmt: skip
_STRANGERS = ("n_embd", "n_head", "d_model", "n_heads", "n_positions", "n_ctx")
_NATIVE_KEYS = {"dbrx": ("d_model", "n_heads")}


def on_keys(text_config: TextConfig, rope_block: RopeBlock) -> Iterator[Finding]:
    values, family = rope_block.effective, text_config.rotation
    kind_keys = family.kinds.get(rope_block.kind)
    base_keys = OUTSIDE["rope_theta"] if kind_keys is None else (kind_keys.theta_key,)
    if "rope_theta" not in (rope_block.values or {}) and all(text_config.get(name) is None for name in base_keys):
        whose = "this family's" if text_config.known else "the usual"
        null = (
            "rope_theta" in rope_block.sources
            and text_config.known
            and not (family.fixed or family.null_base or family.kinds)
        )
        if null:
            text = f"is null, with which transformers 5 fails; {values['rope_theta']:g} is read, this family's default"
            yield Finding("rope_theta", text, "base-null", "fault")
        else:
            yield Finding("rope_theta", f"is not given: {values['rope_theta']:g} is {whose} default", "base-default")
    inner = text_config.get("attn_config")
    released = inner.get("rope_theta") if text_config.model_type == "dbrx" and isinstance(inner, dict) else None
    if is_number(released, 1) and released != values["rope_theta"]:
        text = f"= {shown(released)} is the base as released; transformers 5.23 ignores it and rotates by base "
        text += f"{values['rope_theta']:g} (a fault of transformers, not of the file)"
        yield Finding("attn_config.rope_theta", text, "base-ignored-by-transformers")
    stands = {path[0] for paths in rope_block.sources.values() for path in paths if len(path) == 1}
    if "rope_theta" in stands and family.theta_key == "rotary_emb_base" and "rotary_emb_base" not in stands:
        text = "is ignored by transformers outside the block in this family, which reads rotary_emb_base"
        yield from _ignored(text_config, "rope_theta", family.base, text)
    if "partial_rotary_factor" in stands and family.share_key == "rotary_pct" and "rotary_pct" not in stands:
        text = "is ignored by transformers outside the block in this family, which reads rotary_pct"
        yield from _ignored(text_config, "partial_rotary_factor", family.share, text)
    default_share = family.share if family.share != 1 or not text_config.known else 1.0
    for key, own_key, name, read in (
        ("rotary_emb_base", family.theta_key, "rope_theta", _read(text_config, rope_block, "rope_theta", family.base)),
        (
            "rotary_pct",
            family.share_key,
            "partial_rotary_factor",
            _read(text_config, rope_block, "partial_rotary_factor", default_share),
        ),
        (
            "rope_pct",
            "",
            "partial_rotary_factor",
            _read(text_config, rope_block, "partial_rotary_factor", default_share),
        ),
    ):
        if key in stands and key != own_key and (text_config.known or key == "rope_pct"):
            yield from _ignored(
                text_config, key, read, f"is ignored by transformers in this family, which reads {name}"
            )
    share = values.get("partial_rotary_factor", 1)
    default_type = values.get("rope_type", "default") == "default"
    if share != 1 and default_type and text_config.known and not family.default_share and not family.latent:
        text = "is ignored by transformers in this family for rope type 'default'"
        yield Finding("partial_rotary_factor", text, "share-ignored", "fault")
    named = [path[-1] for path in rope_block.sources.get("rope_type", ())]
    if kind_keys is not None and named == ["type"] and not family.scaled:
        text = "is ignored by transformers in this family, which reads rope_type alone"
        yield Finding("type", text, "key-ignored", "fault")
    yield from _on_widths(text_config, rope_block)
    yield from _on_sections(text_config, rope_block)
    temperature = text_config.family.attention.temperature
    read = temperature is not None and temperature.form == "block steps"  # and the schedule tells it
    if "llama_4_scaling_beta" in values and not read:
        text = (
            f"scales queries by their position in Ministral 3 and Mistral 4; of {text_config.model_type} it is not read"
        )
        yield Finding("llama_4_scaling_beta", text, "temperature")
    if (
        text_config.model_type == "olmo3"
        and rope_block.kind != FULL
        and len(rope_block.target) < 2
        and values["rope_theta"] != family.base
    ):
        text = f"is for all layers; transformers 5.23 gives sliding ones {family.base:g}"
        yield Finding("rope_theta", text, "base-of-sliding-ignored", "fault")


def _read(text_config: TextConfig, rope_block: RopeBlock, key: str, default: float) -> Any:
    """The value that transformers reads under a key of version 5, other spellings of it aside."""
    values = (at(text_config.config, path) for path in rope_block.sources.get(key, ()) if path[-1] == key)
    return next((value for value in values if value is not None), default)


def _ignored(text_config: TextConfig, key: str, read: object, text: str) -> Iterator[Finding]:
    """A key that the family's code does not read, unless it says what is read anyway."""
    value = text_config.get(key)
    if value is not None and value != read:
        yield Finding(key, f"= {shown(value)} {text}: {shown(read)}", "key-ignored", "fault")


def _on_widths(text_config: TextConfig, rope_block: RopeBlock) -> Iterator[Finding]:
    """On keys of a head's width and of lengths that other families have."""
    config, family = text_config.config, text_config.rotation
    key, other = "qk_rope_head_dim" if family.latent else family.head_key, config.get("head_dim")
    if (
        rope_block.kind in (ALL, FULL)
        and family.head_dim is not None
        and _silent_width(text_config)
        and not family.kinds
    ):
        yield Finding(key, f"is not given: {family.head_dim} is this family's default", "head-width-default")
    if not text_config.known or family.fixed:
        return
    share = rope_block.effective.get("partial_rotary_factor", 1.0)
    wide = int(other * share) if is_count(other) and is_number(share, 0) else None
    if family.head_dim_first and other is not None and config.get(key, family.head_dim) not in (other, wide):
        text = f"= {shown(other)} is not the width that is rotated, {key} = {shown(config.get(key, family.head_dim))}; "
        text += "the rotary module of transformers takes head_dim"
        yield Finding("head_dim", text, "head-width-differs", "fault")
    for name in _STRANGERS:
        if config.get(name) is not None and name not in _NATIVE_KEYS.get(text_config.model_type, ()):
            yield from _on_stranger(text_config, name)
    if family.share_key != "rotary_dim" and ("rotary_dim",) in rope_block.sources.get("rotary_dim", ()):
        width = other if is_count(other) else family.head_dim
        share_read = _read(text_config, rope_block, "partial_rotary_factor", family.share)
        read = int(width * share_read) if width is not None and is_number(share_read, 0) else None
        if read != config["rotary_dim"]:
            text = f"= {shown(config['rotary_dim'])} is ignored by the code of this family in transformers"
            text += "" if read is None else f", which rotates {read} channels"
            yield Finding("rotary_dim", text, "share-ignored", "note" if _as_released(text_config) else "fault")


def _on_stranger(text_config: TextConfig, name: str) -> Iterator[Finding]:
    """A key under another family's name for something that this family's own key says, too."""
    config = text_config.config
    own_value = next((config[key] for key in _SAME.get(name, ()) if config.get(key) is not None), None)
    if own_value != config[name]:
        text = (
            f"= {shown(config[name])} is another family's key, and transformers does not read it in this one: it reads "
        )
        text += f"{_SAME[name][0]}, which is {'missing' if own_value is None else shown(own_value)}"
        yield Finding(name, text, "key-of-another-family", "suspicion")


def _as_released(text_config: TextConfig) -> bool:
    """Families whose released files themselves have a key that transformers' code ignores: no fault of a file."""
    return text_config.model_type in ("minimax", "minimax_m3_vl_text")


def _silent_width(text_config: TextConfig) -> bool:
    """Whether the width of a head stands nowhere, and the stream over the heads says another one than the family."""
    config, family = text_config.config, text_config.rotation
    width, heads = config.get("hidden_size"), config.get("num_attention_heads")
    key = "qk_rope_head_dim" if family.latent else family.head_key
    if key in config:
        return False
    return family.latent or not is_count(width) or not is_count(heads) or width != heads * (family.head_dim or 0)


def _on_sections(text_config: TextConfig, rope_block: RopeBlock) -> Iterator[Finding]:
    """On M-RoPE, and on the key that has the same name in one family."""
    values, block, family = rope_block.effective, rope_block.values or {}, text_config.rotation
    if family.sections is None:
        if "mrope_section" in values and text_config.known:
            text = "is ignored by transformers in this family, which rotates by one position"
            yield Finding("mrope_section", text, "sections-ignored", "fault")
    elif "mrope_section" not in block:
        text = f"is not given: {list(family.sections)} is this family's default"
        yield Finding("mrope_section", text, "sections-default")
    elif block.get("mrope_interleaved", family.order == "interleaved") != (family.order == "interleaved"):
        text = f"is {block['mrope_interleaved']}, but the order of this family's pairs is {family.order!r}, and read so"
        yield Finding("mrope_interleaved", text, "order-of-sections", "suspicion")
    if family.order == "time last" and values.get("rope_type", "default") != "default":
        text = "other than 'default' is refused by transformers 5.23 in this family"
        yield Finding("rope_type", text, "rope-type-refused", "fault")
    if "interleaved" in block:
        text = "is not read: mrope_interleaved says the order of axes, layout= what a pair is"
        yield Finding("interleaved", text, "interleaved-unread")


NAMES = {"vllm": "vLLM", "sglang": "SGLang"}


_FAR_BEYOND = 8  # times the declared length; Qwen 3 with factor 4 beside its 40,960 tokens has 3.2


def on_lengths(text_config: TextConfig, rope_block: RopeBlock) -> Iterator[Finding]:
    values, block, longest = rope_block.effective, rope_block.values or {}, rope_block.longest
    rope_type, factor = values.get("rope_type", "default"), values.get("factor")
    original = values.get("original_max_position_embeddings")
    if rope_type in SCALED_FROM and "original_max_position_embeddings" not in block:
        if original == longest:
            text = f"is not given: max_position_embeddings = {longest} is taken for the trained length, as "
            text += "transformers does; if that is the extended length, all frequencies are wrong"
            yield Finding("original_max_position_embeddings", text, "original-length-missing", "suspicion")
        else:
            text = f"is not given: {original} is this family's default"
            yield Finding("original_max_position_embeddings", text, "original-length-default")
    if rope_type == "linear" and factor != 1:
        text = f"of 'linear' does not say whether max_position_embeddings = {longest} is the length before the scaling "
        text += "or after"
        yield Finding("factor", text, "length-of-linear")
    if longest is None or original is None or factor is None:
        return
    default = text_config.rotation.block or {}  # a small model may keep the block of its class
    if original > longest or (rope_type == "llama3" and original == longest):
        text = f"is {original:,}, and max_position_embeddings {longest:,}: the length before the scaling should be the "
        text += "smaller one; which of the two is wrong the file does not say"
        level: Level = "note" if default and default.items() <= values.items() else "suspicion"
        yield Finding("original_max_position_embeddings", text, "original-length-not-below", level)
    elif rope_type == "yarn" and "factor" in block and longest > max(original, round(original * factor)):
        text = f"is {longest:,}, and yarn with factor {factor:g} over {original:,} tokens reaches "
        text += (
            f"{round(original * factor):,}: one of the three numbers is wrong; for the declared length factor would "
        )
        text += f"be {longest / original:g}"
        yield Finding("max_position_embeddings", text, "declared-beyond-scaling", "suspicion")
    elif (
        rope_type == "yarn"
        and original * factor >= _FAR_BEYOND * longest
        and values.get("factor") != default.get("factor")
    ):
        text = f"is {factor:g}, with which yarn reaches {round(original * factor):,} tokens from {original:,}, and "
        text += f"{longest:,} are declared: all frequencies are scaled far more than that needs; was "
        text += f"{longest / original:g} meant?"
        yield Finding("factor", text, "scaling-beyond-declared", "suspicion")
    elif rope_type in ("yarn", "longrope") and longest != original and not math.isclose(longest / original, factor):
        # Published models differ here for good reasons: AFM-4.5B has 20 over 16, Llama 3.1 (another recipe) 8 over 16.
        text = f"is {factor:g}, and max_position_embeddings / original_max_position_embeddings = {longest / original:g}"
        yield Finding("factor", text, "factor-and-lengths-differ")


def on_yarn(text_config: TextConfig, rope_block: RopeBlock, reading: Reading) -> Iterator[Finding]:
    values = rope_block.effective
    if values.get("rope_type") != "yarn":
        return
    scales = [key for key in ("mscale", "mscale_all_dim") if values.get(key)]
    if "attention_factor" in values and scales and reading.convention != "sglang":
        text = f"is final: {' and '.join(scales)} do not change the gain"
        yield Finding("attention_factor", text, "attention-factor-final")
    elif len(scales) == 1 and float(values[scales[0]]) != 1:
        other = "mscale_all_dim" if scales == ["mscale"] else "mscale"
        zero = "is 0, which counts as absent" if values.get(other) is not None else "is missing"
        text = f"has no effect: {other} {zero}, and the gain then follows from the factor alone, in transformers, vLLM "
        text += "and SGLang alike; every release that scales the gain has both keys"
        yield Finding(scales[0], text, "mscale-alone", "suspicion")
    if values.get("mscale_all_dim") and not text_config.rotation.latent and reading.convention != "deepseek":
        text = "scales the softmax in latent attention only; DeepSeek's own code is read with convention='deepseek'"
        yield Finding("mscale_all_dim", text, "mscale-all-dim-not-latent")
    if not values.get("truncate", True) and len(rope_block.target) > 1:
        text = "is false and stands in a block of one kind of layers, where transformers 5.23 ignores it (a fault of "
        text += "transformers, not of the file)"
        yield Finding("truncate", text, "truncate-ignored", "suspicion")


def on_engines(text_config: TextConfig, rope_block: RopeBlock, reading: Reading) -> Iterator[Finding]:
    """What one engine reads and another does not."""
    values, engine = rope_block.effective, reading.convention
    rope_type = values.get("rope_type")
    if rope_type == WITH_ALPHA and engine not in ENGINES and not text_config.model_type.startswith("hunyuan"):
        text = "is read by Hunyuan's code, vLLM and SGLang; transformers ignores it in this family and reads factor, "
        text += "so that the frequencies grow with the text instead; for the same everywhere write rope type 'default' "
        text += "and rope_theta times alpha^(d / (d - 2)), with d rotated channels"
        yield Finding("alpha", text, "alpha-ignored", "fault" if text_config.known else "suspicion")
    if rope_type == "dynamic" and engine in ENGINES:
        once = f"for {values['factor']:g} times max_position_embeddings"
        if engine == "vllm":
            once = f"from {TRAINED} to max_position_embeddings; without that key it changes nothing"
        text = f"is computed once by {NAMES[engine]}, {once}; in transformers the frequencies depend on the length of "
        yield Finding("rope_type", f"'dynamic' {text}each text", "dynamic-once")
    if engine == "sglang" and rope_type == "yarn" and "attention_factor" in values:
        text = "is not read by SGLang, whose gain follows from factor, mscale and mscale_all_dim: write attn_factor, "
        text += "which multiplies that"
        yield Finding("attention_factor", text, "attention-factor-ignored", "fault")
    if engine in ENGINES and rope_type == "longrope":
        if "attention_factor" in values and not {"short_mscale", "long_mscale"} <= set(values):
            text = f"is not read by {NAMES[engine]}, whose gain follows from max_position_embeddings and the original "
            text += "length: write short_mscale and long_mscale, which take its place"
            yield Finding("attention_factor", text, "attention-factor-ignored", "fault")
        if engine == "vllm":
            text = "is used for texts of every length once vLLM serves more than the original length (--max-model-len)"
            yield Finding("long_factor", text, "one-list-served")
    if engine == "vllm" and rope_type in ("yarn", "deepseek_yarn", "deepseek_llama_scaling"):
        for key in VLLM:
            if key in values:
                text = "was read by older versions of vLLM; 0.33 ignores it: write attention_factor"
                level: Level = "note" if values[key] == SILENT[key] else "fault"
                yield Finding(key, text, "key-of-older-vllm", level)


def on_types(text_config: TextConfig, rope_block: RopeBlock, rope: Rotation) -> Iterator[Finding]:
    values = rope_block.effective
    rope_type = values.get("rope_type", "default")
    if rope.length_dependent:
        text = "makes the frequencies depend on the sequence length: declare a length, or cache keys unrotated; "
        text += "transformers uses the longest row of a batch"
        yield Finding("rope_type", f"{rope_type!r} {text}", "length-dependent")
    if rope_type == "dynamic" and values["factor"] > 1:
        f = values["factor"]
        text = f"= {f:g}: at {f:g} times the trained length the scale is {f * f - f + 1:g}, not {f:g}"
        yield Finding("factor", text, "factor-of-dynamic")
    if rope_type == "longrope" and rotates_nothing(rope):
        logits = float(text_rope(rope).spectrum().gain) ** 2
        text = f"slows every pair by {values['long_factor'][0]:g}, so that no layer of this block has positions "
        text += "(NoPE), as DroPE leaves a model (arXiv 2512.12167); a causal mask alone tells its tokens apart"
        text += f"; the gain multiplies attention logits by {logits:.6g}" if logits != 1 else ""
        yield Finding("long_factor", text, "rotation-dropped")
    if rope_type == "longrope":
        yield from _on_longrope(text_config, rope_block, values)
        pair, gain = _critical_pair(values), float(text_rope(rope).spectrum(1).gain)
        if pair is not None:
            text = (
                f"slows pair {pair} by {values['long_factor'][pair]:g} and the pairs below it as a larger base does, "
            )
            text += "which is LongRoPE2's rule (arXiv 2502.20082); short texts keep the unscaled frequencies"
            text += f", with a gain of {gain:.6g}" if gain != 1 else " and have no gain, so they are rotated as before"
            yield Finding("long_factor", text, "critical-pair")
        short, long = (sum(values[key]) / len(values[key]) for key in ("short_factor", "long_factor"))
        if short > long:
            text = f"slows the pairs by {short:.4g} on average, and long_factor by {long:.4g}: were the two exchanged?"
            yield Finding("short_factor", text, "factor-lists-swapped", "suspicion")
    if rope_type == "yarn" and not text_config.rotation.latent:
        yield from _on_gain(rope_block, rope)
    if rope_type == "proportional" and values.get("factor", 1) != 1:
        text = "divides the frequencies in transformers; vLLM ignores it here"
        yield Finding("factor", text, "factor-of-proportional")


def _on_gain(rope_block: RopeBlock, rope: Rotation) -> Iterator[Finding]:
    """A gain of YaRN that some engines or releases ignore: they compute it from the factor alone."""
    values = rope_block.effective
    gain, usual = float(text_rope(rope).spectrum().gain), 1 + 0.1 * math.log(max(1.0, values["factor"]))
    key = "attention_factor" if "attention_factor" in values else "mscale"
    if key in (rope_block.values or {}) and abs(gain - usual) > 1e-3 * usual:
        lossy, reads = "older releases of vLLM and SGLang", "vLLM 0.33.0 and SGLang 0.5.23 read"
        if key == "attention_factor":
            lossy, reads = "SGLang 0.5.23 and older releases of vLLM", "vLLM 0.33.0 reads"
        text = f"makes the gain {gain:.4g} in transformers; {lossy} compute {usual:.4g} from factor alone ({reads} the "
        text += f"key): for those also give attn_factor = {gain / usual:.6g}, which multiplies their gain"
        yield Finding(key, text, "yarn-gain-in-engines")


def _critical_pair(values: Block) -> int | None:
    """The pair below which the long factors follow LongRoPE2's rule, under short factors of 1; None where none is."""
    long = values["long_factor"]
    if any(factor != 1 for factor in values["short_factor"]):
        return None
    for pair in range(len(long) - 1, 2, -1):  # two factors between 1 and the pair's own are the least that shows a rule
        expected = below_critical(long[pair], pair)
        if long[pair] > 1 and all(abs(a - b) < 1e-6 * b for a, b in zip(long, expected, strict=False)):
            return pair
    return None


def _on_longrope(text_config: TextConfig, rope_block: RopeBlock, values: Block) -> Iterator[Finding]:
    spelled = [at(text_config.config, path) for path in rope_block.sources.get("rope_type", ())]
    if text_config.model_type == "phi3" and "su" in spelled:
        text = "'su' fails in transformers 5.23 unless the block holds original_max_position_embeddings"
        yield Finding("rope_type", text, "su-fails", "fault")
    if "yarn" in spelled:
        text = "'yarn' with short_factor is Phi-3's first spelling of 'longrope', and read so"
        yield Finding("rope_type", text, "first-spelling-of-longrope")
    outside = ("original_max_position_embeddings",) in rope_block.sources.get("original_max_position_embeddings", ())
    original = values["original_max_position_embeddings"]
    if text_config.rotation.original not in (None, original) and not outside:
        text = f"stands in the block only; transformers 5.23 takes {text_config.rotation.original} instead"
        yield Finding("original_max_position_embeddings", text, "original-length-ignored", "fault")
    if text_config.model_type == "phimoe":
        text = "is as released, and transformers 5.23 never uses it (a fault of transformers, not of the file): past "
        text += "the original length only the gain changes there"
        yield Finding("long_factor", text, "long-factors-unused")
    elif "short_mscale" in values or "long_mscale" in values:
        text = "is read by Phi-3.5-MoE, vLLM and SGLang; transformers takes attention_factor in this family"
        yield Finding("long_mscale", text, "gains-of-longrope")
