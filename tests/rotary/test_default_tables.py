"""Tables of default positions are kept within one limit, and never traced."""

from __future__ import annotations

import torch

from posenc import RoPE, attention
from posenc.layers import KVCache, SelfAttention
from posenc.positions.checking import default_positions, is_default
from posenc.rotary import _default_tables as default_tables
from tests.samples import gap, qkv


def test_a_table_of_default_positions_is_computed_once_and_equals_a_fresh_one():
    rope, (q, k, v) = RoPE(8), qkv(1, 2, 40, head_dim=8)
    with torch.autograd.profiler.profile() as profile:
        for _ in range(3):
            attention(q, k, v, [rope])
    assert sum(event.name == "aten::cos" for event in profile.function_events) == 1
    for start, stop in ((0, 40), (39, 40), (3, 9)):
        kept = rope.table(default_positions(stop - start, torch.device("cpu"), start))
        for got, expected in zip(kept, RoPE(8).table(torch.arange(start, stop)), strict=True):
            assert torch.equal(got, expected)


def test_steps_share_a_table_until_the_text_outgrows_it():
    layer, x, cache = SelfAttention(32, 2, encodings=[RoPE(16)]).eval(), torch.randn(1, 20, 32), KVCache()
    with torch.no_grad(), torch.autograd.profiler.profile() as profile:
        for token in x.split(1, 1):
            layer(token, cache=cache)
    assert sum(event.name == "aten::cos" for event in profile.function_events) == 2  # of 16 and of 32 tokens


def test_all_tables_of_the_process_have_one_limit(monkeypatch):
    """Sixteen modules at a thousand tokens; the newest stay."""
    monkeypatch.setattr(default_tables, "_KEPT", {})
    monkeypatch.setattr(default_tables, "LIMIT", 2**20)
    q = torch.randn(1, 1, 1000, 64)
    ropes = [RoPE(64, base=base) for base in range(100, 116)]
    for rope in ropes:
        attention(q, q, q, [rope])
    assert 0 < sum(kept.bytes for kept in default_tables._KEPT.values()) <= 2**20
    assert [kept.frequencies for kept in default_tables._KEPT.values()][-1] is ropes[-1]._constant_table
    long = torch.randn(1, 1, 5000, 64)  # a table above the limit is not kept, and drops no other
    before = list(default_tables._KEPT)
    attention(long, long, long, [ropes[0]])
    assert list(default_tables._KEPT) == before


def test_positions_that_were_written_into_are_counted_anew():
    positions = default_positions(7, torch.device("cpu"))
    assert default_positions(7, torch.device("cpu"))._base is positions._base
    positions += 1
    assert default_positions(7, torch.device("cpu")).tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert not is_default(positions)


def test_tables_follow_the_position_and_not_the_default_device():
    rope, (q, k, _) = RoPE(8), qkv(1, 2, 1, head_dim=8)
    places = torch.arange(4).split(1)
    with torch.device("meta"):
        rotated = [rope(q, k, place, place)[0] for place in places]
    for got, place in zip(rotated, places, strict=True):
        assert gap(got, RoPE(8)(q, k, place, place)[0]) < 5e-7
