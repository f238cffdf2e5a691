"""Context parallelism equals one process: values and gradients, over two and four processes on the CPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F

from posenc import attention, list_encodings
from posenc.distributed.parallel import merged, sharded_attention
from posenc.encoding import Encoding, RotaryEncoding
from posenc.positions import zigzag
from posenc.testing import Case
from posenc.weight import StickBreaking
from tests.distributed.processes import spawned

HEADS, KV_HEADS, WIDTH, BATCH = 4, 2, 8, 2
TOKENS = 96
OPTIONS: dict[str, dict[str, object]] = {
    "cope": {"max_position": 5},
    "shaw": {"max_distance": 9},
    "stick-breaking": {"remainder": "own"},
}
QUICK = (
    "nope", "rope", "rope+alibi", "t5", "fire", "shaw", "transformer_xl", "cope", "rope+fox", "stick-breaking",
    "dynamic_ntk",
)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """One comparison; options of the call."""

    recipe: str
    layout: str = "contiguous"
    segments: str = ""
    dtype: torch.dtype = torch.float64
    learns: bool = True
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        words = [self.recipe, self.layout, self.segments, str(self.dtype).removeprefix("torch."), str(self.options)]
        return " ".join(words)


def encodings_of(job: Job) -> list[Encoding]:
    if job.recipe == "nope":
        return []
    return Case.from_catalogue(job.recipe, OPTIONS.get(job.recipe)).make(job.dtype)


def places(layout: str, rank: int, world: int) -> Tensor:
    if layout == "zigzag":
        return zigzag(TOKENS, rank, world)
    if layout == "uneven":  # each rank but the last holds 7 tokens, in falling order of the ranks
        return torch.arange(TOKENS).flip(0).split([7] * (world - 1) + [TOKENS - 7 * (world - 1)])[rank].flip(0)
    if layout == "scattered":
        blocks = torch.randperm(TOKENS // 3, generator=torch.Generator().manual_seed(3))
        return torch.arange(TOKENS).view(-1, 3)[blocks].flatten().chunk(world)[rank]
    return torch.arange(TOKENS).chunk(world)[rank]


def documents(kind: str) -> Tensor | None:
    index = torch.arange(TOKENS)
    first = torch.bucketize(index, torch.tensor([17, 60, 61]), right=True)
    second = torch.bucketize(index, torch.tensor([50, 80]), right=True)
    return {"": None, "shared": first, "per row": torch.stack([first, second])}[kind]


def inputs(job: Job) -> dict[str, Tensor]:
    source = torch.Generator().manual_seed(0)
    shapes = {
        "q": (BATCH, HEADS, TOKENS, WIDTH), "k": (BATCH, KV_HEADS, TOKENS, WIDTH),
        "v": (BATCH, KV_HEADS, TOKENS, WIDTH), "x": (BATCH, TOKENS, HEADS * WIDTH),
        "loss": (BATCH, HEADS, TOKENS, WIDTH),
    }  # fmt: skip
    return {n: torch.randn(shape, generator=source, dtype=torch.float64).to(job.dtype) for n, shape in shapes.items()}


def outcome(job: Job, call: Callable[..., Tensor], where: Tensor, options: dict[str, Any]) -> dict[str, Tensor]:
    """Results and all gradients for the tokens at ``where``, by name."""
    encodings, full = encodings_of(job), inputs(job)
    cut = {n: t.index_select(-2, where).requires_grad_(job.learns) for n, t in full.items() if n != "loss"}
    x = cut["x"] if any(p.numel() for e in encodings for p in e.parameters()) else None
    segments = documents(job.segments)
    options = options | {"segments": None if segments is None else segments[..., where]} | job.options
    with torch.set_grad_enabled(job.learns):
        out = call(cut["q"], cut["k"], cut["v"], encodings, x=x, **options)
    results = {"out": out.detach()}
    if job.learns:
        (out * full["loss"].index_select(-2, where)).sum().backward()
        results |= {n: torch.zeros_like(t) if t.grad is None else t.grad for n, t in cut.items()}
        for i, encoding in enumerate(encodings):
            for n, p in encoding.named_parameters():
                results[f"{i}.{n}"] = torch.zeros_like(p) if p.grad is None else p.grad
    return results


def joined(job: Job, of_ranks: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """What the ranks found, as one process finds it: tokens in their order, gradients of parameters summed."""
    order = torch.cat([places(job.layout, rank, len(of_ranks)) for rank in range(len(of_ranks))]).argsort()
    together = {}
    for name in of_ranks[0]:
        parts = [result[name] for result in of_ranks]
        together[name] = sum(parts[1:], parts[0]) if "." in name else torch.cat(parts, -2).index_select(-2, order)
    return together


def sharded(rank: int, world: int, jobs: list[Job]) -> list[dict[str, Tensor]]:
    results = []
    for job in jobs:
        where = places(job.layout, rank, world)
        results.append(outcome(job, sharded_attention, where, {"positions": where}))
    return results


def differences(folder: Path, world: int, jobs: list[Job]) -> Iterator[str]:
    """Whatever several processes find otherwise than one does."""
    of_ranks = spawned(folder, world, sharded, jobs)
    for i, job in enumerate(jobs):
        expected = outcome(job, attention, torch.arange(TOKENS), {})
        actual = joined(job, [rank[i] for rank in of_ranks])
        assert expected.keys() == actual.keys()
        tolerance = 1e-10 if job.dtype == torch.float64 else 2e-2
        for name, right in expected.items():
            scale = max(1.0, float(right.abs().max()))
            error = float((actual[name] - right).abs().max()) / scale
            if not error <= tolerance or actual[name].dtype != right.dtype:
                yield f"{job.name}: {name} differs by {error:.1e}, {actual[name].dtype}"


SPECIAL = [
    Job("nope", "uneven"),
    Job("rope+alibi", "uneven"),
    Job("rope+fox", "scattered"),
    Job("rope", "zigzag", "shared"),
    Job("t5", "uneven", "per row"),
    Job("rope+fox", "zigzag", "per row"),
    Job("dynamic_ntk", "zigzag", "shared"),
    Job("alibi+dynamic_ntk+fox", "uneven", "per row"),
    Job("dynamic_ntk", "zigzag", options={"length": 200}),
    Job("dynamic_ntk+cope", "zigzag", "shared", options={"length": 200}),
    Job("rope", "zigzag", options={"window": 11, "scale": 0.5, "softcap": 1.0}),
    Job("stick-breaking", "zigzag", options={"backend": "dense"}),
    Job("rope", "zigzag", learns=False),
    Job("rope+alibi", "uneven", dtype=torch.bfloat16),
]


def test_two_processes_equal_one(tmp_path: Path) -> None:
    jobs = [Job(recipe, "zigzag") for recipe in QUICK]
    assert list(differences(tmp_path, 2, [*jobs, *SPECIAL])) == []


@pytest.mark.slow
def test_four_processes_equal_one(tmp_path: Path) -> None:
    jobs = [Job(recipe, layout) for recipe in QUICK for layout in ("contiguous", "zigzag")]
    assert list(differences(tmp_path, 4, jobs)) == []


@pytest.mark.slow
@pytest.mark.parametrize("world", [3, 4])
def test_whole_catalogue(tmp_path: Path, world: int) -> None:
    cases = [Case.from_catalogue(name) for name in list_encodings() if name != "nope"]
    inside = [case.name for case in cases if case.axes == 1 and "embedding" not in case.hook_points]
    assert len(inside) > 25
    jobs = [Job(name, layout) for name in inside for layout in ("zigzag", "uneven")]
    jobs += [Job(name, "uneven", "per row", options={"length": 150}) for name in inside]
    assert list(differences(tmp_path, world, jobs)) == []


class Grid(RotaryEncoding):
    """Positions on a grid."""

    axes = 2


def complaints(rank: int, world: int, jobs: None) -> dict[str, str]:
    """What each wrong call says on this rank."""
    q = torch.randn(1, 2, 4, 8)
    good: dict[str, Any] = {"positions": torch.arange(4) + 4 * rank}
    second = rank == 1
    calls: dict[str, Callable[[], Tensor]] = {
        "missing": lambda: sharded_attention(q, q, q, positions=torch.arange(4) + 5 * rank),
        "twice": lambda: sharded_attention(q, q, q, positions=torch.tensor([0, 1, 2, 3 + second])),
        "negative": lambda: sharded_attention(q, q, q, positions=torch.arange(4) + 4 * rank - 1),
        "shape": lambda: sharded_attention(q, q, q, positions=torch.arange(4 + second)),
        "dtype": lambda: sharded_attention(q, q, q, positions=torch.arange(4.0)),
        "tokens": lambda: sharded_attention(q[:, :, 1:], q, q, **good),
        "heads": lambda: sharded_attention(*(q.repeat(1, 1 + rank, 1, 1),) * 3, **good),
        "encodings": lambda: sharded_attention(q, q, q, Case.from_catalogue("rope").make()[second:], **good),
        "window": lambda: sharded_attention(q, q, q, window=2 + rank, **good),
        "requires": lambda: sharded_attention(q, q.clone().requires_grad_(second), q, **good),
        "segments": lambda: sharded_attention(q, q, q, segments=None if second else torch.zeros(4), **good),
        "token_states": lambda: sharded_attention(
            q, q, q, [StickBreaking()], token_states=[torch.zeros(1, 2, 5)], **good
        ),
        "axes": lambda: sharded_attention(q, q, q, [Grid()], **good),
        "content": lambda: sharded_attention(
            q.repeat(1, 2, 1, 1), q, q, Case.from_catalogue("dynamic_ntk+cope").make(),
            segments=torch.zeros(4), **good,
        ),
    }  # fmt: skip
    messages = {}
    for name, call in calls.items():
        try:
            call()
        except ValueError as error:
            messages[name] = str(error)
    group = dist.new_group([0])
    try:
        sharded_attention(q, q, q, positions=torch.arange(4), group=group)
    except ValueError as error:
        messages["group"] = str(error)
    return messages


@pytest.mark.slow
def test_wrong_calls_fail_on_all_ranks(tmp_path: Path) -> None:
    first, second = spawned(tmp_path, 2, complaints)
    expected = {
        "missing": "4 is missing",
        "twice": "positions of all ranks together must be 0 … 7, once each, but 0 is there twice",
        "negative": "-1 is there",
        "dtype": "positions must be integers, got torch.float32",
        "tokens": "q, k and v must be of the same tokens, got 3 in q and 4 in k",
        "encodings": "encodings must be the same on all ranks",
        "heads": "sizes and dtype of q, k and v must be the same on all ranks, but differ; here",
        "window": "options must be the same",
        "requires": "requires_grad must be the same",
        "segments": "segments must be the same",
        "token_states": r"token_states of StickBreaking must .*\(batch, heads, 4, .*got a tensor \(1, 2, 5\)",
        "axes": "places in a text have one coordinate",
        "content": "length must be declared",
    }
    for name, pattern in expected.items():
        assert re.search(pattern, first[name]), first[name]
        assert re.search(pattern, second[name]), second[name]
    assert "rank 1" in first["shape"]
    assert re.search(r"^positions\b.*\(4,\).*\(5,\)", second["shape"])
    assert "group" not in first, "a group of its own serves rank 0"
    assert second["group"].startswith("group ")


def test_without_processes() -> None:
    q = torch.randn(1, 2, 4, 8)
    with pytest.raises(ValueError, match="init_process_group"):
        sharded_attention(q, q, q, positions=torch.arange(4))


def shards_of_attention(dtype: torch.dtype) -> tuple[list[tuple[Tensor, Tensor]], Tensor, list[Tensor]]:
    """Results and lse over four shards of the keys by plain formulas, those over all keys, and the inputs."""
    q, k, v = (t.requires_grad_() for t in torch.randn(3, 2, 4, 24, 8, dtype=dtype))
    hidden = torch.ones(24, 24, dtype=torch.bool).triu(1)
    scores = ((q @ k.mT) * 8**-0.5).masked_fill(hidden, -torch.inf)
    parts = []
    for block, values in zip(scores.split([6, 1, 9, 8], -1), v.split([6, 1, 9, 8], -2), strict=True):
        sees = (block > -torch.inf).any(-1, keepdim=True)
        weights = torch.where(sees, block.masked_fill(~sees, 0.0).softmax(-1), 0.0)
        parts.append((weights @ values, block.logsumexp(-1)))
    return parts, F.scaled_dot_product_attention(q, k, v, is_causal=True), [q, k, v]


def test_merged_shards_of_keys_are_attention() -> None:
    torch.manual_seed(0)
    parts, target, leaves = shards_of_attention(torch.float64)
    out, lse = merged(parts)
    torch.testing.assert_close(out, target, rtol=0, atol=1e-13)
    weight = torch.randn_like(out)
    actual = torch.autograd.grad((out * weight).sum(), leaves, retain_graph=True)
    expected = torch.autograd.grad((target * weight).sum(), leaves)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(lse, torch.stack([part for _, part in parts]).logsumexp(0), rtol=0, atol=1e-13)


def test_merging_goes_on() -> None:
    torch.manual_seed(0)
    parts, expected, _ = shards_of_attention(torch.float64)
    first, *rest = parts
    for other in rest:
        first = merged([other, first])
    torch.testing.assert_close(first[0], expected, rtol=0, atol=1e-13)


def test_merged_results_of_a_kernel() -> None:
    q, k, v = torch.randn(3, 2, 4, 32, 16)
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    parts = [kernel(q, kc, vc) for kc, vc in zip(k.split(8, 2), v.split(8, 2), strict=True)]
    torch.testing.assert_close(merged(parts)[0], attention(q, k, v, causal=False), rtol=0, atol=1e-6)


def test_merged_rows_that_see_nothing() -> None:
    out, lse = torch.randn(3, 4, requires_grad=True), torch.tensor([0.0, -torch.inf, -torch.inf], requires_grad=True)
    other, its = torch.randn(3, 4), torch.tensor([-torch.inf, 0.0, -torch.inf])
    result, total = merged([(out, lse), (other, its)])
    torch.testing.assert_close(result, torch.stack([out[0], other[1], torch.zeros(4)]))
    assert total[2] == -torch.inf
    (result.sum() + total[:2].sum()).backward()
    assert out.grad is not None
    assert lse.grad is not None
    assert out.grad.isfinite().all()
    assert lse.grad.isfinite().all()


def test_merged_keeps_the_dtype() -> None:
    out, lse = merged([(torch.randn(3, 4).bfloat16(), torch.randn(3))] * 2)
    assert (out.dtype, lse.dtype) == (torch.bfloat16, torch.float32)


def test_merged_wants_parts_that_fit() -> None:
    with pytest.raises(ValueError, match="parts"):
        merged([])
    with pytest.raises(ValueError, match=r"\(3, 4\).*\(3, 1\)"):
        merged([(torch.randn(3, 4), torch.randn(3, 1))])
