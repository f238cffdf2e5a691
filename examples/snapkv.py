"""SnapKV (arXiv 2404.14469): the prompt's last queries vote, head by head, which of its keys are kept."""

import torch
from torch import Tensor
from torch.nn import functional as F

from posenc import RoPE
from posenc.layers import KVCache, SelfAttention

torch.manual_seed(0)
DIM, HEADS, KEY_HEADS, WIDTH = 64, 4, 2, 16
WINDOW, KEPT, KERNEL = 8, 24, 5  # queries that vote, keys kept besides theirs, neighbours that a vote spreads to
rope = RoPE(WIDTH)
layer = SelfAttention(DIM, HEADS, num_kv_heads=KEY_HEADS, encodings=[rope])


def compress(cache: KVCache, prompt: Tensor) -> None:
    """Leave each key head its most attended keys and those of the window."""
    keys, batch = len(cache), len(prompt)
    q = layer.q_proj(prompt[:, -WINDOW:]).view(batch, WINDOW, HEADS, WIDTH).transpose(1, 2)
    q = rope.rotate(q, rope.table(torch.arange(keys - WINDOW, keys)))
    assert cache.k is not None
    scores = q.unflatten(1, (KEY_HEADS, -1)) @ cache.k.unsqueeze(2).mT * WIDTH**-0.5
    later = torch.ones(WINDOW, keys, dtype=torch.bool).triu(keys - WINDOW + 1)
    weights = scores.masked_fill(later, -torch.inf).softmax(-1)
    votes = weights[..., : keys - WINDOW].sum((2, 3))  # of a group's heads and all queries: (batch, key heads, keys)
    votes = F.max_pool1d(votes, KERNEL, stride=1, padding=KERNEL // 2)  # neighbours stay together
    chosen = votes.topk(KEPT).indices
    window = torch.arange(keys - WINDOW, keys).expand(batch, KEY_HEADS, -1)
    layer.keep(cache, torch.cat([chosen, window], -1))


with torch.no_grad():
    prompts, cache = torch.randn(2, 100, DIM), KVCache()
    layer(prompts, cache=cache)
    compress(cache, prompts)
    out = layer(torch.randn(2, 1, DIM), cache=cache)
print(f"{cache.seen} tokens came, {len(cache)} are kept in each head, the next position is {cache.next}")
