"""Attention under a mix of encodings, with grouped queries and two documents packed into one row."""

import torch

from posenc import ALiBi, RoPE, attention, explain_backend, positions

q = torch.randn(1, 8, 50, 64)  # (batch, heads, tokens, head_dim)
k, v = torch.randn(2, 1, 2, 50, 64)  # two key heads serve eight query heads
cu_seqlens = torch.tensor([0, 20, 50])

encodings = [RoPE(64, base=500_000.0), ALiBi(8)]
segments = positions.segments_from_cu_seqlens(cu_seqlens)
where = positions.from_cu_seqlens(cu_seqlens)

out = attention(q, k, v, encodings, q_pos=where, segments=segments)
alone = attention(q[:, :, 20:], k[:, :, 20:], v[:, :, 20:], encodings)
print("second document, packed and alone, differ by", float((out[:, :, 20:] - alone).abs().max()))
print(explain_backend(q, k, v, [ALiBi(8)]))
