"""A step over a cache of fixed size by kernels of a GPU: the token written and rotated in one launch, attended in two.

    append (rotates q and k, writes the slots)  →  parts of the keys, and their join  →  the cache counts the token

How many tokens came, their positions and which are padding stay on the device. Where a kernel does not know a call, or
failed its check, the cache's own operations serve.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from posenc.attend import hooked
from posenc.backends.rewrites import rewritten
from posenc.backends.triton import refuses_slots, run
from posenc.backends.triton.launch import Slots
from posenc.backends.triton.slots import Newest, append, refuses_append
from posenc.call import AttentionCall, prepare_call
from posenc.dtypes import no_autocast
from posenc.encoding import Encoding, RotaryEncoding, ScoreEncoding
from posenc.frequencies.rotation import Layout
from posenc.layers.cache.keys import Keys, NewTokens, StaticStep
from posenc.layers.cache.static import StaticKVCache
from posenc.rotary.rope import RoPE
from posenc.validate import Causal


def is_step(q: Tensor) -> bool:
    """Whether queries are one token of each row, on a GPU."""
    return q.is_cuda and q.shape[2] == 1


def attend_newest(
    q: Tensor,
    new: NewTokens,
    cache: StaticKVCache,
    encodings: Sequence[Encoding],
    rotate: Callable[[], tuple[Tensor, Tensor]],
    *,
    causal: Causal,
    scale: float | None,
    softcap: float | None,
    tabled: bool,
    learns: bool,
) -> tuple[Tensor, Keys] | None:
    """What the heads of one token per row attend to, and what the cache is to take; None where no kernel serves.

    Args:
        q: ``(batch, heads, 1, head_dim)``, not rotated.
        new: the token, its key not rotated either.
        cache: into whose slots it is written.
        encodings: the layer's inside attention.
        rotate: queries and keys after all rotations, by plain operations.
        causal, scale, softcap: as in `attention`.
        tabled: whether the caller passed tables of rotations.
        learns: whether a backward pass may follow.

    Raises:
        ValueError: for a token that does not fit the cache.
    """
    cache._guard.check()
    cache._check(new, learns)
    call = _call(q, new, cache, encodings, causal=causal, scale=scale, softcap=softcap)
    if call is None or refuses_slots(call, counted=cache._counts_positions(new)) is not None:
        return None
    slots = Slots(cache.counts, cache.real, cache.positions, cache.written, cache.window or 0)
    k = new.k
    table: tuple[Tensor, Tensor] | None = None
    layout: Layout = "half"
    rope = None if tabled else _alone([e for e in encodings if isinstance(e, RotaryEncoding)])
    if rope is not None and new.positions is not None:
        cos, sin = rope.table(new.positions, new.length if rope.length_dependent else None, like=q)
        table, layout = (cos, sin), rope.layout
    elif new.rotated:
        q, k = rotate()
    names = [name for name, state in zip(cache._states, new.token_states, strict=True) if state is not None]
    state = next((state for state in new.token_states if state is not None), None)
    held = getattr(cache, names[0]) if names else None
    newest = Newest(k, new.v, new.positions, new.attention_mask, state, table, layout)
    if refuses_append(q, newest, slots, held) is not None:
        return None
    cache._note_positions(new)
    queries = append(q, newest, slots, cache.k, cache.v, held)
    call = call.replace(q=queries, structures=call.structures if queries is call.q else ())
    with no_autocast(q.device.type):
        out = run(call, slots)
    return out, Keys(call.k, call.v, (), step=StaticStep(new.attention_mask, 1))


def _call(
    q: Tensor,
    new: NewTokens,
    cache: StaticKVCache,
    encodings: Sequence[Encoding],
    *,
    causal: Causal,
    scale: float | None,
    softcap: float | None,
) -> AttentionCall | None:
    """The call over all slots, as if their positions counted; None where that is another call than this one."""
    left: list[Encoding] = []
    states: list[Tensor | None] = []
    for encoding, name in zip(encodings, cache._states, strict=True):
        if isinstance(encoding, RotaryEncoding):
            if not new.rotated:
                return None
            continue
        if isinstance(encoding, ScoreEncoding) and (encoding.length_dependent or encoding.reads.token_order):
            return None
        held = getattr(cache, name)
        left.append(encoding)
        states.append(None if held is None else held.narrow(2, 0, cache.capacity))
    plain = cache.positions.ndim == 2 and not cache.positions.is_floating_point()
    kept = sum(state is not None for state in new.token_states)
    if causal == "positions" or not plain or kept > 1 or new.mask is not None or new.segments is not None:
        return None
    keys, values = (t.narrow(2, 0, cache.capacity) for t in (cache.k, cache.v))
    with no_autocast(q.device.type):
        call = prepare_call(
            q, keys, values, left, token_states=states or None, mask=cache.real[:, None, None], causal=causal,
            scale=scale, softcap=softcap, window=cache.window,
        )  # fmt: skip
        if left and hooked(call) is not None:
            return None
        ready = rewritten(call) if call.score else call
    return ready if ready.q is call.q and ready.k is call.k else None


def _alone(rotary: Sequence[RotaryEncoding]) -> RoPE | None:
    """The one rotation of a layer, where it is of pairs by one table for all heads, and nobody watches it."""
    if len(rotary) != 1 or not isinstance(rotary[0], RoPE):
        return None
    (rope,) = rotary
    own = type(rope).forward is RoPE.forward and type(rope).rotate is RoPE.rotate and type(rope).table is RoPE.table
    watched = rope._forward_hooks or rope._forward_pre_hooks
    return rope if own and not watched and rope._fewest is None else None
