"""What score encodings read of a call: products, biases, states of the keys' tokens, sums of gates; validated."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc.encoding import BiasEncoding, Context, no_autocast
from posenc.head_shares import cut_hint
from posenc.heads import by_key_head
from posenc.operators import KERNELS


def wide_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """A linear layer in float32 or better, whatever the precision of the module, of x or of the surroundings."""
    if x.ndim != 3 or x.shape[-1] != weight.shape[1]:
        raise ValueError(f"x must be (batch, tokens, dim = {weight.shape[1]}), got {tuple(x.shape)}")
    wide = torch.promote_types(x.dtype, torch.float32)
    with no_autocast(x.device.type):
        return F.linear(x.to(wide), weight.to(wide), None if bias is None else bias.to(wide))


def log_gates(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """logsigmoid of a linear layer, ``(batch, heads, tokens)``, in float32 or better: of few tokens in one launch."""
    if x.is_cuda and x.ndim == 3 and x.shape[-1] == weight.shape[1] and "log gates" in KERNELS:
        made: Tensor | None = KERNELS["log gates"](x, weight, bias)
        if made is not None:
            return made
    return F.logsigmoid(wide_linear(x, weight, bias).transpose(1, 2))


def token_state_of(name: str, context: Context, sizes: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """`checked_token_state` of a call."""
    return checked_token_state(name, context.token_state, context.k, sizes, dtype)


def checked_token_state(
    name: str, token_states: Tensor | None, k: Tensor, sizes: tuple[int, ...], dtype: torch.dtype
) -> Tensor:
    """What ``token_state`` returned for the keys, ``(batch, heads, keys, ...)``.

    Args:
        name: of the encoding, for messages.
        token_states: what a call has of it.
        k: the keys ``(batch, num_kv_heads, keys, head_dim)``.
        sizes: heads, and what follows the keys.
        dtype: of the result.

    Raises:
        ValueError: naming x and token_states where nothing was kept, or something of another shape.
    """
    if token_states is None:
        raise ValueError(
            f"{name} needs x=..., the layer's input for the keys, or token_states=..., what token_state(x) gave"
        )
    heads, *rest = sizes
    shape = (k.shape[0], heads, k.shape[2], *rest)
    if token_states.ndim != len(shape) or any(a != b for a, b in zip(token_states.shape, shape, strict=True)):
        kept = token_states.shape[1] if token_states.ndim > 1 else 0
        hint = cut_hint(kept, k.shape[1]) if heads == k.shape[1] else ""
        raise ValueError(f"token_states of {name} must be {shape}, got {tuple(token_states.shape)}{hint}")
    return token_states if token_states.dtype == dtype else token_states.to(dtype)


def products(context: Context) -> Tensor:
    """q·k · scale, ``(batch, heads, queries, keys)``."""
    return by_key_head(context.q, context.k.mT) * context.scale


def bias_at(encoding: BiasEncoding, context: Context, dtype: torch.dtype) -> Tensor:
    """The bias of a call in the precision of its scores, ``(batch | 1, heads, queries, keys)``."""
    q_pos, k_pos = context.q_pos, context.k_pos
    if dtype == torch.float64:
        q_pos, k_pos = q_pos.double(), k_pos.double()
    bias: Tensor = encoding(q_pos, k_pos).to(dtype)
    return bias if bias.ndim == 4 else bias.unsqueeze(0)


def sum_of_later_gates(gates: Tensor, seen: Tensor | None) -> Tensor:
    """For each key j, the sum of the gates of seen keys l > j.

    The sum runs from the newest key back, so that it is small where weights are large: its rounding is relative to what
    was forgotten since key j, not since the text began, and needs no float64.

    Args:
        gates: ``(…, queries | 1, keys)``.
        seen: bool, which keys a query sees, broadcast against gates; None: all.
    """
    backwards = gates.flip(-1)
    if seen is not None:
        backwards = torch.where(seen.flip(-1), backwards, 0.0)
    return F.pad(backwards.cumsum(-1).flip(-1), (0, 1))[..., 1:]


def own_index(queries: int, kept: Tensor) -> Tensor:
    """The index of each query among the tokens of ``kept`` (batch, heads, tokens, …): queries are the last of them."""
    return torch.arange(queries, device=kept.device) + (kept.shape[2] - queries)


def check_width(encoding: nn.Module, head_dim: int, q: Tensor) -> None:
    """Raise a ValueError unless queries ``(batch, heads, queries, head_dim)`` are as wide as the encoding is for."""
    if q.shape[-1] != head_dim:
        raise ValueError(f"head_dim of this {type(encoding).__name__} is {head_dim}, got queries of {tuple(q.shape)}")


def check_key_heads(encoding: nn.Module, num_kv_heads: int, k: Tensor) -> None:
    """Raise a ValueError unless keys ``(batch, heads, keys, head_dim)`` have its heads, or repeats of them."""
    if k.shape[1] % num_kv_heads:
        raise ValueError(
            f"num_kv_heads of this {type(encoding).__name__} is {num_kv_heads}, got keys of {tuple(k.shape)}"
            f"{cut_hint(num_kv_heads, k.shape[1])}"
        )
