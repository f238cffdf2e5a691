"""The command ``posenc export``. Its options are read without transformers, which takes seconds to load."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posenc.lab.extras import load

_NEEDED = {"transformers", "tokenizers", "safetensors", "huggingface_hub"}


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
    export = load("posenc.lab.export.folder", "export", packages=_NEEDED, extra="hf", user="export")
    done = export(folder, to, spec=spec, seed=seed, plain=plain_llama)
    needs = "transformers alone" if plain_llama else "transformers and `import posenc.hf.modeling`"
    typer.echo(f"{done.to}: {done.spec}, seed {done.seed}, as a model of {needs}.")
    typer.echo(f"Read back, its logits differ from those of the lab by at most {done.difference:.1e}.")
