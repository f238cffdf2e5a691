"""recommend, extend (of a config alone, and of a live model), serve-flags and SERVING.md: one plan for one question.

Over every published config and a dozen lengths: type, factor and original length, or the code of the refusal.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import posenc_cli
from posenc.hf import extend_config, read_rope
from posenc.hf.config.text_config import find_text_config, max_length
from posenc.hf.plan.plan import Refused, plan_extension, plan_or_refusal
from posenc.hf.serving.lines import reach_of, serve_flags
from posenc.recommend import Needs, recommend
from posenc.recommend.needs import read_checkpoint
from tests.hf.extend.ten_models import PUBLISHED

LENGTHS = (512, 4096, 8192, 32768, 40000, 40960, 65536, 131072, 262144, 524288, 1000000, 1010000, 2**21)
Outcome = tuple[Any, ...]


def outcome(record: Any) -> Outcome:
    """What is compared of a plan or a refusal as plain data."""
    if "refused" in record:
        return ("refused", record["refused"])
    return record["method"], record["factor"], record["original_length"], record["documented"]


def planned(config: dict[str, Any], length: int) -> Outcome:
    """The plan itself."""
    return outcome(plan_or_refusal(config, length).record())


def written(config: dict[str, Any], length: int) -> Outcome:
    """As `posenc extend --config-only` writes it."""
    try:
        return outcome(extend_config(config, length).record())
    except Refused as refusal:
        return outcome(refusal.record())


def readable() -> list[str]:
    """Published models that posenc reads."""
    names = []
    for name, config in PUBLISHED.items():
        try:
            read_rope(config)
        except ValueError:
            continue
        names.append(name)
    return names


@pytest.mark.parametrize("model", readable())
def test_recommend_extend_and_serve_flags_agree(model: str, tmp_path: Path) -> None:
    config = PUBLISHED[model]
    (tmp_path / "config.json").write_text(json.dumps(config))
    checkpoint, kind = read_checkpoint(tmp_path)
    read = read_rope(config)
    reach = reach_of(read.facts)
    for length in LENGTHS:
        expected = planned(config, length)
        whole = length in LENGTHS[::4]  # each writes every engine's line, which takes its time
        assert not whole or written(config, length) == expected
        declared = max_length(read.text_config) or checkpoint.declared
        if declared is not None and length > declared:
            needs = Needs("checkpoint", kind, train_length=declared, length=length, checkpoint=checkpoint)
            assert outcome(recommend(needs).plan) == expected, (model, length)
        if whole and reach is not None and length > reach and any(read.rotations.values()):
            assert not any(flags.words for flags in serve_flags(read, length=length)), "no line serves it unscaled"


@pytest.mark.parametrize("model", readable())
def test_a_live_configuration_is_planned_as_the_file_is(model: str) -> None:
    """transformers' own configuration of a model, in version 5's keys, from which the measured extension starts."""
    transformers = pytest.importorskip("transformers")
    config = PUBLISHED[model]
    text_config = find_text_config(config)
    try:
        live = transformers.AutoConfig.for_model(**copy.deepcopy(config)).get_text_config().to_dict()
        read_rope(live)
    except (ValueError, KeyError, AttributeError, TypeError):
        pytest.skip("transformers or posenc does not read this configuration")
    if max_length(find_text_config(live)) != max_length(text_config):
        pytest.skip("transformers' class has another length")
    for length in LENGTHS[::4]:
        assert planned(live, length) == planned(config, length), length


def test_extend_of_a_live_model_follows_the_authors() -> None:
    """Qwen3's file declares 40,960 and its authors count from 32,768: factor 4, not 3.2."""
    pytest.importorskip("transformers")
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from posenc.hf.attach.rotary_modules import RotaryModules

    rope = {"rope_type": "default", "rope_theta": 1e6}
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 128}
    config = Qwen3Config(**sizes, num_hidden_layers=1, intermediate_size=64, max_position_embeddings=40960,
                         rope_parameters=rope)  # fmt: skip
    rotations = RotaryModules(Qwen3ForCausalLM(config))
    assert rotations.original_length == 32768
    plan = plan_extension(rotations.read.config, 131072)
    assert (plan.method, plan.factor, plan.original, plan.start) == ("yarn", 4.0, 32768, 32768)
    for written in (rotations.config_of(plan), rotations.planned_config("yarn", 32768, 131072)):
        assert written["rope_parameters"] == {
            **rope, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768
        }  # fmt: skip
        assert written["max_position_embeddings"] == 131072


def test_serve_flags_prints_the_command_that_extends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "my model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(PUBLISHED["Qwen/Qwen3-8B"]))
    assert posenc_cli.run(["serve-flags", str(folder), "--length", "128k", "--json"]) == 0
    for engine in json.loads(capsys.readouterr().out):
        assert engine["words"] == []
        assert (engine["method"], engine["factor"], engine["original_length"]) == ("yarn", 4.0, 32768)
        assert engine["extend"][:5] == ["posenc", "extend", str(folder), "--length", "131072"]
    assert posenc_cli.run(["serve-flags", str(folder), "--length", "128k"]) == 0
    printed = capsys.readouterr().out
    assert f"posenc extend '{folder}' --length 131072 --config-only" in printed
    assert "--hf-overrides" not in printed
    (folder / "config.json").write_text(json.dumps(PUBLISHED["mistralai/Mistral-7B-v0.1"]))
    assert posenc_cli.run(["serve-flags", str(folder), "--length", "128k", "--json"]) == 0
    assert {engine["refused"] for engine in json.loads(capsys.readouterr().out)} == {"windows"}
    (folder / "config.json").write_text(json.dumps(PUBLISHED["Qwen/Qwen3-8B"]))
    block = '{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}'
    assert posenc_cli.run(["serve-flags", str(folder), "--rope", block, "--length", "128k", "--json"]) == 0
    assert all(engine["words"] for engine in json.loads(capsys.readouterr().out))
    assert posenc_cli.run(["serve-flags", str(folder), "--rope", block, "--length", "256k", "--json"]) == 0
    assert not any(engine["words"] for engine in json.loads(capsys.readouterr().out))


def test_a_factor_that_reaches_the_length_stays() -> None:
    """Qwen's card leaves the declared length at 40,960 beside factor 4: up to 131,072 tokens only that length grows."""
    block = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    config = {**PUBLISHED["Qwen/Qwen3-8B"], "rope_scaling": block}
    for length in (65536, 131072):
        extended = extend_config(config, length)
        assert (extended.plan.factor, extended.plan.original) == (4.0, 32768)
        assert extended.config == {**config, "max_position_embeddings": length}
    assert plan_extension(config, 262144).factor == 8.0
    assert plan_extension(config, 262144).start == 131072


def test_a_transformer_of_diffusers_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"_class_name": "WanTransformer3DModel", "num_attention_heads": 12, "attention_head_dim": 128}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert posenc_cli.run(["extend", str(tmp_path), "--length", "8192", "--config-only"]) == 2
    assert "WanTransformer3DModel of diffusers; posenc explain" in capsys.readouterr().err


def test_the_base_of_ntk_scaling_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Vicuna with a block that transformers does not have: the base that means the same is in the refusal."""
    vicuna = {"model_type": "llama", "head_dim": 128, "max_position_embeddings": 2048, "rope_theta": 1e4}
    (tmp_path / "config.json").write_text(json.dumps(vicuna))
    assert posenc_cli.run(["serve", str(tmp_path), "--rope", '{"rope_type": "ntk", "factor": 2.0}']) == 2
    assert "20221.26" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["131072", "131,072", "128k", "128K"])
def test_lengths_as_people_write_them(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED["Qwen/Qwen3-8B"]))
    assert posenc_cli.run(["extend", str(tmp_path), "--length", text, "--config-only", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["length"] == 131072
    assert posenc_cli.run(["recommend", str(tmp_path), "--length", text, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"]["factor"] == 4.0
    for wrong in ("128kb", "-1", "1.5k", ""):
        assert posenc_cli.run(["extend", str(tmp_path), "--length", wrong, "--config-only"]) == 2
        assert "128k" in capsys.readouterr().err
