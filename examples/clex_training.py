"""Training CLEX: texts of 32 tokens learn frequencies for 128, by sampled positions and a declared length.

The task is recall: every token carries a key and a value, the last one asks for the value of a key seen before.
"""

import torch
from torch import nn

from posenc import RoPE
from posenc.frequencies.clex import CLEX
from posenc.layers import SelfAttention

TRAINED, KEYS, VALUES = 32, 512, 8
torch.manual_seed(0)

clex = CLEX(16, original_length=TRAINED, max_factor=4, step=0.1)
keys, values, head = nn.Embedding(KEYS, 64), nn.Embedding(VALUES, 64), nn.Linear(64, VALUES)
layer = SelfAttention(64, 2, encodings=[RoPE(32, scaling=clex)])
model = nn.ModuleList([keys, values, layer, head])


def loss(tokens: int, positions: torch.Tensor, length: int) -> torch.Tensor:
    """Mean loss of the last token's answer, over 64 random texts."""
    key = torch.rand(64, KEYS).argsort(-1)[:, :tokens]
    value = torch.randint(VALUES, (64, tokens))
    asked = torch.randint(tokens - 1, (64, 1))
    key[:, -1:] = key.gather(1, asked)
    said = values(value) * (torch.arange(tokens) < tokens - 1).unsqueeze(-1)  # the question has no value
    out = layer(keys(key) + said, positions, length=length)[:, -1]
    return nn.functional.cross_entropy(head(out), value.gather(1, asked)[:, 0])


@torch.no_grad()
def report(when: str) -> None:
    found = [sum(loss(n, torch.arange(n), n).item() for _ in range(10)) / 10 for n in (32, 64, 128)]
    slowest = clex.frequencies(layer.encodings[0].spectrum().theta, torch.tensor([1, 2, 4]))[:, -1]
    print(f"{when:>22}: loss at 32, 64, 128 tokens", *(f"{f:.3f}" for f in found), " slowest pair", slowest.tolist())


optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(600):
    if step == 300:
        report("trained at 32")
    positions, length = (torch.arange(TRAINED), TRAINED) if step < 300 else clex.sample(TRAINED)
    optimizer.zero_grad()
    loss(TRAINED, positions, length).backward()
    optimizer.step()
report("and at sampled scales")
