"""The loss that other encodings cost a trained model, before it is fine-tuned: `posenc attach --measure`.

The same windows of a text are read by the model as it is and with the encodings attached, so that the difference has a
paired interval. A model that was trained with one encoding and reads with another loses much: this is where
fine-tuning begins, and no comparison of encodings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from posenc.evaluation.likelihood import Text, check_room, check_vocabulary, tokens_of, windows_of
from posenc.evaluation.log import MeasurementLog
from posenc.hf.attach.checkpoint import attach_to_folder, tokenizer_in
from posenc.hf.extend.measure import WindowLosses, measure_losses
from posenc.hf.extend.result import NEAR, Kind, kind_of

_LONGEST = 1024  # tokens of a window, unless the model was trained on fewer
_WORDS: dict[Kind, str] = {
    "loss": "worse than before",
    "gain": "better than before",
    "equivalent": f"equivalent within ±{NEAR}",
    "inconclusive": "inconclusive: the interval contains 0; more windows would narrow it",
    "one window": "of one window, which shows nothing",
}


@dataclass(frozen=True)
class AttachmentCost:
    """What attached encodings cost at first. Print it.

    Attributes:
        length: of the windows, in tokens.
        before, after: losses in nats a token.
        new_parameters: how many numbers of the encodings are still to be learned.
    """

    length: int
    before: WindowLosses
    after: WindowLosses
    new_parameters: int

    def __str__(self) -> str:
        cost = self.after.minus(self.before)
        windows = "1 window" if len(cost.windows) == 1 else f"{len(cost.windows)} windows"
        text = (
            f"At {self.length:,} tokens, over {windows} of one text, the loss went from "
            f"{self.before.mean:.4f} to {self.after.mean:.4f} nats a token ({cost.text(signed=True)}): "
            f"{_WORDS[kind_of(cost)]}."
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
        folder, encodings, out, layers, trust_remote_code: as `posenc.hf.attach.checkpoint.attach_to_folder`.
        text: a file, or None for the built-in English.
        windows: of the text, each of the training length but at most 1,024 tokens.
        progress: is called with a line of text for each window.

    Raises:
        ValueError: as `attach_to_folder`, and for a text that is too short; nothing is written then.
    """
    tokenizer = tokenizer_in(folder, trust_remote_code=trust_remote_code)
    tokens = tokens_of(text, tokenizer)
    losses: list[WindowLosses] = []
    counts: list[int] = []
    measured_length = 0

    def measure(model: nn.Module) -> None:
        nonlocal measured_length
        config: Any = model.config
        declared = getattr(config.get_text_config(), "max_position_embeddings", None) or _LONGEST
        measured_length = min(_LONGEST, declared)
        last = max(1, measured_length // 4)
        check_room(tokens, text, measured_length + (windows - 1) * last)
        check_vocabulary(tokens, model)
        scored, label = windows_of(tokens, measured_length, windows, last), "after" if losses else "before"
        progress(f"{label}:")
        losses.append(measure_losses(model, scored, measured_length, MeasurementLog(), label, progress))
        counts.append(sum(weight.numel() for weight in model.parameters()))

    attach_to_folder(folder, encodings, out, layers, trust_remote_code=trust_remote_code, measure=measure)
    return AttachmentCost(measured_length, losses[0], losses[1], counts[1] - counts[0])
