"""What a rule is given: one kind of layers of a config, and what published models of its type have.

A rule is a function from a `Case` or from `ModelFacts` to the findings of one subject. It says in its docstring where
each mistake was met: a public thread, or a published file.

Fine-tuning keeps sizes and vocabulary, and context extension raises the base or adds a scaling. A smaller base, a
missing scaling or another share is what a typing error or a conversion leaves behind.

Source: the config.json of each example, as published. Model types whose published models differ too much (Qwen 2.5's
    Math models, from which DeepSeek-R1-Distill-Qwen comes, have base 10,000) have no base here.
Checked against: tests/hf/rules compares the lines with the published files in tests/golden.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from posenc.hf.config.facts import ModelFacts
from posenc.hf.config.rope_keys import RopeBlock
from posenc.hf.config.rotation import Rotation, text_rope
from posenc.hf.config.text_config import TextConfig, is_posenc_config, max_length
from posenc.hf.families.family import RotationRules
from posenc.hf.sources.load import Config

ORIGINAL, DECLARED = "original_max_position_embeddings", "max_position_embeddings"


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
TYPES = {
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


def is_llama_3(text_config: TextConfig) -> bool:
    """Whether this is a Llama whose context was extended to 131,072 tokens by its own recipe: 3.1, 3.2 or 3.3."""
    return (max_length(text_config) or 0) >= _EXTENDED and _LLAMA_3.items() <= text_config.items()


class Case(NamedTuple):
    """A config, and one of its kinds of layers that rotate.

    Attributes:
        facts: the config.
        block: what it says of the kind of layers.
        rope: their rotation.
        text: the part of the config that describes the text model.
        family: the rules of its rotation.
        given: keys of the block that the file has, under the names of version 5.
        values: these, and defaults of the model type where it has none.
        rope_type: the rope type.
        gain: on rotated queries and keys, of a text of one token.
        slowest: tokens in which the slowest pair rotates once, before any scaling.
        release: the published model of the same sizes; None where the table has none.
        of_type: what all releases of the model type have; nothing in particular where the table does not say.
        llama_3: whether it is Llama 3.1, 3.2 or 3.3.
    """

    facts: ModelFacts
    block: RopeBlock
    rope: Rotation
    text: TextConfig
    family: RotationRules
    given: dict[str, Any]
    values: dict[str, Any]
    rope_type: str
    gain: float
    slowest: float
    release: Release | None
    of_type: OfType
    llama_3: bool


def case_of(facts: ModelFacts, block: RopeBlock, rope: Rotation) -> Case:
    """What rules are given of one kind of layers."""
    spec, values, text = text_rope(rope), block.effective, facts.text
    return Case(
        facts, block, rope, text, text.rotation, block.values or {}, values,
        rope_type=str(values.get("rope_type", "default")),
        gain=float(spec.spectrum(1).gain),
        slowest=2 * math.pi * values["rope_theta"] ** ((spec.rotary_dim - 2) / spec.rotary_dim),
        release=release_like(text),
        of_type=TYPES.get(text.model_type, OfType()),
        llama_3=is_llama_3(text),
    )  # fmt: skip


def in_block(case: Case, changes: Config) -> Config | None:
    """The block of a case with other values, null for a key that goes; None where it is one of several blocks."""
    home = case.block.target[0] if len(case.block.target) == 1 else ""
    block = case.text.get(home)
    if not isinstance(block, dict):
        return None
    return {home: {key: value for key, value in {**block, **changes}.items() if value is not None}}


def has_remote_code(config: Config) -> bool:
    """Whether a configuration names code in its folder, which may read the keys in another way than transformers."""
    return bool(config.get("auto_map")) and not is_posenc_config(config)
