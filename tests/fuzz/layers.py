"""Texts in batches (packed, padded, decoded in pieces), and layers that hand states on: each text is as it is alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from posenc import attention, positions
from posenc.layers import KVCache, SelfAttention, TAPEAttention
from tests.fuzz.definition.attention import define
from tests.fuzz.definition.rotary import after_attention, after_network, first_states
from tests.fuzz.definition.terms import Encoded, Rounding, linear
from tests.fuzz.draw import Draw, Sizes, Spec, make
from tests.fuzz.encodings import make_specs
from tests.fuzz.modes import float64_leaves
from tests.fuzz.oracle import Results, judge
from tests.fuzz.random_call import BIAS, SCORE, WEIGHT, RandomCall, draw_call


def draw_batch(seed: int, *, most: int = 24) -> RandomCall:
    """A call whose queries are the tokens of its keys, at default positions."""
    draw = Draw(seed + 7)
    tokens = draw.integer(1, most) if most < 24 or draw.chance(0.95) else draw.choice([63, 64, 65, 129])
    call = draw_call(seed, plain=True, lengths=(tokens, tokens))
    if call.sizes.value_dim != call.sizes.head_dim:  # layers have one width for both
        return draw_batch(seed + 1_000_000_007, most=most)
    return call


def counted(index: Tensor, axes: int) -> Tensor:
    """Positions of the tokens so numbered: the numbers, or coordinates that grow at different speeds."""
    return index if axes == 1 else torch.stack([index // 2**a for a in range(axes)], -1)


def pieces(draw: Draw, total: int) -> list[int]:
    """Sizes of neighbouring pieces that make up the total."""
    if draw.chance(0.3):
        return [1] * total
    sizes: list[int] = []
    while sum(sizes) < total:
        sizes.append(draw.integer(1, total - sum(sizes)))
    return sizes


def several(draw: Draw, call: RandomCall) -> dict[str, object]:
    """A window or a scale at times; and a length, so that a text spans the same whatever else is in the batch."""
    tokens, options = call.k.shape[2], dict[str, object]()
    if draw.chance(0.3):
        options["window"] = draw.integer(1, tokens)
    if draw.chance(0.15):
        options["scale"] = draw.choice([1.0, 0.3, 2.0])
    if draw.chance(0.3):
        options["length"] = draw.choice([4, 32, 100])
    return options


def packed(call: RandomCall, draw: Draw) -> float:
    """Documents end to end in one row, with positions that restart: each as if it were alone."""
    tokens, axes = call.k.shape[2], call.axes
    sizes, options = pieces(draw, tokens), several(draw, call)
    documents = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    at = torch.cat([counted(torch.arange(size), axes) for size in sizes])
    call.notes.append(f"packed {sizes} {options}")
    got = attention(
        call.q, call.k, call.v, call.encodings,
        q_pos=at, k_pos=at, x=call.x, segments=documents, **{"causal": True, **options},  # type: ignore[arg-type]
    )  # fmt: skip
    leaves = float64_leaves(call)

    def definition(rounding: Rounding) -> dict[str, Tensor]:
        parts, first = [], 0
        for size in sizes:
            piece = {n: leaves[n][:, :, first : first + size] for n in "qkv"}
            piece["x"] = leaves["x"][:, first : first + size]
            parts.append(alone(call, leaves, piece, rounding, options))
            first += size
        return {"result": torch.cat(parts, 2)}

    return judge({"result": got}, definition, call.dtype)


def alone(
    call: RandomCall,
    leaves: dict[str, Tensor],
    text: dict[str, Tensor],
    rounding: Rounding,
    options: dict[str, object],
) -> Tensor:
    """The definition's result for one text, whose positions count from 0."""
    at = counted(torch.arange(text["k"].shape[2]), call.axes)
    return define(
        text["q"], text["k"], text["v"], call.encoded(leaves), q_pos=at, k_pos=at, x=text["x"], axes=call.axes,
        rounding=rounding, **options,  # type: ignore[arg-type]
    )  # fmt: skip


def padded(call: RandomCall, draw: Draw) -> float:
    """Rows of different lengths, padded on the left: each as if it were alone."""
    batch, tokens, axes = call.q.shape[0], call.k.shape[2], call.axes
    lengths, options = [draw.integer(1, tokens) for _ in range(batch)], several(draw, call)
    real = torch.arange(tokens) >= tokens - torch.tensor(lengths)[:, None]
    at = counted(positions.from_mask(real), axes)
    call.notes.append(f"padded {lengths} {options}")
    got = attention(
        call.q, call.k, call.v, call.encodings,
        q_pos=at, k_pos=at, x=call.x, mask=real[:, None, :], **{"causal": True, **options},  # type: ignore[arg-type]
    )  # fmt: skip
    leaves = float64_leaves(call)

    def definition(rounding: Rounding) -> dict[str, Tensor]:
        results = {}
        for row, length in enumerate(lengths):
            of_row = {n: leaves[n][row : row + 1, :, tokens - length :] for n in "qkv"}
            of_row["x"] = leaves["x"][row : row + 1, tokens - length :]
            results[f"row {row}"] = alone(call, leaves, of_row, rounding, options)
        return results

    rows = {f"row {row}": got[row : row + 1, :, tokens - length :] for row, length in enumerate(lengths)}
    return judge(rows, definition, call.dtype)


def decoded(call: RandomCall, draw: Draw) -> float:
    """A layer over a text in pieces, with a cache: each piece is the last rows of one call over all up to its end."""
    dtype = torch.float64 if call.dtype == torch.float64 else torch.float32
    sizes, options = call.sizes, several(draw, call)
    scale = options.pop("scale", None)
    layer, x = make_layer(call, draw, dtype, scale)
    tokens, axes = x.shape[1], call.axes
    cut, documents = pieces(draw, tokens), draw_documents(draw, tokens)
    padding = None if documents is not None or draw.chance(0.7) else draw_padding(draw, x.shape[0], cut[0])
    at = counted(torch.arange(tokens), axes)
    if padding is not None:
        at = counted(positions.from_mask(whole_padding(padding, tokens)), axes)
    elif documents is not None:
        at = counted(positions.from_segments(documents), axes)
    elif draw.chance(0.3):
        at = at * 2 + 3
    inputs = (
        axes > 1
        or padding is not None
        or documents is not None
        or draw.chance(0.3)
        or bool((at.flatten()[:1] > 0).any())
    )
    call.notes.append(f"decoded {cut} {options}, positions {inputs}, padding {padding}, documents {documents}")
    got, cache, first = [], KVCache(), 0
    with torch.no_grad():
        for number, size in enumerate(cut):
            here = slice(first, first + size)
            where = (at[..., here, :] if axes > 1 else at[..., here]) if inputs else None
            of_piece = {
                "attention_mask": padding if number == 0 else None,
                "segments": part(documents, here),
                **options,
            }
            got.append(layer(x[:, here], where, cache=cache, **of_piece))
            first += size
    leaves = {n: p.detach().double() for n, p in {**dict(layer.named_parameters()), **call.parameters}.items()}
    leaves["x"] = x.double()
    stepwise = call.length_dependent and "length" not in options
    ends = torch.tensor(cut).cumsum(0).tolist() if stepwise else [tokens]

    def definition(rounding: Rounding) -> dict[str, Tensor]:
        outputs = []
        for size, end in zip(cut if stepwise else [tokens], ends, strict=True):
            mask = None if padding is None else whole_padding(padding, tokens)[:, None, :end]
            where = at[..., :end, :] if axes > 1 else at[..., :end]
            q, k, v = (
                linear(leaves["x"][:, :end], leaves[f"{n}_proj.weight"], None, rounding)
                .unflatten(-1, (-1, sizes.head_dim))
                .transpose(1, 2)
                for n in "qkv"
            )
            out = define(
                q, k, v, call.encoded(leaves), q_pos=where, k_pos=where, x=leaves["x"][:, :end], mask=mask,
                segments=None if documents is None else documents[:end], axes=axes, rounding=rounding, scale=scale,
                **options,  # type: ignore[arg-type]
            )  # fmt: skip
            merged = linear(out.transpose(1, 2).flatten(2), leaves["o_proj.weight"], None, rounding)
            outputs.append(merged[:, end - size :])
        return {"result": torch.cat(outputs, 1)}

    out = torch.cat(got, 1)
    if padding is not None:  # what padding itself gives is nobody's business
        keep = whole_padding(padding, tokens)[..., None]
        expected = definition
        definition_, out = (lambda r: {"result": expected(r)["result"] * keep}), out * keep
        return judge({"result": out}, definition_, dtype)
    return judge({"result": out}, definition, dtype)


def make_layer(call: RandomCall, draw: Draw, dtype: torch.dtype, scale: object) -> tuple[SelfAttention, Tensor]:
    """A layer with the call's encodings, and its input."""
    sizes = call.sizes
    call.encodings = [e.to(dtype) for e in call.encodings]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(draw.integer(0, 2**31))
        layer = SelfAttention(
            sizes.dim, sizes.heads, num_kv_heads=sizes.num_kv_heads, head_dim=sizes.head_dim, encodings=call.encodings,
            causal=True, scale=scale,  # type: ignore[arg-type]
        ).to(dtype)  # fmt: skip
    return layer, draw.normal(call.q.shape[0], call.k.shape[2], sizes.dim).to(dtype)


def draw_documents(draw: Draw, tokens: int) -> Tensor | None:
    if draw.chance(0.8):
        return None
    sizes = pieces(draw, tokens)
    return torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))


def part(documents: Tensor | None, here: slice) -> Tensor | None:
    return None if documents is None else documents[here]


def draw_padding(draw: Draw, batch: int, first: int) -> Tensor:
    """Which tokens of the first piece are real, ``(batch, tokens)``: padding on the left."""
    lengths = torch.tensor([draw.integer(1, first) for _ in range(batch)])
    return torch.arange(first) >= first - lengths[:, None]


def whole_padding(padding: Tensor, tokens: int) -> Tensor:
    """The same for all tokens: what comes later is real."""
    return torch.nn.functional.pad(padding, (0, tokens - padding.shape[1]), value=True)


Definition = Callable[[Rounding, Mapping[str, Tensor]], Results]
COMPANIONS = [*BIAS[1], *(kind for kind in SCORE[1] if kind != "Mixture"), *WEIGHT]


def draw_states(seed: int, *, most: int = 24) -> RandomCall:
    """Encodings of a layer with TAPE; the tensors of the call tell sizes alone."""
    draw = Draw(seed + 11)
    heads, tokens, batch = draw.choice([1, 2, 3, 4]), draw.integer(1, most), draw.choice([1, 2, 3])
    width = draw.choice([2, 4, 6, 8])
    sizes = Sizes(heads, heads, width, width, heads * draw.choice([2, 3]))
    kinds = draw.sample(sorted(set(COMPANIONS)), draw.weighted({0: 4, 1: 4, 2: 2}))
    if set(WEIGHT) <= set(kinds):  # one takes the place of softmax
        kinds.pop()
    specs = [_without_values(spec) for spec in make_specs(draw, ["TAPE", *kinds], sizes, 1)]
    dtype, strength = draw.choice([torch.float64, torch.float32]), draw.choice([0.0, 0.5, 1.0])
    encodings = [make(spec, draw, strength=strength).to(dtype) for spec in specs]
    q, k, v = torch.zeros(3, batch, heads, tokens, sizes.head_dim, dtype=dtype)
    x = draw.normal(batch, tokens, sizes.dim).to(dtype)
    return RandomCall(seed, sizes, 1, specs, encodings, dtype, q, k, v, x, notes=[f"strength {strength:g}"])


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
    """How a text is laid out, and the options of its layers."""

    at: Tensor
    positions_given: bool
    attention_mask: Tensor | None  # of all tokens
    documents: Tensor | None
    options: dict[str, object]


def layer_states(call: RandomCall, draw: Draw) -> float:
    """A few layers, each with encodings of its own kind: what they put out, and the states after the last one."""
    options = several(draw, call)
    options.pop("length", None)
    scale, tokens = options.pop("scale", None), call.x.shape[1]
    layers = _layers(call, draw, scale)
    cut = pieces(draw, tokens) if draw.chance(0.6) else [tokens]
    batch = _batch(draw, call, cut[0], options)
    learns = cut == [tokens] and draw.chance(0.5)
    call.notes.append(f"{len(layers)} layers, in {cut}, gradients {learns}, {batch}")
    x = call.x.detach().requires_grad_(learns)
    with torch.set_grad_enabled(learns):
        got = _masked(_through(layers, x, cut, batch), batch)
    inputs = {f"{at}.{name}": p for at, layer in enumerate(layers) for name, p in layer.named_parameters()} | {"x": x}

    def definition(rounding: Rounding, leaves: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return _masked(_defined(call, leaves, len(layers), batch, scale, rounding), batch)

    exact = {name: t.detach().double() for name, t in inputs.items()}
    worst = judge(got, lambda r: definition(r, exact), call.dtype)
    return max(worst, _gradients(draw, got, definition, inputs, call.dtype)) if learns else worst


def _layers(call: RandomCall, draw: Draw, scale: object) -> list[TAPEAttention]:
    layers, sizes = [], call.sizes
    for number in range(draw.integer(1, 3)):
        encodings = [make(spec, draw, strength=draw.choice([0.3, 1.0])).to(call.dtype) for spec in call.specs]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(draw.integer(0, 2**31))
            layer = TAPEAttention(
                sizes.dim, sizes.heads, head_dim=sizes.head_dim, scale=scale,  # type: ignore[arg-type]
                encodings=encodings if number else call.encodings,
            )  # fmt: skip
        layers.append(layer.to(call.dtype))
    return layers


def _batch(draw: Draw, call: RandomCall, first: int, options: dict[str, object]) -> Batch:
    rows, tokens = call.x.shape[:2]
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
    outputs, first = list[tuple[Tensor, Tensor, Tensor]](), 0
    for size in cut:
        here = slice(first, first + size)
        stream, states, where = x[:, here], None, batch.at[..., here] if batch.positions_given else None
        padding = (
            None
            if batch.attention_mask is None or (first and bool(batch.attention_mask[:, here].all()))
            else batch.attention_mask
        )
        for layer, cache in zip(layers, caches, strict=True):
            y, states = layer(
                stream, where, states=states, cache=cache, attention_mask=None if padding is None else padding[:, here],
                segments=part(batch.documents, here), **batch.options,
            )  # fmt: skip
            network = (stream + y).tanh()
            states = layer.tape.updated(states, network)
            stream = stream + y + network
        assert states is not None
        outputs.append((stream, *states))
        first += size
    out, cos, sin = zip(*outputs, strict=True)
    return {"result": torch.cat(out, 1), "cos": torch.cat(cos, 2), "sin": torch.cat(sin, 2)}


def _masked(results: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
    """Without what padding gives, which is nobody's business."""
    if batch.attention_mask is None:
        return results
    keep = {"result": batch.attention_mask[..., None], "cos": batch.attention_mask[:, None, :, None]}
    return {name: t * keep.get(name, keep["cos"]) for name, t in results.items()}


def _defined(
    call: RandomCall, leaves: Mapping[str, Tensor], layers: int, batch: Batch, scale: object, rounding: Rounding
) -> dict[str, Tensor]:
    x, sizes, states = leaves["x"], call.sizes, None
    at = batch.at.expand(x.shape[0], -1)
    for number in range(layers):
        of_layer = {n.split(".", 2)[2]: t for n, t in leaves.items() if n.startswith(f"{number}.")}
        encoded = [
            spec.encoded({n.split(".", 2)[2]: t for n, t in of_layer.items() if n.startswith(f"encodings.{i}.")})
            for i, spec in enumerate(call.specs)
        ]
        tape = encoded[0].parameters
        if states is None:
            states = first_states(encoded[0], at, sizes.heads, rounding)
        q, k, v = (
            linear(x, of_layer[f"{n}_proj.weight"], None, rounding).unflatten(-1, (sizes.heads, -1)).transpose(1, 2)
            for n in "qkv"
        )
        tape_encoded = Encoded("TAPE", {}, {"cos": states[0], "sin": states[1]})
        out, *read = define(
            q, k, torch.cat([v, *states], -1), [tape_encoded, *encoded[1:]], q_pos=at, k_pos=at, x=x,
            mask=None if batch.attention_mask is None else batch.attention_mask[:, None], segments=batch.documents,
            scale=scale, rounding=rounding, **batch.options,  # type: ignore[arg-type]
        ).chunk(3, -1)  # fmt: skip
        y = linear(out.transpose(1, 2).flatten(2), of_layer["o_proj.weight"], None, rounding)
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
    values = torch.autograd.grad(
        list(got.values()), list(inputs.values()), [g.to(dtype) for g in upstream.values()],
        materialize_grads=True, allow_unused=True,
    )  # fmt: skip

    def expected(rounding: Rounding) -> Results:
        leaves = {n: t.detach().double().requires_grad_() for n, t in inputs.items()}
        results = definition(rounding, leaves)
        gradients = torch.autograd.grad(
            [results[n] for n in upstream], list(leaves.values()), [g.to(dtype).double() for g in upstream.values()],
            materialize_grads=True, allow_unused=True,
        )  # fmt: skip
        return {f"gradient of {n}": g for n, g in zip(leaves, gradients, strict=True)}

    return judge({f"gradient of {n}": g for n, g in zip(inputs, values, strict=True)}, expected, dtype)
