"""Published models, and rules that compare a config with them: bases, scalings, shares, widths and lengths.

Fine-tuning keeps sizes and vocabulary, and context extension raises the base or adds a scaling. A smaller base, a
missing scaling or another share is what a typing error or a conversion leaves behind.

Source: the config.json of each example, as published. Model types whose published models differ too much (Qwen 2.5's
    Math models, from which DeepSeek-R1-Distill-Qwen comes, have base 10,000) have no base here.
Checked against: tests/hf/rules compares the lines with the published files in tests/golden.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from posenc.hf.config.rope_keys import ALL, OUTSIDE, SCALED_FROM
from posenc.hf.config.rotation import text_rope
from posenc.hf.config.text_config import TextConfig, max_length
from posenc.hf.families.family import FULL, SLIDING
from posenc.hf.findings import Finding
from posenc.hf.limits import TOKENS, is_count
from posenc.hf.rules.case import DECLARED, ORIGINAL, Case


class Release(NamedTuple):
    """What published models of one model type have in common.

    Attributes:
        example: one of them.
        sizes: their ``(hidden_size, num_hidden_layers)``.
        vocab_size: entries of their tokenizer's vocabulary.
        length: ``max_position_embeddings`` from which the facts hold, in tokens; shorter files are other models.
        base: the smallest base of their layers with full attention.
        scaling: rope type that they have at that length; "" where some have none.
    """

    example: str
    sizes: tuple[tuple[int, int], ...]
    vocab_size: int
    length: int
    base: float
    scaling: str = ""


RELEASES: dict[str, tuple[Release, ...]] = {
    "apertus": (Release("swiss-ai/Apertus-8B-2509", ((4096, 32), (8192, 80)), 131072, 65_536, 12e6, "llama3"),),
    "cohere2": (Release("CohereForAI/c4ai-command-a-03-2025", ((12288, 64), (4096, 32)), 256000, 8192, 50_000),),
    "deepseek_v2": (Release("deepseek-ai/DeepSeek-V2-Lite", ((2048, 27), (5120, 60)), 102400, 163_840, 1e4, "yarn"),),
    "deepseek_v3": (Release("deepseek-ai/DeepSeek-V3", ((7168, 61),), 129280, 163_840, 1e4, "yarn"),),
    "exaone4": (Release("LGAI-EXAONE/EXAONE-4.0-32B", ((5120, 64),), 102400, 131_072, 1e6, "llama3"),),
    "gemma3_text": (
        Release("google/gemma-3-4b-it", ((2560, 34), (3840, 48), (5376, 62)), 262208, 131_072, 1e6, "linear"),
        Release("google/gemma-3-1b-it", ((1152, 26),), 262144, 32768, 1e6),
    ),
    "gemma4_text": (Release("google/gemma-4-31B", ((1536, 35), (2816, 30), (5376, 60)), 262144, 131_072, 1e6),),
    "glm4v_moe_text": (Release("zai-org/GLM-4.6V", ((4096, 46),), 151552, 131_072, 5e5),),
    "gpt_oss": (Release("openai/gpt-oss-120b", ((2880, 24), (2880, 36)), 201088, 131_072, 150_000, "yarn"),),
    "llama": (
        Release("meta-llama/Llama-3.1-8B", ((2048, 16), (3072, 28), (4096, 32), (8192, 80), (16384, 126)), 128256,
                8192, 5e5),
    ),
    "llama4_text": (Release("meta-llama/Llama-4-Maverick-17B-128E-Instruct", ((5120, 48),), 202048, 262_144, 5e5),),
    "minimax_m2": (Release("MiniMaxAI/MiniMax-M2", ((3072, 62),), 200064, 196_608, 5e6),),
    "ministral3": (
        Release("mistralai/Ministral-3-14B-Instruct-2512", ((3072, 26), (4096, 34), (5120, 40)), 131072, 262_144, 1e6,
                "yarn"),
    ),
    "mistral": (  # without a window, which v0.1 has
        Release("mistralai/Mistral-7B-Instruct-v0.2", ((4096, 32),), 32000, 32768, 1e6),
        Release("mistralai/Mistral-7B-Instruct-v0.3", ((4096, 32),), 32768, 32768, 1e6),
    ),
    "phi3": (
        Release("microsoft/Phi-3-mini-128k-instruct", ((3072, 32),), 32064, 131_072, 1e4, "longrope"),
        Release("microsoft/Phi-4-mini-instruct", ((3072, 32),), 200064, 131_072, 1e4, "longrope"),
    ),
    "qwen3": (
        Release("Qwen/Qwen3-8B", ((1024, 28), (2048, 28), (2560, 36), (4096, 36), (5120, 64)), 151936, 32768, 1e6),
    ),
    "qwen3_moe": (Release("Qwen/Qwen3-235B-A22B", ((2048, 48), (4096, 94)), 151936, 32768, 1e6),),
    "qwen3_next": (Release("Qwen/Qwen3-Next-80B-A3B-Instruct", ((2048, 48),), 151936, 262_144, 5e6),),
    "qwen3_vl_text": (
        Release("Qwen/Qwen3-VL-8B-Instruct", ((2048, 28), (2560, 36), (4096, 36), (5120, 64)), 151936, 262_144, 5e6),
    ),
    "qwen3_vl_moe_text": (Release("Qwen/Qwen3-VL-30B-A3B-Instruct", ((2048, 48), (4096, 94)), 151936, 262_144, 5e6),),
    "qwen3_5_text": (Release("Qwen/Qwen3.5-27B", ((1024, 24), (5120, 64)), 248320, 262_144, 1e7),),
    "qwen3_5_moe_text": (Release("Qwen/Qwen3.5-35B-A3B", ((2048, 40), (3072, 48), (4096, 60)), 248320, 262_144, 1e7),),
}  # fmt: skip


class OfType(NamedTuple):
    """What all released models of a model type have in common, whatever their sizes.

    Attributes:
        example: one of them.
        share: of a head's channels that rotate.
        width: channels of a head; None where they differ.
        longest: tokens that they declare at most without a scaling; None where nobody went beyond.
        trained: tokens that they were trained at, before a scaling that users add.
    """

    example: str = ""
    share: float = 1.0
    width: int | None = None
    longest: int | None = None
    trained: tuple[int, ...] = ()


_LONG = 262_144
_TYPES = {
    "bailing_moe_v2": OfType(trained=(32768,)),
    "deepseek_v3": OfType(trained=(4096,)),
    "glm": OfType("THUDM/glm-4-9b-chat-hf", 0.5),
    "glm4": OfType("THUDM/GLM-4-32B-0414", 0.5),
    "glm4_moe": OfType("zai-org/GLM-4.5", 0.5),
    "gpt_oss": OfType("openai/gpt-oss-120b", width=64),
    "minimax_m2": OfType("MiniMaxAI/MiniMax-M2", 0.5),
    "nemotron": OfType("nvidia/Minitron-4B-Base", 0.5),
    "qwen2": OfType(trained=(32768,)),
    "qwen2_moe": OfType(trained=(32768,)),
    "qwen3": OfType("Qwen/Qwen3-8B", width=128, longest=_LONG, trained=(32768, 40960, _LONG)),
    "qwen3_moe": OfType("Qwen/Qwen3-235B-A22B", width=128, longest=_LONG, trained=(32768, 40960, _LONG)),
    "qwen3_next": OfType("Qwen/Qwen3-Next-80B-A3B-Instruct", 0.25, longest=_LONG, trained=(_LONG,)),
    "qwen3_5_text": OfType("Qwen/Qwen3.5-27B", 0.25, longest=_LONG, trained=(_LONG,)),
    "qwen3_5_moe_text": OfType("Qwen/Qwen3.5-35B-A3B", 0.25, longest=_LONG, trained=(_LONG,)),
    "stablelm": OfType("stabilityai/stablelm-3b-4e1t", 0.25),
}


def of_type(text_config: TextConfig) -> OfType:
    """What released models of a config's type have; nothing in particular where the table does not say."""
    return _TYPES.get(text_config.model_type, OfType())


def release_like(text_config: TextConfig) -> Release | None:
    """The published model that a config resembles: the same model type, sizes and vocabulary, at least its length."""
    length = max_length(text_config) or 0
    sizes = (text_config.get("hidden_size"), text_config.get("num_hidden_layers"))
    for release in RELEASES.get(text_config.model_type, ()):
        vocabulary = text_config.get("vocab_size", release.vocab_size if text_config.path else None)
        if vocabulary == release.vocab_size and sizes in release.sizes and length >= release.length:
            return release
    return None


_LLAMA_3 = {"model_type": "llama", "vocab_size": 128256}
_EXTENDED = 131072  # tokens of Llama 3.1, 3.2 and 3.3
LLAMA_32 = (2048, 3072)  # channels of the streams of 1B and 3B
SHORTEST = 4096  # tokens; a shorter model is one of other weights
_VOCABULARY = 100_000  # entries; a smaller one is another model's
_UNSCALED_BY_DEFAULT = ("phi4_multimodal",)  # whose class in transformers has both lengths and no scaling


def is_llama_3(text_config: TextConfig) -> bool:
    """Whether this is a Llama whose context was extended to 131,072 tokens by its own recipe: 3.1, 3.2 or 3.3."""
    return (max_length(text_config) or 0) >= _EXTENDED and _LLAMA_3.items() <= text_config.items()


def base(case: Case) -> Iterator[Finding]:
    """A base that is not given, lost, below that of published models, or too small for the length.

    Lost: unslothai/unsloth#7028, vllm-project/vllm#44158. Below: Lightning-AI/litgpt#2217, keras-team/keras-hub#2729.
    """
    value, given, longest = case.values["rope_theta"], "rope_theta" in case.given, case.block.longest
    if not given and (lost := _lost_base(case)) is not None:
        yield lost
        return
    own_key = case.family.kinds[case.block.kind].theta_key if case.block.kind in case.family.kinds else None
    if not given and all(case.text.get(key) is None for key in ([own_key] if own_key else OUTSIDE["rope_theta"])):
        whose = "this family's" if case.text.known else "the usual"
        yield Finding("rope_theta", f"is not given: {value:g} is {whose} default", "base-default")
    if case.block.kind not in (ALL, FULL):
        return
    release, windowed = release_like(case.text), is_count(case.text.get("sliding_window"), TOKENS)
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


def _lost_base(case: Case) -> Finding | None:
    """No base, and a default too small for the length or for a block that somebody wrote by hand."""
    family, block, length = case.family, case.block, case.block.longest
    if is_llama_3(case.text):
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
    return Finding("rope_theta", text, "base-lost", "fault" if is_llama_3(case.text) else "suspicion")


def scaling(case: Case) -> Iterator[Finding]:
    """A published length without the scaling that reaches it, or with another one.

    Lost: Blaizzy/mlx-vlm#1710, huggingface/transformers#41922. Linear over llama3: unslothai/unsloth#7028. Numbers
    that no published model of Llama 3.1 to 3.3 has: NVIDIA/Megatron-LM#6305.
    """
    text_config, values, longest = case.text, case.values, case.block.longest
    llama_3, release = is_llama_3(text_config), release_like(text_config)
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
    of_all, rope, longest = of_type(case.text), text_rope(case.rope), case.block.longest
    if case.rope_type == "proportional" and case.given.get("partial_rotary_factor", 1) == 1:
        text = (
            "is not given or 1 with 'proportional', so that all pairs rotate, and that type is for a share of them; "
            "published models have 0.25: copy the block of the original checkpoint"
        )
        yield Finding("partial_rotary_factor", text, "share-lost", "suspicion")
    elif of_all.share != 1 and rope.rotary_dim >= rope.head_dim and (longest is None or longest >= SHORTEST):
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
    if release_like(case.text) is None:
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


RULES = (base, scaling, numbers_of_type)
