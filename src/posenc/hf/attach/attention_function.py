"""The attention of a transformers layer with encodings attached: the function and the mask registered as "posenc".

A hook before a layer's attention makes the model's own rotation rotate by nothing (its cos and sin become 1 and 0), and
hands the function what encodings need: positions, what they remember of the layer's input, and keys' own of both.
Nothing is kept between calls, so a layer that is run again in the backward pass (gradient checkpointing) is given the
same. Layers of the model without encodings run as under "sdpa", or eagerly where that cannot serve them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from posenc.backends.call import attention
from posenc.encoding import Encoding, ScoreEncoding
from posenc.hf.attach.cache_adapter import PositionedCache
from posenc.weight.sink import AttentionSink

NAME = "posenc"
_CACHES = ("past_key_values", "layer_past")


class Attached(nn.Module):
    """What one layer's attention has in place of its rotation; its ``posenc`` in the model.

    Args:
        encodings: as `posenc.attention` takes them.
        turned_last: channels at the end of a head that the first rotation rotates; 0: it rotates the first ones.
        before: the attention implementation that the model had.
    """

    def __init__(self, encodings: Sequence[Encoding], *, turned_last: int, before: str | None) -> None:
        super().__init__()
        self.encodings = nn.ModuleList(encodings)
        self.turned_last, self.before = turned_last, before
        self.handle: RemovableHandle | None = None

    def acting(self) -> list[Encoding]:
        """The encodings."""
        return [encoding for encoding in self.encodings if isinstance(encoding, Encoding)]

    def remember(self, x: Tensor) -> list[Tensor | None]:
        """What each encoding must keep of the layer's input ``(batch, tokens, dim)``."""
        return [e.remember(x) if isinstance(e, ScoreEncoding) else None for e in self.acting()]


class Call:
    """What the hook hands to the attention function.

    Attributes:
        attached: encodings.
        positions: of the queries, ``(batch | 1, tokens)``.
        keys: positions and remembered features of the keys.
    """

    def __init__(self, attached: Attached, positions: Tensor, keys: PositionedCache) -> None:
        self.attached, self.positions, self.keys = attached, positions, keys


def prepare(module: nn.Module, args: tuple[Any, ...], given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Before a layer's attention: its rotation rotates by nothing, and the call is handed on."""
    attached = module.posenc
    assert isinstance(attached, nn.Module)
    implementation = module.config._attn_implementation  # type: ignore[union-attr]
    if implementation != NAME:  # as after set_attn_implementation, which would compute without rotation or encodings
        raise ValueError(
            f"attn_implementation is {implementation!r}, and this model's encodings run under {NAME!r} alone: "
            f"model.set_attn_implementation({NAME!r}), or posenc.hf.attach.detach(model) before another"
        )
    positions = given.get("position_ids")
    if positions is None:
        raise ValueError(f"position_ids do not reach {type(module).__name__}, whose encodings need them")
    if "position_embeddings" not in given:
        raise ValueError(f"position_embeddings do not reach {type(module).__name__} by name, so nothing can stop them")
    x = given["hidden_states"] if "hidden_states" in given else args[0]
    keeper = PositionedCache(None, positions, attached.remember(x))  # type: ignore[operator]
    given = {**given, "posenc": Call(attached, positions, keeper)}  # type: ignore[arg-type]
    if given["position_embeddings"] is not None:  # a layer without rotation may get none
        given["position_embeddings"] = _still(given["position_embeddings"])
    for name in _CACHES:
        if given.get(name) is not None:
            keeper.cache, given[name] = given[name], keeper
    return args, given


def _still(table: Any) -> Any:
    """cos and sin of no angle, or their complex number, in the shape of a table."""
    if isinstance(table, tuple | list):
        return tuple(torch.ones_like(one) if n == 0 else torch.zeros_like(one) for n, one in enumerate(table))
    return torch.ones_like(table)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    posenc: Call | None = None,
    **given: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers calls it; returns ``(batch, tokens, heads, width)`` and no weights."""
    if attention_mask is not None and attention_mask.dtype != torch.bool:
        raise ValueError(f"attention_mask must be bool in its four axes, True where seen, got {attention_mask.dtype}")
    if posenc is None:
        if hasattr(module, NAME):
            raise ValueError(f"{type(module).__name__} does not hand its arguments on to its attention function")
        layers = (getattr(module.config, NAME, None) or {}).get("layers", [])
        if getattr(module, "layer_idx", None) in layers:
            raise ValueError(
                "this model was saved with encodings attached, and has none: load it with posenc.hf.attach.load"
            )
        return _plain(module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **given)
    if given.get("position_bias") is not None:
        raise ValueError(f"{type(module).__name__} has a bias of its own, beside which no encodings are attached")
    causal = given.get("is_causal")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    if attention_mask is None and causal and key.shape[2] > query.shape[2] > 1:  # the first call of a fixed cache
        key, value = key[:, :, : query.shape[2]], value[:, :, : query.shape[2]]
    if posenc.keys.positions.shape[-1] < key.shape[2]:
        raise ValueError(f"past_key_values do not reach {type(module).__name__} by name, so positions cannot be kept")
    keys, acting = key.shape[2], posenc.attached.acting()
    features = [None if one is None else one[:, :, :keys] for one in posenc.keys.features]
    sink = given.get("s_aux")
    if sink is not None:
        acting, features = [*acting, _sink(sink)], [*features, None]
    if posenc.attached.turned_last:
        query, key = (x.roll(posenc.attached.turned_last, -1) for x in (query, key))  # scores do not mind the order
    out = attention(
        query, key, value, acting,
        q_pos=_rows(posenc.positions, query), k_pos=_rows(posenc.keys.positions[:, :keys], key), features=features,
        mask=None if attention_mask is None else attention_mask[..., :keys],
        causal=causal, scale=scaling, softcap=given.get("softcap"), dropout=dropout,
    )  # fmt: skip
    return out.transpose(1, 2).contiguous(), None


def _rows(positions: Tensor, x: Tensor) -> Tensor:
    """Positions for all rows at once, where they have the same."""
    return positions[0] if positions.shape[0] == 1 else positions.expand(x.shape[0], -1)


def _sink(logits: Tensor) -> AttentionSink:
    """The model's own sink."""
    sink = AttentionSink(logits.numel(), learned=False)
    sink.logits = logits.view(-1)
    return sink


def _plain(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **given: Any
) -> tuple[Tensor, None]:
    """A layer of the same model that has no encodings attached."""
    if given.get("softcap") is None and given.get("s_aux") is None:
        out, _ = sdpa_attention_forward(module, query, key, value, mask, **given)
        return out, None
    queries, keys = query.shape[2], key.shape[2]
    if mask is None and queries > 1 and getattr(module, "is_causal", True):
        mask = torch.ones(queries, keys, dtype=torch.bool, device=key.device).tril()[None, None]
    if mask is not None:
        hidden = torch.finfo(query.dtype).min
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, hidden)[..., :keys]
    eager = sys.modules[type(module).__module__].eager_attention_forward
    out, _ = eager(module, query, key, value, mask, **given)
    return out, None


def register() -> None:
    """Make "posenc" an attention implementation of transformers.

    `posenc.hf.attach.attach` does it, and no import: without it transformers refuses a saved configuration that names
    this implementation, and so opens no folder with attached encodings as the model that it was before.
    """
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
