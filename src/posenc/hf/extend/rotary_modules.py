"""The rotary modules of a live model: built again from a changed configuration, checked against it, put back.

A configuration that is changed after loading changes nothing: modules have their frequencies from when they were made.
Here both are changed together, and `posenc.hf.attach.live_model.inspect` measures that cos and sin are those of the
configuration. Methods that remap distances are attached as encodings instead.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import PreTrainedModel

from posenc.arguments import one_line, shown
from posenc.frequencies.longrope import LongRoPE
from posenc.frequencies.ntk import NTKAware
from posenc.hf.attach import attach
from posenc.hf.attach.attention_function import NAME
from posenc.hf.attach.live_model import inspect, is_rotary_module
from posenc.hf.attach.supported import takes_rotation
from posenc.hf.config.rope_block import ALL
from posenc.hf.config.rope_config import RopeConfig, read_rope
from posenc.hf.config.rotation import Rotation, to_longrope
from posenc.hf.config.text_config import length_key, max_length
from posenc.hf.config.write import extended_length
from posenc.hf.explanation.layer_facts import LayerFacts, model_from_config
from posenc.hf.extend.methods import moved, scaled_block
from posenc.rotary.rope import RoPE


class _Place(NamedTuple):
    parent: nn.Module
    name: str
    module: nn.Module


class RotaryModules:
    """What rotates in a model.

    Args:
        model: of transformers, with one text part.

    Attributes:
        config: the configuration that the rotary modules were made of.
        read: what it says.
        ropes: the rotations of the kinds of layers that rotate.

    Raises:
        ValueError: for a model whose rotation cannot be replaced, or does not do what its configuration says.
    """

    def __init__(self, model: nn.Module) -> None:
        if not isinstance(model, PreTrainedModel):
            raise ValueError(f"model must be a model of transformers, got {shown(model)}")
        if any(hasattr(one, NAME) for one in model.modules()):
            raise ValueError("model has encodings attached in the place of its rotation: detach them first")
        before = inspect(model)
        if not before.agrees:
            differs = next(layer for layer in before.layers if layer.differs)
            raise ValueError(f"model: {differs}; load it again, so that modules and configuration say the same")
        self.model, name = model, type(model).__name__
        self.config = _config_of(model)
        self._places = [
            _Place(parent, name, child)
            for parent in model.modules()
            for name, child in parent.named_children()
            if is_rotary_module(child) and getattr(child, "config", None) is self.config
        ]
        if not self._places:
            raise ValueError(
                f"model: {name} has no rotary module that is made of its configuration, so none to replace"
            )
        self.read: RopeConfig = read_rope(self._said())
        self.ropes = {kind: one for kind, one in self.read.layers.items() if one is not None}
        other = next((one for one in self.ropes.values() if not isinstance(one, RoPE)), None)
        if other is not None or not self.ropes:
            has = "turns by three coordinates of a token (M-RoPE)" if other is not None else "has no rotation"
            raise ValueError(f"model: {name} {has}, which no method here extends")
        if not any(layer.gap is not None for layer in before.layers):
            raise ValueError(
                f"model: the rotary module of {name} has a form that cannot be measured, so none to replace"
            )

    def _said(self) -> dict[str, Any]:
        return {key: value for key, value in self.config.to_dict().items() if key != NAME}

    @property
    def original_length(self) -> int | None:
        """Tokens that the model reaches, trained or scaled, by its configuration."""
        lengths = (max_length(self.read.text_config), extended_length(self.read.layers, recipes=False))
        return max((one for one in lengths if one is not None), default=None)

    def far(self, original_length: int) -> dict[str, RoPE]:
        """The rotations of layers that see further than the training length, by kind.

        Raises:
            ValueError: where every layer has a window that is no longer.
        """
        facts = model_from_config(self._said())
        layers: tuple[LayerFacts, ...] = facts.layers or facts.distinct_layers
        seen = {one.kind for one in layers if one.window is None or one.window > original_length}
        found = {
            kind: one
            for kind, one in self.ropes.items()
            if isinstance(one, RoPE) and (kind in seen or (kind == ALL and seen))
        }
        if not found:
            raise ValueError(
                f"model: no layer that turns sees more than {original_length:,} tokens, so there is nothing to extend"
            )
        return found

    def far_layers(self, original_length: int) -> list[int]:
        """The numbers of layers that rotate and see further than the training length."""
        facts = model_from_config(self._said())
        layers = facts.layers or facts.distinct_layers * self.config.num_hidden_layers
        near = {n for n, one in enumerate(layers) if one.window is not None and one.window <= original_length}
        return [n for n, one in enumerate(layers) if one.rotation is not None and n not in near]

    def written(self, ropes: Mapping[str, RoPE], original_length: int, length: int) -> dict[str, Any]:
        """The configuration with these rotations, as a rope type if there is one, or else with a factor for each pair.

        Raises:
            ValueError: where neither can say it.
        """
        try:
            new = self._config(ropes)
        except ValueError:
            self._check_writable(ropes)
            ropes = {kind: _frozen(rope, original_length) for kind, rope in ropes.items()}
            new = self._config(ropes)
        key = length_key(self.read.text_config)
        bare = all(_silent_of_length(one) for one in ropes.values())
        return {**new, key: length} if bare else new

    def _check_writable(self, ropes: Mapping[str, RoPE]) -> None:
        """Raise a ValueError where a factor for each pair cannot stand for what the model has."""
        for kind, rope in ropes.items():
            scaling = getattr(self.ropes[kind], "scaling", None)
            if scaling is None:
                continue
            has = one_line(scaling)
            if rope.length_dependent:
                raise ValueError(
                    f"model: its frequencies are scaled already, by {has}; they depend on the length of the text, and "
                    "no method here scales such frequencies further"
                )
            if self.read.softmax_factor(kind) != 1:
                raise ValueError(
                    f"model: its frequencies are scaled already, by {has}, which multiplies the softmax scale too, by "
                    f"{self.read.softmax_factor(kind):.4g}; no other rope type says that: take yarn, whose factor grows"
                )

    def _config(self, ropes: Mapping[str, Rotation]) -> dict[str, Any]:
        return self.read.with_rope({**self.read.layers, **ropes}).to_config()

    def put(self, said: Mapping[str, Any]) -> None:
        """Give the live configuration these values, and the model rotary modules and softmax scales made of it.

        Raises:
            ValueError: where the modules then do not rotate as the configuration says; all is as it was before.
        """
        old = self._said()
        changed = {key: value for key, value in said.items() if old.get(key) != value}
        before = {key: getattr(self.config, key, None) for key in changed}
        modules, scales = [place.module for place in self._places], self._scales()
        scaled = [
            (one, one.scaling) for one in self.model.modules() if isinstance(getattr(one, "scaling", None), float)
        ]
        self._set(changed)
        try:
            self._rescale(scales)
            for place, module in zip(self._places, modules, strict=True):
                setattr(place.parent, place.name, _again(module, self.config))
            found = inspect(self.model)
            if not found.agrees:
                raise ValueError(f"model: {next(str(layer) for layer in found.layers if layer.differs)}")
        except Exception:
            self._set(before)
            for attention, scale in scaled:
                attention.scaling = scale
            for place, module in zip(self._places, modules, strict=True):
                setattr(place.parent, place.name, module)
            raise
        self._places = [place._replace(module=getattr(place.parent, place.name)) for place in self._places]

    def _scales(self) -> list[float | None]:
        """The softmax scale of each layer, as the configuration has it."""
        facts = model_from_config(self._said())
        return [one.scale for one in facts.layers or facts.distinct_layers * self.config.num_hidden_layers]

    def _rescale(self, before: list[float | None]) -> None:
        """Give attention the softmax scale of the configuration, which modules have from when they were made."""
        scales = dict(enumerate(zip(before, self._scales(), strict=True)))
        for module in self.model.modules():
            old, new = scales.get(getattr(module, "layer_idx", -1), (None, None))
            scaling = getattr(module, "scaling", None)
            if old is not None and new is not None and old != new and isinstance(scaling, float):
                module.scaling = scaling * (new / old)

    def _set(self, values: Mapping[str, Any]) -> None:
        for key, value in values.items():
            setattr(self.config, key, copy.deepcopy(value))

    @contextmanager
    def turned(self, said: Mapping[str, Any]) -> Iterator[None]:
        """The model with another configuration of its rotation for a while."""
        before = self._said()
        self.put(said)
        try:
            yield
        finally:
            self.put(before)


def _config_of(model: PreTrainedModel) -> Any:
    """That of the layers' attention, as `inspect` takes it."""
    layers = (one for one in model.modules() if isinstance(getattr(one, "layer_idx", None), int))
    attention: Any = next(one for one in layers if takes_rotation(one) and hasattr(one, "config"))
    return attention.config


def _silent_of_length(rope: RoPE) -> bool:
    """Whether the block that means this rotation says nothing of the length that it reaches."""
    return any(
        isinstance(part, NTKAware) or (isinstance(part, LongRoPE) and part.factor == 1) for part in rope.modules()
    )


def _frozen(rope: RoPE, original_length: int) -> RoPE:
    found = to_longrope(rope, original_length)
    assert isinstance(found, RoPE)
    return found


def _again(module: nn.Module, config: Any) -> nn.Module:
    """A rotary module of the same class from a configuration, on the same device."""
    device = next((one.device for one in module.buffers()), torch.device("cpu"))
    make: Any = type(module)
    try:
        made: nn.Module = make(config=config)
    except TypeError as error:
        if getattr(config, "head_dim", 0) is None:
            text = f"{type(module).__name__} of transformers fails for scaled rope types where head_dim is not given"
            width = config.hidden_size // config.num_attention_heads
            raise ValueError(f"model: {text}: write head_dim: {width} in config.json") from error
        raise ValueError(f"model: {type(module).__name__} is not made of a configuration alone: {error}") from error
    return made.to(device).train(module.training)


def scaled(rotations: RotaryModules, method: str, original_length: int, length: int) -> dict[str, Any]:
    """The configuration of a model whose frequencies a method scales, for `Rotations.put`.

    Args:
        rotations: of the model, which stays as it is.
        method: one of `posenc.hf.extend.methods.SCALED`, or with ``+resonance``.
        original_length: tokens that the model was trained at.
        length: tokens that it is extended to.
    """
    far, factor = rotations.far(original_length), length / original_length
    ropes = {kind: scaled_block(rope, method, factor, original_length) for kind, rope in far.items()}
    return rotations.written(ropes, original_length, length)


def apply(rotations: RotaryModules, method: str, original_length: int, length: int) -> nn.Module:
    """The model with its distances moved in layers that see far, by one of `posenc.hf.extend.methods.DISTANCES`."""
    layers = rotations.far_layers(original_length)
    found: nn.Module = attach(rotations.model, [moved(method, original_length, length)], layers=layers)
    return found
