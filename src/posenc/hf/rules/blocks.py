"""Rules on one rotation: its base, lengths, gain and spelling, against one another and against what readers do."""

from __future__ import annotations

import math
from collections.abc import Iterator

from posenc.arguments import shown
from posenc.hf.config.rope_keys import ENGINES, OUTSIDE, SCALED_FROM, TRAINED, VLLM, WITH_ALPHA
from posenc.hf.config.rotation import SILENT
from posenc.hf.families.family import FULL, SLIDING
from posenc.hf.findings import Finding, Level
from posenc.hf.rules.case import DECLARED, ORIGINAL, Case, in_block
from posenc.hf.rules.releases import SHORTEST, of_type

_SHORT_AND_LONG = ("phi3", "phi4_multimodal")
_SHORT_OF_RELEASES = 3.0  # factor of the short list on average; the largest is 2.05, of Phi-3-mini
_FAR_BEYOND, _FAR_IN_GGUF = 8, 4  # times the declared length; Qwen 3 with factor 4 beside its 40,960 tokens has 3.2
_NAMES = {"vllm": "vLLM", "sglang": "SGLang"}


def base_of_windows(case: Case) -> Iterator[Finding]:
    """Sliding layers under the base or the scaling of the full ones: Blaizzy/mlx-vlm#1927 (Gemma 3)."""
    name, base = case.text.model_type, case.values["rope_theta"]
    if case.block.kind != SLIDING or not name.startswith(("gemma3", "gemma4", "modernbert")):
        return
    full = next((block.effective for block in case.facts.blocks if block.kind == FULL and block.values), None)
    wide = math.inf if full is None else full["rope_theta"]
    scaled = case.rope_type != "default" and "rope_type" in case.given and name.startswith("gemma")
    if scaled or base > wide or (base == wide and not name.startswith("modernbert")):
        has = f"the scaling {case.rope_type!r}" if scaled else f"base {base:g}, and full ones {wide:g}"
        text = (
            f"of sliding layers has {has}: published models of this family have a base of 10,000 there, below that of "
            "the full layers, and no scaling, since no distance within a window needs one"
        )
        yield Finding("rope_parameters", text, "rotation-of-windows", "suspicion")


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
    trained = of_type(case.text).trained
    if given and scales and original == longest >= SHORTEST and case.text.known and original not in trained:
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
        if bool(mscale) != bool(all_dim) and float(mscale or all_dim) != 1:
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
    value, neutral = given.get(key), given.get(key) == SILENT.get(key)
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
    right = original != case.block.longest or original in of_type(case.text).trained
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


RULES = (
    base_of_windows, original_length, factor_and_lengths, gain_of_yarn, keys_of_engines, on_short_prompts, longrope,
    following_the_text, version_5_spelling,
)  # fmt: skip
