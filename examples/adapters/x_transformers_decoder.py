"""x-transformers: `attention` in the place of its `Attend`; needs `pip install x-transformers`."""

import torch
from x_transformers import Decoder, TransformerWrapper
from x_transformers.attend import Intermediates
from x_transformers.x_transformers import Attention

from posenc import ALiBi, RoPE, attention


class Attend(torch.nn.Module):
    def __init__(self, *encodings):
        super().__init__()
        self.encodings = torch.nn.ModuleList(encodings)

    def forward(self, q, k, v, mask=None, **options):
        return attention(q, k, v, self.encodings, mask=None if mask is None else mask[:, 0]), Intermediates()


shape = {"dim": 32, "depth": 2, "heads": 4, "attn_dim_head": 8}
text = {"num_tokens": 65, "max_seq_len": 64, "use_abs_pos_emb": False}
reference = TransformerWrapper(attn_layers=Decoder(**shape, alibi_pos_bias=True), **text)
model = TransformerWrapper(attn_layers=Decoder(**shape), **text)
model.load_state_dict(reference.state_dict())
tokens, real = torch.randint(65, (2, 50)), torch.arange(50) < torch.tensor([[50], [30]])  # the second row is padded
for encodings in ([ALiBi(4)], [RoPE(8), ALiBi(4)]):
    for layer in filter(lambda module: isinstance(module, Attention), model.modules()):
        layer.attend = Attend(*encodings)
    difference = (model(tokens, mask=real) - reference(tokens, mask=real))[real].abs().max()
    print(f"{encodings} and x-transformers' own ALiBi differ by", float(difference.detach()))
