"""FoX (Pro) against the authors' layer; decoding, padding and packing change nothing."""

from __future__ import annotations

import pytest
import torch

from posenc import RoPE
from posenc.layers import KVCache, SelfAttention
from posenc.layers.fox_pro import FoXPro
from posenc.positions import from_mask, from_segments
from posenc.score.forget import ForgetGate
from tests.golden import load
from tests.samples import gap

DIM, HEADS, LENGTH = 32, 4, 12
CLOSE = 1e-5
AUTHORS_NAMES = {  # our names: the authors'
    "q_proj.weight": "q_proj__weight",
    "k_proj.weight": "k_proj__linear__weight",
    "k_shift.weight": "k_proj__shift_proj__weight",
    "v_proj.weight": "v_proj__linear__weight",
    "v_shift.weight": "v_proj__shift_proj__weight",
    "o_proj.weight": "o_proj__weight",
    "encodings.0.weight": "fgate_proj__weight",
    "encodings.0.bias": "fgate_proj__bias",
    "out_gate.weight": "ogate_proj__weight",
    "out_norm.weight": "output_norm__weight",
    "q_norm.weight": "q_norm__weight",
    "k_norm.weight": "k_norm__weight",
}


def layer(*encodings, init_std=0.4, **options) -> FoXPro:
    """A layer whose weights are large enough to matter."""
    torch.manual_seed(0)
    module = FoXPro(DIM, HEADS, encodings=encodings, init_std=init_std, **options)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.rand_like(parameter))
    return module


def tokens(batch=2, length=LENGTH) -> torch.Tensor:
    return torch.randn(batch, length, DIM, generator=torch.Generator().manual_seed(1))


def in_pieces(module, x, sizes, **options) -> torch.Tensor:
    """x read in pieces with one cache; ``kept`` are cut along their last axis as x is."""
    cache, cut = KVCache(), {name: tensor.split(sizes, -1) for name, tensor in options.items()}
    outs = [
        module(part, cache=cache, **{name: parts[n] for name, parts in cut.items()})
        for n, part in enumerate(x.split(sizes, 1))
    ]
    return torch.cat(outs, 1)


SIZES = pytest.mark.parametrize("sizes", [[LENGTH], [1] * LENGTH, [5, 4, 3], [1, 6, 1, 4]], ids=str)


class TestGolden:
    def test_layer_and_decoding(self):
        golden = load("foxlayer_pro")
        module = FoXPro(32, 4).double()
        module.load_state_dict(
            {actual: golden[f"p_{reference}"] for actual, reference in AUTHORS_NAMES.items()}, strict=True
        )
        x, first = golden["x"], int(golden["prefill_len"])
        assert gap(module(x), golden["out"]) < 1e-11
        assert gap(in_pieces(module, x, [first] + [1] * (x.shape[1] - first)), golden["decode_out"]) < 1e-11
        single = module.float()(x.float())
        assert gap(single, golden["out"]) < 2e-5

    def test_shifted_and_normed_keys_and_values(self):
        golden = load("foxlayer_pro")
        module = FoXPro(32, 4).double()
        module.load_state_dict({actual: golden[f"p_{reference}"] for actual, reference in AUTHORS_NAMES.items()})
        cache = KVCache()
        module(golden["x"], cache=cache)
        assert gap(cache.k, golden["inner_k"]) < 1e-12
        assert gap(cache.v, golden["inner_v"]) < 1e-12
        assert gap(cache.token_states[0], golden["inner_log_fgate"]) < 1e-12


class TestDecoding:
    @SIZES
    @pytest.mark.parametrize("pads", [(0, 5), (7, LENGTH), (3, 6), (0, LENGTH - 1)], ids=str)
    def test_padded_rows_equal_rows_alone(self, pads, sizes):
        module, x = layer(RoPE(8)), tokens()
        real = torch.ones(2, LENGTH, dtype=torch.bool)
        real[1, slice(*pads)] = False
        out = in_pieces(module, x, sizes, attention_mask=real, positions=from_mask(real))
        for row in range(2):
            assert gap(out[row : row + 1, real[row]], module(x[row : row + 1, real[row]])) < CLOSE

    @SIZES
    @pytest.mark.parametrize("per_row", [False, True])
    def test_packed_documents_equal_documents_alone(self, per_row, sizes):
        module, x = layer(RoPE(8)), tokens()
        segments = torch.tensor([0] * 4 + [1] + [2] * 5 + [3] * 2)
        segments = torch.stack([segments, segments + 1]) if per_row else segments
        out = in_pieces(module, x, sizes, segments=segments, positions=from_segments(segments))
        first = segments[0] if per_row else segments
        for number in range(4):
            actual = first == number
            assert gap(out[:, actual], module(x[:, actual])) < CLOSE


class TestForm:
    def test_first_values(self):
        torch.manual_seed(0)
        module = FoXPro(256, 4)
        for name, parameter in module.named_parameters():
            if name.endswith("norm.weight"):
                assert (parameter == 1).all(), name
            elif name.endswith("bias"):
                assert (parameter == 0).all(), name
            else:
                assert abs(parameter.std().item() - 0.02) < 2e-3, name

    def test_parameters_are_drawn_anew(self):
        with torch.device("meta"):
            module = FoXPro(64, 4, encodings=[RoPE(16)])
        module = module.to_empty(device="cpu")
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.fill_(torch.nan)
        for part in module.modules():
            if next(part.parameters(recurse=False), None) is not None:
                part.reset_parameters()
        assert all(bool(p.isfinite().all()) for p in module.parameters())
        assert abs(module.q_proj.weight.std().item() - 0.02) < 2e-3
        assert module(torch.randn(1, 5, 64)).isfinite().all()

    def test_a_given_gate_stands_in_for_the_default(self):
        gate = ForgetGate(DIM, num_heads=HEADS, kind="bias", decay_time=(1, 8))
        module = layer(gate, RoPE(8))
        assert [type(e) for e in module.encodings] == [ForgetGate, RoPE]
        assert [type(e) for e in layer(RoPE(8)).encodings] == [RoPE, ForgetGate]

    def test_gradients(self):
        module = layer().double()
        x, real = tokens(length=5).double(), torch.tensor([[True] * 5, [False, False, True, True, True]])
        torch.autograd.gradcheck(lambda x: module(x, attention_mask=real)[real], (x.requires_grad_(),), fast_mode=True)


def test_a_cache_of_another_layer_or_batch_is_refused() -> None:
    for module, batch in ((layer(), 3), (SelfAttention(DIM, HEADS), 2)):
        cache = KVCache()
        module(tokens()[:, :5], cache=cache)
        with pytest.raises(ValueError, match="cache"):
            layer()(tokens(batch), cache=cache)
