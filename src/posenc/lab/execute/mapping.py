"""Maps jobs over an executor, phase by phase; a job whose process died is taken up again from its checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from posenc.lab.execute.work import DiedError, Executor, run_work, saved_at
from posenc.lab.run.job import Work

POLL_SECONDS = 0.25
DEATHS = 3  # in a row without a new checkpoint, after which a job has failed


def map_jobs(
    executor: Executor,
    works: Sequence[Work],
    *,
    workers: int | None = None,
    on_poll: Callable[[list[str]], None] = lambda running: None,
    on_restart: Callable[[str], None] = lambda line: None,
    died: tuple[type[BaseException], ...] = (DiedError,),
) -> list[str]:
    """Run jobs to their records; returns a line for each that failed.

    Args:
        executor: where they run; the caller ends it.
        works: in the order in which they are handed over.
        workers: jobs handed over at a time; None for all.
        on_poll: told several times a second the names of the jobs that were handed over and have not ended.
        on_restart: told a line when a job that died is handed over again.
        died: errors that say that a process died, through no word of the job's own.
    """
    failures: list[str] = []
    for phase in sorted({work.phase for work in works}):
        mapping = _Mapping(executor, [work for work in works if work.phase == phase], workers, on_restart, died)
        while mapping.step():
            on_poll([work.name for work, _ in mapping.running])
            time.sleep(POLL_SECONDS)
        on_poll([])
        failures += mapping.failures
    return failures


class _Mapping:
    """The jobs of one phase: what waits, what runs, what failed."""

    def __init__(
        self, executor: Executor, works: Sequence[Work], workers: int | None, on_restart: Callable[[str], None],
        died: tuple[type[BaseException], ...],
    ) -> None:  # fmt: skip
        self.executor, self.workers, self.on_restart, self.died = executor, workers, on_restart, died
        self.waiting, self.failures = list(works), list[str]()
        self.running: list[tuple[Work, object]] = []
        self.saved = {work.name: saved_at(work.folder) for work in works}
        self.in_vain = dict.fromkeys(self.saved, 0)

    def step(self) -> bool:
        """Hand over what there is room for, look at what has ended; whether anything is left to do."""
        while self.waiting and (self.workers is None or len(self.running) < self.workers):
            work = self.waiting.pop(0)
            self.running.append((work, self.executor.submit(run_work, work)))
        for work, future in [pair for pair in self.running if pair[1].done()]:  # type: ignore[attr-defined]
            self.running.remove((work, future))
            error = future.exception()  # type: ignore[attr-defined]
            if error is not None:
                self._end(work, error)
        return bool(self.waiting or self.running)

    def _end(self, work: Work, error: BaseException) -> None:
        reason, log = _reason(error), work.folder / "log.txt"
        if isinstance(error, self.died):
            if self._gets_on(work):
                self.on_restart(f"{work.name}: {reason}; it is taken up again")
                self.waiting.insert(0, work)
                return
            reason += f", {DEATHS} times without a new checkpoint"
        self.failures.append(f"{work.name}: {reason}; see {log}")

    def _gets_on(self, work: Work) -> bool:
        """Whether a job that died is to be taken up again.

        A machine that is taken away now and then ends a long job many times, and that is no fault of the job. A job
        that ends its own process, perhaps for lack of memory, does so again before the next checkpoint.
        """
        saved = saved_at(work.folder)
        self.in_vain[work.name] = 0 if saved != self.saved[work.name] else self.in_vain[work.name] + 1
        self.saved[work.name] = saved
        return self.in_vain[work.name] < DEATHS


def _reason(error: BaseException) -> str:
    cause = getattr(error, "cause", None) or error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return lines[-1] if lines else type(cause).__name__
