"""The doctor on files: what lies beside a configuration, what is written, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import posenc_cli
from posenc.hf.doctor import examine, fix
from tests.hf.doctor.planted import LLAMA_31, QWEN, llama


def folder(path: Path, **files: Any) -> Path:
    """A folder with these JSON files, named without their ending."""
    path.mkdir(exist_ok=True)
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return path


def frequencies(path: Path, theta: torch.Tensor) -> None:
    """A safetensors file with saved frequencies, as older checkpoints have them."""
    safetensors = pytest.importorskip("safetensors.torch")
    safetensors.save_file({"model.layers.0.self_attn.rotary_emb.inv_freq": theta}, path / "model.safetensors")


def test_what_lies_beside_a_configuration(tmp_path: Path) -> None:
    unscaled = llama({}, rope_scaling=None)
    place = folder(
        tmp_path / "lengths", config=unscaled, tokenizer_config={"model_max_length": 32768},
        generation_config={"max_length": 16384},
    )  # fmt: skip
    report = examine(place)
    assert report.names() == {"generation-length-beyond"}
    assert "tokenizer-length-beyond" in {item.name for item in report.findings}
    assert examine(folder(tmp_path / "none", config=unscaled, tokenizer_config={"model_max_length": int(1e30)})).healthy
    params = {"dim": 4096, "n_layers": 32, "n_heads": 64, "rope_theta": 1e6, "vocab_size": 32000}
    report = examine(folder(tmp_path / "params", config=unscaled, params=params))
    assert report.names() == {"other-file-differs"}
    assert "base 1e+06" in str(report)
    params["rope_theta"] = 5e5
    assert examine(folder(tmp_path / "alike", config=unscaled, params=params)).healthy


@pytest.mark.parametrize("base", [1e4, 1e6, 1e7])
def test_frequencies_that_float16_holds_as_subnormal_numbers(tmp_path: Path, base: float) -> None:
    place = folder(tmp_path / "model", config=llama({}, rope_scaling=None, rope_theta=base, head_dim=128))
    pairs = torch.arange(64, dtype=torch.float64) / 64
    frequencies(place, (base**-pairs).half())
    assert not of_frequencies(place)
    frequencies(place, ((2 * base) ** -pairs).half())
    assert of_frequencies(place) == [{"rope_theta": 2 * base}]


def of_frequencies(place: Path) -> list[Any]:
    """The corrections of frequencies that differ; of the file, which has no other tensors, more is told."""
    return [item.corrected for item in examine(place).findings if item.name == "saved-frequencies-differ"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_frequencies_among_the_weights(tmp_path: Path, dtype: torch.dtype) -> None:
    place = folder(tmp_path / "model", config=llama({}, rope_scaling=None, rope_theta=1e4))
    theta = 5e5 ** -(torch.arange(32, dtype=torch.float64) / 32)
    frequencies(place, theta.to(dtype))
    assert of_frequencies(place) == [{"rope_theta": 5e5}]
    frequencies(place, (1e4 ** -(torch.arange(32, dtype=torch.float64) / 32)).to(dtype))
    assert not of_frequencies(place)


def test_other_programs_files(tmp_path: Path) -> None:
    keys = {"context_length": 131072, "embedding_length": 4096, "attention.head_count": 32, "vocab_size": 128256}
    gguf = {"general.architecture": "llama", **{f"llama.{key}": value for key, value in keys.items()}}
    gguf |= {"llama.rope.freq_base": 5e5, "llama.rope.dimension_count": 128}
    assert examine({**gguf, "tensors.without_factors": True}).names() == {"gguf-scaling-lost"}
    report = examine({**gguf, "rope_freqs.weight": [1.0] * 20 + [8.0] * 44})
    assert report.healthy, "the file is right, and a loader is not"
    assert "gguf-scaling-dropped" in {item.name for item in report.findings}
    with pytest.raises(ValueError, match=r"lost\.gguf"):
        fix(tmp_path / "lost.gguf", tmp_path / "out")
    params = folder(tmp_path / "meta", params={"dim": 4096, "n_layers": 32, "n_heads": 32, "vocab_size": 128256})
    with pytest.raises(ValueError, match=r"params\.json"):
        fix(params / "params.json", tmp_path / "out")
    with pytest.raises(ValueError, match=r"config\.json is needed"):
        fix(params, tmp_path / "out")


def test_fix_writes_a_copy_and_loses_nothing(tmp_path: Path) -> None:
    source = folder(tmp_path / "model", config={**LLAMA_31, "rope_theta": 5e5}, generation_config={"max_length": 2**20})
    (source / "weights.bin").write_bytes(b"weights")
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    written = fix(source, tmp_path / "new" / "fixed")
    assert [item.name for item in written] == ["scaling-lost", "generation-length-beyond"]
    assert {path.name: path.read_bytes() for path in source.iterdir()} == before
    fixed = tmp_path / "new" / "fixed"
    assert sorted(path.name for path in fixed.iterdir()) == sorted(before)
    assert (fixed / "weights.bin").read_bytes() == b"weights"
    assert not (fixed / "weights.bin").is_symlink()
    assert [path.name for path in fixed.parent.iterdir()] == ["fixed"]
    assert examine(fixed).healthy
    with pytest.raises(ValueError, match="out"):
        fix(source, fixed)
    assert fix(fixed, tmp_path / "again") == []
    assert not (tmp_path / "again").exists()


def test_fix_in_place_keeps_the_original(tmp_path: Path) -> None:
    source = folder(tmp_path / "model", config={**LLAMA_31, "rope_theta": 5e5})
    before = (source / "config.json").read_bytes()
    (source / "config.json.original").write_text("older")
    fix(source, in_place=True)
    assert (source / "config.json.original").read_text() == "older"
    assert (source / "config.json.original-2").read_bytes() == before
    assert examine(source).healthy
    assert len(list(source.iterdir())) == 3
    with pytest.raises(ValueError, match="in_place"):
        fix(source)


def test_a_file_alone_is_fixed_too(tmp_path: Path) -> None:
    source = folder(tmp_path / "model", config={**LLAMA_31, "rope_theta": 5e5}) / "config.json"
    fix(source, tmp_path / "new.json")
    assert examine(tmp_path / "new.json").healthy


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = posenc_cli.run(list(arguments))
    return code, capsys.readouterr().out


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = str(folder(tmp_path / "model", config={**LLAMA_31, "rope_theta": 5e5}))
    code, out = run(capsys, "doctor", source)
    assert (code, "scaling-lost" in out, '"rope_type": "llama3"' in out) == (1, True, True)
    code, out = run(capsys, "doctor", source, "--json")
    assert (code, json.loads(out)["healthy"]) == (1, False)
    assert run(capsys, "doctor", source, "--accept", "scaling-lost")[0] == 0
    code, out = run(capsys, "doctor", source, "--fix", str(tmp_path / "fixed"))
    assert (code, "written: scaling-lost" in out) == (0, True)
    assert run(capsys, "doctor", str(tmp_path / "fixed"))[0] == 0
    assert posenc_cli.run(["doctor", str(tmp_path / "nowhere")]) == 2
    code, out = run(capsys, "doctor", source, "--in-place", "--json")
    assert (code, json.loads(out)["written"]) == (0, ["scaling-lost"])


def test_what_cannot_be_examined() -> None:
    with pytest.raises(ValueError, match="folder"):
        examine(QWEN, weights=True)
