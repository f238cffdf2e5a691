"""The flags of engines: what they say, read back by the engine's own convention."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from posenc import DynamicNTK, Llama3, NTKAware, PositionInterpolation, Resonance, RoPE, YaRN
from posenc.hf import read_rope
from posenc.hf.flags import serve_flags
from posenc_cli import run

LLAMA = {"model_type": "llama", "head_dim": 64, "max_position_embeddings": 8192, "rope_theta": 500000.0}
YARN = YaRN(4.0, original_length=8192)


def flags(scaling: Any, **options: Any) -> dict[str, Any]:
    config = read_rope(LLAMA).with_rope(RoPE(64, base=500000.0, scaling=scaling))
    return {one.engine: one for one in serve_flags(config, **options)}


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
    assert "factors for each pair; write the file" in flags(Llama3(8.0, original_length=8192))["llama.cpp"].reason
    assert "a gain or ramp" in flags(YaRN(4.0, original_length=8192, attention_factor=1.0))["llama.cpp"].reason


def test_lengths_and_the_plug_in() -> None:
    words = flags(YARN)["vllm"].words
    assert json.loads(words[1])["max_position_embeddings"] == 32768
    assert words[2:] == ("--max-model-len", "32768")
    assert flags(YARN)["sglang"].words[2:] == ("--context-length", "32768")
    dynamic = DynamicNTK(4.0, original_length=2048)
    assert "follows the length" in flags(dynamic)["vllm"].reason
    block = json.loads(flags(dynamic, exact=True)["sglang"].words[1])["rope_parameters"]
    assert (block["rope_type"], block["tokens"]) == ("posenc", 8192)
    assert block["theta"] == RoPE(64, base=500000.0, scaling=dynamic).spectrum(8192).theta.tolist()


def test_the_text_part_and_kinds_of_layers() -> None:
    inner = {**LLAMA, "model_type": "gemma3_text", "rope_local_base_freq": 10000.0}
    found = serve_flags(read_rope({"model_type": "gemma3", "text_config": inner}))[0]
    blocks = json.loads(found.words[1])["text_config"]["rope_parameters"]
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
