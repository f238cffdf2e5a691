"""Context parallelism: two processes train on one text, each with half of its tokens; one process finds the same."""

import tempfile

import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # now: loaded while there is a group, it would hold it until Python ends
import torch.multiprocessing as mp
from torch import Tensor, nn

from posenc import ForgetGate, RoPE, attention, positions
from posenc.distributed import sharded_attention

TOKENS, DIM, HEADS, WORLD = 64, 32, 4, 2


class Layer(nn.Module):
    """Self-attention under a rotation and forget gates, over the tokens of all processes or of one."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.encodings = nn.ModuleList([RoPE(DIM // HEADS), ForgetGate(DIM, num_heads=HEADS)])

    def forward(self, x: Tensor, places: Tensor | None = None) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        if places is None:
            attended = attention(q, k, v, list(self.encodings), x=x)
        else:
            attended = sharded_attention(q, k, v, list(self.encodings), x=x, positions=places)
        return self.out(attended.transpose(1, 2).flatten(2))


def model_and_text() -> tuple[Layer, Tensor]:
    torch.manual_seed(0)
    return Layer(), torch.randn(1, TOKENS, DIM)


def train(rank: int, store: str) -> None:
    """What each process does: attend from its own tokens, sum the gradients over all processes."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD)
    layer, x = model_and_text()
    places = positions.zigzag(TOKENS, rank, WORLD)  # equal causal work for all
    layer(x[:, places], places).pow(2).sum().backward()
    for parameter in layer.parameters():
        dist.all_reduce(parameter.grad)
    if rank == 0:
        torch.save([parameter.grad for parameter in layer.parameters()], store + ".grads")
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, (folder + "/store",), nprocs=WORLD)
        sharded = torch.load(folder + "/store.grads")
    layer, x = model_and_text()
    layer(x).pow(2).sum().backward()
    for (name, parameter), grad in zip(layer.named_parameters(), sharded, strict=True):
        largest, apart = parameter.grad.abs().max(), (parameter.grad - grad).abs().max()
        print(f"{name}: gradients up to {largest:.3g} differ by {apart:.0e}")
