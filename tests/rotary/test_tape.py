"""TAPE: the authors' results, states and gradients; layers that hand states on, decoding, and where nobody does."""

from __future__ import annotations

import pytest
import torch

from posenc import ALiBi, CoPE, DynamicNTK, PositionInterpolation, RoPE, TransformerXL, attention
from posenc.frequencies import MultiScale
from posenc.hf.config.encoding_spec import check_no_layer_state, encoding_specs
from posenc.lab.models.decoder import CarryingBlock, Decoder
from posenc.lab.specs import Shape
from posenc.layers import KVCache, SelfAttention, TAPEAttention
from posenc.rotary import TAPE
from posenc.score import Mixture  # fmt: skip
from tests.golden import config, load, names
from tests.samples import FLOATS, gap, qkv

FILES = names("tape_*")
PARAMETERS = {
    "up": "up_weight", "gate": "x_weight", "down": "down_weight", "mix": "post_attention_weight",
}  # fmt: skip


def of_file(name, dtype):
    inputs, arrays = config(name), load(name, dtype)
    scaling = None if inputs["scaling_factor"] == 1 else PositionInterpolation(inputs["scaling_factor"])
    tape = TAPE(
        inputs["head_dim"], num_heads=inputs["heads"], dim=arrays["mlp_out"].shape[-1],
        position_size=inputs["position_size"], base=inputs["rope_theta"], scaling=scaling,
    ).to(dtype)  # fmt: skip
    with torch.no_grad():
        for actual, reference in PARAMETERS.items():
            getattr(tape, actual).copy_(arrays[reference])
    return inputs, arrays, tape


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FILES)
def test_the_authors_numbers(name, dtype):
    inputs, arrays, tape = of_file(name, dtype)
    words = ("q", "k", "v", "cos_in", "sin_in", "mlp_out")
    leaves = [arrays[word].requires_grad_() for word in words]
    q, k, v, cos, sin, mlp = leaves
    if not inputs["contextual_input"]:
        first = tape.table(torch.arange(inputs["L"]) + (inputs["shift"] or 0), like=q)
        assert gap(torch.stack(first), torch.stack([cos[0, :1], sin[0, :1]])) < FLOATS[dtype]
    states = (cos, sin)
    joined = attention(tape.rotate(q, states), tape.rotate(k, states), torch.cat([v, cos, sin], -1))
    out, *read = joined.chunk(3, -1)
    for got, expected in zip((out, *read), ("out", "pos_attn_cos", "pos_attn_sin"), strict=True):
        assert gap(got, arrays[expected]) < FLOATS[dtype]
    then = tape.updated(tape.attended(states, read), mlp)
    for got, expected in zip(then, ("cos_out", "sin_out"), strict=True):
        assert gap(got, arrays[expected]) < FLOATS[dtype]
    hidden = arrays["residual_hidden"] + out.transpose(1, 2).flatten(2) + mlp
    assert gap(hidden, arrays["hidden_out"]) < FLOATS[dtype]
    result = torch.autograd.grad(
        (*then, hidden), [*leaves, *(getattr(tape, actual) for actual in PARAMETERS)],
        [arrays["grad_out_cos"], arrays["grad_out_sin"], arrays["grad_out_hidden"]],
    )  # fmt: skip
    for got, expected in zip(result, [*words, *PARAMETERS.values()], strict=True):
        assert gap(got, arrays[f"grad_{expected}"]) < 10 * FLOATS[dtype]


def stack(layers=2, **options):
    torch.manual_seed(0)
    built = [TAPEAttention(32, 4, position_size=5, **options).double() for _ in range(layers)]
    with torch.no_grad():
        for layer in built:
            for parameter in (layer.tape.mix, layer.tape.up):
                parameter.normal_()
    return built


def read(layers, x, caches=None, **options):
    states, result = None, [None] * len(layers) if caches is None else caches
    for layer, cache in zip(layers, result, strict=True):
        y, states = layer(x, states=states, cache=cache, **options)
        states = layer.tape.updated(states, y.tanh())
        x = x + y
    return x, states


def test_distances_alone_count_after_all_layers():
    """Equivariance: states of all tokens rotated by one angle a pair give the same results."""
    layers, x = stack(encodings=[ALiBi(4)]), torch.randn(1, 6, 32, dtype=torch.float64)
    moved, _ = read(layers, x, positions=torch.arange(6) + 1000)
    assert gap(moved, read(layers, x)[0]) < 1e-9


def test_at_first_every_layer_is_rope():
    torch.manual_seed(0)
    layer, x = TAPEAttention(32, 4), torch.randn(1, 6, 32)
    baseline = SelfAttention(32, 4, encodings=[RoPE(8)])
    baseline.load_state_dict({n: p for n, p in layer.attention.state_dict().items() if "encodings" not in n})
    y, states = layer(x)
    again = layer.tape.updated(states, x)
    assert gap(y, baseline(x)) < 1e-6
    assert torch.equal(again[0], states[0])
    assert gap(states[0], layer.tape.table(torch.arange(6))[0].expand(1, 4, -1, -1)) == 0


@pytest.mark.parametrize("make", [lambda: CoPE(8, max_position=9), lambda: TransformerXL(32, num_heads=4, head_dim=8)])
def test_states_rotate_with_encodings_that_read_content(make):
    """Under an encoding that says nothing, layers are as without it, also from a cache; and states are seen."""
    layers, x = stack(), torch.randn(2, 9, 32, dtype=torch.float64)
    with_encodings = stack(encodings=[make()])
    with torch.no_grad():
        for layer, baseline in zip(with_encodings, layers, strict=True):
            layer.load_state_dict(baseline.state_dict(), strict=False)
            for parameter in layer.attention.encodings[1].parameters():
                parameter.zero_()
    full, states = read(with_encodings, x)
    expected, of_plain = read(layers, x)
    assert gap(full, expected) < 1e-12
    assert gap(states[0], of_plain[0]) < 1e-12
    caches = [KVCache() for _ in with_encodings]
    pieces = [read(with_encodings, part, caches)[0] for part in x.split([4, 1, 1, 3], 1)]
    assert gap(torch.cat(pieces, 1), expected) < 1e-12


def test_first_states_of_a_base_a_head():
    q, k, v = qkv(2, 4, 9)
    tape, rope = TAPE(8, num_heads=4, dim=32, scaling=MultiScale(4)), RoPE(8, scaling=MultiScale(4))
    assert tape.table(torch.arange(9))[0].shape == (4, 9, 8)
    assert gap(attention(q, k, v, [tape]), attention(q, k, v, [rope])) < 1e-6
    x, rows = torch.randn(2, 9, 32), torch.arange(9).expand(2, 9)
    layer = TAPEAttention(32, 4, encodings=[tape])
    assert gap(layer(x, rows)[0], layer(x)[0]) < 1e-6
    with pytest.raises(ValueError, match="num_heads = 4"):
        TAPE(8, num_heads=4, dim=32, scaling=MultiScale(2))


def test_the_laboratory_hands_states_on():
    model = Decoder("tape+alibi/nope:3", Shape(32, 4, 3, 16), hidden=64, seed=0)
    assert [isinstance(block, CarryingBlock) for block in model.blocks] == [True, True, False]
    with torch.no_grad():
        for block in model.blocks[:2]:
            block.attention.tape.mix.fill_(0.5)
    tokens = torch.randint(256, (2, 9))
    logits = model(tokens)
    assert gap(model(tokens, start=500), logits) < 1e-3
    assert gap(model(tokens, window=4), logits) > 1e-4
    logits.square().mean().backward()
    results = {name: p.grad for name, p in model.named_parameters()}
    tape = "attention.attention.encodings.0"
    assert results[f"blocks.0.{tape}.mix"].abs().sum() > 0
    assert results[f"blocks.0.{tape}.up"].abs().sum() > 0


def test_who_hands_nothing_on_refuses_it():
    tape, layer = TAPE(8, num_heads=4, dim=32), TAPEAttention(32, 4)
    sizes = {
        "dim": 32,
        "num_heads": 4,
        "num_kv_heads": 4,
        "head_dim": 8,
        "max_length": 9,
        "train_length": 9,
        "layers": 2,
    }
    with pytest.raises(ValueError, match="TAPEAttention"):
        check_no_layer_state(tape)
    with pytest.raises(ValueError, match="TAPE"):
        encoding_specs("tape", sizes)
    with pytest.raises(ValueError, match="TAPE"):
        Mixture([tape, []], 4)
    with pytest.raises(ValueError, match="num_kv_heads"):
        tape.rotate(torch.randn(1, 2, 3, 8), (torch.ones(1, 4, 3, 8), torch.ones(1, 4, 3, 8)))
    with pytest.raises(ValueError, match="dim"):
        tape.updated(tape.table(torch.arange(3)), torch.randn(1, 3, 16))
    with pytest.raises(ValueError, match="scaling"):
        TAPE(8, num_heads=4, dim=32, scaling=DynamicNTK(original_length=16))
    static = SelfAttention(32, 4).static_cache(1, 4)
    with pytest.raises(ValueError, match="KVCache"):
        layer(torch.randn(1, 3, 32), cache=static)
