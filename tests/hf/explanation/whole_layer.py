"""Inputs and outputs of each attention layer of a transformers model, with queries and keys before their rotation.

A model runs twice. The first run records the output of its own eager attention, which posenc's must equal. The second
run replays the inputs of each attention module with rotation and temperature disabled, so that the attention receives
queries and keys as the projections and norms compute them. No ``forward`` is touched: functions of the modelling files
are replaced by name, and hooks record modules.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor, nn

from posenc import AttentionSink, RoPE
from posenc.frequencies.rotation import Layout
from posenc.hf import LayerAttention, LayerFacts, ModelFacts
from posenc.hf.config.rotation import text_rope
from posenc.score import SSMax

_ROTATES = re.compile(r"^apply_(multimodal_)?(rotary|rope)|^(_?)apply_rotary")
_HEATS = {"get_llama_4_attn_scale", "compute_attention_scaling"}  # functions that give a temperature
_MODULES = ("MistralLarge4TextSoftmaxScaling",)  # modules that are one
_FOLLOWING = ("query_layernorm", "key_layernorm")  # norms that follow a rotation; so they are called nowhere else
_SWITCHES = ("attn_temperature_tuning",)  # attributes of a module without which there is none
_TABLES = re.compile(r"Rotary|RoPE|Rope")


class Layer(NamedTuple):
    """One layer's attention.

    Attributes:
        module: of the model.
        number: of the layer, from 0; None where the module does not say.
        q, k, v: as projections and norms give them, ``(batch, heads, tokens, channels)``.
        out: what the model's original attention gives, ``(batch, heads, tokens, channels)``.
    """

    module: nn.Module
    number: int | None
    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor


class Gap(NamedTuple):
    """How far ours is from theirs in one layer, at the worst number.

    Attributes:
        facts: what the configuration says of the layer.
        gap: as it says.
        faults: by name, with one fact changed.
    """

    facts: LayerFacts
    gap: float
    faults: dict[str, float]


def gaps(layers: list[Layer], facts: ModelFacts, scaled: Callable[[nn.Module], float] | None = None) -> list[Gap]:
    """How far each layer is from `LayerAttention` of its facts, and of facts with a fault planted.

    Args:
        layers: what the model's original attention is given and gives.
        facts: what its configuration says.
        scaled: factor that the model's queries and keys carry already before they are rotated.
    """
    attending = [number for number, item in enumerate(facts.layers) if item.attends]
    result = []
    for place, layer in enumerate(layers):
        number = layer.number if layer.number is not None or not attending else attending[place]
        item = facts.layers[number] if facts.layers else facts.distinct_layers[0]
        raw = layer if scaled is None else layer._replace(q=layer.q / scaled(layer.module))
        faults = {name: _gap(raw, fault) for name, fault in faults_of(item, layer.q.shape[-1]).items()}
        result.append(Gap(item, _gap(raw, item), faults))
    left = [
        item.kind for item in facts.distinct_layers if item.attends and all(item is not layer.facts for layer in result)
    ]
    assert not left, f"no layer of kinds {left} was run"
    return result


def faults_of(facts: LayerFacts, width: int) -> dict[str, LayerFacts]:
    """Copies of a layer's facts with one mistake each, by the name of the mistake.

    Args:
        facts: of the layer.
        width: channels of a head.
    """
    result = {"causal": facts._replace(causal=not facts.causal)}
    if facts.scale is not None:
        result["scale"] = facts._replace(scale=facts.scale * 1.1)
    if facts.rotation is not None:
        rope = text_rope(facts.rotation)
        other: Layout = "half" if rope.layout == "interleaved" else "interleaved"
        rope_with = partial(RoPE, rope.head_dim, rotary_dim=rope.rotary_dim)
        result["rotation"] = facts._replace(spec=None)
        result["base"] = facts._replace(spec=rope_with(base=rope.base * 2, layout=rope.layout, scaling=rope.scaling))
        result["layout"] = facts._replace(spec=rope_with(base=rope.base, layout=other, scaling=rope.scaling))
    if facts.window is not None:
        result["window"] = facts._replace(window=facts.window - 1)
        result["no window"] = facts._replace(window=None, ahead=0)
    if facts.temperature is not None:
        result["temperature"] = facts._replace(temperature=None)
    if facts.sink:
        result["sink"] = facts._replace(sink="")
    if facts.softcap is not None:
        result["softcap"] = facts._replace(softcap=None)
    if facts.rotates_last and facts.rotation is not None:
        first = RoPE(width, rotary_dim=rope.rotary_dim, base=rope.base, layout=rope.layout, scaling=rope.scaling)
        result["channels"] = facts._replace(rotates_last=False, spec=first)
    return result


def _gap(layer: Layer, facts: LayerFacts) -> float:
    follow = facts.normed_after and facts.rotation is not None
    attend = LayerAttention(facts, norms=tuple(getattr(layer.module, name) for name in _FOLLOWING) if follow else None)
    for encoding in attend.encodings:
        if isinstance(encoding, AttentionSink):
            encoding.logits.data.copy_(layer.module.sinks.view(-1))
        elif isinstance(encoding, SSMax):
            encoding.scale.data.copy_(layer.module.softmax_scaling.scale)
            encoding.bias.data.copy_(layer.module.softmax_scaling.bias)
    with torch.no_grad():
        return float((attend(layer.q, layer.k, layer.v, backend="dense") - layer.out).abs().max())


class _Call(NamedTuple):
    module: nn.Module
    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor


def layers_of(model: nn.Module, run: Callable[[], object], *, skip: str = "Cross") -> list[Layer]:
    """What the attention of each layer is given and gives.

    Args:
        model: whose configuration asks for eager attention.
        run: calls the model.
        skip: attention of modules whose class has this in its name is left out, as is attention to another text.
    """
    codes = _codes(model)
    with torch.no_grad(), _recorded_inputs(model) as inputs, _watched(model, codes) as calls:
        run()
    with torch.no_grad(), _replayed_inputs(model, inputs), _still(model, codes), _watched(model, codes) as bare:
        run()
    assert [call.module for call in calls] == [call.module for call in bare], "the second run went another way"
    result = []
    for call, raw in zip(calls, bare, strict=True):
        if not re.search(skip, type(call.module).__name__) and call.k.shape[2] == call.q.shape[2]:
            assert torch.equal(call.v, raw.v), "values differ between the two runs"
            number = getattr(call.module, "layer_idx", None)
            result.append(Layer(call.module, number, raw.q, raw.k, raw.v, call.out))
    return result


def _codes(model: nn.Module) -> list[ModuleType]:
    """The modelling files of all its modules."""
    names = {cls.__module__ for module in model.modules() for cls in type(module).__mro__}
    return [sys.modules[name] for name in sorted(names) if name.startswith("transformers.models.")]


@contextmanager
def _watched(model: nn.Module, codes: list[ModuleType]) -> Iterator[list[_Call]]:
    """The calls of the eager attention of these files, of methods ``_attn``, and of PyTorch's original function."""
    calls: list[_Call] = []
    running: list[nn.Module] = []

    def of_file(original: Callable[..., Any]) -> Callable[..., Any]:
        def attend(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
            result = original(module, query, key, value, *args, **kwargs)
            calls.append(_Call(module, query, key, value, result[0].transpose(1, 2)))
            return result

        return attend

    def of_module(module: nn.Module, original: Callable[..., Any]) -> Callable[..., Any]:
        def attend(query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
            result = original(query, key, value, *args, **kwargs)
            calls.append(_Call(module, query, key, value, result[0]))
            return result

        return attend

    def of_torch(query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
        result = torch_sdpa(query, key, value, *args, **kwargs)
        calls.append(_Call(running[-1], query, key, value, result))
        return result

    torch_sdpa = nn.functional.scaled_dot_product_attention
    handles = [
        module.register_forward_pre_hook(lambda module, _: running.append(module)) for module in _attentions(model)
    ]
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(nn.functional, "scaled_dot_product_attention", of_torch))
        for code in codes:
            if hasattr(code, "eager_attention_forward"):
                spy = of_file(code.eager_attention_forward)
                stack.enter_context(mock.patch.object(code, "eager_attention_forward", spy))
        for module in _attentions(model):
            if hasattr(module, "_attn"):
                stack.enter_context(mock.patch.object(module, "_attn", of_module(module, module._attn)))
        yield calls
    for handle in handles:
        handle.remove()


CallArguments = tuple[tuple[Any, ...], dict[str, Any]]


def _attentions(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if re.search("Attention|MLA", type(module).__name__)]


@contextmanager
def _recorded_inputs(model: nn.Module) -> Iterator[dict[nn.Module, list[CallArguments]]]:
    """What each attention module is given, call by call."""
    recorded: dict[nn.Module, list[CallArguments]] = {}

    def keep(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        recorded.setdefault(module, []).append((args, dict(named)))

    handles = [module.register_forward_pre_hook(keep, with_kwargs=True) for module in _attentions(model)]
    yield recorded
    for handle in handles:
        handle.remove()


@contextmanager
def _replayed_inputs(model: nn.Module, recorded: dict[nn.Module, list[CallArguments]]) -> Iterator[None]:
    """Each attention module gets the states that it got, whatever came before it."""
    left = {module: list(calls) for module, calls in recorded.items()}

    def give(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> CallArguments:
        old, old_named = left[module].pop(0)
        same = {name: old_named[name] for name in named if name.endswith("hidden_states")}
        return (*old[:1], *args[1:]), {**named, **same}

    handles = [module.register_forward_pre_hook(give, with_kwargs=True) for module in _attentions(model)]
    yield
    for handle in handles:
        handle.remove()


@contextmanager
def _still(model: nn.Module, codes: list[ModuleType]) -> Iterator[None]:
    """Nothing rotates, and no temperature acts."""
    with ExitStack() as stack:
        for code in codes:
            for name, original in vars(code).copy().items():
                if _ROTATES.match(name) and inspect.isfunction(original):
                    stack.enter_context(mock.patch.object(code, name, _without_rotation(original)))
                elif name in _HEATS:
                    stack.enter_context(mock.patch.object(code, name, return_value=torch.ones(())))
        for module in model.modules():
            for name in _SWITCHES:
                if getattr(module, name, None):
                    stack.enter_context(mock.patch.object(module, name, False))
        tables = [item for item in model.modules() if _TABLES.search(type(item).__name__) and not list(item.children())]
        handles = [module.register_forward_hook(lambda _, __, out: _of_nothing(out)) for module in tables]
        factors = [item for item in model.modules() if type(item).__name__ in _MODULES]
        handles += [module.register_forward_hook(lambda _, inputs, __: inputs[0]) for module in factors]
        norms = [item for name, item in model.named_modules() if name.endswith(_FOLLOWING)]
        handles += [module.register_forward_hook(lambda _, inputs, __: inputs[0]) for module in norms]
        yield
        for handle in handles:
            handle.remove()


def _without_rotation(original: Callable[..., Any]) -> Callable[..., Any]:
    """A function that rotates one tensor or two, as `original` does, by nothing."""

    def rotate(*args: Any, **named: Any) -> Any:
        result = original(*args, **named)
        return tuple([*args, *named.values()][: len(result)]) if isinstance(result, tuple) else args[0]

    return rotate


def _of_nothing(table: Any) -> Any:
    """cos and sin of no angle, or their complex number, in the shape of a table."""
    if isinstance(table, dict):
        return {name: _of_nothing(item) for name, item in table.items()}
    if isinstance(table, tuple | list):
        return tuple(torch.ones_like(item) if n == 0 else torch.zeros_like(item) for n, item in enumerate(table))
    return torch.ones_like(table)
