"""Maps jobs over an executor, phase by phase; a job whose process died is restarted from its checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from posenc.lab.execute.executor import Executor, Future, checkpoint_time
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
) -> list[str]:
    """Run jobs to their records; returns a line for each job that failed.

    Args:
        executor: where they run; started, and stopped by the caller.
        works: in the order in which they are submitted.
        workers: jobs submitted at a time; None for all.
        on_poll: called several times a second with the names of the jobs that were submitted and have not ended.
        on_restart: called with a line when a job that died is submitted again.
    """
    failures: list[str] = []
    for phase in sorted({work.phase for work in works}):
        mapping = _Mapping(executor, [work for work in works if work.phase == phase], workers, on_restart)
        while mapping.step():
            on_poll([work.name for work, _ in mapping.running])
            time.sleep(POLL_SECONDS)
        on_poll([])
        failures += mapping.failures
    return failures


class _Mapping:
    """The jobs of one phase: waiting, running, failed."""

    def __init__(
        self, executor: Executor, works: Sequence[Work], workers: int | None, on_restart: Callable[[str], None]
    ) -> None:
        self.executor, self.workers, self.on_restart = executor, workers, on_restart
        self.waiting, self.failures = list(works), list[str]()
        self.running: list[tuple[Work, Future]] = []
        self.saved = {work.name: checkpoint_time(work.folder) for work in works}
        self.deaths = dict.fromkeys(self.saved, 0)  # in a row without a new checkpoint

    def step(self) -> bool:
        """Submit as many jobs as there is room for and look at those that have ended; whether any are left."""
        while self.waiting and (self.workers is None or len(self.running) < self.workers):
            work = self.waiting.pop(0)
            self.running.append((work, self.executor.submit(work)))
        for work, future in [pair for pair in self.running if pair[1].done()]:
            self.running.remove((work, future))
            error = future.exception()
            if error is not None:
                self._end(work, error)
        return bool(self.waiting or self.running)

    def _end(self, work: Work, error: BaseException) -> None:
        reason, log = _reason(error), work.folder / "log.txt"
        if isinstance(error, self.executor.death):
            if self._may_restart(work):
                self.on_restart(f"{work.name}: {reason}; restarted")
                self.waiting.insert(0, work)
                return
            reason += f", {DEATHS} times without a new checkpoint"
        self.failures.append(f"{work.name}: {reason}" + (f"; see {log}" if log.is_file() else ""))

    def _may_restart(self, work: Work) -> bool:
        """Whether a job that died is restarted.

        A machine that is preempted now and then ends a long job many times, which is no fault of the job. A job that
        ends its own process, perhaps for lack of memory, does so again before the next checkpoint.
        """
        saved = checkpoint_time(work.folder)
        self.deaths[work.name] = 0 if saved != self.saved[work.name] else self.deaths[work.name] + 1
        self.saved[work.name] = saved
        return self.deaths[work.name] < DEATHS


def _reason(error: BaseException) -> str:
    cause = getattr(error, "cause", None) or error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return lines[-1] if lines else type(cause).__name__
