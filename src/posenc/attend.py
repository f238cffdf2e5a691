"""The front door: `attention` and `explain_backend`, one call by the fastest backend that is exact.

    validate, rotate (`call.prepare_call`) → take into q and k what can move there (`backends.rewrites`)
        → choose a backend (`choose`, by the order of `preferred`) → its ``run``

Where nothing is added to the scores, PyTorch's fused kernel is the fastest, and needs at most its causal flag. On a GPU
kernels in Triton serve the rest. On a CPU tiles serve it, but for two cases: a mask alone, up to `MASKED` keys, costs
the fused kernel less; and up to `SHORT` keys, or `FEW` queries, the whole matrix of scores is small enough to be built.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Unpack

from torch import Tensor, nn

from posenc.backends import BACKENDS, Backend, ranged
from posenc.backends.rewrites import rewritten
from posenc.backends.sdpa import FEW as STEP
from posenc.backends.sdpa import adds_nothing, has_short_window, needs_no_mask, packed_edges
from posenc.call import AttentionCall, AttentionOptions, prepare_call
from posenc.dtypes import no_autocast
from posenc.tracing import tracing
from posenc.validate import Causal, as_list, suggests_argument_names, tell_fsdp

# In which order backends are asked; the first that does not refuse serves. On a CPU triton and flex refuse every call.
PLAIN = ("sdpa", "triton", "flex", "tiled", "rows", "dense")  # nothing is added to the scores
TERMS = ("triton", "flex", "tiled", "sdpa", "rows", "dense")  # something is, or a long mask
STEP_ON_GPU = ("triton", "sdpa", "flex", "tiled", "rows", "dense")  # few queries under a mask: ten operations to sdpa
SHORT_TRAINING = ("triton", "flex", "dense", "tiled", "sdpa", "rows")
SHORT_OR_FEW = ("sdpa", "dense")
RANGES = ("ranged", "rows", "dense")

# Keys, measured on one core of a CPU at 8 heads of 64 channels in float32, at 64, 128, 256, … keys: √2 times the last
# of these lengths at which the order was the fastest.
SHORT, MASKED = 90, 362
FEW = 4  # queries


@suggests_argument_names
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encodings: Iterable[nn.Module] = (),
    *,
    q_pos: Tensor | None = None,
    k_pos: Tensor | None = None,
    x: Tensor | None = None,
    token_states: Sequence[Tensor | None] | None = None,
    mask: Tensor | None = None,
    segments: Tensor | tuple[Tensor, Tensor] | None = None,
    causal: Causal | None = None,
    scale: float | None = None,
    length: int | None = None,
    window: int | None = None,
    tolerance: float = 0.0,
    backend: Backend = "auto",
    softcap: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Scaled dot-product attention under any list of positional encodings; the empty list is NoPE.

    Args:
        q: ``(batch, heads, queries, head_dim)``.
        k: ``(batch, num_kv_heads, keys, head_dim)``; heads a multiple of num_kv_heads (grouped-query attention).
        v: ``(batch, num_kv_heads, keys, value_dim)``.
        encodings: rotary, bias, score and weight encodings, as any iterable, also an ``nn.ModuleList``. Those of one
            hook point act in this order.
        q_pos, k_pos: positions ``(*batch, tokens)``; default keys 0 … n − 1 and queries the last of them.
            One of them may be left out where queries and keys are the same tokens.
        x: the layer's input for the keys, ``(batch, keys, dim)``, for encodings that read it.
        token_states: instead of x, what each encoding's ``token_state(x)`` returned, one entry per encoding.
        mask: bool, True where a query may attend: ``(queries, keys)``, ``(batch, queries, keys)`` or
            ``(batch, heads, queries, keys)``, sizes of 1 broadcast, except for keys. Padding: ``mask[:, None, :]``.
        segments: the document of each token of packed sequences, ``(*batch, keys)``, or a pair for queries and keys; a
            query attends only to keys of its own document.
        causal: True: query i attends to keys up to index i + keys − queries. ``"positions"``: keys whose position is
            not after its own, wherever they lie in memory (sharded, shuffled or half-filled keys); encodings that go by
            the order of tokens (forget gates, stick-breaking, CoPE, PaTH, …) refuse shuffled keys. False: all.
            None: True; an error for positions of two or more coordinates, as in images: state it there.
        scale: factor on q·k, default 1/√head_dim.
        length: sequence length, tokens, for rotations that depend on it (dynamic NTK, LongRoPE, CLEX, …). Default: the
            last visible position + 1 of each sequence, or document. That default is not causal: earlier tokens'
            rotation changes as the sequence grows.
        window: tokens that a query attends to, its own included: keys less than this many tokens away, by index, or by
            position with ``causal="positions"``. None: all.
        tolerance: share of a query's weight that backends may leave out where weights decay with the distance
            (stick-breaking, forget gates); 0: only what float rounding would lose anyway.
        backend: ``"auto"``, or a backend by name (`explain_backend` lists them), which raises where it cannot run.
        softcap: q·k · scale becomes softcap · tanh(q·k · scale / softcap), before anything is added (Gemma 2: 50).
        dropout: probability of dropping a weight; the others are divided by 1 − dropout. It applies whenever it is not
            0, as in PyTorch's own function: pass it in training only.

    Returns:
        ``(batch, heads, queries, value_dim)`` in the dtype of q. A query that attends to no key gets zeros. Hidden keys
        and values have no influence, but must be finite, as for PyTorch's own kernels: 0 · NaN is NaN.

    Raises:
        ValueError: for anything that does not fit; the message names the argument.

    >>> from posenc import ALiBi, RoPE
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [RoPE(64), ALiBi(8)]).shape
    torch.Size([1, 8, 16, 64])
    """
    acting = as_list(encodings)
    options: AttentionOptions = {
        "q_pos": q_pos, "k_pos": k_pos, "x": x, "token_states": token_states, "mask": mask, "segments": segments,
        "causal": causal, "scale": scale, "length": length, "window": window, "tolerance": tolerance,
        "softcap": softcap, "dropout": dropout,
    }  # fmt: skip
    with no_autocast(q.device.type if isinstance(q, Tensor) else "cpu"):
        call = prepare_call(q, k, v, acting, **options)
        if q.shape[0] == 0 or q.shape[2] == 0:
            check_backend(backend)
            return v.new_zeros(*q.shape[:3], v.shape[3])
        watched = hooked(call) if call.bias or call.score or call.weight is not None else None
        if call.score and backend != "dense" and watched is None:
            call = rewritten(call)
        chosen = choose(call, backend, watched)
        if call.dropout is not None:
            call = call.replace(dropout=call.dropout.with_seed(q.device))
        return BACKENDS[chosen].run(call)


def choose(call: AttentionCall, backend: str, watched: str | None) -> str:
    """The name of the backend that will run, ``watched`` by `hooked`; a ValueError where the wanted one refuses."""
    if watched is not None and backend in ("auto", "dense"):
        return "dense"
    if watched is not None and backend in BACKENDS:
        raise ValueError(f"backend {backend!r} cannot serve this call: {watched}")
    if backend == "auto":
        for name in preferred(call):
            if BACKENDS[name].refuses(call) is None:
                return name
    check_backend(backend)
    reason = BACKENDS[backend].refuses_by_name(call)
    if reason is not None:
        raise ValueError(f"backend {backend!r} cannot serve this call: {reason}; backend='auto' chooses one")
    return backend


def preferred(call: AttentionCall) -> tuple[str, ...]:
    """The names of backends, best first."""
    if needs_no_mask(call) or packed_edges(call) is not None:
        return PLAIN
    on_cpu, queries = call.q.is_cpu, call.q.shape[2]
    if not on_cpu and queries <= STEP and adds_nothing(call):
        return STEP_ON_GPU
    if tracing():  # a graph serves all lengths, but for one query, which has a graph of its own
        return PLAIN if queries == 1 and on_cpu else TERMS
    if on_cpu:
        return _preferred_on_cpu(call)
    return RANGES if ranged.refuses(call) is None else TERMS


def _preferred_on_cpu(call: AttentionCall) -> tuple[str, ...]:
    """The same on a CPU, for calls that add something to the scores or need a mask."""
    queries, keys = call.q.shape[2], call.k.shape[2]
    if has_short_window(call) and not call.bias and BACKENDS["sdpa"].refuses(call) is None:
        return PLAIN
    if queries <= STEP and ranged.ranges_of(call) is None:
        return SHORT_OR_FEW if queries <= FEW or keys <= SHORT else PLAIN
    if ranged.refuses(call) is None:
        return RANGES
    if call.score or call.softcap is not None or call.replaces_softmax:
        return SHORT_TRAINING if keys <= SHORT and call.training else TERMS
    if not call.bias:
        return PLAIN if keys <= MASKED else TERMS
    if keys <= SHORT:
        return SHORT_TRAINING if call.training else PLAIN
    return PLAIN if call.axes > 1 and not call.training else TERMS  # measured by benchmarks/grids.py


def hooked(call: AttentionCall) -> str | None:
    """Why only the definition serves a call whose encodings somebody watches; None where nobody does."""
    for encoding in (*call.bias, *call.score, *([] if call.weight is None else [call.weight])):
        for module in encoding.modules():
            if (
                module._forward_hooks
                or module._forward_pre_hooks
                or module._backward_hooks
                or module._backward_pre_hooks
            ):
                tell_fsdp(encoding)
                return f"the definition alone calls {type(encoding).__name__} as a module, which its hooks wait for"
    return None


def check_backend(backend: str) -> None:
    """Raise a ValueError unless a backend is known."""
    if not isinstance(backend, str) or backend not in ("auto", *BACKENDS):
        raise ValueError(f"backend must be one of {('auto', *BACKENDS)}, got {backend!r}")


class Explanation(NamedTuple):
    """The backend that a call would use, and the reasons against the others. Print it."""

    backend: str
    how: str
    refused: dict[str, str]

    def __str__(self) -> str:
        lines = [f"backend {self.backend}: {self.how}"]
        lines += [f"not {name}: {reason}" for name, reason in self.refused.items()]
        return "\n".join(lines)


@suggests_argument_names
def explain_backend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encodings: Iterable[nn.Module] = (),
    *,
    backend: Backend = "auto",
    **options: Unpack[AttentionOptions],
) -> Explanation:
    """Say which backend `attention` would choose for the same arguments, and why not the others.

    >>> from posenc import ALiBi
    >>> q, k, v = torch.randn(3, 1, 8, 1024, 64)
    >>> print(explain_backend(q, k, v, [ALiBi(8)]))  # doctest: +ELLIPSIS
    backend tiled: blocks of queries under a bias by distance, computed anew in the backward pass
    not triton: its kernels were made for NVIDIA's GPUs
    not flex: off a GPU it builds every score
    not sdpa: not asked for
    ...
    """
    acting = as_list(encodings)
    call = prepare_call(q, k, v, acting, **options)
    watched = hooked(call)
    if call.score and watched is None:
        call = rewritten(call)
    chosen = choose(call, backend, watched)
    refused = {}
    for name, functions in BACKENDS.items():
        if name != chosen and watched is not None:
            refused[name] = watched
        elif name != chosen:
            default = "slower: it builds every score" if name == "dense" else "not asked for"
            refused[name] = functions.refuses(call) or default
    return Explanation(chosen, BACKENDS[chosen].strategy(call), refused)
