"""A live transformers model compared with its configuration, layer by layer: where its modules differ from it.

    from posenc.hf.attach.live_model import inspect
    print(inspect(model))

The rotary module is asked for its cos and sin at a few positions, and these are held against the rotation that the
configuration means, so a configuration that was changed after the module was built shows. Scale and window are those
of the attention modules. Needs the package transformers.
"""

from __future__ import annotations

import copy
import inspect as python
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from posenc.arguments import one_line, shown
from posenc.hf.attach.attention_function import NAME
from posenc.hf.attach.supported import turns
from posenc.hf.explanation.describe import layer_words
from posenc.hf.explanation.layer_facts import LayerFacts, model_from_config
from posenc.rotary.rope import RoPE

_PLACES = (0, 1, 2, 7, 64, 512)  # where float32 angles of any model are good to 1e-4
_FAR = 1e-3  # cos or sin further apart than this is another rotation


class Difference(NamedTuple):
    """Where a module and the configuration disagree.

    Attributes:
        name: of what: "rotation", "scale" or "window".
        text: a sentence.
    """

    name: str
    text: str


class LiveLayer(NamedTuple):
    """One layer.

    Attributes:
        number: from 0.
        means: what the configuration says, in words.
        gap: the largest difference between the module's cos and sin and those of the configuration; None where it
            was not measured: a layer that does not rotate, M-RoPE, or a rotary module of another form.
        attached: encodings in the place of the rotation, in words; None: none are.
        differs: where modules and configuration disagree.
    """

    number: int
    means: str
    gap: float | None
    attached: str | None
    differs: tuple[Difference, ...]

    def __str__(self) -> str:
        parts = [f"layer {self.number}: {self.means}"]
        parts += [f"attached: {self.attached}"] if self.attached is not None else []
        turned = "" if self.gap is None else f"cos and sin within {self.gap:.0e}"
        parts += (
            [f"DIFFERS: {'; '.join(one.text for one in self.differs)}"] if self.differs else [turned] if turned else []
        )
        return " | ".join(parts)


class Inspection(NamedTuple):
    """All layers that have attention. Print it."""

    layers: tuple[LiveLayer, ...]

    @property
    def agrees(self) -> bool:
        """Whether the modules compute what the configuration says."""
        return not any(layer.differs for layer in self.layers)

    def __str__(self) -> str:
        return "\n".join(map(str, self.layers))


@torch.no_grad()
def inspect(model: nn.Module) -> Inspection:
    """What a model's layers compute, beside what its configuration says.

    Args:
        model: of transformers, with one text part; nothing of it is changed.

    Raises:
        ValueError: for anything else, and for a configuration that `posenc.hf.model_from_config` cannot read.
    """
    if not isinstance(model, PreTrainedModel):
        raise ValueError(f"model must be a model of transformers, got {shown(model)}")
    modules: dict[int, Any] = {}
    for module in model.modules():
        number = getattr(module, "layer_idx", None)
        if isinstance(number, int) and turns(module) and hasattr(module, "config"):  # Dbrx has one around it
            modules.setdefault(number, module)
    if not modules:
        raise ValueError(f"model: {type(model).__name__} has no layer whose attention is given position_embeddings")
    config = modules[min(modules)].config
    facts = model_from_config({key: value for key, value in config.to_dict().items() if key != NAME})
    of_layers = facts.layers or facts.found * config.num_hidden_layers
    rotary = [one for one in model.modules() if makes_tables(one) and getattr(one, "config", None) is config]
    module = rotary[0] if len(rotary) == 1 else None
    return Inspection(tuple(_layer(n, modules[n], of_layers[n], module) for n in sorted(modules)))


def makes_tables(module: nn.Module) -> bool:
    """Whether it is a rotary module, which gives cos and sin of positions."""
    return "position_ids" in _arguments(module) and "Rotary" in type(module).__name__


def _arguments(module: nn.Module) -> Mapping[str, python.Parameter]:
    return python.signature(type(module).forward).parameters


def _layer(number: int, module: Any, facts: LayerFacts, rotary: nn.Module | None) -> LiveLayer:
    differs = []
    measured = None if rotary is None or not isinstance(facts.rotation, RoPE) else _measured(rotary, facts)
    gap = None
    if measured is not None and isinstance(facts.rotation, RoPE):
        theta, gain = measured
        gap = _gap(theta, gain, facts.rotation)
        if gap > _FAR:
            differs.append(Difference("rotation", _told(theta, gain, facts.rotation)))
    scale = getattr(module, "scaling", None)
    if isinstance(scale, float) and facts.scale is not None and abs(scale / facts.scale - 1) > 1e-6:
        text = f"scores are multiplied by {scale:g}, the configuration says {facts.scale:g}"
        differs.append(Difference("scale", text))
    window = getattr(module, "sliding_window", facts.window)
    if window != facts.window and facts.kind == "sliding_attention" and facts.ahead == 0:
        differs.append(Difference("window", f"its window is {window}, the configuration says {facts.window}"))
    attached = getattr(module, NAME, None)
    words = None if attached is None else ", ".join(one_line(one) for one in attached.encodings) or "NoPE"
    return LiveLayer(number, layer_words(facts), gap, words, tuple(differs))


def _measured(rotary: nn.Module, facts: LayerFacts) -> tuple[Tensor, Tensor] | None:
    """cos and sin times the gain, ``(places, pairs)``, as the module gives them; None for another form."""
    given = {"layer_type": facts.kind} if "layer_type" in _arguments(rotary) else {}
    device = next((buffer.device for buffer in rotary.buffers()), torch.device("cpu"))
    places, rotary = torch.tensor([_PLACES], device=device), copy.deepcopy(rotary)  # some keep the longest call
    assert isinstance(facts.rotation, RoPE)
    pairs = facts.rotation.rotary_dim // 2
    table = rotary(torch.zeros(1, 1, 1, device=device), places, **given)
    if isinstance(table, Tensor) and table.is_complex():
        table = (table.real, table.imag)
    if not isinstance(table, tuple) or len(table) != 2 or table[0].numel() // len(_PLACES) not in (pairs, 2 * pairs):
        return None
    cos, sin = (one.reshape(len(_PLACES), -1).double().cpu() for one in table)
    if cos.shape[1] == 2 * pairs:  # each pair twice: side by side, or in two halves
        twice = torch.equal(cos[:, :pairs], cos[:, pairs:])
        cos, sin = (one[:, :pairs] if twice else one[:, ::2] for one in (cos, sin))
    return cos, sin


def _gap(cos: Tensor, sin: Tensor, rope: RoPE) -> float:
    spectrum = rope.spectrum(_PLACES[-1] + 1)
    angles = torch.tensor(_PLACES, dtype=torch.double)[:, None] * spectrum.theta.cpu()
    gain = float(spectrum.gain)
    return float(torch.maximum((cos - gain * angles.cos()).abs(), (sin - gain * angles.sin()).abs()).max())


def _told(cos: Tensor, sin: Tensor, rope: RoPE) -> str:
    """What is different: the gain, or frequencies of how many pairs."""
    spectrum = rope.spectrum(_PLACES[-1] + 1)
    gain = float(torch.hypot(cos[1], sin[1]).mean())
    if abs(gain / float(spectrum.gain) - 1) > 1e-3:
        return f"the module's gain is {gain:.4g}, that of the configuration {float(spectrum.gain):.4g}"
    theta = torch.atan2(sin[1], cos[1])
    ratio = theta / spectrum.theta.cpu()
    other = (ratio - 1).abs() > 1e-2
    most = int((ratio.log().abs()).argmax())
    return (
        f"the module turns {int(other.sum())} of {len(theta)} pairs otherwise than the configuration says, pair {most} "
        f"by {float(theta[most]):.4g} a token in the place of {float(spectrum.theta[most]):.4g}: it was built from "
        "another configuration"
    )
