"""PyTorch's fused kernels, fed so that nothing of size length × length is built where that can be avoided.

no bias, plain order      the kernel's own causal flag, or no mask
packed documents          on a GPU, by their edges, where `segments_from_cu_seqlens` made their numbers
a window                  blocks of queries with the keys visible to any of them
anything else             blocks of queries, each with its own mask and bias; in training a block is
                          recomputed in the backward pass, so that only one lives at a time

Kernels that hide keys before they multiply by the scale give NaN where that is not positive: its sign goes to the
queries. Dropout is the kernels' own, with their own masks; CPU kernels have none. A sink needs the log-sum-exp, which
the kernels do not give.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend

from posenc.backends.derivatives import beyond_fused_kernels, only_plain_operations
from posenc.backends.rows import by_blocks
from posenc.call import AttentionCall
from posenc.positions.checking import Edges, edges_of
from posenc.tracing import exporting, tracing, transformed

BLOCK, NARROW = 512, 256  # queries that share one mask; under a window
GPU = "cuda"
_flash = torch.ops.aten._scaled_dot_product_flash_attention
_CUDNN = int(SDPBackend.CUDNN_ATTENTION.value)
FEW = 16  # queries of a step: a mask may be repeated for each head of a group


def refuses(call: AttentionCall) -> str | None:
    """Why fused kernels should not serve this call, or None."""
    if call.dropout is not None and not call.q.is_cuda:
        return "off a GPU it builds every score of a call with dropout"
    return refuses_by_name(call)


def refuses_by_name(call: AttentionCall) -> str | None:
    """Why fused kernels cannot serve this call even where they were asked for by name, or None."""
    if call.weight is not None:
        return f"{type(call.weight).__name__} changes softmax, which is inside the kernels"
    if call.score:
        names = ", ".join(type(encoding).__name__ for encoding in call.score)
        return f"{names} must see the scores, which never leave the kernels"
    if call.softcap is not None:
        return "softcap changes the scores, which never leave the kernels"
    if call.dropout is not None and call.dropout.p == 1:
        return "kernels divide by what dropout leaves, which is nothing"
    if not transformed():
        return None
    reason = only_plain_operations(call)
    if reason is not None and any(True for bias in call.bias for _ in bias.parameters()):
        return reason  # they would not see that a bias wants gradients
    return beyond_fused_kernels(call)


def adds_nothing(call: AttentionCall) -> bool:
    """Whether attention is softmax of the products of queries and keys, whatever hides keys."""
    terms = len(call.bias) + len(call.score)  # torch 2.14's compiler cannot negate a tuple
    return terms == 0 and call.softcap is None and call.weight is None


def needs_no_mask(call: AttentionCall) -> bool:
    """Whether nothing is added to the scores and the kernel's own flag, or no mask, says what is visible."""
    if call.bias or call.score or call.weight is not None or call.softcap is not None:
        return False
    if call.window is not None or not call.ordered:
        return False
    return not call.causal or call.q.shape[2] == 1 or call.q.shape[2] == call.k.shape[2]


def packed_edges(call: AttentionCall) -> Edges | None:
    """Edges of the documents of one packed row, where a GPU's kernel takes them and they alone hide keys."""
    if call.segments is None or call.q.device.type != GPU or tracing() or transformed():
        return None
    (batch, _, queries, width), keys = call.q.shape, call.k.shape[2]
    if batch > 1 or queries != keys or call.mask is not None or call.causal == "positions":
        return None
    if not adds_nothing(call) or call.dropout is not None or width != call.v.shape[-1]:
        return None
    of_queries, of_keys = (edges_of(part) for part in call.segments)
    fits = of_keys is not None and of_queries is of_keys and _flash_takes(call.q, call.k, call.v)
    return of_keys if fits and _varlen() is not None else None


def has_short_window(call: AttentionCall) -> bool:
    """Whether a window by the order of the indices is all that hides keys, and far shorter than the text."""
    return call.window is not None and call.ordered and 4 * call.window <= call.k.shape[2]


def strategy(call: AttentionCall) -> str:
    """How this backend goes about the call, in words."""
    if packed_edges(call) is not None:
        return "FlashAttention of documents by their edges"
    if needs_no_mask(call):
        return "causal flag of the kernel" if call.causal and call.q.shape[2] > 1 else "no mask"
    if has_short_window(call):
        return f"blocks of {NARROW} queries, each with the keys that its window shows"
    return f"mask and bias by blocks of {BLOCK if call.window is None else NARROW} queries"


def run(call: AttentionCall) -> Tensor:
    """Attention by fused kernels, ``(batch, heads, queries, value_dim)``."""
    q, k, v = call.q, call.k, call.v
    value_dim = v.shape[-1]
    if call.scale <= 0:
        q = q * (-1.0 if call.scale < 0 else 0.0)
        call = call.replace(q=q, scale=-call.scale or 1.0)
    if value_dim != q.shape[-1]:  # unequal widths would leave the fused kernels
        if value_dim < q.shape[-1]:
            v = F.pad(v, (0, q.shape[-1] - value_dim))
        else:
            q, k = (F.pad(t, (0, value_dim - t.shape[-1])) for t in (q, k))
        call = call.replace(q=q, k=k, v=v)
    edges = packed_edges(call)
    if edges is not None:
        out = _by_documents(call, edges)
    elif needs_no_mask(call):
        flag = False
        if call.causal and q.shape[2] > 1:  # a branch, as under dynamic sizes ``and`` gives a symbol, which is no bool
            flag = True
        out = kernel(q, k, v, None, flag, call.scale, 0.0 if call.dropout is None else call.dropout.p)
    else:
        out = _by_blocks(call)
    if exporting():  # what an exporter takes the kernel apart into has other strides than it
        out = out.clone(memory_format=torch.contiguous_format)
    return out[..., :value_dim] if out.shape[-1] != value_dim else out


def kernel(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float | None,
    dropped: float,
) -> Tensor:
    """The fused kernel.

    On a CPU, and under a mask, heads that share keys become rows where queries are few: each key is loaded only once.
    On a GPU few queries never go to cuDNN, which plans a graph anew for each number of keys: 20 to 40 ms a step.
    """
    if mask is not None and _is_wide(mask, q) and not _takes_wide_mask(q, k, v, mask, dropped, scale):
        return kernel(q.to(mask.dtype), k.to(mask.dtype), v.to(mask.dtype), mask, causal, scale, dropped).to(q.dtype)
    (batch, heads, queries), num_kv_heads = q.shape[:3], k.shape[1]
    on_gpu = q.device.type == GPU
    few_on_gpu = on_gpu and queries <= FEW and dropped == 0
    if few_on_gpu and mask is None and _flash_takes(q, k, v):
        by_flash: Tensor = _flash(q, k, v, 0.0, causal, scale=scale)[0]
        return by_flash
    shared = True if heads != num_kv_heads else False  # noqa: SIM210  a branch, as for the causal flag in `run`
    as_rows = shared and _few(queries, mask) and not (on_gpu and mask is None)
    if as_rows:
        group = heads // num_kv_heads
        if mask is not None and mask.shape[1] == heads:
            mask = mask.reshape(mask.shape[0], num_kv_heads, group * queries, mask.shape[3])
        elif mask is not None and queries > 1:
            mask = mask.expand(-1, group, queries, -1).reshape(mask.shape[0], 1, group * queries, mask.shape[3])
        q, shared = q.reshape(batch, num_kv_heads, group * queries, q.shape[3]), False
    if few_on_gpu and mask is not None and not shared and _efficient_takes(q, k, v):
        out = _efficient(q, k, v, mask, scale)
    else:
        out = F.scaled_dot_product_attention(q, k, v, mask, dropped, causal, scale=scale, enable_gqa=shared)
    return out.reshape(batch, heads, queries, v.shape[3]) if as_rows else out


def _by_documents(call: AttentionCall, edges: Edges) -> Tensor:
    """Documents of one row, none of which sees another."""
    q, k, v = (x[0].transpose(0, 1) for x in (call.q, call.k, call.v))
    behind = -1 if call.window is None else call.window - 1
    ahead = 0 if call.causal else behind
    cumulative, longest, _ = edges
    most = min(len(q), 1 << (longest - 1).bit_length())  # few sizes, for each of which cuDNN makes a plan
    attend = _varlen()
    assert attend is not None, "packed_edges has asked"
    out: Tensor = attend(
        q, k, v, cumulative, cumulative, most, most, scale=call.scale, window_size=(behind, ahead),
        enable_gqa=q.shape[1] != k.shape[1],
    )  # fmt: skip
    return out.transpose(0, 1)[None]


@functools.cache
def _varlen() -> Callable[..., Any] | None:
    """PyTorch's attention of packed documents; older forms of it take neither a scale nor shared key heads."""
    if find_spec("torch.nn.attention.varlen") is None:
        return None
    from torch.nn.attention.varlen import varlen_attn  # here, as it takes a second to load

    wanted = {"scale", "window_size", "enable_gqa"}
    return varlen_attn if wanted <= inspect.signature(varlen_attn).parameters.keys() else None


def _flash_takes(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether FlashAttention's kernel, which shares the keys of one query out to all processors, takes such heads."""
    fits = q.dtype in (torch.bfloat16, torch.float16) and q.shape[-1] % 8 == 0 and q.shape[-1] <= 256
    return fits and _in_rows(q, k, v) and _has_flash(q.device)


def _efficient_takes(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the memory-efficient kernel takes such heads: rows of 16 bytes."""
    fits = q.dtype != torch.float64 and q.shape[-1] * q.element_size() % 16 == 0
    return fits and _in_rows(q, k, v) and _has_efficient()


def _in_rows(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether channels lie next to each other, and there are keys; kernels that are called by name do not ask."""
    return k.shape[2] > 0 and q.stride(-1) == 1 and k.stride(-1) == 1 and v.stride(-1) == 1


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _has_flash(device: torch.device) -> bool:
    """Whether PyTorch has this kernel for a GPU, of NVIDIA and compute capability 8 or newer, and may choose it."""
    if torch.version.hip is not None or not torch.backends.cuda.is_flash_attention_available():
        return False
    enabled = bool(torch.backends.cuda.flash_sdp_enabled())  # type: ignore[no-untyped-call]
    return enabled and torch.cuda.get_device_capability(device) >= (8, 0)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _has_efficient() -> bool:
    enabled = bool(torch.backends.cuda.mem_efficient_sdp_enabled())  # type: ignore[no-untyped-call]
    return enabled and torch.version.hip is None


def _efficient(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float | None) -> Tensor:
    """The memory-efficient kernel with a mask that broadcasts, whose rows it wants to lie 16 numbers apart."""
    if mask.dtype == torch.bool:
        mask = mask.to(q.dtype).log()  # 0 and −inf in two kernels
    keys = mask.shape[-1]
    if keys % 16:
        mask = F.pad(mask, (0, -keys % 16))[..., :keys]
    mask = mask.expand(*q.shape[:3], keys)
    learns = torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v, mask))
    out: Tensor = torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, mask, learns, scale=scale)[0]
    return out


def _is_wide(mask: Tensor, q: Tensor) -> bool:
    """Whether a mask of numbers has more digits than queries on a GPU."""
    return mask.dtype not in (torch.bool, q.dtype) and q.device.type == GPU


def _takes_wide_mask(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, dropped: float, scale: float | None) -> bool:
    """Whether the kernel that PyTorch will choose adds a float32 mask to products of 16 bits: cuDNN's alone does.

    The others want a mask of the dtype of q, which would keep 8 of its bits: ALiBi at −100 is off by 0.25. Queries,
    keys and values of float32 lose nothing. A mask that wants a gradient leaves cuDNN out, and so do few queries.
    """
    if tracing() or q.shape[2] <= FEW or (mask.requires_grad and torch.is_grad_enabled()):
        return False
    shared = q.shape[1] != k.shape[1]
    choice = torch._fused_sdp_choice(q, k, v, mask, dropped, False, scale=scale, enable_gqa=shared)
    return choice == _CUDNN


def _few(queries: int, mask: Tensor | None) -> bool:
    """Whether the heads of a group may become rows; one choice for all lengths under a compiler, but for one query."""
    return queries == 1 or (mask is not None and not torch.compiler.is_compiling() and queries <= FEW)


def _by_blocks(call: AttentionCall) -> Tensor:
    queries, rows = call.q.shape[2], BLOCK if call.window is None else NARROW
    if torch.compiler.is_compiling() or queries <= rows:
        return _block(call, 0, queries)  # a compiler would unroll the loop anew for each length
    small = has_short_window(call) and not call.bias  # masks of all blocks are no matrix
    return by_blocks(call, rows, _block, anew=call.training and not small and only_plain_operations(call) is None)


def _block(call: AttentionCall, start: int, stop: int) -> Tensor:
    """Queries ``start … stop − 1`` against the keys that index order and a window leave visible to any."""
    first, last = _in_sight(call, start, stop)
    bias, mask = call.bias_of(start, stop), call.visible(start, stop, first, last)
    bias = bias if bias is None else bias[..., first:last]
    added, unseen = bias, None
    if mask is not None:
        if not call.ordered or call.causal is False:  # else every query attends to its own key
            unseen = ~mask.any(-1, keepdim=True)
            mask = mask | unseen  # a row without keys looks everywhere, and its result is put to zero below
        added = mask if bias is None else bias.masked_fill(~mask, -math.inf)
    q = call.q[:, :, start:stop]
    if unseen is not None:  # nor are its scores any but 0: kernels make nothing finite of huge ones
        q = q.masked_fill(unseen, 0.0)
    k, v = call.k[:, :, first:last], call.v[:, :, first:last]
    out = kernel(q, k, v, added, False, call.scale, 0.0 if call.dropout is None else call.dropout.p)
    return out if unseen is None else out.masked_fill(unseen, 0.0)


def _in_sight(call: AttentionCall, start: int, stop: int) -> tuple[int, int]:
    """First and last + 1 of these keys; at least one."""
    queries, keys = call.q.shape[2], call.k.shape[2]
    if call.causal == "positions" or torch.compiler.is_compiling():
        return 0, keys
    first, last, ahead = 0, keys, keys - queries
    if call.causal is True:
        last = max(1, min(keys, stop + ahead))
    if call.window is not None:
        first = min(max(0, start + ahead - call.window + 1), last - 1)
        last = max(first + 1, min(last, stop + ahead + call.window - 1))
    return first, last
