"""Rules on one rotation: its lengths, scaling, gain and spelling, against one another and against published models."""

from __future__ import annotations

import math

from posenc.arguments import shown
from posenc.hf.config.rope_keys import ALL, ENGINES, OUTSIDE, SCALED_FROM, TRAINED, VLLM, WITH_ALPHA
from posenc.hf.config.rotation import SILENT, text_rope
from posenc.hf.config.text_config import max_length
from posenc.hf.families.family import FULL, SLIDING
from posenc.hf.findings import Finding
from posenc.hf.limits import TOKENS, is_count
from posenc.hf.rules.case import BlockRule, Case, Fix, Read, changed_keys, in_block, keys_for, single
from posenc.hf.rules.releases import LONGEST, SHARES, is_llama_3, release_like
from posenc.hf.rules.releases import TRAINED as TRAINED_AT
from posenc.hf.sources.load import Config

_ORIGINAL, _DECLARED = "original_max_position_embeddings", "max_position_embeddings"
_UNSCALED_BY_DEFAULT = ("phi4_multimodal",)  # whose class in transformers has both lengths and no scaling
_LLAMA_3_BASE = 5e5
_LLAMA_32 = (2048, 3072)  # channels of the streams of 1B and 3B
_QWEN = ("qwen2", "qwen3")  # families whose model cards tell users to add YaRN for long texts


# Bases


def base_default(case: Case) -> Finding | None:
    """The file gives no base; null, too, means the default in version 4 and an error in version 5."""
    keys = case.family.kinds[case.block.kind].theta_key if case.block.kind in case.family.kinds else None
    if "rope_theta" in case.given or any(case.text.get(key) is not None for key in (keys,) if key):
        return None
    if keys is None and any(case.text.get(key) is not None for key in OUTSIDE["rope_theta"]):
        return None
    whose = "this family's" if case.text.known else "the usual"
    return Finding("rope_theta", f"is not given: {case.values['rope_theta']:g} is {whose} default", "base-default")


def base_lost(case: Case) -> Finding | None:
    """No base, and a default too small for the length: unslothai/unsloth#7028, vllm-project/vllm#44158."""
    family, values = case.family, case.values
    length = case.block.longest
    if case.rope_type in SCALED_FROM:
        length = values.get(_ORIGINAL, length)
    elif case.rope_type == "linear" and length is not None:
        length = int(length / values["factor"])
    if "rope_theta" in case.given or length is None or not case.text.known or case.block.kind == SLIDING:
        return None
    if family.fixed or family.bases_key:
        return None
    if case.slowest >= length and is_llama_3(case.text):
        length = max_length(case.text) or length
    in_block = case.block.target[:1] == ("rope_parameters",) and case.text.get("rope_parameters")
    by_hand = in_block and case.rope_type != "default" and family.base == 10_000 and not (family.kinds or family.nested)
    by_hand = by_hand and "rope_theta" not in case.block.sources
    if case.slowest >= length and not by_hand:
        return None
    text = f"is not given, and with {values['rope_theta']:g}, this family's default, the slowest pair completes one "
    text += f"rotation in {case.slowest:,.0f} tokens; the file declares {length:,}. A base may have been lost between "
    text += "spellings: compare with rope_theta of the original checkpoint (Llama 3: 500000, Qwen 2.5: 1000000)"
    return Finding("rope_theta", text, "base-lost", "fault" if is_llama_3(case.text) else "suspicion")


def base_below_releases(case: Case) -> Finding | None:
    """A smaller base than published models of the same sizes: Lightning-AI/litgpt#2217, keras-team/keras-hub#2729."""
    release, base = release_like(case.text), case.values["rope_theta"]
    if release is None or case.block.kind not in (ALL, FULL) or not base < release.base:
        return None
    if not case.text.model_type.startswith(str(case.facts.config.get("model_type"))):
        return None  # a part of a composite model of another name has facts of its own
    if (case.text.model_type == "mistral" and case.text.get("sliding_window")) or base_lost(case) is not None:
        return None
    has = f"is {base:g}" if "rope_theta" in case.given else f"is not given, so that {base:g} is used"
    text = f"{has}, and {release.example}, of the same sizes and vocabulary, has {release.base:g}: every frequency is "
    text += "wrong for its weights; copy rope_theta of the original checkpoint, or --accept this finding for a model "
    text += "that was trained with the smaller base"
    return Finding("rope_theta", text, "base-below-releases", "suspicion")


def base_of_windows(case: Case) -> Finding | None:
    """Sliding layers under the base or the scaling of the full ones: Blaizzy/mlx-vlm#1927 (Gemma 3)."""
    name, kind = case.text.model_type, case.block.kind
    if not name.startswith(("gemma3", "gemma4", "modernbert")) or kind != SLIDING:
        return None
    full = next((block.effective for block in case.facts.blocks if block.kind == FULL and block.values), None)
    scaled = case.rope_type != "default" and "rope_type" in case.given and name.startswith("gemma")
    base, wide = case.values["rope_theta"], 0.0 if full is None else full["rope_theta"]
    if not scaled and (full is None or base < wide or (base == wide and name.startswith("modernbert"))):
        return None
    has = f"the scaling {case.rope_type!r}" if scaled else f"base {base:g}, and full ones {wide:g}"
    text = (
        f"of sliding layers has {has}: published models of this family have a base of 10,000 there, below that of the "
    )
    text += "full layers, and no scaling, since no distance within a window needs one"
    return Finding("rope_parameters", text, "rotation-of-windows", "suspicion")


def length_beyond_base(case: Case) -> Finding | None:
    """The slowest pair completes a rotation within the length, as in many good models: --weights measures it."""
    longest = case.block.longest
    if "rope_theta" not in case.given or longest is None or case.rope_type != "default":
        return None
    windowed = is_count(case.text.get("sliding_window"), TOKENS)
    if case.slowest >= longest or case.block.kind not in (ALL, FULL) or windowed:
        return None
    text = f"is {longest:,}, and with base {case.values['rope_theta']:g} the slowest pair completes a rotation in "
    text += f"{case.slowest:,.0f} tokens, without any scaling: the configuration does not say whether the model was "
    text += "trained at that length; compare its loss at both lengths (posenc doctor --weights)"
    return Finding(_DECLARED, text, "length-beyond-base")


def _llama_3(read: Read) -> Config | None:
    """The rotation of Llama 3.1 or 3.2, which share the base and differ in the factor."""
    from posenc.hf.sources.presets import preset

    rope = single(read)
    if not is_llama_3(read.text_config) or rope is None:
        return None
    small = read.text_config.get("hidden_size") in _LLAMA_32
    recipe = text_rope(read.like(preset("llama-3.2" if small else "llama-3.1")).rotation)
    return keys_for(read, recipe.replace(head_dim=rope.head_dim, layout=rope.layout, rotary_dim=rope.head_dim))


# Scalings that were lost or exchanged


def linear_over_llama_3(case: Case) -> Finding | None:
    """Linear scaling in the place of llama3's: unslothai/unsloth#7028."""
    if not is_llama_3(case.text) or case.rope_type != "linear":
        return None
    text = "'linear' stands where Llama 3.1 and later have 'llama3', and slows the fast pairs too, which that recipe "
    text += "leaves alone: perplexity went from 10 to 166 at position 65,000; keep the llama3 block of the checkpoint "
    text += "(preset('llama-3.1')) and raise max_position_embeddings alone"
    return Finding("rope_type", text, "linear-over-llama3", "fault")


def scaling_lost(case: Case) -> Finding | None:
    """A published length without the scaling that reaches it: Blaizzy/mlx-vlm#1710, huggingface/transformers#41922."""
    if case.rope_type != "default" or case.block.kind not in (ALL, FULL):
        return None
    longest, release = case.block.longest, release_like(case.text)
    if is_llama_3(case.text) and case.values["rope_theta"] == _LLAMA_3_BASE and "rope_theta" in case.given:
        text = f"is {longest:,}, which Llama 3.1 and later reach by rope type 'llama3' alone, and no scaling is given: "
        text += (
            "the queries that transformers rotates then have a cosine of 0.76 with the trained ones at 8,192 tokens, "
        )
        text += "0.50 at 60,000; write the llama3 block of the checkpoint (preset('llama-3.1'))"
        return Finding(_DECLARED, text, "scaling-lost", "fault")
    if release is not None and release.scaling:
        text = (
            f"is {max_length(case.text):,}, which {release.example}, of the same sizes and vocabulary, reaches by rope "
        )
        text += f"type {release.scaling!r}, and no scaling is given: the model degrades beyond the length before the "
        text += "scaling; copy the block of the original checkpoint"
        return Finding(_DECLARED, text, "scaling-lost", "suspicion")
    for key in (_ORIGINAL, "initial_context_length"):
        trained = case.text.get(key)
        if is_count(trained, TOKENS) and longest is not None and longest > trained and case.text.known:
            if case.text.model_type in _UNSCALED_BY_DEFAULT:
                return None
            text = (
                f"= {trained:,} is the length before a scaling, {longest:,} tokens are declared, and the file has no "
            )
            text += "scaling: was its block lost? Copy it of the original checkpoint"
            return Finding(key, text, "scaling-lost", "suspicion")
    return None


def recipe_differs(case: Case) -> Finding | None:
    """Numbers of Llama 3's recipe that no published model of 3.1 to 3.3 has: NVIDIA/Megatron-LM#6305."""
    if case.rope_type != "llama3" or not is_llama_3(case.text):
        return None
    for key, number in {_ORIGINAL: 8192, "low_freq_factor": 1, "high_freq_factor": 4}.items():
        if case.values[key] != number:
            text = f"is {case.values[key]:g}, and Llama 3.1, 3.2 and 3.3 have {number:g}: the frequencies differ from "
            return Finding(key, f"{text}training", "recipe-differs", "suspicion")
    least = 32 if case.text.get("hidden_size") in _LLAMA_32 else 8
    if case.values["factor"] < least:
        text = f"is {case.values['factor']:g}, and Llama 3.1 and 3.3 have 8, Llama 3.2 32: the frequencies differ from "
        return Finding("factor", f"{text}training", "recipe-differs", "suspicion")
    return None


def share_lost(case: Case) -> Finding | None:
    """All channels rotate where all releases rotate some: huggingface/transformers#48241, jagmarques/nexusquant#12."""
    rope, (share, example) = text_rope(case.rope), SHARES.get(case.text.model_type, (1.0, ""))
    small = case.block.longest is not None and case.block.longest < _SHORTEST_RELEASE  # a model of other weights
    if case.rope_type == "proportional" and case.given.get("partial_rotary_factor", 1) == 1:
        text = "is not given or 1 with 'proportional', so that all pairs rotate, and that type is for a share of them; "
        text += "published models have 0.25: copy the block of the original checkpoint"
        return Finding("partial_rotary_factor", text, "share-lost", "suspicion")
    if share == 1 or small or rope.rotary_dim < rope.head_dim:
        return None
    text = (
        f"is not given or 1, so that all {rope.head_dim} channels of a head rotate; all released models of this family "
    )
    text += f"rotate {share:g} of them ({example}), and one that lost the key when it was saved wrote gibberish (13.1 "
    text += f"nats of divergence a token); write partial_rotary_factor: {share:g}"
    return Finding("partial_rotary_factor", text, "share-lost", "suspicion")


_SHORTEST_RELEASE = 4096  # tokens


def _released_share(read: Read) -> Config | None:
    rope, (share, _) = single(read), SHARES.get(read.model_type, (1.0, ""))
    return None if rope is None or share == 1 else keys_for(read, rope.replace(rotary_dim=int(rope.head_dim * share)))


# Lengths


def original_missing(case: Case) -> Finding | None:
    """A scaling without the length that it starts from, for which readers take the declared one in silence."""
    original = case.values.get(_ORIGINAL)
    if case.rope_type not in SCALED_FROM or _ORIGINAL in case.given:
        return None
    if original != case.block.longest:
        return Finding(_ORIGINAL, f"is not given: {original} is this family's default", "original-length-default")
    text = f"is not given: max_position_embeddings = {case.block.longest} is taken for the trained length, as "
    text += "transformers does; if that is the extended length, all frequencies are wrong"
    return Finding(_ORIGINAL, text, "original-length-missing", "suspicion")


def original_declared(case: Case) -> Finding | None:
    """The extended length in the place of the trained one: NVIDIA/Megatron-LM#1418."""
    original, factor, longest = case.values.get(_ORIGINAL), case.values.get("factor"), case.block.longest
    if case.rope_type not in ("yarn", "longrope") or _ORIGINAL not in case.given or longest is None or original is None:
        return None
    trained = TRAINED_AT.get(case.text.model_type, ())
    scales = (
        (factor or 1) > 1 if case.rope_type == "yarn" else case.values["short_factor"] != case.values["long_factor"]
    )
    if not case.text.known or original in trained or original != longest or not scales or longest < _SHORTEST_RELEASE:
        return None
    text = f"= {original:,} is the declared length as well, so that the scaling starts where the model should end"
    keys = None
    if case.rope_type == "yarn" and factor is not None:
        likely = next((number for number in trained if number < original), round(longest / factor))
        keys = in_block(case, {_ORIGINAL: likely})
        text += f"; the trained length is probably {likely:,}"
        text += " (of published models)" if likely in trained else " = the declared length over the factor"
    return Finding(_ORIGINAL, text, "original-length-declared", "suspicion", keys)


def original_below_releases(case: Case) -> Finding | None:
    """A trained length below that of all published models: agentscope-ai/Trinity-RFT#389."""
    original, trained = case.values.get(_ORIGINAL), TRAINED_AT.get(case.text.model_type)
    if (
        case.rope_type != "yarn"
        or _ORIGINAL not in case.given
        or original is None
        or not trained
        or case.text.get("vocab_size", 0) < _VOCABULARY
    ):
        return None
    if not original < min(trained) or case.facts.config.get("model_type") != case.text.model_type:
        return None
    text = f"is {original:,}, and published models of this family were trained at {min(trained):,} without a scaling: "
    text += "YaRN then slows pairs that need it not"
    return Finding(_ORIGINAL, text, "original-length-below-releases", "suspicion")


_VOCABULARY = 100_000  # entries; a smaller one is another model's


def original_not_below(case: Case) -> Finding | None:
    """Trained and declared length exchanged or misspelt: a published file has 32,786 for 32,768."""
    original, factor, longest = case.values.get(_ORIGINAL), case.values.get("factor"), case.block.longest
    if longest is None or original is None or factor is None:
        return None
    if original < longest or (original == longest and case.rope_type != "llama3"):
        return None
    text = f"is {original:,}, and max_position_embeddings {longest:,}: the length before the scaling should be the "
    text += "smaller one; which of the two is wrong the file does not say"
    default = case.family.block or {}  # a small model may keep the block of its class
    level = "note" if default and default.items() <= case.values.items() else "suspicion"
    return Finding(_ORIGINAL, text, "original-length-not-below", level)  # type: ignore[arg-type]


def declared_beyond_releases(case: Case) -> Finding | None:
    """More tokens than any release has without a scaling: vllm-project/recipes#794."""
    most, longest = LONGEST.get(case.text.model_type), case.block.longest
    if most is None or longest is None or case.rope_type != "default" or longest <= most:
        return None
    if release_like(case.text) is None or case.text.get("dual_chunk_attention_config"):
        return None
    text = (
        f"is {longest:,}, and released models of this family declare at most {most:,} without a scaling: longer inputs "
    )
    text += "need one, which the file has not"
    return Finding(_DECLARED, text, "declared-beyond-releases", "suspicion")


_FAR_BEYOND, _FAR_IN_GGUF = 8, 4  # times the declared length; Qwen 3 with factor 4 beside its 40,960 tokens has 3.2


def factor_and_lengths(case: Case) -> Finding | None:
    """Factor against the two lengths: QwenLM/Qwen3#1424, huggingface/transformers#38224."""
    original, factor, longest = case.values.get(_ORIGINAL), case.values.get("factor"), case.block.longest
    if longest is None or original is None or factor is None or original >= longest:
        return None
    reach, fitting = round(original * factor), longest / original
    if case.rope_type == "yarn" and "factor" in case.given and longest > max(original, reach):
        text = (
            f"is {longest:,}, and yarn with factor {factor:g} over {original:,} tokens reaches {reach:,}: one of the "
        )
        text += f"three numbers is wrong; for the declared length factor would be {fitting:g}"
        return Finding(_DECLARED, text, "declared-beyond-scaling", "suspicion")
    default, far = (case.family.block or {}).get("factor"), _FAR_IN_GGUF if case.facts.program else _FAR_BEYOND
    if case.rope_type == "yarn" and reach >= far * longest and factor != default:
        text = (
            f"is {factor:g}, with which yarn reaches {reach:,} tokens from {original:,}, and {longest:,} are declared: "
        )
        text += f"all frequencies are scaled far more than that needs; was {fitting:g} meant?"
        return Finding("factor", text, "scaling-beyond-declared", "suspicion")
    if case.rope_type in ("yarn", "longrope") and not math.isclose(fitting, factor):
        # Published models differ here for good reasons: AFM-4.5B has 20 over 16, Llama 3.1 (another recipe) 8 over 16.
        text = f"is {factor:g}, and max_position_embeddings / original_max_position_embeddings = {fitting:g}"
        if case.rope_type == "yarn":
            gain = 1 + 0.1 * math.log(fitting)
            text += (
                f": transformers 4.51 to 4.55 take {fitting:g} for the factor and {gain:.4g} for the gain, 4.57 and "
            )
            text += f"5 take {factor:g}; with max_position_embeddings = {reach:,} all agree"
        return Finding("factor", text, "factor-and-lengths-differ")
    return None


def length_of_linear(case: Case) -> Finding | None:
    """Whether the declared length is the one before or after the scaling: files have both."""
    if case.rope_type != "linear" or case.values["factor"] == 1:
        return None
    text = f"of 'linear' does not say whether max_position_embeddings = {case.block.longest} is the length before the "
    return Finding("factor", f"{text}scaling or after", "length-of-linear")


# Gains


def mscale_alone(case: Case) -> Finding | None:
    """One of YaRN's two scales, which counts as none: every release that scales the gain has both keys."""
    scales = [key for key in ("mscale", "mscale_all_dim") if case.values.get(key)]
    if case.rope_type != "yarn" or "attention_factor" in case.values or len(scales) != 1:
        return None
    if float(case.values[scales[0]]) == 1:
        return None
    other = "mscale_all_dim" if scales == ["mscale"] else "mscale"
    zero = "is 0, which counts as absent" if case.values.get(other) is not None else "is missing"
    text = f"has no effect: {other} {zero}, and the gain then follows from the factor alone, in transformers, vLLM and "
    text += "SGLang alike; every release that scales the gain has both keys"
    return Finding(scales[0], text, "mscale-alone", "suspicion")


def mscale_of_latent(case: Case) -> Finding | None:
    """YaRN on latent attention without mscale_all_dim, as written over GLM-4.7-Flash: the softmax scale lacks it."""
    values = case.values
    if (
        not (case.text.known and case.family.latent)
        or case.rope_type != "yarn"
        or "attention_factor" in values
        or values.get("factor") == 1
    ):
        return None
    scales = [values.get(key) for key in ("mscale", "mscale_all_dim")]
    if scales[1] or scales[0] not in (None, 1):
        return None
    text = (
        "is missing: published models with latent attention and yarn have mscale and mscale_all_dim, and without the "
    )
    text += (
        "second the softmax scale lacks YaRN's factor, while the gain acts on the rotated channels alone; copy both "
    )
    text += "of the original checkpoint, or write 1 and 1"
    return Finding("mscale_all_dim", text, "mscale-missing", "suspicion")


def mscale_without_latent(case: Case) -> Finding | None:
    """mscale_all_dim where only DeepSeek's own code scales the softmax: six published files."""
    if case.rope_type != "yarn" or not case.values.get("mscale_all_dim") or case.family.latent:
        return None
    if case.facts.reading.convention == "deepseek":
        return None
    text = "scales the softmax in latent attention only; DeepSeek's own code is read with convention='deepseek'"
    return Finding("mscale_all_dim", text, "mscale-all-dim-not-latent")


def attn_factor(case: Case) -> Finding | None:
    """A key of SGLang and older vLLM: deepseek-ai/DeepSeek-R1#684, ddalcu/mlx-serve#323, vllm-project/vllm#48629."""
    if case.facts.reading.convention in ENGINES or not set(VLLM) & set(case.given):
        return None
    key = next(name for name in VLLM if name in case.given)
    value = case.given[key]
    if key != "attn_factor" or case.rope_type != "yarn":
        text = f"= {shown(value)} is not read by transformers, nor by vLLM 0.33"
        neutral = value == SILENT.get(key)
        return Finding(key, text, "key-of-an-engine", "note" if neutral else "suspicion")
    usual = 1 + 0.1 * math.log(max(1.0, case.values["factor"]))
    meant = value * usual
    text = (
        f"= {value:.6g} is ignored by transformers and vLLM 0.33, whose gain is {case.gain:.6g}; SGLang multiplies by "
    )
    text += f"it, so that its gain is {meant:.6g}. For the same in all readers write attention_factor: {meant:.6g}"
    if value == 1 or "attention_factor" in case.given:
        return Finding(key, text, "key-of-an-engine")
    keys = in_block(case, {key: None, "attention_factor": round(meant, 9)})
    return Finding(key, text, "key-of-an-engine", "suspicion", keys)


def gain_in_engines(case: Case) -> Finding | None:
    """A gain that some engines compute from the factor alone: vllm-project/vllm#48621, sgl-project/sglang#22711."""
    key = "attention_factor" if "attention_factor" in case.values else "mscale"
    if case.rope_type != "yarn" or case.family.latent or key not in case.given:
        return None
    usual = 1 + 0.1 * math.log(max(1.0, case.values["factor"]))
    if abs(case.gain - usual) <= 1e-3 * usual:
        return None
    lossy, reads = "older releases of vLLM and SGLang", "vLLM 0.33.0 and SGLang 0.5.23 read"
    if key == "attention_factor":
        lossy, reads = "SGLang 0.5.23 and older releases of vLLM", "vLLM 0.33.0 reads"
    text = (
        f"makes the gain {case.gain:.4g} in transformers; {lossy} compute {usual:.4g} from factor alone ({reads} the "
    )
    text += f"key): for those also give attn_factor = {case.gain / usual:.6g}, which multiplies their gain"
    return Finding(key, text, "yarn-gain-in-engines")


def on_short_prompts(case: Case) -> Finding | None:
    """YaRN of a model that was trained without: vllm-project/vllm#18728, sgl-project/sglang#6030."""
    if case.rope_type != "yarn" or not case.text.model_type.startswith(_QWEN) or case.values["factor"] <= 1:
        return None
    if case.values[_ORIGINAL] == case.block.longest and case.values[_ORIGINAL] not in TRAINED_AT.get(
        case.text.model_type, ()
    ):
        return None  # another rule says that this length is wrong
    original = case.values[_ORIGINAL]
    text = (
        f"'yarn' acts at every length, so it also changes prompts of fewer than {original:,} tokens; remove the block "
    )
    text += f"if no text is longer, else choose factor = tokens of your longest text / {original:,}, not larger"
    return Finding("rope_type", text, "yarn-on-short-prompts")


# LongRoPE and dynamic NTK


def lists_swapped(case: Case) -> Finding | None:
    """LongRoPE's lists exchanged, or the long one in the place of the short one: lablup/mlxcel#1358."""
    if case.rope_type != "longrope":
        return None
    short, long = (sum(case.values[key]) / len(case.values[key]) for key in ("short_factor", "long_factor"))
    if short > long:
        text = f"slows the pairs by {short:.4g} on average, and long_factor by {long:.4g}: were the two exchanged?"
        return Finding("short_factor", text, "factor-lists-swapped", "suspicion")
    if case.text.model_type in _SHORT_AND_LONG and short > _SHORT_OF_RELEASES:
        text = (
            f"slows the pairs by {short:.4g} on average, and released models of this family by less than "
            f"{_SHORT_OF_RELEASES:g}: texts within the original length are rotated as long ones; copy the list of the "
            "original checkpoint"
        )
        return Finding("short_factor", text, "short-factors-differ", "suspicion")
    return None


_SHORT_AND_LONG = ("phi3", "phi4_multimodal")
_SHORT_OF_RELEASES = 3.0  # on average; the largest is 2.05, of Phi-3-mini


def long_factors(case: Case) -> Finding | None:
    """Phi-3.5-MoE's long list, which its class in transformers never reads: two published files."""
    if case.rope_type != "longrope" or case.text.model_type != "phimoe":
        return None
    text = "is as released, and transformers 5.23 never uses it (a fault of transformers, not of the file): past the "
    return Finding("long_factor", f"{text}original length only the gain changes there", "long-factors-unused")


def original_ignored(case: Case) -> Finding | None:
    """An original length in the block alone, where Phi-3's class takes its own."""
    outside = (_ORIGINAL,) in case.block.sources.get(_ORIGINAL, ())
    if case.rope_type != "longrope" or outside or case.family.original in (None, case.values[_ORIGINAL]):
        return None
    text = f"stands in the block only; transformers 5.23 takes {case.family.original} instead"
    return Finding(_ORIGINAL, text, "original-length-ignored", "fault")


def length_dependent(case: Case) -> Finding | None:
    """Frequencies that follow the text: a full forward is not causal."""
    if not case.rope.length_dependent:
        return None
    text = (
        "makes the frequencies depend on the sequence length: declare a length, or cache keys unrotated; transformers "
    )
    return Finding("rope_type", f"{case.rope_type!r} {text}uses the longest row of a batch", "length-dependent")


def alpha_ignored(case: Case) -> Finding | None:
    """Hunyuan's alpha elsewhere."""
    if case.rope_type != WITH_ALPHA or case.facts.reading.convention in ENGINES:
        return None
    if case.text.model_type.startswith("hunyuan"):
        return None
    text = (
        "is read by Hunyuan's code, vLLM and SGLang; transformers ignores it in this family and reads factor, so that "
    )
    text += "the frequencies grow with the text instead; for the same everywhere write rope type 'default' and "
    text += "rope_theta times alpha^(d / (d - 2)), with d rotated channels"
    return Finding("alpha", text, "alpha-ignored", "fault" if case.text.known else "suspicion")


# What one engine reads and another does not

NAMES = {"vllm": "vLLM", "sglang": "SGLang"}


def engine_keys(case: Case) -> Finding | None:
    """Keys of the gain that the engine whose reading was asked for ignores: vllm-project/vllm#48351."""
    engine, rope_type, values = case.facts.reading.convention, case.rope_type, case.values
    if engine == "sglang" and rope_type == "yarn" and "attention_factor" in values:
        text = "is not read by SGLang, whose gain follows from factor, mscale and mscale_all_dim: write attn_factor, "
        return Finding("attention_factor", f"{text}which multiplies that", "attention-factor-ignored", "fault")
    both = {"short_mscale", "long_mscale"} <= set(values)
    if engine in ENGINES and rope_type == "longrope" and "attention_factor" in values and not both:
        text = f"is not read by {NAMES[engine]}, whose gain follows from max_position_embeddings and the original "
        text += "length: write short_mscale and long_mscale, which take its place"
        return Finding("attention_factor", text, "attention-factor-ignored", "fault")
    if engine == "vllm" and rope_type in ("yarn", "deepseek_yarn", "deepseek_llama_scaling"):
        for key in VLLM:
            if key in values:
                text = "was read by older versions of vLLM; 0.33 ignores it: write attention_factor"
                return Finding(key, text, "key-of-older-vllm", "note" if values[key] == SILENT[key] else "fault")
    return None


def engine_lengths(case: Case) -> Finding | None:
    """Scalings that an engine computes once, whatever the text: vllm-project/vllm#41236."""
    engine = case.facts.reading.convention
    if engine == "vllm" and case.rope_type == "longrope":
        text = "is used for texts of every length once vLLM serves more than the original length (--max-model-len)"
        return Finding("long_factor", text, "one-list-served")
    if case.rope_type != "dynamic" or engine not in ENGINES:
        return None
    once = f"for {case.values['factor']:g} times max_position_embeddings"
    if engine == "vllm":
        once = f"from {TRAINED} to max_position_embeddings; without that key it changes nothing"
    text = f"is computed once by {NAMES[engine]}, {once}; in transformers the frequencies depend on the length of each "
    return Finding("rope_type", f"'dynamic' {text}text", "dynamic-once")


# Spelling


def version_5_spelling(case: Case) -> Finding | None:
    """A block of version 5 without what version 4 reads: Open-Athena/MarinFold#184."""
    family, values = case.family, case.values
    outside = any(case.text.get(name) is not None for name in (*OUTSIDE["rope_theta"], "rope_scaling"))
    losses = []
    if values["rope_theta"] != family.base:
        losses.append(f"its base would be {family.base:g}, not {values['rope_theta']:g}")
    if case.rope_type != "default":
        losses.append(f"the scaling {case.rope_type!r} would be lost")
    other = not case.text.known or family.nested or bool(family.kinds) or case.text.family.since > 4
    if "rope_parameters" not in case.text or outside or not losses or other:
        return None
    version = case.facts.config.get("transformers_version")
    written = isinstance(version, str) and version.startswith("4.")
    says = f", and transformers_version says {version}, which reads" if written else ", and version 4 reads"
    text = f"is the spelling of transformers 5{says} nothing of it: {' and '.join(losses)}; posenc convert --spelling "
    text += "both writes the keys of both versions"
    return Finding("rope_parameters", text, "version-5-spelling", "fault" if written else "note")


def _both_spellings(read: Read) -> Config | None:
    both = _one_version(read, 4)
    return both and {key: value for key, value in both.items() if key != "rope_parameters"}


def _one_version(read: Read, version: int = 5) -> Config | None:
    """Keys that the other version of transformers reads."""
    try:
        return changed_keys(read, read.to_config(version=version))
    except ValueError:
        return None


OF_BLOCKS: tuple[BlockRule, ...] = (
    base_default, base_lost, base_below_releases, base_of_windows, length_beyond_base,
    linear_over_llama_3, scaling_lost, recipe_differs, share_lost, original_missing, original_declared,
    original_below_releases, original_not_below, declared_beyond_releases, factor_and_lengths, length_of_linear,
    mscale_alone, mscale_of_latent, mscale_without_latent, attn_factor, gain_in_engines,
    on_short_prompts, lists_swapped, long_factors, original_ignored,
    length_dependent, alpha_ignored, engine_keys, engine_lengths, version_5_spelling,
)  # fmt: skip
FIXES: dict[str, tuple[Fix, bool]] = {
    **dict.fromkeys(("base-lost", "linear-over-llama3", "scaling-lost"), (_llama_3, True)),
    "share-lost": (_released_share, False),
    "version-5-spelling": (_both_spellings, True),
    **dict.fromkeys(("key-ignored", "original-length-ignored", "alpha-ignored", "share-ignored"), (_one_version, True)),
}
"""By the name of a finding: the keys that resolve it, and whether they are certain."""
