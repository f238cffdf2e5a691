"""Defaults of transformers: doctor reports a fault only where transformers cannot build its own default."""

from __future__ import annotations

import importlib
import inspect
import json
import logging

import pytest
from benchmarks import model_types

from posenc.hf import model_from_config, read_rope
from posenc.hf.doctor import examine
from posenc.hf.families import FAMILIES, FILE

pytest.importorskip("transformers")

from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

from tests.reference.test_hf_config import SCALABLE, of_family

pytestmark = pytest.mark.reference
logging.getLogger("transformers").setLevel(logging.CRITICAL)


@pytest.mark.parametrize("name", SCALABLE)
def test_no_false_fault(name: str) -> None:
    config, _, _, full = of_family(name)
    read = read_rope({**config.to_dict(), "model_type": name})
    assert not [finding for finding in read.findings if finding.level == "fault"]
    assert all(finding.name for finding in read.findings)
    model_from_config(full)


def test_there_are_as_many_as_expected() -> None:
    assert len(SCALABLE) >= 100


# whose default misses the share that releases have
CAUTIONED = {
    "minimax_m2": {"share-lost"},
}  # fmt: skip


@pytest.mark.parametrize("name", SCALABLE)
def test_the_doctor_raises_no_false_alarm(name: str) -> None:
    config = of_family(name)[0]
    assert examine({**config.to_dict(), "model_type": name}).names() == CAUTIONED.get(name, set())


def config_classes() -> dict[str, type[PreTrainedConfig]]:
    """Every configuration class of transformers, by its model type."""
    result: dict[str, type[PreTrainedConfig]] = {}
    for name in CONFIG_MAPPING_NAMES:
        module = importlib.import_module(CONFIG_MAPPING[name].__module__)
        for _, first in inspect.getmembers(module, inspect.isclass):
            if issubclass(first, PreTrainedConfig) and first.__module__ == module.__name__ and first.model_type:
                result.setdefault(first.model_type, first)
    return result


def test_the_default_of_no_class_has_a_fault_or_a_crash() -> None:
    """Also of models of sound and images, of which posenc reads nothing: that is no fault of theirs."""
    alarms, built = {}, 0
    for name, cls in config_classes().items():
        try:
            config = cls().to_dict()
        except Exception:  # classes that cannot be built without arguments
            continue
        built += 1
        names = examine(config).names() - CAUTIONED.get(name, set())
        if names:
            alarms[name] = names
    assert built > 700
    assert not alarms


def test_sizes_of_text_parts_equal_the_classes() -> None:
    classes = config_classes()
    sizes = {name: family.sizes for name, family in FAMILIES.items() if family.sizes is not None}
    assert len(sizes) > 170
    for name, known in sizes.items():
        config = classes[name]()
        for key, size in known._asdict().items():
            result = model_types.at(config, key)
            assert size == (result if type(result) is int else None), f"{name}: {key}"
    for name, family in FAMILIES.items():
        if not family.text_type or name == "ernie4_5_moe_vl":  # the latter is a name of released files alone
            continue
        config = classes[name]()
        parts = [
            getattr(config, key, None) for key in ("text_config", "llm_config", "language_config", "thinker_config")
        ]
        assert family.text_type in {part.model_type for part in parts if part is not None}, name


def test_the_numbers_of_the_classes_are_those_of_the_installed_transformers() -> None:
    """benchmarks/model_types.py wrote them; a release that changes one is seen here."""
    written = {name: {**known, "since": None} for name, known in json.loads(FILE.read_bytes()).items()}
    fresh = {name: {**model_types.defaults_of(name, model_types.WRITTEN.get(name)), "since": None} for name in written}
    assert json.loads(json.dumps(fresh)) == written
