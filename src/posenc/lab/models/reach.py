"""How far back the heads of a trained decoder attend: the share of a head's attention by distance."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from posenc.attention_maps import read_attention
from posenc.layers import SelfAttention


@torch.no_grad()
def attention_mass(model: torch.nn.Module, tokens: Tensor, ids: Tensor | None = None) -> tuple[list[int], Tensor]:
    """The share of each head's attention in bins of distance, mean over the queries of the second half of the texts.

    Args:
        model: a `Decoder`, or a model that is called like one, in evaluation mode.
        tokens: ``(count, length)``.
        ids: as `Decoder` takes them.

    Returns:
        The largest distance of each bin in tokens (0, 1, 2, 4, 8, …), and ``(layers · heads, bins)``. Rows sum to 1
        under softmax, and to less where an encoding leaves some attention to nobody.
    """
    layers = [module for module in model.modules() if isinstance(module, SelfAttention)]
    length, masses = tokens.shape[1], list[Tensor]()
    queries = slice(length // 2, length)
    distances = torch.arange(length)[queries, None] - torch.arange(length)
    bins = torch.where(distances > 0, distances.clamp(min=1).log2().ceil() + 1, 0).long()  # 0, 1, 2, 3–4, 5–8, …
    one_hot = torch.nn.functional.one_hot(bins).double() * (distances >= 0)[..., None]
    edges = [0, *(2**n for n in range(one_hot.shape[-1] - 1))]

    def reading(inner: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, call: partial[Tensor]) -> Tensor:
        options: dict[str, Any] = {n: value for n, value in call.keywords.items() if n not in ("backend", "dropout")}
        weights = read_attention(q, k, v, queries=queries, **options).weights.double().cpu()
        masses.append(torch.einsum("bhqk,qkd->hd", weights, one_hot) / (weights.shape[0] * weights.shape[2]))
        return inner(q, k, v, call)

    before = [layer._attend for layer in layers]
    try:
        for layer, attend in zip(layers, before, strict=True):
            layer._attend = partial(reading, attend)  # type: ignore[method-assign]
        device = next(model.parameters()).device
        more = {} if ids is None else {"ids": ids.to(device)}
        model(tokens.to(device), **more)
    finally:
        for layer in layers:
            del layer._attend
    return edges, torch.cat(masses)
