"""Calls through an executor: what has ended is recorded, whatever ends the search."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from posenc.search import Candidate
from posenc.search.evaluate import evaluate

CANDIDATES = [Candidate((float(k),), 0) for k in range(1, 9)]


class Recorder:
    def __init__(self) -> None:
        self.values: dict[Candidate, float] = {}

    def __call__(self, candidate, value):
        assert candidate not in self.values, "recorded twice"
        self.values[candidate] = value


def test_every_value_whatever_comes_first():
    recorder = Recorder()

    def slower_first(candidate):
        time.sleep(0.002 * (8 - candidate.factors[0]))
        return candidate.factors[0]

    with ThreadPoolExecutor(8) as pool:
        evaluate(slower_first, CANDIDATES, pool, recorder)
    assert recorder.values == {c: c.factors[0] for c in CANDIDATES}


def test_an_error_waits_for_what_runs_and_cancels_what_waits():
    recorder, with_others, failed, begun = Recorder(), threading.Event(), threading.Event(), []

    def objective(candidate):
        begun.append(candidate)
        if candidate == CANDIDATES[0]:
            assert with_others.wait(10)
            failed.set()
            raise RuntimeError("out of memory")
        with_others.set()
        assert failed.wait(10)
        time.sleep(0.05)  # still running when the error is seen
        return candidate.factors[0]

    with ThreadPoolExecutor(2) as pool, pytest.raises(RuntimeError, match="out of memory"):
        evaluate(objective, CANDIDATES, pool, recorder)
    assert set(recorder.values) == set(begun) - {CANDIDATES[0]}, "a call that ended was lost"
    assert CANDIDATES[1] in recorder.values
    assert len(begun) < len(CANDIDATES), "calls that waited went on"


def test_an_interrupt_does_not_wait_for_what_runs():
    recorder, release = Recorder(), threading.Event()

    def objective(candidate):
        if candidate.factors[0] == 2:
            raise KeyboardInterrupt
        if candidate.factors[0] > 2:
            release.wait(10)
        return candidate.factors[0]

    with ThreadPoolExecutor(3) as pool:
        try:
            with pytest.raises(KeyboardInterrupt):
                evaluate(objective, CANDIDATES, pool, recorder)
            assert set(recorder.values) <= {CANDIDATES[0]}
        finally:
            release.set()


def test_an_error_here_leaves_what_came_before():
    recorder = Recorder()

    def objective(candidate):
        if candidate.factors[0] == 5:
            raise RuntimeError("out of memory")
        return candidate.factors[0]

    with pytest.raises(RuntimeError, match="out of memory"):
        evaluate(objective, CANDIDATES, None, recorder)
    assert list(recorder.values) == CANDIDATES[:4]


def test_an_executor_that_takes_no_more_calls():
    recorder, ended = Recorder(), threading.Event()

    class Full(ThreadPoolExecutor):
        def submit(self, objective, candidate):
            if candidate == CANDIDATES[3]:
                assert ended.wait(10)
                raise RuntimeError("queue")
            return super().submit(objective, candidate)

    def objective(candidate):
        if candidate == CANDIDATES[2]:
            ended.set()
        return candidate.factors[0]

    with Full(1) as pool, pytest.raises(RuntimeError, match="queue"):
        evaluate(objective, CANDIDATES, pool, recorder)
    assert set(recorder.values) == set(CANDIDATES[:3])


@pytest.mark.parametrize("value", [None, "low", torch.zeros(2), [1.0]])
@pytest.mark.parametrize("threads", [0, 1])
def test_what_is_no_number_is_refused(value, threads):
    pool = ThreadPoolExecutor(threads) if threads else None
    with pytest.raises(ValueError, match="objective"):
        evaluate(lambda candidate: value, CANDIDATES[:2], pool, Recorder())
    if pool is not None:
        pool.shutdown()


def test_a_tensor_of_one_number_will_do():
    recorder = Recorder()
    evaluate(lambda candidate: torch.tensor([2.5]), CANDIDATES[:1], None, recorder)
    assert recorder.values == {CANDIDATES[0]: 2.5}
    assert type(recorder.values[CANDIDATES[0]]) is float
