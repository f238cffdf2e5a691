"""max_position_embeddings follows a rotation that was changed, and leaves alone what was not."""

from __future__ import annotations

from typing import Any

import pytest

from posenc import Llama3, LongRoPE, NTKAware, PositionInterpolation, RoPE, YaRN
from posenc.frequencies.modules import DynamicNTK
from posenc.hf import read_rope, rope_to_config
from tests.hf.checkpoints import CHECKPOINTS, FULL

LLAMA, _ = CHECKPOINTS["llama-2-7b"]
ONES = [1.0] * 64


def written(name: str, scaling: Any, base: float = 1e4, version: int | None = None) -> dict[str, Any]:
    config, _ = CHECKPOINTS[name]
    result: dict[str, Any] = read_rope(config).with_rope(RoPE(128, base=base, scaling=scaling)).to_config(version)
    return result


@pytest.mark.parametrize(
    ("scaling", "length"),
    [
        (YaRN(4.0, original_length=4096), 16384),
        (YaRN(1.0, original_length=4096), 4096),
        (LongRoPE(ONES, ONES, original_length=4096, factor=8.0), 32768),
        (Llama3(8.0, original_length=4096), 32768),
        (PositionInterpolation(4.0), 4096),
        (DynamicNTK(2.0, original_length=4096), 4096),
        (DynamicNTK(2.0, original_length=2048), 2048),
        (NTKAware(4.0), 4096),
        (None, 4096),
    ],
    ids=str,
)
@pytest.mark.parametrize("version", [None, 4, 5])
def test_a_new_scaling_declares_what_it_stretches_to(scaling: Any, length: int, version: int | None) -> None:
    config = written("llama-2-7b", scaling, version=version)
    assert config["max_position_embeddings"] == length
    block = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if "factor" in block and block["rope_type"] in ("yarn", "longrope", "llama3"):
        assert block["original_max_position_embeddings"] == 4096, "the trained length stands in the block"


def test_the_length_follows_another_factor() -> None:
    assert written("yarn-llama-2-7b-64k", YaRN(4.0, original_length=4096))["max_position_embeddings"] == 16384
    assert written("yarn-llama-2-7b-64k", YaRN(32.0, original_length=4096))["max_position_embeddings"] == 131072
    assert written("yarn-llama-2-7b-64k", None)["max_position_embeddings"] == 65536, "for the new base, who knows"
    assert written("llama-3.1-8b", Llama3(8.0, original_length=8192), 1e6)["max_position_embeddings"] == 131072


def test_a_trained_length_beside_a_scaling_is_kept() -> None:
    name = "qwen2.5-7b-instruct with yarn"
    assert written(name, YaRN(2.0, original_length=32768), 1e6)["max_position_embeddings"] == 32768


def test_a_block_that_leaned_on_the_old_length_says_it() -> None:
    config = {**LLAMA, "rope_scaling": {"type": "yarn", "factor": 2.0}}
    read = read_rope(config)
    assert read.to_config() == config
    changed = read.with_rope(RoPE(128, scaling=YaRN(8.0, original_length=2048))).to_config()
    assert changed["max_position_embeddings"] == 16384
    assert changed["rope_scaling"] == {"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 2048}
    assert read_rope(changed).rope.scaling.original_length == 2048


def test_kinds_of_layers_and_inner_parts() -> None:
    config, _ = CHECKPOINTS["gemma-3-4b"]
    read = read_rope(config)
    rope = RoPE(256, base=1e6, scaling=YaRN(8.0, original_length=32768))
    text = read.with_rope({FULL: rope}).to_config(version=5)["text_config"]
    assert text["max_position_embeddings"] == 262144
    assert "max_position_embeddings" not in read.with_rope({FULL: rope}).to_config(version=5)


def test_from_nothing() -> None:
    assert rope_to_config(RoPE(64, scaling=YaRN(4.0, original_length=4096)))["max_position_embeddings"] == 16384
    for scaling in (Llama3(8.0, original_length=8192), PositionInterpolation(4.0), None):
        assert "max_position_embeddings" not in rope_to_config(RoPE(64, scaling=scaling))


def test_keys_that_nothing_reads_survive() -> None:
    for kind in ("default", "linear", "dynamic"):
        factor = {} if kind == "default" else {"factor": 2.0}
        block = {"type": kind, **factor, "finetuned": True, "original_max_position_embeddings": 4096}
        config = {**LLAMA, "rope_scaling": block, "vendor": {"deep": [1, {"x": None}]}}
        assert read_rope(config).to_config() == config
