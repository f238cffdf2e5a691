"""Compares a live transformers model with its configuration, layer by layer.

    from posenc.hf.attach.live_model import inspect
    print(inspect(model))

The rotary module computes cos and sin at a few positions, which are compared with the rotation of the configuration: a
configuration that was changed after the modules were built does not change them. Scale and window are read from the
attention modules. Needs the package transformers.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from posenc.arguments import one_line, shown
from posenc.hf.attach.attention_function import NAME
from posenc.hf.attach.supported import arguments_of, layer_facts, takes_rotation
from posenc.hf.config.layers import LayerFacts
from posenc.hf.explanation.report import layer_words
from posenc.rotary.rope import RoPE

_POSITIONS = (0, 1, 2, 7, 64, 512)  # where float32 angles of any model are good to 1e-4
_TOLERANCE = 1e-3  # a larger difference of cos or sin means another rotation


class Difference(NamedTuple):
    """A disagreement of a module with the configuration.

    Attributes:
        name: "rotation", "scale" or "window".
        text: a sentence.
    """

    name: str
    text: str


class LiveLayer(NamedTuple):
    """One layer of a live model.

    Attributes:
        number: from 0.
        means: what the configuration says about the layer.
        gap: the largest difference between the module's cos and sin and the configuration's; None where it
            was not measured: a layer that does not rotate, M-RoPE, or a rotary module of another form.
        attached: the encodings attached instead of the rotation; None where there are none.
        differs: the disagreements of modules and configuration.
    """

    number: int
    means: str
    gap: float | None
    attached: str | None
    differs: tuple[Difference, ...]

    def __str__(self) -> str:
        parts = [f"layer {self.number}: {self.means}"]
        parts += [f"attached: {self.attached}"] if self.attached is not None else []
        if self.differs:
            parts.append(f"DIFFERS: {'; '.join(difference.text for difference in self.differs)}")
        elif self.gap is not None:
            parts.append(f"cos and sin within {self.gap:.0e}")
        return " | ".join(parts)


class Inspection(NamedTuple):
    """All layers that have attention. Print it."""

    layers: tuple[LiveLayer, ...]

    @property
    def agrees(self) -> bool:
        """Whether the modules compute what the configuration says."""
        return not any(layer.differs for layer in self.layers)

    def __str__(self) -> str:
        wrong, count = sum(bool(layer.differs) for layer in self.layers), len(self.layers)
        measured = sum(layer.gap is not None for layer in self.layers)
        verdict = f"no difference from the configuration; the rotation was measured in {measured} of {count} layers"
        if wrong:
            verdict = f"{wrong} of {count} layers compute something else than the configuration says"
        return "\n".join([*map(str, self.layers), verdict])


@torch.no_grad()
def inspect(model: nn.Module) -> Inspection:
    """Compare what a model's layers compute with what its configuration says.

    Args:
        model: of transformers, with one text part; nothing of it is changed.

    Raises:
        ValueError: for anything else, and for a configuration that `posenc.hf.model_from_config` cannot read.
    """
    if not isinstance(model, PreTrainedModel):
        raise ValueError(f"model must be a model of transformers, got {shown(model)}")
    modules = attention_modules(model)
    config = modules[min(modules)].config
    facts = layer_facts(config)
    rotary_modules = [
        module for module in model.modules() if is_rotary_module(module) and getattr(module, "config", None) is config
    ]
    rotary = rotary_modules[0] if len(rotary_modules) == 1 else None
    return Inspection(tuple(_layer(n, modules[n], facts[n], rotary) for n in sorted(modules)))


def attention_modules(model: PreTrainedModel) -> dict[int, Any]:
    """The attention that is given positions, by the layer's number; a ValueError for a model without any."""
    modules: dict[int, Any] = {}
    for module in model.modules():
        number = getattr(module, "layer_idx", None)
        has_positions = takes_rotation(module) or hasattr(module, NAME)
        if isinstance(number, int) and has_positions and hasattr(module, "config"):  # Dbrx has one around it
            modules.setdefault(number, module)
    if not modules:
        raise ValueError(f"model: {type(model).__name__} has no layer whose attention is given position_embeddings")
    return modules


def is_rotary_module(module: nn.Module) -> bool:
    """Whether a module computes cos and sin of positions."""
    return "position_ids" in arguments_of(module) and "Rotary" in type(module).__name__


def _layer(number: int, module: Any, facts: LayerFacts, rotary: nn.Module | None) -> LiveLayer:
    differs, gap, rope = [], None, facts.rotation
    if rotary is not None and isinstance(rope, RoPE) and (table := _table_of(rotary, rope, facts.kind)) is not None:
        gap = _gap(*table, rope)
        if gap > _TOLERANCE:
            differs.append(Difference("rotation", _difference_in_words(*table, rope, rotary)))
    scale = getattr(module, "scaling", None)
    if isinstance(scale, float) and facts.scale is not None and abs(scale / facts.scale - 1) > 1e-6:
        text = f"attention logits are multiplied by {scale:g}, the configuration says {facts.scale:g}"
        differs.append(Difference("scale", text))
    window = getattr(module, "sliding_window", facts.window)
    if window != facts.window and facts.kind == "sliding_attention" and facts.ahead == 0:
        differs.append(Difference("window", f"its window is {window}, the configuration says {facts.window}"))
    attached = getattr(module, NAME, None)
    words = None if attached is None else ", ".join(one_line(encoding) for encoding in attached.encodings) or "NoPE"
    return LiveLayer(number, layer_words(facts), gap, words, tuple(differs))


def _table_of(rotary: nn.Module, rope: RoPE, kind: str) -> tuple[Tensor, Tensor] | None:
    """cos and sin times the gain, ``(positions, pairs)``, from the module; None for a module of another form."""
    options = {"layer_type": kind} if "layer_type" in arguments_of(rotary) else {}
    device = next((buffer.device for buffer in rotary.buffers()), torch.device("cpu"))
    positions, rotary = torch.tensor([_POSITIONS], device=device), copy.deepcopy(rotary)  # some store the longest call
    pairs = rope.rotary_dim // 2
    table = rotary(torch.zeros(1, 1, 1, device=device), positions, **options)
    if isinstance(table, Tensor) and table.is_complex():
        table = (table.real, table.imag)
    if not isinstance(table, tuple) or len(table) != 2 or table[0].numel() // len(_POSITIONS) not in (pairs, 2 * pairs):
        return None
    cos, sin = (part.reshape(len(_POSITIONS), -1).double().cpu() for part in table)
    if cos.shape[1] == 2 * pairs:  # each pair is listed twice: in two halves, or in neighbouring channels
        halves = torch.equal(cos[:, :pairs], cos[:, pairs:])
        cos, sin = (part[:, :pairs] if halves else part[:, ::2] for part in (cos, sin))
    return cos, sin


def _gap(cos: Tensor, sin: Tensor, rope: RoPE) -> float:
    spectrum = rope.spectrum(_POSITIONS[-1] + 1)
    angles = torch.tensor(_POSITIONS, dtype=torch.double)[:, None] * spectrum.theta.cpu()
    gain = float(spectrum.gain)
    return float(torch.maximum((cos - gain * angles.cos()).abs(), (sin - gain * angles.sin()).abs()).max())


def _rounded_to(rotary: Any) -> str:
    """The 16-bit dtype that a module's frequencies were cast to, "" for none; widened again, they stay rounded."""
    buffers = [buffer for name, buffer in rotary.named_buffers() if "inv_freq" in name]
    for dtype in (torch.bfloat16, torch.float16):
        if any(torch.equal(buffer, buffer.to(dtype).to(buffer.dtype)) for buffer in buffers):
            return str(dtype).removeprefix("torch.")
    return ""


def _difference_in_words(cos: Tensor, sin: Tensor, rope: RoPE, rotary: Any) -> str:
    """What is different: the gain, or the frequencies of how many pairs."""
    spectrum = rope.spectrum(_POSITIONS[-1] + 1)
    gain = float(torch.hypot(cos[1], sin[1]).mean())
    if abs(gain / float(spectrum.gain) - 1) > 1e-3:
        return f"the module's gain is {gain:.4g}, the configuration's {float(spectrum.gain):.4g}"
    theta = torch.atan2(sin[1], cos[1])
    ratio = theta / spectrum.theta.cpu()
    off, dtype = float((ratio - 1).abs().max()), _rounded_to(rotary)
    if off < 2**-7 and dtype:
        return (
            f"the module's frequencies are rounded to {dtype}, by up to {off:.1%}, as model.to(torch.{dtype}) does: "
            f"load the model in that dtype instead, from_pretrained(FOLDER, dtype={dtype!r})"
        )
    count = int(((ratio - 1).abs() > 1e-2).sum())
    worst = int((ratio.log().abs()).argmax())
    return (
        f"the module rotates {count} of {len(theta)} pairs by other angles than the configuration, pair {worst} by "
        f"{float(theta[worst]):.4g} a token instead of {float(spectrum.theta[worst]):.4g}: it was built from another "
        "configuration"
    )
