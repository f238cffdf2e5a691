"""Whether the weights prefer another rotation than the configuration gives them: other bases, the other layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import nn
from transformers import PreTrainedModel

from posenc.hf.attach import attach, detach
from posenc.hf.config import RopeConfig
from posenc.hf.doctor.corrections import changes, inside, single
from posenc.hf.doctor.report import Finding
from posenc.rotary._rotate import Layout
from posenc.rotary.rope import RoPE

BASES = (1e4, 1e5, 1.5e5, 2.5e5, 5e5, 1e6, 2e6, 5e6, 1e7)  # of released models
_BETTER = 0.05  # nats, of some hundred tokens of one text, that count


def on_trials(model: nn.Module, read: RopeConfig, loss: Callable[[], float], now: float) -> Iterator[Finding]:
    """Rotations under which the loss is lower.

    Args:
        model: of transformers; it is as it was afterwards.
        read: its configuration.
        loss: of a text within the trained length, in nats a token.
        now: that loss under the rotation that the configuration has.
    """
    rope = single(read)
    if not isinstance(model, PreTrainedModel):
        return
    if rope is None:
        text = "was not tried under other rotations: its layers turn in several ways, or not at all"
        yield Finding("trials-refused", "note", "model", text)
        return
    other: Layout = "half" if rope.layout == "interleaved" else "interleaved"
    try:
        bases = {base: _under(model, _like(rope, base, rope.layout), loss) for base in BASES if base != rope.base}
        turned = {
            base: _under(model, _like(rope, base, other), loss)
            for base in {rope.base, min(bases, key=bases.__getitem__)}
        }
    except ValueError as error:
        yield Finding("trials-refused", "note", "model", f"was not tried under other rotations: {error}")
        return
    best, best_turned = min(bases, key=bases.__getitem__), min(turned, key=turned.__getitem__)
    if turned[best_turned] < min(now, bases[best]) - _BETTER:
        text = f"{now:.3f} nats a token with pairs as this family has them ({rope.layout}), {turned[best_turned]:.3f} "
        text += f"with {other} ones and base {best_turned:g}: the weights have the other order of channels; convert "
        text += "them with posenc.rotary.permute_layout, or from the original again"
        yield Finding("weights-of-another-layout", "fault", "layout", text)
    elif bases[best] < now - _BETTER:
        text = f"is {rope.base:g}, with which the loss is {now:.3f} nats a token, and {bases[best]:.3f} with {best:g}, "
        text += f"the best of {len(BASES)} that released models have"
        keys = changes(read, read.with_rope(_like(rope, best, rope.layout)).to_config())
        yield Finding("weights-of-another-base", "fault", "rope_theta", text, keys, False, inside=inside(read))


def _like(rope: RoPE, base: float, layout: Layout) -> RoPE:
    return RoPE(rope.head_dim, base=base, layout=layout, rotary_dim=rope.rotary_dim, scaling=rope.scaling)


def _under(model: PreTrainedModel, rope: RoPE, loss: Callable[[], float]) -> float:
    """The loss of the model while it turns so."""
    attach(model, [rope])
    try:
        return loss()
    finally:
        detach(model)
