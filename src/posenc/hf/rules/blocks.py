"""Rules on one rotation: its base, scaling, lengths, gain and spelling.

They are compared with published models, with one another, and with what readers make of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from posenc.arguments import shown
from posenc.hf.config.rope_keys import ALL, ENGINES, OUTSIDE, SCALED_FROM, TRAINED, VLLM, WITH_ALPHA
from posenc.hf.config.rotation import SILENT, text_rope
from posenc.hf.config.text_config import max_length
from posenc.hf.families.family import FULL, SLIDING
from posenc.hf.findings import Finding, Level
from posenc.hf.limits import TOKENS, is_count
from posenc.hf.rules.case import DECLARED, LLAMA_32, ORIGINAL, Case, in_block

_SHORT_AND_LONG = ("phi3", "phi4_multimodal")
_SHORT_OF_RELEASES = 3.0  # factor of the short list on average; the largest is 2.05, of Phi-3-mini
_SHORTEST = 4096  # tokens; a shorter model is one of other weights
_VOCABULARY = 100_000  # entries; a smaller one is another model's
_UNSCALED_BY_DEFAULT = ("phi4_multimodal",)  # whose class in transformers has both lengths and no scaling
_FAR_BEYOND, _FAR_IN_GGUF = 8, 4  # times the declared length; Qwen 3 with factor 4 beside its 40,960 tokens has 3.2
_NAMES = {"vllm": "vLLM", "sglang": "SGLang"}


def base(case: Case) -> Iterator[Finding]:
    """A base that is not given, lost, below that of published models, or too small for the length.

    Lost: unslothai/unsloth#7028, vllm-project/vllm#44158. Below: Lightning-AI/litgpt#2217, keras-team/keras-hub#2729.
    Of the full layers on sliding ones: Blaizzy/mlx-vlm#1927, antonellof/ferrox#39 (Gemma 3).
    """
    value, given, longest = case.values["rope_theta"], "rope_theta" in case.given, case.block.longest
    if case.block.kind == SLIDING:
        yield from _base_of_windows(case)
    if not given and (lost := _lost_base(case)) is not None:
        yield lost
        return
    own_key = case.family.kinds[case.block.kind].theta_key if case.block.kind in case.family.kinds else None
    if not given and all(case.text.get(key) is None for key in ([own_key] if own_key else OUTSIDE["rope_theta"])):
        whose = "this family's" if case.text.known else "the usual"
        yield Finding("rope_theta", f"is not given: {value:g} is {whose} default", "base-default")
    if case.block.kind not in (ALL, FULL):
        return
    release, windowed = case.release, is_count(case.text.get("sliding_window"), TOKENS)
    # A part of a composite model of another name has facts of its own, and so has Mistral 0.1 with its window.
    another = not case.text.model_type.startswith(str(case.facts.config.get("model_type")))
    another = another or (case.text.model_type == "mistral" and windowed)
    if release is not None and value < release.base and not another:
        has = f"is {value:g}" if given else f"is not given, so that {value:g} is used"
        text = (
            f"{has}, and {release.example}, of the same sizes and vocabulary, has {release.base:g}: every frequency is "
            "wrong for its weights; copy rope_theta of the original checkpoint, or --accept this finding for a model "
            "that was trained with the smaller base"
        )
        yield Finding("rope_theta", text, "base-below-releases", "suspicion")
    if given and longest is not None and case.rope_type == "default" and case.slowest < longest and not windowed:
        text = (  # as in many good models: --weights measures it
            f"is {longest:,}, and with base {value:g} the slowest pair completes a rotation in {case.slowest:,.0f} "
            "tokens, without any scaling: the configuration does not say whether the model was trained at that length; "
            "compare its loss at both lengths (posenc doctor --weights)"
        )
        yield Finding(DECLARED, text, "length-beyond-base")


def _base_of_windows(case: Case) -> Iterator[Finding]:
    """Sliding layers under the base or the scaling of the full ones."""
    name, base_of_case = case.text.model_type, case.values["rope_theta"]
    if not name.startswith(("gemma3", "gemma4", "modernbert")):
        return
    full = next((block.effective for block in case.facts.blocks if block.kind == FULL and block.values), None)
    wide = math.inf if full is None else full["rope_theta"]
    scaled = case.rope_type != "default" and "rope_type" in case.given and name.startswith("gemma")
    if scaled or base_of_case > wide or (base_of_case == wide and not name.startswith("modernbert")):
        has = f"the scaling {case.rope_type!r}" if scaled else f"base {base_of_case:g}, and full ones {wide:g}"
        text = (
            f"of sliding layers has {has}: published models of this family have a base of 10,000 there, below that of "
            "the full layers, and no scaling, since no distance within a window needs one"
        )
        yield Finding("rope_parameters", text, "rotation-of-windows", "suspicion")


def _lost_base(case: Case) -> Finding | None:
    """No base, and a default too small for the length or for a block that somebody wrote by hand."""
    family, block, length = case.family, case.block, case.block.longest
    if case.llama_3:
        length = max_length(case.text)
    elif case.rope_type in SCALED_FROM:
        length = case.values.get(ORIGINAL, length)
    elif case.rope_type == "linear" and length is not None:
        length = int(length / case.values["factor"])
    if length is None or not case.text.known or block.kind == SLIDING or family.fixed or family.bases_key:
        return None
    by_hand = block.target[:1] == ("rope_parameters",) and case.text.get("rope_parameters")
    by_hand = by_hand and case.rope_type != "default" and "rope_theta" not in block.sources
    by_hand = by_hand and family.base == 10_000 and not (family.kinds or family.nested)
    if case.slowest >= length and not by_hand:
        return None
    text = (
        f"is not given, and with {case.values['rope_theta']:g}, this family's default, the slowest pair completes one "
        f"rotation in {case.slowest:,.0f} tokens; the file declares {length:,}. A base may have been lost between "
        "spellings: compare with rope_theta of the original checkpoint (Llama 3: 500000, Qwen 2.5: 1000000)"
    )
    return Finding("rope_theta", text, "base-lost", "fault" if case.llama_3 else "suspicion")


def scaling(case: Case) -> Iterator[Finding]:
    """A published length without the scaling that reaches it, or with another one.

    Lost: Blaizzy/mlx-vlm#1710, huggingface/transformers#41922. Linear over llama3: unslothai/unsloth#7028. Numbers
    that no published model of Llama 3.1 to 3.3 has: NVIDIA/Megatron-LM#6305.
    """
    text_config, values, longest = case.text, case.values, case.block.longest
    llama_3, release = case.llama_3, case.release
    if llama_3 and case.rope_type == "linear":
        text = (
            "'linear' stands where Llama 3.1 and later have 'llama3', and slows the fast pairs too, which that recipe "
            "leaves alone: perplexity went from 10 to 166 at position 65,000; keep the llama3 block of the checkpoint "
            "(preset('llama-3.1')) and raise max_position_embeddings alone"
        )
        yield Finding("rope_type", text, "linear-over-llama3", "fault")
    elif llama_3 and case.rope_type == "llama3":
        recipe = {ORIGINAL: 8192, "low_freq_factor": 1, "high_freq_factor": 4}
        wrong = {key: f"{number:g}" for key, number in recipe.items() if values[key] != number}
        if values["factor"] < (32 if text_config.get("hidden_size") in LLAMA_32 else 8):
            wrong["factor"] = "8 (3.1 and 3.3) or 32 (3.2)"
        for key, of_releases in list(wrong.items())[:1]:
            text = f"is {values[key]:g}, and Llama 3.1, 3.2 and 3.3 have {of_releases}: the frequencies differ from "
            yield Finding(key, f"{text}training", "recipe-differs", "suspicion")
    elif case.rope_type != "default" or case.block.kind not in (ALL, FULL):
        return
    elif llama_3 and case.given.get("rope_theta") == 5e5:
        text = (
            f"is {longest:,}, which Llama 3.1 and later reach by rope type 'llama3' alone, and no scaling is given: "
            "the queries that transformers rotates then have a cosine of 0.76 with the trained ones at 8,192 tokens, "
            "0.50 at 60,000; write the llama3 block of the checkpoint (preset('llama-3.1'))"
        )
        yield Finding(DECLARED, text, "scaling-lost", "fault")
    elif release is not None and release.scaling:
        text = (
            f"is {longest:,}, which {release.example}, of the same sizes and vocabulary, reaches by rope type "
            f"{release.scaling!r}, and no scaling is given: the model degrades beyond the length before the scaling; "
            "copy the block of the original checkpoint"
        )
        yield Finding(DECLARED, text, "scaling-lost", "suspicion")
    elif text_config.known and text_config.model_type not in _UNSCALED_BY_DEFAULT:
        for key in (ORIGINAL, "initial_context_length"):
            trained = text_config.get(key)
            if is_count(trained, TOKENS) and longest is not None and longest > trained:
                text = (
                    f"= {trained:,} is the length before a scaling, {longest:,} tokens are declared, and the file has "
                    "no scaling: was its block lost? Copy it of the original checkpoint"
                )
                yield Finding(key, text, "scaling-lost", "suspicion")
                return


def numbers_of_type(case: Case) -> Iterator[Finding]:
    """Share, width of a head and lengths against all released models of the type.

    Shares: huggingface/transformers#48241, jagmarques/nexusquant#12. Widths: marin-community/marin#2098,
    SafeAILab/EAGLE#315. Lengths: agentscope-ai/Trinity-RFT#389, vllm-project/recipes#794.
    """
    of_all, rope, longest = case.of_type, text_rope(case.rope), case.block.longest
    if case.rope_type == "proportional" and case.given.get("partial_rotary_factor", 1) == 1:
        text = (
            "is not given or 1 with 'proportional', so that all pairs rotate, and that type is for a share of them; "
            "published models have 0.25: copy the block of the original checkpoint"
        )
        yield Finding("partial_rotary_factor", text, "share-lost", "suspicion")
    elif of_all.share != 1 and rope.rotary_dim >= rope.head_dim and (longest is None or longest >= _SHORTEST):
        text = (
            f"is not given or 1, so that all {rope.head_dim} channels of a head rotate; all released models of this "
            f"family rotate {of_all.share:g} of them ({of_all.example}), and one that lost the key when it was saved "
            f"wrote gibberish (13.1 nats of divergence a token); write partial_rotary_factor: {of_all.share:g}"
        )
        yield Finding("partial_rotary_factor", text, "share-lost", "suspicion")
    least, original = min(of_all.trained, default=0), case.given.get(ORIGINAL)
    same = case.facts.config.get("model_type") == case.text.model_type and is_count(case.text.get("vocab_size"))
    if case.rope_type == "yarn" and original and original < least and same and case.text["vocab_size"] >= _VOCABULARY:
        text = (
            f"is {original:,}, and published models of this family were trained at {least:,} without a scaling: YaRN "
            "then slows pairs that need it not"
        )
        yield Finding(ORIGINAL, text, "original-length-below-releases", "suspicion")
    if case.release is None:
        return
    beyond = of_all.longest is not None and longest is not None and longest > of_all.longest
    if beyond and case.rope_type == "default" and not case.text.get("dual_chunk_attention_config"):
        text = (
            f"is {longest:,}, and released models of this family declare at most {of_all.longest:,} without a scaling: "
            "longer inputs need one, which the file has not"
        )
        yield Finding(DECLARED, text, "declared-beyond-releases", "suspicion")
    if of_all.width not in (None, rope.head_dim):
        text = (
            f"is {rope.head_dim}, and released models of this family have heads of {of_all.width} channels "
            f"({of_all.example}), whatever the stream's width over the number of heads is"
        )
        yield Finding("head_dim", text, "head-width-of-releases", "suspicion")


def original_length(case: Case) -> Iterator[Finding]:
    """The length before a scaling: not given, or not below the declared one.

    Not given: NVIDIA-NeMo/Automodel#2652. The declared one in its place: NVIDIA/Megatron-LM#1418. Exchanged or
    misspelt: a published file has 32,786 for 32,768.
    """
    original, factor, longest = case.values.get(ORIGINAL), case.values.get("factor"), case.block.longest
    given = ORIGINAL in case.given
    if case.rope_type in SCALED_FROM and not given:
        if original != longest:
            yield Finding(ORIGINAL, f"is not given: {original} is this family's default", "original-length-default")
        else:
            text = (
                f"is not given: {DECLARED} = {longest} is taken for the trained length, as transformers does; if that "
                "is the extended length, all frequencies are wrong"
            )
            yield Finding(ORIGINAL, text, "original-length-missing", "suspicion")
    if longest is None or original is None:
        return
    if factor is not None and (original > longest or (original == longest and case.rope_type == "llama3")):
        text = (
            f"is {original:,}, and {DECLARED} {longest:,}: the length before the scaling should be the smaller one; "
            "which of the two is wrong the file does not say"
        )
        default = case.family.block or {}  # a small model may keep the block of its class
        level: Level = "note" if default and default.items() <= case.values.items() else "suspicion"
        yield Finding(ORIGINAL, text, "original-length-not-below", level)
    lists = case.rope_type == "longrope" and case.values["short_factor"] != case.values["long_factor"]
    scales = lists or (case.rope_type == "yarn" and (factor or 1) > 1)
    trained = case.of_type.trained
    if given and scales and original == longest >= _SHORTEST and case.text.known and original not in trained:
        text, keys = f"= {original:,} is the declared length as well", None
        text += ", so that the scaling starts where the model should end"
        if case.rope_type == "yarn" and factor is not None:
            likely = next((number for number in trained if number < original), round(longest / factor))
            keys = in_block(case, {ORIGINAL: likely})
            why = " (of published models)" if likely in trained else " = the declared length over the factor"
            text += f"; the trained length is probably {likely:,}{why}"
        yield Finding(ORIGINAL, text, "original-length-declared", "suspicion", keys)


def factor_and_lengths(case: Case) -> Iterator[Finding]:
    """Factor against the two lengths: QwenLM/Qwen3#1424, huggingface/transformers#38224.

    Published models differ here for good reasons: AFM-4.5B has 20 over 16, Llama 3.1 (another recipe) 8 over 16.
    """
    original, factor, longest = case.values.get(ORIGINAL), case.values.get("factor"), case.block.longest
    if case.rope_type == "linear" and factor != 1:
        text = f"of 'linear' does not say whether {DECLARED} = {longest} is the length before the scaling or after"
        yield Finding("factor", text, "length-of-linear")
    if longest is None or original is None or factor is None or original >= longest:
        return
    reach, fitting, yarn = round(original * factor), longest / original, case.rope_type == "yarn"
    default, far = (case.family.block or {}).get("factor"), _FAR_IN_GGUF if case.facts.program else _FAR_BEYOND
    if yarn and "factor" in case.given and longest > max(original, reach):
        text = (
            f"is {longest:,}, and yarn with factor {factor:g} over {original:,} tokens reaches {reach:,}: one of the "
            f"three numbers is wrong; for the declared length factor would be {fitting:g}"
        )
        yield Finding(DECLARED, text, "declared-beyond-scaling", "suspicion")
    elif yarn and reach >= far * longest and factor != default:
        text = (
            f"is {factor:g}, with which yarn reaches {reach:,} tokens from {original:,}, and {longest:,} are declared: "
            f"all frequencies are scaled far more than that needs; was {fitting:g} meant?"
        )
        yield Finding("factor", text, "scaling-beyond-declared", "suspicion")
    elif case.rope_type in ("yarn", "longrope") and not math.isclose(fitting, factor):
        text = f"is {factor:g}, and max_position_embeddings / original_max_position_embeddings = {fitting:g}"
        if yarn:
            text += (
                f": transformers 4.51 to 4.55 take {fitting:g} for the factor and {1 + 0.1 * math.log(fitting):.4g} "
                f"for the gain, 4.57 and 5 take {factor:g}; with max_position_embeddings = {reach:,} all agree"
            )
        yield Finding("factor", text, "factor-and-lengths-differ")


def gain_of_yarn(case: Case) -> Iterator[Finding]:
    """YaRN's gain: scales that one reader has and another lacks.

    Alone: NVIDIA/Megatron-LM#1429. Missing on latent attention: onnxruntime/mobius#548. Not latent: six published
    files. By engines from the factor alone: vllm-project/vllm#48621, sgl-project/sglang#22711.
    """
    values, latent = case.values, case.family.latent
    if case.rope_type != "yarn":
        return
    mscale, all_dim = values.get("mscale"), values.get("mscale_all_dim")
    if "attention_factor" not in values:
        if bool(mscale) != bool(all_dim) and (mscale or all_dim) != 1:
            key, other = ("mscale", "mscale_all_dim") if mscale else ("mscale_all_dim", "mscale")
            zero = "is 0, which counts as absent" if values.get(other) is not None else "is missing"
            text = (
                f"has no effect: {other} {zero}, and the gain then follows from the factor alone, in transformers, "
                "vLLM and SGLang alike; every release that scales the gain has both keys"
            )
            yield Finding(key, text, "mscale-alone", "suspicion")
        heeded = latent and case.family.yarn_in_softmax and case.text.known
        if heeded and values.get("factor") != 1 and not all_dim and mscale in (None, 1):
            text = (
                "is missing: published models with latent attention and yarn have mscale and mscale_all_dim, and "
                "without the second the softmax scale lacks YaRN's factor, while the gain acts on the rotated channels "
                "alone; copy both of the original checkpoint, or write 1 and 1"
            )
            yield Finding("mscale_all_dim", text, "mscale-missing", "suspicion")
    nested = case.family.nested or bool(case.family.kinds)
    if values.get("truncate") is False and nested and case.text.known:
        text = (
            "is not read by transformers 5.23 in the block of one kind of layers, whose ramp then ends at whole pairs "
            "(a fault of transformers, not of the file)"
        )
        yield Finding("truncate", text, "truncate-unread")
    if latent:
        return
    if all_dim and case.facts.reading.convention != "deepseek":
        text = "scales the softmax in latent attention only; DeepSeek's own code is read with convention='deepseek'"
        yield Finding("mscale_all_dim", text, "mscale-all-dim-not-latent")
    key, usual = "attention_factor" if "attention_factor" in values else "mscale", _usual_gain(case)
    if key in case.given and abs(case.gain - usual) > 1e-3 * usual:
        lossy, reads = "older releases of vLLM and SGLang", "vLLM 0.33.0 and SGLang 0.5.23 read"
        if key == "attention_factor":
            lossy, reads = "SGLang 0.5.23 and older releases of vLLM", "vLLM 0.33.0 reads"
        text = (
            f"makes the gain {case.gain:.4g} in transformers; {lossy} compute {usual:.4g} from factor alone ({reads} "
            f"the key): for those also give attn_factor = {case.gain / usual:.6g}, which multiplies their gain"
        )
        yield Finding(key, text, "yarn-gain-in-engines")


def _usual_gain(case: Case) -> float:
    """YaRN's gain where no key gives one."""
    return 1 + 0.1 * math.log(max(1.0, float(case.values["factor"])))


def keys_of_engines(case: Case) -> Iterator[Finding]:
    """Keys of the gain that engines read and transformers does not, and the reverse.

    deepseek-ai/DeepSeek-R1#684, ddalcu/mlx-serve#323, vllm-project/vllm#48629, vllm-project/vllm#48351.
    """
    engine, rope_type, given = case.facts.reading.convention, case.rope_type, case.given
    attention_factor, key = "attention_factor" in case.values, next((name for name in VLLM if name in given), "")
    value: Any = given.get(key)
    neutral = value == SILENT.get(key)
    if engine == "sglang" and rope_type == "yarn" and attention_factor:
        text = "is not read by SGLang, whose gain follows from factor, mscale and mscale_all_dim: write attn_factor, "
        yield Finding("attention_factor", f"{text}which multiplies that", "attention-factor-ignored", "fault")
    elif engine in ENGINES and rope_type == "longrope" and attention_factor:
        if not {"short_mscale", "long_mscale"} <= set(case.values):
            text = (
                f"is not read by {_NAMES[engine]}, whose gain follows from max_position_embeddings and the original "
                "length: write short_mscale and long_mscale, which take its place"
            )
            yield Finding("attention_factor", text, "attention-factor-ignored", "fault")
    elif engine == "vllm" and key and rope_type in ("yarn", "deepseek_yarn", "deepseek_llama_scaling"):
        text = "was read by older versions of vLLM; 0.33 ignores it: write attention_factor"
        yield Finding(key, text, "key-of-older-vllm", "note" if neutral else "fault")
    elif engine in ENGINES or not key:
        return
    elif key != "attn_factor" or rope_type != "yarn":
        text = f"= {shown(value)} is not read by transformers, nor by vLLM 0.33"
        yield Finding(key, text, "key-of-an-engine", "note" if neutral else "suspicion")
    else:
        meant = value * _usual_gain(case)
        text = (
            f"= {value:.6g} is ignored by transformers and vLLM 0.33, whose gain is {case.gain:.6g}; SGLang multiplies "
            f"by it, so that its gain is {meant:.6g}. For the same in all readers write attention_factor: {meant:.6g}"
        )
        noted = value == 1 or "attention_factor" in given
        keys = None if noted else in_block(case, {key: None, "attention_factor": round(meant, 9)})
        yield Finding(key, text, "key-of-an-engine", "note" if noted else "suspicion", keys)


def on_short_prompts(case: Case) -> Iterator[Finding]:
    """YaRN that users add to a model trained without: vllm-project/vllm#18728, sgl-project/sglang#6030."""
    if case.rope_type != "yarn" or not case.text.model_type.startswith(("qwen2", "qwen3")):
        return
    original = case.values[ORIGINAL]
    # Of an original length that is the declared one, and of no release, another rule says that it is wrong.
    right = original != case.block.longest or original in case.of_type.trained
    if case.values["factor"] > 1 and right:
        text = (
            f"'yarn' acts at every length, so it also changes prompts of fewer than {original:,} tokens; remove the "
            f"block if no text is longer, else choose factor = tokens of your longest text / {original:,}, not larger"
        )
        yield Finding("rope_type", text, "yarn-on-short-prompts")


def longrope(case: Case) -> Iterator[Finding]:
    """LongRoPE's lists exchanged or equal (lablup/mlxcel#1358), or not read: Phi-3.5-MoE, two published files."""
    if case.rope_type != "longrope":
        return
    short, long = (sum(case.values[key]) / len(case.values[key]) for key in ("short_factor", "long_factor"))
    if short > long:
        text = f"slows the pairs by {short:.4g} on average, and long_factor by {long:.4g}: were the two exchanged?"
        yield Finding("short_factor", text, "factor-lists-swapped", "suspicion")
    elif case.text.model_type in _SHORT_AND_LONG and short > _SHORT_OF_RELEASES:
        text = (
            f"slows the pairs by {short:.4g} on average, and released models of this family by less than "
            f"{_SHORT_OF_RELEASES:g}: texts within the original length are rotated as long ones; copy the list of the "
            "original checkpoint"
        )
        yield Finding("short_factor", text, "short-factors-differ", "suspicion")
    if case.text.model_type == "phimoe":
        text = (
            "is as released, and transformers 5.23 never uses it (a fault of transformers, not of the file): past the "
            "original length only the gain changes there"
        )
        yield Finding("long_factor", text, "long-factors-unused")
    own = case.family.original
    if own not in (None, case.values[ORIGINAL]) and (ORIGINAL,) not in case.block.sources.get(ORIGINAL, ()):
        text = f"stands in the block only; transformers 5.23 takes {own} instead"
        yield Finding(ORIGINAL, text, "original-length-ignored", "fault")


def following_the_text(case: Case) -> Iterator[Finding]:
    """Frequencies that follow the length of the text: a full forward is not causal, and engines compute them once.

    vllm-project/vllm#41236. Hunyuan's alpha elsewhere is not read at all.
    """
    engine, rope_type = case.facts.reading.convention, case.rope_type
    if case.rope.length_dependent:
        text = (
            f"{rope_type!r} makes the frequencies depend on the sequence length: declare a length, or cache keys "
            "unrotated; transformers uses the longest row of a batch"
        )
        yield Finding("rope_type", text, "length-dependent")
    if engine == "vllm" and rope_type == "longrope":
        text = "is used for texts of every length once vLLM serves more than the original length (--max-model-len)"
        yield Finding("long_factor", text, "one-list-served")
    elif engine in ENGINES and rope_type == "dynamic":
        once = f"for {case.values['factor']:g} times max_position_embeddings"
        if engine == "vllm":
            once = f"from {TRAINED} to max_position_embeddings; without that key it changes nothing"
        text = f"'dynamic' is computed once by {_NAMES[engine]}, {once}; in transformers the frequencies depend on the "
        yield Finding("rope_type", f"{text}length of each text", "dynamic-once")
    elif rope_type == WITH_ALPHA and engine not in ENGINES and not case.text.model_type.startswith("hunyuan"):
        text = (
            "is read by Hunyuan's code, vLLM and SGLang; transformers ignores it in this family and reads factor, so "
            "that the frequencies grow with the text instead; for the same everywhere write rope type 'default' and "
            "rope_theta times alpha^(d / (d - 2)), with d rotated channels"
        )
        yield Finding("alpha", text, "alpha-ignored", "fault" if case.text.known else "suspicion")


def version_5_spelling(case: Case) -> Iterator[Finding]:
    """What version 4 does not read: a block of version 5 (Open-Athena/MarinFold#184), a base inside rope_scaling."""
    family, values = case.family, case.values
    other = not case.text.known or family.nested or bool(family.kinds) or case.text.family.since > 4
    losses = []
    if values["rope_theta"] != family.base:
        losses.append(f"its base would be {family.base:g}, not {values['rope_theta']:g}")
    places = case.block.sources.get("rope_theta", ())
    inside = bool(places) and all(path[0] == "rope_scaling" and len(path) == 2 for path in places)
    if case.rope_type != "default" and not inside:
        losses.append(f"the scaling {case.rope_type!r} would be lost")
    outside = any(case.text.get(name) is not None for name in (*OUTSIDE["rope_theta"], "rope_scaling"))
    of_block = "rope_parameters" in case.text and not outside
    if not (of_block or inside) or not losses or other:
        return
    version = case.facts.config.get("transformers_version")
    written = isinstance(version, str) and version.startswith("4.")
    says = f", and transformers_version says {version}, which reads" if written else ", and version 4 reads"
    text = (
        f"is the spelling of transformers 5{says} nothing of it: {' and '.join(losses)}; posenc convert --spelling "
        "both writes the keys of both versions"
    )
    key = "rope_scaling.rope_theta" if inside else "rope_parameters"
    yield Finding(key, text, "version-5-spelling", "fault" if written else "note")


RULES = (base, scaling, numbers_of_type, version_5_spelling)
OF_SCALINGS = (  # of rotations with a scaling
    original_length, factor_and_lengths, gain_of_yarn, keys_of_engines, on_short_prompts, longrope, following_the_text,
)  # fmt: skip
