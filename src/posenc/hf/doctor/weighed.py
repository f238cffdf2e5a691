"""Whether a model's loss agrees with its configuration: within the trained length, and as far as it promises."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoTokenizer

from posenc.arguments import shown
from posenc.hf.config import RopeConfig
from posenc.hf.doctor.corrections import single
from posenc.hf.doctor.folder import longest_of
from posenc.hf.doctor.report import Finding
from posenc.hf.doctor.trials import on_trials
from posenc.hf.inspect import trained_length

_WINDOWS = 2  # of the text, whose last tokens are predicted
_TAIL = 256  # tokens whose loss is measured
_WORSE = 0.1  # nats by which a loss must rise with the context to count
_LEAST = 32  # tokens of the shortest context


def tokenizer_of(folder: Path) -> Any:
    """Its tokenizer."""
    try:
        return AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"weights: {folder} has no tokenizer, without which text must be tokens: {error}") from error


def tokens_of(text: str | Tensor | None, tokenizer: Any) -> Tensor:
    """The tokens of a text, ``(tokens,)``; None is English that every Python has: its own documentation."""
    if isinstance(text, Tensor):
        if text.ndim != 1 or text.is_floating_point():
            raise ValueError(f"text must be tokens of shape (tokens,), got {shown(text)}")
        return text
    if tokenizer is None:
        raise ValueError("tokenizer: a model without a folder needs one, or text as tokens")
    if text is None:
        from pydoc_data.topics import topics

        text = "\n\n".join(topics.values())
    found: Tensor = tokenizer(text, return_tensors="pt", add_special_tokens=False, verbose=False)["input_ids"][0]
    return found


def on_loss(model: nn.Module, read: RopeConfig, tokens: Tensor, most: int) -> Iterator[Finding]:
    """The loss of the same tokens after more and more context, and under other rotations.

    Args:
        model: of language, whose logits are asked for.
        read: its configuration.
        tokens: a text, ``(tokens,)``.
        most: tokens of the longest context.
    """
    model.eval()
    rope, promised = single(read), longest_of(read)
    trained = None if rope is None else trained_length(read, rope)
    if promised is None:
        yield Finding("loss-not-measured", "note", "max_position_embeddings", "is not given: nothing is promised")
        return
    room = min(most, len(tokens) - 1)
    near, far = min(trained or promised, room), min(promised, room)
    lengths = sorted({max(_LEAST, one) for one in (near // 4, near, far)})
    if len(lengths) < 2 or lengths[-1] > room:
        raise ValueError(f"text: at least {2 * _LEAST} tokens are needed, got {len(tokens)}")
    found = losses(model, tokens, lengths)
    yield from _told(found, promised)
    yield from on_trials(model, read, lambda: losses(model, tokens, lengths[:1])[lengths[0]], found[lengths[0]])


def _told(found: dict[int, float], promised: int) -> Iterator[Finding]:
    lengths = list(found)
    words = ", ".join(f"{loss:.3f} after {length:,} tokens" for length, loss in found.items())
    if lengths[-1] < promised:
        words += f"; not measured up to {promised:,}, for which give more text and a larger most"
    yield Finding("loss-by-length", "note", "loss", f"of the same tokens, in nats: {words}")
    best = min(found, key=lambda length: found[length])
    for length in lengths:
        if length > best and found[length] > found[best] + _WORSE:
            text = f"promises {promised:,} tokens, and the same tokens cost {found[length]:.3f} nats after {length:,}, "
            text += f"{found[best]:.3f} after {best:,}: more context makes this model worse"
            yield Finding("promise-broken", "fault", "max_position_embeddings", text)
            return


@torch.no_grad()
def losses(model: nn.Module, tokens: Tensor, lengths: Sequence[int]) -> dict[int, float]:
    """The mean loss of the same last tokens of windows, in nats, by the tokens of context."""
    longest, tail = max(lengths), min(_TAIL, min(lengths) // 2)
    ends = {longest + 1 + i * (len(tokens) - longest - 1) // max(1, _WINDOWS - 1) for i in range(_WINDOWS)}
    device = next(model.parameters()).device
    found: dict[int, float] = {}
    for length in lengths:
        every = []
        for end in sorted(ends):
            window = tokens[end - length - 1 : end].to(device)
            logits = model(input_ids=window[None, :-1], use_cache=False).logits[0, -tail:]
            every.append(float(F.cross_entropy(logits.float(), window[-tail:])))
        found[length] = sum(every) / len(every)
    return found
