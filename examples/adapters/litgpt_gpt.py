"""litgpt: any list of encodings in the place of its rotation, with its cache; needs `pip install litgpt`."""

import torch
from litgpt import GPT, Config
from litgpt.model import CausalSelfAttention

from posenc import ALiBi, RoPE, attention


class Encoded(CausalSelfAttention):
    def scaled_dot_product_attention(self, q, k, v, mask=None):
        k_pos = torch.arange(k.shape[2])  # with a cache, its slots
        q_pos = k_pos if mask is None else mask[0, 0].sum(-1) - 1
        return attention(q, k, v, self.encodings, q_pos=q_pos, k_pos=k_pos, causal="positions").transpose(1, 2)


shape = {"block_size": 64, "vocab_size": 65, "n_layer": 2, "n_head": 4, "n_embd": 32}
reference, model = (GPT(Config(**shape, rotary_percentage=share)) for share in (1.0, 0.0))  # the second rotates nothing
for number, block in enumerate(model.transformer.h):
    block.attn = Encoded(model.config, number)
    block.attn.encodings = torch.nn.ModuleList([RoPE(8)])
model.load_state_dict(reference.state_dict())
tokens = torch.randint(65, (2, 50))
print("posenc's RoPE and litgpt's own differ by", float((model(tokens) - reference(tokens)).abs().max().detach()))
for block in model.transformer.h:
    block.attn.encodings = torch.nn.ModuleList([ALiBi(4)])
at_once = model(tokens)
model.set_kv_cache(batch_size=2)
steps = torch.cat([model(tokens[:, at : at + 1], input_pos=torch.tensor([at])) for at in range(50)], 1)
print("ALiBi: a text at once and in steps differ by", float((at_once - steps).abs().max().detach()))
