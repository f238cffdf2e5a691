"""A Hugging Face ViT under any 2D encoding: queries, keys and values go through `AttentionInterface`."""

import torch
from torch import nn
from transformers import AttentionInterface, ViTConfig, ViTModel

from posenc import AxialRoPE, LearnedGrid, attention
from posenc.bias import ALiBi2D, SwinBias
from posenc.embedding import SinusoidalGrid
from posenc.encoding import EmbeddingEncoding
from posenc.positions import grid, with_prefix
from posenc.rotary import ComRoPEAP, MixedRoPE


def attend(layer, q, k, v, mask, *, scaling, positions, **options):
    out = attention(q, k, v, layer.encodings, q_pos=positions, k_pos=positions, causal=False, scale=scaling)
    return out.transpose(1, 2), None  # tokens before heads, and no weights to show


AttentionInterface.register("posenc", attend)


class GridViT(ViTModel):
    """A ViT for any resolution; ``make()`` gives an encoding: one for the embeddings, or else one for each layer."""

    def __init__(self, config, make):
        config._attn_implementation = "posenc"
        super().__init__(config, add_pooling_layer=False)
        self.absolute = isinstance(make(), EmbeddingEncoding)
        self.embeddings.position_embeddings = None  # ViT's own table
        self.embeddings.encodings = nn.ModuleList([make()] if self.absolute else [])
        for layer in self.layers:
            layer.attention.encodings = nn.ModuleList([] if self.absolute else [make()])

    def forward(self, pixels, positions=None):
        patches = self.embeddings.patch_embeddings(pixels)
        if positions is None:  # row by row, behind a class token that has no place
            height, width = (side // self.config.patch_size for side in pixels.shape[-2:])
            positions = with_prefix(grid(height, width)).to(pixels.device)
        x = torch.cat([self.embeddings.cls_token.expand(len(patches), -1, -1), patches], 1)
        for encoding in self.embeddings.encodings:
            x = encoding(x, positions)
        for layer in self.layers:
            x = layer(x, positions=positions)
        return self.layernorm(x)


def check(make):
    config = ViTConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, patch_size=8)
    model, small, wide = GridViT(config, make).eval(), torch.randn(2, 3, 32, 32), torch.randn(2, 3, 40, 64)
    sum((model(pixels) * torch.randn(64)).sum() for pixels in (small, wide)).backward()
    assert all(p.grad.any() for name, p in model.named_parameters() if ".encodings." in name), "all of it is used"
    places = with_prefix(grid(4, 4), at="origin")  # a class token at a place, so that everything can move together
    change = (model(small, places + 4) - model(small, places)).abs().max().item()
    print(f"{make()}: all tokens moved by 4, the output changes by {change:.0e}")
    assert (change > 1e-4) == model.absolute, "what acts on embeddings sees places, everything else differences"


if __name__ == "__main__":
    relative = [
        lambda: AxialRoPE(16),
        lambda: MixedRoPE(16, num_heads=4),
        lambda: ComRoPEAP(16, num_heads=4),
        lambda: ALiBi2D(4),
    ]
    for make in (
        *relative,
        lambda: SwinBias(4, window=(8, 8)),
        lambda: SinusoidalGrid(64),
        lambda: LearnedGrid(64, size=(8, 8)),
    ):
        check(make)
