"""Code in nanoGPT's manner: the table of positions goes, and one line of its attention changes."""

import torch
from torch import nn
from torch.nn import functional as F

import posenc
from posenc import attention


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd, n_head, encodings=()):
        super().__init__()
        self.n_head, self.c_attn, self.c_proj = n_head, nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.encodings = nn.ModuleList(encodings)  # new

    def forward(self, x):
        q, k, v = self.c_attn(x).unflatten(-1, (3, self.n_head, -1)).permute(2, 0, 3, 1, 4)
        y = attention(q, k, v, self.encodings)  # was F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).flatten(2))


torch.manual_seed(0)
x = torch.randn(2, 40, 64)
for name in ("nope", "rope", "t5", "rope+alibi"):
    layer = CausalSelfAttention(64, 4, posenc.parse_encodings(name, dim=64, num_heads=4, head_dim=16))
    q, k, v = layer.c_attn(x).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
    before = layer.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
    print(name, "differs from attention without positions by", float((layer(x) - before).abs().max().detach()))
