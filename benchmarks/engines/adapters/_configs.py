"""Helpers of several adapters: transformers' config object, the rope block of one kind of layers, rows from a table."""

from __future__ import annotations

import copy
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

from benchmarks.engines.adapters import NotRunError, Rows

# Model types whose attention hands the block to the engine's rotary class as it stands in the config.
BLOCK_AS_IS = (
    "llama", "qwen2", "qwen3", "mistral", "phi3", "stablelm", "gpt_neox", "glm4", "cohere", "olmo2", "granite",
)  # fmt: skip


def loaded(config: dict[str, Any]) -> Any:
    """The config as an object of transformers, which reads either spelling."""
    from transformers import AutoConfig

    return AutoConfig.for_model(**copy.deepcopy(config))


def version_5_block(config: dict[str, Any]) -> dict[str, Any]:
    """The block of a config with version-5 keys alone, for engines with settings of their own, which read no config.

    Raises:
        NotRunError: for the other spellings, which would ask the same again, and for blocks by kind of layers.
    """
    block = config.get("rope_parameters")
    if not isinstance(block, dict) or "rope_scaling" in config:
        raise NotRunError("the engine reads no config.json; asked once, by the version-5 block's numbers")
    if any(isinstance(value, dict) for value in block.values()):
        raise NotRunError("a block for each kind of layers, which the adapter does not pass on")
    if config["model_type"] != "llama":
        raise NotRunError("the engine reads no config.json; asked once, with Llama's shape")
    return copy.deepcopy(block)


def skip_init(*packages: str) -> None:
    """Make packages importable without running their ``__init__``, which asks for a GPU or for packages that rope
    does not need; their modules are imported as they are.

    Raises:
        ImportError: where the first is not installed.
    """
    if packages[0] in sys.modules:
        return
    spec = importlib.util.find_spec(packages[0])
    if spec is None or spec.origin is None:
        raise ImportError(f"{packages[0]} is not installed")
    root = Path(spec.origin).parent.parent
    for name in packages:
        package = types.ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")))]
        sys.modules[name] = package


def head_size(config: dict[str, Any]) -> int:
    """Channels of a head."""
    return int(config["head_dim"])


def rows_of(cos: Any, sin: Any) -> Rows:
    """Rows of all cos and then all sin, from tensors (positions, pairs)."""
    import torch

    rows: Rows = torch.cat([cos.double(), sin.double()], -1).tolist()
    return rows
