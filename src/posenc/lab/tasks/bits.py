"""The protocol of texts: every length is judged on the same bytes, and only the context grows.

The end of each window is chosen once. At k times the training length T, the last k·T bytes before the end are fed, and
only the last T/2 predictions are scored. At 1× each of them has T/2 to T − 1 bytes of context, all trained. (Windows
side by side would instead reward length by diluting the expensive first bytes.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posenc.lab.config import Config
from posenc.lab.corpora.corpus import Corpus
from posenc.lab.records import FULL, Values
from posenc.lab.tasks.batching import batches_within, counter_seed

Logits = Callable[[Tensor], Tensor]  # (batch, length) bytes to (batch, length, 256)


def measured(
    logits: Logits,
    corpus: Corpus,
    lengths: Sequence[int],
    config: Config,
    device: torch.device,
    row: str,
    view: str = FULL,
) -> Iterator[Values]:
    """Bits in each window at each length, and of the whole text the bits by position at the longest one.

    Args:
        logits: the model, in evaluation mode.
        corpus: where the windows lie.
        lengths: bytes that are fed, growing.
        config: the numbers of the run.
        device: of the model.
        row, view: whose values they are.
    """
    ends, documents = corpus.windows
    length, scored = config.training.train_length, config.training.train_length // 2
    for fed in lengths:
        parts = [
            window_losses(logits, corpus.validation, batch, fed, device)
            for batch in batches_within(ends, fed, config.model.heads)
        ]
        losses = torch.cat(parts)  # (windows, fed)
        bits = losses[:, -scored:].mean(1).tolist()
        yield Values("bits", bits, fed, view, row, documents=documents)
        if view == FULL and fed == lengths[-1]:
            width = math.gcd(length, max(1, length // 4))
            means = losses.mean(0).view(-1, width).mean(1).tolist()
            yield Values("bits_by_position", means, fed, view, row, items=range(width, fed + 1, width))


@torch.no_grad()
def window_losses(logits: Logits, stream: Tensor, ends: Sequence[int], length: int, device: torch.device) -> Tensor:
    """Bits of each of the last ``length`` bytes before each end, ``(windows, length)`` float64 on the host."""
    index = torch.tensor(ends)[:, None] + torch.arange(-length - 1, 0)
    tokens = stream[index].long().to(device)  # (windows, length + 1)
    out = logits(tokens[:, :-1]).float()
    nats = F.cross_entropy(out.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    return nats.view(len(ends), length).cpu().double() / math.log(2)


def draw_batch(stream: Tensor, seed: int, step: int, *, batch_size: int, length: int) -> Tensor:
    """The training batch of a step, ``(batch_size, length + 1)`` int64: a pure function of its arguments."""
    generator = torch.Generator().manual_seed(counter_seed("batch", seed, step))
    starts = torch.randint(len(stream) - length, (batch_size, 1), generator=generator)
    return stream[starts + torch.arange(length + 1)].long()


@contextmanager
def judged(model: nn.Module) -> Iterator[None]:
    """A part of a program in which a model is in evaluation mode."""
    before = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(before)
