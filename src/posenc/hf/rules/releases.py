"""Published models: bases, scalings, shares and training lengths that a config of the same sizes must have.

Fine-tuning keeps sizes and vocabulary, and context extension raises the base or adds a scaling. A smaller base, a
missing scaling or another share is what a typing error or a conversion leaves behind.

Source: the config.json of each example, as published. Model types whose published models differ too much (Qwen 2.5's
    Math models, from which DeepSeek-R1-Distill-Qwen comes, have base 10,000) have no base here.
Checked against: tests/hf/rules compares the lines with the published files in tests/golden.
"""

from __future__ import annotations

from typing import NamedTuple

from posenc.hf.config.text_config import TextConfig, max_length


class Release(NamedTuple):
    """What published models of one model type have in common.

    Attributes:
        example: one of them.
        sizes: their ``(hidden_size, num_hidden_layers)``.
        vocab_size: entries of their tokenizer's vocabulary.
        length: ``max_position_embeddings`` from which the facts hold, in tokens; shorter files are other models.
        base: the smallest base of their layers with full attention.
        scaling: rope type that they have at that length; "" where some have none.
        factor: of that scaling, where all have the same.
    """

    example: str
    sizes: tuple[tuple[int, int], ...]
    vocab_size: int
    length: int
    base: float
    scaling: str = ""
    factor: float | None = None


RELEASES: dict[str, tuple[Release, ...]] = {
    "apertus": (Release("swiss-ai/Apertus-8B-2509", ((4096, 32), (8192, 80)), 131072, 65_536, 12e6, "llama3"),),
    "cohere2": (Release("CohereForAI/c4ai-command-a-03-2025", ((12288, 64), (4096, 32)), 256000, 8192, 50_000),),
    "deepseek_v2": (Release("deepseek-ai/DeepSeek-V2-Lite", ((2048, 27), (5120, 60)), 102400, 163_840, 1e4, "yarn"),),
    "deepseek_v3": (Release("deepseek-ai/DeepSeek-V3", ((7168, 61),), 129280, 163_840, 1e4, "yarn"),),
    "exaone4": (Release("LGAI-EXAONE/EXAONE-4.0-32B", ((5120, 64),), 102400, 131_072, 1e6, "llama3"),),
    "gemma3_text": (
        Release("google/gemma-3-4b-it", ((2560, 34), (3840, 48), (5376, 62)), 262208, 131_072, 1e6, "linear", 8.0),
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

SHARES = {  # of a head's channels, that all released models of a model type rotate, and an example
    "glm": (0.5, "THUDM/glm-4-9b-chat-hf"), "glm4": (0.5, "THUDM/GLM-4-32B-0414"), "glm4_moe": (0.5, "zai-org/GLM-4.5"),
    "minimax_m2": (0.5, "MiniMaxAI/MiniMax-M2"), "nemotron": (0.5, "nvidia/Minitron-4B-Base"),
    "qwen3_next": (0.25, "Qwen/Qwen3-Next-80B-A3B-Instruct"), "qwen3_5_text": (0.25, "Qwen/Qwen3.5-27B"),
    "qwen3_5_moe_text": (0.25, "Qwen/Qwen3.5-35B-A3B"), "stablelm": (0.25, "stabilityai/stablelm-3b-4e1t"),
}  # fmt: skip

WIDTHS = {  # of a head, that all released models of a model type have, and an example
    "qwen3": (128, "Qwen/Qwen3-8B"), "qwen3_moe": (128, "Qwen/Qwen3-235B-A22B"), "gpt_oss": (64, "openai/gpt-oss-120b"),
}  # fmt: skip

LONGEST = {  # tokens that released models of a model type declare at most without a scaling
    "qwen3": 262_144, "qwen3_moe": 262_144, "qwen3_next": 262_144, "qwen3_5_text": 262_144,
    "qwen3_5_moe_text": 262_144,
}  # fmt: skip

TRAINED = {  # tokens that all released models of a model type were trained at, before a scaling that users add
    "qwen2": (32768,), "qwen2_moe": (32768,), "qwen3": (32768, 40960, 262144), "qwen3_moe": (32768, 40960, 262144),
    "qwen3_next": (262144,), "qwen3_5_text": (262144,), "qwen3_5_moe_text": (262144,), "bailing_moe_v2": (32768,),
    "deepseek_v3": (4096,),
}  # fmt: skip


def release_like(text_config: TextConfig) -> Release | None:
    """The published model that a config resembles: the same model type, sizes and vocabulary, at least its length."""
    length = max_length(text_config) or 0
    sizes = (text_config.get("hidden_size"), text_config.get("num_hidden_layers"))
    for release in RELEASES.get(text_config.model_type, ()):
        vocabulary = text_config.get("vocab_size", release.vocab_size if text_config.path else None)
        if vocabulary == release.vocab_size and sizes in release.sizes and length >= release.length:
            return release
    return None


LLAMA_3 = {"model_type": "llama", "vocab_size": 128256}
LONG = 131072  # tokens


def is_llama_3(text_config: TextConfig) -> bool:
    """Whether this is a Llama whose context was extended to 131,072 tokens by its own recipe: 3.1, 3.2 or 3.3."""
    return (max_length(text_config) or 0) >= LONG and {key: text_config.get(key) for key in LLAMA_3} == LLAMA_3
