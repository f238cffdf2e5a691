"""A short training of a causal language model on a text, a plain loop on accelerate, resumable after each saved step.

The rows of a step depend on the seed and the step's number alone, so that a killed and resumed run gives the result of
an uninterrupted one. Where a row has fewer tokens than the context length, positions are skipped (PoSE,
`posenc.positions.skipped`).

Mixed windows (LongRoPE2) train both sets of factors of a "longrope" rotation at once. A share of the rows are short
windows: documents of at most the training length, packed to the size of a row, each at positions from 0 and masked from
the others. The rest are long ones, a single text each. transformers takes the short factors where no position of a call
reaches the training length, else the long ones, so rows of the two kinds are in calls of their own:

    loss of a step = (short rows / rows) · mean loss of short rows + (long rows / rows) · mean loss of long rows

Weights of less than 32 bits are trained in float32, which needs the memory of a float32 model, and rounded to their own
dtype at the end. bfloat16 has 8 bits of precision: at the rate of 2e-5 it rounds most of AdamW's updates away. In
float16 the square of a gradient below 2e-4 is 0, and AdamW divides by it.

Source: Shang et al., LongRoPE2, arXiv 2502.20082, section 3.3, table 1, figures 5 and 10.
Departs from the source: the authors pack whole documents of at most the training length, with BOS and EOS, and train
    windows of both kinds in one batch; here the text has no borders of documents, so a document is a piece of it of the
    training length at a random place, the last one of a row shorter; with one row a step, steps are of one kind.
Needs the package accelerate; LoRA the package peft.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
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
    """The numbers of a training.

    Args:
        steps: of the training; 0: none.
        batch: rows of a step, in each process.
        tokens: of a row; with fewer than the context length, positions are skipped. None: as many.
        lr: learning rate after the warm-up, from which it decays linearly to 0.
        warmup: steps of the warm-up.
        rank: of LoRA; 0: all weights are trained.
        save_every: steps between two saved states.
        seed: of rows and of LoRA.
        short_share: the share of rows that are short windows under the original rotation, as LongRoPE2 trains; 0: none,
            LongRoPE's recipe. LongRoPE2's paper has 0.3 of the tokens (table 1).
    """

    steps: int = 400
    batch: int = 1
    tokens: int | None = None
    lr: float = 2e-5
    warmup: int = 20
    rank: int = 0
    save_every: int = 10
    seed: int = 0
    short_share: float = 0.0

    def __post_init__(self) -> None:
        for name in ("batch", "save_every"):
            check_whole(name, getattr(self, name), least=1)
        for name in ("steps", "warmup", "rank", "seed"):
            check_whole(name, getattr(self, name), least=0, most=LONGEST)
        if self.tokens is not None:
            check_whole("tokens", self.tokens, least=2, most=TOKENS)
        check_number("lr", self.lr, above=0)
        check_number("short_share", self.short_share, least=0)
        if self.short_share >= 1:
            raise ValueError(f"short_share must be below 1, as no long window would be trained, got {self.short_share}")


class Row(NamedTuple):
    """The rows of one call, ``(batch, tokens)`` each."""

    tokens: Tensor
    positions: Tensor
    scored: Tensor  # bool: whether a token's loss counts
    packed: bool = False  # whether a row is several documents, which do not attend to each other

    def to(self, device: torch.device) -> Row:
        """The same on a device."""
        return Row(self.tokens.to(device), self.positions.to(device), self.scored.to(device), self.packed)


def draw_step(
    text: Tensor, recipe: Recipe, length: int, step: int, process: int = 0, *, original_length: int | None = None
) -> list[Row]:
    """The rows of a step: short windows, long windows or both; without mixed windows long ones alone.

    Over the steps the share of short rows is as near to the recipe's as whole rows allow.

    Args:
        text, recipe, length, step, process: as `draw_rows` has them.
        original_length: the training length in tokens, which mixed windows need.

    Raises:
        ValueError: as `draw_rows` and `draw_short_rows`.
    """
    if not recipe.short_share:
        return [draw_rows(text, recipe, length, step, process)]
    if original_length is None:
        raise ValueError("original_length must be given where windows are mixed (short_share)")
    expected = recipe.batch * recipe.short_share
    short = int(expected * (step + 1) + 1e-9) - int(expected * step + 1e-9)
    rows = []
    if short:
        rows.append(draw_short_rows(text, replace(recipe, batch=short), length, original_length, step, process))
    if short < recipe.batch:
        rows.append(draw_rows(text, replace(recipe, batch=recipe.batch - short), length, step, process))
    return rows


def draw_short_rows(
    text: Tensor, recipe: Recipe, length: int, original_length: int, step: int, process: int = 0
) -> Row:
    """The short windows of a step: documents of the training length, packed to rows as long as the long ones.

    Args:
        text: tokens ``(tokens,)``.
        recipe: numbers.
        length: the context length of the long windows, in tokens.
        original_length: the training length, in tokens.
        step, process: as in `draw_rows`.

    Raises:
        ValueError: for a text that is shorter than a document, and for rows of at most the training length, as
            the skipped positions of a long row could then stay below it, where the short factors hold.
    """
    size = min(recipe.tokens or length, length)
    if size <= original_length:
        raise ValueError(
            f"tokens: with mixed windows (short_share) rows must have more than the {original_length:,} tokens of the "
            f"training length, got {size:,}"
        )
    if len(text) < original_length:
        raise ValueError(f"text: documents have {original_length:,} tokens, and only {len(text):,} are not scored")
    positions = torch.arange(size) % original_length
    starts = torch.randint(
        len(text) - original_length + 1, (recipe.batch, -(-size // original_length)),
        generator=_generator(f"{recipe.seed} {step} {process} short"),
    )  # fmt: skip
    places = starts.repeat_interleave(original_length, dim=1)[:, :size] + positions
    return Row(text[places], positions.expand(recipe.batch, -1), (positions > 0).expand(recipe.batch, -1), packed=True)


def draw_rows(text: Tensor, recipe: Recipe, length: int, step: int, process: int = 0) -> Row:
    """The rows of a step, each one text of the context length.

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
    generator = _generator(f"{recipe.seed} {step} {process}")
    starts = torch.randint(len(text) - longest + 1, (recipe.batch, 1), generator=generator)
    row = skipped(size, length, text_length=longest, batch=recipe.batch, generator=generator)
    scored = torch.ones(recipe.batch, size, dtype=torch.bool)
    scored[:, 1:] = row.tokens.diff(dim=-1) == 1  # not the first token after a skip, which nothing predicts
    scored[:, 0] = False
    return Row(text[starts + row.tokens], row.positions, scored)


def _generator(key: str) -> torch.Generator:
    seed = hashlib.sha256(key.encode()).digest()[:6]
    return torch.Generator().manual_seed(int.from_bytes(seed, "big"))


def tune(
    model: nn.Module,
    text: Tensor,
    recipe: Recipe,
    length: int,
    *,
    original_length: int | None = None,
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
        original_length: the training length, in tokens, where the recipe mixes windows; the model's rotation is then
            "longrope" with this original length.
        state: a file for weights, optimizer and step, from which a later call resumes.
        progress: is called with a line of text after each save.
        on_step: is called after each step with its number, from 1, and its loss in nats.
    """
    accelerate = _package("accelerate")
    accelerator = accelerate.Accelerator(cpu=next(model.parameters()).device.type == "cpu")
    torch.manual_seed(recipe.seed)
    dtypes = {} if recipe.rank else _widen(model)  # peft makes LoRA's own weights float32
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
        loss = 0.0
        for row in draw_step(
            text, recipe, length, step, accelerator.process_index, original_length=original_length
        ):  # one backward for each, which keeps the memory of one
            part = row_loss(prepared, row.to(accelerator.device)) * (len(row.tokens) / recipe.batch)
            accelerator.backward(part)
            loss += part.item()
        if not math.isfinite(loss):
            raise ValueError(
                f"lr: the loss of step {step + 1} is {loss}, so the weights would be lost: use a lower rate than "
                f"{recipe.lr:g} (--lr) and another folder, or check the weights of the model"
            )
        accelerator.clip_grad_norm_(prepared.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if on_step is not None:
            on_step(step + 1, loss)
        if (step + 1) % recipe.save_every == 0 or step + 1 == recipe.steps:
            if accelerator.is_main_process:
                saved = {name: weight.detach().cpu() for name, weight in weights.items()}
                checkpoint = {"step": step + 1, "weights": saved, "optimizer": optimizer.state_dict()}
                write_atomically(state, partial(torch.save, checkpoint), replace=True)
            accelerator.wait_for_everyone()
            progress(f"step {step + 1} of {recipe.steps}: {loss:.4f} nats")
    trained: Any = accelerator.unwrap_model(prepared, keep_fp32_wrapper=False)  # without the autocast of training
    tuned: nn.Module = trained.merge_and_unload() if recipe.rank else trained
    for weight, dtype in dtypes.items():
        weight.data = weight.data.to(dtype)
    return tuned.requires_grad_(True).eval()


def row_loss(model: nn.Module, row: Row) -> Tensor:
    """The mean loss of the tokens that count.

    Without an attention mask, transformers takes a jump in the positions for the start of another document, which does
    not attend to the one before. That is so for packed documents; other rows get a mask although nothing is padded.
    """
    mask = None if row.packed else torch.ones_like(row.tokens)
    out: Any = model(input_ids=row.tokens, position_ids=row.positions, attention_mask=mask, use_cache=False)
    losses = functional.cross_entropy(out.logits[:, :-1].float().transpose(1, 2), row.tokens[:, 1:], reduction="none")
    return losses[row.scored[:, 1:]].mean()


@torch.no_grad()
def check_documents_masked(model: nn.Module) -> None:
    """Raise a ValueError for a model whose packed documents would attend to each other.

    Two documents are read packed, the second one alone, and both as one text: packed, the second must give the logits
    that it has alone, up to a tenth of what attention to the first one changes, which no rounding reaches.
    """
    was_training, device, count = model.training, next(model.parameters()).device, 4
    embedding: Any = model.get_input_embeddings()  # type: ignore[operator]
    tokens = (torch.arange(2 * count, device=device) * 7 + 1)[None] % embedding.num_embeddings
    positions = torch.arange(2 * count, device=device)[None] % count

    def logits(part: slice, mask: Tensor | None) -> Tensor:
        output: Any = model(
            input_ids=tokens[:, part], position_ids=positions[:, part], attention_mask=mask, use_cache=False
        )
        return output.logits[:, -count:].float()  # type: ignore[no-any-return]

    model.eval()
    try:
        both, second = slice(None), slice(count, None)
        alone = logits(second, None)
        packed, joined = logits(both, None), logits(both, torch.ones_like(tokens))
    finally:
        model.train(was_training)
    if (packed - alone).abs().max() > 0.1 * (joined - alone).abs().max():
        raise ValueError(
            f"short_share: {type(model).__name__} does not mask packed documents from each other, so short windows "
            "cannot be trained as LongRoPE2 does: use short_share 0"
        )


def _lr_share(step: int, recipe: Recipe) -> float:
    """The learning rate of a step, as a share of the recipe's."""
    rising = (step + 1) / (recipe.warmup + 1)
    falling = (recipe.steps - step) / max(1, recipe.steps - recipe.warmup)
    return min(1.0, rising, falling)


def _widen(model: nn.Module) -> dict[nn.Parameter, torch.dtype]:
    """Make 16-bit weights float32; returns them with the dtypes that they had."""
    dtypes = {weight: weight.dtype for weight in model.parameters() if weight.dtype in (torch.bfloat16, torch.float16)}
    for weight in dtypes:
        weight.data = weight.data.float()
    return dtypes


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
            f"training needs the package {name}: pip install 'posenc[extend]', in a clone '.[extend]'"
        ) from error
