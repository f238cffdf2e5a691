"""Models that are given no cos and sin: learned position embeddings, and attention that is computed in a forward.

GPT-2, OPT and BioGPT add a learned embedding to their token embeddings, which `attach` switches off where encodings
take its place. Switched off it gives zeros, for positions beyond its rows too: two hooks look up row 0 for every token,
so that none is out of range, and replace the result. The weights stay in the model and in its checkpoints, and `detach`
switches them on again.

GPT-J and Falcon compute attention within a layer's forward, call no attention implementation, and rotate on their own
(GPT-J with neighbouring channels, from a table of its own; Falcon by halves, or with ALiBi in its mask). `attach` gives
these modules a subclass whose forward has the same projections, no rotation and no ALiBi, and hands the rest to
`attention_function.attend`; `detach` gives them their class back. All layers change together: their own forwards would
add the bool mask of the others to their logits.

Source: GPT2Model, OPTDecoder, BioGptModel, GPTJAttention and FalconAttention of transformers 5.23. GPT-BigCode has a
    table too, and does not hand position_ids on to its layers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from posenc.hf.attach.attention_function import attend

_NAMES = {"gpt2": "wpe", "gpt_bigcode": "wpe", "opt": "embed_positions", "biogpt": "embed_positions"}
_HOOKS = "_posenc_hooks"


def position_table(model: Any) -> nn.Module | None:
    """The position embedding of a model; None for a model without one."""
    name = _NAMES.get(model.config.model_type)
    return next((module for path, module in model.named_modules() if name and path.split(".")[-1] == name), None)


def switch_off(table: nn.Module) -> None:
    """Let a position embedding give zeros."""
    hooks = [
        table.register_forward_pre_hook(_first_row, with_kwargs=True),
        table.register_forward_hook(_zeros),
    ]
    setattr(table, _HOOKS, hooks)


def switch_on(table: nn.Module) -> None:
    """Undo `switch_off`; a table that is on stays so."""
    for hook in table.__dict__.pop(_HOOKS, ()):
        hook.remove()


def is_off(table: nn.Module) -> bool:
    """Whether a position embedding gives zeros."""
    return _HOOKS in table.__dict__


def _first_row(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Position 0 for every token: GPT-2's only argument, and OPT's and BioGPT's keyword."""
    if "position_ids" in kwargs and kwargs["position_ids"] is not None:
        return args, {**kwargs, "position_ids": torch.zeros_like(kwargs["position_ids"])}
    return (torch.zeros_like(args[0]), *args[1:]), kwargs


def _zeros(module: nn.Module, args: tuple[Any, ...], out: Tensor) -> Tensor:
    return torch.zeros_like(out)


def _gptj(
    self: Any, hidden_states: Tensor, layer_past: Any = None, attention_mask: Tensor | None = None,
    cache: Any = None, **kwargs: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """The forward of GPTJAttention."""
    query, key, value = (
        projection(hidden_states).unflatten(-1, (self.num_attention_heads, self.head_dim)).transpose(1, 2)
        for projection in (self.q_proj, self.k_proj, self.v_proj)
    )
    held = layer_past if cache is None else cache
    if held is not None:
        key, value = held.update(key, value, self.layer_idx)
    probability = self.attn_dropout.p if hasattr(self, "attn_dropout") else self.attention_dropout
    out, _ = attend(
        self, query, key, value, attention_mask, scaling=self.head_dim**-0.5,
        dropout=probability if self.training else 0.0, posenc=kwargs.get("posenc"),
    )  # fmt: skip
    return self.resid_dropout(self.out_proj(out.flatten(2))), None


def _falcon(
    self: Any, hidden_states: Tensor, alibi: Tensor | None = None, attention_mask: Tensor | None = None,
    layer_past: Any = None, **kwargs: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """The forward of FalconAttention."""
    query, key, value = (x.transpose(1, 2) for x in self._split_heads(self.query_key_value(hidden_states)))
    if layer_past is not None:
        key, value = layer_past.update(key, value, self.layer_idx)
    if attention_mask is not None and attention_mask.is_floating_point():
        # ALiBi's bias where a token is visible, the least number of the dtype elsewhere, for every head alike.
        attention_mask = attention_mask[:, :1] > torch.finfo(attention_mask.dtype).min / 2
    out, _ = attend(
        self, query, key, value, attention_mask, scaling=self.inv_norm_factor,
        dropout=self.attention_dropout.p if self.training else 0.0, posenc=kwargs.get("posenc"),
    )  # fmt: skip
    return self.dense(out.flatten(2)), None


_FORWARDS = {"GPTJAttention": _gptj, "FalconAttention": _falcon}
MODEL_TYPES = ("gptj", "falcon")


def is_inline(module: nn.Module) -> bool:
    """Whether a module computes its attention itself, and has a subclass here that does not."""
    return type(module).__name__ in _FORWARDS


def route(module: nn.Module) -> None:
    """Give a module the subclass that calls an attention function."""
    cls = type(module)
    members = {"forward": _FORWARDS[cls.__name__], "__module__": cls.__module__, "is_routed": True}
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
