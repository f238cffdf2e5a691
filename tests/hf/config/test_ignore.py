"""``ignore``: keys that stay in a configuration and are not read."""

from __future__ import annotations

from typing import Any

import pytest

from posenc import RoPE, YaRN
from posenc.hf import model_from_config, read_rope

BLOCK = {
    "rope_type": "yarn", "rope_theta": 1e4, "factor": 40.0, "original_max_position_embeddings": 4096,
    "mscale": 0.707, "mscale_all_dim": 1.0, "beta_fast": 32.0,
}  # fmt: skip
CONFIG: dict[str, Any] = {"model_type": "deepseek_v3", "qk_rope_head_dim": 64, "rope_parameters": BLOCK}
SCALES = ("mscale", "mscale_all_dim")


def without(*keys: str) -> dict[str, Any]:
    return {**CONFIG, "rope_parameters": {key: value for key, value in BLOCK.items() if key not in keys}}


@pytest.mark.parametrize("keys", [("mscale",), SCALES, ("beta_fast",)], ids=str)
def test_an_ignored_key_is_as_if_it_were_not_there(keys: tuple[str, ...]) -> None:
    for config in (CONFIG, {**CONFIG, "rope_parameters": {**BLOCK, **dict.fromkeys(keys, "nonsense")}}):
        read, bare = read_rope(config, ignore=keys), read_rope(without(*keys))
        assert str(read.rope) == str(bare.rope)
        assert read.softmax_factor() == bare.softmax_factor()
        assert [finding.name for finding in read.findings] == [finding.name for finding in bare.findings]
        assert model_from_config(config, ignore=keys).distinct_layers[0].rotation is not None
    assert str(read_rope(CONFIG, ignore=["mscale"]).rope) != str(read_rope(CONFIG).rope)


def test_it_stays_where_it_stands() -> None:
    read = read_rope(CONFIG, ignore=SCALES)
    assert read.to_config() == CONFIG
    for version in (4, 5):
        block = read.to_config(version=version)["rope_scaling" if version == 4 else "rope_parameters"]
        assert (block["mscale"], block["mscale_all_dim"]) == (0.707, 1.0)
    other = RoPE(64, base=1e4, layout="interleaved", scaling=YaRN(8.0, original_length=4096))
    block = read.with_rope(other).to_config()["rope_parameters"]
    assert (block["factor"], block["mscale"], block["mscale_all_dim"]) == (8.0, 0.707, 1.0)
    other = RoPE(64, base=1e4, layout="interleaved", scaling=YaRN(8.0, original_length=4096, attention_factor=2.0))
    block = read.with_rope(other).to_config()["rope_parameters"]
    assert (block["attention_factor"], block["mscale"]) == (float(other.spectrum().gain), 0.707)
    sharper = RoPE(64, base=1e4, layout="interleaved", scaling=YaRN(8.0, original_length=4096, beta_fast=16.0))
    with pytest.raises(ValueError, match=r"beta_fast|RoPE"):
        read_rope(CONFIG, ignore=["beta_fast"]).with_rope(sharper).to_config()


def test_what_stands_twice_or_is_needed() -> None:
    twice = {**CONFIG, "original_max_position_embeddings": 8192, "max_position_embeddings": 163840}
    with pytest.raises(ValueError, match="original_max_position_embeddings"):
        read_rope(twice)
    assert read_rope(twice, ignore=["original_max_position_embeddings"]).findings
    with pytest.raises(ValueError, match="factor"):
        read_rope(CONFIG, ignore=["factor"])


def test_a_null_base_where_it_means_no_rotation() -> None:
    """Olmo Hybrid's released checkpoints."""
    config = {"model_type": "olmo_hybrid", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 8}
    for none in ({"rope_theta": None}, {"rope_parameters": {"rope_type": "default", "rope_theta": None}}):
        assert set(read_rope({**config, **none}).layers.values()) == {None}
        assert {layer.rotation for layer in model_from_config({**config, **none}).layers} == {None}
    assert read_rope({**config, "rope_theta": 5e5}).rope.base == 5e5
    assert read_rope({"model_type": "llama", "head_dim": 16, "rope_theta": None}).rope.base == 1e4
