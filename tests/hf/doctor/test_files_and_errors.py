"""Errors of commands about files, devices and disks: one line that names the file of the user, and nothing is lost."""

from __future__ import annotations

import errno
import importlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

import posenc_cli
from posenc.hf.doctor import fix

LLAMA: dict[str, Any] = {
    "model_type": "llama", "head_dim": 64, "hidden_size": 128, "num_attention_heads": 2, "num_hidden_layers": 2,
    "max_position_embeddings": 131072, "rope_theta": 5e5, "vocab_size": 128256,
}  # fmt: skip
LOST = {**LLAMA, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}, "transformers_version": "4.57.1"}


def folder_with(path: Path, config: dict[str, Any]) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    return path


def one_line(err: str, *names: str) -> None:
    lines = err.splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith("error: ")
    assert all(name in lines[0] for name in names), lines[0]


def test_errors_of_fix_name_the_folder_and_no_copy_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    folder = folder_with(tmp_path / "model", LLAMA)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    for more in (["--in-place"], ["--fix", str(tmp_path / "out")]):
        for kind in (["--weights"], []):
            if not kind:
                (folder / "config.json").write_text("{")
            assert posenc_cli.run(["doctor", str(folder), *more, *kind]) == 2
            one_line(capsys.readouterr().err, str(folder))
            (folder / "config.json").write_text(json.dumps(LLAMA))
            with pytest.raises(ValueError, match=str(folder)):
                fix(
                    folder,
                    None if "--in-place" in more else tmp_path / "out",
                    in_place="--in-place" in more,
                    weights=True,
                )
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def full(*args: object, **options: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_fills_while_a_file_is_corrected_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_with(tmp_path / "model", LOST)
    for name, what in (("shutil.copy2", "copy"), ("os.fsync", "flush")):
        with monkeypatch.context() as patched:
            patched.setattr(name, full)
            assert posenc_cli.run(["doctor", str(folder), "--in-place"]) == 2, what
        one_line(capsys.readouterr().err, str(folder / "config.json"))
        assert [path.name for path in folder.iterdir()] == ["config.json"]
        assert json.loads((folder / "config.json").read_text()) == LOST
    monkeypatch.setattr("shutil.copyfile", full)
    assert posenc_cli.run(["doctor", str(folder), "--fix", str(tmp_path / "out")]) == 2
    one_line(capsys.readouterr().err, str(folder))
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("error", ["system", "safetensors"])
def test_a_disk_that_fills_while_a_model_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: str
) -> None:
    transformers, safetensors = pytest.importorskip("transformers"), pytest.importorskip("safetensors")
    looking_back = importlib.import_module("tests.hf.looking_back")
    folder = looking_back.saved(looking_back.looking_back(), tmp_path / "model")

    def fails(*args: object, **options: object) -> None:
        if error == "system":
            full()
        raise safetensors.SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(transformers.PreTrainedModel, "save_pretrained", fails)
    assert posenc_cli.run(["attach", str(folder), "alibi", "--out", str(tmp_path / "out")]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: ")
    assert str(tmp_path / "out") in last
    assert not (tmp_path / "out").exists()


def test_numbers_that_json_has_not_are_text_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    block = {"rope_type": "linear", "factor": float("nan")}
    folder = folder_with(tmp_path / "model", {**LLAMA, "rope_scaling": block, "limit": float("inf")})
    assert posenc_cli.run(["doctor", str(folder), "--json"]) == 1

    def refuse(name: str) -> None:
        raise AssertionError(name)

    assert json.loads(capsys.readouterr().out, parse_constant=refuse)["findings"]


def test_half_a_sign_in_a_config_survives_a_correction(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "model", {**LOST, "card": "half \ud800 schön"})
    assert fix(folder, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["card"] == "half \ud800 schön"


@pytest.mark.parametrize("device", ["cuda", "cuda:7", "nonsense", "meta", "xpu"])
def test_a_device_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str], device: str) -> None:
    pytest.importorskip("transformers")
    if device.startswith(("cuda", "xpu")) and getattr(torch, device[:4].rstrip(":")).is_available():
        device = "nonsense"
    folder = folder_with(tmp_path / "model", LLAMA)
    assert posenc_cli.run(["extend", str(folder), "--length", "100000", "--device", device]) == 2
    one_line(capsys.readouterr().err, device, str(folder))


@pytest.mark.parametrize("command", ["explain", "doctor", "serve-flags"])
def test_a_name_of_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert posenc_cli.run([command, "some-org/Some-Model.1"]) == 2
    one_line(capsys.readouterr().err, "hf download some-org/Some-Model.1")


@pytest.mark.parametrize(
    "arguments",
    [["doctor", "{}", "--weights"], ["explain", "{}", "--live"], ["attach", "{}", "alibi", "--out", "o"],
     ["extend", "{}", "--length", "100000"]],
)  # fmt: skip
def test_a_name_of_the_hub_where_a_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    assert posenc_cli.run([item.format("org/model") for item in arguments]) == 2
    one_line(capsys.readouterr().err, "hf download org/model")


@pytest.mark.parametrize("text", ["missing", "folder", "latin-1"])
def test_a_text_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    folder, path = folder_with(tmp_path / "model", LLAMA), tmp_path / "text.txt"
    if text == "folder":
        path.mkdir()
    elif text == "latin-1":
        path.write_bytes(b"\xe9\xe8" * 100)
    assert posenc_cli.run(["doctor", str(folder), "--weights", "--text", str(path)]) == 2
    one_line(capsys.readouterr().err, str(path))


def test_a_model_that_no_memory_holds_is_not_built(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    for key, value in (("num_hidden_layers", 16_000), ("vocab_size", 2**40), ("intermediate_size", 2**36)):
        folder = folder_with(tmp_path / key, {**LLAMA, key: value})
        assert posenc_cli.run(["explain", str(folder), "--live"]) == 2
        one_line(capsys.readouterr().err, str(folder))


@pytest.mark.parametrize(
    "block",
    [{"quant_method": "gptq", "bits": 4}, {"quant_method": "awq"}, {"quant_method": "none of them"}, {}, 3, "x"],
    ids=str,
)
def test_quantised_folders_end_in_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str], block: object) -> None:
    """Their packages may be installed or not."""
    pytest.importorskip("transformers")
    looking_back = importlib.import_module("tests.hf.looking_back")
    folder = looking_back.saved(looking_back.looking_back(), tmp_path / "model")
    known = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**known, "quantization_config": block}))
    capsys.readouterr()
    code = posenc_cli.run(["explain", str(folder), "--live"])
    out, err = capsys.readouterr()
    assert (code, bool(out)) in ((0, True), (2, False))
    if code == 2:
        assert err.splitlines()[-1].startswith("error: ")
        assert str(folder) in err.splitlines()[-1]


def test_a_tokenizer_of_another_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    looking_back = importlib.import_module("tests.hf.looking_back")
    folder = looking_back.saved(looking_back.looking_back(), tmp_path / "model")
    known = json.loads((folder / "tokenizer.json").read_text())
    name = max(known["model"]["vocab"], key=known["model"]["vocab"].__getitem__)
    for token in (256, 2**31 - 1):
        known["model"]["vocab"] = {
            item: token if item in (name, "a") else n for item, n in known["model"]["vocab"].items()
        }
        (folder / "tokenizer.json").write_text(json.dumps(known))
        for command in (["doctor", "--weights"], ["extend", "--length", "512", "--method", "yarn"]):
            capsys.readouterr()
            assert posenc_cli.run([command[0], str(folder), *command[1:]]) == 2
            last = capsys.readouterr().err.splitlines()[-1]
            assert last.startswith("error: ")
            assert f"{token:,}" in last
            assert str(folder) in last


def test_a_pipe_beside_a_gguf_file_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("gguf")
    looking_back, files = (importlib.import_module(f"tests.hf.{name}") for name in ("looking_back", "gguf.files"))
    path = files.as_gguf(looking_back.looking_back(), tmp_path / "x.gguf", base=5e5)
    os.mkfifo(tmp_path / "tokenizer_config.json")
    assert posenc_cli.run(["extend", str(path), "--length", "512", "--method", "yarn"]) == 2
    one_line(capsys.readouterr().err, str(tmp_path / "tokenizer_config.json"))
