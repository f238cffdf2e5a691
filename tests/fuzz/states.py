"""Layers that hand TAPE's states on, at once or in pieces beside caches, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from posenc import positions
from posenc.layers import KVCache, TAPEAttention
from tests.fuzz.batches import draw_documents, draw_padding, part, pieces, several, whole_padding
from tests.fuzz.definition.attention import define
from tests.fuzz.definition.tape import after_attention, after_network, first_states
from tests.fuzz.definition.terms import Encoded, Rounding, linear
from tests.fuzz.draw import Draw
from tests.fuzz.oracle import Results, judge
from tests.fuzz.situation import BIAS, SCORE, WEIGHT, Situation
from tests.fuzz.spec import Sizes, Spec, make
from tests.fuzz.specs import make_specs

Definition = Callable[[Rounding, Mapping[str, Tensor]], Results]
BESIDE = [*BIAS[1], *(kind for kind in SCORE[1] if kind != "Mixture"), *WEIGHT]


def draw_states(seed: int, *, most: int = 24) -> Situation:
    """Encodings of a layer with TAPE; the tensors of the situation tell sizes alone."""
    draw = Draw(seed + 11)
    heads, tokens, batch = draw.one([1, 2, 3, 4]), draw.whole(1, most), draw.one([1, 2, 3])
    width = draw.one([2, 4, 6, 8])
    sizes = Sizes(heads, heads, width, width, heads * draw.one([2, 3]))
    kinds = draw.some(sorted(set(BESIDE)), draw.weighted({0: 4, 1: 4, 2: 2}))
    if set(WEIGHT) <= set(kinds):  # one takes the place of softmax
        kinds.pop()
    specs = [_without_values(spec) for spec in make_specs(draw, ["TAPE", *kinds], sizes, 1)]
    dtype, strength = draw.one([torch.float64, torch.float32]), draw.one([0.0, 0.5, 1.0])
    encodings = [make(spec, draw, strength=strength).to(dtype) for spec in specs]
    q, k, v = torch.zeros(3, batch, heads, tokens, sizes.head_dim, dtype=dtype)
    x = draw.normal(batch, tokens, sizes.dim).to(dtype)
    return Situation(seed, sizes, 1, specs, encodings, dtype, q, k, v, x, notes=[f"strength {strength:g}"])


def _without_values(spec: Spec) -> Spec:
    """The encoding where it neither reads values nor adds to them, as these have states behind them."""
    options = dict(spec.options)
    if spec.kind == "Shaw":
        options |= {"values": False, "value_dim": None}
    elif options.get("gates") == "values":
        options["gates"] = "keys"
    elif options.get("remainder") == "vector":
        options = {"remainder": "own", "attend_current": options["attend_current"]}
    return Spec(spec.kind, options)


@dataclass
class Batch:
    """How a text is laid out, and what its layers are told."""

    at: Tensor
    given: bool
    padding: Tensor | None  # of all tokens
    documents: Tensor | None
    options: dict[str, object]


def carried(situation: Situation, draw: Draw) -> float:
    """A few layers, each with encodings of its own kind: what they put out, and the states after the last one."""
    options = several(draw, situation)
    options.pop("length", None)
    scale, tokens = options.pop("scale", None), situation.x.shape[1]
    layers = _layers(situation, draw, scale)
    cut = pieces(draw, tokens) if draw.chance(0.6) else [tokens]
    batch = _batch(draw, situation, cut[0], options)
    learns = cut == [tokens] and draw.chance(0.5)
    situation.notes.append(f"{len(layers)} layers, in {cut}, gradients {learns}, {batch}")
    x = situation.x.detach().requires_grad_(learns)
    with torch.set_grad_enabled(learns):
        got = _masked(_through(layers, x, cut, batch), batch)
    inputs = {f"{at}.{name}": p for at, layer in enumerate(layers) for name, p in layer.named_parameters()} | {"x": x}

    def definition(rounding: Rounding, leaves: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return _masked(_defined(situation, leaves, len(layers), batch, scale, rounding), batch)

    exact = {name: t.detach().double() for name, t in inputs.items()}
    worst = judge(got, lambda r: definition(r, exact), situation.dtype)
    return max(worst, _gradients(draw, got, definition, inputs, situation.dtype)) if learns else worst


def _layers(situation: Situation, draw: Draw, scale: object) -> list[TAPEAttention]:
    found, sizes = [], situation.sizes
    for number in range(draw.whole(1, 3)):
        own = [make(spec, draw, strength=draw.one([0.3, 1.0])).to(situation.dtype) for spec in situation.specs]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(draw.whole(0, 2**31))
            layer = TAPEAttention(
                sizes.dim, sizes.heads, head_dim=sizes.head_dim, scale=scale,  # type: ignore[arg-type]
                encodings=own if number else situation.encodings,
            )  # fmt: skip
        found.append(layer.to(situation.dtype))
    return found


def _batch(draw: Draw, situation: Situation, first: int, options: dict[str, object]) -> Batch:
    rows, tokens = situation.x.shape[:2]
    documents = draw_documents(draw, tokens)
    padding = None if documents is not None or draw.chance(0.7) else draw_padding(draw, rows, first)
    padding = None if padding is None else whole_padding(padding, tokens)
    at = torch.arange(tokens)
    if padding is not None:
        at = positions.from_mask(padding)
    elif documents is not None:
        at = positions.from_segments(documents)
    elif draw.chance(0.3):
        return Batch(at * 2 + 3, True, None, None, options)
    return Batch(at, draw.chance(0.3), padding, documents, options)


def _through(layers: Sequence[TAPEAttention], x: Tensor, cut: Sequence[int], batch: Batch) -> dict[str, Tensor]:
    """What the layers put out, piece by piece."""
    caches = [KVCache() if len(cut) > 1 else None for _ in layers]
    found, first = list[tuple[Tensor, Tensor, Tensor]](), 0
    for size in cut:
        here = slice(first, first + size)
        stream, states, where = x[:, here], None, batch.at[..., here] if batch.given else None
        padding = None if batch.padding is None or (first and bool(batch.padding[:, here].all())) else batch.padding
        for layer, cache in zip(layers, caches, strict=True):
            y, states = layer(
                stream, where, states=states, cache=cache, padding=None if padding is None else padding[:, here],
                segments=part(batch.documents, here), **batch.options,
            )  # fmt: skip
            network = (stream + y).tanh()
            states = layer.tape.updated(states, network)
            stream = stream + y + network
        assert states is not None
        found.append((stream, *states))
        first += size
    out, cos, sin = zip(*found, strict=True)
    return {"result": torch.cat(out, 1), "cos": torch.cat(cos, 2), "sin": torch.cat(sin, 2)}


def _masked(found: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
    """Without what padding gives, which is nobody's business."""
    if batch.padding is None:
        return found
    keep = {"result": batch.padding[..., None], "cos": batch.padding[:, None, :, None]}
    return {name: t * keep.get(name, keep["cos"]) for name, t in found.items()}


def _defined(
    situation: Situation, leaves: Mapping[str, Tensor], layers: int, batch: Batch, scale: object, rounding: Rounding
) -> dict[str, Tensor]:
    x, sizes, states = leaves["x"], situation.sizes, None
    at = batch.at.expand(x.shape[0], -1)
    for number in range(layers):
        own = {n.split(".", 2)[2]: t for n, t in leaves.items() if n.startswith(f"{number}.")}
        encoded = [
            spec.encoded({n.split(".", 2)[2]: t for n, t in own.items() if n.startswith(f"encodings.{i}.")})
            for i, spec in enumerate(situation.specs)
        ]
        tape = encoded[0].parameters
        if states is None:
            states = first_states(encoded[0], at, sizes.heads, rounding)
        q, k, v = (
            linear(x, own[f"{n}_proj.weight"], None, rounding).unflatten(-1, (sizes.heads, -1)).transpose(1, 2)
            for n in "qkv"
        )
        turning = Encoded("TAPE", {}, {"cos": states[0], "sin": states[1]})
        out, *read = define(
            q, k, torch.cat([v, *states], -1), [turning, *encoded[1:]], q_pos=at, k_pos=at, x=x,
            mask=None if batch.padding is None else batch.padding[:, None], segments=batch.documents,
            scale=scale, rounding=rounding, **batch.options,  # type: ignore[arg-type]
        ).chunk(3, -1)  # fmt: skip
        y = linear(out.transpose(1, 2).flatten(2), own["o_proj.weight"], None, rounding)
        states = after_attention(tape, states, (read[0], read[1]), rounding)
        network = rounding.near((x + y).tanh())
        states = after_network(tape, states, network, rounding)
        x = rounding.near(x + y + network, x.detach().abs() + y.detach().abs() + 1)
    assert states is not None
    return {"result": x, "cos": states[0], "sin": states[1]}


def _gradients(
    draw: Draw, got: Results, definition: Definition, inputs: Mapping[str, Tensor], dtype: torch.dtype
) -> float:
    """Of the input and all parameters, for random gradients of results and states."""
    upstream = {name: draw.normal(*t.shape) for name, t in got.items()}
    given = torch.autograd.grad(
        list(got.values()), list(inputs.values()), [g.to(dtype) for g in upstream.values()],
        materialize_grads=True, allow_unused=True,
    )  # fmt: skip

    def wanted(rounding: Rounding) -> Results:
        leaves = {n: t.detach().double().requires_grad_() for n, t in inputs.items()}
        found = definition(rounding, leaves)
        gradients = torch.autograd.grad(
            [found[n] for n in upstream], list(leaves.values()), [g.to(dtype).double() for g in upstream.values()],
            materialize_grads=True, allow_unused=True,
        )  # fmt: skip
        return {f"gradient of {n}": g for n, g in zip(leaves, gradients, strict=True)}

    return judge({f"gradient of {n}": g for n, g in zip(inputs, given, strict=True)}, wanted, dtype)
