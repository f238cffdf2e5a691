"""Parallel processes of this machine, each with a thread or a few of its own: the default executor.

P processes of one thread are much faster than one process of P threads: at this size the threads would mostly wait
for each other. Each job has a process to itself, so that one that is killed takes no other with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Thread

import posenc
from posenc.lab.execute.work import DiedError, Needs, last_line, threads_of
from posenc.lab.execute.worker import STOPPED, UNWRITABLE
from posenc.lab.run.job import Work

WORKER = f"""import sys
sys.path[:0] = [path for path in [{str(Path(posenc.__file__).parents[1])!r}] if path not in sys.path]
from posenc.lab.execute.worker import main
sys.exit(main())"""  # the posenc of this process, wherever it was found
STOP_SECONDS = 20  # a worker finishes its step and saves; then it is killed


class Processes:
    """Starts a process for each job; the caller decides how many at a time."""

    def __init__(self, needs: Needs) -> None:
        self.needs = needs
        self.running: dict[int, subprocess.Popen[bytes]] = {}  # by slot, which is also that of a GPU

    def submit(self, function: Callable[[Work], None], work: Work, /) -> Future[None]:
        """Start a job; ``function`` is what the process runs anyway."""
        future: Future[None] = Future()
        slot = min(set(range(len(self.running) + 1)) - set(self.running))
        process = self.running[slot] = self._start(work, slot)
        Thread(target=self._wait, args=(future, work, process, slot), daemon=True).start()
        return future

    def shutdown(self) -> None:
        """Stop what runs: each worker finishes its step and saves."""
        left = list(self.running.values())
        for process in left:
            process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for process in left:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _wait(self, future: Future[None], work: Work, process: subprocess.Popen[bytes], slot: int) -> None:
        code = process.wait()
        del self.running[slot]
        if code == 0:
            future.set_result(None)
        else:
            future.set_exception(_error(work, code))

    def _start(self, work: Work, slot: int) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **threads_of(self.needs.threads)}
        if self.needs.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = _visible_gpus()[slot % self.needs.gpus]
        # -P: what lies in the current folder is not importable for that; the classes that a job needs are named.
        command = [sys.executable, "-P", "-c", WORKER, str(work.folder), "--rows", ",".join(work.rows)]
        command += ["--classes", ",".join(sorted(work.own.names)), "--classes-from", str(work.own.folder)]
        with (work.folder / "log.txt").open("ab") as log:
            return subprocess.Popen(
                [*command, "--parent", str(os.getpid())],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # so that Ctrl-C reaches the parent alone
            )


def _visible_gpus() -> list[str]:
    import torch

    given = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return given.split(",") if given else [str(i) for i in range(torch.cuda.device_count())]


def _error(work: Work, code: int) -> Exception:
    if code < 0 or code == STOPPED:
        number = -code if code < 0 else signal.SIGTERM.value
        return DiedError(
            f"killed by signal {number}" + (", perhaps for lack of memory" if number == signal.SIGKILL else "")
        )
    reason = last_line(work.folder / "log.txt").removeprefix("error: ")
    if code == UNWRITABLE and "cannot write" not in reason:  # nor could the log be written
        reason = f"cannot write in {work.folder}: is the disk full?"
    return RuntimeError(reason)
