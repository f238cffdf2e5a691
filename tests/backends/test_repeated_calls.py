"""What calls keep for later ones must never show: under other defaults, among threads, where somebody watches."""

from __future__ import annotations

import sys
import threading

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd import forward_ad

from posenc import ALiBi, AttentionSink, ForgetGate, RoPE, T5Bias, attention, explain_backend
from posenc.bias import FIRE
from posenc.layers import SelfAttention
from posenc.score import DAPE, Shaw
from posenc.weight import StickBreaking
from tests.samples import gap, qkv


@pytest.fixture
def other_defaults():
    """PyTorch's defaults, as they were before."""
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("encodings", "queries", "backend"),
    [
        ([AttentionSink(4)], 30, "tiled"),
        ([T5Bias(4)], 30, "tiled"),
        ([ALiBi(4), ForgetGate(8, num_heads=4, kind="fixed", decay_time=(1, 64))], 30, "tiled"),
        ([ALiBi(4)], 2, "tiled"),
    ],
    ids=["sink", "t5", "fox", "few"],
)
def test_tensors_follow_the_queries_and_no_default_device(encodings, queries, backend, masked, other_defaults):
    options = {"backend": backend, "mask": torch.rand(queries, 30) < 0.8 if masked else None}
    q, k, v = torch.randn(1, 4, queries, 8), *torch.randn(2, 1, 4, 30, 8).requires_grad_()
    expected = attention(q, k, v, encodings, **{**options, "backend": "dense"})
    exact = torch.autograd.grad(expected.square().sum(), [k, v])
    torch.set_default_device("meta")
    actual = attention(q, k, v, encodings, **options)
    gradients = torch.autograd.grad(actual.square().sum(), [k, v])
    torch.set_default_device(None)
    assert gap(actual, expected) < 1e-5
    assert all(gap(a, b) < 1e-4 for a, b in zip(gradients, exact, strict=True))


@torch.no_grad()
def test_steps_of_a_static_cache_under_another_default_device(other_defaults):
    layer, x = SelfAttention(16, 2, encodings=[RoPE(8)]), torch.randn(1, 6, 16)
    expected, cache = layer(x), layer.static_cache(1, 8)
    torch.set_default_device("meta")
    actual = torch.cat([layer(part, cache=cache) for part in x.split([3, 1, 1, 1], 1)], 1)
    torch.set_default_device(None)
    assert gap(actual, expected) < 1e-5


@pytest.fixture
def frequent_switches():
    """Python switches between threads as often as it can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_threads_share_encodings(frequent_switches):
    encodings, (q, k, v) = [ALiBi(2)], torch.randn(3, 1, 2, 12, 8)
    expected = [attention(q[:, :, n - 1 : n], k[:, :, :n], v[:, :, :n], encodings) for n in range(1, 13)]
    wrong: list[str] = []

    def calls(first: int) -> None:
        try:
            for number in range(first, first + 1000):
                n = number % 12 + 1
                out = attention(q[:, :, n - 1 : n], k[:, :, :n], v[:, :, :n], encodings)
                if gap(out, expected[n - 1]) > 1e-5:
                    wrong.append(f"{n} keys")
        except Exception as error:  # one in a thread is seen by nobody
            wrong.append(repr(error))

    threads = [threading.Thread(target=calls, args=(3 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@torch.no_grad()
@pytest.mark.parametrize("make", [lambda: ALiBi(2), StickBreaking], ids=["alibi", "sticks"])
def test_stand_ins_of_tensors_do_not_meet_what_is_kept(make):
    encodings, (q, k, v) = [make()], torch.randn(3, 1, 2, 10, 8)
    for _ in range(2):
        attention(q[:, :, -1:], k, v, encodings)
    with FakeTensorMode(allow_non_fake_inputs=False) as mode:
        q, k, v = (mode.from_tensor(t) for t in (q, k, v))
        out = attention(q[:, :, -1:], k, v, encodings)
    assert isinstance(out, FakeTensor)
    assert out.shape == (1, 2, 1, 8)


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
