"""The rotary module that transformers builds for a configuration, and the frequencies and gain of a call to it."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import torch

_OTHER = re.compile("VisionRotary|SaProt")  # rotations of images, and of a part that is no text model


def rotary_module(config: Any) -> Any:
    """The rotary module of a model's code, built from a configuration of transformers.

    Raises:
        LookupError: for a model type whose code has none.
    """
    config = config.get_text_config()
    code = importlib.import_module(type(config).__module__.replace(".configuration_", ".modeling_"))
    for name, cls in vars(code).items():
        if inspect.isclass(cls) and name.endswith("RotaryEmbedding") and not _OTHER.search(name):
            rotary: Any = cls
            return rotary(config)
    raise LookupError(f"{config.model_type}: transformers' code of this model type has no rotary module")


def transformers_frequencies(module: Any, length: int, kind: str = "all") -> tuple[list[float], float]:
    """Frequencies (radians a token) and gain in a call that spans ``length`` tokens.

    Args:
        module: as `rotary_module` gives it.
        length: in tokens.
        kind: of layers, where the module has frequencies for each.
    """
    layer_kind = kind if hasattr(module, f"{kind}_inv_freq") else ""
    positions = torch.arange(length)[None]
    if "mrope" in repr(module.config):
        positions = positions.expand(3, 1, -1)
    module(torch.zeros(1), positions, **({"layer_type": layer_kind} if layer_kind else {}))
    prefix = f"{layer_kind}_" if layer_kind else ""
    return getattr(module, f"{prefix}inv_freq").double().tolist(), float(getattr(module, f"{prefix}attention_scaling"))
