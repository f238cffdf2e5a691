"""What people write first: it works, or the error says what to write; it is never something else in silence."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import posenc
from posenc import ALiBi, AxialRoPE, MRoPE, RoPE, T5Bias, attention, explain_backend
from posenc.attention_maps import attention_lse
from posenc.distributed import sharded_attention
from posenc.layers import KVCache, SelfAttention
from posenc.positions import grid, on_all_axes
from posenc.rotary import PoPE
from posenc.testing import Case
from posenc.testing.backends import SITUATIONS, call_of
from tests.samples import INSIDE_ATTENTION


def qkv(tokens: int = 6, heads: int = 2, width: int = 12, batch: int = 1) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(batch, heads, tokens, width) for _ in range(3)]


@pytest.mark.parametrize("backend", ["auto", "dense"])
@pytest.mark.parametrize("name", INSIDE_ATTENTION)
def test_calls_without_rows_or_queries(name: str, backend: str) -> None:
    (q, k, v), encodings, options = call_of(Case.from_catalogue(name), SITUATIONS[0])
    x, q_pos = options["x"], options["q_pos"]
    no_queries = (q[:, :, :0], k, v), {**options, "q_pos": None if q_pos is None else q_pos[:0]}
    no_rows = (q[:0], k[:0], v[:0]), {**options, "x": x[:0]}
    packed = torch.tensor([0] * 4 + [1] * 5)
    for tensors, some in (no_queries, no_rows):
        for segments in (None, packed, packed.expand(tensors[1].shape[0], -1)):
            out = attention(*tensors, encodings, **{**some, "segments": segments}, backend=backend)
            assert out.shape == (*tensors[0].shape[:3], v.shape[3])


def test_the_order_is_stated_where_positions_have_several_coordinates() -> None:
    """Under the causal default a class token would attend to itself alone."""
    q, k, v = qkv()
    places, rope = grid(2, 3), AxialRoPE(12)
    for call in (attention, explain_backend):
        with pytest.raises(ValueError, match=r"^causal\b.*causal=False"):
            call(q, k, v, [rope], q_pos=places, k_pos=places)
    with pytest.raises(ValueError, match=r"^causal\b"):
        SelfAttention(24, 2, encodings=[rope])
    with pytest.raises(ValueError, match=r"positions\.grid"):
        attention(q, k, v, [rope], causal=False)
    assert attention(q, k, v, [rope], q_pos=places, k_pos=places, causal=False).shape == q.shape


def test_plain_positions_are_equal_coordinates_for_m_rope() -> None:
    q, k, v = qkv(batch=2)
    rope = MRoPE(12, sections=(2, 2, 2))
    for places in (torch.arange(6), torch.arange(12).view(2, 6)):
        expected = attention(q, k, v, [rope], q_pos=on_all_axes(places), k_pos=on_all_axes(places), causal=True)
        assert torch.equal(attention(q, k, v, [rope], q_pos=places, k_pos=places), expected)
    of_text = attention(q, k, v, [rope.rope])
    torch.testing.assert_close(attention(q, k, v, [rope]), of_text)
    torch.testing.assert_close(rope.table(torch.arange(6))[0], rope.table(on_all_axes(torch.arange(6)))[0])
    with pytest.raises(ValueError, match=r"^causal\b"):
        attention(q, k, v, [rope], q_pos=on_all_axes(torch.arange(6)), k_pos=on_all_axes(torch.arange(6)))
    layer, x, cache = SelfAttention(24, 2, encodings=[rope]), torch.randn(2, 6, 24), KVCache()
    full = layer(x)
    steps = torch.cat([layer(x[:, n : n + 1], torch.tensor([n]), cache=cache) for n in range(6)], 1)
    torch.testing.assert_close(steps, full, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(layer(x, torch.arange(6)), full)


def test_two_rotations_of_other_widths_are_refused_by_name() -> None:
    q, k, v = qkv()
    with pytest.raises(ValueError, match=r"(?s)RoPE.*PoPE"):
        attention(q, k, v, [PoPE(12, num_heads=2), RoPE(12)])


@pytest.mark.parametrize(
    ("cls", "arguments", "word"),
    [
        (RoPE, {"head_dim": 64, "theta": 1e4}, "base"), (RoPE, {"head_dim": 64, "rope_theta": 1e4}, "base"),
        (RoPE, {"dim": 64}, "head_dim"), (ALiBi, {"heads": 8}, "num_heads"), (T5Bias, {"n_heads": 8}, "num_heads"),
    ],
)  # fmt: skip
def test_the_words_of_other_libraries_are_named(cls: type, arguments: dict[str, object], word: str) -> None:
    with pytest.raises(TypeError, match=rf"called {word} here"):
        cls(**arguments)


@pytest.mark.parametrize("call", [attention, explain_backend, attention_lse, sharded_attention])
def test_the_words_of_other_libraries_are_named_in_calls(call: Callable[..., object]) -> None:
    words = {"is_causal": "causal", "attn_mask": "mask", "softmax_scale": "scale", "dropout_p": "dropout"}
    parameters = inspect.signature(call).parameters
    shared = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())  # attention's options
    here = {word: name for word, name in words.items() if shared or name in parameters}
    assert "softmax_scale" in here
    for word, name in here.items():
        with pytest.raises(TypeError, match=rf"called {name} here"):
            call(*qkv(), [], **{word: None})


class Remembering(posenc.ScoreEncoding):
    """Scores that depend on what was kept of the layer's input, and nobody asks whether it is there."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(24, 2)

    def token_state(self, x: Tensor) -> Tensor:
        return self.gate(x).mT.unsqueeze(-1)

    def forward(self, scores: Tensor, context: posenc.Context) -> Tensor:
        return scores + context.token_state.mT  # type: ignore[union-attr]


def test_an_own_encoding_that_remembers_the_input_asks_for_it() -> None:
    q, k, v = qkv()
    encoding, x = Remembering(), torch.randn(q.shape[0], q.shape[2], 24)
    attention(q, k, v, [encoding], x=x)
    with pytest.raises(ValueError, match=r"Remembering.* x="):
        attention(q, k, v, [encoding])


class Failing(posenc.ScoreEncoding):
    """An encoding with a mistake that has nothing to do with x."""

    def forward(self, scores: Tensor, context: posenc.Context) -> Tensor:
        return scores + self.nothing


def test_a_mistake_of_an_own_encoding_stays_what_it_is() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        attention(*qkv(), [Failing()])


def test_a_window_and_a_mask_of_integers_for_a_layer() -> None:
    torch.manual_seed(0)
    x, mask = torch.randn(2, 9, 24), torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1], [1] * 9])
    layer = SelfAttention(24, 2, encodings=[RoPE(12)], window=3)
    baseline = SelfAttention(24, 2, encodings=[RoPE(12)])
    baseline.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x), baseline(x, window=3))
    assert not torch.allclose(layer(x), baseline(x))
    assert torch.equal(baseline(x, attention_mask=mask), baseline(x, attention_mask=mask.bool()))
    with pytest.raises(ValueError, match="window"):
        SelfAttention(24, 2, window=0)


def test_checkpoints_of_parameters_without_an_axis_are_read() -> None:
    """Their one number is a row of one now."""
    assert all(parameter.ndim for parameter in posenc.bias.FIRE(4).parameters())
    old = {name: value.reshape(()) if value.numel() == 1 and name in ("c", "multiplier") else value
           for name, value in posenc.bias.FIRE(4).state_dict().items()}  # fmt: skip
    posenc.bias.FIRE(4).load_state_dict(old, strict=True)
