"""Adapters: how the check runs each engine's own code. One file an engine, with an `ADAPTER`.

    Question   the input of one measurement: a config, positions, and for whole models a folder with a tiny checkpoint
    Adapter    name, how to install the engine, its installed version, and the function that runs it

An adapter contains no formula of a rotation: it imports the engine, hands it the config and returns its numbers. It
raises where the engine raises; the check records that as a refusal, in the engine's own words.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from posenc.arguments import shown

Rows = list[list[float]]
Measures = Literal["cos and sin", "logits"]
NAMES = (
    "transformers", "vllm", "sglang", "llama_cpp_converter", "llama_cpp_gguf", "llama_cpp_flags", "mlx_lm", "litgpt",
    "torchtitan", "torchtune", "unsloth", "exllamav3", "lmdeploy",
)  # fmt: skip


class Question(NamedTuple):
    """What an engine is asked about one configuration.

    Attributes:
        config: the whole config.json.
        positions: of the rows of the answer, counted from 0.
        length: tokens of the text in which they stand, which decides where frequencies follow the length.
        kind: of layers, for rotary classes ("all" where all layers rotate alike).
        folder: of a checkpoint with this config and random weights; "" for rotary classes.
        tokens: the text, for whole models.
        options: what the engine is told next to the config, by the names of its own arguments; only remedies have any.
    """

    config: dict[str, Any]
    positions: tuple[int, ...]
    length: int
    kind: str = "all"
    folder: str = ""
    tokens: tuple[int, ...] = ()
    options: Mapping[str, Any] = MappingProxyType({})


class NotRunError(Exception):
    """The adapter does not ask its engine this; the text says why. It says nothing about the engine."""


@dataclass(frozen=True)
class Adapter:
    """How one engine is asked.

    Attributes:
        name: of the column.
        requirement: the pip line that installs it.
        version: gives the version installed here; None where it is not.
        measures: "cos and sin" of a rotary class, times the gain, as rows of all cos and then all sin; or "logits" of a
            whole model. One row for each position.
        measure: asks the engine.
        code: which code of the engine runs.
        models: model types that it is asked with; empty: all.
        route: which numbers are the engine's own, and what the adapter does to them.
    """

    name: str
    requirement: str
    version: Callable[[], str | None]
    measures: Measures
    measure: Callable[[Question], Rows]
    code: str
    models: tuple[str, ...] = ()
    route: str = ""


def installed(package: str) -> Callable[[], str | None]:
    """A function that gives the installed version of a distribution, or None."""

    def version() -> str | None:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return None

    return version


def load_adapter(name: str) -> Adapter:
    """An adapter of this package by its name, or one outside it as ``FILE.py:NAME``.

    Raises:
        ValueError: for a name that is not known, and for a file or a name in it that is no adapter.
    """
    if ":" not in name:
        if name not in NAMES:
            raise ValueError(
                f"engine must be one of {', '.join(NAMES)}, or FILE.py:NAME of an adapter, got {shown(name)}"
            )
        adapter = importlib.import_module(f"{__name__}.{name}").ADAPTER
    else:
        file, _, attribute = name.rpartition(":")
        if not Path(file).is_file():
            raise ValueError(f"adapter must be FILE.py:NAME with a file that exists, got {shown(name)}")
        spec = importlib.util.spec_from_file_location(Path(file).stem, file)
        if spec is None or spec.loader is None:
            raise ValueError(f"adapter must be FILE.py:NAME with a Python file, got {shown(name)}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        adapter = getattr(module, attribute, None)
    if not isinstance(adapter, Adapter):
        raise ValueError(
            f"adapter {shown(name)} must be an instance of benchmarks.engines.adapters.Adapter, got {shown(adapter)}"
        )
    return adapter
