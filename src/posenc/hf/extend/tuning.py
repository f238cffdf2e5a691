"""A short training of a causal language model on a text, a plain loop on accelerate, resumable after each saved step.

The rows of a step depend on the seed and the step's number alone, so that a killed and resumed run gives the result of
an uninterrupted one. Where a row has fewer tokens than the context length, positions are skipped (PoSE,
`posenc.positions.skipped`).
Needs the package accelerate; LoRA the package peft.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from posenc.arguments import LONGEST, check_number, check_whole
from posenc.hf.atomic_write import write_atomically
from posenc.hf.limits import TOKENS
from posenc.positions.skipping import skipped


@dataclass(frozen=True)
class Recipe:
    """The numbers of the methods that train: progressive extension and DroPE.

    Args:
        intermediate: context length of the first search and of the fine-tuning; None: half of the target, or all of it
            where half is no more than the training length. Below the target there is a second search.
        steps: of the fine-tuning; 0: none.
        batch: rows of a step, in each process.
        tokens: of a row; with fewer than ``intermediate``, positions are skipped. None: as many.
        lr: learning rate after the warm-up, from which it decays linearly to 0.
        warmup: steps of the warm-up.
        rank: of LoRA; 0: all weights are trained.
        save_every: steps between two saved states.
        seed: of rows, of LoRA and of the searches.
        qk_norm: of DroPE: "head" or "full" gives queries and keys a norm within each head or over all of them.
        temperature: of DroPE: factor on the attention logits after the training; "auto": the one of
            `posenc.hf.extend.drope.TEMPERATURES` with the lowest loss at the target length.
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
    qk_norm: Literal["head", "full"] | None = None
    temperature: float | Literal["auto"] = 1.0

    def __post_init__(self) -> None:
        for name in ("batch", "save_every"):
            check_whole(name, getattr(self, name), least=1)
        for name in ("steps", "warmup", "rank", "seed"):
            check_whole(name, getattr(self, name), least=0, most=LONGEST)
        for name in ("intermediate", "tokens"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), least=2, most=TOKENS)
        check_number("lr", self.lr, above=0)
        if self.qk_norm not in (None, "head", "full"):
            raise ValueError(f"qk_norm must be head, full or None, got {self.qk_norm!r}")
        if self.qk_norm is not None and self.rank:
            raise ValueError("rank: LoRA trains no norms, and the norms that qk_norm adds are new: use rank 0")
        if self.temperature != "auto":
            check_number("temperature", self.temperature, above=0)


class Row(NamedTuple):
    """The rows of one step, ``(batch, tokens)`` each."""

    tokens: Tensor
    positions: Tensor
    scored: Tensor  # bool: whether a token's loss counts


def draw_rows(text: Tensor, recipe: Recipe, length: int, step: int, process: int = 0) -> Row:
    """The rows of a step.

    Args:
        text: tokens ``(tokens,)``.
        recipe: numbers.
        length: the context length, in tokens.
        step: from 0.
        process: rank of the process.

    Raises:
        ValueError: for a text that is shorter than a row.
    """
    size = min(recipe.tokens or length, length)
    longest = min(length, len(text))
    if longest < size:
        raise ValueError(f"text: rows have {size:,} tokens, and only {len(text):,} are not scored")
    seed = hashlib.sha256(f"{recipe.seed} {step} {process}".encode()).digest()[:6]
    generator = torch.Generator().manual_seed(int.from_bytes(seed, "big"))
    starts = torch.randint(len(text) - longest + 1, (recipe.batch, 1), generator=generator)
    row = skipped(size, length, text_length=longest, batch=recipe.batch, generator=generator)
    scored = torch.ones(recipe.batch, size, dtype=torch.bool)
    scored[:, 1:] = row.tokens.diff(dim=-1) == 1  # not the first token after a skip, which nothing predicts
    scored[:, 0] = False
    return Row(text[starts + row.tokens], row.positions, scored)


def tune(
    model: nn.Module,
    text: Tensor,
    recipe: Recipe,
    length: int,
    *,
    state: Path,
    progress: Callable[[str], None] = lambda text: None,
    on_step: Callable[[int, float], None] | None = None,
) -> nn.Module:
    """Train a model in place; returns it, with LoRA's weights merged.

    Args:
        model: on its device; its rotation is that of the length.
        text: tokens to draw from.
        recipe: numbers.
        length: the context length, in tokens.
        state: a file for weights, optimizer and step, from which a later call resumes.
        progress: is called with a line of text after each save.
        on_step: is called after each step with its number, from 1, and its loss in nats.
    """
    accelerate = _package("accelerate")
    accelerator = accelerate.Accelerator(cpu=next(model.parameters()).device.type == "cpu")
    torch.manual_seed(recipe.seed)
    wrapped = _with_lora(model, recipe.rank) if recipe.rank else model
    weights = {name: weight for name, weight in wrapped.named_parameters() if weight.requires_grad}
    optimizer: Any = torch.optim.AdamW(list(weights.values()), lr=recipe.lr, betas=(0.9, 0.95), weight_decay=0.0)
    first = _resume(state, weights, optimizer)
    prepared, optimizer = accelerator.prepare(wrapped, optimizer)
    prepared.train()
    for step in range(first, recipe.steps):
        torch.manual_seed(recipe.seed + step)  # of dropout
        for group in optimizer.param_groups:
            group["lr"] = recipe.lr * _lr_share(step, recipe)
        row = Row(
            *(
                tensor.to(accelerator.device)
                for tensor in draw_rows(text, recipe, length, step, accelerator.process_index)
            )
        )
        loss = row_loss(prepared, row)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(prepared.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if on_step is not None:
            on_step(step + 1, loss.item())
        if (step + 1) % recipe.save_every == 0 or step + 1 == recipe.steps:
            if accelerator.is_main_process:
                saved = {name: weight.detach().cpu() for name, weight in weights.items()}
                checkpoint = {"step": step + 1, "weights": saved, "optimizer": optimizer.state_dict()}
                write_atomically(state, partial(torch.save, checkpoint), replace=True)
            accelerator.wait_for_everyone()
            progress(f"step {step + 1} of {recipe.steps}: {loss.item():.4f} nats")
    trained: Any = accelerator.unwrap_model(prepared, keep_fp32_wrapper=False)  # without the autocast of training
    tuned: nn.Module = trained.merge_and_unload() if recipe.rank else trained
    return tuned.requires_grad_(True).eval()


def row_loss(model: nn.Module, row: Row) -> Tensor:
    """The mean loss of the tokens that count.

    An attention mask is passed although nothing is padded: without one, transformers takes a skip in the positions for
    the start of another document, which does not attend to the one before.
    """
    out: Any = model(
        input_ids=row.tokens, position_ids=row.positions, attention_mask=torch.ones_like(row.tokens), use_cache=False
    )
    losses = functional.cross_entropy(out.logits[:, :-1].float().transpose(1, 2), row.tokens[:, 1:], reduction="none")
    return losses[row.scored[:, 1:]].mean()


def _lr_share(step: int, recipe: Recipe) -> float:
    """The learning rate of a step, as a share of the recipe's."""
    rising = (step + 1) / (recipe.warmup + 1)
    falling = (recipe.steps - step) / max(1, recipe.steps - recipe.warmup)
    return min(1.0, rising, falling)


def _with_lora(model: nn.Module, rank: int) -> nn.Module:
    peft = _package("peft")
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", lora_dropout=0.0)
    wrapped: nn.Module = peft.get_peft_model(model, config)
    return wrapped


def _resume(state: Path, weights: dict[str, nn.Parameter], optimizer: torch.optim.Optimizer) -> int:
    """Load a saved state; returns the step to continue with."""
    if not state.exists():
        return 0
    saved = torch.load(state, map_location="cpu", weights_only=True)
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(saved["weights"][name])
    optimizer.load_state_dict(saved["optimizer"])
    step: int = saved["step"]
    return step


def _package(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"methods that train need the package {name}: pip install 'posenc[extend]', in a clone '.[extend]'"
        ) from error
