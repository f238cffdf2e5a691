"""posenc export: the same logits in a fresh process, with posenc, with trust_remote_code, and as a plain Llama."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")

from tests.samples import few_spectra
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from posenc.hf.modeling import PosencConfig, PosencForCausalLM
from posenc.hf.modeling import export as exported
from posenc.lab import commands
from posenc.lab.config import Config
from posenc.lab.export import TrainedJob, export, find_job, load_job
from posenc.lab.metrics import Values
from posenc.lab.models.decoder import Decoder
from posenc.lab.run.checkpoint import Checkpoint, write_checkpoint
from posenc.lab.run.job import Job, open_job, read_job, write_rows
from posenc.lab.run.records import records_frame
from posenc.lab.specs import standard_encodings
from posenc.lab.tasks import task_named

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
NUMBERS = {"dim": 32, "layers": 2, "heads": 4, "train_length": 16, "steps": 12, "device": "cpu"}

MIXED = ("rope+alibi", "sinusoidal+fox", "kerple+rope+shaw+fire", "rope@8/fox+rope:2")


def text() -> Config:
    return task_named("text").profile("quick").config.replaced(NUMBERS)


@torch.no_grad()
def decoder_of(spec: str) -> Decoder:
    """One whose parameters were moved as by a training."""
    config = text()
    decoder = Decoder(spec, task_named("text").shape(config), hidden=config.model.hidden, seed=3).eval()
    generator = torch.Generator().manual_seed(1)
    for parameter in decoder.parameters():
        parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return decoder


def job_of(run: Path, spec: str = "rope", seed: int = 0, *, steps: int = 12, config: Config | None = None) -> Path:
    """A job's folder in a run, with a model that was trained for so many steps."""
    job = Job(spec, seed, config or text(), "", {"train_sha256": "0" * 64}, {"torch": "1"})
    folder, none = open_job(run, job), torch.zeros(0)
    (run / "run.json").touch()
    state = decoder_of(spec).state_dict()
    write_checkpoint(folder / "checkpoint.pt", Checkpoint(job.identity, steps, state, {}, none, none, none, 0.0, 0))
    return folder


def written(folder: Path, to: Path, *, plain_llama: bool = False) -> float:
    return export(load_job(folder), to, exported, plain_llama=plain_llama)


@pytest.mark.parametrize(
    "spec",
    few_spectra([*standard_encodings(), *MIXED]),
)
def test_every_encoding_keeps_its_logits(spec: str, tmp_path: Path) -> None:
    job = Job(spec, 0, text(), "", {}, {})
    decoder, tokens = decoder_of(spec), torch.randint(256, (3, 16))
    assert export(TrainedJob(job, decoder, b"", None), tmp_path / "out", exported) <= 1e-5
    model = PosencForCausalLM.from_pretrained(tmp_path / "out").eval()
    torch.testing.assert_close(model(tokens).logits, decoder(tokens), atol=1e-5, rtol=0)
    assert sum(p.numel() for p in model.parameters()) == decoder.parameter_counts()[0]


def test_a_folder_holds_all_that_transformers_reads_and_the_numbers_of_the_run(tmp_path: Path) -> None:
    folder, metric = job_of(tmp_path / "run", seed=1), task_named("text").decides.name
    job = read_job(folder)
    values = [Values(metric, [2.0, 3.0], 16), Values(metric, [4.0, 4.5], 32), Values(metric, [1.0], 32, view="window")]
    write_rows(folder, job, records_frame(values, job=job.name, spec="rope", seed=1), ["rope"])
    assert written(folder, tmp_path / "out") == 0.0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "README.md", "config.json", "generation_config.json", "model.safetensors", "modeling_posenc.py",
        "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    tokens = AutoTokenizer.from_pretrained(tmp_path / "out")("ab cd", return_tensors="pt")["input_ids"]
    assert torch.equal(model(tokens).logits, load_job(folder).decoder(tokens))
    assert (model.config.max_position_embeddings, model.generation_config.eos_token_id) == (16, 0)
    assert not list(tmp_path.glob(".out*")), "nothing temporary stays"
    card = (tmp_path / "out" / "README.md").read_text()
    for words in (
        "| full | 2.500 | 4.250 |",
        "| window | – | 1.000 |",
        "Seed 1.",
        "steps 12",
        "0" * 64,
        "posenc.hf.modeling",
        'ained("out")',
    ):
        assert words in card
    (folder / "records.parquet").unlink()
    written(folder, tmp_path / "again")
    assert "Not measured yet" in (tmp_path / "again" / "README.md").read_text()


def test_a_plain_llama(tmp_path: Path) -> None:
    folder, tokens = job_of(tmp_path / "run"), torch.randint(256, (2, 8))
    written(folder, tmp_path / "out", plain_llama=True)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    assert type(model) is LlamaForCausalLM
    torch.testing.assert_close(model(tokens).logits, load_job(folder).decoder(tokens), atol=1e-5, rtol=0)
    assert "posenc.hf" not in (tmp_path / "out" / "README.md").read_text()
    with pytest.raises(ValueError, match="this model has t5"):
        written(job_of(tmp_path / "run", "t5"), tmp_path / "t5", plain_llama=True)
    assert not (tmp_path / "t5").exists()


def test_wrong_parameters_are_not_written(tmp_path: Path) -> None:
    config, tokens = PosencConfig(hidden_size=32, num_attention_heads=4, num_hidden_layers=1), torch.ones(1, 4).long()
    with pytest.raises(ValueError, match="parameters do not fit"):
        exported.from_parameters(config, {})
    model = PosencForCausalLM(config).eval()
    with pytest.raises(ValueError, match=r"logits differ by .*; nothing was written"):
        exported.write_folder(model, tmp_path / "out", tokens=tokens, logits=torch.ones(1, 4, 256), card=str)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("how", ["import", "trust", "plain"])
def test_a_fresh_process_gives_the_same_logits(how: str, tmp_path: Path) -> None:
    folder, tokens = job_of(tmp_path / "run", "rope" if how == "plain" else "t5+fox"), torch.randint(256, (2, 8))
    written(folder, tmp_path / "out", plain_llama=how == "plain")
    torch.save((tokens, load_job(folder).decoder(tokens).detach()), tmp_path / "expected.pt")
    surroundings = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-c", FRESH, how, str(tmp_path / "out"), str(tmp_path / "expected.pt")]
    ran = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]


def test_the_command_names_jobs_and_what_cannot_be_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    folders = {(spec, seed): job_of(run, spec, seed) for spec in ("rope", "t5") for seed in (0, 1)}
    assert find_job(folders["rope", 1], None, None) == folders["rope", 1]
    assert commands.run(["export", str(run), "--spec", "T5", "--seed", "1", "--to", str(out)]) == 0
    assert "t5, seed 1" in capsys.readouterr().out
    early = job_of(tmp_path / "early", steps=5)
    images = job_of(tmp_path / "images", config=task_named("images").profile("quick").config)
    plugin_job = job_of(tmp_path / "own")
    job = dataclasses.replace(read_job(plugin_job), code={"mine:Own": "0" * 64})
    (plugin_job / "job.json").unlink()
    open_job(tmp_path / "own", job)
    for folder, more, words in (
        (run, [], "4 jobs for this folder alone"),
        (run, ["--spec", "alibi"], "no job for --spec alibi"),
        (tmp_path, [], "neither the folder of a run"),
        (early, [], "5 of 12 steps"),
        (images, [], "--task images"),
        (plugin_job, [], "not mine:Own"),
    ):
        assert commands.run(["export", str(folder), "--to", f"{out}2", *more]) == 2
        assert words in capsys.readouterr().err
    assert commands.run(["export", str(folders["rope", 1]), "--to", str(out)]) == 2
    assert "choose another folder" in capsys.readouterr().err
