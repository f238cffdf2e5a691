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
from posenc.lab.metrics import FULL, Values
from posenc.lab.tasks.batching import batches_within, counter_seed

Logits = Callable[[Tensor], Tensor]  # (batch, length) bytes to the logits of the last of them, (batch, n, 256)
ROUNDING = 1e-4  # of logits, which are about 1 in size: far above float32's and far below what a figure shows


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
        losses = torch.cat(parts)  # (windows, fed), or those scored alone
        bits = losses[:, -scored:].mean(1).tolist()
        yield Values("bits", bits, fed, view, row, documents=documents)
        if view == FULL and fed == lengths[-1]:
            width = math.gcd(length, max(1, length // 4))
            means = losses.mean(0).view(-1, width).mean(1).tolist()
            yield Values("bits_by_position", means, fed, view, row, items=range(width, fed + 1, width))


class Sliding:
    """Logits of the last bytes under a sliding window, fed nothing that they cannot see.

    Through L layers under a window of w, the last n predictions see n + L (w - 1) bytes; those are fed, each at its
    position. An encoding of a user's own may reckon with bytes out of sight, so the first text tells whether the rest
    may go.

    Args:
        model: takes ``tokens``, ``window`` and ``start``, in evaluation mode.
        window: bytes that a byte sees in each layer, itself included.
        scored: bytes whose logits are wanted.
        layers: how many there are.
    """

    def __init__(self, model: Callable[..., Tensor], *, window: int, scored: int, layers: int) -> None:
        self.model, self.window, self.scored = model, window, scored
        self.seen = scored + layers * (window - 1)
        self.local: bool | None = None  # not tried yet

    def __call__(self, tokens: Tensor) -> Tensor:
        """``tokens`` (batch, length) to the logits of the last ``scored``."""
        if tokens.shape[1] <= self.seen:
            return self._last(tokens)
        if self.local is None:
            first = tokens[:1]
            self.local = bool((self._last(first) - self._of_seen(first)).abs().max() <= ROUNDING)
        return self._of_seen(tokens) if self.local else self._last(tokens)

    def _last(self, tokens: Tensor, start: int = 0) -> Tensor:
        return self.model(tokens, window=self.window, start=start)[:, -self.scored :]

    def _of_seen(self, tokens: Tensor) -> Tensor:
        return self._last(tokens[:, -self.seen :], start=tokens.shape[1] - self.seen)


@torch.no_grad()
def window_losses(logits: Logits, stream: Tensor, ends: Sequence[int], length: int, device: torch.device) -> Tensor:
    """Bits of each of the last bytes of the ``length`` before each end, ``(windows, n)`` float64 on the host.

    n is as many as there are logits of.
    """
    index = torch.tensor(ends)[:, None] + torch.arange(-length - 1, 0)
    tokens = stream[index].long().to(device)  # (windows, length + 1)
    out = logits(tokens[:, :-1]).float()
    wanted = tokens[:, -out.shape[1] :]
    nats = F.cross_entropy(out.flatten(0, 1), wanted.flatten(), reduction="none")
    return nats.view(wanted.shape).cpu().double() / math.log(2)


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
