"""unsloth: the frequencies and gain that its LlamaRotaryEmbedding takes from a config, without a GPU.

Importing unsloth needs a GPU and rewrites transformers. So its file models/llama.py is parsed, and the functions that
compute frequencies are run unchanged; the adapter multiplies the frequencies by positions, as unsloth's class does.
Source: unsloth 2026.10.9, models/llama.py (_compute_config_rope_inv_freq, LlamaRotaryEmbedding).
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import logging
import math
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.engines.adapters import Adapter, Question, Rows, installed
from benchmarks.engines.adapters._configs import loaded, rows_of

_FUNCTIONS = (
    "_compute_config_rope_inv_freq", "_rope_scaling_as_dict", "_llama3_inv_freq_from_config",
    "_vanilla_inv_freq_from_config", "_get_rope_theta",
)  # fmt: skip
_MODELS = ("llama", "mistral", "qwen2", "qwen3", "granite", "cohere")  # whose attention unsloth replaces


@cache
def _functions() -> dict[str, Any]:
    import torch

    spec = importlib.util.find_spec("unsloth")
    if spec is None or spec.origin is None:
        raise ImportError("unsloth is not installed")
    path = Path(spec.origin).parent / "models" / "llama.py"
    known: dict[str, Any] = {"torch": torch, "math": math, "contextlib": contextlib, "logger": _Warnings()}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name in _FUNCTIONS:
            exec(compile(ast.Module([node], []), str(path), "exec"), known)
    return known


class _Warnings(logging.Logger):
    """A logger with transformers' additional method."""

    def __init__(self) -> None:
        super().__init__("unsloth")

    def warning_once(self, message: str) -> None:
        self.warning(message)


def measure(question: Question) -> Rows:
    """cos and sin of its frequencies, times its gain."""
    import torch

    known, config = _functions(), loaded(question.config)
    frequencies, gain = known["_compute_config_rope_inv_freq"](config, config.rope_parameters)
    if frequencies is None:  # LlamaRotaryEmbedding goes on without scaling then
        frequencies = known["_vanilla_inv_freq_from_config"](config)
    angles = torch.outer(torch.tensor(question.positions).float(), frequencies)
    return rows_of(gain * angles.cos(), gain * angles.sin())


ADAPTER = Adapter(
    "unsloth", "pip install --no-deps unsloth==2026.10.9", installed("unsloth"), "cos and sin", measure,
    "models/llama.py: _compute_config_rope_inv_freq", _MODELS,
    "frequencies and gain are unsloth's own, run out of its file; the adapter multiplies them by the positions",
)  # fmt: skip
