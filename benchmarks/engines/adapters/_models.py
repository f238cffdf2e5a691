"""What adapters of engines with model classes of their own share: the class is built, its rotary modules are kept."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks.engines.adapters import NotRunError, Question, Rows
from benchmarks.engines.adapters._configs import rows_of


def architecture(config: dict[str, Any]) -> str:
    """The name of the model class, as transformers writes it under ``architectures``.

    Raises:
        NotRunError: for the text part of a model of images and text, which has no class for generation.
    """
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    )

    kind = config["model_type"]
    name = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(kind) or MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.get(kind)
    if name is None:
        raise NotRunError(f"no checkpoint is of type {kind} alone; asked inside the config of its model")
    return str(name)


@contextlib.contextmanager
def patched(prefix: str, factories: tuple[str, ...], replaced: tuple[str, ...]) -> Iterator[list[Any]]:
    """Keep what the factories of an engine's model files return; build nothing for the names in ``replaced``.

    Args:
        prefix: of the modules with model classes.
        factories: names in these modules of functions that build rotary modules.
        replaced: names of attention classes, which ask for compiled kernels.

    Yields:
        The list of rotary modules, in the order in which they were built. They are on the CPU.
    """
    import torch

    class Nothing(torch.nn.Module):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__()

    built: list[Any] = []

    def keeping(factory: Any) -> Any:
        def build(*args: Any, **options: Any) -> Any:
            with torch.device("cpu"):
                built.append(factory(*args, **{**options, **({"device": "cpu"} if "device" in options else {})}))
            return built[-1]

        return build

    before: list[tuple[Any, str, Any]] = []
    for module in [module for name, module in list(sys.modules.items()) if name.startswith(prefix)]:
        for name in factories + replaced:
            if name in vars(module):
                before.append((module, name, vars(module)[name]))
                setattr(module, name, keeping(vars(module)[name]) if name in factories else Nothing)
    try:
        yield built
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def rotary_of_kind(built: list[Any], config: Any, kind: str) -> Any:
    """The rotary module of a kind of layers.

    Args:
        built: the modules; those of an image part come before those of the text.
        config: of the text.
        kind: of layers; "all" where all rotate alike.

    Raises:
        RuntimeError: where the model class did not build a module for each layer.
    """
    layers = config.num_hidden_layers
    if len(built) < layers:
        raise RuntimeError(f"the model class builds {len(built)} rotary modules for {layers} layers")
    text = built[-layers:]
    return text[0] if kind == "all" else text[config.layer_types.index(kind)]


def rotated_rows(rotary: Any, question: Question) -> Rows:
    """Rows of a rotary module of vLLM or SGLang, which rotates ones in the first channel of each pair.

    Raises:
        IndexError: where its table ends before a position.
    """
    import torch

    at = torch.tensor(question.positions)
    table = getattr(rotary, "cos_sin_cache", None)
    if table is not None and int(at.max()) >= len(table):
        raise IndexError(f"its table of cos and sin ends at {len(table)} positions")
    sections = getattr(rotary, "mrope_section", None)
    head, width = rotary.head_size, rotary.rotary_dim
    heads = (1,) if "Deepseek" in type(rotary).__name__ else ()  # its class alone takes heads as a dimension
    ones = torch.zeros(len(at), *heads, head)
    neox = getattr(rotary, "is_neox_style", True)  # Phi-3's class has no such attribute and pairs halves
    first, second = (
        (slice(0, width // 2), slice(width // 2, width)) if neox else (slice(0, width, 2), slice(1, width, 2))
    )
    ones[..., first] = 1  # rotated, the first channel of a pair becomes cos and the second sin
    call = rotary.forward_native if hasattr(rotary, "forward_native") else rotary.forward
    with torch.device("cpu"):
        rotated = call(at.expand(3, -1) if sections else at, ones.clone(), ones.clone())[0].reshape(len(at), head)
    return rows_of(rotated[:, first], rotated[:, second])
