"""What trainers are told of a rotation, in their own names; settings that would lose a part of it are refused."""

from __future__ import annotations

import json
import math
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from benchmarks.engines.trainers import BLOCKS, LENGTH, RECORD, config_of
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from posenc import LongRoPE, RoPE, YaRN
from posenc.hf import extend_config, read_rope, serve_flags
from posenc.hf.serving import lines
from posenc.hf.serving.lines import TRAINERS, Line, Serving, trainer_line
from posenc.hf.serving.overrides import gain_of_yarn
from posenc_cli import run

LLAMA31 = {
    "model_type": "llama", "head_dim": 128, "rope_theta": 500000.0, "max_position_embeddings": 131072,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192,
                     "low_freq_factor": 1.0, "high_freq_factor": 4.0},
}  # fmt: skip
PLAIN = {**LLAMA31, "max_position_embeddings": 8192, "rope_scaling": None}
YARN = YaRN(4.0, original_length=8192)


def line(program: str, config: dict[str, Any] = LLAMA31, scaling: Any = None) -> Any:
    read = read_rope(config)
    read = read if scaling is None else read.with_rope(RoPE(128, base=500000.0, scaling=scaling))
    (result,) = serve_flags(read, program=program)
    return result


def test_a_file_is_trained_as_it_is() -> None:
    assert json.loads(line("axolotl").command) == {"base_model": "DIR", "sequence_len": 131072}
    assert json.loads(line("llama-factory").command) == {"model_name_or_path": "DIR", "cutoff_len": 131072}
    assert "actor_rollout_ref.model.path=DIR" in line("verl").words
    assert line("trl")._replace(engine="transformers") == line("transformers")
    assert not any(line(program).right for program in ("axolotl", "llama-factory", "verl")), "not run"
    assert line("llamafactory") == line("llama-factory")


def test_programs_that_read_no_config_get_every_number() -> None:
    settings = json.loads(line("litgpt").command.partition(": ")[2])
    assert settings["rope_base"] == 500000.0
    block = {key: value for key, value in LLAMA31["rope_scaling"].items() if key.endswith("factor")}  # type: ignore[attr-defined]
    assert settings["rope_adjustments"] == {**block, "original_max_seq_len": 8192}
    assert line("litgpt").right
    assert line("torchtitan").right
    assert "scaling='llama', scaling_factor=8.0" in line("torchtitan").command
    assert "rope_scaling=True, rope_scaling_factor=8.0" in line("megatron").command
    other = {**LLAMA31, "rope_scaling": {**LLAMA31["rope_scaling"], "low_freq_factor": 2.0}}  # type: ignore[dict-item]
    assert not line("megatron", other).command, "its numbers are written down"


def test_what_would_be_lost_is_no_setting() -> None:
    overrides = json.loads(line("axolotl", PLAIN, YARN).command)["overrides_of_model_config"]
    assert overrides["rope_parameters"]["factor"] == 4.0
    assert overrides["max_position_embeddings"] == 32768
    for program in ("llama-factory", "verl", "torchtitan"):
        assert not line(program, PLAIN, YARN).command, program
    assert (line("litgpt", PLAIN, YARN).command, line("litgpt", PLAIN, YARN).right) == ("", False)
    assert "'yarn_mscale': 1.0, 'yarn_mscale_all_dim': 0.0" in line("megatron", PLAIN, YARN).command
    lists = LongRoPE([1.0] * 64, [4.0] * 64, original_length=8192, factor=4.0)
    for program in ("litgpt", "torchtitan", "megatron"):
        assert not line(program, PLAIN, lists).command, program
    kinds = {"model_type": "gemma3_text", "head_dim": 64, "max_position_embeddings": 8192,
             "rope_local_base_freq": 1e4, "rope_theta": 1e6}  # fmt: skip
    for program in ("litgpt", "torchtitan", "megatron"):
        assert not line(program, kinds).command, program


def test_what_axolotl_sets_makes_the_module_rotate_so() -> None:
    """axolotl sets each override as an attribute of the config that transformers loaded, and then builds the model."""
    overrides = json.loads(line("axolotl", PLAIN, YARN).command)["overrides_of_model_config"]
    config = LlamaConfig(head_dim=128, hidden_size=512, num_attention_heads=4, max_position_embeddings=8192,
                         rope_parameters={"rope_type": "default", "rope_theta": 500000.0})  # fmt: skip
    for key, value in overrides.items():
        setattr(config, key, value)
    module, spectrum = LlamaRotaryEmbedding(config), RoPE(128, base=500000.0, scaling=YARN).spectrum()
    torch.testing.assert_close(module.inv_freq.double(), spectrum.theta.double(), rtol=1e-6, atol=0)
    assert module.attention_scaling == pytest.approx(float(spectrum.gain))


def test_the_record_of_megatrons_classes() -> None:
    """Every kind of block that its line is printed for was run, and is right up to float32 angles."""
    record = json.loads(RECORD.read_text())["largest difference"]
    assert record.keys() == BLOCKS.keys()
    for row, block in BLOCKS.items():
        assert record[row] < 1e-4, row
        found = trainer_line(Serving(read_rope(config_of(block)), LENGTH), "megatron")
        assert (bool(found.command), found.right) == (True, True), row


@pytest.mark.parametrize("keys", [{}, {"attention_factor": 1.3}, {"attention_factor": 1.0}, {"mscale": 0.7},
                                  {"mscale": 1.0, "mscale_all_dim": 0.5}])  # fmt: skip
def test_the_gain_as_a_pair_of_scales(keys: dict[str, float]) -> None:
    gain, scale, all_dim = gain_of_yarn({"factor": 4.0, **keys})

    def m(a: float) -> float:
        return 0.1 * a * math.log(4.0) + 1

    assert gain == pytest.approx(float(YaRN(4.0, original_length=8192, **keys).gain))
    assert m(scale) / m(all_dim) == pytest.approx(gain)


@pytest.mark.parametrize(("kind", "names"), [("engines", "ENGINES"), ("trainers", "TRAINERS")])
def test_another_engine_or_trainer_is_one_file(
    kind: str, names: str, tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = ModuleType(f"posenc.hf.serving.{kind}.my_own")
    module.COLUMN, module.line = "my_own", lambda serving: Line("my-own", "1", f"run {serving.length}", None, "new")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(lines, names, (*getattr(lines, names), "my-own"))
    (tmp_path / "config.json").write_text(json.dumps(LLAMA31))
    assert run(["serve", str(tmp_path), "--for", "my-own"]) == 0
    assert capsys.readouterr().out == "my-own 1: run 131072   (new)\n"
    served = [each.engine for each in extend_config(LLAMA31, 2**20).engines]
    assert ("my-own" in served) == (kind == "engines")


def test_the_command(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA31))
    for program in (*TRAINERS, "trl", "vllm"):
        assert run(["serve", str(tmp_path), "--for", program, "--json"]) == 0
        (found,) = json.loads(capsys.readouterr().out)
        assert found["command"], program
    assert run(["serve", str(tmp_path), "--for", "nobody"]) == 2
