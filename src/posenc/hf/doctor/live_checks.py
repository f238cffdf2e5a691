"""Checks that need a live transformers model: modules against configuration, buffers, attention function.

Source: transformers 5.23, masking_utils.py (an attention function without a mask of its name gets None), integrations/
    sdpa_attention.py (sinks are not read), modeling_utils.py (``to`` casts the buffers of rotary modules).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from posenc.arguments import shown
from posenc.hf.attach.attention_function import NAME, Attached
from posenc.hf.attach.live_model import Difference, inspect, makes_tables
from posenc.hf.doctor.report import Finding
from posenc.hf.explanation.describe import ranges
from posenc.hf.sources.load import Config

_REBUILD = "modules are made once, when the model is: give the configuration to from_pretrained(..., config=config)"


def config_of(model: nn.Module) -> Config:
    """The configuration of a model, without what is attached to it."""
    if not isinstance(model, PreTrainedModel):
        raise ValueError(f"model must be a model of transformers, got {shown(model)}")
    return {key: value for key, value in model.config.to_dict().items() if key != NAME}


def on_model(model: nn.Module) -> Iterator[Finding]:
    """What its modules do otherwise than its configuration says."""
    yield from _on_attention(model)
    broken = list(_on_buffers(model))
    yield from broken
    try:
        found = inspect(model)
    except ValueError as error:
        yield Finding("not-measured", "note", "model", f"cannot be measured: {str(error).splitlines()[0]}")
        return
    layers: dict[Difference, list[int]] = {}
    for layer in found.layers:
        for one in layer.differs:
            layers.setdefault(one, []).append(layer.number)
    for one, numbers in layers.items():
        if one.name != "rotation" or not broken:
            text = f"(layers {ranges(numbers)}): {one.text}; {_REBUILD}"
            yield Finding(f"{one.name}-of-another-configuration", "fault", one.name, text)


def _on_attention(model: nn.Module) -> Iterator[Finding]:
    """The function that computes attention, and what it leaves out."""
    every: list[Any] = list(model.modules())
    undone = [
        (one.layer_idx, _config(one)._attn_implementation)
        for one in every
        if isinstance(getattr(one, NAME, None), Attached) and _config(one)._attn_implementation != NAME
    ]
    block = getattr(getattr(model, "config", None), NAME, None)
    if isinstance(block, dict) and not any(isinstance(getattr(one, NAME, None), Attached) for one in every):
        text = "says that layers have other encodings, and this model has none: load it with posenc.hf.attach.load"
        yield Finding("attachment-missing", "fault", "posenc", text)
    if undone:
        text = f"is {undone[0][1]!r}, under which the encodings attached to layers {ranges([n for n, _ in undone])} do "
        text += f"not run, and the model raises: model.set_attn_implementation({NAME!r}), or detach them"
        yield Finding("attachment-undone", "fault", "attn_implementation", text)
    attending: list[Any] = [one for one in model.modules() if isinstance(getattr(one, "layer_idx", None), int)]
    names = {name for one in attending if (name := getattr(_config(one), "_attn_implementation", None)) is not None}
    for name in sorted(names - set(ALL_MASK_ATTENTION_FUNCTIONS.valid_keys())):
        text = (
            f"{name!r} has no mask of its name, so that it gets None: with padding, packing or a window it sees what "
        )
        text += "it must not; register one: AttentionMaskInterface.register(name, sdpa_mask)"
        yield Finding("attention-without-mask", "fault", "attn_implementation", text)
    sunk = [one.layer_idx for one in attending if getattr(one, "sinks", None) is not None]
    if sunk and "sdpa" in names:
        text = f"'sdpa' does not read the sinks of layers {ranges(sorted(sunk))}; take 'eager' or a kernel that does"
        yield Finding("sinks-ignored", "fault", "attn_implementation", text)


def _config(module: Any) -> Any:
    return getattr(module, "config", None)


def _on_buffers(model: nn.Module) -> Iterator[Finding]:
    """Frequencies that were rounded, or never computed."""
    for name, module in model.named_modules():
        if not makes_tables(module):
            continue
        for key, buffer in module.named_buffers(recurse=False):
            if "inv_freq" not in key or key.startswith("original") or buffer.is_meta:
                continue
            where = f"{name}.{key}" if name else key
            if not bool(torch.isfinite(buffer).all()) or not bool(buffer.any()):
                text = "is not finite, or nothing: it was left as it was found in memory when the model came from the "
                text += f"meta device, and no checkpoint has it; {_REBUILD}"
                yield Finding("frequencies-uninitialised", "fault", where, text)
            elif torch.finfo(buffer.dtype).bits < 32:
                text = f"is of {buffer.dtype}, in which frequencies are rounded and far angles are wrong: load with "
                text += "dtype=..., which leaves them alone, in the place of model.to(dtype) or model.half()"
                yield Finding("frequencies-rounded", "fault", where, text)
