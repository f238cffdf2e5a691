"""posenc export: the same logits in a fresh process, with posenc, with trust_remote_code, and as a plain Llama."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")

from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from posenc.hf.modeling import PosencForCausalLM
from posenc.lab import commands
from posenc.lab.checkpoint import read_checkpoint, write_checkpoint
from posenc.lab.export.convert import to_transformers
from posenc.lab.export.folder import export
from posenc.lab.export.trained import find_job, load_job
from posenc.lab.jobs import Job
from posenc.lab.model import Decoder
from posenc.lab.specs import standard_encodings
from posenc.lab.tasks import task_named
from posenc.lab.text.profiles import Settings
from posenc.lab.worker import run_job

MakeJob = Callable[..., tuple[Job, Path]]
FRESH = """
import sys, torch
how, folder, expected = sys.argv[1:]
if how == "import":
    import posenc.hf.modeling
from transformers import AutoModelForCausalLM, AutoTokenizer
options = {"trust_remote_code": True} if how == "trust" else {}
model = AutoModelForCausalLM.from_pretrained(folder, **options).eval()
tokenizer = AutoTokenizer.from_pretrained(folder, **options)
tokens, wanted = torch.load(expected)
with torch.no_grad():
    torch.testing.assert_close(model(tokens).logits, wanted, atol=1e-5, rtol=0)
assert ("posenc" in sys.modules) == (how != "plain"), "a plain Llama needs no posenc"
prompts = tokenizer(["a b", "abcdef"], return_tensors="pt", padding=True)
assert tokenizer.batch_decode(model.generate(**prompts, max_new_tokens=4, do_sample=False))
"""


def small(settings: Settings) -> Settings:
    return dataclasses.replace(settings, layers=2, dim=32, heads=4, train_length=16)


def finished(make_job: MakeJob, spec: str = "rope", seed: int = 0, rows: tuple[str, ...] = ()) -> tuple[Job, Path]:
    job, folder = make_job(spec, seed)
    run_job(folder, [spec, *rows])
    return job, folder


def logits_of(folder: Path, tokens: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = load_job(folder).decoder(tokens)
    return logits


@pytest.mark.parametrize("spec", [*standard_encodings(), "rope+alibi", "sinusoidal+fox", "kerple+rope+shaw"])
@torch.no_grad()
def test_every_encoding_keeps_its_logits(spec: str, tiny: Settings) -> None:
    settings = small(tiny)
    decoder = Decoder(spec, settings.shape, hidden=settings.hidden, seed=3).eval()
    for parameter in decoder.parameters():
        parameter.add_(0.05 * torch.randn_like(parameter))
    model = to_transformers(decoder, spec, settings)
    tokens = torch.randint(256, (3, 16))
    torch.testing.assert_close(model(tokens).logits, decoder(tokens), atol=1e-5, rtol=0)
    assert sum(p.numel() for p in model.parameters()) == decoder.parameter_counts()[0]


def test_a_folder_holds_all_that_transformers_reads(make_job: MakeJob, tmp_path: Path) -> None:
    job, folder = finished(make_job, rows=("rope+window",))
    done = export(folder, tmp_path / "out")
    assert done.difference == 0.0
    assert {path.name for path in done.to.iterdir()} == {
        "README.md", "config.json", "generation_config.json", "model.safetensors", "modeling_posenc.py",
        "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    model, tokenizer = AutoModelForCausalLM.from_pretrained(done.to).eval(), AutoTokenizer.from_pretrained(done.to)
    assert isinstance(model, PosencForCausalLM)
    tokens = tokenizer("ab cd", return_tensors="pt")["input_ids"]
    assert torch.equal(model(tokens).logits, logits_of(folder, tokens))
    assert model.config.max_position_embeddings == job.settings.shape.train_length
    assert model.generation_config.eos_token_id == 0
    assert not list(tmp_path.glob(".out*")), "nothing temporary stays"


def test_the_card_states_the_numbers_of_the_run(make_job: MakeJob, tmp_path: Path) -> None:
    job, folder = finished(make_job, seed=1, rows=("rope+window",))
    card = (export(folder, tmp_path / "out").to / "README.md").read_text()
    result = json.loads((folder / "result.json").read_text())
    for spec in ("rope", "rope+window"):
        windows = result["rows"][spec]["bits"][0]
        assert f"| {spec} | {sum(windows) / len(windows):.3f} |" in card
    for words in ("Seed 1.", "steps 12", job.corpus["train_sha256"], "posenc.hf.modeling", 'from_pretrained("out")'):
        assert words in card
    (folder / "result.json").unlink()
    assert "Not measured yet" in (export(folder, tmp_path / "again").to / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["import", "trust", "plain"])
def test_a_fresh_process_gives_the_same_logits(how: str, make_job: MakeJob, tmp_path: Path) -> None:
    _, folder = finished(make_job, "rope" if how == "plain" else "t5+fox")
    out = export(folder, tmp_path / "out", plain=how == "plain").to
    tokens = torch.randint(256, (2, 8))
    torch.save((tokens, logits_of(folder, tokens)), tmp_path / "expected.pt")
    surroundings = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-c", FRESH, how, str(out), str(tmp_path / "expected.pt")]
    ran = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]


def test_a_plain_llama(make_job: MakeJob, tmp_path: Path) -> None:
    _, folder = finished(make_job)
    done = export(folder, tmp_path / "out", plain=True)
    model = AutoModelForCausalLM.from_pretrained(done.to).eval()
    assert type(model) is LlamaForCausalLM
    assert not (done.to / "modeling_posenc.py").exists()
    tokens = torch.randint(256, (2, 8))
    torch.testing.assert_close(model(tokens).logits, logits_of(folder, tokens), atol=1e-5, rtol=0)
    assert "posenc.hf" not in (done.to / "README.md").read_text()
    _, other = finished(make_job, "t5")
    with pytest.raises(ValueError, match="this model has t5"):
        export(other, tmp_path / "t5", plain=True)
    assert not (tmp_path / "t5").exists()


def test_a_run_names_its_jobs(make_job: MakeJob) -> None:
    folders = {(spec, seed): make_job(spec, seed)[1] for spec in ("rope", "t5") for seed in (0, 1)}
    run = folders["rope", 0].parents[1]
    assert find_job(run, "T5", 1) == folders["t5", 1]
    assert find_job(folders["rope", 1], None, None) == folders["rope", 1]
    for spec, seed, words in (
        (None, None, "4 jobs for this folder alone.*--spec t5 --seed 1"),
        ("rope", None, "2 jobs for --spec rope"),
        ("alibi", 0, "no job for --spec alibi --seed 0"),
        ("rope+window", 0, "a control has no model of its own; export rope"),
    ):
        with pytest.raises(ValueError, match=words):
            find_job(run, spec, seed)
    with pytest.raises(ValueError, match="neither the folder of a run"):
        find_job(run / "corpus", None, None)


def test_what_cannot_be_exported_is_refused(make_job: MakeJob, tmp_path: Path, tiny: Settings) -> None:
    _, folder = make_job()
    with pytest.raises(ValueError, match="0 of 12 steps"):
        load_job(folder)
    job, folder = finished(make_job, "t5")
    state = read_checkpoint(folder / "checkpoint.pt", job.identity)
    assert state is not None
    write_checkpoint(folder / "checkpoint.pt", dataclasses.replace(state, step=5))
    with pytest.raises(ValueError, match="5 of 12 steps"):
        load_job(folder)
    images = task_named("images").profile("quick").settings
    with pytest.raises(ValueError, match="--task images"):
        load_job(make_job("rope", 5, images, name="pictures")[1])
    record = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**record, "code": {"mine:Own": "0" * 64}}))
    with pytest.raises(ValueError, match="mine:Own"):
        load_job(folder)


def test_the_command(make_job: MakeJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, folder = finished(make_job)
    run, out = str(folder.parents[1]), str(tmp_path / "out")
    assert commands.run(["export", run, "--spec", "rope", "--to", out]) == 0
    assert "rope, seed 0" in capsys.readouterr().out
    for arguments, words in (
        ([run, "--to", out], "choose another folder"),
        ([run, "--to", out + "2", "--spec", "fire"], "no job for --spec fire"),
        ([run], "--to"),
    ):
        assert commands.run(["export", *arguments]) == 2
        assert words in capsys.readouterr().err


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "posenc.lab.export.folder", None)
    monkeypatch.setattr("posenc.lab.export.command._NEEDED", {"posenc"})
    assert commands.run(["export", "run", "--to", "out"]) == 2
    assert "pip install 'posenc[hf]'" in capsys.readouterr().err
