"""The attention of a transformers layer with encodings attached: the function and the mask registered as "posenc".

Idea: an attention implementation of transformers sees queries and keys after the model has rotated them, and knows
neither their positions nor the layer's input. So a hook before the layer's attention (`prepare`) does two things:

1. it replaces the model's cos and sin by 1 and 0, so that the model's own rotation rotates by no angle;
2. it passes an `AttachedCall` to the attention function through the layer's keyword arguments: the encodings, the
   queries' positions, and a `PositionedCache` with positions and token states of all keys.

Invariants: nothing is stored between calls, so that gradient checkpointing, which runs a layer again in the backward
pass, computes the same; windows, padding, sinks, caps and scales stay those of the model: its mask arrives as bool
(`register` takes transformers' "sdpa" mask function), and the other options as arguments. Layers without encodings run
as under "sdpa", or eagerly where "sdpa" has no softcap or sinks. An argument that does not arrive is an error: nothing
is guessed, since wrong positions would show only in the loss. Packed documents see each other where the model itself
lets them; a warning says so.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from posenc.attend import attention
from posenc.encoding import Encoding
from posenc.hf.attach.cache_adapter import PositionedCache
from posenc.tracing import tracing
from posenc.validate import token_state_of
from posenc.weight.sink import AttentionSink

NAME = "posenc"
_CACHE_ARGUMENTS = ("cache", "past_key_values", "layer_past")


class NotReachedError(ValueError):
    """An argument that encodings need does not arrive, or not in a form that they take."""


class ReachedError(Exception):
    """Everything has arrived at the layer that was to be reached: ends a trial call."""


class Attached(nn.Module):
    """The encodings that one layer's attention has instead of its rotation; the submodule ``posenc`` of the layer.

    Args:
        encodings: as `posenc.attention` takes them.
        rotated_last: channels at the end of a head that the first rotation rotates; 0: it rotates the first ones.
        before: the attention implementation that the model had.
        given_rotation: whether the model hands cos and sin to the layer, which rotates by them.
    """

    def __init__(
        self, encodings: Sequence[Encoding], *, rotated_last: int, before: str | None, given_rotation: bool
    ) -> None:
        super().__init__()
        self.encodings = nn.ModuleList(encodings)
        self.rotated_last, self.before, self.given_rotation = rotated_last, before, given_rotation
        self.handle: RemovableHandle | None = None
        self.stop_when_reached = False

    def acting(self) -> list[Encoding]:
        """The encodings, typed."""
        return [encoding for encoding in self.encodings if isinstance(encoding, Encoding)]

    def token_state(self, x: Tensor) -> list[Tensor | None]:
        """What each encoding must keep of the layer's input ``(batch, tokens, dim)``."""
        return [token_state_of(e, x) for e in self.acting()]


class AttachedCall:
    """What the hook passes to the attention function.

    Attributes:
        attached: encodings.
        positions: of the queries, ``(batch | 1, tokens)``.
        keys: positions and token states of the keys.
    """

    def __init__(self, attached: Attached, positions: Tensor, keys: PositionedCache) -> None:
        self.attached, self.positions, self.keys = attached, positions, keys


def prepare(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The hook before a layer's attention: disables the model's rotation, and passes on an `AttachedCall`."""
    attached = module.posenc
    assert isinstance(attached, nn.Module)  # an `Attached`, which PEFT's modules_to_save wraps
    implementation = module.config._attn_implementation  # type: ignore[union-attr]
    if implementation != NAME:  # as after set_attn_implementation, which would compute without rotation or encodings
        raise ValueError(
            f"attn_implementation is {implementation!r}, and this model's encodings run under {NAME!r} alone: "
            f"model.set_attn_implementation({NAME!r}), or posenc.hf.attach.detach(model) before another"
        )
    positions = kwargs.get("position_ids")
    if positions is None:
        raise NotReachedError(f"position_ids do not reach {type(module).__name__}, whose encodings need them")
    if positions.ndim != 2:
        raise NotReachedError(
            f"position_ids reach {type(module).__name__} with {positions.ndim} axes; encodings take (batch, tokens)"
        )
    if attached.given_rotation and "position_embeddings" not in kwargs:
        raise NotReachedError(
            f"position_embeddings do not reach {type(module).__name__} by name, so nothing can stop them"
        )
    x = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
    keys = PositionedCache(None, positions, attached.token_state(x))  # type: ignore[operator]
    kwargs = {**kwargs, "posenc": AttachedCall(attached, positions, keys)}  # type: ignore[arg-type]
    if kwargs.get("position_embeddings") is not None:  # a layer without rotation may get none
        kwargs["position_embeddings"] = _no_rotation(kwargs["position_embeddings"])
    for name in _CACHE_ARGUMENTS:
        if kwargs.get(name) is not None:
            keys.cache, kwargs[name] = kwargs[name], keys
    return args, kwargs


def _no_rotation(table: Any) -> Any:
    """cos and sin of angle 0, or their complex number, in the shape of a table."""
    if isinstance(table, tuple | list):
        cos, *sin = table
        return (torch.ones_like(cos), *map(torch.zeros_like, sin))
    return torch.ones_like(table)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    posenc: AttachedCall | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers calls it; returns ``(batch, tokens, heads, width)`` and no weights."""
    if attention_mask is not None and attention_mask.dtype != torch.bool:
        raise NotReachedError(
            f"attention_mask must be bool in its four axes, True where seen, got {attention_mask.dtype}"
        )
    if posenc is None:
        if hasattr(module, NAME):
            raise NotReachedError(f"{type(module).__name__} does not hand its arguments on to its attention function")
        if getattr(module, "layer_idx", None) in _layers(module):
            raise ValueError(
                "this model was saved with encodings attached, and has none: load it with posenc.hf.attach.load"
            )
        return _without_encodings(
            module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **options
        )
    if options.get("position_bias") is not None:
        raise NotReachedError(f"{type(module).__name__} has a bias of its own, with which encodings cannot be combined")
    if posenc.attached.stop_when_reached:
        raise ReachedError
    causal = options.get("is_causal")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    if attention_mask is None and causal and key.shape[2] > query.shape[2] > 1:
        # The first call with a cache of fixed size: keys after the queries' own are still empty, and transformers
        # passes no mask.
        key, value = key[:, :, : query.shape[2]], value[:, :, : query.shape[2]]
    if posenc.keys.positions.shape[-1] < key.shape[2]:
        raise ValueError(f"the cache does not reach {type(module).__name__} by name, so positions cannot be kept")
    if getattr(module, "layer_idx", None) == min(_layers(module), default=None) and not tracing():  # once a call
        _warn_of_packing(module, posenc.positions, attention_mask, key.shape[2])
    keys, acting = key.shape[2], posenc.attached.acting()
    token_states = [None if state is None else state[:, :, :keys] for state in posenc.keys.token_states]
    sink = options.get("s_aux")
    if sink is not None:
        acting, token_states = [*acting, _sink(sink)], [*token_states, None]
    if posenc.attached.rotated_last:  # dot products do not depend on the order of channels
        query, key = (x.roll(posenc.attached.rotated_last, -1) for x in (query, key))
    out = attention(
        query, key, value, acting,
        q_pos=_rows(posenc.positions, query), k_pos=_rows(posenc.keys.positions[:, :keys], key),
        token_states=token_states, mask=None if attention_mask is None else attention_mask[..., :keys],
        causal=causal, scale=scaling, softcap=options.get("softcap"), dropout=dropout,
    )  # fmt: skip
    return out.transpose(1, 2).contiguous(), None


def _layers(module: nn.Module) -> list[int]:
    """The numbers of the layers that have encodings, by the model's configuration."""
    layers: list[int] = (getattr(module.config, NAME, None) or {}).get("layers", [])
    return layers


def _warn_of_packing(module: nn.Module, positions: Tensor, mask: Tensor | None, keys: int) -> None:
    """Warn where positions start again within a row and its documents see each other.

    The mask is the model's: transformers keeps documents apart in some calls, and not in others.
    """
    begins = positions[:, 1:] <= positions[:, :-1]
    if keys != positions.shape[1] or not bool(begins.any()):
        return
    if mask is not None:  # whether the first token of a document, padding apart, sees the last one of another
        diagonal, before = mask[:, 0].diagonal(0, 1, 2)[:, 1:], mask[:, 0].diagonal(-1, 1, 2)
        begins = begins & diagonal & before
    if bool(begins.any()):
        warnings.warn(
            f"position_ids start again within a row, and {type(module).__name__} lets the documents of the row see "
            "each other, as it does without encodings attached: give use_cache=False and no attention_mask, with "
            "which transformers tells them apart by their positions, or a mask (batch, 1, tokens, tokens)",
            stacklevel=2,
        )


def _rows(positions: Tensor, x: Tensor) -> Tensor:
    """Positions for all rows at once, where they have the same."""
    return positions[0] if positions.shape[0] == 1 else positions.expand(x.shape[0], -1)


def _sink(logits: Tensor) -> AttentionSink:
    """The model's own sink."""
    sink = AttentionSink(logits.numel(), learned=False)
    sink.logits = logits.view(-1)
    return sink


def _without_encodings(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """A layer of the same model that has no encodings attached."""
    if options.get("softcap") is None and options.get("s_aux") is None:
        out, _ = sdpa_attention_forward(module, query, key, value, mask, **options)
        return out, None
    queries, keys = query.shape[2], key.shape[2]
    if mask is None and queries > 1 and getattr(module, "is_causal", True):
        mask = torch.ones(queries, keys, dtype=torch.bool, device=key.device).tril()[None, None]
    if mask is not None:
        hidden = torch.finfo(query.dtype).min
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, hidden)[..., :keys]
    eager = sys.modules[type(module).__module__].eager_attention_forward
    out, _ = eager(module, query, key, value, mask, **options)
    return out, None


def register() -> None:
    """Make "posenc" an attention implementation of transformers.

    `posenc.hf.attach.attach` does it, and no import: without it transformers refuses a saved configuration that names
    this implementation, and so opens no folder with attached encodings as the model that it was before.
    """
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
