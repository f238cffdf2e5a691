"""Bases and scalings of published models: a config of the same sizes with less is a suspicion.

Fine-tuning keeps sizes and vocabulary, and context extension raises the base or adds a scaling. A smaller base, or a
missing scaling at the published length, is what a typing error or a conversion leaves behind.

Source: the config.json of each example, as published. Model types whose published models differ too much (Qwen 2.5 has
    1,000,000, and its Math models, from which DeepSeek-R1-Distill-Qwen comes, 10,000) have no line.
Checked against: `tests/hf/doctor/test_config_checks.py` compares the lines with the published files in `tests/golden`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from posenc.hf.config.parse import ParsedConfig
from posenc.hf.config.rope_block import ALL, RopeBlock
from posenc.hf.config.text_config import TextConfig, max_length
from posenc.hf.families.layer_patterns import FULL
from posenc.hf.findings import Finding


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
    "gemma3_text": (Release("google/gemma-3-1b-it", ((1152, 26),), 262144, 32768, 1e6),),
    "gemma4_text": (Release("google/gemma-4-31B", ((1536, 35), (2816, 30), (5376, 60)), 262144, 131_072, 1e6),),
    "gpt_oss": (Release("openai/gpt-oss-120b", ((2880, 36),), 201088, 131_072, 150_000, "yarn"),),
    "llama": (
        Release("meta-llama/Llama-3.1-8B", ((3072, 28), (4096, 32), (8192, 80), (16384, 126)), 128256, 8192, 5e5),
    ),
    "llama4_text": (Release("meta-llama/Llama-4-Maverick-17B-128E-Instruct", ((5120, 48),), 202048, 262_144, 5e5),),
    "minimax_m2": (Release("MiniMaxAI/MiniMax-M2", ((3072, 62),), 200064, 196_608, 5e6),),
    "ministral3": (
        Release(
            "mistralai/Ministral-3-14B-Instruct-2512",
            ((3072, 26), (4096, 34), (5120, 40)),
            131072,
            262_144,
            1e6,
            "yarn",
        ),
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
}


def release_like(text_config: TextConfig) -> Release | None:
    """The published model that a config resembles: the same model type, sizes and vocabulary, at least its length."""
    length = max_length(text_config) or 0
    sizes = (text_config.get("hidden_size"), text_config.get("num_hidden_layers"))
    for release in RELEASES.get(text_config.model_type, ()):
        same = text_config.get("vocab_size") == release.vocab_size and sizes in release.sizes
        if same and length >= release.length:
            return release
    return None


def on_releases(parsed: ParsedConfig) -> Iterator[Finding]:
    """Suspicions where a base is below the base of a published model like this, or its scaling is missing."""
    text_config = parsed.text_config
    release = release_like(text_config)
    if release is None or not text_config.model_type.startswith(str(parsed.config.get("model_type"))):
        return  # a part of a composite model of another name has facts of its own
    for rope_block in parsed.rope_blocks:
        if rope_block.values is not None and rope_block.kind in (ALL, FULL):
            yield from _on_base(rope_block, release)
            yield from _on_scaling(text_config, rope_block, release)


def _on_base(rope_block: RopeBlock, release: Release) -> Iterator[Finding]:
    base = rope_block.effective["rope_theta"]
    if not base < release.base:
        return
    base_text = (
        f"is {base:g}" if "rope_theta" in (rope_block.values or {}) else f"is not given, so that {base:g} is used"
    )
    text = (
        f"{base_text}, and {release.example}, of the same sizes and vocabulary, has {release.base:g}: every frequency "
    )
    text += (
        "is wrong for its weights; copy rope_theta of the original checkpoint, or --accept this finding for a model "
    )
    text += "that was trained with the smaller base"
    yield Finding("rope_theta", text, "base-below-releases", "suspicion")


def _on_scaling(text_config: TextConfig, rope_block: RopeBlock, release: Release) -> Iterator[Finding]:
    if not release.scaling or rope_block.effective.get("rope_type", "default") != "default":
        return
    text = (
        f"is {max_length(text_config):,}, which {release.example}, of the same sizes and vocabulary, reaches by rope "
    )
    text += f"type {release.scaling!r}, and no scaling is given: the model degrades beyond the length before the "
    text += "scaling; copy the block of the original checkpoint"
    yield Finding("max_position_embeddings", text, "scaling-of-releases-lost", "suspicion")
