"""Longer contexts that the authors of a model document, each with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_QWEN = "https://huggingface.co/Qwen"


@dataclass(frozen=True)
class Documented:
    """How the authors of a model document a longer context of it without a change of weights.

    Attributes:
        model: that the source is about.
        model_types: of its text config.
        declared: lengths in the configs of released models, in tokens.
        base: in these configs; another base is another model.
        method: rope type.
        original: training length that the factor counts from.
        longest: length that the source names.
        source: URL, or arXiv id with section.
        factors: by length, where the source's factor is not length / original.
        largest: factor that the source does not exceed; None: no such limit.
        note: what the source says besides.
    """

    model: str
    model_types: tuple[str, ...]
    declared: tuple[int, ...]
    base: float
    method: str
    original: int
    longest: int
    source: str
    factors: Mapping[int, float] = field(default_factory=dict)
    largest: float | None = None
    note: str = ""


DOCUMENTED = (
    Documented(
        "Qwen2.5-7B-Instruct", ("qwen2", "qwen2_moe"), (32768,), 1e6, "yarn", 32768, 131072,
        f"{_QWEN}/Qwen2.5-7B-Instruct#processing-long-texts",
    ),
    Documented(
        "QwQ-32B", ("qwen2",), (40960,), 1e6, "yarn", 32768, 131072, "https://github.com/QwenLM/QwQ#usage-guidelines",
        note="YaRN is advised for inputs over 8,192 tokens",
    ),
    Documented(
        "Qwen2.5-VL", ("qwen2_5_vl", "qwen2_5_vl_text"), (128000,), 1e6, "yarn", 32768, 131072,
        "https://github.com/QwenLM/Qwen3-VL/blob/c89d075/README.md#processing-long-texts",
        note="its authors advise against it where objects or moments are to be found, which it harms much, and for "
        "long videos to raise max_position_embeddings alone",
    ),
    Documented(
        "Qwen3-8B", ("qwen3", "qwen3_moe"), (40960, 32768), 1e6, "yarn", 32768, 131072,
        f"{_QWEN}/Qwen3-8B#processing-long-texts",
        note="trained at 32,768 tokens; the 40,960 of its config are 32,768 for the answer and 8,192 for the prompt",
    ),
    Documented(
        "Qwen3-Coder-480B-A35B", ("qwen3_moe",), (262144,), 1e7, "yarn", 262144, 2**20,
        "https://github.com/QwenLM/Qwen3-Coder", note="its source names YaRN and 1M tokens, and no factor",
    ),
    Documented(
        "Qwen3-Next", ("qwen3_next",), (262144,), 1e7, "yarn", 262144, 1010000,
        f"{_QWEN}/Qwen3-Next-80B-A3B-Instruct#processing-ultra-long-texts", {1010000: 4.0},
    ),
    Documented(
        "Qwen3.5", ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_5", "qwen3_5_moe"), (262144,), 1e7, "yarn", 262144,
        1010000, f"{_QWEN}/Qwen3.5-27B#processing-ultra-long-texts", {1010000: 4.0},
    ),
    Documented(
        "Qwen3-VL", ("qwen3_vl_text", "qwen3_vl_moe_text", "qwen3_vl", "qwen3_vl_moe"), (262144,), 5e6, "yarn", 262144,
        1000000, "https://github.com/QwenLM/Qwen3-VL", {1000000: 3.0}, 3.0,
        "factor 2 or 3 for 1M tokens and not 4, because positions of interleaved M-RoPE grow more slowly than tokens",
    ),
    Documented(
        "GLM-4-0414", ("glm4",), (32768,), 1e4, "yarn", 32768, 131072,
        "https://github.com/THUDM/GLM-4#handling-long-context-yarn",
    ),
    Documented(
        "Ling 2.0", ("bailing_moe_v2",), (32768,), 6e5, "yarn", 32768, 131072,
        "https://github.com/inclusionAI/Ling-V2#online-inference",
    ),
)  # fmt: skip
# mscale and mscale_all_dim of published YaRN blocks for latent attention, where they are not 1 and 1 (DeepSeek-V3,
# Kimi-K2): config.json of deepseek-ai/DeepSeek-V2 and DeepSeek-V2-Lite.
MSCALES = {"deepseek_v2": 0.707}
