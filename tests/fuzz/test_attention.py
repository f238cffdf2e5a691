"""Random calls of the library against a definition written apart from it.

Each call comes from one number: one to three encodings with random options, shapes, strides, dtypes, magnitudes,
positions, masks, documents, orders and windows, in one of the modes of `calls`. Nothing may disagree with
`definition` beyond rounding (`oracle`), fail with anything but a ValueError, or be refused for a reason that the docs
do not give (`refusals`).

    pytest tests/fuzz                                                    a few hundred short calls
    pytest tests/fuzz -m slow -n 2                                       20,000 calls
    POSENC_FUZZ_SEED=7000000 POSENC_FUZZ_CALLS=500 pytest -m slow ...    others, or fewer
    POSENC_FUZZ_SEED=31 POSENC_FUZZ_CALLS=1 pytest -m slow ...           call 31 alone, as a failure names it
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable

import pytest
import torch

from posenc import attention, explain_backend
from tests.fuzz import layers, modes, refusals
from tests.fuzz.draw import Draw
from tests.fuzz.oracle import DisagreementError
from tests.fuzz.random_call import RandomCall, draw_call
from tests.fuzz.refusals import FAULTS, call_with, legitimate, must_refuse, named

Mode = Callable[[RandomCall, Draw], float]
MODES: dict[str, Mode] = {
    "plain": modes.by_default, "every_backend": modes.every_backend, "backward": modes.backward,
    "packed": layers.packed,
    "padded": layers.padded, "decoded": layers.decoded, "equivalent_values": refusals.equivalent_values,
    "forward_derivative": modes.forward_derivative,
    "function_gradient": modes.function_gradient, "mapped": modes.mapped, "compiled": modes.compiled,
}  # fmt: skip
TEXTS = {"packed", "padded", "decoded"}  # modes that lay texts out themselves
SMALL = {"equivalent_values", "forward_derivative", "function_gradient", "mapped", "compiled"}
SHARES = {
    "plain": 50.0, "every_backend": 10.0, "backward": 15.0, "packed": 5.0, "padded": 5.0, "decoded": 8.0,
    "equivalent_values": 3.0, "forward_derivative": 1.2, "function_gradient": 1.2,
    "mapped": 1.2, "compiled": 0.4,
}  # fmt: skip
QUICK = {
    "plain": 54.0, "every_backend": 9.0, "backward": 14.0, "packed": 5.0, "padded": 5.0, "decoded": 8.0,
    "equivalent_values": 5.0,
}  # fmt: skip


def try_call(seed: int, *, quick: bool = False, mode: str | None = None) -> str:
    """What a call came to: its mode, and "agreed" or "refused".

    Args:
        seed: of the call.
        quick: short texts, and modes that take no compiler.
        mode: default one by the seed.

    Raises:
        DisagreementError: with the call in words, where the library and the definition disagree beyond rounding, where
            it fails other than by a ValueError, and where it refuses what the docs do not say it refuses.
    """
    draw = Draw(seed + 13)  # apart from the call's, whose first choice would follow from the mode
    mode = draw.weighted(QUICK if quick else SHARES) if mode is None else mode
    call = _draw_call(seed, draw, mode, quick=quick)
    refusal = must_refuse(call)
    if refusal is not None:
        return f"{mode} {_expect(refusal.text, call)}"
    try:
        MODES[mode](call, draw)
    except DisagreementError as error:
        raise DisagreementError(f"{mode}: {call}\n  {error}") from error
    except ValueError as error:
        if legitimate(error, call):
            return f"{mode} refused"
        raise DisagreementError(f"{mode}: {call}\n  refused: {error}") from error
    except Exception as error:
        words = f"{type(error).__name__}: {str(error)[:600]}"
        raise DisagreementError(f"{mode}: {call}\n  {words}") from error
    return f"{mode} agreed"


def _draw_call(seed: int, draw: Draw, mode: str, *, quick: bool) -> RandomCall:
    if mode in TEXTS:
        return layers.draw_batch(seed, most=10 if quick else 24)
    if quick or mode in SMALL:
        keys = draw.integer(1, 12)
        queries = draw.weighted({keys: 6, draw.integer(1, keys): 3, draw.integer(1, keys + 4): 1})
        return draw_call(seed, lengths=(queries, keys))
    return draw_call(seed)


def _expect(text: str, call: RandomCall) -> str:
    """A call that the docs say is refused."""
    try:
        modes.library_result(call)
    except ValueError as error:
        if re.search(text, str(error)) or legitimate(error, call):
            return "refused"
        raise DisagreementError(f"{call}\n  refused otherwise than by {text!r}: {error}") from error
    raise DisagreementError(f"{call}\n  served, where the docs say that it is refused: {text!r}")


SEED = int(os.environ.get("POSENC_FUZZ_SEED", "0"))
CALLS = int(os.environ.get("POSENC_FUZZ_CALLS", "20000"))
CHUNK = 100
QUICK_SEED, QUICK_CALLS, QUICK_CHUNK = 10_000_000, 250, 25
SHOWN = 5  # disagreements in a failure's text


def run(seeds: range, *, quick: bool) -> None:
    """All calls of a chunk, and then a failure that shows the first of those that disagree."""
    failures, done = list[str](), Counter[str]()
    for seed in seeds:
        try:
            done[try_call(seed, quick=quick)] += 1
        except DisagreementError as error:
            failures.append(f"call {seed}: {error}")
    print(f"seeds {seeds.start} … {seeds.stop - 1}: {dict(sorted(done.items()))}, {len(failures)} disagree")  # noqa: T201
    assert not failures, "\n".join([f"{len(failures)} of {len(seeds)} calls disagree", *failures[:SHOWN]])


@pytest.fixture(autouse=True)
def one_thread():
    """Calls this small wait for threads more than they gain by them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("first", range(0, QUICK_CALLS, QUICK_CHUNK))
def test_short_calls_agree(first):
    run(range(QUICK_SEED + first, QUICK_SEED + first + QUICK_CHUNK), quick=True)


LISTS = {
    "rope+alibi": ["RoPE", "ALiBi"], "rope+t5": ["RoPE", "T5Bias"], "rope+fox": ["RoPE", "ForgetGate"],
    "rope+fire": ["RoPE", "FIRE"], "rope+cope": ["RoPE", "CoPE"], "xpos+kerple": ["XPos", "KERPLE"],
    "path+fox": ["PaTH", "ForgetGate"], "rope+shaw": ["RoPE", "Shaw"], "rope+sticks": ["RoPE", "StickBreaking"],
    "alibi+sink": ["ALiBi", "AttentionSink"], "rope+fox+alibi": ["RoPE", "ForgetGate", "ALiBi"],
    "xl+sink": ["TransformerXL", "AttentionSink"],
}  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
def test_lists_agree(name):
    """Hybrids are lists: on every backend, with gradients, and in pieces, each with two draws of its options."""
    for seed, (mode, batch) in enumerate([("every_backend", False), ("backward", False), ("decoded", True)] * 2):
        lengths = (9, 9) if batch else (6, 9)
        call = draw_call(30_000_000 + seed, kinds=LISTS[name], axes=1, plain=True, lengths=lengths)
        MODES[mode](call, Draw(seed))


@pytest.mark.parametrize("faults", FAULTS, ids=lambda faults: faults.__name__.strip("_"))
def test_every_fault_is_refused_by_name(faults):
    """No argument of another kind is taken in silence, or fails in words of torch."""
    count = len(faults(_plain_call()))
    for at in range(count):
        for function in (attention, explain_backend):
            call = _plain_call()
            fault = faults(call)[at]
            with pytest.raises(ValueError, match=r".") as error:
                call_with(call, fault, function)
            assert named(error.value, fault.argument), f"{fault.argument}, {fault.what}: {error.value}"


def _plain_call() -> RandomCall:
    return draw_call(3, plain=True, lengths=(6, 6), kinds=["ALiBi"], axes=1)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(SEED, SEED + CALLS, CHUNK))
def test_calls_agree(first):
    run(range(first, min(first + CHUNK, SEED + CALLS)), quick=False)


def test_a_number_brings_a_call_back():
    """What is drawn depends on the seed alone."""
    assert [try_call(QUICK_SEED + n, quick=True) for n in (0, 1)] == [
        try_call(QUICK_SEED + n, quick=True) for n in (0, 1)
    ]
    assert sum(QUICK.values()) == 100
