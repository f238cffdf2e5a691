"""The flags of engines: what they say, read back by the engine's own convention."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from posenc import DynamicNTK, Llama3, LongRoPE, NTKAware, PositionInterpolation, RoPE, YaRN
from posenc.frequencies import Resonance
from posenc.hf import preset, read_rope
from posenc.hf.config.block_schema import keys_of
from posenc.hf.serving.engines import engine_errors, engine_result, engine_table
from posenc.hf.serving.flags import serve_flags
from posenc_cli import run

LLAMA = {"model_type": "llama", "head_dim": 64, "max_position_embeddings": 8192, "rope_theta": 500000.0}
YARN = YaRN(4.0, original_length=8192)


def flags(scaling: Any, **options: Any) -> dict[str, Any]:
    config = read_rope(LLAMA).with_rope(RoPE(64, base=500000.0, scaling=scaling))
    return {item.engine: item for item in serve_flags(config, **options)}


@pytest.mark.parametrize(
    "scaling",
    [
        None, PositionInterpolation(2.0), NTKAware(2.0), YARN, Llama3(8.0, original_length=8192),
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
        said = json.loads(words[1])
        spectrum = read_rope({**LLAMA, **said}, convention=engine).rope.spectrum()  # type: ignore[arg-type]
        torch.testing.assert_close(spectrum.theta, right.theta, rtol=1e-12, atol=0)
        assert float(spectrum.gain) == pytest.approx(float(right.gain), rel=1e-12)


def test_llama_cpp() -> None:
    said = {name: " ".join(flags(scaling)["llama.cpp"].words) for name, scaling in {
        "none": None, "linear": PositionInterpolation(2.0), "yarn": YaRN(4.0, original_length=8192, beta_fast=16.0),
    }.items()}  # fmt: skip
    assert said == {
        "none": "--rope-scaling none --rope-freq-base 500000 -c 8192",
        "linear": "--rope-scaling linear --rope-scale 2 --rope-freq-base 500000 -c 8192",
        "yarn": "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 8192 --yarn-beta-fast 16 --rope-freq-base 500000"
        " -c 32768",
    }
    for scaling in (Llama3(8.0, original_length=8192), YaRN(4.0, original_length=8192, attention_factor=1.0)):
        result = flags(scaling)["llama.cpp"]
        assert not result.words
        assert "posenc gguf" in result.reason


def test_lengths_and_the_plug_in() -> None:
    words = flags(YARN)["vllm"].words
    assert json.loads(words[1])["max_position_embeddings"] == 32768
    assert words[2:] == ("--max-model-len", "32768")
    assert flags(YARN)["sglang"].words[2:] == ("--context-length", "32768")
    assert flags(YARN, length=16384)["vllm"].words[2:] == ("--max-model-len", "16384")
    dynamic = DynamicNTK(4.0, original_length=2048)
    assert "follows the length" in flags(dynamic)["vllm"].reason
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
        assert serve_flags(read_rope(preset(name)))[0].words[2:] == ("--max-model-len", declared)


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
        said = json.loads(result.words[1])["rope_parameters"]
        merged = {key: value for key, value in {**old, **said}.items() if value is not None}
        there = {"rope_type", "rope_theta", "original_max_position_embeddings", *keys_of(said["rope_type"], "sglang")}
        block = {key: value for key, value in merged.items() if key in there}
        again = read_rope({**config.config, "rope_parameters": block}, convention="sglang").rope.spectrum()
        torch.testing.assert_close(again.theta, expected.spectrum().theta, rtol=1e-12, atol=0)
        assert float(again.gain) == pytest.approx(float(expected.spectrum().gain))


def test_longrope_says_which_list_is_served() -> None:
    scaling = LongRoPE([1.0] * 32, [4.0] * 32, original_length=8192, factor=4.0)
    for exact in (False, True):
        result = flags(scaling, exact=exact)
        assert "long factors" in result["vllm"].note
        assert bool(result["sglang"].note) == exact, "SGLang looks at each batch"
        assert "short factors" in flags(scaling, exact=exact, length=8192)["vllm"].note
    said = json.loads(flags(scaling, exact=True, length=8192)["vllm"].words[1])["rope_parameters"]
    assert said["theta"] == RoPE(64, base=500000.0).spectrum().theta.tolist()


def test_no_line_that_an_engine_computes_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table decides: with a figure above its bound the words go, and the reason has the figure."""
    assert flags(YARN)["vllm"].words
    monkeypatch.setitem(engine_table()["gaps"]["yarn"], "vLLM", 0.25)
    result = flags(YARN)
    assert not result["vllm"].words
    assert "0.25" in result["vllm"].reason
    assert result["sglang"].words
    assert flags(YARN, exact=True)["vllm"].words


def test_the_table_knows_each_block() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
    lists = {**yarn, "rope_type": "longrope", "short_factor": [1.0], "long_factor": [2.0]}
    wrong = {
        "vLLM": [{**lists, "attention_factor": 1.0}, {"rope_type": "dynamic", "factor": 2.0}],
        "SGLang": [{**yarn, "attention_factor": 1.0}, {**lists, "attention_factor": 1.0}],
        "llama.cpp's converter": [{**yarn, "beta_fast": 16.0}, {**yarn, "truncate": False}, lists],
        "llama.cpp, posenc gguf": [{"rope_type": "dynamic", "factor": 2.0}],
        "mlx-lm, version-5 keys": [yarn, {"rope_type": "linear", "factor": 2.0}],
    }
    for engine, blocks in wrong.items():
        for block in blocks:
            assert engine_errors(engine, block), (engine, block)
    right = {
        "vLLM": [yarn, {**yarn, "attention_factor": 1.0}, lists, {**lists, "attention_factor": 1.0,
                 "short_mscale": 1.0, "long_mscale": 1.0}],
        "SGLang": [yarn, {**yarn, "attn_factor": 0.9}], "llama.cpp's converter": [yarn, {"rope_type": "default"}],
        "llama.cpp, posenc gguf": [{**yarn, "truncate": False}, lists], "mlx-lm, version-4 keys": [yarn, lists],
    }  # fmt: skip
    for engine, blocks in right.items():
        for block in blocks:
            assert not engine_errors(engine, block), (engine, block)
    assert engine_errors("vLLM", lists, 4096), "within the original length it keeps the long list"
    with pytest.raises(ValueError, match="engine"):
        engine_result("nobody", "yarn")


def test_the_text_part_and_kinds_of_layers() -> None:
    inner = {**LLAMA, "model_type": "gemma3_text", "rope_local_base_freq": 10000.0}
    result = serve_flags(read_rope({"model_type": "gemma3", "text_config": inner}))[0]
    blocks = json.loads(result.words[1])["text_config"]["rope_parameters"]
    assert {kind: block["rope_theta"] for kind, block in blocks.items()} == {
        "full_attention": 500000.0, "sliding_attention": 10000.0
    }  # fmt: skip


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    block = '{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 8192}'
    assert run(["serve-flags", str(tmp_path), "--rope", block]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["vllm", "sglang", "llama.cpp"]
    assert '"rope_theta": 500000.0' in lines[0], "the base is not lost"
    assert run(["serve-flags", str(tmp_path), "--rope", "{no"]) == 2
    assert "is no JSON" in capsys.readouterr().err
    assert run(["serve-flags", str(tmp_path), "--exact", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 3
