"""PaTH: between key and query, every token reflects what is left of the query; token by token."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.fuzz.definition.terms import Call, Encoded, linear, products

TOGETHER = 64  # tokens whose reflections are found at once: each as exact as the largest of them


def path(encoded: Encoded, scores: Tensor, call: Call) -> Tensor:
    """s_ij + scale · (q_i H_i … H_{j+1} k_j − q_i·k_j), H_t = I − beta_t w_t w_tᵀ."""
    assert call.x is not None
    parameters, rounding = encoded.parameters, call.rounding
    width, kv_heads, conv = encoded.count("head_dim"), encoded.count("kv_heads"), encoded.count("conv", 3)
    x = call.x
    strength = linear(x, parameters["beta_weight"], parameters["beta_bias"], rounding)
    beta = 2 * rounding.bent(strength, strength.sigmoid())
    low = linear(x, parameters["down"], None, rounding) if "down" in parameters else x
    raw = linear(low, parameters["up"], None, rounding)  # (batch, keys, kv_heads · width)
    taps, before = parameters["taps"], predecessors(call)
    rows = []
    for row in range(x.shape[0]):
        tokens = []
        for t in range(x.shape[1]):
            total, size, at = torch.zeros(()), torch.zeros(()), t
            for step in range(conv):
                if at < 0:
                    break
                total = total + taps[step] * raw[row, at]
                size = size + (taps[step] * raw[row, at]).detach().abs()
                at = before[row][at]
            tokens.append(rounding.near(total, size))
        rows.append(torch.stack(tokens))
    mixed = torch.stack(rows)
    bent = rounding.bent(mixed, mixed * mixed.sigmoid(), 1 + mixed.detach().abs())
    w = bent.unflatten(-1, (kv_heads, width)).transpose(1, 2)
    w = rounding.near(w / rounding.near((w.square().sum(-1, keepdim=True) + 1e-6).sqrt()))
    reflects = torch.where(call.sees.any(1).any(1), 1.0, 0.0)  # tokens that no query may see do nothing
    beta = beta.transpose(1, 2) * reflects.unsqueeze(1)
    of_heads = [h * kv_heads // call.q.shape[1] for h in range(call.q.shape[1])]
    w, beta, k = w[:, of_heads], beta[:, of_heads], call.for_queries(call.k)
    left, found, sizes = call.q, [torch.zeros(())] * k.shape[2], list[Tensor]()
    for j in reversed(range(k.shape[2])):
        found[j] = products(left, k[:, :, j : j + 1], rounding).squeeze(-1)
        met = (call.own >= j)[:, None]
        along = products(left, w[:, :, j : j + 1], rounding) * beta[:, :, j, None, None]
        sizes.append(left.detach().abs().amax(-1, keepdim=True))
        largest = torch.stack(sizes[-TOGETHER:]).amax(0)
        left = rounding.near(torch.where(met, left - along * w[:, :, j : j + 1], left), 10 * largest)
    bare = call.scale * products(call.q, k, rounding)
    changed = call.capped(call.scale * torch.stack(found, -1)) - call.capped(bare)
    return rounding.near(scores + changed, bare.detach().abs())


def predecessors(call: Call) -> list[list[int]]:
    """The token before each key in its text, ``[batch][keys]``: the newest earlier known one of its document, or −1."""
    found = []
    for documents, known in zip(call.of_keys.tolist(), call.known.tolist(), strict=True):
        row = []
        for t in range(len(documents)):
            earlier = [s for s in range(t) if known[s] and documents[s] == documents[t]]
            row.append(earlier[-1] if earlier else -1)
        found.append(row)
    return found
