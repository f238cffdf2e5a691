"""Several gloo processes on the CPU, each of which does the same work and leaves what it found."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # now: loaded while there is a group, it would hold it until Python ends
import torch.multiprocessing as mp


def rank_of_many(rank: int, world: int, folder: str, work: Callable[..., Any], jobs: Any) -> None:
    """One process: join the others, do the work, leave what was found in a file."""
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=60))
    torch.save(work(rank, world, jobs), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def spawned(folder: Path, world: int, work: Callable[..., Any], jobs: Any = None) -> list[Any]:
    """What each of ``world`` processes found."""
    mp.spawn(rank_of_many, (world, str(folder), work, jobs), nprocs=world)
    return [torch.load(folder / f"{rank}.pt") for rank in range(world)]
