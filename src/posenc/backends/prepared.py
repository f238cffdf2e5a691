"""Calls that were made before: what follows from everything but numbers is worked out once.

Checking arguments, sorting encodings by hook point and choosing a backend take longer than a short call's arithmetic,
and depend on the encodings, on shapes, dtypes, devices, options and modes alone. A call whose description is known goes
to its backend at once. Nothing that depends on the value of a position or of a parameter is kept.

What is described this way: default positions, no mask, no documents, no length; plain tensors, in eager mode, without
autocast, transforms or modes of dispatch. All other calls, and the first of each kind, take the way through
`prepare_call`. A single query may have any number of keys, where its form is that of the backend ``step``, so that the
steps of a generation are one kind.

An encoding whose attributes are set counts as another one from then on (`Encoding.__setattr__`). Encodings are held by
weak references; a kind goes with the first of its encodings.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from posenc.backends import sdpa, step
from posenc.backends.inputs.attention_call import AttentionCall, CallPositions, StaticCall
from posenc.backends.inputs.features import remember
from posenc.backends.inputs.query_blocks import reach_of
from posenc.backends.inputs.rewrites import rewritten
from posenc.backends.inputs.rotation import rotated
from posenc.encoding import (
    BiasEncoding,
    Encoding,
    RotaryEncoding,
    ScoreEncoding,
    WeightEncoding,
    attribute_changes,
)
from posenc.tracing import tracing

MOST = 1024  # kinds of calls that are kept
Key = tuple[object, ...]
_functorch = torch._C._functorch
_ENCODINGS = StaticCall._fields.index("weight") + 1  # fields of a `StaticCall` with encodings


class Kind(NamedTuple):
    """Everything a kind of call needs apart from its tensors and encodings."""

    encodings: tuple[weakref.ref[Encoding], ...]
    changes: int  # of attributes, when it was made
    fixed: tuple[object, ...]  # fields of the `StaticCall` behind its encodings, whose places in the list are:
    bias: tuple[int, ...]
    score: tuple[int, ...]
    weight: int | None
    rotates: bool
    rewrites: bool
    scale: float
    window: int | None
    causal: bool | None  # the kernel's flag, where that is all that q, k and v need: `sdpa.at_kernel`
    run: Callable[[AttentionCall], Tensor]


_KINDS: dict[Key, Kind] = {}


def forget() -> None:
    """Prepare every kind of call anew, for tests that change what is chosen."""
    _KINDS.clear()


def key_of(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encodings: Iterable[nn.Module],
    features: Sequence[Tensor | None] | None,
    options: tuple[object, ...],
    grad: bool,
) -> Key | None:
    """The description of a call; None if the call has none.

    Args:
        options: causal, scale, window, tolerance, softcap, dropout and backend, as they were given.
        grad: whether gradients are enabled.
    """
    if not type(q) is type(k) is type(v) is Tensor or type(encodings) not in _LISTS or not (q.is_cpu or q.is_cuda):
        return None
    if features is not None and type(features) not in _LISTS:
        return None
    if tuple(map(type, options)) not in _TYPES:  # 1, 1.0 and True are one key, and not one option
        return None
    if (
        tracing()
        or torch._C._len_torch_dispatch_stack()
        or _functorch.get_dynamic_layer_stack_depth()
        or forward_ad._current_level >= 0
        or torch._C._get_tracing_state() is not None
        or torch.is_autocast_enabled(q.device.type)
    ):
        return None
    of_q, of_k, of_v = q.shape, k.shape, v.shape
    if len(of_q) == len(of_k) == len(of_v) == 4 and of_q[2] == 1 and of_k[2] == of_v[2] > 0:
        shapes: Key = (of_q, of_k[0], of_k[1], of_k[3], of_v[0], of_v[1], of_v[3], of_k[2] > step.LONG)
    else:
        shapes = (of_q, of_k, of_v)
    learned: Key = ()
    if grad:
        if not all(isinstance(e, Encoding) for e in encodings):  # an error to come
            return None
        parts = [q, k, v, *(f for f in features or () if isinstance(f, Tensor))]
        learned = tuple(p.requires_grad for p in (*parts, *(p for e in encodings for p in e.parameters())))
    return (
        tuple(map(id, encodings)), shapes, q.dtype, k.dtype, v.dtype, q.device, k.device, v.device, options,
        None if features is None else len(features), grad, learned,
    )  # fmt: skip


_LISTS = (list, tuple, nn.ModuleList)
_TYPES = frozenset(
    itertools.product(
        (bool, str, type(None)), (float, type(None)), (int, type(None)), (float,), (float, type(None)), (float,), (str,)
    )
)


def attend(
    key: Key, q: Tensor, k: Tensor, v: Tensor, encodings: Iterable[nn.Module], features: Sequence[Tensor | None] | None
) -> Tensor | None:
    """The result of a call of a known kind; None for any other."""
    kind = _KINDS.get(key)
    if kind is None:
        return None
    if kind.changes != attribute_changes():
        _KINDS.pop(key, None)  # another thread may have been first
        return None
    acting: list[Encoding] = list(encodings)  # type: ignore[arg-type]  # what the references are to
    for ref, encoding in zip(kind.encodings, acting, strict=True):
        if ref() is not encoding:
            _KINDS.pop(key, None)
            return None
    bias: tuple[Any, ...] = tuple([acting[i] for i in kind.bias]) if kind.bias else ()
    score: tuple[Any, ...] = tuple([acting[i] for i in kind.score]) if kind.score else ()
    weight: Any = None if kind.weight is None else acting[kind.weight]
    remembered = [None] * len(acting) if features is None else remember(acting, None, features, k)
    of_score = tuple([remembered[i] for i in kind.score]) if score else ()
    unrotated = positions = None
    if kind.rotates:
        positions = CallPositions(q.shape[2], k.shape[2], q.device, None)
        unrotated = q, k
        q, k = rotated(acting, q, k, *positions.read(), None, None, None)
    if kind.causal is not None:
        return sdpa.kernel(q, k, v, None, kind.causal, kind.scale, 0.0)
    if kind.run is step.run and not kind.rewrites:
        return step.attend(q, k, v, bias, score, of_score, weight, kind.scale, kind.window)
    call = AttentionCall(
        StaticCall(bias, score, weight, *kind.fixed),  # type: ignore[arg-type]  # as they came from one
        q, k, v, positions or CallPositions(q.shape[2], k.shape[2], q.device, None), of_score,
        None if kind.weight is None else remembered[kind.weight], None, None, unrotated,
    )  # fmt: skip
    return kind.run(rewritten(call) if kind.rewrites else call)


class ClosedStep(NamedTuple):
    """A decode step that goes to `step.attend` whatever the number of its keys, up to `step.LONG`."""

    batch: int
    dtype: torch.dtype
    bias: list[BiasEncoding]
    score: list[ScoreEncoding]
    score_at: tuple[int, ...]  # places of ``score`` in the call's list
    weight: WeightEncoding | None
    scale: float

    def takes(self, q: Tensor, k: Tensor) -> bool:
        """Whether a step differs from the prepared one only in its values and the number of keys."""
        return q.dtype is k.dtype is self.dtype and q.shape[0] == self.batch and k.shape[2] <= step.LONG

    def attend(self, q: Tensor, k: Tensor, v: Tensor, features: Sequence[Tensor | None]) -> Tensor:
        """The result of a step that it takes; ``features`` of all encodings of the list."""
        of_score = [features[i] for i in self.score_at]
        return step.attend(q, k, v, self.bias, self.score, of_score, self.weight, self.scale, None)


def closed_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encodings: Sequence[Encoding],
    features: Sequence[Tensor | None],
    options: tuple[object, ...],
) -> ClosedStep | None:
    """The closed form in which a layer can repeat the step that just ran; None where the call was not such a step.

    Args:
        options: as `key_of` takes them, without a window.
    """
    key = key_of(q, k, v, encodings, features, options, torch.is_grad_enabled())
    kind = None if key is None else _KINDS.get(key)
    if kind is None or kind.run is not step.run or kind.rewrites or kind.rotates or k.shape[2] > step.LONG:
        return None
    bias = [e for e in encodings if isinstance(e, BiasEncoding)]
    score = [e for e in encodings if isinstance(e, ScoreEncoding)]
    weight = next((e for e in encodings if isinstance(e, WeightEncoding)), None)
    return ClosedStep(q.shape[0], q.dtype, bias, score, kind.score, weight, kind.scale)


def keep(
    key: Key,
    acting: Sequence[Encoding],
    call: AttentionCall,
    backend_call: AttentionCall,
    run: Callable[[AttentionCall], Tensor],
) -> None:
    """Know a kind of call from now on, if what was worked out for this one holds for all of them.

    Args:
        key: what `key_of` gave.
        acting: all encodings of the call.
        call: as `prepare_call` gave it.
        backend_call: the same call as the backend received it.
        run: of the backend that was chosen.
    """
    if call.dropout is not None or not call.aligned or call.static.axes != 1 or call.spans is not None:
        return
    if call.token_order is not None or reach_of(acting, call.q.dtype) is not None or call.q.numel() == 0:
        return
    if any(e.reads.key_counts for e in call.score):
        return
    if call.q.shape[2] == 1 and run is not step.run:
        return  # the choice depends on the number of keys, which the key of one query leaves out
    if len(_KINDS) >= MOST:
        _KINDS.clear()
    weight = next((i for i, e in enumerate(acting) if isinstance(e, WeightEncoding)), None)
    rewrites = backend_call is not call and (run is not step.run or backend_call.score != call.score)
    at_kernel = run is sdpa.run and not rewrites and sdpa.at_kernel(backend_call)

    def gone(_: object, kinds: dict[Key, Kind] = _KINDS) -> None:  # also when modules are gone, at the very end
        kinds.pop(key, None)

    _KINDS[key] = Kind(
        tuple(weakref.ref(e, gone) for e in acting),
        attribute_changes(),
        call.static[_ENCODINGS:],
        tuple(i for i, e in enumerate(acting) if isinstance(e, BiasEncoding)),
        tuple(i for i, e in enumerate(acting) if isinstance(e, ScoreEncoding)),
        weight,
        any(isinstance(e, RotaryEncoding) for e in acting),
        rewrites,
        call.scale,
        call.window,
        bool(call.causal) and call.q.shape[2] > 1 if at_kernel else None,
        run,
    )
