"""The loss that other encodings cost a trained model, before it is fine-tuned: `posenc attach --measure`.

The same windows of a text are read by the model as it is and with the encodings attached, so that the difference has a
paired interval. A model that was trained with one encoding and reads with another loses much: this is where
fine-tuning begins, and no comparison of encodings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from posenc.evaluation.likelihood import Text, check_vocabulary, token_losses, tokens_of, windows_of
from posenc.evaluation.report import MARGINS, PERPLEXITY
from posenc.evaluation.statistics import paired_means, verdict
from posenc.hf.attach.loading import attach_to_folder, tokenizer_in

_LONGEST = 1024  # tokens of a window, unless the model was trained on fewer


@dataclass(frozen=True)
class AttachmentCost:
    """What attached encodings cost at first. Print it.

    Attributes:
        length: of the windows, in tokens.
        before, after: the loss of each window, in nats a token.
        new_parameters: how many numbers of the encodings are still to be learned.
    """

    length: int
    before: tuple[float, ...]
    after: tuple[float, ...]
    new_parameters: int

    def __str__(self) -> str:
        count = len(self.before)
        before, after = (math.fsum(losses) / count for losses in (self.before, self.after))
        change = f"the loss went from {before:.4f} to {after:.4f} nats a token"
        if count == 1:
            what = "At {:,} tokens, over 1 window of one text, {}, which shows nothing: more windows have an interval."
            text = what.format(self.length, change)
        else:
            wide, narrow = (paired_means(self.after, self.before, confidence=level) for level in (0.95, 0.9))
            word = verdict(wide, narrow, MARGINS[PERPLEXITY], wide.p, lower_is_better=True)
            text = (
                f"At {self.length:,} tokens, over {count} windows of one text, {change} "
                f"({wide.mean:+.4f} ± {wide.half_width:.4f}): {word}."
            )
        if self.new_parameters:
            text += f" The {self.new_parameters:,} parameters of the encodings are as they begin."
        return text


def attach_and_measure(
    folder: Path, encodings: str, out: Path, layers: Iterable[int] | None = None, *, text: Text = None,
    windows: int = 8, trust_remote_code: bool = False, progress: Callable[[str], None] = lambda text: None,
) -> AttachmentCost:  # fmt: skip
    """Write a folder with a model under other encodings, and measure the loss before and after.

    Args:
        folder, encodings, out, layers, trust_remote_code: as `posenc.hf.attach.loading.attach_to_folder`.
        text: a file, or None for the built-in English.
        windows: of the text, each of the training length but at most 1,024 tokens.
        progress: is called with a line of text for each window.

    Raises:
        ValueError: as `attach_to_folder`, and for a text that is too short; nothing is written then.
    """
    tokenizer = tokenizer_in(folder, trust_remote_code=trust_remote_code)
    tokens = tokens_of(text, tokenizer)
    losses: list[tuple[float, ...]] = []
    counts: list[int] = []
    length = 0

    def measure(model: nn.Module) -> None:
        nonlocal length
        config: Any = model.config
        length = min(_LONGEST, getattr(config.get_text_config(), "max_position_embeddings", None) or _LONGEST)
        last = max(1, length // 4)
        ends = windows_of(tokens, length, windows, last).ends
        check_vocabulary(tokens, model)
        label, of_windows = "after" if losses else "before", list[float]()
        for end in ends:
            of_windows.append(float(token_losses(model, tokens[end - length : end], last).mean()))
            progress(f"{label}, window {len(of_windows)} of {windows}: {of_windows[-1]:.4f} nats")
        losses.append(tuple(of_windows))
        counts.append(sum(weight.numel() for weight in model.parameters()))

    attach_to_folder(folder, encodings, out, layers, trust_remote_code=trust_remote_code, measure=measure)
    return AttachmentCost(length, losses[0], losses[1], counts[1] - counts[0])
