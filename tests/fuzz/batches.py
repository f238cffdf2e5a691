"""Texts laid out in batches: packed into one row, padded on the left, decoded in pieces. Each is as it is alone."""

from __future__ import annotations

import torch
from torch import Tensor

from posenc import attention, positions
from posenc.layers import KVCache, SelfAttention
from tests.fuzz.definition.attention import define
from tests.fuzz.definition.terms import Rounding, linear
from tests.fuzz.draw import Draw
from tests.fuzz.modes import leaves_of
from tests.fuzz.oracle import judge
from tests.fuzz.situation import Situation, draw_situation


def draw_batch(seed: int, *, most: int = 24) -> Situation:
    """A call whose queries are the tokens of its keys, at default positions."""
    draw = Draw(seed + 7)
    tokens = draw.whole(1, most) if most < 24 or draw.chance(0.95) else draw.one([63, 64, 65, 129])
    found = draw_situation(seed, plain=True, lengths=(tokens, tokens))
    if found.sizes.value_dim != found.sizes.head_dim:  # layers have one width for both
        return draw_batch(seed + 1_000_000_007, most=most)
    return found


def counted(index: Tensor, axes: int) -> Tensor:
    """Positions of the tokens so numbered: the numbers, or coordinates that grow at different speeds."""
    return index if axes == 1 else torch.stack([index // 2**a for a in range(axes)], -1)


def pieces(draw: Draw, total: int) -> list[int]:
    """Sizes of neighbouring pieces that make up the total."""
    if draw.chance(0.3):
        return [1] * total
    found: list[int] = []
    while sum(found) < total:
        found.append(draw.whole(1, total - sum(found)))
    return found


def several(draw: Draw, situation: Situation) -> dict[str, object]:
    """A window or a scale at times; and a length, so that a text spans the same whatever is beside it."""
    tokens, options = situation.k.shape[2], dict[str, object]()
    if draw.chance(0.3):
        options["window"] = draw.whole(1, tokens)
    if draw.chance(0.15):
        options["scale"] = draw.one([1.0, 0.3, 2.0])
    if draw.chance(0.3):
        options["length"] = draw.one([4, 32, 100])
    return options


def packed(situation: Situation, draw: Draw) -> float:
    """Documents end to end in one row, with positions that restart: each as if it were alone."""
    tokens, axes = situation.k.shape[2], situation.axes
    sizes, options = pieces(draw, tokens), several(draw, situation)
    documents = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    at = torch.cat([counted(torch.arange(size), axes) for size in sizes])
    situation.notes.append(f"packed {sizes} {options}")
    got = attention(
        situation.q, situation.k, situation.v, situation.encodings,
        q_pos=at, k_pos=at, x=situation.x, segments=documents, **{"causal": True, **options},  # type: ignore[arg-type]
    )  # fmt: skip
    leaves = leaves_of(situation)

    def definition(rounding: Rounding) -> dict[str, Tensor]:
        parts, first = [], 0
        for size in sizes:
            own = {n: leaves[n][:, :, first : first + size] for n in "qkv"}
            own["x"] = leaves["x"][:, first : first + size]
            parts.append(alone(situation, leaves, own, rounding, options))
            first += size
        return {"result": torch.cat(parts, 2)}

    return judge({"result": got}, definition, situation.dtype)


def alone(
    situation: Situation,
    leaves: dict[str, Tensor],
    own: dict[str, Tensor],
    rounding: Rounding,
    options: dict[str, object],
) -> Tensor:
    """The definition's result for one text, whose positions count from 0."""
    at = counted(torch.arange(own["k"].shape[2]), situation.axes)
    return define(
        own["q"], own["k"], own["v"], situation.encoded(leaves), q_pos=at, k_pos=at, x=own["x"], axes=situation.axes,
        rounding=rounding, **options,  # type: ignore[arg-type]
    )  # fmt: skip


def padded(situation: Situation, draw: Draw) -> float:
    """Rows of different lengths, padded on the left: each as if it were alone."""
    batch, tokens, axes = situation.q.shape[0], situation.k.shape[2], situation.axes
    lengths, options = [draw.whole(1, tokens) for _ in range(batch)], several(draw, situation)
    real = torch.arange(tokens) >= tokens - torch.tensor(lengths)[:, None]
    at = counted(positions.from_mask(real), axes)
    situation.notes.append(f"padded {lengths} {options}")
    got = attention(
        situation.q, situation.k, situation.v, situation.encodings,
        q_pos=at, k_pos=at, x=situation.x, mask=real[:, None, :], **{"causal": True, **options},  # type: ignore[arg-type]
    )  # fmt: skip
    leaves = leaves_of(situation)

    def definition(rounding: Rounding) -> dict[str, Tensor]:
        found = {}
        for row, length in enumerate(lengths):
            own = {n: leaves[n][row : row + 1, :, tokens - length :] for n in "qkv"}
            own["x"] = leaves["x"][row : row + 1, tokens - length :]
            found[f"row {row}"] = alone(situation, leaves, own, rounding, options)
        return found

    rows = {f"row {row}": got[row : row + 1, :, tokens - length :] for row, length in enumerate(lengths)}
    return judge(rows, definition, situation.dtype)


def decoded(situation: Situation, draw: Draw) -> float:
    """A layer over a text in pieces, with a cache: each piece is the last rows of one call over all up to its end."""
    dtype = torch.float64 if situation.dtype == torch.float64 else torch.float32
    sizes, options = situation.sizes, several(draw, situation)
    scale = options.pop("scale", None)
    layer, x = make_layer(situation, draw, dtype, scale)
    tokens, axes = x.shape[1], situation.axes
    cut, documents = pieces(draw, tokens), draw_documents(draw, tokens)
    padding = None if documents is not None or draw.chance(0.7) else draw_padding(draw, x.shape[0], cut[0])
    at = counted(torch.arange(tokens), axes)
    if padding is not None:
        at = counted(positions.from_mask(whole_padding(padding, tokens)), axes)
    elif documents is not None:
        at = counted(positions.from_segments(documents), axes)
    elif draw.chance(0.3):
        at = at * 2 + 3
    given = (
        axes > 1
        or padding is not None
        or documents is not None
        or draw.chance(0.3)
        or bool((at.flatten()[:1] > 0).any())
    )
    situation.notes.append(f"decoded {cut} {options}, positions {given}, padding {padding}, documents {documents}")
    got, cache, first = [], KVCache(), 0
    with torch.no_grad():
        for number, size in enumerate(cut):
            here = slice(first, first + size)
            where = (at[..., here, :] if axes > 1 else at[..., here]) if given else None
            of_piece = {"padding": padding if number == 0 else None, "segments": part(documents, here), **options}
            got.append(layer(x[:, here], where, cache=cache, **of_piece))
            first += size
    leaves = {n: p.detach().double() for n, p in {**dict(layer.named_parameters()), **situation.parameters}.items()}
    leaves["x"] = x.double()
    stepwise = situation.length_dependent and "length" not in options
    ends = torch.tensor(cut).cumsum(0).tolist() if stepwise else [tokens]

    def definition(rounding: Rounding) -> dict[str, Tensor]:
        found = []
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
                q, k, v, situation.encoded(leaves), q_pos=where, k_pos=where, x=leaves["x"][:, :end], mask=mask,
                segments=None if documents is None else documents[:end], axes=axes, rounding=rounding, scale=scale,
                **options,  # type: ignore[arg-type]
            )  # fmt: skip
            merged = linear(out.transpose(1, 2).flatten(2), leaves["o_proj.weight"], None, rounding)
            found.append(merged[:, end - size :])
        return {"result": torch.cat(found, 1)}

    out = torch.cat(got, 1)
    if padding is not None:  # what padding itself gives is nobody's business
        keep = whole_padding(padding, tokens)[..., None]
        wanted = definition
        definition_, out = (lambda r: {"result": wanted(r)["result"] * keep}), out * keep
        return judge({"result": out}, definition_, dtype)
    return judge({"result": out}, definition, dtype)


def make_layer(situation: Situation, draw: Draw, dtype: torch.dtype, scale: object) -> tuple[SelfAttention, Tensor]:
    """A layer with the situation's encodings, and its input."""
    sizes = situation.sizes
    situation.encodings = [e.to(dtype) for e in situation.encodings]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(draw.whole(0, 2**31))
        layer = SelfAttention(
            sizes.dim, sizes.heads, kv_heads=sizes.kv_heads, head_dim=sizes.head_dim, encodings=situation.encodings,
            causal=True, scale=scale,  # type: ignore[arg-type]
        ).to(dtype)  # fmt: skip
    return layer, draw.normal(situation.q.shape[0], situation.k.shape[2], sizes.dim).to(dtype)


def draw_documents(draw: Draw, tokens: int) -> Tensor | None:
    if draw.chance(0.8):
        return None
    sizes = pieces(draw, tokens)
    return torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))


def part(documents: Tensor | None, here: slice) -> Tensor | None:
    return None if documents is None else documents[here]


def draw_padding(draw: Draw, batch: int, first: int) -> Tensor:
    """Which tokens of the first piece are real, ``(batch, tokens)``: padding on the left."""
    lengths = torch.tensor([draw.whole(1, first) for _ in range(batch)])
    return torch.arange(first) >= first - lengths[:, None]


def whole_padding(padding: Tensor, tokens: int) -> Tensor:
    """The same for all tokens: what comes later is real."""
    return torch.nn.functional.pad(padding, (0, tokens - padding.shape[1]), value=True)
