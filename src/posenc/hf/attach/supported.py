"""Which attention of a transformers model can be given encodings, and in what shape."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from posenc.hf.attach.attention_function import NAME, NotReachedError
from posenc.hf.attach.other_positions import is_inline, num_kv_heads, position_table
from posenc.hf.config.encoding_spec import Sizes
from posenc.hf.config.layers import LayerFacts
from posenc.hf.config.rope_config import model_from_config


def supported_layers(model: PreTrainedModel) -> dict[int, Any]:
    """The attention module of each layer that has one, by the layer's number.

    Raises:
        ValueError: where there is none, or an unsupported one; it says why.
    """
    has_table = position_table(model) is not None
    rotating = [
        module
        for module in model.modules()
        if isinstance(getattr(module, "layer_idx", None), int)
        and (takes_rotation(module) or is_inline(module) or (has_table and "Attention" in type(module).__name__))
    ]
    with_interface = [module for module in rotating if is_inline(module) or "get_interface" in source_of(module)]
    if not with_interface:
        reason = "it has no layer whose attention is given position_embeddings"
        if rotating:
            reason = f"the attention of {type(rotating[0]).__name__} is written into its forward"
        raise ValueError(f"model: {type(model).__name__} is unsupported: {reason}")
    layers: dict[int, Any] = {}
    for module in with_interface:
        number = module.layer_idx
        assert isinstance(number, int)
        refusal = _refusal(module)
        if refusal is None and number in layers:
            refusal = "several parts of this model have layers: give the part"
        if refusal is not None:
            raise ValueError(f"model: {type(module).__name__} is unsupported: {refusal}")
        layers[number] = module
    multimodal = not has_table and not any(map(is_inline, layers.values()))  # GPT-2's and GPT-J's are an embedding
    if multimodal and "token_type_ids" in inspect.signature(model.forward).parameters:
        raise ValueError(
            f"model: {type(model).__name__} attends to images in both directions: attach to its language model"
        )
    return layers


def config_dict(config: Any) -> dict[str, Any]:
    """A live configuration as plain data, without what is attached."""
    return {key: value for key, value in config.to_dict().items() if key != NAME}


def layer_facts(config: Any) -> tuple[LayerFacts, ...]:
    """The facts of each layer by a live configuration."""
    model = model_from_config(config_dict(config))
    return model.layers or model.distinct_layers * config.num_hidden_layers


def source_of(module: nn.Module) -> str:
    """The source code of a module's forward."""
    return inspect.getsource(type(module).forward)


def takes_rotation(module: nn.Module) -> bool:
    """Whether a module is attention that is given cos and sin."""
    return bool(re.search("Attention|MLA", type(module).__name__)) and "position_embeddings" in arguments_of(module)


def arguments_of(module: nn.Module) -> Mapping[str, inspect.Parameter]:
    """The arguments of a module's forward."""
    return inspect.signature(type(module).forward).parameters


def _refusal(module: nn.Module) -> str | None:
    """Why no encodings can be attached, or None; `check_reached` tells what does not reach the module."""
    if hasattr(module, NAME):
        return "it has encodings already: detach them first"
    if getattr(module, "is_cross_attention", False):
        return "the model has cross-attention, which has no positions in common with its keys"
    if is_inline(module) and "forward" in module.__dict__:
        return "accelerate has wrapped its forward: attach before it is dispatched, or load with device_map"
    if any("index" in name.lower() for name, _ in module.named_children()):
        return "an indexer, which selects its keys, uses the same rotation"
    if getattr(module, "is_kv_shared_layer", False):
        return "it takes its keys from another layer"
    return None


def check_layers(layers: Iterable[int], modules: Mapping[int, Any]) -> list[int]:
    """The numbers of layers, sorted; a ValueError unless all have attention."""
    numbers = list(layers)
    wrong = [n for n in numbers if type(n) is not int or n not in modules]
    if wrong or not numbers or len(set(numbers)) < len(numbers):
        raise ValueError(
            f"layers must be numbers of layers with attention, each once: {sorted(modules)}, got {numbers[:20]}"
        )
    return sorted(numbers)


def shape_of(module: Any) -> Sizes:
    """The shape of one layer's attention, under the names of the catalogue."""
    config = module.config
    heads = getattr(module, "num_heads", None) or config.num_attention_heads
    groups = heads // (num_kv_heads(module) or heads // getattr(module, "num_key_value_groups", 1))
    widths = (getattr(module, name, None) for name in ("qk_head_dim", "head_dim", "head_size"))
    width = next(filter(None, widths), config.hidden_size // heads)
    length = config.max_position_embeddings
    return {
        "dim": config.hidden_size, "num_heads": heads, "num_kv_heads": heads // groups, "head_dim": width,
        "max_length": length, "train_length": length, "layers": config.num_hidden_layers,
    }  # fmt: skip


def check_reached(model: PreTrainedModel, module: Any) -> None:
    """Raise a ValueError where a layer with encodings attached is not given what they need; its text says what.

    Two tokens are read up to this layer. The source of a model does not tell which of its arguments are None, such as
    the text positions of models with M-RoPE. A model whose weights are not there yet, and one that reads something else
    than tokens, is not called.
    """
    around = next(
        (
            part
            for part in reversed([*model.modules()])
            if isinstance(part, PreTrainedModel) and module in set(part.modules())
        ),
        model,
    )
    weight = next(around.parameters())
    if weight.is_meta or "input_ids" not in inspect.signature(around.forward).parameters:
        return
    modes, attached = [(part, part.training) for part in around.modules()], module.posenc
    attached.stop_when_reached = True
    try:
        with torch.no_grad():
            around.eval()(input_ids=torch.zeros(1, 2, dtype=torch.long, device=weight.device), use_cache=False)
    except NotReachedError as error:
        raise ValueError(f"model: {type(model).__name__} is unsupported: {error}") from None
    except Exception:  # ReachedError, or a model that takes tokens in another form, as codes of audio
        return
    finally:
        attached.stop_when_reached = False
        for part, mode in modes:
            part.training = mode
