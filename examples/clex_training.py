"""Training CLEX: texts of 16 tokens learn frequencies for 64, by sampled positions and a declared length.

The task is recall: every token carries a key and a value, the last one asks for the value of a key seen before.
"""

import torch
from torch import nn

from posenc import RoPE
from posenc.frequencies import CLEX
from posenc.layers import SelfAttention

TRAINED, KEYS, VALUES, BATCH = 16, 128, 4, 64
torch.manual_seed(0)

clex = CLEX(16, original_length=TRAINED, max_factor=4, step=0.2)
rope = RoPE(32, scaling=clex)
keys, values, head = nn.Embedding(KEYS, 32), nn.Embedding(VALUES, 32), nn.Linear(32, VALUES)
layer = SelfAttention(32, 1, encodings=[rope])
model = nn.ModuleList([keys, values, layer, head])


def loss(tokens: int, positions: torch.Tensor, length: int) -> torch.Tensor:
    """Mean loss of the last token's answer over random texts."""
    key = torch.rand(BATCH, KEYS).argsort(-1)[:, :tokens]
    value = torch.randint(VALUES, (BATCH, tokens))
    index = torch.randint(tokens - 1, (BATCH, 1))
    key[:, -1:] = key.gather(1, index)
    given_values = values(value) * (torch.arange(tokens) < tokens - 1).unsqueeze(-1)  # the question has no value
    out = layer(keys(key) + given_values, positions, length=length)[:, -1]
    return nn.functional.cross_entropy(head(out), value.gather(1, index)[:, 0])


@torch.no_grad()
def report(when: str) -> None:
    for tokens in (16, 32, 64):
        mean_loss = sum(loss(tokens, torch.arange(tokens), tokens).item() for _ in range(20)) / 20
        print(f"{when}: loss {mean_loss:.3f} at {tokens} tokens, slowest pair {rope.spectrum(tokens).theta[-1]:.1e}")


optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
for step in range(450):
    if step == 300:
        report("trained at 16 tokens")
    positions, length = (torch.arange(TRAINED), TRAINED) if step < 300 else clex.sample(TRAINED)
    optimizer.zero_grad()
    loss(TRAINED, positions, length).backward()
    optimizer.step()
report("and at sampled scales")
