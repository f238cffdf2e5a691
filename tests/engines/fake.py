"""Engines for tests of the check: transformers' frequencies, with one fault each that is known."""

from __future__ import annotations

import copy
import os
from typing import Any

from benchmarks.engines.adapters import Adapter, NotRunError, Question, Rows


def _rows(config: dict[str, Any], question: Question, gain_off: float = 1.0) -> Rows:
    import torch
    from benchmarks.engines.transformers_rotary import rotary_module, transformers_frequencies
    from transformers import AutoConfig

    module = rotary_module(AutoConfig.for_model(**copy.deepcopy(config)))
    theta, gain = transformers_frequencies(module, question.length, question.kind)
    angles = torch.outer(torch.tensor(question.positions).double(), torch.tensor(theta).double())
    rows: Rows = (gain * gain_off * torch.cat([angles.cos(), angles.sin()], -1)).tolist()
    return rows


def right(question: Question) -> Rows:
    return _rows(question.config, question)


def without_attention_factor(question: Question) -> Rows:
    config = copy.deepcopy(question.config)
    for name in ("rope_parameters", "rope_scaling"):
        (config.get(name) or {}).pop("attention_factor", None)
    return _rows(config, question)


def without_scaling(question: Question) -> Rows:
    config = copy.deepcopy(question.config)
    base = (config.get("rope_parameters") or config)["rope_theta"]
    config.pop("rope_scaling", None)
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": base}
    return _rows(config, question)


def off(question: Question) -> Rows:
    return _rows(question.config, question, 1.001)


def faulty(question: Question) -> Rows:
    """A fault for each row."""
    row = (question.config.get("rope_parameters") or question.config["rope_scaling"] or {}).get("rope_type", "default")
    print("engines print")  # noqa: T201  # what a worker must keep out of its answers
    if row == "linear":
        raise RuntimeError("no such\nscaling")
    if row == "llama3":
        os._exit(7)
    if row == "dynamic":
        raise NotRunError("not asked")
    if row == "longrope":
        return [[0.0]]
    return _rows(question.config, question, 1.001 if row == "yarn" else 1.0)


def no_logits(question: Question) -> Rows:
    return [[0.0] * 300 for _ in question.positions]


def _version() -> str:
    return "1.0"


def _absent() -> None:
    return None


RIGHT = Adapter("right", "pip install right", _version, "cos and sin", right, "fake")
KEY = Adapter("key", "pip install key", _version, "cos and sin", without_attention_factor, "fake")
SCALING = Adapter("scaling", "pip install scaling", _version, "cos and sin", without_scaling, "fake")
OFF = Adapter("off", "pip install off", _version, "cos and sin", off, "fake")
FAULTY = Adapter("faulty", "pip install faulty", _version, "cos and sin", faulty, "fake")
LOGITS = Adapter("logits", "pip install logits", _version, "logits", no_logits, "fake")
ABSENT = Adapter("absent", "pip install absent==2", _absent, "cos and sin", right, "fake")
