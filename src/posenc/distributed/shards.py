"""Tokens of one sequence on several ranks: which rank holds which token, and gathered tensors in sequence order."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable


class Text(NamedTuple):
    """Where the tokens of the whole text lie: shards are padded to one size, whose entries are slots."""

    group: dist.ProcessGroup
    rank_of: Tensor  # (tokens of the sequence,): the rank that holds each token
    slot_of: Tensor  # (tokens of the sequence,): and the slot in which it lies
    place_of: Tensor  # (ranks, slots): the other way round; any place for padding

    def in_order(self, local: Tensor) -> Tensor:
        """The shards ``(batch, heads, tokens, ...)`` of all ranks in the order of the sequence; without gradients."""
        missing = self.place_of.shape[1] - local.shape[2]
        padded = torch.cat([local, local.new_zeros(*local.shape[:2], missing, *local.shape[3:])], 2)
        return _from_all(padded, self.group).movedim(0, 2)[:, :, self.rank_of, self.slot_of]

    def summed_shard(self, full: Tensor, tokens: int) -> Tensor:
        """The inverse of `in_order`: this rank's ``tokens`` of the sum over the ranks, which is rounded once."""
        shape = (*full.shape[:2], *self.place_of.shape, *full.shape[3:])
        of_ranks = full.index_select(2, self.place_of.flatten()).view(shape).movedim(2, 0)
        total = _sum_of_own(of_ranks.to(torch.promote_types(full.dtype, torch.float32)), self.group)
        return total[:, :, :tokens].to(full.dtype)


class _Gather(torch.autograd.Function):
    """Shards ``(batch, heads, tokens, ...)`` → the whole text in its order; one node, so that ranks keep in step."""

    @staticmethod
    def forward(ctx: Any, text: Text, *shards: Tensor) -> tuple[Tensor, ...]:
        ctx.text, ctx.tokens = text, shards[0].shape[2]
        return tuple(text.in_order(shard) for shard in shards)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        of_shards = zip(grads, ctx.needs_input_grad[1:], strict=True)
        return None, *(ctx.text.summed_shard(grad, ctx.tokens) if needed else None for grad, needed in of_shards)


def gathered(text: Text, shards: list[Tensor]) -> tuple[Tensor, ...]:
    """`Text.in_order` of each shard, differentiable: gradients of all ranks are summed."""
    wholes: tuple[Tensor, ...] = _Gather.apply(text, *shards)  # type: ignore[no-untyped-call]
    return wholes


def check_group(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    """The group, by default all processes; a ValueError where there is none, or this process is not in it."""
    if not dist.is_available() or not dist.is_initialized():
        raise ValueError("group: there is no process group; call torch.distributed.init_process_group on all processes")
    chosen = dist.group.WORLD if group is None else group
    if chosen is None or dist.get_rank(chosen) < 0:
        raise ValueError("group must hold this process")
    return chosen


def agree(fault: ValueError | None, agreed: Mapping[str, str], q: Tensor, group: dist.ProcessGroup) -> list[int]:
    """Tokens of each rank; a ValueError on all ranks where one has a fault, or they differ in what must be alike.

    Args:
        agreed: what must be the same, name and words; the same names on all ranks.
    """
    marks = [zlib.crc32(words.encode()) for words in agreed.values()]
    status = [0, 0] if fault is not None else [1, q.shape[2]]
    rows = _from_all(torch.tensor([*status, *marks], device=q.device), group).tolist()
    if fault is not None:
        raise fault
    for rank, row in enumerate(rows):
        if not row[0]:
            raise ValueError(f"rank {rank} refused its arguments: its own error tells why")
    for (name, words), *of_ranks in zip(agreed.items(), *(row[2:] for row in rows), strict=True):
        if len(set(of_ranks)) > 1:
            raise ValueError(f"{name} must be the same on all ranks, but differ; here {words}")
    return [row[1] for row in rows]


def place(positions: Tensor, counts: list[int], group: dist.ProcessGroup) -> Text:
    """Who holds which place; a ValueError unless the places are 0 … n − 1, once each."""
    most, tokens = max(counts), sum(counts)
    padding = positions.new_zeros(most - len(positions))
    place_of = _from_all(torch.cat([positions, padding]), group)
    real = [torch.arange(count, device=positions.device) + rank * most for rank, count in enumerate(counts)]
    slots = torch.cat(real)
    places, order = place_of.flatten()[slots].sort()
    wrong = (places != torch.arange(tokens, device=places.device)).nonzero().flatten()[:1].tolist()
    for first in wrong:
        actual = int(places[first])
        fault = f"{first} is missing" if actual > first else f"{actual} is there" + (" twice" if actual >= 0 else "")
        raise ValueError(f"positions of all ranks together must be 0 … {tokens - 1}, once each, but {fault}")
    slots = slots[order]
    return Text(group, slots // most, slots % most, place_of)


def runs(positions: Tensor) -> list[tuple[int, int, int]]:
    """Runs of neighbouring places: the first token, the token after the last, and the place after the last."""
    breaks = (positions.diff() != 1).nonzero().flatten() + 1
    edges = [0, *breaks.tolist(), len(positions)]
    ends = (positions[[stop - 1 for stop in edges[1:]]] + 1).tolist()
    return [(start, stop, end) for (start, stop), end in zip(pairwise(edges), ends, strict=True)]


def _from_all(local: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The tensors of all ranks, ``(ranks, *own.shape)``."""
    local = local.contiguous()
    everyone = local.new_empty(dist.get_world_size(group), *local.shape)
    dist.all_gather(list(everyone.unbind(0)), local, group=group)
    return everyone


def _sum_of_own(of_ranks: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The sum over all ranks of what each has for this one, from ``(ranks, ...)``."""
    of_ranks = of_ranks.contiguous()
    if of_ranks.device.type == "cpu" or dist.get_backend(group) == "gloo":  # has no reduce-scatter in older PyTorch
        dist.all_reduce(of_ranks, group=group)
        return of_ranks[dist.get_rank(group)]
    total = torch.empty_like(of_ranks[0])
    dist.reduce_scatter(total, list(of_ranks.unbind(0)), group=group)
    return total
