"""Calls that the README and the guide show, for `mypy --strict` and pyright: nothing here may need a cast or be Any.

It also runs: tests/test_public_api.py executes it, so that what type-checks is what works.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import posenc
from posenc import (
    ALiBi,
    ForgetGate,
    RoPE,
    T5Bias,
    YaRN,
    attention,
    create_encoding,
    encoding_info,
    explain_backend,
    list_encodings,
    parse_encodings,
)
from posenc.encoding import Encoding
from posenc.layers import KVCache, SelfAttention, StaticKVCache
from posenc.positions import grid, padded
from posenc.rotary import LieRE
from posenc.score import CoPE, SelfExtend
from posenc.weight import StickBreaking

q = torch.randn(1, 8, 16, 64)
k, v = torch.randn(1, 2, 16, 64), torch.randn(1, 2, 16, 64)
x = torch.randn(1, 16, 512)

# encodings: device and dtype are keywords wherever there are parameters
rope = RoPE(64)
long_rope = RoPE(64, base=1e6, scaling=YaRN(4.0, original_length=32768))
t5 = T5Bias(8, num_buckets=32, max_distance=128, dtype=torch.float64)
gate = ForgetGate(512, num_heads=8, device=torch.device("cpu"), dtype=torch.float32)
content = CoPE(64, max_position=16)
plane = LieRE(64, num_heads=8)

# calls have types
bias: Tensor = ALiBi(8)(torch.arange(16), torch.arange(16))
rotated: tuple[Tensor, Tensor] = rope(q, k, torch.arange(16), torch.arange(16))
table: tuple[Tensor, ...] = rope.table(torch.arange(16))

# attention takes a list, a tuple or a ModuleList
out: Tensor = attention(q, k, v, [RoPE(64)])
out = attention(q, k, v, (RoPE(64), ALiBi(8)))
out = attention(q, k, v, nn.ModuleList([RoPE(64), T5Bias(8)]))
out = attention(q, k, v, [gate], x=x, causal=True, window=8)
out = attention(q, k, v, [StickBreaking()])
out = attention(q, k, v, [SelfExtend(rope, window=8, group=2)])
reason: str = str(explain_backend(q, k, v, [ALiBi(8)]))

# by name
created: Encoding = create_encoding("rope", head_dim=64)
several: list[Encoding] = parse_encodings("rope+alibi", head_dim=64, num_heads=8)
names: list[str] = list_encodings("bias")
title: str = encoding_info("alibi").title

# layers and caches
layer = SelfAttention(512, 8, num_kv_heads=2, encodings=[RoPE(64)], window=1024)
y: Tensor = layer(x)
cache = KVCache()
first: Tensor = layer(x[:, :8], cache=cache)
layer = layer.eval().requires_grad_(False)  # a static cache serves generation alone
static: StaticKVCache = layer.static_cache(1, 2048)
second: Tensor = layer(x[:, 8:], cache=static)

# positions
where: Tensor = grid(4, 4)
tokens: tuple[Tensor, Tensor] = padded([torch.arange(3), torch.arange(5)])

# packages are reachable after `import posenc`
again: Tensor = posenc.attention(q, k, v, [posenc.RoPE(64)])
also: type[SelfAttention] = posenc.layers.SelfAttention
