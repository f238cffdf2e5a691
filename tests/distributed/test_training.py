"""Data, sharded and tensor parallelism equal one process: values and gradients of every encoding with parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, fx, nn
from torch._dynamo.backends.registry import lookup_backend
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from posenc import ALiBi, RoPE, T5Bias, attention, list_encodings
from posenc.distributed import HeadParallel
from posenc.encoding import EmbeddingEncoding, Encoding
from posenc.layers import SelfAttention
from posenc.testing import Case
from tests.distributed.processes import spawned
from tests.test_head_shares import VARIANTS

HEADS, KV_HEADS, WIDTH, TOKENS, BATCH = 4, 2, 8, 10, 2
DIM = HEADS * WIDTH


class Job(NamedTuple):
    """An encoding of the catalogue."""

    name: str
    options: dict[str, object] = {}  # noqa: RUF012 nobody changes them

    def make(self) -> list[Encoding]:
        return [e.train() for e in Case.from_catalogue(self.name, self.options).make(torch.float64)]


def learned(names: Sequence[str]) -> list[Job]:
    """Those with parameters, and two without, whose constants a rank must cut."""
    return [job for job in map(Job, names) if any(True for e in job.make() for _ in e.parameters())]


class Block(nn.Module):
    """Attention as a model builder writes it: heads are as many as the projections give."""

    def __init__(self, encodings: Sequence[Encoding]) -> None:
        super().__init__()
        self.q = nn.Linear(DIM, DIM, bias=False)
        self.k, self.v = (nn.Linear(DIM, KV_HEADS * WIDTH, bias=False) for _ in range(2))
        self.o = nn.Linear(DIM, DIM, bias=False)
        self.embeddings = nn.ModuleList(e for e in encodings if isinstance(e, EmbeddingEncoding))
        self.encodings = nn.ModuleList(e for e in encodings if not isinstance(e, EmbeddingEncoding))
        axes = max([1, *(e.axes for e in encodings)])
        index = torch.arange(TOKENS)
        self.places = index if axes == 1 else torch.stack([index // 4, *[index % 4] * (axes - 1)], -1)

    def forward(self, x: Tensor) -> Tensor:
        for embedding in self.embeddings:
            x = embedding(x, self.places)
        q, k, v = (p(x).unflatten(-1, (-1, WIDTH)).transpose(1, 2) for p in (self.q, self.k, self.v))
        out = attention(q, k, v, self.encodings, x=x, q_pos=self.places, k_pos=self.places, causal=True)
        return self.o(out.transpose(1, 2).flatten(2))


def block_of(job: Job) -> Block:
    torch.manual_seed(0)
    return Block(job.make()).double()


class Data(NamedTuple):
    """Inputs and what the loss multiplies the results with."""

    x: Tensor
    weight: Tensor

    @classmethod
    def drawn(cls) -> Data:
        source = torch.Generator().manual_seed(1)
        x, weight = torch.randn(2, BATCH, TOKENS, DIM, generator=source, dtype=torch.float64)
        return cls(x.requires_grad_(), weight)

    def rows(self, rank: int) -> Data:
        return Data(self.x.detach()[rank : rank + 1].requires_grad_(), self.weight[rank : rank + 1])


def whole(value: Tensor) -> Tensor:
    return value.full_tensor() if isinstance(value, DTensor) else value


def trained(block: nn.Module, data: Data) -> dict[str, Tensor]:
    """The result, the gradients of x and of all parameters, whole."""
    out = block(data.x)
    (out * data.weight).sum(0).sum().backward()
    assert data.x.grad is not None
    found = {"out": out.detach(), "x": data.x.grad}
    for name, parameter in block.named_parameters():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        found[name.removeprefix("module.")] = whole(gradient)
    return found


def differences(what: str, expected: dict[str, Tensor], found: dict[str, Tensor]) -> Iterator[str]:
    if expected.keys() != found.keys():
        yield f"{what}: {expected.keys() ^ found.keys()}"
        return
    for name, right in expected.items():
        if not torch.allclose(found[name], right, rtol=1e-8, atol=1e-9):
            yield f"{what}: {name} differs by {(found[name] - right).abs().max():.1e}"


def data_parallel(block: Block, mesh: DeviceMesh) -> nn.Module:
    return DistributedDataParallel(block, find_unused_parameters=True)


def sharded_block(block: Block, mesh: DeviceMesh) -> nn.Module:
    return fully_shard(block, mesh=mesh)


def sharded_alone(block: Block, mesh: DeviceMesh) -> nn.Module:
    for encoding in (*block.embeddings, *block.encodings):
        fully_shard(encoding, mesh=mesh)
    return fully_shard(block, mesh=mesh)


PLAN = {
    "q": ColwiseParallel(), "k": ColwiseParallel(), "v": ColwiseParallel(), "o": RowwiseParallel(),
    "encodings.*": HeadParallel(),
}  # fmt: skip


def tensor_parallel(block: Block, mesh: DeviceMesh) -> nn.Module:
    return parallelize_module(block, mesh, PLAN)


def rows_apart(rank: int, world: int, jobs: list[Job], split: Callable[[Block, DeviceMesh], nn.Module]) -> list[str]:
    """What data parallelism of one kind finds otherwise than one process: each rank has a row of the batch."""
    mesh, wrong = init_device_mesh("cpu", (world,)), []
    for job in jobs:
        expected = trained(block_of(job), Data.drawn())
        found = trained(split(block_of(job), mesh), Data.drawn().rows(rank))
        for name in ("out", "x"):
            expected[name] = expected[name][rank : rank + 1]
        shown = {name: value if name in ("out", "x") else value * world for name, value in found.items()}
        wrong += differences(f"{split.__name__} of {job}", expected, shown)
    return wrong


def heads_apart(rank: int, world: int, jobs: list[Job]) -> list[str]:
    mesh, wrong = init_device_mesh("cpu", (world,)), []
    for job in jobs:
        expected = trained(block_of(job), Data.drawn())
        block = tensor_parallel(block_of(job), mesh)
        wrong += differences(f"heads of {job}", expected, trained(block, Data.drawn()))
        states = {name: whole(value) for name, value in block.state_dict().items()}
        wrong += differences(f"state of {job}", block_of(job).state_dict(), states)
        wrong += [
            f"{job}: {name} is {type(p).__name__}" for name, p in block.named_parameters() if not isinstance(p, DTensor)
        ]
    return wrong


def everything(rank: int, world: int, jobs: tuple[list[Job], list[Job]]) -> list[str]:
    inside, embeddings = jobs
    wrong = []
    for split in (data_parallel, sharded_block, sharded_alone):
        wrong += rows_apart(rank, world, [*inside, *embeddings], split)
    return wrong + heads_apart(rank, world, [job for job in inside if job.name != "dape"])


def catalogue() -> tuple[list[Job], list[Job]]:
    """Encodings inside attention, and those of embeddings, that have parameters."""
    jobs = learned([name for name in list_encodings() if name != "nope"])
    embeddings = [job for job in jobs if "embedding" in Case.from_catalogue(job.name).hook_points]
    return [job for job in jobs if job not in embeddings], embeddings


def test_two_processes_equal_one(tmp_path: Path) -> None:
    inside, embeddings = catalogue()
    assert len(inside) > 25
    assert len(embeddings) > 2
    assert spawned(tmp_path, 2, everything, (inside, embeddings)) == [[], []]


class Two(nn.Module):
    """Two blocks that share a rotation, as layers of a model do; what has parameters is a block's own."""

    def __init__(self, biased: bool) -> None:
        super().__init__()
        rope = RoPE(WIDTH)
        lists = [[rope, T5Bias(HEADS)] if biased else [rope] for _ in range(2)]
        self.blocks = nn.ModuleList(SelfAttention(DIM, HEADS, encodings=encodings) for encodings in lists)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x


def compiled_blocks(rank: int, world: int, backend: str) -> list[str]:
    """Blocks checkpointed, compiled and sharded, in the order of torchtitan, against one process that does neither."""
    mesh, wrong = init_device_mesh("cpu", (world,)), []
    for biased in (False, True):
        torch.manual_seed(0)
        alone = Two(biased).double()
        model = copy.deepcopy(alone)
        operators: list[str] = []

        def seen(graph: fx.GraphModule, inputs: list[Tensor], operators: list[str] = operators) -> object:
            parts = [part for part in graph.modules() if isinstance(part, fx.GraphModule)]  # checkpoints have a graph
            operators.extend(str(node.target) for part in parts for node in part.graph.nodes)
            return lookup_backend(backend)(graph, inputs)

        for name, block in model.blocks.named_children():
            model.blocks.register_module(name, checkpoint_wrapper(block))
            model.blocks[int(name)].compile(backend=seen, fullgraph=True)
            fully_shard(model.blocks[int(name)], mesh=mesh)
        fully_shard(model, mesh=mesh)
        expected, found = trained(alone, Data.drawn()), trained(model, Data.drawn().rows(rank))
        found = {name.replace("_checkpoint_wrapped_module.", ""): value for name, value in found.items()}
        rows = {n: v[rank : rank + 1] if n in ("out", "x") else v for n, v in expected.items()}
        shown = {n: v if n in ("out", "x") else v * world for n, v in found.items()}
        wrong += differences(f"compiled blocks, biased: {biased}", rows, shown)
        if not any("rotation_table" in name for name in operators):
            wrong.append(f"no operator of the table in {sorted(set(operators))}")
    return wrong


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_and_checkpointed_blocks(tmp_path: Path, backend: str) -> None:
    assert spawned(tmp_path, 2, compiled_blocks, backend) == [[], []]


def drawn_anew(rank: int, world: int, jobs: list[Job]) -> list[str]:
    """Models made on the meta device, parallelized, and drawn then, as torchtitan does, begin as one process does."""
    mesh, wrong = init_device_mesh("cpu", (world,)), []
    for job in jobs:
        torch.manual_seed(0)
        (expected,) = Case.from_catalogue(job.name, job.options).fresh()
        for kind in ("heads", "sharded"):
            with torch.device("meta"):
                (encoding,) = Case.from_catalogue(job.name, job.options).fresh()
            if kind == "heads":
                parallelize_module(encoding, mesh, HeadParallel())
            else:
                fully_shard(encoding, mesh=mesh)
            encoding.to_empty(device="cpu")
            for draws in (expected, encoding):
                torch.manual_seed(5 + rank * (draws is encoding))
                draws.reset_parameters()  # type: ignore[operator]
            wanted = {n: p.detach() for n, p in expected.named_parameters() if kind == "heads" or n in CONSTANT}
            found = {n: whole(p).detach() for n, p in encoding.named_parameters()}
            if not all(bool(value.isfinite().all()) for value in found.values()):
                wrong.append(f"{kind} of {job}: numbers that nobody drew")
            if rank == 0:  # another rank's generator is elsewhere; what it kept is the first one's
                wrong += differences(f"{kind} of {job}", wanted, {n: found[n] for n in wanted})
    return wrong


CONSTANT = ("log_a", "log_theta", "theta", "temperature")  # where drawn numbers are DTensors' own
BEGUN = [
    Job("bam"), Job("fire"), Job("t5"), Job("fox"), Job("fope"), Job("grape_m"), Job("path"), Job("mixture"),
    Job("fox", {"kind": "bias", "decay_time": (2.0, 50.0)}), Job("mixed", {"directions": "golden"}),
    Job("selective_rope", {"learned": True}), Job("transformer_xl"),
]  # fmt: skip


def four(rank: int, world: int, jobs: list[Job]) -> list[str]:
    """Two ranks of rows by two of heads, as torchtitan nests them; two steps of AdamW with clipped gradients."""
    mesh, wrong = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp")), []
    for job in jobs:
        alone, block = block_of(job), tensor_parallel(block_of(job), mesh["tp"])
        fully_shard(block, mesh=mesh["dp"])
        optimizers = [torch.optim.AdamW(b.parameters(), lr=0.01) for b in (alone, block)]
        row = mesh.get_local_rank("dp")
        whole_rows = Data.drawn()._replace(weight=Data.drawn().weight / 2)  # as FSDP averages over the rows' ranks
        for _ in range(2):
            whole_rows.x.grad = None
            expected, found = trained(alone, whole_rows), trained(block, Data.drawn().rows(row))
            found["x"] = found["x"] / 2
            rows = {n: v[row : row + 1] if n in ("out", "x") else v for n, v in expected.items()}
            wrong += differences(f"rows and heads of {job}", rows, found)
            norms = [nn.utils.clip_grad_norm_(b.parameters(), 0.1) for b in (alone, block)]
            if not torch.allclose(norms[0], whole(norms[1])):
                wrong.append(f"{job}: norms {norms}")
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
    return wrong


def without_parameters(rank: int, world: int, jobs: list[Job]) -> list[str]:
    """Heads of encodings under other options, and of those whose heads differ by constants."""
    mesh = init_device_mesh("cpu", (world,))
    wrong = heads_apart(rank, world, jobs)
    # One instance in two layers is shared out once.
    shared = ALiBi(HEADS), T5Bias(HEADS)
    layers = nn.ModuleList(SelfAttention(DIM, HEADS, encodings=shared).double() for _ in range(2))
    alone = copy.deepcopy(layers)
    plan = {f"{layer}.{name}_proj": ColwiseParallel() for layer in range(2) for name in "qkv"}
    plan |= {f"{layer}.o_proj": RowwiseParallel() for layer in range(2)}
    plan |= {f"{layer}.encodings.*": HeadParallel() for layer in range(2)}
    parallelize_module(layers, mesh, plan)
    x = Data.drawn().x
    apart = layers[1](layers[0](x)) - alone[1](alone[0](x))
    if not float(apart.abs().max()) < 1e-12:
        wrong.append(f"layers differ by {apart.abs().max():.1e}")
    return wrong


@pytest.mark.slow
def test_heads_of_other_options(tmp_path: Path) -> None:
    jobs = [Job(name, options) for name, options in VARIANTS]
    constant = ["alibi", "sandwich", "multiscale", "mhrope", "rope_pp", "rope", "shaw"]
    assert spawned(tmp_path, 2, without_parameters, [*map(Job, constant), *jobs]) == [[], []]


@pytest.mark.slow
def test_drawn_anew(tmp_path: Path) -> None:
    assert spawned(tmp_path, 2, drawn_anew, BEGUN) == [[], []]


@pytest.mark.slow
def test_rows_and_heads(tmp_path: Path) -> None:
    jobs = [Job(name) for name in ("t5", "fire", "fox", "kerple", "mixed", "path", "sink", "shaw", "alibi")]
    assert spawned(tmp_path, 4, four, jobs) == [[]] * 4
