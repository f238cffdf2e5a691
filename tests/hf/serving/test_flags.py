"""The flags of engines: what they say, read back by the engine's own convention."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from benchmarks.engines.trainers import BLOCKS, LENGTH, RECORD, config_of
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from posenc import DynamicNTK, Llama3, LongRoPE, NTKAware, PositionInterpolation, RoPE, YaRN
from posenc.frequencies import Resonance
from posenc.hf import extend_config, preset, read_rope
from posenc.hf.config.rope_keys import TYPES_OF
from posenc.hf.config.rotation import text_rope
from posenc.hf.config.text_config import max_length
from posenc.hf.doctor.pairs import examine_agreement
from posenc.hf.serving import lines
from posenc.hf.serving.lines import (
    ENGINES,
    TRAINERS,
    Line,
    Serving,
    gain_of_yarn,
    serve_flags,
    serving_lines,
    trainer_line,
)
from posenc.hf.serving.table import (
    CONVERTER,
    MLX,
    SGLANG,
    UNKNOWN,
    VLLM,
    WITHIN,
    WRITER,
    engine_result,
    engine_table,
    rows_of_blocks,
    spelling_of,
    verdict,
    version_of,
)
from posenc_cli import run
from tests.hf.extend.ten_models import PUBLISHED

LLAMA = {"model_type": "llama", "head_dim": 64, "max_position_embeddings": 8192, "rope_theta": 500000.0}
YARN = YaRN(4.0, original_length=8192)


def flags(scaling: Any, **options: Any) -> dict[str, Any]:
    config = read_rope(LLAMA).with_rope(RoPE(64, base=500000.0, scaling=scaling))
    return {item.engine: item for item in serve_flags(config, **options)}


def overridden(config: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Lines with the flags that say a config's own rotation."""
    read = read_rope(config)
    return {line.engine: line for line in serving_lines(
        Serving(read.facts, options.pop("length", None) or max_length(read.text_config), overridden=True, **options)
    )}  # fmt: skip


@pytest.mark.parametrize(
    "scaling",
    [
        PositionInterpolation(2.0), NTKAware(2.0), YARN, Llama3(8.0, original_length=8192),
        YaRN(4.0, original_length=8192, attention_factor=1.3), YaRN(4.0, original_length=8192, truncate=False),
        torch.nn.Sequential(YARN, Resonance()),
    ],
    ids=lambda scaling: type(scaling).__name__,
)  # fmt: skip
def test_engines_read_the_rotation_back(scaling: Any) -> None:
    right = RoPE(64, base=500000.0, scaling=scaling).spectrum()
    for engine, flag in (("vllm", "--hf-overrides"), ("sglang", "--json-model-override-args")):
        words = flags(scaling)[engine].words
        assert words[0] == flag
        overrides = json.loads(words[1])
        spectrum = read_rope({**LLAMA, **overrides}, convention=engine).rope.spectrum()  # type: ignore[arg-type]
        torch.testing.assert_close(spectrum.theta, right.theta, rtol=1e-12, atol=0)
        assert float(spectrum.gain) == pytest.approx(float(right.gain), rel=1e-12)


def test_llama_cpp() -> None:
    words_of = {name: " ".join(flags(scaling)["llama.cpp"].words) for name, scaling in {
        "linear": PositionInterpolation(2.0), "yarn": YaRN(4.0, original_length=8192, beta_fast=16.0),
        "gain": YaRN(4.0, original_length=8192, attention_factor=1.0),
        "the rule": YaRN(4.0, original_length=8192, attention_factor=0.1 * math.log(4) + 1),
        "pair": YaRN(4.0, original_length=8192, mscale=1.0, mscale_all_dim=1.0),
    }.items()}  # fmt: skip
    yarn = "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 8192 "
    assert words_of == {
        "gain": f"{yarn}--yarn-attn-factor 0.878248856 --rope-freq-base 500000 -c 32768",
        "the rule": f"{yarn}--rope-freq-base 500000 -c 32768",
        "pair": f"{yarn}--yarn-attn-factor 0.878248856 --rope-freq-base 500000 -c 32768",
        "linear": "--rope-scaling linear --rope-scale 2 --rope-freq-base 500000 -c 8192",
        "yarn": "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 8192 --yarn-beta-fast 16 --rope-freq-base 500000"
        " -c 32768",
    }
    for scaling in (Llama3(8.0, original_length=8192), YaRN(4.0, original_length=8192, truncate=False)):
        result = flags(scaling)["llama.cpp"]
        assert not result.command
        assert "posenc gguf" in result.text


def test_lengths_and_the_plug_in() -> None:
    words = flags(YARN)["vllm"].words
    assert json.loads(words[1])["max_position_embeddings"] == 32768
    assert words[2:] == ("--max-model-len", "32768")
    assert flags(YARN)["sglang"].words[2:] == ("--context-length", "32768")
    assert flags(YARN, length=16384)["vllm"].words[2:] == ("--max-model-len", "16384")
    dynamic = DynamicNTK(4.0, original_length=2048)
    assert "follows the length" in flags(dynamic)["vllm"].text
    block = json.loads(flags(dynamic, exact=True)["sglang"].words[1])["rope_parameters"]
    assert (block["rope_type"], block["tokens"]) == ("posenc", 8192)
    assert block["theta"] == RoPE(64, base=500000.0, scaling=dynamic).spectrum(8192).theta.tolist()
    block = json.loads(flags(dynamic, exact=True, length=20000)["vllm"].words[1])["rope_parameters"]
    assert block["tokens"] == 20000
    assert block["theta"] == RoPE(64, base=500000.0, scaling=dynamic).spectrum(20000).theta.tolist()
    with pytest.raises(ValueError, match="length"):
        flags(dynamic, length=0)


def test_an_unchanged_model_is_served_at_what_it_declares() -> None:
    """Llama 3.2's factor of 32 says less than a length: 32 times 8,192 is twice what the model declares."""
    for name, declared in (("llama-3.2", "131072"), ("llama-3.1", "131072"), ("gpt-oss", "131072")):
        assert serve_flags(read_rope(preset(name)))[0].words == ("--max-model-len", declared)
    for longest in (1010000, 2**20):  # the first is what Qwen3.5's card names, with a factor for the second
        extended = extend_config(PUBLISHED["Qwen/Qwen3.5-27B"], longest).config
        assert serve_flags(read_rope(extended))[0].words == ("--max-model-len", str(longest))


def test_sglang_merges_so_that_every_key_of_the_file_is_said_anew() -> None:
    """{**the file's, **ours}, as SGLang 0.5.23 does it: what the file has and the new block lacks must not count."""
    old = {
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 8192,
        "beta_fast": 20.0, "truncate": False, "mscale": 0.7, "mscale_all_dim": 0.5, "attention_factor": 1.5,
    }  # fmt: skip
    config = read_rope({**LLAMA, "max_position_embeddings": 16384, "rope_parameters": old, "rope_theta": 1e4})
    for scaling in (YARN, PositionInterpolation(2.0), None):
        expected = RoPE(64, scaling=scaling)
        (result,) = (item for item in serve_flags(config.with_rope(expected)) if item.engine == "sglang")
        overrides = json.loads(result.words[1])["rope_parameters"]
        merged = {key: value for key, value in {**old, **overrides}.items() if value is not None}
        there = {
            "rope_type",
            "rope_theta",
            "original_max_position_embeddings",
            *sum(TYPES_OF["sglang"][overrides["rope_type"]], ()),
        }
        block = {key: value for key, value in merged.items() if key in there}
        again = read_rope({**config.config, "rope_parameters": block}, convention="sglang").rope.spectrum()
        torch.testing.assert_close(again.theta, expected.spectrum().theta, rtol=1e-12, atol=0)
        assert float(again.gain) == pytest.approx(float(expected.spectrum().gain))


def test_longrope_says_which_list_is_served() -> None:
    scaling = LongRoPE([1.0] * 32, [4.0] * 32, original_length=8192, factor=4.0)
    for exact in (False, True):
        result = flags(scaling, exact=exact)
        assert "long factors" in "; ".join(result["vllm"].notes)
        assert bool(result["sglang"].notes) == exact, "SGLang looks at each batch"
        assert "short factors" in "; ".join(flags(scaling, exact=exact, length=8192)["vllm"].notes)
    overrides = json.loads(flags(scaling, exact=True, length=8192)["vllm"].words[1])["rope_parameters"]
    assert overrides["theta"] == RoPE(64, base=500000.0).spectrum().theta.tolist()


def test_no_line_that_an_engine_computes_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table decides: with a wrong entry the words go, and the reason has the figure, the version and the remedy."""
    assert flags(YARN)["vllm"].words
    wrong = {"state": "off", "gap": 0.25, "models": ["llama"], "remedy": {"how": "config", "what": "another key"}}
    monkeypatch.setitem(engine_table()[VLLM]["rows"]["yarn"], "v5", [wrong])
    result = flags(YARN)
    assert not result["vllm"].words
    assert all(words in result["vllm"].text for words in ("largest difference 0.25", version_of(VLLM), "another key"))
    assert result["sglang"].words
    assert flags(YARN, exact=True)["vllm"].words


def test_the_table_knows_each_block() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
    lists = {**yarn, "rope_type": "longrope", "short_factor": [1.0], "long_factor": [2.0]}
    wrong = {
        VLLM: [{**lists, "attention_factor": 1.0}, {"rope_type": "dynamic", "factor": 2.0}],
        SGLANG: [{**yarn, "attention_factor": 1.0}, {**lists, "attention_factor": 1.0},
                 {"rope_type": "dynamic", "factor": 2.0}],
        CONVERTER: [{**yarn, "beta_fast": 16.0}, {**yarn, "truncate": False}, lists],
        WRITER: [{"rope_type": "dynamic", "factor": 2.0}],
        MLX: [yarn, {"rope_type": "linear", "factor": 2.0}],
    }  # fmt: skip
    for engine, blocks in wrong.items():
        for block in blocks:
            assert verdict(engine, [block], model_type="llama").right is False, (engine, block)
    right = {
        VLLM: [yarn, {**yarn, "attention_factor": 1.0}, lists], SGLANG: [yarn, lists],
        CONVERTER: [yarn, {"rope_type": "default"}], WRITER: [{**yarn, "truncate": False}, lists],
    }  # fmt: skip
    for engine, blocks in right.items():
        for block in blocks:
            assert verdict(engine, [block], model_type="llama").right, (engine, block)
    assert verdict(MLX, [yarn], spelling="v4", model_type="llama").right
    assert engine_result(VLLM, f"longrope{WITHIN}", model_type="llama").right is False, (
        "a short text under a long served length"
    )
    assert verdict("nobody", [yarn]).right is None


def test_what_was_not_measured_is_not_called_right() -> None:
    """Whole models answer for their own model type; what is wrong in all of them is held to be wrong in others too."""
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
    assert verdict(CONVERTER, [yarn], model_type="no_such_model").right is None
    assert verdict(CONVERTER, [{**yarn, "beta_fast": 16.0}], model_type="no_such_model").right is False
    assert verdict(VLLM, [yarn], model_type="no_such_model").right is None, "its class may hand on other keys"
    dynamic = {"rope_type": "dynamic", "factor": 2.0}
    assert verdict(VLLM, [dynamic], model_type="no_such_model").right is False, "wrong in each of several classes"
    partial = {**yarn, "partial_rotary_factor": 0.5}
    assert verdict(SGLANG, [partial], model_type="stablelm").right is False
    assert verdict(SGLANG, [partial], model_type="bailing_moe_v2").right is None, "StableLM's class is its own"
    assert verdict(MLX, [partial], model_type="bailing_moe_v2").right is None
    assert verdict(SGLANG, [{"rope_type": "yarn"}], model_type="cohere").right, "run in a released config"
    assert verdict(VLLM, [yarn], model_type=UNKNOWN).right is None
    assert engine_result(VLLM, "no such row").state == "not measured"


def test_rows_of_several_kinds_of_layers() -> None:
    local, wide = {"rope_type": "default"}, {"rope_type": "proportional", "partial_rotary_factor": 0.25}
    assert list(rows_of_blocks([local, wide])) == ["per layer: proportional"]
    assert list(rows_of_blocks([None, local])) == ["per layer: none in full attention"]
    yarn = {"rope_type": "yarn", "factor": 4.0, "truncate": False, "mrope_section": [2, 1, 1]}
    assert list(rows_of_blocks([local, yarn])) == ["per layer: yarn", "yarn: truncate false", "M-RoPE on text: yarn"]


@pytest.mark.parametrize(
    ("config", "spelling"),
    [
        ({"rope_theta": 1e4}, "v4"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, "v5"),
        ({"rope_theta": 1e4, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, "both"),
    ],
)
def test_the_spelling_of_a_config(config: dict[str, Any], spelling: str) -> None:
    inner = {"model_type": "llama", "head_dim": 64, "max_position_embeddings": 8192, **config}
    assert spelling_of(read_rope(inner).text_config) == spelling
    assert spelling_of(read_rope({"model_type": "llava", "text_config": inner}).text_config) == f"nested {spelling}"


def test_the_text_part_and_kinds_of_layers() -> None:
    inner = {**LLAMA, "model_type": "gemma3_text", "rope_local_base_freq": 10000.0}
    result = overridden({"model_type": "mistral3", "text_config": {**LLAMA, "model_type": "mistral"}})
    assert json.loads(result["vllm"].words[1])["text_config"]["rope_parameters"]["rope_theta"] == 500000.0
    assert not result["sglang"].command, "no override of a part of this config ran in SGLang's class"
    assert '"rope_theta": 500000.0' in result["sglang"].text, "what to write instead"
    blocks = json.loads(overridden(inner)["vllm"].words[1])["rope_parameters"]
    assert {kind: block["rope_theta"] for kind, block in blocks.items()} == {
        "full_attention": 500000.0, "sliding_attention": 10000.0
    }  # fmt: skip


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    block = '{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 8192}'
    assert run(["serve-flags", str(tmp_path), "--rope", block]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["vLLM", "SGLang", "llama.cpp"]
    assert '"rope_theta": 500000.0' in lines[0], "the base is not lost"
    assert run(["serve-flags", str(tmp_path), "--rope", "{no"]) == 2
    assert "is no JSON" in capsys.readouterr().err
    assert run(["serve", str(tmp_path), "--exact", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 3
    assert run(["serve", str(tmp_path), "--json"]) == 0
    vllm, *others = json.loads(capsys.readouterr().out)
    assert (vllm["version"], vllm["right"]) == (version_of(VLLM), True)
    assert vllm["command"] == f"vllm serve {tmp_path} --max-model-len 8192", "an untouched config is served as it is"
    assert ["vllm", *(line["engine"] for line in others)] == [name for name in ENGINES if name != "mlx-vlm"]


def test_mlx_vlm_serves_models_that_see() -> None:
    """Its class of Qwen3.5 drops YaRN in silence (jundot/omlx#3347), that of Qwen3-VL refuses it."""
    names = {"Qwen/Qwen3.5-27B": "reads no scaling", "Qwen/Qwen3-VL-8B-Instruct": "refuses rope type yarn"}
    for model, reason in names.items():
        config = PUBLISHED[model]
        (line,) = serve_flags(read_rope(config), program="mlx-vlm")
        assert (line.command, line.right) == ("mlx_vlm.server --model DIR", None)
        extended = {line.engine: line for line in extend_config(config, 2**19).engines}
        assert (extended["mlx-vlm"].command, extended["mlx-vlm"].right) == ("", False)
        assert reason in extended["mlx-vlm"].text
        report = examine_agreement(read_rope(extend_config(config, 2**19).config), "transformers", "mlx-vlm")
        assert "read-otherwise" in report.names()
    assert "mlx-vlm" not in [line.engine for line in serve_flags(read_rope(LLAMA))]
    assert [line.engine for line in serve_flags(read_rope(LLAMA), program="mlx-vlm")] == ["mlx-vlm"]


@pytest.mark.parametrize("model_type", ["gemma", "gemma2", "gemma3_text", "gemma4_text", "olmo", "stablelm"])
def test_no_line_of_the_plug_in_where_it_was_refused(model_type: str) -> None:
    """SGLang builds transformers' own rotary module for these, which does not know rope type "posenc"."""
    sizes = {"hidden_size": 256, "num_attention_heads": 4, "head_dim": 64, "max_position_embeddings": 8192}
    lines = {line.engine: line for line in serve_flags(read_rope({"model_type": model_type, **sizes}), exact=True)}
    assert lines["vllm"].command
    assert not lines["sglang"].command


def test_layers_without_rotation_by_code_leave_one_block() -> None:
    """vLLM's and SGLang's classes of Cohere 2 take one block; a block by kind, with null, they refuse."""
    for model in ("CohereForAI/c4ai-command-r7b-12-2024", "LGAI-EXAONE/EXAONE-4.0-32B", "arcee-ai/Trinity-Mini"):
        for result in list(overridden(PUBLISHED[model]).values())[:2]:
            block = json.loads(result.words[1])["rope_parameters"]
            assert "rope_type" in block
            assert None not in [value for key, value in block.items() if key.endswith("attention")]
    laguna = overridden(PUBLISHED["poolside/Laguna-XS.2"])["vllm"]
    blocks = json.loads(laguna.words[1])["rope_parameters"]
    assert [blocks[kind]["partial_rotary_factor"] for kind in ("full_attention", "sliding_attention")] == [0.5, 1.0]
    gemma = {each.engine: each for each in serve_flags(read_rope(PUBLISHED["google/gemma-2-9b"]).with_rope(
        RoPE(256, scaling=YARN)), exact=True)}  # fmt: skip
    assert not gemma["sglang"].words
    assert gemma["vllm"].words
    exaone = overridden(PUBLISHED["LGAI-EXAONE/EXAONE-4.0-32B"])["llama.cpp"]
    assert "sliding_attention" in exaone.text


MINISTRAL = {
    "model_type": "ministral3", "hidden_size": 512, "head_dim": 128, "num_attention_heads": 4, "num_hidden_layers": 2,
    "max_position_embeddings": 262144,
    "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "beta_fast": 32.0, "beta_slow": 1.0,
                        "original_max_position_embeddings": 16384, "mscale": 1.0, "mscale_all_dim": 1.0,
                        "llama_4_scaling_beta": 0.1},
}  # fmt: skip


def test_an_override_keeps_every_key_that_was_read() -> None:
    """Ministral 3's temperature stands in the block, which an override replaces (vllm-project/vllm#48621)."""
    as_it_is, by_flags = serve_flags(read_rope(MINISTRAL)), overridden(MINISTRAL)
    assert [line.words for line in as_it_is[:2]] == [("--max-model-len", "262144"), ("--context-length", "262144")]
    for line in (by_flags["vllm"], by_flags["sglang"]):
        assert MINISTRAL["rope_parameters"].items() <= json.loads(line.words[1])["rope_parameters"].items()  # type: ignore[attr-defined]
    for vllm, sglang in (as_it_is[:2], (by_flags["vllm"], by_flags["sglang"])):
        assert vllm.right
        assert all("temperature" in line.text or not line.right for line in (vllm, sglang)), "the rotary class alone"
        key = '"llama_4_scaling": {"original_max_position_embeddings": 16384, "beta": 0.1}'
        assert key in "; ".join(vllm.notes)
        assert all(number in "; ".join(sglang.notes) for number in ("262,144", "16,384"))


def test_measured_right_is_said_of_the_rotary_class_alone() -> None:
    def beyond(config: dict[str, Any]) -> tuple[str, ...]:
        return Serving(read_rope(config).facts, None).beyond

    sizes = {key: MINISTRAL[key] for key in ("hidden_size", "head_dim", "num_attention_heads", "num_hidden_layers")}
    llama4 = {**sizes, "model_type": "llama4_text", "max_position_embeddings": 2**20, "num_hidden_layers": 4,
              "attention_chunk_size": 8192, "rope_theta": 5e5}  # fmt: skip
    assert beyond(MINISTRAL) == ("temperature of the queries",)
    assert beyond(llama4) == ("temperature of the queries", "attention in chunks", "layers without rotation")
    assert beyond({**LLAMA, "model_type": "mistral", "sliding_window": 4096, **sizes}) == ("windows",)
    assert beyond({**LLAMA, **sizes}) == ()
    lines = {flags.engine: flags for flags in serve_flags(read_rope(llama4))}
    assert lines["vllm"].right
    assert all(part in lines["vllm"].text for part in beyond(llama4))
    whole = verdict(MLX, [{"rope_type": "default"}], spelling="v4", model_type="llama", beyond=("windows",))
    assert "windows" not in str(whole), "of whole models nothing is left out"


NOMIC = {"model_type": "nomic_bert", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 8192,
         "max_trained_positions": 2048, "rotary_emb_base": 1000, "rotary_scaling_factor": 2}  # fmt: skip


def test_dynamic_ntk_is_never_switched_off() -> None:
    """nomic-embed: beyond its 2,048 tokens of training only the plug-in serves it; within them it is plain RoPE."""
    version_5 = {"model_type": "nomic_bert", "hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 12,
                 "max_position_embeddings": 2048,
                 "rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1000.0}}  # fmt: skip
    for config in (NOMIC, version_5):
        read = read_rope(config)
        assert str(text_rope(read.rotation).scaling) == "DynamicNTK(2, original_length=2048)"
        for length in (4096, 8192):
            lines = serve_flags(read, length=length)
            assert not any(line.command for line in lines if line.engine in ("vllm", "sglang"))
            exact = {flags.engine: flags for flags in serve_flags(read, length=length, exact=True)}
            theta = json.loads(exact["vllm"].words[1])["rope_parameters"]["theta"]
            assert theta == text_rope(read.rotation).spectrum(length).theta.tolist()
        for length in (512, 2048):
            lines = {line.engine: line for line in serve_flags(read, length=length)}
            block = json.loads(lines["vllm"].words[1])["rope_parameters"]
            assert (block["rope_type"], block["rope_theta"]) == ("default", 1000)
            assert ("NaN" in "; ".join(lines["vllm"].notes)) == (length < 2048)
    assert serve_flags(read_rope({**NOMIC, "rotary_scaling_factor": None}), length=8192)[0].words, "no scaling"


@pytest.mark.parametrize("scales", [{"mscale": 1.0, "mscale_all_dim": 1.0}, {}])
def test_llama_cpp_of_latent_attention(scales: dict[str, float]) -> None:
    """Records of Llama say nothing of it: its softmax scale follows a key that the converter writes (Kimi K2.5)."""
    block = {"rope_type": "yarn", "factor": 64.0, "original_max_position_embeddings": 4096, **scales}
    latent = {"model_type": "kimi_k2", "hidden_size": 512, "num_attention_heads": 4, "qk_rope_head_dim": 64,
              "qk_nope_head_dim": 128, "v_head_dim": 128, "kv_lora_rank": 512, "max_position_embeddings": 262144,
              "rope_theta": 50000.0, "rope_scaling": block}  # fmt: skip
    read = read_rope(latent)
    (line,) = [line for line in serve_flags(read) if line.engine == "llama.cpp"]
    assert (line.right, "posenc gguf" in line.command, "convert_hf_to_gguf.py" in line.command) == (None, False, True)
    assert ("yarn_log_multiplier" in line.text) == bool(scales)
    longer = read.with_rope({"all": read.rotation.replace(scaling=YaRN(128, original_length=4096))})
    (by_flags,) = [line for line in serve_flags(longer) if line.engine == "llama.cpp"]
    assert (by_flags.command, by_flags.words) == ("", ()), "no flag sets the softmax scale"


# What trainers are told of a rotation, in their own names; settings that would lose a part of it are refused.


LLAMA31 = {
    "model_type": "llama", "head_dim": 128, "rope_theta": 500000.0, "max_position_embeddings": 131072,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192,
                     "low_freq_factor": 1.0, "high_freq_factor": 4.0},
}  # fmt: skip
PLAIN = {**LLAMA31, "max_position_embeddings": 8192, "rope_scaling": None}


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
        found = trainer_line(Serving(read_rope(config_of(block)).facts, LENGTH), "megatron")
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
    module.COLUMN, module.VERSION, module.line = (
        "my_own",
        "1",
        lambda serving: Line("my-own", "1", f"run {serving.length}", None, "new"),
    )
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(lines, names, (*getattr(lines, names), "my-own"))
    (tmp_path / "config.json").write_text(json.dumps(LLAMA31))
    assert run(["serve", str(tmp_path), "--for", "my-own"]) == 0
    assert capsys.readouterr().out == "my-own 1: run 131072   (new)\n"
    served = [each.engine for each in extend_config(LLAMA31, 2**20).engines]
    assert ("my-own" in served) == (kind == "engines")


def test_the_command_of_trainers(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA31))
    for program in (*TRAINERS, "trl", "vllm"):
        assert run(["serve", str(tmp_path), "--for", program, "--json"]) == 0
        (found,) = json.loads(capsys.readouterr().out)
        assert found["command"], program
    assert run(["serve", str(tmp_path), "--for", "nobody"]) == 2
