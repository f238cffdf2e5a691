"""Rebuilds the rotary modules of a live model from a changed configuration, and checks or restores them.

Changing a configuration after loading does not change a model: its modules compute their frequencies when they are
built. So `RotaryModules.rebuild` changes both, and measures with `posenc.hf.attach.live_model.inspect` that cos and sin
are those of the configuration; where they are not, everything is restored. Methods that remap distances are attached as
encodings instead (`apply`).
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
from posenc.frequencies.host import steps_of
from posenc.frequencies.longrope import LongRoPE
from posenc.frequencies.ntk import NTKAware
from posenc.frequencies.rotation import RoPESpec
from posenc.hf.attach import attach
from posenc.hf.attach.attention_function import NAME
from posenc.hf.attach.live_model import attention_modules, inspect, is_rotary_module
from posenc.hf.attach.scaling_methods import remapping_spec, scaled_rope
from posenc.hf.attach.supported import config_dict, layer_facts
from posenc.hf.config.rope_config import RopeConfig, read_rope
from posenc.hf.config.rope_keys import ALL, find_rope_blocks
from posenc.hf.config.rotation import Rotation, text_rope
from posenc.hf.config.text_config import find_text_config
from posenc.hf.config.write import to_longrope
from posenc.hf.plan.plan import PLANNED, Plan, Refused, plan_extension, start_of
from posenc.rotary.rope import RoPE


class _ModuleSlot(NamedTuple):
    """A rotary module and where it sits in the model."""

    parent: nn.Module
    name: str
    module: nn.Module


class RotaryModules:
    """The rotary modules of a model, which can be rebuilt for another rotation.

    Args:
        model: of transformers, with one text part.

    Attributes:
        config: the live configuration that the rotary modules are built from.
        read: the same, parsed.
        ropes: the rotation of each kind of layers that rotates.

    Raises:
        ValueError: for a model whose rotation cannot be replaced, or does not do what its configuration says.
    """

    def __init__(self, model: nn.Module) -> None:
        if not isinstance(model, PreTrainedModel):
            raise ValueError(f"model must be a model of transformers, got {shown(model)}")
        if any(hasattr(module, NAME) for module in model.modules()):
            raise ValueError("model has encodings attached instead of its rotation: detach them first")
        before = inspect(model)
        if not before.agrees:
            differs = next(layer for layer in before.layers if layer.differs)
            raise ValueError(f"model: {differs}; load it again, so that modules and configuration agree")
        self.model, name = model, type(model).__name__
        modules = attention_modules(model)
        self.config = modules[min(modules)].config
        self._slots = [
            _ModuleSlot(parent, name, child)
            for parent in model.modules()
            for name, child in parent.named_children()
            if is_rotary_module(child) and getattr(child, "config", None) is self.config
        ]
        if not self._slots:
            raise ValueError(
                f"model: {name} has no rotary module that is built from its configuration, so none to replace"
            )
        self.read: RopeConfig = read_rope(config_dict(self.config))
        self.ropes = {kind: rope for kind, rope in self.read.layers.items() if rope is not None}
        has_mrope = not all(isinstance(rope, RoPE) for rope in self.ropes.values())
        if has_mrope or not self.ropes:
            has = "rotates by three coordinates of a token (M-RoPE)" if has_mrope else "has no rotation"
            hint = "; posenc extend --config-only extends it" if has_mrope else ""
            raise ValueError(f"model: {name} {has}, which no method here extends{hint}")
        if not any(layer.gap is not None for layer in before.layers):
            raise ValueError(
                f"model: the rotary module of {name} has a form that cannot be measured, so none to replace"
            )

    def config_of(self, plan: Plan) -> dict[str, Any]:
        """The configuration with the keys of a plan, which must be for `read`."""
        return plan.applied_to(config_dict(self.config))

    def planned_config(self, method: str, original_length: int, length: int) -> dict[str, Any]:
        """The configuration under a method that scales frequencies: the plan's, where a config alone can have it.

        Args:
            method: one of `posenc.hf.attach.scaling_methods.SCALED`, or with ``+resonance``.
            original_length: tokens that the model was trained at.
            length: tokens that it is extended to.
        """
        if (known := PLANNED.get(method)) is not None:
            start = None if original_length == self.original_length else original_length
            try:
                plan = plan_extension(self.read.facts, length, known, start)
                if plan.method is not None:
                    return self.config_of(plan)
            except Refused as refusal:  # else such as YaRN as longrope's factors, or linear scaling over Llama 3's
                if refusal.code == "misspelt key":
                    raise
        far_ropes, factor = self.long_range_ropes(original_length), length / original_length
        ropes = {kind: scaled_rope(rope, method, factor, original_length) for kind, rope in far_ropes.items()}
        return self.config_with(ropes, original_length, length)

    def rotation_keys(self) -> dict[str, Any]:
        """The keys of the live configuration on rotation and length."""
        config = self.config.to_dict()
        return {key: config[key] for key in ("rope_parameters", "max_position_embeddings") if key in config}

    @property
    def original_length(self) -> int | None:
        """Tokens that the model reaches by its configuration, from which every method here starts."""
        return start_of(self.read.facts)

    def long_range_ropes(self, original_length: int) -> dict[str, RoPE]:
        """The rotations of layers that attend beyond the training length, by kind of layers.

        Raises:
            ValueError: where every layer has a window of at most that length.
        """
        layers = layer_facts(self.config)
        kinds = {layer.kind for layer in layers if layer.window is None or layer.window > original_length}
        ropes = {
            kind: rope
            for kind, rope in self.ropes.items()
            if isinstance(rope, RoPE) and (kind in kinds or (kind == ALL and kinds))
        }
        if not ropes:
            raise ValueError(
                f"model: no layer that rotates attends beyond {original_length:,} tokens, so there is nothing to extend"
            )
        return ropes

    def long_range_layers(self, original_length: int) -> list[int]:
        """The numbers of layers that rotate and attend beyond the training length."""
        return [
            n
            for n, layer in enumerate(layer_facts(self.config))
            if layer.rotation is not None and (layer.window is None or layer.window > original_length)
        ]

    def config_with(self, ropes: Mapping[str, RoPESpec], original_length: int, length: int) -> dict[str, Any]:
        """The configuration with these rotations, as a rope type if there is one, else with a factor for each pair.

        Raises:
            ValueError: where neither can express them.
        """
        try:
            new = self._config(ropes)
            self._check_rope_types(new)
        except ValueError:
            self._check_writable(ropes)
            if any(rope.length_dependent for rope in ropes.values()):  # no list of factors depends on the length
                raise
            ropes = {kind: text_rope(to_longrope(rope, original_length)) for kind, rope in ropes.items()}
            new = self._config(ropes)
        key = self.read.text_config.length_key
        if all(_block_lacks_length(rope) for rope in ropes.values()):
            return {**new, key: length}
        return new

    def _check_rope_types(self, config: Mapping[str, Any]) -> None:
        """Raise a ValueError for a rope type that the config class of this model type refuses when it is opened."""
        taken = self.read.text_config.rotation.rope_types
        for block in find_rope_blocks(find_text_config(dict(config))):
            rope_type = None if block.values is None else block.effective.get("rope_type")
            if taken and rope_type is not None and rope_type not in taken:
                raise ValueError(
                    f"method: transformers' code of {self.read.text_config.model_type} takes the rope types "
                    f"{' and '.join(taken)} alone, not {rope_type}: use a method with fixed frequencies, such as yarn"
                )

    def _check_writable(self, ropes: Mapping[str, RoPESpec]) -> None:
        """Raise a ValueError where a factor for each pair cannot express the model's own scaling."""
        for kind, rope in ropes.items():
            scaling = getattr(self.ropes[kind], "scaling", None)
            if scaling is None:
                continue
            has = one_line(scaling)
            if rope.length_dependent:
                raise ValueError(
                    f"model: its frequencies are scaled already, by {has}; they depend on the length of the text, and "
                    "no method here scales such frequencies further: use self_extend, which remaps distances"
                )
            if self.read.softmax_factor(kind) != 1:
                raise ValueError(
                    f"model: its frequencies are scaled already, by {has}, which multiplies the softmax scale too, by "
                    f"{self.read.softmax_factor(kind):.4g}; no other rope type does that: use yarn, whose factor grows"
                )

    def _config(self, ropes: Mapping[str, Rotation]) -> dict[str, Any]:
        return self.read.with_rope({**self.read.layers, **ropes}).to_config()

    def rebuild(self, values: Mapping[str, Any]) -> None:
        """Set values of the live configuration, and rebuild the rotary modules and softmax scales from it.

        Raises:
            ValueError: where the new modules do not rotate as the configuration says; everything is restored.
        """
        old = config_dict(self.config)
        changed = {key: value for key, value in values.items() if old.get(key) != value}
        before = {key: getattr(self.config, key, None) for key in changed}
        modules, scales = [slot.module for slot in self._slots], [layer.scale for layer in layer_facts(self.config)]
        attention = [module for module in self.model.modules() if isinstance(getattr(module, "scaling", None), float)]
        old_scales = [(module, module.scaling) for module in attention]
        self._set(changed)
        try:
            self._rescale(scales)
            for slot, module in zip(self._slots, modules, strict=True):
                setattr(slot.parent, slot.name, _rebuilt(module, self.config))
            inspection = inspect(self.model)
            if not inspection.agrees:
                raise ValueError(f"model: {next(str(layer) for layer in inspection.layers if layer.differs)}")
        except Exception:
            self._set(before)
            for module, scale in old_scales:
                module.scaling = scale
            for slot, module in zip(self._slots, modules, strict=True):
                setattr(slot.parent, slot.name, module)
            raise
        self._slots = [slot._replace(module=getattr(slot.parent, slot.name)) for slot in self._slots]

    def _rescale(self, before: list[float | None]) -> None:
        """Change the softmax scales of attention modules, which they compute when they are built."""
        scales = dict(enumerate(zip(before, (layer.scale for layer in layer_facts(self.config)), strict=True)))
        for module in self.model.modules():
            old, new = scales.get(getattr(module, "layer_idx", -1), (None, None))
            scaling = getattr(module, "scaling", None)
            if old is not None and new is not None and old != new and isinstance(scaling, float):
                module.scaling = scaling * (new / old)

    def _set(self, values: Mapping[str, Any]) -> None:
        for key, value in values.items():
            setattr(self.config, key, copy.deepcopy(value))

    @contextmanager
    def temporarily(self, values: Mapping[str, Any]) -> Iterator[None]:
        """Context manager: the model with another rotation, restored afterwards."""
        before = config_dict(self.config)
        self.rebuild(values)
        try:
            yield
        finally:
            self.rebuild(before)


def _block_lacks_length(rope: RoPESpec) -> bool:
    """Whether the block of this rotation does not state the length that it reaches."""
    return any(
        isinstance(step, NTKAware) or (isinstance(step, LongRoPE) and step.factor == 1)
        for step in steps_of(rope.scaling)
    )


def _rebuilt(module: nn.Module, config: Any) -> nn.Module:
    """A rotary module of the same class from a configuration, on the same device."""
    device = next((buffer.device for buffer in module.buffers()), torch.device("cpu"))
    cls: Any = type(module)
    try:
        rebuilt: nn.Module = cls(config=config)
    except TypeError as error:
        if getattr(config, "head_dim", 0) is None:
            text = f"{type(module).__name__} of transformers fails for scaled rope types where head_dim is not given"
            width = config.hidden_size // config.num_attention_heads
            raise ValueError(f"model: {text}: write head_dim: {width} in config.json") from error
        raise ValueError(f"model: {type(module).__name__} is not built from a configuration alone: {error}") from error
    return rebuilt.to(device).train(module.training)


def apply(rotations: RotaryModules, method: str, original_length: int, length: int) -> nn.Module:
    """Remap the distances of long-range layers, by one of `scaling_methods.DISTANCES`; returns the model."""
    layers = rotations.long_range_layers(original_length)
    model: nn.Module = attach(rotations.model, [remapping_spec(method, original_length, length)], layers=layers)
    return model
