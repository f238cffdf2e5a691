"""What a call may say: positions, masks, segments, order; and the words when it does not fit."""

from __future__ import annotations

import pytest
import torch

from posenc import ALiBi, Encoding, ForgetGate, RoPE, T5Bias, attention, create_encoding
from posenc.catalogue import CATALOGUE
from posenc.positions import after
from posenc.score import CoPE, Shaw
from posenc.weight import StickBreaking
from tests.samples import BACKENDS, gap, qkv

EACH_BACKEND = pytest.mark.parametrize("backend", BACKENDS)
CLOSE = 1e-5


class TestOrder:
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
    def test_rows_decode_at_lengths_of_their_own(self, backend):
        """Half-filled caches: a row of 6 keys of which 4 are in use equals the row of 4 keys."""
        q, k, v = qkv(queries=1, keys=6)
        used = torch.tensor([6, 4])
        encodings, slots = [RoPE(8), ALiBi(4)], torch.arange(6)
        got = attention(q, k, v, encodings, q_pos=after(used - 1), k_pos=slots, causal="positions", backend=backend)
        for row, n in enumerate(used.tolist()):
            first = [t[row : row + 1] for t in (q, k[:, :, :n], v[:, :, :n])]
            assert gap(got[row : row + 1], attention(*first, encodings, backend=backend)) < CLOSE


class Placeless(Encoding):
    """An encoding that acts nowhere."""


def masked(*shape, dtype=torch.bool):
    return {"mask": torch.ones(shape, dtype=dtype)}


q, k, v = qkv()
BAD_CALLS = {  # faults of which the random ones of tests/fuzz/refusals.py have none
    "no place": ((q, k, v, [Placeless()]), {}, "Placeless"),
    "one sided": ((q[:, :, :2], k, v), {"q_pos": torch.arange(2)}, "k_pos must be given as well"),
    "other side": ((q[:, :, :2], k, v), {"k_pos": torch.arange(6)}, "q_pos must be given as well"),
    "padding": ((q, k, v), masked(2, 6), "mask[:, None, :]"),
    "segment pair": ((q, k, v), {"segments": (torch.zeros(6), torch.zeros(5))}, "segments of keys"),
    "x and token_states": ((q, k, v), {"x": torch.zeros(2, 6, 3), "token_states": []}, "token_states and x"),
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
