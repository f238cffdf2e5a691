"""A longer context by the config alone: ten released models, refusals, files, engines, the command."""

from __future__ import annotations

import copy
import importlib
import json
import math
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import posenc_cli
from posenc.frequencies.rotation import RoPESpec
from posenc.hf import convert_config, extend_config, read_rope, serve_flags
from posenc.hf.config.facts import read_facts
from posenc.hf.config.rotation import text_rope
from posenc.hf.config.text_config import find_text_config, max_length
from posenc.hf.extend.config_only import misread_by_transformers
from posenc.hf.families import ROTATIONS
from posenc.hf.plan.plan import Refused
from posenc.hf.sources.load import load, translate
from tests.hf.config.mutations import mutated
from tests.hf.extend.ten_models import PUBLISHED, TEN, Extended

LLAMA = {"model_type": "llama", "head_dim": 64, "num_hidden_layers": 2, "rope_theta": 10000.0,
         "max_position_embeddings": 4096}  # fmt: skip
V5 = {"model_type": "llama", "head_dim": 64, "max_position_embeddings": 4096}


def written(folder: Path, config: dict[str, Any], **side_files: dict[str, Any]) -> Path:
    """A folder as a checkpoint has it: config, weights, a tokenizer, and other JSON files by name."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    (folder / "model.safetensors").write_bytes(bytes(3 * 2**20))
    (folder / "tokenizer.json").write_text("{}")
    for name, content in side_files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize("model", TEN, ids=lambda model: model.name)
def test_ten_models(model: Extended) -> None:
    before = copy.deepcopy(model.config)
    extension = extend_config(model.config, model.length)
    old, new = find_text_config(model.config), find_text_config(extension.config)
    assert dict(new) == {**old, **model.keys}, "the text config changes in these keys alone"
    outside = {key for key in extension.config if extension.config[key] != model.config.get(key)}
    assert outside <= ({new.path[0]} if new.path else set(model.keys))
    assert model.config == before, "the source is left alone"
    assert (extension.plan.documented is not None) == model.documented == (extension.record()["documented"] is not None)
    for kind, rope in read_rope(model.config).layers.items():
        now = read_rope(extension.config).layers[kind]
        assert (rope is None) == (now is None), "layers without rotation stay without"
    again = extend_config(extension.config, model.length)
    assert again.already, "a second run writes nothing"
    assert again.files == {}
    assert extension.record()["changes"]["config.json"].keys() >= {".".join((*new.path, "max_position_embeddings"))}


SIZES = {"head_dim": 128, "hidden_size": 2048, "num_attention_heads": 16}
EXAONE_FULL = {**PUBLISHED["LGAI-EXAONE/EXAONE-4.0-32B"], "sliding_window": None, "sliding_window_pattern": None,
               "layer_types": ["full_attention"] * 64}  # fmt: skip


def declaring(model_type: str, length: int, base: float, **more: Any) -> dict[str, Any]:
    return {**SIZES, "model_type": model_type, "max_position_embeddings": length, "rope_theta": base, **more}


@pytest.mark.parametrize(
    ("config", "length", "plan"),  # method, factor, original length, model of the documented recipe
    [
        (PUBLISHED["Qwen/Qwen3-8B"], 65536, ("yarn", 2.0, 32768, "Qwen3-8B")),
        (PUBLISHED["Qwen/Qwen3-8B"], 131073, ("yarn", 131073 / 32768, 32768, None)),
        ({**PUBLISHED["Qwen/Qwen3-8B"], "rope_theta": 5000000}, 81920, ("yarn", 2.0, 40960, None)),  # another base
        (PUBLISHED["Qwen/Qwen3.5-27B"], 1010001, ("yarn", 1010001 / 262144, 262144, None)),
        (PUBLISHED["Qwen/Qwen3-VL-8B-Instruct"], 10**6 + 1, ("yarn", (10**6 + 1) / 262144, 262144, None)),
        (declaring("qwen2", 40960, 1e6), 131072, ("yarn", 4.0, 32768, "QwQ-32B")),
        (declaring("glm4", 32768, 1e4), 131072, ("yarn", 4.0, 32768, "GLM-4-0414")),
        (declaring("qwen3_moe", 262144, 1e7), 2**20, ("yarn", 4.0, 262144, "Qwen3-Coder-480B-A35B")),
        (declaring("qwen3_next", 262144, 1e7), 1010000, ("yarn", 4.0, 262144, "Qwen3-Next")),
        (declaring("qwen2_5_vl", 128000, 1e6, rope_scaling={"type": "mrope", "mrope_section": [16, 24, 24]}), 131072,
         ("yarn", 4.0, 32768, "Qwen2.5-VL")),
        (declaring("bailing_moe_v2", 32768, 6e5), 131072, ("yarn", 4.0, 32768, "Ling 2.0")),
        # compressed attention reaches beyond its window
        (PUBLISHED["deepseek-ai/DeepSeek-V4-Flash"], 2**21, ("yarn", 32, 65536, None)),
        (PUBLISHED["MiniMaxAI/MiniMax-M2"], 393216, ("yarn", 2.0, 196608, None)),
        # without windows all layers rotate
        (EXAONE_FULL, 262144, ("llama3", 32.0, 8192, None)),
    ],
)  # fmt: skip
def test_plans(config: dict[str, Any], length: int, plan: tuple[str, float | None, int | None, str | None]) -> None:
    found = extend_config(config, length).plan
    model = None if found.documented is None else found.documented.model
    assert (found.method, found.factor, found.original, model) == plan


def test_two_steps_are_one() -> None:
    half = extend_config(PUBLISHED["Qwen/Qwen3-8B"], 65536)
    full = extend_config(half.config, 131072)
    assert full.config == extend_config(PUBLISHED["Qwen/Qwen3-8B"], 131072).config
    assert full.plan.documented is not None
    further = extend_config(full.config, 131073).plan
    assert (further.documented, further.original) == (None, 32768), "no recipe where the file has it already"


def test_a_recipe_of_a_text_model_inside_another_model_is_told() -> None:
    config = {"model_type": "llava_onevision", "text_config": PUBLISHED["Qwen/Qwen3-8B"]}
    assert any("llava_onevision" in note for note in extend_config(config, 131072).notes)


MODERNBERT = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 6, "max_position_embeddings": 8192,
              "global_rope_theta": 160000.0, "local_rope_theta": 10000.0, "local_attention": 128,
              "global_attn_every_n_layers": 3}  # fmt: skip
YARN_2 = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 8192}


@pytest.mark.parametrize(
    ("config", "full", "sliding"),
    [
        ({"model_type": "modernbert", **MODERNBERT}, {"rope_theta": 160000.0}, {"rope_theta": 10000.0}),
        ({"model_type": "modernbert-decoder", **MODERNBERT}, {"rope_theta": 160000.0}, {"rope_theta": 10000.0}),
        ({**PUBLISHED["XiaomiMiMo/MiMo-V2-Flash"], "max_position_embeddings": 8192},
         {"rope_theta": 5000000, "partial_rotary_factor": 0.334},
         {"rope_theta": 10000, "partial_rotary_factor": 0.334}),
    ],
    ids=lambda value: value.get("model_type"),
)  # fmt: skip
def test_a_block_for_each_kind_of_layers_where_version_4_has_no_keys(
    config: dict[str, Any], full: dict[str, Any], sliding: dict[str, Any]
) -> None:
    """transformers puts ModernBERT's flat rope_scaling into both kinds, and MiMo-V2's class reads none."""
    extension = extend_config(config, 16384)
    assert extension.config["rope_parameters"] == {
        "full_attention": {**YARN_2, **full}, "sliding_attention": {"rope_type": "default", **sliding},
    }  # fmt: skip
    assert "rope_scaling" not in extension.config
    without_code = {key: value for key, value in extension.config.items() if key != "auto_map"}
    assert misread_by_transformers(without_code) == ""


def test_a_class_that_takes_few_rope_types() -> None:
    """PhiMoE's class asks for the gains under keys of its own, and Cosmos 3 Edge's for rope type default."""
    sizes = {"max_position_embeddings": 4096, "rope_theta": 1e4, "hidden_size": 256, "num_attention_heads": 4}
    extension = extend_config({"model_type": "phimoe", **sizes}, 8192)
    block = extension.config["rope_scaling"]
    assert block["rope_type"] == "longrope"
    assert block["short_mscale"] == block["long_mscale"] == pytest.approx(0.1 * math.log(2) + 1)
    assert misread_by_transformers(extension.config) == ""
    with pytest.raises(Refused) as error:
        extend_config({"model_type": "cosmos3_edge_text", **sizes, "rope_theta": 1e8}, 8192)
    assert error.value.code == "rope types of the class"


@pytest.mark.parametrize(
    ("config", "scale"),
    [
        ({"model_type": "glm4_moe_lite"}, 1.0), ({"model_type": "deepseek_v3"}, 1.0),
        ({"model_type": "longcat_flash", "num_layers": 28}, 1.0),
        ({"model_type": "deepseek_v2"}, 0.707), ({"model_type": "llama", "head_dim": 64}, None),
    ],
)  # fmt: skip
def test_yarn_under_latent_attention(config: dict[str, Any], scale: float | None) -> None:
    latent = {"hidden_size": 512, "num_attention_heads": 4, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
              "v_head_dim": 128, "kv_lora_rank": 512, "max_position_embeddings": 4096, "rope_theta": 1e4}  # fmt: skip
    sizes = latent if scale is not None else {"max_position_embeddings": 4096, "rope_theta": 1e4}
    extension = extend_config({**sizes, **config}, 16384)
    block = extension.config["rope_scaling"]
    assert (block.get("mscale"), block.get("mscale_all_dim")) == (scale, scale)
    read = read_rope(extension.config)
    gain = 1.0 if scale is not None else 0.1 * math.log(4) + 1
    assert float(text_rope(read.rotation).spectrum().gain) == pytest.approx(gain)
    assert read.softmax_factor() == pytest.approx((0.1 * (scale or 0) * math.log(4) + 1) ** 2)
    assert not [finding for finding in read.findings if finding.alarms]
    assert misread_by_transformers(extension.config) == ""


def test_yarn_under_latent_attention_whose_softmax_reads_no_key() -> None:
    """Dots 3 Note: its class knows no mscale, so that the keys would only take YaRN's gain away."""
    dots = {"model_type": "dots3_note_text", "hidden_size": 5120, "num_attention_heads": 128, "num_hidden_layers": 8,
            "rope_theta": 8e7, "swa_rope_theta": 5e4, "max_position_embeddings": 131072}  # fmt: skip
    extension = extend_config(dots, 524288)
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 131072}
    assert extension.config["rope_parameters"] == {
        "indexed_attention": {**yarn, "rope_theta": 8e7},
        "sliding_attention": {"rope_type": "default", "rope_theta": 5e4},
    }  # fmt: skip
    read = read_rope(extension.config)
    assert read.softmax_factor("indexed_attention") == 1.0
    assert not [finding for finding in read.findings if finding.alarms]
    assert misread_by_transformers(extension.config) == ""


def test_what_transformers_would_read_otherwise_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path / "m", LLAMA)
    monkeypatch.setattr("posenc.hf.extend.config_only.misread_by_transformers", lambda config: "KeyError: 'factor'")
    with pytest.raises(Refused) as error:
        extend_config(folder, 8192, out=tmp_path / "new")
    assert error.value.code == "read otherwise"
    assert not (tmp_path / "new").exists()


def test_transformers_reads_a_flat_block_of_several_kinds_otherwise() -> None:
    """What was written for MiMo-V2 once: its class fails on the flat block, and posenc says so."""
    flat = {
        "model_type": "mimo_v2_flash",
        "num_hidden_layers": 6,
        "max_position_embeddings": 16384,
        "rope_scaling": YARN_2,
    }
    assert misread_by_transformers(flat) != ""


@pytest.mark.slow
@pytest.mark.parametrize("spelling", ["v4", "v5"])
def test_transformers_reads_what_is_written_for_every_model_type(spelling: str) -> None:
    """Every model type that posenc and transformers know, at four times its length, in either version's spelling."""
    mapping = importlib.import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING
    read, wrong = 0, {}
    for model_type in sorted(set(ROTATIONS) & set(mapping)):
        config = json.loads(json.dumps(mapping[model_type]().to_dict(), default=str))
        try:
            config = convert_config(config, spelling).config
            written_config = extend_config(config, 4 * (max_length(find_text_config(config)) or 4096)).config
        except ValueError:  # refused, or sizes that posenc does not read
            continue
        read += 1
        if misread := misread_by_transformers(written_config):
            wrong[model_type] = misread
    assert wrong == {}
    assert read > 80


@pytest.mark.parametrize(
    ("method", "block", "declared"),
    [
        ("yarn", {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 4096}, 8192),
        ("linear", {"rope_type": "linear", "factor": 2.0}, 8192),
        ("pi", {"rope_type": "linear", "factor": 2.0}, 8192),
        ("dynamic", {"rope_type": "dynamic", "factor": 1.0}, 4096),
        ("dynamic_ntk", {"rope_type": "dynamic", "factor": 1.0}, 4096),
        ("llama3", {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 4096}, 8192),
    ],
)  # fmt: skip
def test_methods(method: str, block: dict[str, Any], declared: int) -> None:
    extension = extend_config(LLAMA, 8192, method)
    assert extension.config == {**LLAMA, "rope_scaling": block, "max_position_embeddings": declared}


def test_version_5_keeps_its_spelling_and_always_has_a_base() -> None:
    block = {"rope_type": "default", "rope_theta": 5e5}
    yarn = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 4096}
    assert extend_config({**V5, "rope_parameters": block}, 8192).config["rope_parameters"] == {**block, **yarn}
    outside = extend_config({**V5, "rope_theta": 5e5, "rope_parameters": {"rope_type": "default"}}, 8192).config
    assert outside["rope_parameters"] == {**yarn, "rope_theta": 5e5}, "the base from next to the block"
    both = {**V5, "rope_theta": 5e5, "rope_scaling": {"rope_type": "linear", "factor": 2.0},
            "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}}  # fmt: skip
    for name in ("rope_scaling", "rope_parameters"):
        assert extend_config(both, 8192).config[name]["factor"] == 4.0, "a config with both keeps both"


def test_a_family_of_version_5_in_the_spelling_of_version_4() -> None:
    """MiniMax-M2's published file is for its own code, which reads version 4's keys: they stay."""
    assert "rope_parameters" not in extend_config(PUBLISHED["MiniMaxAI/MiniMax-M2"], 393216).config
    bare = {"model_type": "qwen3_5_text", "head_dim": 256, "max_position_embeddings": 32768}
    block = extend_config(bare, 65536).config["rope_parameters"]
    assert block["rope_theta"] == text_rope(read_rope(bare).rope).base, (
        "where no key stands, version 5's, with the base"
    )


def test_the_alias_of_mrope_under_its_first_key() -> None:
    """Qwen2-VL's first spelling: rope type "mrope", under ``type``; sections stay."""
    block = {"type": "mrope", "mrope_section": [16, 24, 24]}
    config = {"model_type": "qwen2_vl", "hidden_size": 3584, "num_attention_heads": 28, "rope_theta": 1e6,
              "rope_scaling": block, "max_position_embeddings": 32768}  # fmt: skip
    assert extend_config(config, 65536).config["rope_scaling"] == {
        "type": "yarn", "mrope_section": [16, 24, 24], "factor": 2.0, "original_max_position_embeddings": 32768,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("config", "code"),
    [
        (PUBLISHED["openai-community/gpt2"], "table"),
        (PUBLISHED["facebook/opt-1.3b"], "table"),
        (PUBLISHED["google-bert/bert-base-uncased"], "table"),
        (PUBLISHED["facebook/deit-base-patch16-224"], "table"),
        (PUBLISHED["google-t5/t5-small"], "bias"),
        (PUBLISHED["mosaicml/mpt-7b-instruct"], "bias"),
        (PUBLISHED["mistralai/Mistral-7B-v0.1"], "windows"),
        (PUBLISHED["EleutherAI/gpt-j-6b"], "fixed frequencies"),
        ({"model_type": "esm", "position_embedding_type": "rotary", "hidden_size": 320, "num_attention_heads": 20,
          "max_position_embeddings": 1026}, "fixed frequencies"),
        (PUBLISHED["ai21labs/Jamba-v0.1"], "no positions"),
        (PUBLISHED["microsoft/Phi-4-mini-instruct"], "longrope"),
        ({**LLAMA, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "follows the length"),
        (PUBLISHED["tencent/Hunyuan-7B-Instruct"], "alpha"),
        ({key: value for key, value in LLAMA.items() if key != "max_position_embeddings"}, "length not declared"),
        ({**LLAMA, "posenc": {"encodings": [{"name": "alibi"}]}}, "encodings of posenc"),
        ({**LLAMA, "max_position_embeddings": 1}, "too many times"),
    ],
)  # fmt: skip
def test_refusals(config: dict[str, Any], code: str) -> None:
    with pytest.raises(Refused) as error:
        extend_config(config, 10**6 if code != "too many times" else 2**31)
    assert error.value.code == code
    assert error.value.next_step
    images = config.get("model_type") == "vit"  # as DeiT was published
    assert ("interpolate_pos_encoding=True" in error.value.next_step) == images
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"length": 0}, "length must be at least 1"), ({"length": "8k"}, "length must be an integer"),
        ({"length": 8192, "method": "yarm"}, r"got 'yarm'; did you mean yarn\?"),
        ({"length": 8192, "method": "longrope"}, "needs the model itself"),
        ({"length": 8192, "original_length": 8192}, "length must be more than the 8,192 tokens"),
        ({"length": 8192, "out": "a", "in_place": True}, "out or in_place"),
        ({"length": 8192, "in_place": True}, "in_place: the source is no file"),
    ],
)  # fmt: skip
def test_arguments(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        extend_config(LLAMA, **arguments)


BLOCK = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}


@pytest.mark.parametrize("length", [4096, 16384])
def test_a_misspelt_block_is_not_written_beside(length: int) -> None:
    """A checkpoint with rope_paramters was extended over its declared length, and served as it is."""
    slip = {**LLAMA, "rope_paramters": BLOCK}
    with pytest.raises(Refused) as error:
        extend_config(slip, length)
    assert error.value.code == "misspelt key"
    assert "rope_paramters" in error.value.reason
    with pytest.raises(ValueError, match="rope_paramters"):
        serve_flags(read_rope(slip))
    own_code = {**slip, "auto_map": {"AutoModelForCausalLM": "modeling.Model"}}
    assert extend_config(own_code, 16384).plan.factor == 4.0, "whose own code may read it"


def measure_of(config: dict[str, Any], length: int, **options: Any) -> list[str]:
    """The words of the command that measures an extension."""
    return extend_config(config, length, **options).costs[-1].partition("posenc ")[2].split()


def test_the_command_that_measures_compares_with_the_model_before(tmp_path: Path) -> None:
    """Of the extended folder alone evaluate has nothing to compare with."""
    words = measure_of(LLAMA, 16384)
    assert (words[1], words[words.index("--methods") + 1]) == ("ORIGINAL", "as_is,cut,yarn")
    assert (words[words.index("--lengths") + 1], "--trained-length" in words) == ("4096,16384", False)
    again = measure_of(extend_config(LLAMA, 16384).config, 65536)
    assert again[again.index("--lengths") + 1] == "4096,16384,65536", "the original length too"
    given = measure_of(LLAMA, 16384, method="linear", original_length=2048)
    assert given[given.index("--methods") + 1 :] == ["as_is,cut,pi", "--lengths", "2048,16384", "--trained-length",
                                                     "2048"]  # fmt: skip
    folder = written(tmp_path / "m", LLAMA)
    assert extend_config(folder, 16384).costs[-1].partition("posenc evaluate ")[2].split()[0] == str(folder)


def test_another_method_cannot_start_from_a_scaling() -> None:
    for config, method in (
        (PUBLISHED["meta-llama/Llama-3.1-8B"], "yarn"),
        (PUBLISHED["deepseek-ai/DeepSeek-V3"], "pi"),
    ):
        with pytest.raises(Refused) as error:
            extend_config(config, 10**6, method)
        assert error.value.code == "scaled already"


def test_original_length_speaks_for_a_config_that_declares_too_much() -> None:
    extension = extend_config(PUBLISHED["Qwen/Qwen2.5-7B"], 131072, "yarn", original_length=32768)
    assert extension.config["rope_scaling"]["factor"] == 4.0


def test_lengths_beside_the_config(tmp_path: Path) -> None:
    folder = written(
        tmp_path / "m", LLAMA, tokenizer_config={"model_max_length": 4096, "x": [1]},
        generation_config={"max_length": 4096, "top_p": 0.9}, sentence_bert_config={"max_seq_length": 512},
    )  # fmt: skip
    extension = extend_config(folder, 8192)
    assert {name: json.loads(text) for name, text in extension.files.items() if name != "config.json"} == {
        "tokenizer_config.json": {"model_max_length": 8192, "x": [1]},
        "generation_config.json": {"max_length": 8192, "top_p": 0.9},
        "sentence_bert_config.json": {"max_seq_length": 8192},
    }
    (folder / "generation_config.json").write_text('{"max_length": 256}')
    (folder / "tokenizer.json").write_text(
        '{"version": "1.0", "truncation": {"direction": "Right", "max_length": 512}}'
    )
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 1000000000000000019884624838656}')
    short = extend_config(folder, 8192)
    assert sorted(short.files) == ["config.json", "sentence_bert_config.json"]
    assert any(note.startswith("tokenizer.json:") for note in short.notes)
    assert any("max_length 256" in note for note in short.notes)


def test_copies_of_the_declared_length() -> None:
    extension = extend_config({**LLAMA, "seq_length": 4096, "max_seq_len": 2048, "model_max_length": 10**6}, 8192)
    assert extension.config["seq_length"] == 8192
    assert (extension.config["max_seq_len"], extension.config["model_max_length"]) == (2048, 10**6)
    assert any(note.startswith("max_seq_len 2,048") for note in extension.notes)


def test_out_links_weights_and_copies_the_rest(tmp_path: Path) -> None:
    folder = written(tmp_path / "m", LLAMA, tokenizer_config={"model_max_length": 4096})
    (folder / "sub").mkdir()
    (folder / "sub" / "note.txt").write_text("x")
    (folder / ".git").mkdir()
    (folder / "config.json.original-2").write_text("{}")
    before = (folder / "config.json").read_text()
    extension = extend_config(folder, 8192, out=tmp_path / "new" / "m-8k")
    out = tmp_path / "new" / "m-8k"
    assert extension.written == str(out)
    assert (out / "model.safetensors").samefile(folder / "model.safetensors")
    assert not (out / "tokenizer.json").samefile(folder / "tokenizer.json")
    assert sorted(path.name for path in out.iterdir()) == [
        "config.json", "model.safetensors", "sub", "tokenizer.json", "tokenizer_config.json"]  # fmt: skip
    assert json.loads((out / "config.json").read_text()) == extension.config
    assert json.loads((out / "tokenizer_config.json").read_text())["model_max_length"] == 8192
    assert (folder / "config.json").read_text() == before
    with pytest.raises(ValueError, match="exists; nothing is overwritten"):
        extend_config(folder, 16384, out=out)
    with pytest.raises(ValueError, match="lies in the folder that is copied"):
        extend_config(folder, 16384, out=folder / "sub" / "new")


def test_in_place_keeps_every_backup(tmp_path: Path) -> None:
    folder = written(tmp_path / "m", LLAMA, tokenizer_config={"model_max_length": 4096})
    before = (folder / "config.json").read_text()
    (folder / "config.json.original").write_text("mine")
    extension = extend_config(folder, 8192, in_place=True)
    assert (folder / "config.json.original").read_text() == "mine", "no backup is overwritten"
    assert (folder / "config.json.original-2").read_text() == before
    assert json.loads((folder / "config.json").read_text()) == extension.config
    assert (folder / "tokenizer_config.json.original").exists()
    alone = tmp_path / "config.json"
    alone.write_text(before)
    extend_config(alone, 8192, in_place=True)
    assert (tmp_path / "config.json.original").read_text() == before


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path / "m", LLAMA)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    for options in ({"in_place": True}, {"out": tmp_path / "new"}):
        with pytest.raises(OSError, match="No space left on device; nothing was lost"):
            extend_config(folder, 8192, **options)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert not (tmp_path / "new").exists()


def test_a_model_of_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = tmp_path / "hub" / "models--org--m" / "snapshots" / ("a" * 40)
    written(snapshot, LLAMA, tokenizer_config={"model_max_length": 4096})
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("a" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    assert posenc_cli.run(["extend", "org/m", "--length", "8192", "--config-only", "--out", "new"]) == 0
    assert "hf download org/m --local-dir" in capsys.readouterr().out
    assert sorted(path.name for path in Path("new").iterdir()) == ["config.json", "tokenizer_config.json"], (
        "config files alone"
    )
    assert posenc_cli.run(["extend", "org/m", "--length", "8192", "--config-only", "--in-place"]) == 2
    assert "Hub" in capsys.readouterr().err


def lines_of(config: dict[str, Any], length: int, method: str = "auto") -> dict[str, Any]:
    return {line.engine: line for line in extend_config(config, length, method).engines}


def test_engines() -> None:
    lines = lines_of(LLAMA, 8192, "yarn")
    assert lines["vllm"].command == "vllm serve DIR --max-model-len 8192"
    assert all(line.right for line in lines.values())
    sglang = lines_of(LLAMA, 8192, "dynamic")["sglang"]
    assert (sglang.command, sglang.right) == ("", False)
    new = {**V5, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
    assert "posenc convert DIR --spelling both" in lines_of(new, 8192)["mlx-lm"].text
    multimodal = lines_of(PUBLISHED["Qwen/Qwen3.5-27B"], 2**20)
    assert multimodal["vllm"].right, "its class was run with this block"
    assert multimodal["sglang"].command, "StableLM's class says nothing of it"
    assert multimodal["sglang"].right is None
    older = {"model_type": "qwen2_5_vl", "hidden_size": 3584, "num_attention_heads": 28, "rope_theta": 1e6,
             "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
             "max_position_embeddings": 32768}  # fmt: skip
    vl = lines_of(older, 65536)
    assert (vl["vllm"].command, vl["vllm"].right) == ("", False), "it counts from 4 times the original length"
    assert vl["sglang"].command
    deepseek = lines_of(PUBLISHED["deepseek-ai/DeepSeek-V3"], 327680)["llama.cpp"]
    assert "posenc gguf" not in deepseek.command, "Llama's records say nothing of latent attention"
    mscale = {**LLAMA, "max_position_embeddings": 8192, "rope_scaling": {**YARN_2, "original_max_position_embeddings":
              4096, "mscale": 1.0, "mscale_all_dim": 1.0}}  # fmt: skip
    llama = lines_of(mscale, 16384)["llama.cpp"]
    assert "posenc gguf plain.gguf model.gguf --rope DIR" in llama.command, "the converter drops mscale"


def test_a_gguf_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(4096)
    writer.add_embedding_length(256)
    writer.add_head_count(4)
    writer.add_block_count(2)
    writer.add_rope_freq_base(10000.0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert posenc_cli.run(["extend", str(path), "--length", "8192", "--config-only"]) == 0
    printed = capsys.readouterr().out
    assert f"llama-server -m {path} --rope-scaling yarn --rope-scale 2 --yarn-orig-ctx 4096" in printed
    assert "--override-kv llama.context_length=int:8192" in printed
    llama3 = extend_config(path, 8192, "llama3").engines[0].command
    assert llama3.startswith(f"posenc gguf {path} model.gguf --rope ")
    for option in (["--in-place"], ["--out", str(tmp_path / "longer")]):
        assert posenc_cli.run(["extend", str(path), "--length", "8192", "--config-only", *option]) == 2
        assert "posenc gguf SOURCE TARGET --rope BLOCK" in capsys.readouterr().err


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path / "m", PUBLISHED["Qwen/Qwen3-8B"])
    assert posenc_cli.run(["extend", str(folder), "--length", "131072", "--config-only"]) == 0
    capsys.readouterr()
    assert posenc_cli.run(["extend", str(folder), "--length", "131072", "--config-only", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["method"], record["factor"], record["original_length"]) == ("yarn", 4.0, 32768)
    for extra, says in (("--overwrite", "--overwrite is not for"), ("--text=x", "--text is not for")):
        assert posenc_cli.run(["extend", str(folder), "--length", "131072", "--config-only", extra]) == 2
        assert says in capsys.readouterr().err
    assert posenc_cli.run(["extend", str(folder), "--length", "131072", "--in-place"]) == 2
    assert "--in-place needs --config-only" in capsys.readouterr().err


def test_no_frequency_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are checked and compared key by key; of 300 damaged configs each that passes has frequencies."""
    rng = random.Random(3)
    for _ in range(300):
        config, done = mutated(rng.choice(list(PUBLISHED.values())), rng)
        try:
            facts = read_facts(translate(load(config)).config)
        except ValueError:
            continue
        assert facts.is_own or facts.rotations is not None, done  # which raises where a block was not checked
    monkeypatch.setattr(RoPESpec, "__init__", lambda *a, **k: pytest.fail("a rotation was built"))
    for model in ("Qwen/Qwen3-8B", "deepseek-ai/DeepSeek-V3", "google/gemma-3-1b-it"):
        assert extend_config(PUBLISHED[model], 2**19).files


@pytest.mark.parametrize("command", ["extend {} --length 131072 --config-only", "convert {} --spelling both"])
def test_neither_torch_nor_transformers_is_imported(tmp_path: Path, command: str) -> None:
    folder = written(tmp_path / "m", PUBLISHED["Qwen/Qwen3-8B"])
    code = f"import posenc_cli, sys; code = posenc_cli.run({command.format(folder).split()!r}); "
    code += "slow = {'torch', 'transformers', 'numpy', 'huggingface_hub'} & set(sys.modules); assert not slow, slow; "
    code += "sys.exit(code)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
