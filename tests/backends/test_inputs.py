"""What a call may say: positions, masks, segments, order; and the words when it does not fit."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc import (
    ALiBi,
    CoPE,
    Encoding,
    ForgetGate,
    RoPE,
    Shaw,
    Sinusoidal,
    StickBreaking,
    T5Bias,
    attention,
    create_encoding,
)
from posenc.catalogue import CATALOGUE
from posenc.positions import after, from_mask, from_segments, zigzag
from tests.samples import BACKENDS, bounded, gap, qkv, weights

EACH_BACKEND = pytest.mark.parametrize("backend", BACKENDS)
ENCODINGS = [[], [RoPE(8)], [ALiBi(4)], [RoPE(8), T5Bias(4, init_std=1.0, bidirectional=True)]]
EACH_LIST = pytest.mark.parametrize("encodings", ENCODINGS, ids=["nope", "rope", "alibi", "rope+t5"])
CLOSE = 1e-5


class TestOrder:
    @EACH_BACKEND
    @EACH_LIST
    @pytest.mark.parametrize("queries", [1, 2, 5])
    def test_queries_are_the_last_keys(self, queries, encodings, backend):
        q, k, v = qkv()
        full = attention(q, k, v, encodings, backend=backend)
        last = attention(q[:, :, -queries:], k, v, encodings, backend=backend)
        assert gap(last, full[:, :, -queries:]) < CLOSE

    @EACH_BACKEND
    @EACH_LIST
    def test_more_queries_than_keys(self, encodings, backend):
        q, k, v = qkv(queries=6, keys=4)
        places = {"q_pos": torch.arange(-2, 4), "k_pos": torch.arange(4), "causal": "positions"}
        out = attention(q, k, v, encodings, backend=backend, **places)
        assert torch.equal(out[:, :, :2], torch.zeros_like(out[:, :, :2])), "they come before the first key"
        assert gap(out[:, :, 2:], attention(q[:, :, 2:], k, v, encodings, backend=backend)) < CLOSE

    @EACH_BACKEND
    @EACH_LIST
    def test_default_positions_may_be_given(self, encodings, backend):
        q, k, v = qkv(queries=3, keys=6)
        expected = attention(q, k, v, encodings, backend=backend)
        q_pos, k_pos = torch.arange(3, 6), torch.arange(6)
        for shift in (0, 5000, -7):
            for kind in (torch.int64, torch.int32, torch.float32, torch.int16):
                options = {"q_pos": (q_pos + shift).to(kind), "k_pos": (k_pos + shift).to(kind).expand(2, -1)}
                assert gap(attention(q, k, v, encodings, backend=backend, **options), expected) < 1e-4

    @EACH_BACKEND
    @EACH_LIST
    def test_one_side_of_positions_stands_for_both(self, encodings, backend):
        q, k, v = qkv()
        positions = torch.tensor([0, 3, 4, 9, 20, 21])
        expected = attention(q, k, v, encodings, q_pos=positions, k_pos=positions, backend=backend)
        assert torch.equal(attention(q, k, v, encodings, q_pos=positions, backend=backend), expected)
        assert torch.equal(attention(q, k, v, encodings, k_pos=positions, backend=backend), expected)

    @EACH_BACKEND
    @EACH_LIST
    @pytest.mark.parametrize("world", [1, 2, 3])
    def test_zigzag_shards_give_the_rows_of_one_process(self, world, encodings, backend):
        q, k, v = qkv(queries=12)
        expected = attention(q, k, v, encodings, backend=backend)
        shards = [zigzag(12, rank, world) for rank in range(world)]
        k_pos = torch.cat(shards)  # keys gathered from all ranks lie in the order of the ranks
        for shard in shards:
            got = attention(
                q[:, :, shard], k[:, :, k_pos], v[:, :, k_pos], encodings,
                q_pos=shard, k_pos=k_pos, causal="positions", backend=backend,
            )  # fmt: skip
            assert gap(got, expected[:, :, shard]) < CLOSE

    @EACH_BACKEND
    @EACH_LIST
    def test_order_in_memory_does_not_matter_by_positions(self, encodings, backend):
        q, k, v = qkv()
        expected = attention(q, k, v, encodings, backend=backend)
        order = torch.tensor([[3, 1, 5, 0, 2, 4], [5, 4, 3, 2, 1, 0]])
        shuffled = [t.gather(2, order[:, None, :, None].expand_as(t)) for t in (q, k, v)]
        got = attention(*shuffled, encodings, q_pos=order, causal="positions", backend=backend)
        assert gap(got, expected.gather(2, order[:, None, :, None].expand_as(expected))) < CLOSE

    @pytest.mark.parametrize("name", [n for n, e in CATALOGUE.items() if "shuffled_positions" in e.exempt])
    def test_shuffled_keys_are_refused_by_what_goes_by_the_order_of_tokens(self, name):
        (q, k, v), x = qkv(), torch.randn(2, 6, 32)
        encodings = [create_encoding(name, dim=32, num_heads=4, num_kv_heads=2, head_dim=8, train_length=8)]
        order = torch.tensor([3, 1, 5, 0, 2, 4])
        attention(q, k, v, encodings, x=x, q_pos=torch.arange(6) * 3, causal="positions")
        with pytest.raises(ValueError, match="k_pos must grow"):
            attention(q, k, v, encodings, x=x, q_pos=order, causal="positions")

    @pytest.mark.parametrize("backend", ["auto", "dense"])
    @pytest.mark.parametrize("first", [0, 3])
    @pytest.mark.parametrize(
        "encoding",
        [
            StickBreaking(),
            StickBreaking(attend_current=True),
            StickBreaking(remainder="own"),
            ForgetGate(32, num_heads=4),
            CoPE(8, max_position=8),
        ],
        ids=repr,
    )
    def test_half_filled_caches_of_what_goes_by_the_order_of_tokens(self, encoding, first, backend):
        """Queries 3 … 79 among slots of which some are empty: later ones, and hidden ones before the text."""
        (q, k, v), x, slots = qkv(queries=90, keys=90), torch.randn(2, 90, 32), torch.arange(90)
        for parameter in encoding.parameters():
            torch.nn.init.normal_(parameter)
        mask, part = (slots >= first).expand(90, 90), slice(3, 80)
        expected = attention(q, k, v, [encoding], x=x, mask=mask, backend="dense")[:, :, part]
        k_pos = torch.where(slots < first, 5 - first, slots - first)  # of empty slots: numbers of others
        places = {"q_pos": slots[part] - first, "k_pos": k_pos, "causal": "positions"}
        got = attention(q[:, :, part], k, v, [encoding], x=x, mask=mask[part], backend=backend, **places)
        assert gap(got, expected) < CLOSE
        places |= {"q_pos": k_pos[first:], "k_pos": k_pos[first:]}
        q, k, v, x = q[:, :, first:], k[:, :, first:], v[:, :, first:], x[:, first:]
        expected = attention(q, k, v, [encoding], x=x, backend="dense")
        assert gap(attention(q, k, v, [encoding], x=x, backend="tiled", **places), expected) < CLOSE, "by index as well"

    @pytest.mark.parametrize("name", ["path", "selective_rope", "grape_ap", "grape_context", "token_relative", "repo"])
    def test_what_was_kept_of_a_query_is_not_looked_for_in_a_half_filled_cache(self, name):
        (q, k, v), x = qkv(), torch.randn(2, 6, 32)
        encodings = [create_encoding(name, dim=32, num_heads=4, num_kv_heads=2, head_dim=8, train_length=8)]
        slots, order = torch.arange(6), torch.tensor([3, 1, 5, 0, 2, 4])
        for queries in (slice(2, 3), slice(2, 5)):
            with pytest.raises(ValueError, match="k_pos of the last"):
                attention(q[:, :, queries], k, v, encodings, x=x, q_pos=slots[queries], k_pos=slots, causal="positions")
        if name in ("token_relative", "repo"):  # they read no order
            expected = attention(q, k, v, encodings, x=x)[:, :, order]
            q, k, v = (t[:, :, order] for t in (q, k, v))
            got = attention(q, k, v, encodings, x=x[:, order], q_pos=order, causal="positions")
            assert gap(got, expected) < CLOSE

    def test_branches_that_do_not_see_one_another_may_repeat_positions(self):
        """Tokens 0 1 2 and two drafts 3 4 of them: no query attends to both, so that each sees an order of text."""
        q, k, v = qkv(queries=7, keys=7)
        gates = [create_encoding("fox", dim=32, num_heads=4, kind="fixed", decay_time=(2, 8))]
        mask = torch.ones(7, 7, dtype=torch.bool).tril()
        mask[5:, 3:5] = False
        positions = torch.tensor([0, 1, 2, 3, 4, 3, 4])
        got = attention(q, k, v, gates, q_pos=positions, causal="positions", mask=mask)
        for branch in ([0, 1, 2, 3, 4], [0, 1, 2, 5, 6]):
            alone = attention(q[:, :, branch], k[:, :, branch], v[:, :, branch], gates)
            assert gap(got[:, :, branch], alone) < CLOSE

    @EACH_BACKEND
    def test_index_order_stays_index_order_whatever_the_positions(self, backend):
        q, k, v = qkv()
        assert (
            gap(attention(q, k, v, q_pos=torch.tensor([5, 1, 4, 0, 2, 3]), backend=backend), attention(q, k, v)) < CLOSE
        )

    @EACH_BACKEND
    def test_rows_decode_at_lengths_of_their_own(self, backend):
        """Half-filled caches: a row of 6 keys of which 4 are in use equals the row of 4 keys."""
        q, k, v = qkv(queries=1, keys=6)
        used = torch.tensor([6, 4])
        encodings, slots = [RoPE(8), ALiBi(4)], torch.arange(6)
        got = attention(q, k, v, encodings, q_pos=after(used - 1), k_pos=slots, causal="positions", backend=backend)
        for row, n in enumerate(used.tolist()):
            first = [t[row : row + 1] for t in (q, k[:, :, :n], v[:, :, :n])]
            assert gap(got[row : row + 1], attention(*first, encodings, backend=backend)) < CLOSE


class TestMasks:
    @EACH_BACKEND
    @EACH_LIST
    @pytest.mark.parametrize(
        "shape",
        [(4, 6), (1, 6), (2, 4, 6), (1, 4, 6), (2, 1, 6), (2, 4, 4, 6), (1, 4, 1, 6), (2, 1, 4, 6), (1, 1, 1, 6)],
    )
    @pytest.mark.parametrize("causal", [True, False])
    def test_documented_shapes(self, shape, encodings, causal, backend):
        q, k, v = qkv(queries=4, keys=6)
        mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.6
        full = (mask.unsqueeze(1) if mask.ndim == 3 else mask).expand(2, 4, 4, 6)
        allowed = full & torch.ones(4, 6).tril(2).bool() if causal else full
        attn = weights(q, k, encodings, mask=mask, causal=causal, backend=backend)
        assert (attn.masked_select(~allowed) == 0).all()
        assert gap(attn.sum(-1), allowed.any(-1).double()) < 1e-6
        free = weights(q, k, encodings, causal=False, backend=backend)
        expected = free.where(allowed, 0)
        expected = expected / expected.sum(-1, keepdim=True).where(allowed.any(-1, keepdim=True), 1)
        assert gap(attn, expected) < CLOSE
        assert gap(attention(q, k, v, encodings, mask=mask, causal=causal, backend=backend), attn @ v) < CLOSE

    def test_one_row_for_all_queries_in_a_batch_of_one(self):
        q, k, v = qkv(batch=1)
        mask = torch.tensor([[True, True, True, False, True, True]])
        assert gap(attention(q, k, v, mask=mask), attention(q, k, v, mask=mask[None])) < CLOSE

    @EACH_BACKEND
    @EACH_LIST
    @pytest.mark.parametrize("side", ["left", "right"])
    def test_padded_rows_equal_unpadded_rows(self, side, encodings, backend):
        q, k, v = qkv()
        real = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1] if side == "left" else [1, 1, 1, 1, 0, 0]]).bool()
        got = attention(q, k, v, encodings, q_pos=from_mask(real), mask=real[:, None], backend=backend)
        for row in range(2):
            alone = [t[row : row + 1][:, :, real[row]] for t in (q, k, v)]
            assert gap(got[row : row + 1][:, :, real[row]], attention(*alone, encodings, backend=backend)) < CLOSE

    @EACH_BACKEND
    @EACH_LIST
    @pytest.mark.parametrize("num_kv_heads", [4, 2])
    def test_rows_without_keys_give_zeros_and_no_gradient(self, num_kv_heads, encodings, backend):
        q, k, v = (t.requires_grad_() for t in qkv(num_kv_heads=num_kv_heads))
        mask = torch.ones(2, 6, 6, dtype=torch.bool)
        mask[0, 2] = mask[1] = False
        out = attention(q, k, v, encodings, mask=mask, backend=backend)
        assert (out[0, :, 2] == 0).all()
        assert (out[1] == 0).all()
        parameters = [p for e in encodings for p in e.parameters()]
        gradients = torch.autograd.grad(out.square().sum(), [q, k, v, *parameters])
        assert all(g.isfinite().all() for g in gradients)
        assert (gradients[0][0, :, 2] == 0).all()
        assert all((g[1] == 0).all() for g in gradients[:3])
        assert gradients[0][0, :, 3].abs().min() > 0


class TestSegments:
    @bounded
    @given(
        st.lists(st.integers(0, 2), min_size=6, max_size=6), st.sampled_from(BACKENDS), st.sampled_from([0, 1, 2, 3])
    )
    def test_packed_documents_equal_separate_ones(self, numbers, backend, which):
        segments = torch.tensor(sorted(numbers))
        q, k, v = qkv()
        packed = attention(q, k, v, ENCODINGS[which], segments=segments, q_pos=from_segments(segments), backend=backend)
        for number in set(numbers):
            alone = [t[:, :, segments == number] for t in (q, k, v)]
            assert gap(packed[:, :, segments == number], attention(*alone, ENCODINGS[which], backend=backend)) < CLOSE

    @EACH_BACKEND
    def test_forms(self, backend):
        q, k, v = qkv(queries=3, keys=6)
        segments = torch.tensor([[0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 0, 2]])
        expected = attention(q, k, v, mask=segments[:, 3:, None] == segments[:, None], backend=backend)
        assert gap(attention(q, k, v, segments=segments, backend=backend), expected) < CLOSE
        assert gap(attention(q, k, v, segments=(segments[:, 3:], segments), backend=backend), expected) < CLOSE
        first = attention(q[:1], k[:1], v[:1], segments=segments[0], backend=backend)
        assert gap(first, expected[:1]) < CLOSE
        mixed = attention(q, k, v, segments=(segments[:1, 3:], segments[0]), backend=backend)
        assert gap(mixed[:1], expected[:1]) < CLOSE


class Placeless(Encoding):
    """An encoding that acts nowhere."""


def masked(*shape, dtype=torch.bool):
    return {"mask": torch.ones(shape, dtype=dtype)}


q, k, v = qkv()
BAD_CALLS = {
    "three axes": ((q[0], k, v), {}, "q, k and v must be (batch, heads, tokens, width)"),
    "batches": ((q, k[:1], v), {}, "same batch"),
    "key heads": ((q, k, v[:, :2]), {}, "k and v must have the same heads and tokens"),
    "key tokens": ((q, k, v[:, :, :5]), {}, "k and v must have the same heads and tokens"),
    "widths": ((q, k[..., :6], v), {}, "q and k must have the same width"),
    "groups": ((q, k[:, :3], v[:, :3]), {}, "heads of q must be a multiple of the heads of k"),
    "no keys": ((q, k[:, :, :0], v[:, :, :0]), {}, "k must hold at least one key"),
    "dtypes": ((q, k.double(), v), {}, "q, k and v must have one floating dtype"),
    "integers": ((q.long(), k.long(), v.long()), {}, "q, k and v must have one floating dtype"),
    "no list": ((q, k, v, ALiBi(4)), {}, "encodings must be a list, got one encoding: pass [ALiBi(...)]"),
    "a class": ((q, k, v, [ALiBi]), {}, "encodings must hold encodings"),
    "no place": ((q, k, v, [Placeless()]), {}, "Placeless is no encoding: subclass one of"),
    "embedding": ((q, k, v, [Sinusoidal(8)]), {}, "Sinusoidal acts on token embeddings"),
    "head count": ((q, k, v, [ALiBi(8)]), {}, "num_heads of ALiBi is 8, but q has 4 heads"),
    "head width": ((q, k, v, [RoPE(16)]), {}, "head_dim of this RoPE is 16"),
    "causal": ((q, k, v), {"causal": "yes"}, "causal must be True, False or 'positions'"),
    "backend": (
        (q, k, v),
        {"backend": "flash"},
        "backend must be one of ('auto', 'triton', 'flex', 'sdpa', 'tiled', 'ranged', 'rows', 'dense')",
    ),
    "one sided": ((q[:, :, :2], k, v), {"q_pos": torch.arange(2)}, "k_pos must be given as well"),
    "other side": ((q[:, :, :2], k, v), {"k_pos": torch.arange(6)}, "q_pos must be given as well"),
    "q_pos": ((q, k, v), {"q_pos": torch.arange(5)}, "q_pos must be (tokens,) or (batch, tokens)"),
    "k_pos": ((q, k, v), {"q_pos": torch.arange(6), "k_pos": torch.zeros(3, 6).long()}, "k_pos must be"),
    "scalar": ((q, k, v), {"q_pos": torch.tensor(3)}, "q_pos must be (tokens,) or (batch, tokens)"),
    "bfloat16": ((q, k, v), {"q_pos": torch.arange(6).bfloat16()}, "q_pos must be integers (exact)"),
    "bool": ((q, k, v), {"q_pos": torch.arange(6), "k_pos": torch.ones(6).bool()}, "k_pos must be integers (exact)"),
    "mask dtype": ((q, k, v), masked(6, 6, dtype=torch.float32), "mask must be bool"),
    "padding": ((q, k, v), masked(2, 6), "for padding of shape (batch, keys) pass mask[:, None, :]"),
    "mask keys": ((q, k, v), masked(6, 1), "mask must be (queries, keys) = (6, 6)"),
    "mask heads": ((q, k, v), masked(2, 3, 6, 6), "mask must be"),
    "mask axes": ((q, k, v), masked(1, 1, 1, 6, 6), "mask must be"),
    "mask vector": ((q, k, v), masked(6), "mask must be"),
    "segments": ((q, k, v), {"segments": torch.zeros(5)}, "segments must be (tokens,) or (batch, tokens) for 6 keys"),
    "segment rows": ((q, k, v), {"segments": torch.zeros(3, 6)}, "segments of queries must be"),
    "segment pair": ((q, k, v), {"segments": (torch.zeros(6), torch.zeros(5))}, "segments of keys must be"),
    "x": ((q, k, v), {"x": torch.zeros(2, 5, 3)}, "x must be (batch, keys, dim)"),
    "x and features": ((q, k, v), {"x": torch.zeros(2, 6, 3), "features": []}, "features and x must not both"),
    "features": ((q, k, v, [ALiBi(4)]), {"features": []}, "features must hold one entry per encoding (1)"),
    "refusal": (
        (q, k, v, [Shaw(8, max_distance=2)]),
        {"backend": "sdpa"},
        "backend 'sdpa' cannot serve this call: Shaw",
    ),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_refusals_name_the_argument(case):
    given_tensors, options, words = BAD_CALLS[case]
    with pytest.raises(ValueError) as error:
        attention(*given_tensors, **options)
    assert words in str(error.value)


def test_segments_come_in_pairs():
    with pytest.raises(ValueError, match="segments"):
        attention(q, k, v, segments=(torch.zeros(6),) * 3)


@EACH_BACKEND
@pytest.mark.parametrize("case", ["positions", "weight", "weight, positions given"])
def test_a_bias_may_be_wider_than_the_call(case, backend):
    tensors, positions = qkv(), torch.arange(6)
    bias = ALiBi(4) if case == "positions" else T5Bias(4, init_std=1.0, bidirectional=True)
    options = {} if case == "weight" else {"q_pos": positions}
    expected = attention(*tensors, [bias], backend=backend, **options)
    if case == "positions":
        options = {"q_pos": positions.double()}
    got = attention(*tensors, [bias.double()], backend=backend, **options)
    assert got.dtype == torch.float32
    assert gap(got, expected) < CLOSE


@EACH_BACKEND
@pytest.mark.parametrize("empty", ["queries", "batch"])
def test_nothing_in_nothing_out(empty, backend):
    tensors = qkv(batch=0) if empty == "batch" else qkv(queries=0, keys=6)
    for encodings in ([], [RoPE(8)], [ALiBi(4)]):
        assert attention(*tensors, encodings, backend=backend).shape == tensors[0].shape


@EACH_BACKEND
def test_shapes_without_numbers(backend):
    tensors = [t.to("meta") for t in qkv()]
    assert attention(*tensors, [RoPE(8), ALiBi(4)], backend=backend).shape == tensors[0].shape


@pytest.mark.parametrize("name", ["q_pos", "k_pos"])
@pytest.mark.parametrize("value", [[0, 1, 2, 3, 4, 5], torch.ones(6, dtype=torch.bool)], ids=["list", "bool"])
def test_the_side_that_was_given_is_named(name, value):
    with pytest.raises(ValueError, match=name):
        attention(*qkv(), [RoPE(8)], **{name: value})
