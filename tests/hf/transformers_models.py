"""What transformers makes of a configuration: its classes by model type, and the frequencies and gain of a call."""

from __future__ import annotations

import copy
import importlib
import inspect
import re
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

_OTHER = re.compile("VisionRotary|SaProt")  # rotations of images, and of a part that is no text model

TEXT = {  # the class of a text part
    "qwen2_vl": "qwen2_vl_text", "qwen2_5_vl": "qwen2_5_vl_text", "ernie4_5_moe_vl": "ernie4_5_vl_moe_text",
}  # fmt: skip
CODE_OF = {  # model types whose code is another's
    "transformers.models.iquestcoder.modeling_iquestcoder": "transformers.models.llama.modeling_llama",
}


@cache
def model_of(model_type: str) -> tuple[Any, Any, Any]:
    """The configuration class, the rotary class and the modelling file of a model type.

    Raises:
        LookupError: for a model type that transformers does not have.
    """
    for path in sorted((Path(transformers.__file__).parent / "models").glob("*/configuration_*.py")):
        if re.search(rf'model_type = "{re.escape(model_type)}"', path.read_text()):
            break
    else:
        raise LookupError(model_type)
    stem = f"transformers.models.{path.parent.name}.{path.stem}"
    name = stem.replace(".configuration_", ".modeling_")
    file, code = importlib.import_module(stem), importlib.import_module(CODE_OF.get(name, name))
    config = next(c for c in vars(file).values() if inspect.isclass(c) and getattr(c, "model_type", "") == model_type)
    rotary = [c for name, c in vars(code).items() if name.endswith("RotaryEmbedding") and not _OTHER.search(name)]
    return config, rotary[0] if rotary else None, code


def rotary_module(config: dict[str, Any]) -> nn.Module:
    """transformers' module for a copy of a configuration, whose blocks it would change."""
    cls, rotary, _ = model_of(config["model_type"])
    module: nn.Module = rotary(cls.from_dict(copy.deepcopy(config)))
    return module


def transformers_frequencies(module: Any, length: int | None, kind: str = "all") -> tuple[Tensor, float]:
    """Frequencies and gain of their module in a call that spans ``length`` tokens."""
    prefix = "" if kind == "all" else f"{kind}_"
    if length is not None:
        extra = {} if kind == "all" else {"layer_type": kind}
        module(torch.zeros(1), torch.tensor([[0, length - 1]]), **extra)
    theta = getattr(module, f"{prefix}inv_freq")
    if type(module).__name__.startswith("Ernie4_5_VL"):  # which keeps them in the order of its sections
        theta = theta.sort(descending=True).values
    return theta, getattr(module, f"{prefix}attention_scaling")
