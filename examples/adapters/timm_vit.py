"""timm: a vision transformer that rotates its queries and keys by image coordinates; needs `pip install timm`."""

import torch
from timm.layers import Attention
from timm.models.vision_transformer import VisionTransformer

from posenc import AxialRoPE, attention
from posenc.bias import ALiBi2D
from posenc.positions import grid, with_prefix


class Encoded(Attention):
    def forward(self, x, attn_mask=None, is_causal=False):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, self.head_dim)).permute(2, 0, 3, 1, 4)
        q, k, where = self.q_norm(q), self.k_norm(k), with_prefix(grid(4, 4))  # a class token, then 4 rows of patches
        out = attention(q, k, v, self.encodings, q_pos=where, k_pos=where, causal=False, mask=attn_mask)
        return self.proj_drop(self.proj(self.norm(out.transpose(1, 2).flatten(2))))


shape = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4, "pos_embed": "none"}
torch.manual_seed(0)
reference, model = VisionTransformer(**shape).eval(), VisionTransformer(**shape, attn_layer=Encoded).eval()
model.load_state_dict(reference.state_dict())
pixels = torch.randn(2, 3, 32, 32)
for encodings in ([], [AxialRoPE(8)], [ALiBi2D(4)]):
    for block in model.blocks:
        block.attn.encodings = torch.nn.ModuleList(encodings)
    gap = float((model(pixels) - reference(pixels)).abs().max().detach())
    print(encodings, "and timm without positions differ by", gap)
