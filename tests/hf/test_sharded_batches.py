"""check_batch where the parameters are sharded over two processes: both run the same passes and tell the same."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

transformers = pytest.importorskip("transformers")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="needs torch.distributed, gloo"),
]


def packed(seed: int) -> dict[str, Tensor]:
    ids = torch.randint(5, 90, (1, 34), generator=torch.Generator().manual_seed(seed))
    return {"input_ids": ids, "position_ids": torch.cat([torch.arange(n) for n in (9, 14, 11)])[None]}


def run(rank: int, folder: str) -> None:
    from torch.distributed.fsdp import fully_shard

    from posenc.hf.batches import batch_of_all
    from posenc.testing import check_batch

    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="0")
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=97, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4
    )
    model: Any = transformers.LlamaForCausalLM(config).train()
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    told = []
    for options in ({}, {"use_cache": False}):
        batch = batch_of_all(model, packed(seed=rank) | options)  # each process has documents of its own
        report = check_batch(model, batch)
        told.append([list(report.verdicts), batch["input_ids"].tolist(), list(report.checked)])
    (Path(folder) / f"{rank}.json").write_text(json.dumps(told))
    dist.destroy_process_group()


def test_two_processes_with_half_the_parameters_each(tmp_path: Path) -> None:
    mp.spawn(run, args=(str(tmp_path),), nprocs=2)  # type: ignore[no-untyped-call]
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first == second  # the batch of the first process, and what is told of it
    assert [verdicts for verdicts, *_ in first] == [["leaks"], ["separate"]]
    assert all(any("gradients" in said for said in checked) for *_, checked in first)
