"""``posenc export``: a model that compare has trained on text, as a folder that transformers reads."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

import posenc
from posenc.catalogue import encoding_info
from posenc.lab.console import plain_console
from posenc.lab.data.corpus import TOKENIZER
from posenc.lab.decoder import Decoder
from posenc.lab.run.folder import FILE as RUN
from posenc.lab.run.job import FILE, job_folders, read_job
from posenc.lab.run.run_job import data_of
from posenc.lab.run.train import read_checkpoint
from posenc.lab.specs import normalize_spec
from posenc.lab.tasks import task_named
from posenc_cli.parsing import Parser

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


def export_options(parser: Parser) -> None:
    """The options of ``posenc export``."""
    add = parser.add_argument
    add("folder", type=Path, metavar="FOLDER", help="of a run of posenc compare, or of one of its jobs")
    add("--to", type=Path, metavar="FOLDER", required=True, help="to write; it must not exist yet, or be empty")
    add("--spec", help="which encoding of the run, as compare names it")
    add("--seed", type=int, help="which of its seeds")


def export_command(o: Namespace, command: str) -> None:
    """Write a model that compare has trained on text as a folder for transformers, with its tokenizer."""
    from posenc.hf.modeling import PosencConfig  # of another extra, which a worker that reads this module may lack
    from posenc.hf.modeling import export as hf

    path = find_job(o.folder, o.spec, o.seed)
    job, (decoder, tokenizer) = read_job(path), load_model(path)
    m, length = job.config.model, job.config.training.train_length
    config = PosencConfig(
        vocab_size=len(decoder.embed.weight), hidden_size=m.dim, intermediate_size=m.hidden, num_hidden_layers=m.layers,
        num_attention_heads=m.heads, encodings=job.spec, train_length=length,
        rms_norm_eps=decoder.norm.eps, posenc_version=posenc.__version__,
    )  # fmt: skip
    with torch.no_grad():
        model = hf.from_parameters(config, dict(renamed(decoder, job.spec)))
        tokens = torch.randint(config.vocab_size, (4, length), generator=torch.Generator().manual_seed(0))
        difference = hf.write_folder(model, o.to, tokens=tokens, logits=decoder(tokens), tokenizer=tokenizer)
    text = f"{o.to}: {job.spec}, seed {job.seed}; read back, its logits differ from the lab's by {difference:.1e}."
    plain_console().print(text)


def find_job(folder: Path, spec: str | None, seed: int | None) -> Path:
    """The folder of one job: ``folder`` itself, or the one in this run that has this encoding and seed.

    Raises:
        ValueError: for a folder that is neither, and where no job or more than one fits; it names what there is.
    """
    normalized = None if spec is None else normalize_spec(spec)
    if not (folder / RUN).exists() and not (folder / FILE).exists():
        raise ValueError(f"{folder} is neither the folder of a run of posenc compare nor the folder of one of its jobs")
    jobs = {path: read_job(path) for path in (job_folders(folder) if (folder / RUN).exists() else [folder])}
    fitting = [path for path, job in jobs.items() if normalized in (None, job.spec) and seed in (None, job.seed)]
    if len(fitting) != 1:
        known = ", ".join(f"--spec {job.spec} --seed {job.seed}" for job in jobs.values()) or "none"
        raise ValueError(f"{folder}: {len(fitting) or 'no'} jobs fit, one is needed; there are: {known}")
    return fitting[0]


def load_model(folder: Path) -> tuple[Decoder, bytes]:
    """The model of a job's last checkpoint, ready to run, and its tokenizer.json, empty where tokens are bytes.

    Raises:
        ValueError: for a job of another task, an unfinished job, and a job with classes of somebody's own.
    """
    job = read_job(folder)
    config, steps = job.config, job.config.training.steps
    if config.task != "text":
        raise ValueError(f"{folder} is a job of --task {config.task}: only models of text are language models")
    if job.code:
        raise ValueError(f"{job.spec}: only encodings of the catalogue are exported, not {', '.join(job.code)}")
    state = read_checkpoint(folder / "checkpoint.pt", job.identity)
    if state is None or state.step < steps:
        done = 0 if state is None else state.step
        raise ValueError(f"{folder} was trained for {done} of {steps} steps: the command of its run goes on with it")
    data = data_of(folder, job)
    model = task_named("text").model(job.spec, config, data, job.seed)
    assert isinstance(model, Decoder)
    model.load_state_dict(state.model)
    stored = folder.parent.parent / "data" / TOKENIZER
    return model.eval(), stored.read_bytes() if "tokenizer_sha256" in job.data else b""


def renamed(decoder: Decoder, spec: str) -> Iterator[tuple[str, Tensor]]:
    """A decoder's parameters under the names that `posenc.hf.modeling.export` explains."""
    from posenc.hf.config.encoding_spec import scheduled

    lines, _ = scheduled(spec, len(decoder.blocks))
    on_embeddings = [n for n, line in enumerate(lines) if encoding_info(line["name"]).hook_point == "embedding"]
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
