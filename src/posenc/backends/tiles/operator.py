"""The way into the loop: a node of autograd where tensors have numbers, one custom operator where they do not.

A compiler would unroll the loop anew for each length, and an operator takes tensors and plain values alone. So a call
is taken apart: `taken_apart` goes through its fields, whatever structures they hold, and leaves a skeleton of names and
constants with places for tensors and whole numbers; `put_together` makes the same objects of that. The skeleton travels
as the text of a Python literal. It holds no length, no address and no code: graphs that `torch.compile` has cached or
an exporter has saved mean the same in another process, and reading one from a stranger runs nothing.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posenc import structure as structures
from posenc.backends.derivatives import first_only
from posenc.backends.tiles.loop import TileArguments, all_structures, backward, forward, tiled_call
from posenc.dropout import Dropout
from posenc.dtypes import float32_or_better, no_autocast
from posenc.operators import operator_with_backward
from posenc.structure import HeadMixing, Structure
from posenc.tracing import has_values, stand_ins
from posenc.visibility import VisibilityMask

Skeleton = Any  # a constant, a place, or (name of a class, *skeletons of its fields)
CLASSES: dict[str, type] = {cls.__name__: cls for cls in (TileArguments, VisibilityMask, Dropout)} | {
    name: cls for name, cls in vars(structures).items() if isinstance(cls, type) and issubclass(cls, Structure)
}


def name_of(cls: type) -> str:
    """What a skeleton calls a class: a structure that somebody else wrote goes by its module too."""
    return cls.__name__ if CLASSES.get(cls.__name__) is cls else f"{cls.__module__}.{cls.__qualname__}"


def class_of(name: str) -> type:
    """The class of that name among those that exist: nothing is imported, as a saved graph may name anything.

    Raises:
        ValueError: for a name that this process does not know.
    """
    known, found = [Structure], CLASSES.get(name)
    while found is None and known:
        cls = known.pop()
        found = cls if name_of(cls) == name else None
        known.extend(cls.__subclasses__())
    if found is None:
        raise ValueError(f"unknown {name!r} in the text of a tiled call: import the module that defines this structure")
    return found


class Parts(NamedTuple):
    """What a skeleton has places for."""

    learned: list[Tensor]  # that want gradients
    fixed: list[Tensor]  # all others
    numbers: list[int]  # which may be symbols to a compiler


def taken_apart(value: object, parts: Parts) -> Skeleton:
    """The skeleton of a value; its tensors and whole numbers are appended to the parts. Compilers trace this."""
    if isinstance(value, Tensor):
        kind, into = ("learned", parts.learned) if value.requires_grad else ("fixed", parts.fixed)
        into.append(value)
        return kind, len(into) - 1
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (float, torch.SymFloat)):
        return "float", value.hex()  # exact; and the one form in which a compiler takes a symbol for its number
    if isinstance(value, (int, torch.SymInt)):
        parts.numbers.append(value)  # type: ignore[arg-type]  # torch types lists of symbols as lists of int
        return "numbers", len(parts.numbers) - 1
    if type(value) is tuple:
        return "tuple", *[taken_apart(field, parts) for field in value]
    names = type(value).__match_args__  # type: ignore[attr-defined]  # the fields of dataclasses and of named tuples
    return name_of(type(value)), *[taken_apart(getattr(value, name), parts) for name in names]


def put_together(skeleton: Skeleton, parts: Parts) -> Any:
    """What was taken apart, of new objects; structures know which of their tensors want gradients.

    Raises:
        ValueError: for a name that this process does not know.
    """
    if not isinstance(skeleton, tuple):
        return skeleton
    name, *fields = skeleton
    if name in Parts._fields:
        return getattr(parts, name)[fields[0]]
    if name == "float":
        return float.fromhex(fields[0])
    values = [put_together(field, parts) for field in fields]
    if name == "tuple":
        return tuple(values)
    cls = class_of(name)
    built = cls(*values)
    if isinstance(built, Structure):
        places = dict(zip(cls.__match_args__, fields, strict=True))  # type: ignore[attr-defined]
        built.learned = {name: at[1] for name, at in places.items() if isinstance(at, tuple) and at[0] == "learned"}
    return built


def run(arguments: TileArguments) -> Tensor:
    """Attention, ``(batch, heads, queries, value_dim)`` in the dtype of q."""
    parts = Parts([], [], [])
    skeleton = taken_apart(arguments, parts)
    trained = torch.is_grad_enabled() and len(parts.learned) > 0
    if (trained and stand_ins()) or not has_values(arguments.q):
        out: Tensor = _operator(*parts, repr(skeleton))[0]
    elif trained:
        out = _Attend.apply(skeleton, parts.numbers, len(parts.learned), *parts.learned, *parts.fixed)  # type: ignore[no-untyped-call]
    else:
        out = forward(tiled_call(put_together(skeleton, parts)))[0]
    return out


def _gradients(skeleton: Skeleton, parts: Parts, grad: Tensor, out: Tensor, norm: Tensor) -> list[Tensor]:
    """The gradients of all tensors that want any, in their dtypes."""
    with no_autocast(grad.device.type):  # whatever surrounds the backward pass
        call = tiled_call(put_together(skeleton, parts))
        found = dict(zip(skeleton[1:4], backward(call, grad, out, norm), strict=True))  # of q, k and v, by their places
        for structure in all_structures(call):
            for each in (structure, structure.bias) if isinstance(structure, HeadMixing) else (structure,):
                assert isinstance(each, Structure)
                finished = each.finish_backward()
                found |= {("learned", at): finished[name] for name, at in each.learned.items()}
    # Positions may want a gradient too; what they do here, hiding keys, has none.
    gradients = [found.get(("learned", at), torch.zeros_like(t)) for at, t in enumerate(parts.learned)]
    return [gradient.to(t.dtype).contiguous() for gradient, t in zip(gradients, parts.learned, strict=True)]


class _Attend(torch.autograd.Function):
    """The loop as a node of autograd."""

    @staticmethod
    def forward(ctx: Any, skeleton: Skeleton, numbers: list[int], learned: int, *tensors: Tensor) -> Tensor:
        out, norm = forward(
            tiled_call(put_together(skeleton, Parts([*tensors[:learned]], [*tensors[learned:]], numbers)))
        )
        ctx.skeleton, ctx.numbers, ctx.learned = skeleton, numbers, learned
        ctx.save_for_backward(out, norm, *tensors)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        out, norm, *tensors = ctx.saved_tensors  # asked once: activation checkpointing gives them out no second time
        parts = Parts(tensors[: ctx.learned], tensors[ctx.learned :], ctx.numbers)
        with torch.no_grad():
            gradients = _gradients(ctx.skeleton, parts, grad, out, norm)
        return None, None, None, *first_only("tiled", [*gradients, *[None] * len(parts.fixed)], [grad, *tensors])


def _forward(
    learned: Sequence[Tensor], fixed: Sequence[Tensor], numbers: Sequence[int], text: str
) -> tuple[Tensor, Tensor]:
    return forward(tiled_call(put_together(_read(text), Parts(list(learned), list(fixed), list(numbers)))))


def _backward(
    grad: Tensor,
    grad_norm: Tensor,
    out: Tensor,
    norm: Tensor,
    learned: Sequence[Tensor],
    fixed: Sequence[Tensor],
    numbers: Sequence[int],
    text: str,
) -> list[Tensor]:
    return _gradients(_read(text), Parts(list(learned), list(fixed), list(numbers)), grad, out, norm)


@lru_cache
def _read(text: str) -> Skeleton:
    return literal_eval(text)


def _fake(learned, fixed, numbers, text):  # type: ignore[no-untyped-def]
    arguments = put_together(_read(text), Parts(learned, fixed, numbers))
    q, v = arguments.q, arguments.v
    return q.new_empty(*q.shape[:3], v.shape[3]), q.new_empty(*q.shape[:3], 1, dtype=float32_or_better(q.dtype))


def _fake_backward(grad, grad_norm, out, norm, learned, fixed, numbers, text):  # type: ignore[no-untyped-def]
    return [t.new_empty(t.shape) for t in learned]


_operator = operator_with_backward(
    "attend_tiled",
    _forward,
    _backward,
    fake=_fake,
    fake_backward=_fake_backward,
    keep=lambda inputs, output: (*output, *inputs),
    # torch 2.6 reads no such list from the annotations
    backward_schema="(Tensor grad, Tensor grad_norm, Tensor out, Tensor norm, Tensor[] learned, Tensor[] fixed, "
    "SymInt[] numbers, str text) -> Tensor[]",
)
