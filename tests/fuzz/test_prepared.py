"""Calls that are known from before (`posenc.backends.prepared`) against the same calls worked out anew.

A pool of random calls is made in random order, again and again. Between two of them anything may change: numbers of
tensors and parameters, in place or not, attributes of encodings, the number of keys, options, gradients, autocast,
training. What is known of a kind of call must never show.

    pytest tests/fuzz/test_prepared.py                                        a few hundred calls
    pytest tests/fuzz/test_prepared.py -m slow -n 2                           20,000 calls
    POSENC_FUZZ_SEED=31 POSENC_FUZZ_CALLS=100 pytest -m slow ...              the calls of seed 31 alone
"""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from posenc import attention
from posenc.backends import prepared
from posenc.encoding import ScoreEncoding
from tests.fuzz.draw import Draw
from tests.fuzz.random_call import RandomCall, draw_call

SEED = int(os.environ.get("POSENC_FUZZ_SEED", "0"))
CALLS = int(os.environ.get("POSENC_FUZZ_CALLS", "20000"))
CHUNK, POOL = 100, 8
TOLERANCE = {torch.float64: 1e-11, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}
OPTIONS: dict[str, list[object]] = {
    "causal": [True, True, False], "scale": [1.0, 0.3], "window": [1, 3, 50], "softcap": [5.0], "tolerance": [1e-3],
    "backend": ["dense", "step", "sdpa"],
}  # fmt: skip
Outcome = tuple[str, list[Tensor]]


@contextmanager
def worked_out_anew() -> Iterator[None]:
    """No call is known, and none is remembered."""
    key_of = prepared.key_of
    prepared.key_of = lambda *_: None  # type: ignore[assignment]
    try:
        yield
    finally:
        prepared.key_of = key_of


def outcome(call: RandomCall, options: dict[str, object], mode: dict[str, bool]) -> Outcome:
    """The result and the gradient of q, or the text of the error."""
    q, k, v = (t.detach().requires_grad_(mode["grad"] and mode["inputs"]) for t in (call.q, call.k, call.v))
    try:
        with torch.set_grad_enabled(mode["grad"]), torch.autocast("cpu", torch.bfloat16, enabled=mode["autocast"]):
            out = attention(q, k, v, call.encodings, **options)  # type: ignore[arg-type]
    except ValueError as error:
        return str(error), []
    if not out.requires_grad or not q.requires_grad:
        return "", [out]
    return "", [out.detach(), torch.autograd.grad(out.sum(), q)[0]]


def change(call: RandomCall, draw: Draw) -> None:
    """Something of a call becomes another, as callers do it."""
    kind = draw.choice(["parameters", "data", "state", "attribute", "tensors", "keys", "list", "copies", "written"])
    with torch.no_grad():
        if kind == "parameters":
            for p in call.parameters.values():
                p.mul_(draw.number(0.5, 1.5)).add_(draw.number(-0.1, 0.1))
        elif kind == "data":
            for p in call.parameters.values():
                p.data = p.data * draw.number(0.5, 1.5)
        elif kind == "state":
            for encoding in call.encodings:
                encoding.load_state_dict(
                    {n: t * 0.9 if t.is_floating_point() else t for n, t in encoding.state_dict().items()}
                )
        elif kind == "attribute":
            for encoding in call.encodings:
                for name in ("bias_scale", "leak"):
                    if isinstance(getattr(encoding, name, None), float):
                        setattr(encoding, name, draw.number(0.1, 2.0))
        elif kind == "tensors":
            call.q, call.k, call.v = (draw.normal(*t.shape).to(t.dtype) for t in (call.q, call.k, call.v))
        elif kind == "written":
            call.q, call.k, call.v = (t.clone().mul_(draw.number(0.5, 1.5)) for t in (call.q, call.k, call.v))
        elif kind == "keys" and call.q.shape[2] == 1:
            keys = draw.choice([1, 2, draw.integer(1, 40), draw.integer(60, 140), draw.integer(1, 600)])
            call.k, call.v = (draw.normal(*t.shape[:2], keys, t.shape[3]).to(t.dtype) for t in (call.k, call.v))
            call.x = draw.normal(call.x.shape[0], keys, call.x.shape[2]).to(call.x.dtype)
        elif kind == "list":
            call.encodings = call.encodings[::-1]
        elif kind == "copies":
            call.encodings = [copy.deepcopy(e) for e in call.encodings]


def random_options(call: RandomCall, draw: Draw) -> dict[str, object]:
    """Keywords under which a call may be known, and at times one under which it may not."""
    options: dict[str, object] = {}
    if any(isinstance(e, ScoreEncoding) and type(e).remember is not ScoreEncoding.remember for e in call.encodings):
        if draw.chance(0.7):
            with torch.no_grad():
                options["features"] = [getattr(e, "remember", lambda x: None)(call.x) for e in call.encodings]
        else:
            options["x"] = call.x
    for name, values in OPTIONS.items():
        if draw.chance(0.06):
            options[name] = draw.choice(values)
    if draw.chance(0.05):
        options["mask"] = draw.uniform(call.q.shape[2], call.k.shape[2]) < 0.8
    return options


def new_call(draw: Draw) -> RandomCall:
    """Of one axis, with one query half of the time, as in a generation."""
    keys = draw.integer(1, 24)
    while True:
        lengths = (1 if draw.chance(0.5) else draw.integer(1, keys), keys)
        call = draw_call(draw.integer(0, 10**9), plain=True, lengths=lengths)
        if call.axes == 1:
            return call


def run(seed: int, calls: int) -> Counter[str]:
    """Calls in a row; what each came to."""
    draw, pool, done = Draw(seed), list[RandomCall](), Counter[str]()
    for number in range(calls):
        if len(pool) < 2 or (len(pool) < POOL and draw.chance(0.2)):
            pool.append(new_call(draw))
        elif draw.chance(0.05):  # its encodings go, and what is known of them
            pool.pop(draw.integer(0, len(pool) - 1))
        call = draw.choice(pool)
        if draw.chance(0.5):
            change(call, draw)
        options = random_options(call, draw)
        mode = {"grad": draw.chance(0.4), "inputs": draw.chance(0.5), "autocast": draw.chance(0.05)}
        for _ in range(draw.integer(2, 4)):  # the second call of a kind is the first that is known
            text, got = outcome(call, options, mode)
        with worked_out_anew():
            expected_text, expected = outcome(call, options, mode)
        where = f"seed {seed}, call {number}: {call}; {options}; {mode}"
        assert text == expected_text, f"{where}\n{text!r}\nanew: {expected_text!r}"
        for result, reference in zip(got, expected, strict=True):
            bound = TOLERANCE[torch.bfloat16 if mode["autocast"] else call.dtype]
            torch.testing.assert_close(
                result, reference, rtol=bound, atol=bound, equal_nan=True, msg=f"{where}\n{result}\n{reference}"
            )
        done["refused" if text else "agreed"] += 1
    return done


@pytest.fixture(autouse=True)
def one_thread():
    """Calls this small wait for threads more than they gain by them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("seed", range(10_000_000, 10_000_004))
def test_short_series_agree(seed):
    assert run(seed, 75)["agreed"] > 40


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEED, SEED + max(1, CALLS // CHUNK)))
def test_series_agree(seed):
    run(seed, CHUNK)


def test_known_calls_are_used():
    """Otherwise all of this would compare a way with itself."""
    known = 0
    attend = prepared.attend

    def counting(*args: object) -> Tensor | None:
        nonlocal known
        out = attend(*args)  # type: ignore[arg-type]
        known += out is not None
        return out

    prepared.attend = counting  # type: ignore[assignment]
    try:
        run(10_000_100, 75)
    finally:
        prepared.attend = attend
    assert known > 30
