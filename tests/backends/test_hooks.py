"""Hooks of encodings that add to scores, change them or replace softmax: the definition calls what somebody watches."""

from __future__ import annotations

import threading

import pytest
import torch
from torch.autograd import forward_ad

from posenc import ALiBi, AttentionSink, ForgetGate, T5Bias, attention, explain_backend
from posenc.bias import FIRE
from posenc.score import DAPE, Shaw
from posenc.weight import StickBreaking
from tests.samples import gap, qkv

WATCHED = {
    "alibi": lambda: ALiBi(4),
    "t5": lambda: T5Bias(4),
    "fire": lambda: FIRE(4),
    "fox": lambda: ForgetGate(8, num_heads=4),
    "shaw": lambda: Shaw(8, max_distance=4),
    "sink": lambda: AttentionSink(4),
    "sticks": StickBreaking,
}


@pytest.mark.parametrize("queries", [1, 40])
@pytest.mark.parametrize("name", WATCHED)
def test_a_hook_is_called_and_what_it_returns_counts(name, queries):
    encoding, (q, k, v), x = WATCHED[name](), qkv(1, 4, queries, 40), torch.randn(1, 40, 8)
    called = []
    handle = encoding.register_forward_hook(lambda module, inputs, out: called.append(out.shape) or 0.5 * out)
    assert explain_backend(q, k, v, [encoding], x=x).backend == "dense"
    out, expected = (attention(q, k, v, [encoding], x=x, backend=backend) for backend in ("auto", "dense"))
    assert len(called) == 2
    assert gap(out, expected) == 0
    with pytest.raises(ValueError, match=type(encoding).__name__):
        attention(q, k, v, [encoding], x=x, backend="tiled")
    handle.remove()
    assert gap(attention(q, k, v, [encoding], x=x), expected) > 1e-4


def test_a_hook_of_a_module_inside():
    encoding, (q, k, v) = DAPE(T5Bias(4)), qkv(1, 4, 40, 40)
    encoding.bias.register_forward_pre_hook(lambda *_: None)
    assert explain_backend(q, k, v, [encoding]).backend == "dense"


def test_forward_mode_in_another_thread_is_nothing_to_this_one():
    """PyTorch counts levels of forward mode for the whole process."""
    q, k, v = qkv(1, 4, 200, 200)
    expected, inside, go_on = explain_backend(q, k, v, [T5Bias(4)]).backend, threading.Event(), threading.Event()

    def level() -> None:
        with forward_ad.dual_level():
            inside.set()
            assert go_on.wait(30)

    thread = threading.Thread(target=level)
    thread.start()
    assert inside.wait(30)
    try:
        assert explain_backend(q, k, v, [T5Bias(4)]).backend == expected == "tiled"
    finally:
        go_on.set()
        thread.join()
    with forward_ad.dual_level():
        assert explain_backend(q, k, v, [T5Bias(4)]).backend == expected
        assert explain_backend(forward_ad.make_dual(q, q), k, v, [T5Bias(4)]).backend == "dense"
        bias = T5Bias(4)
        del bias.weight
        bias.weight = forward_ad.make_dual(torch.randn(32, 4), torch.randn(32, 4))
        assert explain_backend(q, k, v, [bias]).backend == "dense"
