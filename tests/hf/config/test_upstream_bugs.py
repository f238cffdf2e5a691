"""Faults that people met, planted one by one: the finding names the fault, what it costs and what to write instead."""

from __future__ import annotations

from typing import Any

import pytest

from posenc.hf import Finding, preset, read_rope
from tests.hf.checkpoints import CHECKPOINTS

LLAMA_31: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "vocab_size": 128256,
    "max_position_embeddings": 131072,
}  # fmt: skip
LLAMA_3 = preset("llama-3.1")["rope_scaling"]
LINEAR = {"rope_type": "linear", "factor": 2.0}
M2 = {"model_type": "minimax_m2", "head_dim": 128, "max_position_embeddings": 196608}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}

PLANTED: list[tuple[str, str, str, dict[str, Any], dict[str, Any], list[str]]] = [
    # name, level, key, the fault, the same without it, words
    (
        "version-5-spelling", "fault", "rope_parameters",
        {**LLAMA_31, "transformers_version": "4.57.1", "rope_parameters": {**LLAMA_3, "rope_theta": 5e5}},
        {**LLAMA_31, "transformers_version": "4.57.1", "rope_scaling": LLAMA_3, "rope_theta": 5e5},
        ["spelling of transformers 5", "4.57.1", "10000, not 500000", "llama3", "posenc convert --spelling both"],
    ),
    (
        "version-5-spelling", "note", "rope_parameters",
        {**LLAMA_31, "transformers_version": "5.0.0", "rope_parameters": {**LLAMA_3, "rope_theta": 5e5}},
        {**LLAMA_31, "rope_parameters": {**LLAMA_3, "rope_theta": 5e5}, "rope_scaling": LLAMA_3, "rope_theta": 5e5},
        ["version 4 reads nothing of it", "posenc convert"],
    ),
    (
        "base-lost", "fault", "rope_theta",
        {**LLAMA_31, "max_position_embeddings": 262144, "rope_parameters": LINEAR},
        {**LLAMA_31, "max_position_embeddings": 262144, "rope_parameters": {**LLAMA_3, "rope_theta": 5e5}},
        ["is not given", "54,410 tokens", "131,072"],
    ),
    (
        "base-lost", "suspicion", "rope_theta",
        {"model_type": "mistral", "head_dim": 128, "max_position_embeddings": 131072},
        {"model_type": "mistral", "head_dim": 128, "max_position_embeddings": 32768},
        ["131,072"],
    ),
    (
        "linear-over-llama3", "fault", "rope_type",
        {**LLAMA_31, "rope_scaling": LINEAR, "rope_theta": 5e5},
        {**LLAMA_31, "rope_scaling": LLAMA_3, "rope_theta": 5e5},
        ["'linear' stands where", "from 10 to 166", "keep the llama3 block", "max_position_embeddings"],
    ),
    (
        "share-lost", "suspicion", "partial_rotary_factor",
        M2, {**M2, "rotary_dim": 64},
        ["all 128 channels", "gibberish", "partial_rotary_factor: 0.5"],
    ),
    (
        "yarn-on-short-prompts", "note", "rope_type",
        {"model_type": "qwen3", "head_dim": 128, "rope_theta": 1e6, "rope_scaling": YARN},
        {"model_type": "qwen3", "head_dim": 128, "rope_theta": 1e6},
        ["at every length", "changes prompts of fewer than 32,768 tokens", "remove the block"],
    ),
]  # fmt: skip


def named(config: dict[str, Any]) -> dict[str, Finding]:
    return {finding.name: finding for finding in read_rope(config).findings}


@pytest.mark.parametrize(
    ("name", "level", "key", "fault", "right", "words"), PLANTED, ids=lambda value: str(value)[:24]
)
def test_a_planted_fault_is_named(
    name: str, level: str, key: str, fault: dict[str, Any], right: dict[str, Any], words: list[str]
) -> None:
    result = named(fault)[name]
    assert (result.key, result.level) == (key, level)
    assert [word for word in words if word not in result.text] == []
    assert name not in named(right)
    assert not [finding for finding in named(right).values() if finding.level == "fault"]


# What these checkpoints' own blocks say and transformers does not do, which the reference tests show.
TRUE = {
    "phi-3-mini-128k, first spelling": {"su-fails"},
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_real_checkpoints_have_no_fault(name: str) -> None:
    result = {finding.name for finding in read_rope(CHECKPOINTS[name][0]).findings if finding.level == "fault"}
    assert result == TRUE.get(name, set())


def test_every_finding_has_a_name() -> None:
    for config, _ in CHECKPOINTS.values():
        assert all(finding.name and finding.name == finding.name.lower() for finding in read_rope(config).findings)
