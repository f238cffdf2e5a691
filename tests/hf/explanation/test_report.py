"""What a configuration means, in numbers, in words and on the command line."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import posenc_cli
from posenc import RoPE
from posenc.hf import PRESETS, as_text, explain, facts, model_from_config, preset, read_rope, serve_flags
from posenc.hf.explanation.report import layer_lines
from posenc.hf.families import NON_ROTARY, ROTARY, UNSUPPORTED
from tests.hf.checkpoints import CHECKPOINTS, FULL, SLIDING


def facts_of(name: str, kind: str = "all") -> dict[str, Any]:
    result: dict[str, Any] = facts(read_rope(CHECKPOINTS[name][0]))["layers"][kind]
    return result


def test_numbers_of_llama_2() -> None:
    result = facts_of("llama-2-7b")
    assert (result["pairs"], result["rotating_pairs"], result["base"], result["layout"]) == (64, 64, 1e4, "half")
    assert result["wavelengths"]["shortest"] == pytest.approx(2 * math.pi)
    assert result["wavelengths"]["longest"] == pytest.approx(2 * math.pi * 1e4 ** (126 / 128))
    # 2 pi 10000^(j / 64) > 4096 from j = 45.03 on
    assert (result["trained_length"], result["pairs_without_full_rotation"]) == (4096, 64 - 46)
    assert (result["gain"], result["logit_factor"], result["softmax_factor"], result["length_dependent"]) == (
        1,
        1,
        1,
        False,
    )
    assert result["scaling"] is None


def test_explain_reads_what_read_rope_reads(tmp_path: Path) -> None:
    config = CHECKPOINTS["yarn-llama-2-7b-64k"][0]
    (tmp_path / "config.json").write_text(json.dumps(config))
    read = read_rope(config)
    for source in (config, read, tmp_path, tmp_path / "config.json"):
        explanation = explain(source)
        assert explanation.facts == facts(read) == json.loads(explanation.json())
        assert str(explanation) == as_text(read)
        assert explanation.layers == layer_lines(read)
    assert explain(config, convention="deepseek").config.facts.reading.convention == "deepseek"


def test_numbers_of_scaled_models() -> None:
    result = facts_of("yarn-llama-2-7b-64k")
    assert (result["trained_length"], result["longest_length"]) == (4096, 65536)
    assert result["gain"] == pytest.approx(0.1 * math.log(16) + 1)
    assert result["logit_factor"] == pytest.approx(result["gain"] ** 2)
    assert result["scaled_wavelengths"]["longest"] == pytest.approx(16 * result["wavelengths"]["longest"])
    deepseek = facts_of("deepseek-v3")
    assert (deepseek["gain"], deepseek["softmax_factor"]) == (1.0, pytest.approx((0.1 * math.log(40) + 1) ** 2))
    phi = facts_of("phi-3.5-mini")
    assert phi["length_dependent"]
    assert phi["gain"] == pytest.approx(math.sqrt(1 + math.log(32) / math.log(4096)))
    assert facts_of("llama-3.2-1b")["longest_length"] == 131072, "Llama 3's factor says less than the declared length"
    assert facts_of("dynamic")["longest_length"] == 4096
    assert facts_of("gpt-j-6b")["trained_length"] == 2048, "under its own name, n_positions"


def test_pairs_that_never_turn_do_not_count() -> None:
    full = facts_of("gemma-4", FULL)
    assert (full["pairs"], full["rotating_pairs"]) == (256, 64)
    assert full["wavelengths"]["longest"] == pytest.approx(2 * math.pi * 1e6 ** (126 / 512))


def test_a_window_bounds_the_distances() -> None:
    config = {**preset("gemma-3"), "sliding_window": 512}
    layers = facts(read_rope(config))["layers"]
    assert (layers[FULL]["window"], layers[SLIDING]["window"]) == (None, 512)
    # 2 pi 10000^(j / 128) > 512 from j = 61.1 on
    assert layers[SLIDING]["pairs_without_full_rotation"] == 128 - 62


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_every_checkpoint_can_be_explained(name: str) -> None:
    config, expected = CHECKPOINTS[name]
    read = read_rope(config)
    json.dumps(facts(read), allow_nan=False)
    text = as_text(read)
    for kind, rope in expected.items():
        assert kind == "all" or f"layers       {kind}" in text
        width = facts(read)["layers"][kind]["head_width"] if rope else None
        assert f"{width} channels" in text if rope else "rotation     none" in text
    assert all(finding.text in text for finding in read.findings)
    assert max(map(len, text.splitlines())) < 2500


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024, "rope_theta": 1e6}


def test_what_is_suspicious_comes_before_the_numbers() -> None:
    config = {"model_type": "qwen3", "head_dim": 128, "rope_theta": 1e6, "max_position_embeddings": 8192}
    block = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
    text = as_text(read_rope({**config, "rope_paramters": block}))
    assert 0 < text.index("rope_paramters") < text.index("meant for")


def test_presets() -> None:
    for name, config in PRESETS.items():
        convention = "vllm" if name.startswith("vllm") else "transformers"
        read = read_rope(preset(name), convention=convention)  # type: ignore[arg-type]
        assert read.to_config() == config
        assert preset(name) is not config
    same = read_rope(preset("vllm-yarn"), convention="vllm").rope.spectrum()
    assert same.gain == read_rope(preset("qwen2.5-yarn")).rope.spectrum().gain
    with pytest.raises(ValueError, match="gpt-oss"):
        preset("gptoss")


class TestCommand:
    def run(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
        code = posenc_cli.run(["explain", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    def write(self, folder: Path, config: dict[str, Any]) -> str:
        (folder / "config.json").write_text(json.dumps(config))
        return str(folder)

    def test_text_and_json(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        config, _ = CHECKPOINTS["llama-3.1-8b"]
        path = self.write(tmp_path, config)
        assert self.run(capsys, path) == (0, as_text(read_rope(config)) + "\n", "")
        code, out, _ = self.run(capsys, path + "/config.json", "--json")
        assert (code, json.loads(out)) == (0, facts(read_rope(config)))

    def test_options(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        path = self.write(tmp_path, {"model_type": "llama", "rope_parameters": {**YARN, "attn_facto": 2.0}})
        assert self.run(capsys, path, "--head-dim", "64")[0] == 2
        assert self.run(capsys, path, "--head-dim", "64", "--ignore", "attn_facto")[0] == 0
        path = self.write(tmp_path, {"model_type": "llama", "rope_parameters": {**YARN, "attn_factor": 2.0}})
        code, out, _ = self.run(capsys, path, "--convention", "vllm", "--head-dim", "64")
        assert code == 0
        assert "64 channels" in out

    @pytest.mark.parametrize(
        ("config", "arguments", "words"),
        [
            ({"model_type": "llama", "head_dim": 64, "rope_theta": "x"}, [], ["rope_theta", "'x'"]),
            ({"model_type": "llama", "rope_theta": 1e4}, [], ["head_dim"]),
            (
                {"model_type": "llama", "head_dim": 64, "rope_theta": 1e4},
                ["--convention", "tgi"],
                ["convention", "vllm"],
            ),
            (None, [], ["does not exist"]),
        ],
    )
    def test_bad_input_is_an_error_that_names_it(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, config: Any, arguments: list[str], words: list[str]
    ) -> None:
        path = str(tmp_path) if config is None else self.write(tmp_path, config)
        code, out, err = self.run(capsys, path, *arguments)
        assert (code, out, err.startswith("error: ")) == (2, "", True)
        assert err.startswith("error: ")
        assert all(word in err for word in words)


ATTACHED = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4, "rope_theta": 5e5,
    "posenc": {"encodings": [{"name": "alibi"}], "layers": [0, 3]},
}  # fmt: skip


def test_layers_with_encodings_attached_are_not_told_of_as_rotated() -> None:
    kinds = facts(read_rope(ATTACHED))["schedule"]["kinds"]
    assert [(kind["layers"], kind["rotates"], kind["attached"]) for kind in kinds] == [
        ([0, 3], False, "alibi"), ([1, 2], True, None),
    ]  # fmt: skip
    everywhere = {**ATTACHED, "posenc": {"encodings": [{"name": "alibi"}], "layers": None}}
    (kind,) = facts(read_rope(everywhere))["schedule"]["kinds"]
    assert (kind["layers"], kind["rotates"]) == ([0, 1, 2, 3], False)
    assert ["alibi" in line for line in layer_lines(ATTACHED)] == [True, False, False, True]
    assert ["base" in line for line in layer_lines(ATTACHED)] == [False, True, True, False]


def test_no_engine_is_told_to_serve_attached_encodings() -> None:
    assert not any(line.command for line in serve_flags(read_rope(ATTACHED)))


def test_a_learned_table_that_attached_encodings_replace_is_told_as_unused() -> None:
    gpt2 = {"model_type": "gpt2", "n_positions": 1024, "n_embd": 768, "n_head": 12, "n_layer": 2}
    rope = {"name": "rope", "shared": True, "options": {"base": 10000.0}}
    replaced = explain({**gpt2, "posenc": {"encodings": [rope]}}).facts["encodings"]
    with_own_rotation = explain({**gpt2, "posenc": {"encodings": [{"name": "own"}, rope]}}).facts["encodings"]
    assert replaced[1]["text"].endswith("(1,024 rows); not used with the attached encodings")
    assert with_own_rotation[1]["text"].endswith("(1,024 rows)")


@pytest.mark.parametrize(
    ("config", "keys"),
    [
        ({"model_type": "llama", "head_dim": 64, "rope_theta": 5e5, "max_position_embeddings": 8192},
         {"base": "rope_theta", "head width": "head_dim", "declared": "max_position_embeddings"}),
        ({"model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "rope_scaling": {
            "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}},
         {"scaling": "rope_scaling.type", "factor": "rope_scaling.factor", "head width": "hidden_size",
          "trained": "rope_scaling.original_max_position_embeddings"}),
        ({"model_type": "gemma3", "text_config": {"rope_local_base_freq": 1e4, "sliding_window": 512}},
         {"base of sliding_attention": "text_config.rope_local_base_freq", "window": "text_config.sliding_window"}),
    ],
)  # fmt: skip
def test_each_value_has_the_key_that_it_came_from(config: dict[str, Any], keys: dict[str, str]) -> None:
    assert explain(config).facts["keys"] == keys


# Layers, and `posenc explain --families`; live models: tests/reference

SMALL: dict[str, Any] = {"num_hidden_layers": 8, "hidden_size": 64, "num_attention_heads": 4}


def test_a_temperature_that_a_released_file_switches_on_by_a_number() -> None:
    model = {**SMALL, "model_type": "llama4_text", "head_dim": 16, "attn_temperature_tuning": 4}
    assert [layer.temperature is not None for layer in model_from_config(model).layers] == ([False] * 3 + [True]) * 2


def test_kinds_bases_and_scales() -> None:
    model = model_from_config({**SMALL, "model_type": "gemma3_text", "head_dim": 16, "query_pre_attn_scalar": 64})
    assert [(item.kind, numbers) for item, numbers in model.kinds] == [(SLIDING, [0, 1, 2, 3, 4, 6, 7]), (FULL, [5])]
    assert [item.rotation.base for item in (model.layers[0], model.layers[5]) if item.rotation is not None] == [
        1e4,
        1e6,
    ]
    assert {item.scale for item in model.layers} == {0.125}
    widths = {"qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16, "kv_lora_rank": 32}
    latent = model_from_config({**SMALL, "model_type": "deepseek_v3", **widths}).latent
    assert latent is not None
    assert latent._asdict() == {"rotated": 8, "unrotated": 8, "value": 16, "keys": 32, "queries": None}


def test_what_does_not_tell_its_layers_apart() -> None:
    model = model_from_config({"model_type": "llama", "head_dim": 16})
    assert model.layers == ()
    assert [numbers for _, numbers in model.kinds] == [[]]
    with pytest.raises(ValueError, match="sliding_window"):
        model_from_config({**SMALL, "model_type": "mistral", "sliding_window": "x"})


def test_families(capsys: pytest.CaptureFixture[str]) -> None:
    assert posenc_cli.run(["explain", "--families"]) == 0
    *lines, counts = capsys.readouterr().out.splitlines()
    states = {name: (state, text) for name, state, text, *_ in (line.split("\t") for line in lines)}
    assert len(lines) == len(ROTARY) + len(NON_ROTARY) + len(UNSUPPORTED)
    compared = sum(not family.not_compared for family in ROTARY.values())
    assert re.findall(r"\d+", counts) == [str(n) for n in (len(ROTARY), len(NON_ROTARY), len(UNSUPPORTED), compared)]
    assert states["gpt_oss"][0] == "read"
    assert all(part in states["gpt_oss"][1] for part in ("half", "150000", "windows", "sinks"))
    assert all(part in states["llama4_text"][1] for part in ("chunks", "temperature"))
    assert states["bert"][0] == "no rotation"
    assert states["dinov3_vit"] == ("refused", UNSUPPORTED["dinov3_vit"])
    assert posenc_cli.run(["explain", "--families", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert list(data["counts"].values()) == [len(ROTARY), len(NON_ROTARY), len(UNSUPPORTED), compared]
    assert {item["name"]: (item["state"], item["text"]) for item in data["families"]} == states
    assert posenc_cli.run(["explain", "x", "--families"]) == 2


def test_factors_of_each_frequency() -> None:
    config = {"model_type": "llama", "head_dim": 8, "rope_theta": 1e4, "max_position_embeddings": 64}
    read, alpha = read_rope(config), torch.tensor([0.0, 0.5, -0.25, 1.0], dtype=torch.float64)
    learned = read.with_factors(alpha.exp().tolist())
    expected = RoPE(8).spectrum().theta * alpha.exp()
    for length in (None, 1000):
        torch.testing.assert_close(learned.rope.spectrum(length).theta, expected, rtol=1e-12, atol=0)
    with pytest.raises(ValueError, match="factors"):
        read.with_factors([1.0])
    with pytest.raises(ValueError, match="factors"):
        read.with_factors(["x"] * 4)  # type: ignore[list-item]
    with pytest.raises(ValueError, match="max_position_embeddings"):
        read_rope({"model_type": "llama", "head_dim": 8}).with_factors([1.0] * 4)
