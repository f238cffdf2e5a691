"""Remarks on the lengths and the rope type of one kind of layers."""

from __future__ import annotations

import math
from collections.abc import Iterator

from posenc.hf.mrope import Rotation, of_text
from posenc.hf.part import SCALED_FROM, Part, at
from posenc.hf.reading import Reading
from posenc.hf.remark import Level, Remark
from posenc.hf.scalings import SILENT
from posenc.hf.schema import ENGINES, TRAINED, VLLM, WITH_ALPHA, Block
from posenc.hf.section import Section

NAMES = {"vllm": "vLLM", "sglang": "SGLang"}


def on_lengths(part: Part) -> Iterator[Remark]:
    values, found, longest = part.values, part.found or {}, part.longest
    rope_type, factor = values.get("rope_type", "default"), values.get("factor")
    original = values.get("original_max_position_embeddings")
    if rope_type in SCALED_FROM and "original_max_position_embeddings" not in found:
        if original == longest:
            text = f"is not given: max_position_embeddings = {longest} is taken for the trained length, as "
            text += "transformers does; if that is the extended length, all frequencies are wrong"
            yield Remark("original_max_position_embeddings", text, "original-length-missing", "suspicion")
        else:
            text = f"is not given: {original} is this family's default"
            yield Remark("original_max_position_embeddings", text, "original-length-default")
    if rope_type == "linear" and factor != 1:
        text = f"of 'linear' does not say whether max_position_embeddings = {longest} is the length before the scaling "
        text += "or after"
        yield Remark("factor", text, "length-of-linear")
    if longest is None or original is None or factor is None:
        return
    if original > longest or (rope_type == "llama3" and original == longest):
        text = f"is {original:,}, and max_position_embeddings {longest:,}: the length before the scaling should be the "
        text += "smaller one; which of the two is wrong the file does not say"
        yield Remark("original_max_position_embeddings", text, "original-length-not-below", "suspicion")
    elif rope_type in ("yarn", "longrope") and longest != original and not math.isclose(longest / original, factor):
        # Published models differ here for good reasons: AFM-4.5B has 20 over 16, Llama 3.1 (another recipe) 8 over 16.
        text = f"is {factor:g}, and max_position_embeddings / original_max_position_embeddings = {longest / original:g}"
        yield Remark("factor", text, "factor-and-lengths-differ")


def on_yarn(section: Section, part: Part, reading: Reading) -> Iterator[Remark]:
    values = part.values
    if values.get("rope_type") != "yarn":
        return
    scales = [key for key in ("mscale", "mscale_all_dim") if values.get(key)]
    if "attention_factor" in values and scales and reading.convention != "sglang":
        text = f"is final: {' and '.join(scales)} do not change the gain"
        yield Remark("attention_factor", text, "attention-factor-final")
    elif len(scales) == 1 and float(values[scales[0]]) != 1:
        other = "mscale_all_dim" if scales == ["mscale"] else "mscale"
        zero = "is 0, which counts as absent" if values.get(other) is not None else "is missing"
        text = f"has no effect: {other} {zero}, and the gain then follows from the factor alone, in transformers, vLLM "
        text += "and SGLang alike; every release that scales the gain has both keys"
        yield Remark(scales[0], text, "mscale-alone", "suspicion")
    if values.get("mscale_all_dim") and not section.rotation.latent and reading.convention != "deepseek":
        text = "scales the softmax in latent attention only; DeepSeek's own code is read with convention='deepseek'"
        yield Remark("mscale_all_dim", text, "mscale-all-dim-not-latent")
    if not values.get("truncate", True) and len(part.home) > 1:
        text = "is false and stands in a block of one kind of layers, where transformers 5.23 ignores it (a fault of "
        text += "transformers, not of the file)"
        yield Remark("truncate", text, "truncate-ignored", "suspicion")


def on_engines(section: Section, part: Part, reading: Reading) -> Iterator[Remark]:
    """What one engine reads and another does not."""
    values, engine = part.values, reading.convention
    rope_type = values.get("rope_type")
    if rope_type == WITH_ALPHA and engine not in ENGINES and not section.model_type.startswith("hunyuan"):
        text = "is read by Hunyuan's code, vLLM and SGLang; transformers ignores it in this family and reads factor, "
        text += "so that the frequencies grow with the text instead; for the same everywhere write rope type 'default' "
        text += "and rope_theta times alpha^(d / (d - 2)), with d channels that turn"
        yield Remark("alpha", text, "alpha-ignored", "fault" if section.known else "suspicion")
    if rope_type == "dynamic" and engine in ENGINES:
        once = f"for {values['factor']:g} times max_position_embeddings"
        if engine == "vllm":
            once = f"from {TRAINED} to max_position_embeddings; without that key it changes nothing"
        text = f"is computed once by {NAMES[engine]}, {once}; in transformers the frequencies depend on the length of "
        yield Remark("rope_type", f"'dynamic' {text}each text", "dynamic-once")
    if engine == "sglang" and rope_type == "yarn" and "attention_factor" in values:
        text = "is not read by SGLang, whose gain follows from factor, mscale and mscale_all_dim: write attn_factor, "
        text += "which multiplies that"
        yield Remark("attention_factor", text, "attention-factor-ignored", "fault")
    if engine in ENGINES and rope_type == "longrope":
        if "attention_factor" in values and not {"short_mscale", "long_mscale"} <= set(values):
            text = f"is not read by {NAMES[engine]}, whose gain follows from max_position_embeddings and the original "
            text += "length: write short_mscale and long_mscale, which take its place"
            yield Remark("attention_factor", text, "attention-factor-ignored", "fault")
        if engine == "vllm":
            text = "is used for texts of every length once vLLM serves more than the original length (--max-model-len)"
            yield Remark("long_factor", text, "one-list-served")
    if engine == "vllm" and rope_type in ("yarn", "deepseek_yarn", "deepseek_llama_scaling"):
        for key in VLLM:
            if key in values:
                text = "was read by older versions of vLLM; 0.33 ignores it: write attention_factor"
                level: Level = "note" if values[key] == SILENT[key] else "fault"
                yield Remark(key, text, "key-of-older-vllm", level)


def on_types(section: Section, part: Part, rope: Rotation) -> Iterator[Remark]:
    values = part.values
    rope_type = values.get("rope_type", "default")
    if rope.length_dependent:
        text = "makes the frequencies depend on the length: declare a length, or cache keys un-rotated; "
        text += "transformers looks at the longest row of a batch"
        yield Remark("rope_type", f"{rope_type!r} {text}", "length-dependent")
    if rope_type == "dynamic" and values["factor"] > 1:
        f = values["factor"]
        text = f"= {f:g}: at {f:g} times the trained length the scale is {f * f - f + 1:g}, not {f:g}"
        yield Remark("factor", text, "factor-of-dynamic")
    if rope_type == "longrope":
        yield from _on_longrope(section, part, values)
        short, long = (sum(values[key]) / len(values[key]) for key in ("short_factor", "long_factor"))
        if short > long:
            text = f"slows the pairs by {short:.4g} on average, and long_factor by {long:.4g}: were the two exchanged?"
            yield Remark("short_factor", text, "factor-lists-swapped", "suspicion")
    if rope_type == "yarn" and not section.rotation.latent:
        yield from _on_gain(part, rope)
    if rope_type == "proportional" and values.get("factor", 1) != 1:
        text = "divides the frequencies in transformers; vLLM ignores it here"
        yield Remark("factor", text, "factor-of-proportional")


def _on_gain(part: Part, rope: Rotation) -> Iterator[Remark]:
    """A gain of YaRN that engines do not read: they make it of the factor alone."""
    values = part.values
    gain, usual = float(of_text(rope).spectrum().gain), 1 + 0.1 * math.log(max(1.0, values["factor"]))
    key = "attention_factor" if "attention_factor" in values else "mscale"
    if key in (part.found or {}) and abs(gain - usual) > 1e-3 * usual:
        text = f"makes the gain {gain:.4g} in transformers; releases of vLLM and SGLang compute {usual:.4g} of factor "
        text += f"alone: there give attn_factor = {gain / usual:.6g} beside it, which multiplies that"
        yield Remark(key, text, "yarn-gain-in-engines")


def _on_longrope(section: Section, part: Part, values: Block) -> Iterator[Remark]:
    spelled = [at(section.config, path) for path in part.places.get("rope_type", ())]
    if section.model_type == "phi3" and "su" in spelled:
        text = "'su' fails in transformers 5.23 unless the block holds original_max_position_embeddings"
        yield Remark("rope_type", text, "su-fails", "fault")
    if "yarn" in spelled:
        text = "'yarn' with short_factor is Phi-3's first spelling of 'longrope', and read so"
        yield Remark("rope_type", text, "first-spelling-of-longrope")
    outside = ("original_max_position_embeddings",) in part.places.get("original_max_position_embeddings", ())
    original = values["original_max_position_embeddings"]
    if section.rotation.original not in (None, original) and not outside:
        text = f"stands in the block only; transformers 5.23 takes {section.rotation.original} instead"
        yield Remark("original_max_position_embeddings", text, "original-length-ignored", "fault")
    if section.model_type == "phimoe":
        text = "is as released, and transformers 5.23 never uses it (a fault of transformers, not of the file): past "
        text += "the original length only the gain changes there"
        yield Remark("long_factor", text, "long-factors-unused")
    elif "short_mscale" in values or "long_mscale" in values:
        text = "is read by Phi-3.5-MoE, vLLM and SGLang; transformers takes attention_factor in this family"
        yield Remark("long_mscale", text, "gains-of-longrope")
