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
from collections import Counter

import pytest
import torch

from tests.fuzz.calls import QUICK, try_call
from tests.fuzz.oracle import DisagreementError

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
