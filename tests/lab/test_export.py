"""Exporting: the same logits in transformers, and what is no trained language model refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.lab.conftest import TINY, run
from tests.lab.test_corpora import documents

from posenc.lab import commands
from posenc.lab.export import load_model

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def trained(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """A finished run of texts of byte pairs."""

    def make(folder: Path) -> None:
        specs, texts = ["rope", "t5", "learned+shaw", "rope/nope:2"], folder / "texts"
        texts.mkdir()
        for document in documents(60, 4000):
            (texts / document.name.replace("/", "-")).write_bytes(document.text)
        words = ["compare", *specs, "--data", str(texts), "--tokens", "bpe:300", *TINY, "--layers", "2", "--steps", "2"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("posenc.lab.execute.local.Local", __import__("tests.lab.conftest", fromlist=["Here"]).Here)
            patch.setattr("vl_convert.vegalite_to_svg", lambda spec: "<svg></svg>")
            assert commands.run([*words, "--out", str(folder / "run"), "--seeds", "1", "--workers", "1"]) == 0

    return once("texts", make) / "run"


@pytest.mark.parametrize("spec", ["rope", "t5", "learned+shaw", "rope/nope:2"])
def test_transformers_says_what_the_laboratory_says(trained: Path, tmp_path: Path, spec: str) -> None:
    assert commands.run(["export", str(trained), "--spec", spec, "--to", str(tmp_path / "model")]) == 0
    folder = next(
        path
        for path in (trained / "jobs").iterdir()
        if path.name == f"{spec.replace('/', '~').replace(':', '.')}-seed0"
    )
    decoder, _ = load_model(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    tokens = tokenizer("#include <torch/torch.h>", return_tensors="pt")["input_ids"][:, :12]
    with torch.no_grad():
        torch.testing.assert_close(model(tokens).logits, decoder(tokens), rtol=1e-4, atol=1e-4)


def test_what_is_no_finished_model_of_text_is_refused(trained: Path, tmp_path: Path, here: None) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    assert commands.run(["export", str(trained), "--spec", "rope", "--to", str(tmp_path / "taken")]) == 2
    assert commands.run(["export", str(trained), "--to", str(tmp_path / "model")]) == 2  # which of four?
    assert commands.run(["export", str(trained), "--spec", "alibi", "--to", str(tmp_path / "model")]) == 2
    assert run(tmp_path / "copy", encodings=["rope"]) == 0
    assert commands.run(["export", str(tmp_path / "copy"), "--to", str(tmp_path / "model")]) == 2
    assert not (tmp_path / "model").exists()
