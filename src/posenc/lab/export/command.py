"""The command ``posenc export``. Its options are read without transformers, which takes seconds to load."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

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
    try:
        export = import_module("posenc.lab.export.folder").export
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in _NEEDED:
            raise
        raise ValueError(f"export needs {error.name}: pip install 'posenc[hf]'") from error
    done = export(folder, to, spec=spec, seed=seed, plain=plain_llama)
    needs = "transformers alone" if plain_llama else "transformers and `import posenc.hf.modeling`"
    typer.echo(f"{done.to}: {done.spec}, seed {done.seed}, as a model of {needs}.")
    typer.echo(f"Read back, its logits differ from those of the lab by at most {done.difference:.1e}.")
