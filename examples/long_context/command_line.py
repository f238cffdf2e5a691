"""What the commands of these recipes share: options, loading, and the folder at the end."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from examples.long_context.tuning import Recipe

from posenc.evaluation.likelihood import check_vocabulary, tokens_of
from posenc.hf.attach.loading import load_causal_lm
from posenc.hf.attach.rotary_modules import RotaryModules
from posenc.hf.extend.folder import check_out, write_folder

Train = Callable[[Any, Any, Any, Path, Callable[[str], None]], RotaryModules]
_OF_RECIPE = ("steps", "batch", "tokens", "warmup", "rank", "save_every", "seed")


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Options that every recipe has."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("model", help="folder of transformers, or a GGUF file")
    parser.add_argument("out", type=Path, help="new folder; the state is kept in OUT.work, and the same call resumes")
    parser.add_argument("--length", type=int, required=True, help="new context length, in tokens")
    parser.add_argument("--original-length", type=int, help="training length (default: as the configuration says)")
    parser.add_argument("--text", help="file to train and search on (default: the topics of Python's own help)")
    parser.add_argument("--steps", type=int, default=400, help="of the training")
    parser.add_argument("--batch", type=int, default=1, help="rows of a step")
    parser.add_argument("--tokens", type=int, help="of a row; fewer than the length: positions are skipped (PoSE)")
    parser.add_argument("--lr", type=float, help="learning rate")
    parser.add_argument("--warmup", type=int, default=20, help="steps of the warm-up")
    parser.add_argument("--rank", type=int, default=0, help="of LoRA; 0: all weights are trained")
    parser.add_argument("--save-every", type=int, default=10, help="steps between two saved states")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pieces", type=int, default=2, help="texts that a search judges by")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--device", default="cpu")
    return parser


def recipe_of(options: argparse.Namespace, **more: Any) -> Recipe:
    """The numbers of a training."""
    lr = {} if options.lr is None else {"lr": options.lr}
    return Recipe(**{name: getattr(options, name) for name in _OF_RECIPE}, **lr, **more)


def load_and_write(options: argparse.Namespace, train: Train) -> None:
    """Load a model, train it, and write its folder."""

    def report(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    check_out(options.out, overwrite=False)
    model, tokenizer = load_causal_lm(options.model, dtype=options.dtype, device=options.device)
    text = tokens_of(options.text, tokenizer)
    check_vocabulary(text, model)
    original = options.original_length or RotaryModules(model).original_length or options.length
    work = options.out.with_name(f"{options.out.name}.work")
    work.mkdir(parents=True, exist_ok=True)
    rotations = train(model, text, tokenizer, work, report)
    write_folder(
        options.out, rotations.model, tokenizer, length=options.length, original_length=original, work=work,
        trained=True,
    )  # fmt: skip
    shutil.rmtree(work)
    print(f"written to {options.out}; posenc evaluate measures it")
