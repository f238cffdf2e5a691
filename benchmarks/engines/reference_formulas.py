"""The third reference: the formulas of each rope type's authors, implemented again without posenc's.

The check accepts an expected value only where posenc, transformers and the authors' code agree. The formulas are
duplicated here on purpose: in plain Python, in float64, from the authors' files, and with their own parsing of the
config. Nothing of posenc's formulas is imported, so a mistake there cannot confirm itself. The tests compare each
formula with numbers that the authors' own files computed (tests/golden).

    default        theta_j = base^(-2j/d)                                            Meta
    linear         theta_j / s: positions are multiplied by 1/s                      kaiokendev
    dynamic        base' = base (s n/L - (s - 1))^(d/(d-2)) for texts of n > L       YaRN's authors
    yarn           ramp between the pairs of beta_fast and beta_slow rotations,
                   rounded outwards; gain 0.1 ln s + 1                               YaRN's authors
                   gain (0.1 m ln s + 1) / (0.1 a ln s + 1) of mscale m (1 where
                   absent) and mscale_all_dim a (0)                                  DeepSeek
                   ramp without rounding                                             OpenAI
    llama3         by wavelength: unchanged, blended or divided by s                 Meta
    longrope       theta_j / factor_j, gain sqrt(1 + ln s / ln L)                    Microsoft
    proportional   the first share of pairs rotates, exponents over the whole head   Google
    partial        RoPE over the first share of channels                             EleutherAI

Where the authors have no such key (``attention_factor`` is transformers' own) the gain has two references.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

Block = Mapping[str, Any]


class Source(NamedTuple):
    """Authors' code.

    Attributes:
        name: of the repository.
        lines: file, and the lines that decide, below ``https://github.com/``.
    """

    name: str
    lines: str

    @property
    def url(self) -> str:
        """Where the lines can be read."""
        repository, commit, path = self.lines.split(" ")
        return f"https://github.com/{repository}/blob/{commit}/{path}"


_YARN_COMMIT = "jquesnelle/yarn 995db5b575e75230b3384d658f8b944c9662f775 scaled_rope"
META = Source(
    "meta-llama/llama-models",
    "meta-llama/llama-models a9c89c471f793423afd4cc3ca8671d6e56fe64cb models/llama3/model.py#L45-L72",
)
KAIOKENDEV = Source(
    "kaiokendev/cutoff-len-is-context-len",
    "kaiokendev/cutoff-len-is-context-len acbf0173f18ba2d407880c40172197061e38ebd0 "
    "util/dope_llama_monkey_patch.py#L11-L27",
)
DYNAMIC = Source("jquesnelle/yarn", f"{_YARN_COMMIT}/LlamaDynamicScaledRotaryEmbedding.py#L27-L32")
YARN = Source("jquesnelle/yarn", f"{_YARN_COMMIT}/LlamaYaRNScaledRotaryEmbedding.py#L4-L84")
DEEPSEEK = Source(
    "deepseek-ai/DeepSeek-VL2",
    "deepseek-ai/DeepSeek-VL2 ef9f91e2b6426536b83294c11742c27be66361b1 "
    "deepseek_vl2/models/modeling_deepseek.py#L226-L327",
)
OPENAI = Source(
    "openai/gpt-oss", "openai/gpt-oss 7b583341fe16729127f6d5b94a7b09ccae97e1a1 gpt_oss/torch/model.py#L85-L123"
)
MICROSOFT = Source(
    "microsoft/LongRoPE", "microsoft/LongRoPE c9e56aa54007c328399677232a489feec446e4b8 rope/longrope.py#L62-L75"
)
GOOGLE = Source(
    "google-deepmind/gemma",
    "google-deepmind/gemma 7691fd4e7f26c9ec5db38110dddb3addfab4d767 gemma/gm/math/_positional_embeddings.py#L47-L66",
)
ELEUTHER = Source(
    "EleutherAI/gpt-neox",
    "EleutherAI/gpt-neox ea7aefd8f8e183256992d9fede4d7c71a46d67a5 megatron/model/transformer.py#L384-L395",
)


class AuthorsAnswer(NamedTuple):
    """Frequencies and gain of one kind of layers by the authors' code.

    Attributes:
        source: whose code.
        theta: frequencies in radians a token.
        gain: the factor on cos and sin; None where a key of the block decides it that their code does not have.
    """

    source: Source
    theta: list[float]
    gain: float | None = 1.0


# ------------------------------------------------------------------------------------------------ the authors' formulas


def rope(base: float, width: int) -> list[float]:
    """Frequencies without a scaling over ``width`` channels."""
    return [1.0 / base ** (channel / width) for channel in range(0, width, 2)]


def linear(base: float, width: int, factor: float) -> list[float]:
    """kaiokendev's: each position is multiplied by 1 / factor."""
    scale = 1 / factor
    return [scale * frequency for frequency in rope(base, width)]


def dynamic(base: float, width: int, factor: float, original: int, length: int) -> list[float]:
    """A base that follows the text, and is the model's own up to the original length."""
    if length > original:
        base = base * (factor * length / original - (factor - 1)) ** (width / (width - 2))
    return rope(base, width)


def yarn(
    base: float, width: int, factor: float, original: int, beta_fast: float, beta_slow: float, rounded: bool
) -> list[float]:
    """Interpolated frequencies for pairs with few rotations in the original length, unchanged ones for many.

    Raises:
        LookupError: without rounding, for a ramp that reaches past the pairs, which OpenAI's code refuses.
    """

    def pair_with(times: float) -> float:
        return (width * math.log(original / (times * 2 * math.pi))) / (2 * math.log(base))

    low, high = pair_with(beta_fast), pair_with(beta_slow)
    if rounded:
        low, high = max(math.floor(low), 0), min(math.ceil(high), width - 1)
        high += 0.001 if low == high else 0.0
    elif not 0 < low < high < width / 2 - 1:
        raise LookupError(f"OpenAI's code takes ramps within the pairs only, not {low:.3g} to {high:.3g}")
    frequencies = []
    for pair, frequency in enumerate(rope(base, width)):
        share = 1 - min(max((pair - low) / (high - low), 0.0), 1.0)
        frequencies.append(frequency / factor * (1 - share) + frequency * share)
    return frequencies


def yarn_gain(factor: float) -> float:
    """YaRN's own gain."""
    return 1.0 if factor <= 1 else 0.1 * math.log(factor) + 1.0


def deepseek_gain(factor: float, mscale: float, mscale_all_dim: float) -> float:
    """DeepSeek's: a lone mscale counts too."""
    if factor <= 1:
        return 1.0
    return (0.1 * mscale * math.log(factor) + 1.0) / (0.1 * mscale_all_dim * math.log(factor) + 1.0)


def llama3(base: float, width: int, factor: float, low: float, high: float, original: int) -> list[float]:
    """Frequencies by wavelength."""
    scaled = []
    for frequency in rope(base, width):
        wavelength = 2 * math.pi / frequency
        if wavelength > original / low:
            scaled.append(frequency / factor)
        elif wavelength < original / high:
            scaled.append(frequency)
        else:
            smooth = (original / wavelength - low) / (high - low)
            scaled.append((1 - smooth) * frequency / factor + smooth * frequency)
    return scaled


def longrope(base: float, width: int, factors: Sequence[float]) -> list[float]:
    """Frequencies over a factor for each pair."""
    return [1.0 / (factor * base ** (channel / width))
            for channel, factor in zip(range(0, width, 2), factors, strict=True)]  # fmt: skip


def longrope_gain(scale: float, original: int) -> float:
    """Microsoft's policy "su"."""
    return 1.0 if scale <= 1 else math.sqrt(1 + math.log(scale) / math.log(original))


def proportional(base: float, head: int, share: float, factor: float) -> list[float]:
    """Of Gemma 4: the pairs after the share have the frequency 0."""
    rotated = int(share * head // 2)
    return [base ** -(2.0 / head * pair) / factor if pair < rotated else 0.0 for pair in range(head // 2)]


# --------------------------------------------------------------------------------------------------- reading of configs

_HEADS: dict[str, tuple[str, ...]] = {"deepseek_v3": ("qk_rope_head_dim",), "gemma4_text": ("head_dim",)}
_SHARE_DECIDES = ("stablelm", "glm4", "gpt_neox")  # whose classes have a default share other than 1
_TYPES = (
    "llama", "qwen2", "qwen3", "mistral", "phi3", "stablelm", "gpt_neox", "glm4", "cohere", "olmo2", "granite",
    "gemma", "gemma2", "olmo", "qwen3_moe", "deepseek_v3", "gpt_oss", "gemma3_text", "gemma4_text", "exaone4",
    "qwen2_5_vl_text", "qwen3_vl_text",
)  # fmt: skip  # whose keys are read here


def authors_answer(config: Mapping[str, Any], length: int, kind: str = "all") -> AuthorsAnswer | None:
    """Frequencies and gain of one kind of layers by the authors' formula; None where the authors have none.

    Args:
        config: the whole config.json, in either version's keys.
        length: tokens of the text, which decide the list of LongRoPE and the base of dynamic scaling.
        kind: of layers ("all" where all rotate alike).
    """
    text = config.get("text_config", config)
    if text.get("model_type") not in _TYPES:
        return None
    try:
        block = _block(text, kind)
        reader = _READERS.get(block.get("rope_type", "default"))
        return None if reader is None else reader(block, text, length, kind)
    except (LookupError, TypeError):  # a key that the authors' code reads is missing or null
        return None


def authors_sources(config: Mapping[str, Any], length: int) -> dict[Source, bool]:
    """The authors' code that applies to a config, and whether it decides the gain too.

    Empty where only posenc and transformers can be compared.

    Args:
        config: the whole config.json.
        length: tokens of the text.
    """
    kinds = dict.fromkeys(["all", *config.get("text_config", config).get("layer_types", ())])
    answers = [answer for kind in kinds if (answer := authors_answer(config, length, kind)) is not None]
    return {answer.source: answer.gain is not None for answer in answers}


def _block(text: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The block of a kind of layers in version 5's names, with base and share of rotated channels.

    Raises:
        KeyError: for a config without a base.
    """
    keys = text.get("rope_parameters") or {}
    if kind in keys:
        keys = keys[kind]
    elif not keys:
        keys = dict(text.get("rope_scaling") or {})
        local = kind == "sliding_attention" and "rope_local_base_freq" in text
        keys = {"rope_theta": text["rope_local_base_freq"]} if local else {**keys, "rope_theta": text["rope_theta"]}
    block = {"rope_type": keys.get("type", "default"), **{key: value for key, value in keys.items() if key != "type"}}
    for key in ("partial_rotary_factor", "rotary_pct"):
        if text.get(key) is not None:
            block.setdefault("partial_rotary_factor", text[key])
    return {"rope_theta": keys["rope_theta"], **block}


def _width(block: Block, text: Mapping[str, Any], kind: str) -> int:
    keys = _HEADS.get(text["model_type"], ("head_dim",))
    if text["model_type"] == "gemma4_text" and kind == "full_attention":
        keys = ("global_head_dim",)
    head = next((text[key] for key in keys if text.get(key)), None)
    if head is None:
        head = text["hidden_size"] // text["num_attention_heads"]
    if text["model_type"] in _SHARE_DECIDES:
        return int(head * block["partial_rotary_factor"])
    return int(head * (1.0 if block["rope_type"] == "proportional" else block.get("partial_rotary_factor", 1.0)))


def _default(block: Block, text: Mapping[str, Any], length: int, kind: str) -> AuthorsAnswer:
    source = ELEUTHER if block.get("partial_rotary_factor", 1.0) != 1 else META
    return AuthorsAnswer(source, rope(block["rope_theta"], _width(block, text, kind)))


def _linear(block: Block, text: Mapping[str, Any], length: int, kind: str) -> AuthorsAnswer:
    return AuthorsAnswer(KAIOKENDEV, linear(block["rope_theta"], _width(block, text, kind), block["factor"]))


def _dynamic(block: Block, text: Mapping[str, Any], length: int, kind: str) -> AuthorsAnswer:
    original = block.get("original_max_position_embeddings") or text["max_position_embeddings"]
    width = _width(block, text, kind)
    return AuthorsAnswer(DYNAMIC, dynamic(block["rope_theta"], width, block["factor"], original, length))


def _yarn(block: Block, text: Mapping[str, Any], length: int, kind: str) -> AuthorsAnswer:
    rounded, factor = block.get("truncate", True), block["factor"]
    pairs = [block.get(key) is not None for key in ("mscale", "mscale_all_dim")]
    source = OPENAI if not rounded else DEEPSEEK if any(pairs) or text["model_type"] == "deepseek_v3" else YARN
    fast, slow = block.get("beta_fast", 32), block.get("beta_slow", 1)
    original = block["original_max_position_embeddings"]
    theta = yarn(block["rope_theta"], _width(block, text, kind), factor, original, fast, slow, rounded)
    if block.get("attention_factor") is not None or (any(pairs) and source is OPENAI):
        return AuthorsAnswer(source, theta, None)
    if source is DEEPSEEK:
        return AuthorsAnswer(
            source, theta, deepseek_gain(factor, block.get("mscale", 1), block.get("mscale_all_dim", 0))
        )
    return AuthorsAnswer(source, theta, yarn_gain(factor))


def _llama3(block: Block, text: Mapping[str, Any], length: int, kind: str) -> AuthorsAnswer:
    keys = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    return AuthorsAnswer(META, llama3(block["rope_theta"], _width(block, text, kind), *(block[key] for key in keys)))


def _longrope(block: Block, text: Mapping[str, Any], length: int, kind: str) -> AuthorsAnswer:
    original = text.get("original_max_position_embeddings") or block["original_max_position_embeddings"]
    factors = block["long_factor" if length > original else "short_factor"]
    theta = longrope(block["rope_theta"], _width(block, text, kind), factors)
    if block.get("attention_factor") is not None:
        return AuthorsAnswer(MICROSOFT, theta, None)
    return AuthorsAnswer(MICROSOFT, theta, longrope_gain(text["max_position_embeddings"] / original, original))


def _proportional(block: Block, text: Mapping[str, Any], length: int, kind: str) -> AuthorsAnswer:
    share, factor = block.get("partial_rotary_factor", 1.0), block.get("factor", 1.0)
    return AuthorsAnswer(GOOGLE, proportional(block["rope_theta"], _width(block, text, kind), share, factor))


_READERS: dict[str, Callable[[Block, Mapping[str, Any], int, str], AuthorsAnswer]] = {
    "default": _default, "linear": _linear, "dynamic": _dynamic, "yarn": _yarn, "llama3": _llama3,
    "longrope": _longrope, "proportional": _proportional,
}  # fmt: skip
