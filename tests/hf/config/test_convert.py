"""Rope keys in the spelling of version 4, of version 5, or of both: what is written, and that it means the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import posenc_cli
from posenc.hf import convert_config, read_rope
from posenc.hf.config.rotation import equivalent
from tests.golden import configs

PUBLISHED = {line["model"]: line["config"] for line in configs("published_configs")}
SIZES = {"hidden_size": 256, "num_attention_heads": 4}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
OLD = {"model_type": "qwen3", "head_dim": 128, "rope_theta": 1e6, "rope_scaling": YARN}
NEW = {"model_type": "qwen3", "head_dim": 128, "rope_parameters": {**YARN, "rope_theta": 1e6}}


def test_both_from_either() -> None:
    for config in (OLD, NEW):
        assert convert_config(config).config == {**OLD, **NEW}
        assert convert_config({**OLD, **NEW}).diff == "", "nothing to add"
    assert convert_config(OLD, "v5").config == NEW
    assert convert_config(NEW, "v4").config == OLD
    assert convert_config(OLD, "v4").diff == convert_config(NEW, "v5").diff == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"model_type": "gpt_neox", "rotary_emb_base": 5e4, "rotary_pct": 0.5, "rope_scaling": None, **SIZES},
         {"model_type": "gpt_neox", **SIZES, "rope_parameters": {"rope_type": "default", "rope_theta": 5e4,
                                                                 "partial_rotary_factor": 0.5}}),
        ({"model_type": "gemma3_text", "rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": None, **SIZES},
         {"model_type": "gemma3_text", **SIZES, "rope_parameters": {
             "full_attention": {"rope_type": "default", "rope_theta": 1e6},
             "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}),
        ({"model_type": "qwen2_vl_text", "rope_theta": 1e6, **SIZES,
          "rope_scaling": {"rope_type": "default", "mrope_section": [8, 12, 12]}},
         {"model_type": "qwen2_vl_text", **SIZES,
          "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [8, 12, 12]}}),
        ({"model_type": "phi3", "rope_theta": 1e4, "original_max_position_embeddings": 4096, **SIZES,
          "max_position_embeddings": 8192, "partial_rotary_factor": 0.75,
          "rope_scaling": {"rope_type": "longrope", "short_factor": [1.0] * 24, "long_factor": [2.0] * 24}},
         {"model_type": "phi3", "original_max_position_embeddings": 4096, **SIZES, "max_position_embeddings": 8192,
          "rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 24,
                              "long_factor": [2.0] * 24, "partial_rotary_factor": 0.75}}),
    ],
    ids=["share and base of other names", "kinds of layers", "M-RoPE", "a length outside the block"],
)  # fmt: skip
def test_families(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert convert_config(old, "v5").config == new
    assert convert_config(new, "v4").config == old


def test_a_text_config_inside() -> None:
    config = {"model_type": "qwen2_5_vl", "text_config": {**OLD, "model_type": "qwen2_5_vl_text"}, "rope_theta": 1.0}
    converted = convert_config(config, "v5").config
    assert converted["text_config"] == {**NEW, "model_type": "qwen2_5_vl_text"}
    assert converted["rope_theta"] == 1.0, "keys outside the text config stay"


def test_a_base_that_is_missing_in_the_block_is_added() -> None:
    config = {**OLD, "rope_scaling": None, "rope_parameters": YARN}
    assert convert_config(config).config["rope_parameters"] == {**YARN, "rope_theta": 1e6}


@pytest.mark.parametrize("model", PUBLISHED)
@pytest.mark.parametrize("spelling", ["both", "v4", "v5"])
def test_published_configs_mean_the_same(model: str, spelling: str) -> None:
    conversion = None
    try:
        conversion = convert_config(PUBLISHED[model], spelling)
    except ValueError as error:
        text = str(error)
    if conversion is None:
        reasons = ("no layer rotates", "does not have model_type", "is not read", "reads no rope block", "choose v4")
        assert any(reason in text for reason in reasons), text
        return
    before, after = read_rope(PUBLISHED[model]), read_rope(conversion.config)
    assert before.layers.keys() == after.layers.keys()
    assert all(equivalent(rope, after.layers[kind]) for kind, rope in before.layers.items())
    assert convert_config(conversion.config, spelling).diff == "", "a second run changes nothing"


def test_no_old_form() -> None:
    for model, reason in (("google/gemma-4-31B", "gemma4_text"), ("Qwen/Qwen3.5-27B", "qwen3_5_text")):
        conversion = convert_config(PUBLISHED[model])
        assert reason in conversion.no_old_form
        assert conversion.diff == "", "version 5's keys are there already"
        with pytest.raises(ValueError, match="version 4 of transformers does not have model_type"):
            convert_config(PUBLISHED[model], "v4")
    proportional = {**NEW, "rope_parameters": {"rope_type": "proportional", "rope_theta": 1e6}}
    assert "does not have rope type 'proportional'" in convert_config(proportional).no_old_form
    kinds = {"model_type": "unheard", "head_dim": 64, "layer_types": ["full_attention", "sliding_attention"],
             "rope_parameters": {kind: {"rope_type": "default", "rope_theta": base}
                                 for kind, base in (("full_attention", 1e6), ("sliding_attention", 1e4))}}  # fmt: skip
    assert "layers of several kinds" in convert_config(kinds).no_old_form


@pytest.mark.parametrize(
    ("config", "options", "says"),
    [
        (OLD, {"spelling": "v6"}, "spelling must be one of both, v4, v5"),
        (PUBLISHED["openai-community/gpt2"], {}, "no layer rotates, so there is nothing to convert"),
        (PUBLISHED["EleutherAI/gpt-j-6b"], {}, "reads no rope block"),
        (OLD, {"out": "x", "in_place": True}, "out or in_place"),
        (OLD, {"in_place": True}, "the source is no file"),
        ({**OLD, "rope_theta": "1e6"}, {}, "rope_theta"),
    ],
)
def test_refusals(config: dict[str, Any], options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        convert_config(config, **options)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(OLD, indent=4))
    command = ["convert", str(folder), "--spelling"]
    assert posenc_cli.run([*command, "both"]) == 0
    printed = capsys.readouterr().out
    assert '+    "rope_parameters": {' in printed
    assert "--in-place" in printed
    assert posenc_cli.run([*command, "v5", "--out", str(tmp_path / "new")]) == 0
    assert json.loads((tmp_path / "new" / "config.json").read_text()) == NEW
    assert posenc_cli.run([*command, "both", "--in-place"]) == 0
    assert json.loads((folder / "config.json").read_text()) == {**OLD, **NEW}
    assert json.loads((folder / "config.json.original").read_text()) == OLD
    capsys.readouterr()
    assert posenc_cli.run([*command, "both", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["diff"] == ""
    assert posenc_cli.run([*command, "both", "--in-place"]) == 0
    assert "nothing to write" in capsys.readouterr().out
    assert not (folder / "config.json.original-2").exists()
    assert posenc_cli.run(["convert", str(folder / "none.gguf"), "--spelling", "v4"]) == 2
