"""A short training of a causal language model on a text, a plain loop on accelerate, resumable after each saved step.

Rows are drawn by their step's number alone, so that a run which was killed and goes on ends as one that was not. With
fewer tokens in a row than the text that is to be met, positions are skipped (PoSE, `posenc.positions.skipped`).
Needs the package accelerate; LoRA the package peft.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from posenc.arguments import LONGEST, check_number, check_whole
from posenc.hf.atomic_write import write_atomically
from posenc.hf.limits import TOKENS
from posenc.positions.skipping import skipped


@dataclass(frozen=True)
class Recipe:
    """The numbers of progressive extension.

    Args:
        intermediate: tokens that the first search and the training are for; None: half of the target, or all of it
            where half is no more than the training length. Below the target there is a second search.
        steps: of the training; 0: none.
        batch: rows of a step, in each process.
        tokens: of a row; fewer than ``intermediate`` are trained with skipped positions. None: as many.
        lr: learning rate, after a warm-up, and falling to 0 on a line.
        warmup: steps.
        rank: of LoRA; 0: all weights are trained.
        save_every: steps between two states on the disk.
        seed: of rows, of LoRA and of the searches.
    """

    intermediate: int | None = None
    steps: int = 400
    batch: int = 1
    tokens: int | None = None
    lr: float = 2e-5
    warmup: int = 20
    rank: int = 0
    save_every: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("batch", "save_every"):
            check_whole(name, getattr(self, name), least=1)
        for name in ("steps", "warmup", "rank", "seed"):
            check_whole(name, getattr(self, name), least=0, most=LONGEST)
        for name in ("intermediate", "tokens"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), least=2, most=TOKENS)
        check_number("lr", self.lr, above=0)


class Row(NamedTuple):
    """What a step trains on, ``(batch, tokens)`` each."""

    tokens: Tensor
    positions: Tensor
    scored: Tensor  # bool: whether a token's loss counts


def drawn(text: Tensor, recipe: Recipe, length: int, step: int, process: int = 0) -> Row:
    """The rows of a step.

    Args:
        text: tokens ``(tokens,)``.
        recipe: numbers.
        length: tokens that the model is to meet.
        step: from 0.
        process: of several that train together.

    Raises:
        ValueError: for a text that is shorter than a row.
    """
    size = min(recipe.tokens or length, length)
    longest = min(length, len(text))
    if longest < size:
        raise ValueError(f"text: rows of {size:,} tokens are trained, and {len(text):,} are left beside what is scored")
    seed = hashlib.sha256(f"{recipe.seed} {step} {process}".encode()).digest()[:6]
    generator = torch.Generator().manual_seed(int.from_bytes(seed, "big"))
    starts = torch.randint(len(text) - longest + 1, (recipe.batch, 1), generator=generator)
    laid = skipped(size, length, text_length=longest, batch=recipe.batch, generator=generator)
    scored = torch.ones(recipe.batch, size, dtype=torch.bool)
    scored[:, 1:] = laid.tokens.diff(dim=-1) == 1  # the first token of the second chunk follows from nothing
    scored[:, 0] = False
    return Row(text[starts + laid.tokens], laid.positions, scored)


def tune(
    model: nn.Module,
    text: Tensor,
    recipe: Recipe,
    length: int,
    *,
    state: Path,
    progress: Callable[[str], None] = lambda text: None,
) -> nn.Module:
    """Train a model in place; returns it, with LoRA's weights merged.

    Args:
        model: on its device; its rotation is that of the length.
        text: tokens to draw from.
        recipe: numbers.
        length: tokens that it is to meet.
        state: a file for weights, optimizer and step, from which a later call goes on.
        progress: is told where it stands.
    """
    accelerate = _package("accelerate")
    accelerator = accelerate.Accelerator(cpu=next(model.parameters()).device.type == "cpu")
    torch.manual_seed(recipe.seed)
    wrapped = _with_lora(model, recipe.rank) if recipe.rank else model
    weights = {name: one for name, one in wrapped.named_parameters() if one.requires_grad}
    optimizer: Any = torch.optim.AdamW(list(weights.values()), lr=recipe.lr, betas=(0.9, 0.95), weight_decay=0.0)
    first = _resumed(state, weights, optimizer)
    prepared, optimizer = accelerator.prepare(wrapped, optimizer)
    prepared.train()
    for step in range(first, recipe.steps):
        torch.manual_seed(recipe.seed + step)  # of dropout
        for group in optimizer.param_groups:
            group["lr"] = recipe.lr * _share(step, recipe)
        row = Row(*(one.to(accelerator.device) for one in drawn(text, recipe, length, step, accelerator.process_index)))
        loss = row_loss(prepared, row)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(prepared.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % recipe.save_every == 0 or step + 1 == recipe.steps:
            if accelerator.is_main_process:
                kept = {name: one.detach().cpu() for name, one in weights.items()}
                progress_so_far = {"step": step + 1, "weights": kept, "optimizer": optimizer.state_dict()}
                write_atomically(state, partial(torch.save, progress_so_far), replace=True)
            accelerator.wait_for_everyone()
            progress(f"step {step + 1} of {recipe.steps}: {loss.item():.4f} nats")
    merged: Any = wrapped
    found: nn.Module = merged.merge_and_unload() if recipe.rank else wrapped
    return found.requires_grad_(True).eval()


def row_loss(model: nn.Module, row: Row) -> Tensor:
    """The mean loss of the tokens that count.

    A mask is given, though nothing is padded: without one transformers takes positions that do not follow one another
    for the begin of another document, which sees nothing of the one before.
    """
    out: Any = model(
        input_ids=row.tokens, position_ids=row.positions, attention_mask=torch.ones_like(row.tokens), use_cache=False
    )
    losses = functional.cross_entropy(out.logits[:, :-1].float().transpose(1, 2), row.tokens[:, 1:], reduction="none")
    return losses[row.scored[:, 1:]].mean()


def _share(step: int, recipe: Recipe) -> float:
    """Of the learning rate."""
    rising = (step + 1) / (recipe.warmup + 1)
    falling = (recipe.steps - step) / max(1, recipe.steps - recipe.warmup)
    return min(1.0, rising, falling)


def _with_lora(model: nn.Module, rank: int) -> nn.Module:
    peft = _package("peft")
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", lora_dropout=0.0)
    wrapped: nn.Module = peft.get_peft_model(model, config)
    return wrapped


def _resumed(state: Path, weights: dict[str, nn.Parameter], optimizer: torch.optim.Optimizer) -> int:
    """The step to go on with."""
    if not state.exists():
        return 0
    kept = torch.load(state, map_location="cpu", weights_only=True)
    with torch.no_grad():
        for name, one in weights.items():
            one.copy_(kept["weights"][name])
    optimizer.load_state_dict(kept["optimizer"])
    step: int = kept["step"]
    return step


def _package(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"progressive extension needs the package {name}: pip install 'posenc[extend]', in a clone '.[extend]'"
        ) from error
