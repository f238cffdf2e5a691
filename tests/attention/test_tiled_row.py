"""The operator for functions of the distance: values, gradients, compilers' view of it, memory."""

from __future__ import annotations

import pytest
import torch
from torch.library import opcheck
from torch.utils._python_dispatch import TorchDispatchMode

from posenc import ALiBi, T5Bias, attention
from posenc.attention import distance
from tests.samples import gap, qkv

BORDERS = [1, 2, 63, 64, 65, 255, 256, 257, 513]


def definition(q, k, v, row, scale, causal) -> torch.Tensor:
    """The same by a full matrix, with the bias gathered entry by entry."""
    queries, keys, group = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    apart = torch.arange(keys) - (torch.arange(queries)[:, None] + keys - queries)  # j − i
    scores = q @ k.repeat_interleave(group, 1).mT * scale + row[:, queries - 1 - apart]
    if causal:
        hidden = apart > 0
        scores = scores.masked_fill(hidden, -torch.inf).masked_fill(hidden.all(-1, keepdim=True), 0)
        return (scores.softmax(-1) * ~hidden.all(-1, keepdim=True)) @ v.repeat_interleave(group, 1)
    return scores.softmax(-1) @ v.repeat_interleave(group, 1)


def problem(queries, keys=None, *, heads=4, rows=4, dtype=torch.float64, learned=True, seed=0, **options):
    q, k, v = qkv(1, heads, queries, keys, head_dim=4, dtype=dtype, seed=seed, **options)
    generator = torch.Generator().manual_seed(seed + 1)
    row = torch.randn(rows, q.shape[2] + k.shape[2] - 1, generator=generator, dtype=dtype)
    for t in (q, k, v, row) if learned else (q, k, v):
        t.requires_grad_()
    return q, k, v, row


def results(function, q, k, v, row, causal) -> list[torch.Tensor]:
    out = function(q, k, v, row, 0.5, causal)
    signs = torch.randint(0, 2, out.shape, generator=torch.Generator().manual_seed(5)) * 2 - 1  # exact in every dtype
    target = signs.to(out.dtype)
    return [out, *torch.autograd.grad((out * target).sum(), [t for t in (q, k, v, row) if t.requires_grad])]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("length", BORDERS)
def test_borders_of_blocks(length, learned, causal):
    args = problem(length, heads=2, rows=2, learned=learned)
    for a, b in zip(*(results(f, *args, causal) for f in (distance.attend, definition)), strict=True):
        assert gap(a, b) < 1e-11


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize(
    ("queries", "keys"), [(1, 1), (1, 300), (2, 300), (257, 300), (300, 257), (300, 1), (70, 3), (3, 70)]
)
def test_cross_lengths(queries, keys, learned, causal):
    args = problem(queries, keys, heads=2, rows=2, learned=learned)
    for a, b in zip(*(results(f, *args, causal) for f in (distance.attend, definition)), strict=True):
        assert gap(a, b) < 1e-11


@pytest.mark.parametrize("rows", [4, 1])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("learned", [True, False])
def test_groups_and_one_row_for_all_heads(rows, kv_heads, transposed, learned):
    args = problem(70, 80, rows=rows, kv_heads=kv_heads, transposed=transposed, learned=learned)
    for a, b in zip(*(results(f, *args, True) for f in (distance.attend, definition)), strict=True):
        assert gap(a, b) < 1e-11


@pytest.mark.parametrize("causal", [True, False])
def test_gradcheck(causal):
    args = problem(3, 5, heads=2, rows=2, kv_heads=1)
    torch.autograd.gradcheck(lambda *t: distance.attend(*t, 0.5, causal), args)


@pytest.mark.parametrize(
    ("dtype", "values", "gradients"), [(torch.float32, 2e-6, 2e-5), (torch.bfloat16, 2e-2, 2e-1)], ids=str
)
@pytest.mark.parametrize("learned", [True, False])
def test_errors_against_float64(dtype, values, gradients, learned):
    narrow = problem(300, heads=2, rows=2, dtype=dtype, learned=learned)
    row = narrow[3].detach().float().requires_grad_(learned)  # biases come in float32 or better
    wide = [t.detach().double().requires_grad_(t.requires_grad) for t in (*narrow[:3], row)]
    got, wanted = results(distance.attend, *narrow[:3], row, True), results(definition, *wide, True)
    assert got[0].dtype == dtype
    assert gap(got[0], wanted[0]) < values
    for a, b in zip(got[1:], wanted[1:], strict=True):
        assert (a - b).norm() / b.norm() < gradients


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_opcheck(kv_heads, transposed, causal):
    args = problem(5, 7, kv_heads=kv_heads, transposed=transposed, dtype=torch.float32)
    opcheck(distance._operator, (*args, 0.3, causal))


@pytest.mark.parametrize(
    "transposed",
    [False, True],
)
def test_opcheck_of_the_backward_pass(transposed):
    q, k, v, row = (t.detach() for t in problem(5, 7, transposed=transposed, dtype=torch.float32))
    out = distance._operator(q, k, v, row, 0.3, True)
    opcheck(distance._backward_operator, (torch.ones_like(out), q, k, v, row, out, 0.3, True))


@pytest.mark.parametrize("transposed", [False, True])
def test_compiled_gradients(transposed):
    """Traced ahead of time, with the operator as one node."""
    bias = T5Bias(4, init_std=1.0)
    leaves = [t.requires_grad_() for t in qkv(transposed=transposed)]

    def loss(q, k, v):
        return attention(q, k, v, [bias]).square().sum()

    wanted = torch.autograd.grad(loss(*leaves), [*leaves, bias.weight])
    torch.compiler.reset()
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    for a, b in zip(torch.autograd.grad(compiled(*leaves), [*leaves, bias.weight]), wanted, strict=True):
        assert gap(a, b) < 1e-5


class Largest(TorchDispatchMode):
    """The largest storage that any operation returned, in elements; views of a small one count as small."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for t in torch.utils._pytree.tree_leaves(out):
            if isinstance(t, torch.Tensor):
                self.elements = max(self.elements, t.untyped_storage().nbytes() // t.element_size())
        return out


@pytest.mark.parametrize("causal", [True, False])
def test_no_matrix_of_length_squared_for_a_fixed_row(causal):
    length = 2048
    q, k, v = (t.requires_grad_() for t in qkv(1, 2, length))
    with Largest() as seen:
        attention(q, k, v, [ALiBi(2)], causal=causal).square().sum().backward()
    assert q.numel() <= seen.elements < length * length / 4
    with Largest() as seen:
        attention(q, k, v, [ALiBi(2)], causal=causal, path="dense")
    assert seen.elements >= length * length, "the measure sees what the definition builds"


@pytest.mark.parametrize("causal", [True, False])
def test_no_matrix_of_length_squared_for_a_learned_row(causal):
    """A dispatch mode sees a custom operator from outside, so its two halves are measured by themselves."""
    length = 2048
    q, k, v, row = (t.detach() for t in problem(length, heads=2, rows=2, dtype=torch.float32))
    with Largest() as seen:
        out = distance._forward(q, k, v, row, 0.3, causal)
        distance._backward(torch.ones_like(out), q, k, v, row, out, 0.3, causal)
    assert q.numel() <= seen.elements < length * length / 4


def test_diagonal_sums():
    matrix = torch.randn(3, 4, 6)
    wanted = torch.stack([matrix.flip(1).diagonal(n - 3, dim1=1, dim2=2).sum(-1) for n in range(9)], -1)
    assert gap(distance._diagonal_sums(matrix), wanted) < 1e-6


class TestReach:
    """Keys whose weight is below rounding are skipped; nothing else is."""

    LENGTH = 2 * distance.BLOCK + 200

    def check(self, q, k, v, row, causal, tolerance=1e-11):
        for a, b in zip(*(results(f, q, k, v, row, causal) for f in (distance.attend, definition)), strict=True):
            assert gap(a, b) < tolerance

    def sloped(self, slopes, queries, keys) -> torch.Tensor:
        apart = queries - 1 - torch.arange(queries + keys - 1, dtype=torch.float64)
        return -torch.tensor(slopes, dtype=torch.float64)[:, None] * apart.abs()

    @pytest.mark.parametrize("causal", [True, False])
    @pytest.mark.parametrize("learned", [True, False])
    @pytest.mark.parametrize("kv_heads", [4, 2])
    @pytest.mark.parametrize("queries", [LENGTH, 300, 1])
    def test_steep_and_flat_heads(self, queries, kv_heads, learned, causal):
        q, k, v, _ = problem(queries, self.LENGTH, kv_heads=kv_heads, learned=learned)
        row = self.sloped([2.0, 0.001, 1.0, 1.0], queries, self.LENGTH).requires_grad_(learned)
        self.check(q, k, v, row, causal)

    def test_steep_heads_skip_and_flat_ones_do_not(self):
        q, k, *_ = problem(self.LENGTH)
        strips, row = distance.reach(q, k, self.sloped([2.0, 2.0, 0.001, 0.0], self.LENGTH, self.LENGTH), 0.5)
        assert [(s.first, s.last) for s in strips] == [(0, 2), (2, 4)]
        assert strips[0].high - strips[0].low <= 2 * distance.BLOCK
        assert strips[1].high - strips[1].low == row.shape[-1]
        assert row[0].isinf().any()
        assert row[3].isfinite().all()

    @pytest.mark.parametrize("where", [0, 1, 300, 700])
    @pytest.mark.parametrize("causal", [True, False])
    def test_a_loud_key_is_heard_from_afar(self, where, causal):
        """One key, and one query that looks for it, are long enough to outweigh the bias of any distance."""
        q, k, v = (t.detach() for t in problem(self.LENGTH, heads=1, rows=1)[:3])
        k[:, :, where] *= 200
        q[:, :, -1] = 20 * k[:, :, where] / k[:, :, where].norm()
        q[:, :, 0] = q[:, :, -1]
        row = self.sloped([1.0], self.LENGTH, self.LENGTH).expand(2, -1).contiguous()
        q, k, v = (t.repeat(1, 2, 1, 1).requires_grad_() for t in (q, k, v))
        self.check(q, k, v, row, causal)

    @pytest.mark.parametrize("learned", [True, False])
    def test_rows_of_any_shape(self, learned):
        """Peaks far away, holes of −inf, a row that rises with the distance."""
        q, k, v, _ = problem(self.LENGTH, heads=3, learned=learned)
        row = self.sloped([1.0, 1.0, -0.5], self.LENGTH, self.LENGTH)
        row[0, -50:] = 3.0
        row[1, self.LENGTH + 20 : self.LENGTH + 90] = -1e4
        self.check(q, k, v, row.requires_grad_(learned), True, 1e-10)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
    def test_narrow_inputs(self, dtype):
        q, k, v = (t.detach() for t in problem(self.LENGTH, dtype=dtype)[:3])
        row = self.sloped([2.0, 0.5, 0.1, 0.01], self.LENGTH, self.LENGTH)
        got = distance.attend(q, k, v, row.float(), 0.5, True)
        wanted = definition(q.double(), k.double(), v.double(), row, 0.5, True)
        assert gap(got, wanted) < {torch.float32: 5e-6, torch.bfloat16: 3e-2, torch.float16: 4e-3}[dtype]

    def test_products_beyond_float16(self):
        q, k, v = (torch.zeros(1, 2, self.LENGTH, 4, dtype=torch.float16) for _ in range(3))
        q[:, :, -1, 0], k[:, :, -1, 0], k[:, :, 3, 0] = 300, 300, 600
        v[:, :, 3] = 1
        row = self.sloped([1.0, 0.5], self.LENGTH, self.LENGTH).float()
        out = distance.attend(q, k, v, row, 0.5, True)
        assert (out[:, :, -1] == 1).all(), "the last query sees key 3, whose score is far above all others"
