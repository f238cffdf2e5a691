"""Kernels in Triton for what PyTorch's own kernels cannot say: biases and gates, stick-breaking, counted positions.

One kernel of softmax attention takes whatever is a function of the distance (a row of numbers, or ALiBi's slopes), sums
of forget gates, a softcap, a sink and dropout, under causal order, a window, documents and padding; stick-breaking and
CoPE's counts have kernels of their own. They are for NVIDIA's GPUs from compute capability 8.0 on, and a kernel serves
only after `guard` has checked it on the card at hand.

Kernels are compiled for a call's widths when it comes. `rotation` puts a kernel that rotates queries and keys in one
pass in front of `posenc.rotary`; it is no backend, as it attends to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from posenc.backends.derivatives import only_plain_operations
from posenc.backends.triton import guard
from posenc.backends.triton.guard import Kind
from posenc.backends.triton.launch import WIDEST, WIDEST_SOFTMAX, Slots, Terms, kernel_visibility, visibility_refusal
from posenc.call import AttentionCall, with_structures
from posenc.operators import KERNELS
from posenc.structure import Counts, Decay, Row, Sticks, Structure
from posenc.tracing import exporting

FEW = 16  # queries of a decode step
MOST = 256  # positions of counts: rows of z must stay near the processor
MOST_UNITS = 127  # of a network: its segments are one row of a tile
ADDED = {
    "row": "a bias by distance", "slopes": "slopes", "gates": "forget gates", "network": "a network of the distance",
    "sink": "a sink",
}  # fmt: skip


def refuses(call: AttentionCall) -> str | None:
    """Why the kernels should not serve this call, or None; asks for a self-check where this card has made none."""
    return refuses_by_name(call) or guard.refusal(kind_of(call), call.q.device, run)


def refuses_by_name(call: AttentionCall) -> str | None:
    """Why the kernels cannot serve this call even where they were asked for by name, or None."""
    lacking: str | None = guard.missing(call.q.device)
    if lacking is not None:
        return lacking
    if exporting():
        return "an exported program must do without operators of this library"
    return only_plain_operations(call) or unsupported(call)


def refuses_slots(call: AttentionCall, *, counted: bool) -> str | None:
    """Why the kernels should not serve the newest query of a cache of fixed size, or None.

    Args:
        call: over all slots, masked by which tokens are real; as if positions counted from slot to slot.
        counted: whether no two positions in the cache can be further apart than it has slots.
    """
    reason = refuses_by_name(call) or unsupported_slots(call, counted=counted)
    if reason is None:
        from posenc.backends.triton.slots import results

        kind = kind_of(call)
        reason = guard.refusal(kind._replace(flags=(*kind.flags, "slots")), call.q.device, run, results)
    return reason


def unsupported_slots(call: AttentionCall, *, counted: bool) -> str | None:
    """What the kernels do not know of such a call, which they know without slots, or None."""
    call = with_structures(call)
    if kernel_of(call) != "few queries":
        return "kernels of many queries know no slots"
    sticks = None if call.weight is None else call.weight.structure()
    if isinstance(sticks, Sticks) and sticks.remainder != "drop":
        return "what is left of sticks goes to a key by its index"
    if not counted and _alone(call) is None and terms_of(call).row is not None:
        return "a row by distance ends where the slots do"
    return None


def unsupported(call: AttentionCall) -> str | None:
    """What the kernels do not know of this call, wherever it lies, or None."""
    if len({t.dtype for t in (call.q, call.k, call.v)}) > 1 or call.q.dtype == torch.float64:
        return "kernels take one dtype for queries, keys and values, float32 or less"
    if call.k.shape[2] == 0:
        return "the call has no keys"
    if any(encoding.scope.narrows for encoding in call.score):
        return "kernels know no keys that an encoding hides"
    call = with_structures(call)
    reason = visibility_refusal(call)
    if reason is not None:
        return reason
    return _unsupported_alone(call) if _alone(call) else _unsupported_softmax(call)


def kernel_of(call: AttentionCall) -> str:
    """Which kernels a call whose structures have been asked is for: few queries, softmax, sticks or counts."""
    decodes = call.q.shape[2] <= FEW and call.dropout is None and not _trains(call)
    if decodes and call.segments is not None:  # gates are summed over all keys there, not over those of a document
        decodes = not any(isinstance(part, Decay) for part in _structures(call))
    if decodes:
        return "few queries"
    return _alone(call) or "softmax"


def _alone(call: AttentionCall) -> str | None:
    """Sticks or counts, where a call has any: kernels take them without other terms."""
    if call.weight is not None and isinstance(call.weight.structure(), Sticks):
        return "sticks"
    return "counts" if any(isinstance(part, Counts) for part in _structures(call)) else None


def _trains(call: AttentionCall) -> bool:
    """Whether a backward pass may follow, through queries, biases or what structures were stated of."""
    if call.training or not torch.is_grad_enabled():
        return call.training
    tensors = [t for part in _structures(call) if part is not None for t in part.tensors().values()]
    weights = None if call.weight is None else call.weight.structure()
    tensors += [] if weights is None else list(weights.tensors().values())
    return any(t.requires_grad for t in tensors)


def _structures(call: AttentionCall) -> Iterator[Structure | None]:
    """What the score encodings state; None for each that states nothing."""
    return (part for parts in call.structures for part in parts or (None,))


def _unsupported_softmax(call: AttentionCall) -> str | None:
    """What the softmax kernels do not know of a call, or None."""
    if call.replaces_softmax:
        return f"kernels know softmax and stick-breaking, not {type(call.weight).__name__}"
    parts = list(_structures(call))
    for part in parts:
        if not isinstance(part, Decay | Row):
            return "kernels know rows by distance, slopes, forget gates, and counts or sticks alone"
        if isinstance(part, Decay) and call.causal is not True:
            return "a decay by gates needs the causal order of indices"
    if call.bias and (not call.aligned or call.axes > 1):
        return "positions are given: no bias is a function of the difference of two indices"
    units = 0
    for number, bias in enumerate(call.bias):
        network = bias.distance_network()
        units += 0 if network is None else network.inner.shape[0]
        if network is None and bias.distance_slopes(like=call.q) is None and not _has_row(call, number):
            return f"{type(bias).__name__} is no function of the distance"
    if units and (sum(bias.distance_network() is not None for bias in call.bias) > 1 or terms_of(call).row is not None):
        return "kernels take one network, and no bias by distance beside it"
    if units > MOST_UNITS:
        return f"kernels take networks of at most {MOST_UNITS} units"
    if sum(isinstance(part, Decay) for part in parts) > 1:
        return "kernels take one term of forget gates"
    if call.dropout is not None and call.dropout.p == 1:
        return "kernels divide by what dropout leaves, which is nothing"
    if max(call.q.shape[-1], call.v.shape[-1]) > WIDEST_SOFTMAX:
        return f"kernels take heads of at most {WIDEST_SOFTMAX} channels"
    return None


def _unsupported_alone(call: AttentionCall) -> str | None:
    """What the kernels of sticks and counts do not know of a call, or None."""
    parts = list(_structures(call))
    if call.bias:
        return "kernels of sticks and counts take no bias of positions"
    if call.softcap is not None or call.dropout is not None:
        return "kernels of sticks and counts know neither softcap nor dropout"
    if call.weight is not None and (not isinstance(call.weight.structure(), Sticks) or parts):
        return "kernels support only stick-breaking instead of softmax, without other terms of the scores"
    if call.weight is None and len(parts) != 1:
        return "kernels take a term that counts gates alone"
    for part in parts:
        if isinstance(part, Counts) and part.table.shape[1] > MOST:
            return f"kernels count to at most {MOST - 1}, got {part.table.shape[1] - 1}"
        if isinstance(part, Counts) and part.keys is not None and part.keys.shape[1] != call.k.shape[1]:
            return "the gates have other key heads than the call"
    if call.weight is None and _trains(call) and torch.are_deterministic_algorithms_enabled():
        return "gradients of counted positions are sums by atomics, whose order is not always the same"
    if max(call.q.shape[-1], call.v.shape[-1]) > WIDEST:
        return f"kernels take heads of at most {WIDEST} channels"
    return None


def _has_row(call: AttentionCall, number: int) -> bool:
    """Whether a bias of the call is a function of the distance."""
    queries, keys = call.q.shape[2], call.k.shape[2]
    return call.bias[number].lookup(queries, keys, like=call.q) is not None or call.rows[number] is not None


def kind_of(call: AttentionCall) -> Kind:
    """What `guard` checks once for all calls like this one, which `unsupported` allows."""
    call = with_structures(call)
    kernel, alone = kernel_of(call), _alone(call)
    flags = [alone] if alone and kernel == "few queries" else []
    if not alone:
        terms = terms_of(call)
        flags += [name for name in ADDED if getattr(terms, name) is not None]
        flags += ["softcap"] if call.softcap is not None else []
        flags += ["dropout"] if call.dropout is not None else []
    elif call.weight is not None:
        sticks = call.weight.structure()
        assert isinstance(sticks, Sticks)
        flags += [sticks.remainder] + ["current"] * sticks.attend_current
    else:
        (counts,) = _structures(call)
        assert isinstance(counts, Counts)
        flags += ["own gates"] * (counts.queries is not None or counts.keys is not None)
    flags += ["causal"] * (call.causal is True) + ["window"] * (call.window is not None)
    flags += ["documents"] * (call.segments is not None) + ["padding"] * (call.mask is not None)
    return Kind(kernel, tuple(flags), call.q.dtype, call.q.shape[3], call.v.shape[3], _trains(call))


def terms_of(call: AttentionCall) -> Terms:
    """All that is added to the logits of a call whose structures have been asked: rows and slopes summed up."""
    queries, keys = call.q.shape[2], call.k.shape[2]
    slopes, lookups, rows, network, gates = [], [], [], None, None
    for number, bias in enumerate(call.bias):
        steepness, found = bias.distance_slopes(like=call.q), bias.distance_network()
        if steepness is not None:
            slopes.append(steepness)
        elif found is not None:
            network = found
        else:
            lookups.append((number, bias.lookup(queries, keys, like=call.q)))
    for part in _structures(call):
        if isinstance(part, Row):
            rows.append(part.values)
        elif isinstance(part, Decay):
            gates = part.gates
    added = sum(slopes[1:], slopes[0]) if slopes else None
    if len(lookups) == 1 and not rows and lookups[0][1] is not None:
        return Terms(*lookups[0][1], added, gates, network, call.sink)
    rows = [row for row in (call.rows[number] for number, _ in lookups) if row is not None] + rows
    return Terms(sum(rows[1:], rows[0]) if rows else None, None, added, gates, network, call.sink)


def strategy(call: AttentionCall) -> str:
    """How this backend goes about the call, in words."""
    call = with_structures(call)
    kernel, what = kernel_of(call), _alone(call)
    if what is None:
        terms = terms_of(call)
        added = [words for name, words in ADDED.items() if getattr(terms, name) is not None]
        what = f"softmax under {', '.join(added) or 'no bias'}"
    return f"{what}: {'parts of the keys, and their join' if kernel == 'few queries' else 'one kernel'}, in Triton"


def run(call: AttentionCall, slots: Slots | None = None) -> Tensor:
    """Attention by one of the kernels, ``(batch, heads, queries, value_dim)`` in the dtype of q.

    With slots, for which `refuses_slots` was asked, the mask says which tokens are real.
    """
    call = with_structures(call)
    qkv, kernel = (call.q, call.k, call.v), kernel_of(call)
    if kernel == "few queries":
        return _run_few(call, slots)
    visibility = kernel_visibility(call)
    if kernel == "softmax":
        from posenc.backends.triton.softmax import attend_softmax

        seen = None if call.mask is None else call.mask[:, 0, 0]
        documents = None if call.segments is None else call.segments[1]
        cuts = call.softcap, call.dropout
        return attend_softmax(*qkv, terms_of(call), call.scale, visibility, *cuts, seen=seen, documents=documents)
    if kernel == "sticks":
        assert call.weight is not None
        sticks = call.weight.structure()
        assert isinstance(sticks, Sticks)
        from posenc.backends.triton.sticks import attend_sticks

        return attend_sticks(*qkv, sticks, call.scale, visibility, call.tolerance or 2e-9)
    from posenc.backends.triton.counts import attend_counts

    (counts,) = _structures(call)
    assert isinstance(counts, Counts)
    return attend_counts(*qkv, counts, call.scale, visibility)


def check_of(kind: Kind) -> tuple[guard.Run, guard.ResultsOf | None]:
    """What runs a call of a kind by its kernel, and what makes small ones, as `guard.check` takes both."""
    from posenc.backends.triton import encodings, rotation, slots

    others: dict[str, tuple[guard.Run, guard.ResultsOf]] = {
        "rotation": (rotation.rotate_queries_and_keys, rotation._results),
        "rotation table": (rotation.rotation_table, rotation._table_results),
        "append": (slots.write, slots._written) if "at" in kind.flags else (slots.append, slots.appended),
        "log gates": (encodings._log_gates, encodings._right_gates),
        "kerple row": (encodings._kerple_row, encodings._right_row),
    }  # fmt: skip
    return others.get(kind.kernel, (run, slots.results if "slots" in kind.flags else None))


def _run_few(call: AttentionCall, slots: Slots | None) -> Tensor:
    """Few queries, without a backward pass: padding as it is, documents as numbers."""
    from posenc.backends.triton.decode import attend_few

    seen = None if call.mask is None else call.mask[:, 0, 0]
    ids: tuple[Tensor | None, Tensor | None] = (None, None)
    if call.segments is not None:
        visibility = kernel_visibility(call.replace(mask=None))
        ids = visibility.q_ids, visibility.k_ids
    sticks = None if call.weight is None else call.weight.structure()
    sticks = sticks if isinstance(sticks, Sticks) else None
    counts = next((part for part in _structures(call) if isinstance(part, Counts)), None)
    terms = Terms() if _alone(call) else terms_of(call)
    qkv, plain = (call.q, call.k, call.v), (call.scale, call.causal is True, call.window or 0)
    out, used = attend_few(*qkv, terms, *plain, call.softcap, seen, *ids, slots, sticks, counts)
    if sticks is None or sticks.remainder == "drop":
        return out
    from posenc.backends.triton.sticks import with_remainder

    return with_remainder(out, used, *qkv, sticks, kernel_visibility(call))


def _rotation(*call: Any) -> tuple[Tensor, Tensor] | None:
    from posenc.backends.triton import rotation  # here: who attends without a rotation does not wait for them

    return rotation.rotated(*call)


def _rotation_table(*call: Any) -> tuple[Tensor, Tensor] | None:
    from posenc.backends.triton import rotation

    return rotation.table(*call)


def _log_gates(*call: Any) -> Tensor | None:
    from posenc.backends.triton import encodings

    return encodings.log_gates(*call)


def _kerple_row(*call: Any) -> Tensor | None:
    from posenc.backends.triton import encodings

    return encodings.kerple_row(*call)


KERNELS.update(
    {
        "rotation": _rotation, "rotation table": _rotation_table, "log gates": _log_gates, "kerple row": _kerple_row
    }
)  # fmt: skip
