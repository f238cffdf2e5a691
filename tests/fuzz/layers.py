"""Texts in batches (packed, padded, decoded in pieces). Each text is as it is alone."""

from __future__ import annotations

import torch
from torch import Tensor

from posenc import attention, positions
from posenc.layers import KVCache, SelfAttention
from tests.fuzz.definition.attention import define
from tests.fuzz.definition.terms import Rounding, linear
from tests.fuzz.draw import Draw
from tests.fuzz.modes import float64_leaves
from tests.fuzz.oracle import judge
from tests.fuzz.random_call import RandomCall, draw_call


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
