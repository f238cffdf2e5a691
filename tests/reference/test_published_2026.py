"""Ten models published in 2026: what is told of each layer equals the modules that transformers builds."""

from __future__ import annotations

import importlib
import inspect
import logging
from typing import Any

import pytest
import torch
from torch import nn

from posenc.hf import model_from_config
from posenc.hf.config.facts import ModelFacts
from posenc.hf.config.rotation import text_rope
from tests.hf.config.published_2026 import NAMES, OF_CLASSES, QUOTED
from tests.hf.transformers_models import CODE_OF

pytest.importorskip("transformers")

from transformers import AutoConfig, PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

pytestmark = pytest.mark.reference
logging.getLogger("transformers").setLevel(logging.CRITICAL)


def class_of(name: str) -> PreTrainedConfig:
    """The text part of the config, as transformers builds it."""
    if name in OF_CLASSES:
        return CONFIG_MAPPING[OF_CLASSES[name]]().get_text_config()
    values = dict(QUOTED[name])
    return AutoConfig.for_model(values.pop("model_type"), **values).get_text_config()


def facts_of(name: str) -> ModelFacts:
    """The same, as it is read here."""
    return model_from_config(CONFIG_MAPPING[OF_CLASSES[name]]().to_dict() if name in OF_CLASSES else QUOTED[name])


def classes(config: PreTrainedConfig, ending: str, *excluded: str) -> list[type[nn.Module]]:
    """The classes of the model type's file whose names end so, without those that another word names."""
    name = type(config).__module__.replace("configuration", "modeling")
    home = importlib.import_module(CODE_OF.get(name, name))
    named = [cls for name, cls in inspect.getmembers(home, inspect.isclass) if name.endswith(ending)]
    return [cls for cls in named if not any(word in cls.__name__ for word in ("Vision", "Linear", *excluded))]


@pytest.mark.parametrize("name", NAMES)
def test_each_kind_of_layer_is_told_as_its_module(name: str) -> None:
    config, facts = class_of(name), facts_of(name)
    assert len(facts.layers) == config.num_hidden_layers
    assert facts.declared == config.max_position_embeddings
    kinds = getattr(config, "layer_types", None)
    attention = classes(config, "Attention")[0]
    for layer, numbers in facts.kinds:
        assert kinds is None or {kinds[number] for number in numbers} == {layer.kind}
        if not layer.attends:
            continue
        with torch.device("meta"):
            module: Any = attention(config, numbers[0])
        assert layer.scale == pytest.approx(module.scaling, rel=1e-6), layer.kind
        assert layer.window == getattr(module, "sliding_window", None), layer.kind


@pytest.mark.parametrize("name", NAMES)
def test_frequencies_and_gains_are_the_modules(name: str) -> None:
    config, facts = class_of(name), facts_of(name)
    rotary: Any = classes(config, "RotaryEmbedding")[0](config)
    for kind, rotation in facts.rotations.items():
        if rotation is None or not (hasattr(rotary, "inv_freq") or hasattr(rotary, f"{kind}_inv_freq")):
            continue  # a block of the class for a kind that no layer is
        prefix = f"{kind}_" if hasattr(rotary, f"{kind}_inv_freq") else ""
        spectrum = text_rope(rotation).spectrum(facts.declared)
        theta = torch.tensor(spectrum.theta.tolist())
        torch.testing.assert_close(theta, getattr(rotary, f"{prefix}inv_freq").cpu(), rtol=1e-5, atol=0)
        assert float(spectrum.gain) == pytest.approx(getattr(rotary, f"{prefix}attention_scaling"), rel=1e-6)
