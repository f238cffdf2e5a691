"""Calls of an objective for many candidates, here or through an executor; none that has ended is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, as_completed, wait
from contextlib import suppress

from posenc.search.space import Candidate

Objective = Callable[[Candidate], float]


def evaluate(
    objective: Objective,
    candidates: Iterable[Candidate],
    executor: Executor | None,
    record: Callable[[Candidate, float], None],
) -> None:
    """Call the objective for each candidate, and ``record`` with its value as soon as it is there.

    An exception of the objective comes out once the calls that already run have ended and been recorded; calls that
    wait are cancelled. An interrupt does not wait for those that run.
    """
    if executor is None:
        for candidate in candidates:
            record(candidate, _number(objective(candidate)))
        return
    open_calls: dict[Future[float], Candidate] = {}
    try:
        for candidate in candidates:
            open_calls[executor.submit(objective, candidate)] = candidate
        for future in as_completed(list(open_calls)):
            value = future.result()
            record(open_calls.pop(future), _number(value))
    except BaseException as error:
        running = [future for future in open_calls if not future.cancel()]
        try:
            if isinstance(error, Exception):
                wait(running)
        finally:
            for future in running:
                if future.done() and not future.cancelled() and future.exception() is None:
                    with suppress(ValueError):
                        record(open_calls[future], _number(future.result()))
        raise


def _number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError: a tensor of several numbers
        raise ValueError(f"objective must return one number, got {value!r}") from error
