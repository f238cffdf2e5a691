"""Rows of learned tables and buckets of relative biases: the records against the modules that transformers builds."""

from __future__ import annotations

import importlib
import inspect
import logging
from contextlib import suppress
from typing import Any

import pytest
import torch

from posenc.hf import facts, read_rope
from posenc.hf.families import NON_ROTARY

pytest.importorskip("transformers")

from transformers import PreTrainedConfig
from transformers.models.auto import modeling_auto

from tests.reference.test_defaults import config_classes

pytestmark = pytest.mark.reference
logging.getLogger("transformers").setLevel(logging.CRITICAL)
LAYERS = ("num_hidden_layers", "encoder_layers", "decoder_layers", "num_layers", "num_decoder_layers")
LENGTHS = {  # primes, so that each number of rows names its key
    "max_position_embeddings": 1009, "n_positions": 1013, "max_source_positions": 1021, "max_target_positions": 1031,
    "block_size": 1033, "max_encoder_position_embeddings": 1039, "max_decoder_position_embeddings": 1049,
    "relative_attention_num_buckets": 38,
}  # fmt: skip
CLASSES = config_classes()
WITHOUT_A_CLASS = {"barthez", "transfo-xl"}  # names of released files; transformers reads them by another class
NOT_BUILT = {"blip_text_model", "layoutlmv2"}  # no model of their own; needs another package
_MAPPINGS = (
    modeling_auto.MODEL_MAPPING, modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING, modeling_auto.MODEL_FOR_PRETRAINING_MAPPING,
    modeling_auto.MODEL_FOR_BACKBONE_MAPPING,
)  # fmt: skip


def config_of(name: str) -> PreTrainedConfig:
    """The default config of a model type, of as few layers as it lets itself be built with."""
    config: PreTrainedConfig = CLASSES[name]()
    for key in LAYERS:
        if type(getattr(config, key, None)) is int and name not in ("funnel", "gpt_neo"):
            with suppress(NotImplementedError):  # ProphetNet's sum of both halves
                setattr(config, key, min(2, getattr(config, key)))
    return config


def shapes(config: PreTrainedConfig) -> list[tuple[int, ...]]:
    """The shapes of all parameters and buffers of a model, which is built without memory."""
    with torch.device("meta"):
        for mapping in _MAPPINGS:
            if type(config) in mapping:
                cls = mapping[type(config)]
                model: Any = (cls[0] if isinstance(cls, tuple) else cls)(config)
                break
        else:
            module = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
            classes: list[Any] = [cls for _, cls in inspect.getmembers(module, inspect.isclass)]
            model = next(cls for cls in classes if getattr(cls, "config_class", None) is type(config))(config)
    return [tuple(tensor.shape) for _, tensor in [*model.named_parameters(), *model.named_buffers()]]


def numbers_of(name: str, config: PreTrainedConfig) -> list[dict[str, Any]]:
    """What posenc tells of the tables and buckets of a config."""
    full = {**config.to_dict(), "model_type": name}
    return [scheme for scheme in facts(read_rope(full))["encodings"] if scheme["rows"] or scheme["buckets"]]


TABLES = sorted(
    name for name, family in NON_ROTARY.items()
    if any(scheme.table or scheme.patches or scheme.buckets for scheme in family.schemes)
    and not any(scheme.switched_by and not scheme.on_by_default for scheme in family.schemes)
)  # fmt: skip


@pytest.mark.parametrize("name", [name for name in TABLES if name not in WITHOUT_A_CLASS | NOT_BUILT])
@pytest.mark.parametrize("changed", [False, True], ids=["default", "changed"])
def test_rows_equal_the_model(name: str, changed: bool) -> None:
    config = config_of(name)
    for key, value in LENGTHS.items() if changed else ():
        if type(getattr(config, key, None)) is int:
            setattr(config, key, value)
    numbers = numbers_of(name, config)
    assert numbers
    built = shapes(config)
    for number in numbers:
        rows = number["rows"] or number["buckets"]
        side = round(rows**0.5)
        assert any(rows in shape or (side * side == rows and shape.count(side) == 2) for shape in built), (rows, built)


def test_the_defaults_equal_the_classes() -> None:
    """Without its keys a config means the numbers of its class."""
    for name in TABLES:
        if name in WITHOUT_A_CLASS:
            continue
        config = config_of(name)
        encodings = facts(read_rope({"model_type": name}))["encodings"]
        assert numbers_of(name, config) == [entry for entry in encodings if entry["rows"] or entry["buckets"]], name
