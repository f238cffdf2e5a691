"""Attention of GPT-J and Falcon, which transformers computes within a layer's forward, through the attention function.

Their modules call no attention implementation, and rotate on their own (GPT-J with neighbouring channels, from a table
of its own; Falcon by halves, or with ALiBi in its mask). `attach` gives these modules a subclass whose forward has the
same projections, no rotation and no ALiBi, and hands the rest to `attention_function.attend`; `detach` gives them their
class back. All layers change together: their own forwards would add the bool mask of the others to their logits.

Source: GPTJAttention and FalconAttention in modeling_gptj.py and modeling_falcon.py of transformers 5.23.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Attend = Callable[..., tuple[Tensor, None]]


def _gptj(attend: Attend) -> Callable[..., tuple[Tensor, None]]:
    def forward(
        self: Any, hidden_states: Tensor, layer_past: Any = None, attention_mask: Tensor | None = None,
        cache: Any = None, **kwargs: Any,
    ) -> tuple[Tensor, None]:  # fmt: skip
        query, key, value = (
            projection(hidden_states).unflatten(-1, (self.num_attention_heads, self.head_dim)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        held = layer_past if cache is None else cache
        if held is not None:
            key, value = held.update(key, value, self.layer_idx)
        probability = self.attn_dropout.p if hasattr(self, "attn_dropout") else self.attention_dropout
        dropout = probability if self.training else 0.0
        out, _ = attend(
            self, query, key, value, attention_mask, scaling=self.head_dim**-0.5, dropout=dropout,
            posenc=kwargs.get("posenc"),
        )  # fmt: skip
        return self.resid_dropout(self.out_proj(out.flatten(2))), None

    return forward


def _falcon(attend: Attend) -> Callable[..., tuple[Tensor, None]]:
    def forward(
        self: Any, hidden_states: Tensor, alibi: Tensor | None = None, attention_mask: Tensor | None = None,
        layer_past: Any = None, **kwargs: Any,
    ) -> tuple[Tensor, None]:  # fmt: skip
        query, key, value = (x.transpose(1, 2) for x in self._split_heads(self.query_key_value(hidden_states)))
        if layer_past is not None:
            key, value = layer_past.update(key, value, self.layer_idx)
        if attention_mask is not None and attention_mask.is_floating_point():
            # ALiBi's bias where a token is visible, the least number of the dtype elsewhere, for every head alike.
            attention_mask = attention_mask[:, :1] > torch.finfo(attention_mask.dtype).min / 2
        dropout = self.attention_dropout.p if self.training else 0.0
        out, _ = attend(
            self, query, key, value, attention_mask, scaling=self.inv_norm_factor, dropout=dropout,
            posenc=kwargs.get("posenc"),
        )  # fmt: skip
        return self.dense(out.flatten(2)), None

    return forward


_FORWARDS: dict[str, Callable[[Attend], Callable[..., tuple[Tensor, None]]]] = {
    "GPTJAttention": _gptj,
    "FalconAttention": _falcon,
}
MODEL_TYPES = ("gptj", "falcon")


def is_inline(module: nn.Module) -> bool:
    """Whether a module computes its attention itself, and has a subclass here that does not."""
    return type(module).__name__ in _FORWARDS


def route(module: nn.Module, attend: Attend) -> None:
    """Give a module the subclass that calls an attention function."""
    cls = type(module)
    members = {"forward": _FORWARDS[cls.__name__](attend), "__module__": cls.__module__, "is_routed": True}
    module.__class__ = type(f"{cls.__name__}WithEncodings", (cls,), members)


def unroute(module: nn.Module) -> None:
    """Give a module its own class back; others stay as they are."""
    if getattr(type(module), "is_routed", False):
        module.__class__ = type(module).__mro__[1]


def num_kv_heads(module: Any) -> int | None:
    """Heads of the keys that the attention function gets from Falcon; None for other modules."""
    if "FalconAttention" not in type(module).__name__:
        return None
    heads: int = module.num_heads if module.new_decoder_architecture else module.num_kv_heads
    return heads
