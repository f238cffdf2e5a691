"""Validation of attention's arguments: tensors, encodings, positions, masks, documents, token states and numbers.

Every check raises a ValueError that names the argument, says what was expected and what came. Checks read shapes and
dtypes and never values, so that neither a compiler nor an accelerator has to wait; `check_key_order` is the exception.
Messages are built when raised: a compiler fixes every size that enters a string, and a decode step of a short context
pays for the comparisons alone.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from typing import ParamSpec, TypeVar, cast

import torch
from torch import Tensor, nn

from posenc.arguments import LONGEST, TRANSPOSE_HINT, shown, truth_of
from posenc.encoding import (
    HOOK_POINTS,
    EmbeddingEncoding,
    Encoding,
    RotaryEncoding,
    ScoreEncoding,
    WeightEncoding,
    hook_point_of,
)
from posenc.head_shares import cut_hint
from posenc.positions import checking as position
from posenc.positions.videos import on_all_axes
from posenc.tracing import has_values
from posenc.visibility import Causal as Causal
from posenc.visibility import VisibilityMask

_HOOK_POINTS = tuple(HOOK_POINTS.values())
P = ParamSpec("P")
T = TypeVar("T")

# What other libraries call the arguments of attention.
FOREIGN_NAMES = {
    "is_causal": "causal", "attn_mask": "mask", "attention_mask": "mask", "key_padding_mask": "mask",
    "dropout_p": "dropout", "softmax_scale": "scale", "scaling": "scale", "logits_soft_cap": "softcap",
    "window_size": "window", "sliding_window": "window", "position_ids": "q_pos", "segment_ids": "segments",
    "pos": "q_pos", "positions": "q_pos",
}  # fmt: skip


def suggests_argument_names(function: Callable[P, T]) -> Callable[P, T]:
    """A function whose TypeError for an argument of another library's name says what it is called here."""
    parameters = inspect.signature(function).parameters
    shared = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())  # attention's options
    words = {
        word: name for word, name in FOREIGN_NAMES.items() if (shared or name in parameters) and word not in parameters
    }

    @functools.wraps(function)
    def called(*args: P.args, **options: P.kwargs) -> T:
        try:
            return function(*args, **options)
        except TypeError:  # the options are looked into only now, so that a call that is right pays nothing for it
            for word in options:
                if word in words:
                    message = f"{function.__name__} has no argument {word!r}: it is called {words[word]} here"
                    raise TypeError(message) from None
            raise

    return called


def check_tensors(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Raise a ValueError unless q, k and v fit together."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, Tensor):
            raise ValueError(f"{name} must be a tensor (batch, heads, tokens, width), got {type(tensor).__name__}")
    q_shape, k_shape, v_shape = q.shape, k.shape, v.shape
    wrong = None
    if not len(q_shape) == len(k_shape) == len(v_shape) == 4:
        wrong = "q, k and v must be (batch, heads, tokens, width)"
    elif not q_shape[0] == k_shape[0] == v_shape[0]:
        wrong = "q, k and v must have the same batch"
    elif k_shape[1:3] != v_shape[1:3]:
        wrong = "k and v must have the same heads and tokens"
    elif q_shape[3] != k_shape[3]:
        wrong = "q and k must have the same width"
    elif q_shape[3] == 0 or v_shape[3] == 0:
        wrong = "q, k and v must be at least one channel wide"
    elif k_shape[1] == 0 or q_shape[1] == 0 or q_shape[1] % k_shape[1]:
        wrong = "heads of q must be a multiple of the heads of k"
    elif k_shape[2] == 0:
        wrong = "k must hold at least one key"
    if wrong is not None:
        hint = TRANSPOSE_HINT if wrong.startswith("heads") else ""
        raise ValueError(f"{wrong}, got q {tuple(q_shape)}, k {tuple(k_shape)}, v {tuple(v_shape)}{hint}")
    if not q.dtype == k.dtype == v.dtype or not q.is_floating_point():
        raise ValueError(f"q, k and v must have one floating dtype, got {q.dtype}, {k.dtype}, {v.dtype}")
    if not q.device == k.device == v.device:
        raise ValueError(f"q, k and v must be on one device, got {q.device}, {k.device}, {v.device}")


def as_list(encodings: Iterable[nn.Module]) -> list[Encoding]:
    """The encodings as a list; a ValueError for anything that is none. What the list holds `check_encodings` checks."""
    if type(encodings) is list:
        return encodings
    if isinstance(encodings, Encoding):
        raise ValueError(f"encodings must be a list, got one encoding: pass [{type(encodings).__name__}(...)]")
    if encodings is None or isinstance(encodings, str | dict | Tensor) or not isinstance(encodings, Iterable):
        raise ValueError(f"encodings must be a list of encodings, [] for none, got {shown(encodings)}")
    return cast("list[Encoding]", list(encodings))


def check_encodings(encodings: Sequence[Encoding], num_heads: int, tokens: int | None = None) -> None:
    """Raise a ValueError where an encoding cannot take part in attention.

    Args:
        encodings: as `as_list` gives them.
        num_heads: of the queries.
        tokens: queries, where they are known: heads and tokens may have changed places.
    """
    weights, replacing = 0, False
    for encoding in encodings:
        if not isinstance(encoding, Encoding):
            is_class = isinstance(encoding, type) and issubclass(encoding, Encoding)
            hint = (
                f": {encoding.__name__}(...) makes one"
                if is_class
                else ": posenc.create_encoding(name) makes one by its name"
            )
            raise ValueError(f"encodings must hold encodings, got {shown(encoding)}{hint}")
        if not isinstance(encoding, _HOOK_POINTS):
            hook_point_of(encoding)  # which says what it should be
        if isinstance(encoding, EmbeddingEncoding):
            name = type(encoding).__name__
            raise ValueError(f"encodings: {name} acts on token embeddings; call it on x before the projections")
        heads = getattr(encoding, "num_heads", num_heads)
        if heads != num_heads:
            hint = TRANSPOSE_HINT if heads == tokens else cut_hint(heads, num_heads)
            raise ValueError(f"num_heads of {type(encoding).__name__} is {heads}, but q has {num_heads} heads{hint}")
        weights += isinstance(encoding, WeightEncoding)
        replacing = replacing or (isinstance(encoding, ScoreEncoding) and encoding.scope.replaces)
    if weights > 1:
        raise ValueError("encodings must hold at most one encoding that replaces softmax")
    if replacing:
        _check_replacing(encodings)


def _check_replacing(encodings: Sequence[Encoding]) -> None:
    """Raise a ValueError where an encoding is combined with another that computes its own products of q and k."""
    scores = [e for e in encodings if isinstance(e, ScoreEncoding)]
    replacing = [e for e in scores if e.scope.replaces]
    name = type(replacing[0]).__name__
    for other in encodings:
        if isinstance(other, RotaryEncoding):
            kind = type(other).__name__
            raise ValueError(
                f"encodings must not hold {kind} with {name}, which rotates q and k itself: pass {kind} to it"
            )
        reads = isinstance(other, ScoreEncoding | WeightEncoding) and other.reads.rotated
        if reads and other is not replacing[0]:
            raise ValueError(
                f"encodings must not hold {type(other).__name__} with {name}: it reads q and k as one rotation "
                f"leaves them, and under {name} there are several"
            )
    if scores[0] is not replacing[0] or len(replacing) > 1:
        other_name = type(scores[0] if scores[0] is not replacing[0] else replacing[1]).__name__
        raise ValueError(f"encodings must hold {name} before all that change scores, and once, got {other_name}")


def axes_of(encodings: Sequence[Encoding]) -> int:
    """The coordinates that a position has, 0: nobody reads any; a ValueError where encodings want different numbers."""
    axes = 0
    for encoding in encodings:
        if encoding.axes and axes and encoding.axes != axes:
            several = sorted({e.axes for e in encodings if e.axes})
            raise ValueError(f"encodings must agree on how many coordinates a position has, got {several}")
        axes = encoding.axes or axes
    return axes


def causal_order(causal: object, encodings: Sequence[Encoding], axes: int) -> Causal:
    """The order that ``causal`` means: True, False or "positions"; a ValueError where the encodings do not allow it.

    Args:
        causal: as it was given; numbers and numpy's bools count by their value. None: True, where positions have one
            coordinate.
        encodings: all of the call.
        axes: coordinates of a position, 0 where nobody reads any.
    """
    if causal is None:
        if axes > 1:
            raise ValueError(
                f"causal must be stated where positions have {axes} coordinates: causal=False for the patches of an "
                "image, which attend to one another in both directions, causal=True for tokens of a stream in their "
                "order"
            )
        return True
    if isinstance(causal, str) and causal == "positions":
        if axes > 1:
            raise ValueError("causal='positions' compares one coordinate; positions here have several: use causal=True")
        return "positions"
    order = causal if isinstance(causal, bool) else truth_of(causal)
    if order is None:
        hint = ": take .item() of it" if isinstance(causal, Tensor) else ""
        raise ValueError(f"causal must be True, False or 'positions', got {shown(causal)}{hint}")
    if not order:
        for encoding in encodings:
            if getattr(encoding, "causal_only", False):
                name = type(encoding).__name__
                way = f"; {name}(..., bidirectional=True) does" if hasattr(encoding, "bidirectional") else ""
                raise ValueError(
                    f"causal must be True or 'positions': {name} says nothing of keys after their query{way}"
                )
    return order


def check_positions(
    q: Tensor, k: Tensor, q_pos: Tensor | None, k_pos: Tensor | None, axes: int
) -> tuple[Tensor, Tensor] | None:
    """Positions of queries and keys, checked, on their device; None for the default: keys 0 … n − 1, queries the last.

    One tensor for both stays one, by which rotations know that one table serves both.
    """
    either = k_pos if q_pos is None else q_pos
    if either is None:
        if axes > 1:
            raise ValueError(
                f"q_pos and k_pos must be given: these encodings want {axes} coordinates a position; "
                "posenc.positions.grid(rows, columns) makes the positions of an image"
            )
        return None
    queries, keys = q.shape[2], k.shape[2]
    if (q_pos is None or k_pos is None) and queries != keys:
        missing = "q_pos" if q_pos is None else "k_pos"
        raise ValueError(f"{missing} must be given as well: q has {queries} tokens, k has {keys}")
    if q_pos is not None:
        _check_positions_of("q_pos", q_pos, q, axes)
    if k_pos is not None and (k_pos is not q_pos or queries != keys):
        _check_positions_of("k_pos", k_pos, k, axes)
    for_queries = _placed(either, q)
    return for_queries, for_queries if k_pos is None or k_pos is either else _placed(k_pos, q)


def _placed(positions: Tensor, q: Tensor) -> Tensor:
    """Positions on the device of q, integers as int64, in which no difference wraps around."""
    if positions.device == q.device and (positions.dtype == torch.int64 or positions.is_floating_point()):
        return positions
    return position.wide(positions.to(q.device))


def _check_positions_of(name: str, positions: Tensor, tokens_of: Tensor, axes: int) -> None:
    """`posenc.positions.checking.check` with a hint where heads and tokens have changed places."""
    heads, tokens = tokens_of.shape[1:3]
    if isinstance(positions, Tensor) and positions.ndim in (1, 2) and axes == 1:
        given = positions.shape[-1]
        if given != tokens and given == heads:  # in this order: exporters keep what is compared
            raise ValueError(f"{name} has {given} tokens, {name[0]} has {tokens}{TRANSPOSE_HINT}")
    position.check(name, positions, tokens, tokens_of.shape[0], axes)


def plain_axes(encodings: Sequence[Encoding], axes: int) -> bool:
    """Whether positions of one coordinate will do, for all that want several: M-RoPE's of text are equal."""
    return axes > 1 and all(encoding.plain_positions for encoding in encodings if encoding.axes > 1)


def is_plain(positions: Tensor | None, tokens_of: Tensor, axes: int) -> bool:
    """Whether these are positions of one coordinate: none, ``(tokens,)`` or ``(batch, tokens)``."""
    if positions is None:
        return True
    if not isinstance(positions, Tensor):
        return False
    shape, tokens = tuple(positions.shape), tokens_of.shape[2]
    coordinates = len(shape) == 2 and shape == (tokens, axes)
    # coordinates first: whether their axes are as many as the tokens would be a guard of an exported graph
    return len(shape) == 1 or (len(shape) == 2 and not coordinates and shape[-1] == tokens)


def plain_positions(
    encodings: Sequence[Encoding],
    q: Tensor,
    k: Tensor,
    q_pos: Tensor | None,
    k_pos: Tensor | None,
    causal: Causal | None,
    axes: int,
) -> tuple[Tensor | None, Tensor | None, Causal | None]:
    """Positions of text, given or default, on all ``axes``, and its order; anything else as it came."""
    if not (plain_axes(encodings, axes) and is_plain(q_pos, q, axes) and is_plain(k_pos, k, axes)):
        return q_pos, k_pos, causal
    if q_pos is None and k_pos is None:
        k_pos = torch.arange(k.shape[2], device=q.device)
        q_pos = k_pos[k.shape[2] - q.shape[2] :] if q.shape[2] <= k.shape[2] else k_pos
    q_pos, k_pos = (None if p is None else on_all_axes(p, axes) for p in (q_pos, k_pos))
    return q_pos, k_pos, True if causal is None else causal


def without_coordinates(positions: Tensor | None, tokens_of: Tensor) -> Tensor | None:
    """Positions that nobody reads, ``(tokens, axes)`` or ``(batch, tokens, axes)`` brought to one coordinate."""
    if not isinstance(positions, Tensor):
        return positions
    batch, tokens, shape = tokens_of.shape[0], tokens_of.shape[2], positions.shape
    rows = positions.ndim == 2 and shape[0] == tokens
    if rows and (tokens == batch or tokens == 1):  # asked first: a compiler keeps whatever sizes are compared
        rows = shape[1] != tokens
    return positions[..., 0] if positions.ndim == 3 or rows else positions


def check_order(q: Tensor, k: Tensor, causal: Causal) -> None:
    """Raise a ValueError where queries cannot be the last of the keys: some would attend to no key."""
    if causal is True and q.shape[2] > k.shape[2]:
        raise ValueError(
            f"q must have no more tokens than k where causal=True, as queries are the last of the keys, got "
            f"{q.shape[2]} on {k.shape[2]}: pass causal=False for attention to another text, or causal='positions' "
            f"with q_pos and k_pos{TRANSPOSE_HINT}"
        )


def check_key_order(
    encodings: Sequence[ScoreEncoding | WeightEncoding], visibility: VisibilityMask, queries: int, keys: int
) -> None:
    """Raise a ValueError where keys are visible by position and an encoding finds tokens by their indices elsewhere.

    This one check reads values: nothing else tells shuffled keys from a half-filled cache. Where they cannot be read,
    under a compiler, the caller sees to the order.
    """
    ordered = [e for e in encodings if e.reads.key_order]
    own = [e for e in encodings if e.reads.own_key]
    if not (ordered or own) or not (has_values(visibility.k_pos) and has_values(visibility.q_pos)):
        return
    if own:
        last = visibility.k_pos[..., max(0, keys - queries) :]
        if queries > keys or not bool((last == visibility.q_pos).all()):
            raise ValueError(
                f"k_pos of the last {queries} keys must be q_pos, as {type(own[0]).__name__} takes them for the "
                "queries: leave out what lies after them, such as empty slots of a cache, and put keys in their order"
            )
    if ordered and not visibility.in_order(queries, keys):
        raise ValueError(
            f"k_pos must grow with the index among the keys that a query attends to, as {type(ordered[0]).__name__} "
            "goes by the order of the tokens: sort keys and values (and x or token_states) by position"
        )


def check_mask(mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """The mask as (batch | 1, heads | 1, queries | 1, keys) bool."""
    if mask is None:
        return None
    batch, heads, queries, keys = q.shape[0], q.shape[1], q.shape[2], k.shape[2]
    if not isinstance(mask, Tensor):
        raise ValueError(f"mask must be a bool tensor {_mask_shapes(queries, keys)}, got {shown(mask)}")
    if mask.dtype != torch.bool:
        hint = "mask >= 0 converts one of 0 and -inf" if mask.is_floating_point() else "mask.bool() converts 0 and 1"
        raise ValueError(f"mask must be bool, True where a query may look, got {mask.dtype}: {hint}")
    shape = tuple(mask.shape)
    if mask.ndim == 2 and shape == (batch, keys) and batch not in (1, queries):
        raise ValueError(
            f"mask must be {_mask_shapes(queries, keys)}; for padding of shape (batch, keys) pass mask[:, None, :]"
        )
    if not 2 <= mask.ndim <= 4:
        raise ValueError(f"mask must be {_mask_shapes(queries, keys)}, got {shape}")
    mask = mask[None, None] if mask.ndim == 2 else mask.unsqueeze(1) if mask.ndim == 3 else mask
    rows, mask_heads, mask_queries, mask_keys = mask.shape
    fits = (rows == 1 or rows == batch) and (mask_heads == 1 or mask_heads == heads)
    if not (fits and (mask_queries == 1 or mask_queries == queries) and mask_keys == keys):
        hint = TRANSPOSE_HINT if mask_keys != keys and mask_keys == k.shape[1] else ""
        raise ValueError(f"mask must be {_mask_shapes(queries, keys)}, got {shape}{hint}")
    return mask.to(q.device)


def _mask_shapes(queries: int, keys: int) -> str:
    """The allowed shapes of a mask; built only for an error: a compiler fixes every size that enters a string."""
    return f"(queries, keys) = ({queries}, {keys}), (batch, queries, keys) or (batch, heads, queries, keys)"


def check_segments(
    segments: Tensor | tuple[Tensor, Tensor] | None, q: Tensor, k: Tensor
) -> tuple[Tensor, Tensor] | None:
    """Segments of queries and of keys, each (batch | 1, tokens)."""
    if segments is None:
        return None
    queries, keys, batch = q.shape[2], k.shape[2], q.shape[0]
    if isinstance(segments, Tensor):
        if segments.ndim not in (1, 2) or segments.shape[-1] != keys or queries > keys:
            hint = TRANSPOSE_HINT if segments.ndim in (1, 2) and segments.shape[-1] == k.shape[1] != keys else ""
            raise ValueError(
                f"segments must be (tokens,) or (batch, tokens) for {keys} keys, whose last {queries} are the queries, "
                f"got {tuple(segments.shape)}; or pass a pair (of queries, of keys){hint}"
            )
        segments = (segments[..., keys - queries :], segments)
    if not isinstance(segments, tuple | list) or len(segments) != 2:
        raise ValueError(f"segments must be a tensor or a pair (of queries, of keys), got {shown(segments)}")
    for name, part, tokens in (("queries", segments[0], queries), ("keys", segments[1], keys)):
        if not isinstance(part, Tensor):
            raise ValueError(f"segments of {name} must be a tensor (*batch, {tokens}), got {shown(part)}")
        fits = part.ndim in (1, 2) and part.shape[-1] == tokens
        if fits and part.ndim == 2:  # by ==, as a compiler's symbols of one size need not be members of one another
            fits = part.shape[0] == 1 or part.shape[0] == batch
        if not fits:
            raise ValueError(f"segments of {name} must be (*batch, {tokens}), got {tuple(part.shape)}")
    q_segments, k_segments = (part.to(q.device) if part.ndim == 2 else part.to(q.device)[None] for part in segments)
    return q_segments, k_segments


def token_states_of(
    encodings: Sequence[Encoding],
    x: Tensor | None,
    token_states: Sequence[Tensor | None] | None,
    k: Tensor,
) -> list[Tensor | None]:
    """What each encoding keeps of the keys' tokens: given, or made from x; None where it keeps nothing."""
    batch, keys = k.shape[0], k.shape[2]
    if token_states is not None:
        if x is not None:
            raise ValueError("token_states and x must not both be given: token_states are what token_state(x) gave")
        if not isinstance(token_states, Sequence) or isinstance(token_states, str):
            raise ValueError(f"token_states must be a list with one entry per encoding, got {shown(token_states)}")
        if len(token_states) != len(encodings):
            raise ValueError(
                f"token_states must hold one entry per encoding ({len(encodings)}), got {len(token_states)}"
            )
        for encoding, entry in zip(encodings, token_states, strict=True):
            if entry is None:
                continue
            if not isinstance(entry, Tensor) or entry.ndim < 3 or entry.shape[2] != keys:
                raise ValueError(
                    f"token_states of {type(encoding).__name__} must be what its token_state(x) gave for these keys, "
                    f"(batch, heads, {keys}, ...) or None, got {shown(entry)}"
                )
        return list(token_states)
    if x is None:
        return [None] * len(encodings)
    if not isinstance(x, Tensor):
        raise ValueError(f"x must be a tensor (batch, keys, dim) = ({batch}, {keys}, dim), got {shown(x)}")
    if x.ndim != 3 or x.shape[:2] != (batch, keys):
        hint = TRANSPOSE_HINT if x.ndim == 3 and x.shape[1] == k.shape[1] != keys else ""
        raise ValueError(f"x must be (batch, keys, dim) = ({batch}, {keys}, dim), got {tuple(x.shape)}{hint}")
    if batch == 0:
        return [None] * len(encodings)
    return [token_state_of(e, x) for e in encodings]


def token_state_of(encoding: Encoding, x: Tensor) -> Tensor | None:
    """What an encoding keeps of tokens ``x`` (batch, tokens, dim)."""
    if not isinstance(encoding, ScoreEncoding):
        return None
    tell_fsdp(encoding)
    return encoding.token_state(x)


def tell_fsdp(encoding: Encoding) -> None:
    """Where FSDP2 shards an encoding by itself, let it gather the parameters for all that attention calls.

    It knows of `forward` alone; others would read parts.
    """
    if not hasattr(encoding, "unshard"):
        return
    from torch.distributed.fsdp import register_fsdp_forward_method  # loaded already: it has sharded the encoding

    for method in ("token_state", "output"):
        if hasattr(encoding, method) and method not in vars(encoding):
            register_fsdp_forward_method(encoding, method)


def lacking_token_state(encoding: ScoreEncoding, token_states: Tensor | None) -> ValueError | None:
    """The error of an encoding that failed in a call without x, though it keeps something of x; None elsewhere."""
    if token_states is not None or type(encoding).token_state is ScoreEncoding.token_state:
        return None
    name = type(encoding).__name__
    return ValueError(
        f"{name} failed without x=..., the layer's input for the keys, of which its token_state(x) keeps some"
    )


def check_window(window: int | None) -> int | None:
    """Raise a ValueError unless a window is a whole number of tokens."""
    if window is not None and (isinstance(window, bool) or not isinstance(window, int) or not 1 <= window <= LONGEST):
        raise ValueError(
            f"window must be an integer from 1 to 2^53, the tokens that a query attends to, got {shown(window)}"
        )
    return window


def check_length(length: int | None) -> int | None:
    """Raise a ValueError unless a declared length is a whole number of tokens."""
    if length is not None and (
        isinstance(length, bool) or not isinstance(length, int | torch.SymInt) or not 1 <= length <= LONGEST
    ):
        raise ValueError(f"length must be an integer from 1 to 2^53, in tokens, got {length!r}")
    return length


def check_tolerance(tolerance: float) -> float:
    """Raise a ValueError unless a tolerance is a share of a row's weight."""
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 <= tolerance < 1:
        raise ValueError(
            f"tolerance must be at least 0 and below 1, a share of each row's weight, got {shown(tolerance)}"
        )
    return float(tolerance)


def check_scale(scale: float | None, head_dim: int) -> float:
    """The factor on q·k; a ValueError unless it is a finite number."""
    if scale is None:
        return float(head_dim**-0.5)
    scalar = type(scale).__module__ == "numpy" and getattr(scale, "ndim", 0) == 0
    number = scale.item() if scalar else scale  # type: ignore[attr-defined]
    if not isinstance(number, bool) and isinstance(number, int | float | torch.SymFloat) and _finite(number):
        return float(number)
    hint = ": multiply q by it" if isinstance(scale, Tensor) else ""
    raise ValueError(f"scale must be a finite number, or None for 1/√head_dim, got {shown(scale)}{hint}")


def _finite(number: float | torch.SymFloat) -> bool:
    try:
        return -math.inf < float(number) < math.inf  # compilers cannot trace math.isfinite of a symbol
    except OverflowError:  # an integer beyond all floats
        return False


def check_softcap(softcap: float | None) -> float | None:
    """Raise a ValueError unless a cap is a positive finite number."""
    if softcap is None:
        return None
    if isinstance(softcap, bool) or not isinstance(softcap, int | float) or not 0 < softcap < math.inf:
        raise ValueError(f"softcap must be a positive finite number, or None for no cap, got {shown(softcap)}")
    return float(softcap)
