"""Entries of hook point 4 that rotate queries and keys anew for each range of distances."""

from __future__ import annotations

import math
from itertools import count

from posenc.entry import Entry, Shape
from posenc.rotary.rope import RoPE
from posenc.score.dual_chunk import DualChunk
from posenc.score.lm_infinite import LMInfinite
from posenc.score.rerope import LeakyReRoPE, ReRoPE
from posenc.score.self_extend import SelfExtend
from posenc.score.shifted import STRING
from posenc.score.streaming_llm import StreamingLLM

_COST = "one rotation of queries and keys per range in every call; keys are cached unrotated"
_FIRST = {"common_shift": "the first tokens of a text are those at the first positions"}


def _rotation(shape: Shape) -> dict[str, object]:
    """Plain RoPE, unless a rotation is given."""
    head_dim = shape.get("head_dim")
    return {"rotation": RoPE(head_dim)} if "rotation" not in shape and isinstance(head_dim, int) else {}


def _sizes(shape: Shape) -> tuple[int, int, int] | None:
    """Trained and longest length and the window, where distances have to be moved at all."""
    trained, longest, window = shape.get("train_length"), shape.get("max_length"), shape.get("window")
    if not (isinstance(trained, int) and isinstance(longest, int) and isinstance(window, int)):
        return None
    return (trained, longest, window) if window < trained < longest else None


def _smallest(trained: int, longest: int, window: int) -> int:
    """How much more slowly positions must grow beyond the window, if those up to the longest shall be known ones."""
    return math.ceil((longest - window) / (trained - window))


def _group(shape: Shape) -> dict[str, object]:
    sizes = _sizes(shape)
    if sizes is None:
        return _rotation(shape)
    trained, longest, window = sizes
    # groups are whole: a group size that does not divide the window can fall a position short of what the formula says
    fits = (g for g in count(max(2, _smallest(*sizes) - 1)) if (longest - 1) // g + window - window // g < trained)
    return {**_rotation(shape), "group": next(fits)}


def _factor(shape: Shape) -> dict[str, object]:
    sizes = _sizes(shape)
    return _rotation(shape) if sizes is None else {**_rotation(shape), "factor": float(_smallest(*sizes))}


ENTRIES = (
    Entry(
        name="self_extend",
        encoding=SelfExtend,
        title="Self-Extend: true distances in a window, grouped positions beyond",
        formula="far: a_i − b_j = floor(p_i/group) − floor(p_j/group) + window − floor(window/group)",
        source="Jin et al., arXiv 2401.01325, section 3",
        parameters="none",
        cost=_COST,
        past_training="no new position up to (training length − window) · group + window tokens, for whole groups",
        reads="distances and positions",
        extension="is itself one",
        used_in="models that were trained without it, at inference",
        extends_context=True,
        defaults=_group,
        exempt={"common_shift": "groups begin at multiples of their size"},
    ),
    Entry(
        name="rerope",
        encoding=ReRoPE,
        title="ReRoPE: exact distances up to a window, the window's distance beyond",
        formula="a_i − b_j = min(p_i − p_j, window)",
        source="Su (2023), kexue.fm 9708, no paper; the rotation: arXiv 2104.09864, section 3.2.2",
        parameters="none",
        cost=_COST,
        past_training="no new distance at any length; all far keys get the same distance",
        reads="distances",
        extension="is itself one",
        used_in="models that were trained without it, at inference",
        extends_context=True,
        defaults=_rotation,
    ),
    Entry(
        name="leaky_rerope",
        encoding=LeakyReRoPE,
        title="Leaky ReRoPE: distances that grow more slowly beyond a window",
        formula="far: a_i − b_j = window + (p_i − p_j − window) / factor",
        source="Su (2023), kexue.fm 9708, no paper; the rotation: arXiv 2104.09864, section 3.2.2",
        parameters="none",
        cost=_COST,
        past_training="no larger distance up to window + factor · (training length − window) tokens, but fractions",
        reads="distances",
        extension="is itself one",
        used_in="models that were trained without it, at inference",
        extends_context=True,
        defaults=_factor,
    ),
    Entry(
        name="dual_chunk",
        encoding=DualChunk,
        title="Dual chunk attention: positions within chunks",
        formula="b_j = p_j mod c,  a_i = p_i mod c | min(p_i mod c + c, size) | min(2c − 1, size) by chunks apart",
        source="An et al., arXiv 2402.17463, section 3",
        parameters="none",
        cost=_COST,
        past_training="no new distance at any length; all earlier chunks get the same query position",
        reads="distances and positions",
        extension="is itself one",
        used_in="Qwen2.5-1M (arXiv 2501.15383), at inference",
        extends_context=True,
        defaults=_rotation,
        exempt={"common_shift": "chunks begin at multiples of their size"},
    ),
    Entry(
        name="string",
        encoding=STRING,
        title="STRING: far distances shifted down to frequent ones",
        formula="far: a_i − b_j = p_i − p_j − shift + local",
        source="An et al., arXiv 2410.18745, section 4",
        parameters="none",
        cost=_COST,
        past_training="new distances from the training length + shift − local on",
        reads="distances",
        extension="is itself one",
        used_in="models that were trained without it, at inference",
        extends_context=True,
        defaults=_rotation,
    ),
    Entry(
        name="lm_infinite",
        encoding=LMInfinite,
        title="LM-Infinite: a distance limit and a Λ-shaped mask",
        formula="far: a_i − b_j = limit, and p_j < sinks alone are seen",
        source="Han et al., arXiv 2308.16137, section 4",
        parameters="none",
        cost=_COST,
        past_training="no new distance at any length; a query attends to window + sinks keys",
        reads="distances and positions",
        extension="is itself one",
        used_in="models that were trained without it, at inference",
        extends_context=True,
        defaults=_rotation,
        exempt=_FIRST,
    ),
    Entry(
        name="streaming_llm",
        encoding=StreamingLLM,
        title="StreamingLLM: a sliding window and the first tokens, at their cache positions",
        formula="far: a_i = min(p_i, sinks + window − 1), b_j = p_j, and p_j < sinks alone are seen",
        source="Xiao et al., arXiv 2309.17453, section 3.2",
        parameters="none",
        cost=_COST,
        past_training="no new distance at any length; a query attends to window + sinks keys",
        reads="distances and positions",
        extension="is itself one",
        used_in="models that were trained without it, at inference",
        extends_context=True,
        defaults=_rotation,
        exempt=_FIRST,
    ),
)
