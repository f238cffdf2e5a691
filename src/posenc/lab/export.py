"""The command ``posenc export``: a model that compare has trained on text, as a folder that transformers reads.

Here the model of a job is found, checked and named; `posenc.hf.modeling.export` writes it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
import typer
from torch import Tensor

import posenc
from posenc.catalogue import encoding_info
from posenc.hf.config.encoding_spec import scheduled
from posenc.lab.data.corpus import TOKENIZER
from posenc.lab.data.tokens import BYTES, vocabulary_of
from posenc.lab.files import read_bytes
from posenc.lab.models.decoder import Decoder
from posenc.lab.plugins import load_optional
from posenc.lab.run.checkpoint import read_checkpoint
from posenc.lab.run.folder import FILE as RUN
from posenc.lab.run.job import FILE, Job, job_folders, read_job, read_rows
from posenc.lab.specs import normalize_spec, plugin_names
from posenc.lab.tasks import task_named
from posenc.lab.tasks.text import tokens_of

_NEEDED = {"transformers", "tokenizers", "safetensors", "huggingface_hub"}
_RENAMED = (  # of the lab's decoder, in the words of Llama; encodings get the numbers of their lines
    (r"embed\.", "embed_tokens."),
    (r"head\.", "lm_head."),
    (r"blocks\.(\d+)\.attention_norm\.", r"layers.\1.input_layernorm."),
    (r"blocks\.(\d+)\.mlp_norm\.", r"layers.\1.post_attention_layernorm."),
    (r"blocks\.(\d+)\.attention\.(?=\w_proj)", r"layers.\1.self_attn."),
    (r"blocks\.(\d+)\.mlp\.gate\.", r"layers.\1.mlp.gate_proj."),
    (r"blocks\.(\d+)\.mlp\.value\.", r"layers.\1.mlp.up_proj."),
    (r"blocks\.(\d+)\.mlp\.out\.", r"layers.\1.mlp.down_proj."),
)


@dataclass(frozen=True)
class TrainedJob:
    """A job that was trained to its end."""

    job: Job
    decoder: Decoder
    tokenizer: bytes  # content of tokenizer.json; empty where tokens are bytes
    records: pd.DataFrame | None  # what was measured; None if that is still to come


def export_command(
    folder: Annotated[Path, typer.Argument(help="Folder of a run of posenc compare, or of one of its jobs.")],
    to: Annotated[Path, typer.Option("--to", help="Folder to write; it must not exist yet, or be empty.")],
    spec: Annotated[
        str | None, typer.Option(help="Which encoding of the run, as compare names it.", show_default=False)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Which of its seeds.", show_default=False)] = None,
    plain_llama: Annotated[
        bool, typer.Option("--plain-llama", help="Write a LlamaForCausalLM, which needs no posenc; RoPE only.")
    ] = False,
) -> None:
    """Write a model that compare has trained as a folder for transformers, with tokenizer and model card."""
    hf = load_optional("posenc.hf.modeling.export", packages=_NEEDED, extra="hf", user="export")
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise ValueError(f"--to {to}: there is something already; choose another folder")
    trained = load_job(find_job(folder, spec, seed))
    difference = export(trained, to, hf, plain_llama=plain_llama)
    needs = "transformers alone" if plain_llama else "transformers and `import posenc.hf.modeling`"
    typer.echo(f"{to}: {trained.job.spec}, seed {trained.job.seed}, as a model of {needs}.")
    typer.echo(f"Read back, its logits differ from the lab's by at most {difference:.1e}.")


@torch.no_grad()
def export(trained: TrainedJob, to: Path, hf: Any, *, plain_llama: bool = False) -> float:
    """Write one model with ``hf``, the module `posenc.hf.modeling.export`; returns the logits' largest difference."""
    job, decoder, m = trained.job, trained.decoder, trained.job.config.model
    length = job.config.training.train_length
    config = hf.PosencConfig(
        vocab_size=len(decoder.embed.weight), hidden_size=m.dim, intermediate_size=m.hidden, num_hidden_layers=m.layers,
        num_attention_heads=m.heads, encodings=job.spec, train_length=length,
        rms_norm_eps=decoder.norm.eps, posenc_version=posenc.__version__,
    )  # fmt: skip
    model = hf.from_parameters(config, dict(renamed(decoder, job.spec)))
    tokens = torch.randint(config.vocab_size, (4, length), generator=torch.Generator().manual_seed(0))

    def card(difference: float) -> str:
        text: str = hf.model_card(to.name, *_words(trained), difference=difference, plain=plain_llama)
        return text

    difference: float = hf.write_folder(
        model, to, tokens=tokens, logits=decoder(tokens), card=card, plain=plain_llama, tokenizer=trained.tokenizer
    )
    return difference


def renamed(decoder: Decoder, spec: str) -> Iterator[tuple[str, Tensor]]:
    """A decoder's parameters under the names that `posenc.hf.modeling.export` explains."""
    lines, _ = scheduled(spec, len(decoder.blocks))
    places = [encoding_info(line["name"]).hook_point == "embedding" for line in lines]
    on_embeddings = [n for n, embeds in enumerate(places) if embeds]
    shared = {n for n, line in enumerate(lines) if encoding_info(line["name"]).shared}

    def acting(layer: int) -> list[int]:
        here = [n for n, line in enumerate(lines) if layer in line.get("layers", [layer])]
        return [n for n in here if n not in on_embeddings]

    for name, tensor in decoder.state_dict().items():
        embedding = re.match(r"embedding_encodings\.(\d+)\.", name)
        layer = re.match(r"blocks\.(\d+)\.attention\.encodings\.(\d+)\.", name)
        if embedding:
            yield f"encodings.{on_embeddings[int(embedding[1])]}.{name[embedding.end() :]}", tensor
        elif layer:
            line = acting(int(layer[1]))[int(layer[2])]
            where = "" if line in shared else f"layers.{layer[1]}."
            yield f"{where}encodings.{line}.{name[layer.end() :]}", tensor
        else:
            for pattern, replacement in _RENAMED:
                name = re.sub(f"^{pattern}", replacement, name)
            yield name, tensor


def find_job(folder: Path, spec: str | None, seed: int | None) -> Path:
    """The folder of one job: ``folder`` itself, or the one in this run that has this encoding and seed.

    Raises:
        ValueError: for a folder that is neither, and where no job or more than one fits; it names what there is.
    """
    normalized = None if spec is None else normalize_spec(spec)
    if not (folder / RUN).exists() and not (folder / FILE).exists():
        raise ValueError(f"{folder} is neither the folder of a run of posenc compare nor the folder of one of its jobs")
    there = job_folders(folder) if (folder / RUN).exists() else [folder]
    jobs = {path: read_job(path) for path in there}
    fitting = [p for p, job in jobs.items() if normalized in (None, job.spec) and seed in (None, job.seed)]
    if len(fitting) != 1:
        known = ", ".join(f"--spec {job.spec} --seed {job.seed}" for job in jobs.values()) or "none"
        choices = " ".join(f"--{k} {v}" for k, v in {"spec": spec, "seed": seed}.items() if v is not None)
        count = "no job" if not fitting else f"{len(fitting)} jobs"
        raise ValueError(f"{folder}: {count} for {choices or 'this folder alone'}; there are: {known}")
    return fitting[0]


def load_job(folder: Path) -> TrainedJob:
    """The model of a job's checkpoint, in float32 and ready to run.

    Raises:
        ValueError: for a job of another task, an unfinished job, and a job with plugins.
    """
    job = read_job(folder)
    config, plugins = job.config, plugin_names([job.spec])
    if config.task != "text":
        raise ValueError(f"{folder} is a job of --task {config.task}: only models of text are language models")
    if plugins or job.code:
        raise ValueError(
            f"{job.spec}: whoever loads an exported model has posenc, but not {', '.join(plugins or job.code)}; only "
            "encodings of the catalogue are exported"
        )
    state = read_checkpoint(folder / "checkpoint.pt", job.identity)
    done, steps = 0 if state is None else state.step, config.training.steps
    if state is None or done < steps:
        raise ValueError(f"{folder} was trained for {done} of {steps} steps: the command of its run goes on with it")
    tokenizer, vocabulary = _tokenizer_of(folder, job), vocabulary_of(tokens_of(config))
    shape = task_named("text").shape(config)
    decoder = Decoder(job.spec, shape, hidden=config.model.hidden, seed=job.seed, vocabulary=vocabulary)
    try:
        decoder.load_state_dict(state.model)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder / 'checkpoint.pt'} does not hold the weights of {job.spec}: {error}") from error
    rows = read_rows(folder, job)
    return TrainedJob(job, decoder.eval(), tokenizer, None if rows is None else rows[0])


def _tokenizer_of(folder: Path, job: Job) -> bytes:
    """The tokenizer that a job was trained with, from the data of its run; empty where its tokens are bytes."""
    if tokens_of(job.config) == BYTES:
        return b""
    path = folder.parent.parent / "data" / TOKENIZER
    try:
        content = read_bytes(path)
    except OSError as error:
        raise ValueError(f"cannot read {path}, the tokenizer of {job.name}: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != job.data.get("tokenizer_sha256"):
        raise ValueError(f"{path} is not the tokenizer that {job.name} was trained with")
    return content


def _words(trained: TrainedJob) -> tuple[str, str, dict[str, str]]:
    """Title, a paragraph and further parts of the model card."""
    job, config, (total, encoding_parameters) = trained.job, trained.job.config, trained.decoder.parameter_counts()
    pairs = tokens_of(config) != BYTES
    unit, tokens = ("tokens" if pairs else "bytes"), "Its tokens are the 256 bytes"
    if pairs:
        tokens += f" and {len(trained.decoder.embed.weight) - 256:,} byte pairs, trained on the training text"
    about = (
        f"A small decoder for the comparison of positional encodings: {config.model.layers} layers of width "
        f"{config.model.dim} with {config.model.heads} heads, {total:,} parameters, {encoding_parameters:,} of them "
        f"the encoding's, trained on pieces of {config.training.train_length} {unit}. {tokens}; token 0, which is "
        "byte 0, stands between documents. It is a subject of measurements, not a model to rely on."
    )
    facts = {"Settings": config.shown(), "Data": job.data, "Versions": job.versions}
    sections = [f"{what}: {'; '.join(f'{k} {v}' for k, v in known.items())}." for what, known in facts.items()]
    parts = {"What it scored": _numbers(trained), "How it was made": "  \n".join([f"Seed {job.seed}.", *sections])}
    kind = "byte-pair" if pairs else "byte-level"
    return f"{job.spec}, a {kind} language model of posenc compare", about, parts


def _numbers(trained: TrainedJob) -> str:
    """A line for each view, a column for each length."""
    if trained.records is None:
        return "Not measured yet."
    metric, frame = task_named("text").decides, trained.records
    unit = "bytes" if tokens_of(trained.job.config) == BYTES else "tokens"
    scores = frame[(frame["metric"] == metric.name) & (frame["spec"] == trained.job.spec)]
    means = scores.groupby(["view", "length"], observed=True)["value"].mean().unstack()
    lines = [
        f"| {view} | {' | '.join('–' if pd.isna(value) else f'{value:.3f}' for value in row)} |"
        for view, row in means.iterrows()
    ]
    heads = [
        f"| view | {' | '.join(f'{length:,} {unit}' for length in means.columns)} |",
        "|---" * (1 + means.shape[1]) + "|",
    ]
    return "\n".join([f"Mean {metric.unit} over the windows of the run, by length of the text.\n", *heads, *lines])
