"""The definition by blocks of queries: for encodings of which nothing is known but that they act row by row."""

from __future__ import annotations

import pytest
import torch

from posenc import ScoreEncoding, attention
from posenc.backends.rows import BLOCK
from posenc.bias import KERPLE
from posenc.encoding import Scope
from posenc.score import DAPE
from tests.backends.tiles.compare import Largest, expect_dense
from tests.samples import qkv


@pytest.mark.parametrize(("queries", "keys"), [(BLOCK + 1, BLOCK + 1), (70, 150)])
@pytest.mark.parametrize("name", ["t5+fox", "shaw", "rope+cope rotated", "cope separate", "sticks vector", "dape"])
def test_equals_the_definition(name, queries, keys):
    if name == "shaw" and queries > keys:
        keys = queries
    expect_dense(name, queries, keys, backend="rows")


def test_one_block_lives_at_a_time():
    length = 1500
    q, k, v = (t.requires_grad_() for t in qkv(1, 2, length))
    with Largest() as seen:
        attention(q, k, v, [DAPE(KERPLE(2), hidden=2)], backend="rows").square().sum().backward()
    assert q.numel() <= seen.elements < length * length


class Centred(ScoreEncoding):
    """Takes from each score the mean over all queries of the call, and says so."""

    scope = Scope(by_rows=False)

    def forward(self, scores, context):
        return scores - scores.mean(2, keepdim=True)


class TestRefusals:
    def test_without_an_order_by_index(self):
        for causal in (False, "positions"):
            with pytest.raises(ValueError, match=r"'rows'.*causal"):
                attention(*qkv(1, 4, 100), causal=causal, backend="rows")

    def test_one_block(self):
        with pytest.raises(ValueError, match=rf"\b{BLOCK}\b"):
            attention(*qkv(1, 4, BLOCK), backend="rows")

    def test_queries_that_depend_on_one_another(self):
        with pytest.raises(ValueError, match="Centred"):
            attention(*qkv(1, 4, 100), [Centred()], backend="rows")

    def test_under_a_compiler(self):
        q, k, v = qkv(1, 4, 100)
        torch.compiler.reset()
        with pytest.raises(Exception, match="rows"):
            torch.compile(lambda: attention(q, k, v, backend="rows"), backend="eager", fullgraph=True)()
        torch.compiler.reset()
