"""litgpt's model_config.yaml: its scalings as rotations, a base that a conversion lost, and what a file may not be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("yaml")

from posenc.hf import read_rope
from posenc.hf.config.rotation import equivalent
from posenc.hf.doctor import compare, examine

MISTRAL = {
    "name": "Mistral-7B-Instruct-v0.2", "n_embd": 4096, "n_head": 32, "n_query_groups": 8, "n_layer": 32,
    "head_size": 128, "block_size": 32768, "vocab_size": 32000, "padded_vocab_size": 32000, "rope_base": 1000000,
    "rotary_percentage": 1.0, "rope_condense_ratio": 1, "rope_adjustments": None, "sliding_window_size": None,
}  # fmt: skip
SAME = {
    "model_type": "mistral", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "num_hidden_layers": 32, "max_position_embeddings": 32768, "vocab_size": 32000, "rope_theta": 1e6,
    "sliding_window": None,
}  # fmt: skip


def written(folder: Path, keys: dict[str, Any]) -> Path:
    import yaml

    (folder / "model_config.yaml").write_text(yaml.safe_dump(keys))
    return folder


@pytest.mark.parametrize(
    ("keys", "block"),
    [
        ({}, None),
        ({"rope_condense_ratio": 4}, {"rope_type": "linear", "factor": 4.0}),
        ({"rope_adjustments": {"factor": 8.0}}, {"rope_type": "linear", "factor": 8.0}),
        ({"rope_adjustments": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                               "original_max_seq_len": 8192}},
         {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}),
        ({"rope_adjustments": {"factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "original_max_seq_len": 8192}},
         {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192, "attention_factor": 1.0}),
    ],
)  # fmt: skip
def test_a_scaling_is_read(keys: dict[str, Any], block: dict[str, Any] | None, tmp_path: Path) -> None:
    read = read_rope(written(tmp_path, {**MISTRAL, **keys}))
    assert equivalent(read.rotation, read_rope({**SAME, "rope_scaling": block}).rotation)
    assert read.facts.declared == 32768


def test_a_share_and_pairs_next_to_one_another(tmp_path: Path) -> None:
    rope = read_rope(written(tmp_path, {**MISTRAL, "rotary_percentage": 0.25, "rope_interleave": True})).rotation
    assert (rope.rotary_dim, rope.layout) == (32, "interleaved")


def test_a_base_that_the_conversion_lost(tmp_path: Path) -> None:
    """Lightning-AI/litgpt#2217."""
    folder = written(tmp_path, {**MISTRAL, "rope_base": 10000})
    assert examine(folder).names() == {"base-below-releases"}
    assert {difference.aspect for difference in compare(SAME, folder).differences if difference.kind == "drift"} == {
        "rotation"
    }
    assert not compare(SAME, written(tmp_path, MISTRAL)).drifted
    assert examine(tmp_path).healthy


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1\n", "no YAML"),
        ("- 1\n", "must hold an object"),
        ("n_embd: 64\nblock_size: 8\nrope_base: 10000\nrope_adjustments: {low: 1}\n", "rope_adjustments"),
        ("n_embd: 64\nblock_size: 8\nrope_base: 10000\nrope_adjustments: {factor: 2, low: 1}\n", "rope_adjustments"),
    ],
)
def test_what_is_none_of_them(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "model_config.yaml").write_text(text)
    with pytest.raises(ValueError, match=words):
        read_rope(tmp_path)
