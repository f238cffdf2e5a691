"""Folders of weights for every model type that transformers builds, of full width and without a byte of memory.

A model of the default config, with few layers, is built on the meta device; its tensors get the names that
`save_pretrained` would write, by the reverse of the loader's conversions, and a safetensors file of holes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from transformers.core_model_loading import revert_weight_conversion
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tests.hf.doctor.saved_models import FAMILIES as SIZES
from tests.hf.sizes import MORE, TINY

_MAPPINGS = (
    modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING, modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, modeling_auto.MODEL_FOR_MASKED_LM_MAPPING,
    modeling_auto.MODEL_MAPPING,
)  # fmt: skip
_LAYERS = re.compile(r"^(?:num_hidden_layers|num_layers|n_layers?|encoder_layers|decoder_layers|depth)$")
_FEW = 4


def model_types() -> list[str]:
    """Every model type of which transformers has a model."""
    return sorted(name for name in CONFIG_MAPPING if class_of(name) is not None)


def class_of(model_type: str) -> Any:
    """The first class of a model type that has its config; None where it has none of its own."""
    config_class = CONFIG_MAPPING[model_type]
    for mapping in _MAPPINGS:
        with suppress(ImportError, ValueError):  # a class whose packages are missing, or that is listed and not there
            classes = mapping.get(config_class, ())
            for cls in classes if isinstance(classes, tuple) else (classes,):
                if cls.config_class is config_class:
                    return cls
    return None


def meta_model(model_type: str) -> Any:
    """A model of few layers on the meta device; raises whatever its class raises where it cannot be built."""
    config_class, cls = CONFIG_MAPPING[model_type], class_of(model_type)
    error: Exception = LookupError(model_type)
    for keys in (lambda: _shorter(config_class().to_dict()), lambda: config_class().to_dict(),
                 lambda: {**TINY, **MORE.get(model_type, {}), **SIZES.get(model_type, {})}):  # fmt: skip
        try:
            return _built(cls, config_class(**{**keys(), **_AS_RELEASED.get(model_type, {})}))
        except Exception as reason:  # lists of layers, shared keys and periods of several hundred classes
            error = reason
    raise error


_AS_RELEASED: dict[str, dict[str, Any]] = {"minimax_m2": {"rotary_dim": 64}}  # where the default is no release's


def _built(cls: Any, config: Any) -> Any:
    config._attn_implementation = "eager"
    with torch.device("meta"):
        return cls(config)


def _shorter(keys: dict[str, Any]) -> dict[str, Any]:
    few: dict[str, Any] = {}
    for key, value in keys.items():
        if isinstance(value, dict) and key.endswith("_config"):
            few[key] = _shorter(value)
        elif _LAYERS.match(key) and isinstance(value, int):
            few[key] = min(value, _FEW)
        elif not (isinstance(value, list) and "layer" in key):
            few[key] = value
    return few


def saved_of_holes(model_type: str, folder: Path) -> Path:
    """A folder with the config and a file of weights, whose numbers are zeros that take no room."""
    model = meta_model(model_type)
    folder.mkdir()
    tensors: Mapping[str, torch.Tensor] = model.state_dict()
    shared = {id(tensor): name for name, tensor in reversed(model.state_dict(keep_vars=True).items())}
    kept = {name: tensors[name] for name in shared.values()} if shared else tensors
    kept = {name: t for name, t in kept.items() if name not in (model.all_tied_weights_keys or {})}
    kept = revert_weight_conversion(model, kept)
    config = model.config
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)
    write_holes(folder / "model.safetensors", {name: tuple(tensor.shape) for name, tensor in kept.items()})
    return folder


def write_holes(file: Path, shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, str] | None = None) -> None:
    """A safetensors file with these tensors, whose bytes are a hole of the file system."""
    header, at = {}, 0
    for name, shape in shapes.items():
        dtype = (dtypes or {}).get(name, "BF16")
        size = torch.Size(shape).numel() * {"U8": 1, "F8_E4M3": 1, "F8_E8M0": 1, "F32": 4, "I32": 4}.get(dtype, 2)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with file.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        out.truncate(8 + len(text) + at)
