"""Decoding with a cache: prompts of different lengths, padded on the left, then one token at a time."""

import torch

from posenc import T5Bias
from posenc.layers import KVCache, SelfAttention

torch.manual_seed(0)
layer = SelfAttention(64, 4, num_kv_heads=2, encodings=[T5Bias(4)])
prompts = torch.randn(2, 6, 64)
padding = torch.tensor([[True] * 6, [False] * 2 + [True] * 4])  # the second prompt has four tokens

cache = KVCache()
with torch.no_grad():
    layer(prompts, attention_mask=padding, cache=cache)  # positions count real tokens
    for _ in range(3):
        out = layer(torch.randn(2, 1, 64), cache=cache)

print("tokens in the cache:", len(cache), " output of the last step:", tuple(out.shape))
