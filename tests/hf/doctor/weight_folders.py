"""Folders of weights: small models as transformers saves them, and one of every model type without a byte of memory.

In the small ones faults can be planted. Of every model type, a model of the default config with few layers is built on
the meta device; its tensors get the names that `save_pretrained` would write, by the reverse of the loader's
conversions, and a safetensors file of holes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM
from transformers.core_model_loading import revert_weight_conversion
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

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
                 lambda: {**TINY, **MORE.get(model_type, {}), **FAMILIES.get(model_type, {})}):  # fmt: skip
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


_BERT: dict[str, Any] = {
    "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 48, "vocab_size": 64,
    "max_position_embeddings": 40, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {  # of small models
    **{name: {**TINY, **MORE.get(name, {})} for name in ("glm4_moe", "lfm2", "llama", "qwen2", "qwen3", "qwen3_moe")},
    "deepseek_v3": {**TINY, **MORE["deepseek_v3"], "head_dim": 8},
    "gpt_oss": {**TINY, "max_position_embeddings": 131072},
    "bert": _BERT,
    "esm": {**_BERT, "mask_token_id": 4, "position_embedding_type": "rotary"},
    "deberta-v2": {**_BERT, "relative_attention": True, "position_buckets": 8, "max_relative_positions": 20,
                   "pos_att_type": ["p2c", "c2p"]},
    "t5": {"d_model": 32, "d_kv": 12, "num_heads": 4, "num_layers": 2, "num_decoder_layers": 3, "d_ff": 48,
           "vocab_size": 64, "relative_attention_num_buckets": 16, "decoder_start_token_id": 0},
    "gpt2": {"n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 40, "vocab_size": 64},
    "clip": {
        "text_config": {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 48,
                        "vocab_size": 64, "max_position_embeddings": 20},
        "vision_config": {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 3, "intermediate_size": 48,
                          "image_size": 32, "patch_size": 8},
    },
}  # fmt: skip
_CLASSES = (AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForMaskedLM, AutoModel)


def saved(model_type: str, path: Path, **more: Any) -> Path:
    """A folder with a random model of a family, as `save_pretrained` writes it.

    Args:
        model_type: one of `FAMILIES`, or any that is given its sizes.
        path: where.
        **more: keys of the config; ``max_shard_size`` goes to `save_pretrained`.
    """
    options = {"max_shard_size": more.pop("max_shard_size")} if "max_shard_size" in more else {}
    config = CONFIG_MAPPING[model_type](**{**FAMILIES.get(model_type, {}), **more})
    torch.manual_seed(0)
    cls = next(cls for cls in _CLASSES if type(config) in cls._model_mapping)
    cls.from_config(config).save_pretrained(path, **options)
    return path


def change_config(folder: Path, *inside: str, **keys: Any) -> None:
    """Write keys into a folder's config; None removes one."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    part = config
    for name in inside:
        part = part[name]
    part.update(keys)
    for key in [key for key, value in keys.items() if value is None]:
        del part[key]
    path.write_text(json.dumps(config))
