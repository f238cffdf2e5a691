"""Random positions, masks, documents and orders for a call that its encodings are defined for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tests.fuzz.definition.grid_rotary import NOWHERE
from tests.fuzz.draw import Draw

if TYPE_CHECKING:
    from tests.fuzz.situation import Situation

BY_INDEX = {"PaTH", "SelectiveRoPE", "GRAPEContext"}  # which read no positions: indices are the order of the text
FAR = [100, 1_000, 100_000, 2_000_000, 2**31 - 60]


def kinds_of(situation: Situation) -> set[str]:
    """Names of all encodings, those inside others included."""
    found: set[str] = set()

    def collect(value: object) -> None:
        if hasattr(value, "kind"):
            found.add(value.kind)
            for inner in value.options.values():  # type: ignore[attr-defined]
                collect(inner)
        elif isinstance(value, list):
            for item in value:
                collect(item)

    collect(list(situation.specs))
    return found


def draw_options(draw: Draw, situation: Situation) -> dict[str, object]:
    """Keywords of `attention`: everything but x, features and path."""
    kinds = kinds_of(situation)
    in_order = bool(kinds & BY_INDEX)
    q_pos, k_pos = draw_positions(draw, situation, kinds)
    order = draw.weighted({"causal": 62, "both": 20, "positions": 18})
    if order == "positions" and (situation.axes > 1 or in_order):
        order = "causal"
    if order == "causal" and situation.q.shape[2] > situation.k.shape[2] and draw.chance(0.9):
        order = "both" if situation.axes > 1 or in_order or draw.chance(0.5) else "positions"
    causal: object = {"causal": True, "both": False, "positions": "positions"}[order]
    options: dict[str, object] = {"q_pos": q_pos, "k_pos": k_pos, "causal": causal}
    options["mask"] = draw_mask(draw, situation, kinds)
    options["segments"] = draw_segments(draw, situation, in_order=in_order)
    keys = situation.k.shape[2]
    if draw.chance(0.3):
        options["window"] = draw.one([1, 2, 3, draw.whole(1, keys), keys, 10 * keys])
    if draw.chance(0.25):
        options["scale"] = draw.one([1.0, 0.3, 0.0, -0.5, 5.0, 1])
    if draw.chance(0.12):
        options["softcap"] = draw.one([50.0, 5.0, 0.5, 30])
    if draw.chance(0.25):
        options["length"] = draw.one([1, 5, 16, 64, 2048, draw.whole(1, 100)])
    return {name: value for name, value in options.items() if value is not None}


def draw_positions(draw: Draw, situation: Situation, kinds: set[str]) -> tuple[Tensor | None, Tensor | None]:
    """Positions of queries and keys; None where the default is meant."""
    batch, queries, keys = situation.q.shape[0], situation.q.shape[2], situation.k.shape[2]
    if situation.axes > 1:
        q_pos, k_pos = draw_places(draw, situation)
        return q_pos, k_pos
    if draw.chance(0.45):
        return None, None
    rows = batch if draw.chance(0.4) else 1
    k_pos = torch.stack([_line(draw, keys, kinds) for _ in range(rows)])
    if queries <= keys and draw.chance(0.7):
        q_pos = k_pos[:, keys - queries :]
    else:
        q_pos = torch.stack([_line(draw, queries, kinds) for _ in range(rows)])
    q_pos, k_pos = _in_kind(draw, kinds, q_pos, k_pos)
    if rows == 1 and draw.chance(0.7):
        q_pos, k_pos = q_pos[0], k_pos[0]
    if queries == keys and torch.equal(q_pos, k_pos):
        which = draw.weighted({"both": 4, "same": 2, "q": 1, "k": 1})
        if which == "same":
            return k_pos, k_pos
        return (q_pos if which != "k" else None), (k_pos if which != "q" else None)
    return q_pos, k_pos


def _line(draw: Draw, tokens: int, kinds: set[str]) -> Tensor:
    """Whole positions of one row."""
    count = torch.arange(tokens)
    kind = draw.weighted({"offset": 3, "far": 3, "gaps": 3, "shuffled": 3, "negative": 2, "any": 2, "equal": 1})
    if "XPos" in kinds and kind in ("shuffled", "any", "negative"):
        kind = "offset"
    if kind == "offset":
        return count + draw.whole(0, 50)
    if kind == "far":  # a definition by exponentials of matrices loses digits far out
        near = bool(kinds & {"LieRE", "ComRoPEAP", "ComRoPELD"})
        return count + draw.one(FAR[:2] if near else FAR)
    if kind == "gaps":
        return draw.integers(0, 5, tokens).cumsum(0)
    if kind == "shuffled":
        return draw.order(tokens) + draw.whole(0, 9)
    if kind == "negative":
        return count - draw.whole(1, 60)
    if kind == "any":
        return draw.integers(-40, 40, tokens)
    return torch.full((tokens,), draw.whole(0, 9))


def _in_kind(draw: Draw, kinds: set[str], q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
    """As int64, int32, or as fractions in float64 or float32, where no table wants whole numbers."""
    whole_only = kinds & {"Shaw", "CoPE", "TransformerXL", "TokenRelativeBias"}
    kind = draw.weighted({"int64": 6, "int32": 1, "float64": 0 if whole_only else 2, "float32": 0 if whole_only else 2})
    if kind == "int32":
        return q_pos.int(), k_pos.int()
    if kind == "int64":
        return q_pos, k_pos
    step = draw.one([0.25, 0.1, 1.0])
    dtype = torch.float64 if kind == "float64" else torch.float32
    return (q_pos * step).to(dtype), (k_pos * step).to(dtype)


def draw_places(draw: Draw, situation: Situation) -> tuple[Tensor, Tensor]:
    """Coordinates of tokens of a picture, some of them without a place."""
    batch, queries, keys, axes = situation.q.shape[0], situation.q.shape[2], situation.k.shape[2], situation.axes
    rows = batch if draw.chance(0.4) else 1
    side, least = draw.one([2, 4, 8]), draw.one([0, 0, -3])

    def places(tokens: int) -> Tensor:
        found = draw.integers(least, least + side, rows, tokens, axes)
        if lost:
            at = draw.integers(0, 3, rows, tokens) == 0
            found[..., 0] = torch.where(at, NOWHERE, found[..., 0])
        return found

    lost = draw.chance(0.3)
    k_pos = places(keys)
    q_pos = k_pos[:, keys - queries :] if queries <= keys and draw.chance(0.7) else places(queries)
    kind = draw.weighted({"int64": 6, "int32": 1, "float64": 2, "float32": 2})
    if kind == "int32":
        q_pos, k_pos = q_pos.int(), k_pos.int()
    elif kind != "int64":
        step, dtype = draw.one([0.25, 0.1, 1.0]), torch.float64 if kind == "float64" else torch.float32
        q_pos, k_pos = (torch.where(p == NOWHERE, NOWHERE, p * step).to(dtype) for p in (q_pos, k_pos))
    if rows == 1 and draw.chance(0.7):
        q_pos, k_pos = q_pos[0], k_pos[0]
    return q_pos, k_pos


def draw_mask(draw: Draw, situation: Situation, kinds: set[str]) -> Tensor | None:
    """Who may look at whom, in any of the shapes that a mask may have.

    Where a text is read for neighbours, a token is hidden from all or none; by PaTH none between others.
    """
    per_key = bool(kinds & (BY_INDEX - {"GRAPEContext"}))
    batch, heads, queries = situation.q.shape[:3]
    keys = situation.k.shape[2]
    kind = draw.weighted({"none": 50, "padding": 16, "pairs": 16, "rows": 8, "heads": 10})
    if per_key and kind != "none":
        kind = "padding"
    if kind == "none":
        return None
    if kind == "padding":
        real = draw.integers(0 if draw.chance(0.1) else 1, keys, batch)[:, None]
        index = torch.arange(keys)
        mask = index >= keys - real if draw.chance(0.6) else index < real
        if "PaTH" not in kinds and draw.chance(0.2):
            mask = draw.uniform(batch, keys) < 0.7
        return mask[:, None, :] if draw.chance(0.5) else mask[:, None, None, :]
    shape = {"pairs": (queries, keys), "rows": (batch, queries, keys), "heads": (batch, heads, queries, keys)}[kind]
    shape = tuple(1 if at < len(shape) - 1 and draw.chance(0.15) else n for at, n in enumerate(shape))
    mask = draw.uniform(*shape) < draw.one([0.1, 0.5, 0.8, 0.97])
    if draw.chance(0.3):
        mask[..., draw.whole(0, shape[-2] - 1), :] = False
    if draw.chance(0.2):
        mask[..., draw.whole(0, keys - 1)] = False
    return mask


def draw_segments(draw: Draw, situation: Situation, *, in_order: bool) -> Tensor | tuple[Tensor, Tensor] | None:
    """Documents, in runs or scattered, for all rows or row by row; a pair where queries are no part of the keys."""
    batch, queries, keys = situation.q.shape[0], situation.q.shape[2], situation.k.shape[2]
    if draw.chance(0.68):
        return None
    rows, count = draw.one([1, batch]), draw.whole(1, 4)

    def documents(tokens: int) -> Tensor:
        found = draw.integers(0, count - 1, rows, tokens)
        if in_order or draw.chance(0.7):
            found = found.sort(-1).values
        elif draw.chance(0.5):
            found = found * 7 - 3
        return found.int() if draw.chance(0.15) else found

    of_keys = documents(keys)
    if queries > keys or (not in_order and draw.chance(0.2)):
        pair = documents(queries), of_keys
        if in_order:  # a token is of one document, as a query and as a key
            before = pair[0][:, : queries - keys].clamp(max=of_keys[:, :1])
            pair = torch.cat([before.to(of_keys.dtype), of_keys], 1), of_keys
        return (pair[0][0], pair[1][0]) if rows == 1 and draw.chance(0.5) else pair
    return of_keys[0] if rows == 1 and draw.chance(0.6) else of_keys
