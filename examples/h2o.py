"""H2O (arXiv 2306.14048): each key head keeps the newest tokens and those that collected most attention so far."""

import torch
from torch import Tensor

from posenc import RoPE
from posenc.layers import KVCache, SelfAttention

torch.manual_seed(0)
DIM, HEADS, KEY_HEADS, WIDTH, NEWEST, HEAVY = 64, 4, 2, 16, 8, 8
rope = RoPE(WIDTH)
layer = SelfAttention(DIM, HEADS, num_kv_heads=KEY_HEADS, encodings=[rope])
cache, collected = KVCache(), torch.zeros(1, KEY_HEADS, 0)


def attention_of(x: Tensor) -> Tensor:
    """What the newest tokens' queries give to each cached key, summed over a group's heads, (1, key heads, keys)."""
    tokens, keys = x.shape[1], len(cache)
    q = layer.q_proj(x).view(1, tokens, HEADS, WIDTH).transpose(1, 2)
    q = rope.rotate(q, rope.table(torch.arange(cache.next - tokens, cache.next)))
    assert cache.k is not None
    scores = q.unflatten(1, (KEY_HEADS, -1)) @ cache.k.unsqueeze(2).mT * WIDTH**-0.5
    later = torch.ones(tokens, keys, dtype=torch.bool).triu(keys - tokens + 1)
    return scores.masked_fill(later, -torch.inf).softmax(-1).sum((2, 3))


def step(x: Tensor) -> Tensor:
    """One call; then every head evicts what exceeds its budget."""
    global collected
    out = layer(x, cache=cache)
    collected = torch.nn.functional.pad(collected, (0, x.shape[1])) + attention_of(x)
    if len(cache) > NEWEST + HEAVY:
        old = len(cache) - NEWEST
        heavy = collected[..., :old].topk(HEAVY).indices
        newest = torch.arange(old, len(cache)).expand(1, KEY_HEADS, -1)
        keep = torch.cat([heavy, newest], -1).sort(-1).values
        layer.keep(cache, keep)  # positions stay; close_up=True would move the tokens together
        collected = collected.gather(-1, keep)
    return out


with torch.no_grad():
    step(torch.randn(1, 40, DIM))
    for _ in range(10):
        step(torch.randn(1, 1, DIM))
print(f"{cache.seen} tokens came, {len(cache)} are kept in each head, the next position is {cache.next}")
