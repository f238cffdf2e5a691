"""M-RoPE in configurations: read by family and key, written back and from nothing, and told in words."""

from __future__ import annotations

from typing import Any

import pytest

from posenc import LongRoPE, MRoPE, RoPE, YaRN
from posenc.frequencies import Resonance
from posenc.hf import facts, read_rope, rope_to_config
from posenc.hf.config.rotation import equivalent, order_of, text_rope
from tests.hf.checkpoints import CHECKPOINTS, FULL, SLIDING

SECTIONS = (24, 20, 20)


def config_of(model_type: str, **block: Any) -> dict[str, Any]:
    return {"model_type": model_type, "head_dim": 128, "rope_parameters": {"rope_theta": 1e6, **block}}


def findings(config: dict[str, Any]) -> dict[str, str]:
    return {finding.key: finding.text for finding in read_rope(config).findings}


@pytest.mark.parametrize(
    ("model_type", "key", "order"),
    [
        ("qwen2_vl", None, "chunked"),
        ("qwen2_vl", True, "chunked"),
        ("qwen3_vl_text", None, "interleaved"),
        ("qwen3_vl_text", False, "interleaved"),
        ("ernie4_5_vl_moe_text", True, "time last"),
        ("llama", None, "chunked"),
        ("llama", True, "interleaved"),
        ("new_model", True, "interleaved"),
        ("new_model", False, "chunked"),
    ],
)
def test_the_family_decides_on_the_order_and_else_the_key(model_type: str, key: bool | None, order: str) -> None:
    block = {} if key is None else {"mrope_interleaved": key}
    config = config_of(model_type, mrope_section=list(SECTIONS), **block)
    rope = read_rope(config).rope
    assert order_of(rope) == order
    reported = key is not None and key != (order == "interleaved")
    assert ("mrope_interleaved" in findings(config)) == reported, "a key that the family's code does not heed"


def test_a_family_has_its_own_sections() -> None:
    config = config_of("qwen3_vl_text")
    assert read_rope(config).rope.sections == SECTIONS
    assert "[24, 20, 20]" in findings(config)["mrope_section"]
    assert read_rope(config).to_config() == config
    written = read_rope(config).to_config(version=5)["rope_parameters"]
    assert (written["mrope_section"], written["mrope_interleaved"]) == ([24, 20, 20], True), "vLLM reads the key"


def test_sections_where_the_family_has_none() -> None:
    known = config_of("llama", mrope_section=list(SECTIONS))
    assert read_rope(known).rope.sections == SECTIONS
    assert "sections-ignored" in {finding.name for finding in read_rope(known).findings}
    assert set(findings(config_of("new_model", mrope_section=list(SECTIONS)))) == {"model_type"}
    assert isinstance(read_rope(config_of("llama", mrope_interleaved=True)).rope, RoPE)


def test_a_scaling_put_on_leaves_the_sections() -> None:
    config, _ = CHECKPOINTS["qwen2-vl-7b"]
    rope = MRoPE(128, sections=(16, 24, 24), scaling=YaRN(4.0, original_length=32768))
    written = read_rope(config).with_rope(rope).to_config()
    block = {"type": "yarn", "mrope_section": [16, 24, 24], "factor": 4.0, "original_max_position_embeddings": 32768}
    assert written == {**config, "rope_scaling": block}
    other = MRoPE(128, sections=(32, 16, 16))
    changed = read_rope(config).with_rope(other).to_config()["rope_scaling"]
    assert changed == {"type": "mrope", "mrope_section": [32, 16, 16]}
    silent = config_of("qwen3_vl_text", rope_type="default")
    rope = MRoPE(128, sections=SECTIONS, interleaved=True, scaling=YaRN(4.0, original_length=4096))
    block = read_rope(silent).with_rope(rope).to_config()["rope_parameters"]
    assert "mrope_section" not in block, "its own sections are still silent under another rope type"


def test_sections_go_with_the_rotation_that_had_them() -> None:
    config = config_of("new_model", mrope_section=list(SECTIONS), mrope_interleaved=True)
    read = read_rope(config)
    assert read.with_rope(RoPE(128, base=1e6)).to_config() == config_of("new_model", mrope_interleaved=True)
    chunked = read.with_rope(MRoPE(128, sections=SECTIONS))
    for version in (None, 5):
        assert chunked.to_config(version)["rope_parameters"]["mrope_interleaved"] is False
    with pytest.raises(ValueError, match=r"MRoPE.*\(24, 20, 20\).*RoPE\(128"):
        read_rope(config_of("qwen3_vl_text")).with_rope(RoPE(128, base=1e6)).to_config()


@pytest.mark.parametrize(
    ("rope", "model_type"),
    [
        (MRoPE(128, sections=SECTIONS, time_last=True, layout="interleaved"), None),
        (MRoPE(128, sections=SECTIONS, interleaved=True), "qwen2_vl"),
        (MRoPE(128, sections=SECTIONS), "qwen3_vl_text"),
        (MRoPE(128, sections=(32, 32), axes=2), None),
        (MRoPE(128, sections=(8, 12, 12, 8, 12, 12)), None),
        (MRoPE(128, sections=(0, 32, 32)), None),
        (RoPE(128), "qwen2_vl"),
    ],
)
def test_what_no_keys_can_say_is_refused(rope: Any, model_type: str | None) -> None:
    with pytest.raises(ValueError, match=r"mrope_section|MRoPE"):
        rope_to_config(rope, model_type=model_type)


def test_from_nothing() -> None:
    assert rope_to_config(MRoPE(128, sections=SECTIONS, interleaved=True)) == {
        "head_dim": 128,
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 1e6, "mrope_section": [24, 20, 20], "mrope_interleaved": True,
        },
    }  # fmt: skip
    glm = MRoPE(128, sections=(8, 12, 12), rotary_dim=64, base=1e4, layout="interleaved")
    assert rope_to_config(glm, version=4, model_type="glm4v_text") == {
        "model_type": "glm4v_text", "head_dim": 128, "rope_theta": 1e4, "partial_rotary_factor": 0.5,
        "rope_scaling": {"rope_type": "default", "mrope_section": [8, 12, 12]},
    }  # fmt: skip
    layers = {FULL: MRoPE(128, sections=SECTIONS), SLIDING: RoPE(128)}
    again = read_rope(rope_to_config(layers)).layers
    assert [type(again[kind]) for kind in layers] == [MRoPE, RoPE]


def test_factors_of_the_pairs_keep_the_sections() -> None:
    rope = MRoPE(128, sections=SECTIONS, interleaved=True, scaling=Resonance())
    read = read_rope(rope_to_config(rope, as_longrope=True, original_length=4096)).rope
    assert isinstance(text_rope(read).scaling, LongRoPE)
    assert equivalent(read, rope)
    assert not equivalent(read, text_rope(rope))


@pytest.mark.parametrize(
    ("name", "order", "pairs"),
    [("qwen2-vl-7b", "chunked", [16, 24, 24]), ("qwen3-vl-8b", "interleaved", [24, 20, 20]),
     ("ernie-4.5-vl-28b", "time last", [20, 22, 22])],
)  # fmt: skip
def test_pairs_of_each_axis(name: str, order: str, pairs: list[int]) -> None:
    sections = facts(read_rope(CHECKPOINTS[name][0]))["layers"]["all"]["sections"]
    assert (sections["order"], [axis["pairs"] for axis in sections["axes"].values()]) == (order, pairs)


def test_wavelengths_of_the_axes() -> None:
    """Qwen2-VL's chunks give time the shortest waves, Qwen3-VL's turns give every axis long ones."""
    longest = {}
    for name in ("qwen2-vl-7b", "qwen3-vl-8b"):
        sections = facts(read_rope(CHECKPOINTS[name][0]))["layers"]["all"]["sections"]
        longest[name] = [axis["scaled_wavelengths"]["longest"] for axis in sections["axes"].values()]
    assert longest["qwen2-vl-7b"][0] == pytest.approx(6.283185307 * 1e6 ** (15 / 64))
    assert longest["qwen3-vl-8b"] == pytest.approx([6.283185307 * 5e6 ** (j / 64) for j in (63, 58, 59)])
    assert facts(read_rope(CHECKPOINTS["qwen3-8b"][0]))["layers"]["all"]["sections"] is None
