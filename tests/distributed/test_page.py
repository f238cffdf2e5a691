"""The program of the page on tensor parallelism and FSDP2, run as torchrun runs it, equals one process."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from posenc import param_groups

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "tensor-parallel-and-fsdp2.md"
(PROGRAM,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)


def run_as_rank(rank: int, world: int, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="localhost", MASTER_PORT=str(port))
    names: dict[str, Any] = {}
    exec(compile(PROGRAM, PAGE.name, "exec"), names)
    torch.save((names["losses"], names["weights"]), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def alone() -> tuple[list[float], dict[str, torch.Tensor]]:
    """The same training in one process."""
    names: dict[str, Any] = {}
    exec(PROGRAM.partition("dist.init_process_group")[0], names)
    torch.manual_seed(0)
    model = nn.Sequential(names["Block"](), names["Block"]())
    optimizer = torch.optim.AdamW(param_groups(model, lr=1e-3, weight_decay=0.1))
    losses = []
    for step in range(3):
        texts = torch.randn(4, 16, names["DIM"], generator=torch.Generator().manual_seed(step))
        loss = model(texts).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    return losses, dict(model.state_dict())


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_the_program_equals_one_process(world: int, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    mp.spawn(run_as_rank, (world, port, str(tmp_path)), nprocs=world)
    losses, weights = alone()
    for rank in range(world):
        found_losses, found = torch.load(tmp_path / f"{rank}.pt")
        assert found_losses == pytest.approx(losses, rel=1e-5)
        assert found.keys() == weights.keys()
        for name, right in weights.items():
            torch.testing.assert_close(found[name], right, rtol=1e-4, atol=1e-5)
