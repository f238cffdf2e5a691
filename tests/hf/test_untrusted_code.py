"""Folders with code of their own: none of it runs, whatever stdin says, unless --trust-remote-code is given."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

import posenc_cli
from posenc.hf.attach.loading import load_causal_lm, load_model
from posenc.hf.modeling import PosencConfig, PosencForCausalLM
from tests.hf.looking_back import looking_back, saved

MARK = "import pathlib\npathlib.Path({mark!r}).write_text('ran')\n"
MODEL = """
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
class OddConfig(LlamaConfig):
    model_type = "odd"
class OddModel(LlamaForCausalLM):
    config_class = OddConfig
class OddTokenizer(PreTrainedTokenizerFast):
    pass
"""
COMMANDS = {
    "doctor": ["doctor", "{path}", "--weights"],
    "fix": ["doctor", "{path}", "--weights", "--fix", "{out}"],
    "explain": ["explain", "{path}", "--live"],
    "attach": ["attach", "{path}", "alibi", "--out", "{out}"],
    "extend": ["extend", "{path}", "--length", "512", "--method", "yarn", "--windows", "1"],
}


def changed(path: Path, **keys: Any) -> None:
    known = json.loads(path.read_text())
    path.write_text(json.dumps({**known, **keys}))


def with_code(folder: Path, mark: Path) -> None:
    (folder / "odd.py").write_text(MARK.format(mark=str(mark)) + MODEL)
    changed(
        folder / "config.json",
        model_type="odd", auto_map={"AutoConfig": "odd.OddConfig", "AutoModelForCausalLM": "odd.OddModel"},
    )  # fmt: skip


def with_tokenizer(folder: Path, mark: Path) -> None:
    (folder / "odd.py").write_text(MARK.format(mark=str(mark)) + MODEL)
    known = {"tokenizer_class": "OddTokenizer", "auto_map": {"AutoTokenizer": [None, "odd.OddTokenizer"]}}
    changed(folder / "tokenizer_config.json", **known)


def with_kernel(folder: Path, mark: Path) -> None:
    changed(folder / "config.json", attn_implementation="someone/kernel")


class Runs:
    """An object whose reading writes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"echo ran > {self.mark}",)


def with_pickle(folder: Path, mark: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"model.norm.weight": Runs(mark)}, folder / "pytorch_model.bin", pickle_module=pickle)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(looking_back(), tmp_path_factory.mktemp("sound") / "model")


@pytest.fixture
def answer_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 100))


@pytest.mark.parametrize("plant", [with_code, with_tokenizer, with_kernel, with_pickle])
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("answer_yes")
def test_nothing_runs_and_the_folder_is_named(
    sound: Path, tmp_path: Path, plant: Callable[[Path, Path], None], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, mark = tmp_path / "model", tmp_path / "mark"
    shutil.copytree(sound, folder)
    plant(folder, mark)
    needs_none = plant is with_tokenizer and command in ("explain", "attach")  # which read no tokenizer
    code = posenc_cli.run([item.format(path=folder, out=tmp_path / "out") for item in COMMANDS[command]])
    captured = capsys.readouterr()
    assert not mark.exists(), "code of the folder ran"
    assert code == (0 if needs_none else 2), captured.err
    if needs_none:
        return
    lines = [line for line in captured.err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert lines[0] == captured.err.splitlines()[-1]
    assert str(folder) in lines[0]
    assert ("--trust-remote-code" in lines[0]) == (plant is not with_pickle)


@pytest.mark.usefixtures("answer_yes")
def test_the_flag_lets_it_run(sound: Path, tmp_path: Path) -> None:
    folder, mark = tmp_path / "model", tmp_path / "mark"
    shutil.copytree(sound, folder)
    with_code(folder, mark)
    for call in (load_model, load_causal_lm):
        with pytest.raises(ValueError, match="trust"):
            call(folder)  # type: ignore[operator]
        assert not mark.exists()
    posenc_cli.run(["explain", str(folder), "--live", "--trust-remote-code"])
    assert mark.read_text() == "ran"


def test_a_folder_of_posenc_is_read_by_posenc_and_not_by_its_code(tmp_path: Path) -> None:
    """In a process of its own, where nobody has imported the class."""
    folder, mark = tmp_path / "model", tmp_path / "mark"
    config = PosencConfig(
        vocab_size=256, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, encodings="rope", train_length=64
    )
    PosencForCausalLM(config).save_pretrained(folder)
    (folder / "modeling_posenc.py").write_text(MARK.format(mark=str(mark)))
    changed(
        folder / "config.json",
        auto_map={"AutoConfig": "modeling_posenc.X", "AutoModelForCausalLM": "modeling_posenc.X"},
    )
    program = "import pathlib, sys; from posenc.hf.attach import loading;"
    program += "loading.load_model(pathlib.Path(sys.argv[1]))"
    command = [sys.executable, "-c", program, str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(Path(posenc_cli.__file__).parents[1])}
    ran = subprocess.run(command, input="y\n" * 9, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert not mark.exists()
    assert isinstance(load_model(folder), PosencForCausalLM)
