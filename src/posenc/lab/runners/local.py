"""Jobs in parallel processes of this machine, one thread each.

P processes of one thread are much faster than one process of P threads: at this size the threads would mostly wait
for each other. A job whose process is killed is taken up again from its checkpoint.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import posenc
from posenc.lab.runners.pending import Pending, last_line
from posenc.lab.runners.retries import DEATHS, Retries
from posenc.lab.worker import STOPPED, UNWRITABLE

POLL_SECONDS = 0.25
WORKER = f"""import sys
sys.path[:0] = [path for path in [{str(Path(posenc.__file__).parents[1])!r}] if path not in sys.path]
from posenc.lab.worker import main
sys.exit(main())"""  # the posenc of this process, wherever it was found
STOP_SECONDS = 20  # a worker finishes its step and saves; then it is killed


@dataclass
class _Running:
    work: Pending
    process: subprocess.Popen[bytes]
    slot: int


def run_local(
    pending: list[Pending],
    *,
    workers: int,
    threads: int,
    gpus: int,
    on_poll: Callable[[list[str]], None],
    on_restart: Callable[[str], None] = lambda line: None,
) -> list[str]:
    """Run what is pending to its results, at most ``workers`` at a time.

    Args:
        pending: the longest first.
        workers: processes at a time.
        threads: of each process.
        gpus: GPUs to deal out to the processes; 0 for none.
        on_poll: told several times a second the names of the running jobs.
        on_restart: told a line when a job whose process was killed is taken up again.

    Returns:
        One line for each job that failed.
    """
    waiting, running, failures = list(pending), list[_Running](), list[str]()
    retries = {work.name: Retries(work.folder) for work in pending}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                slot = min(set(range(workers)) - {r.slot for r in running})
                work = waiting.pop(0)
                running.append(_Running(work, _start(work, threads, slot % gpus if gpus else None), slot))
            time.sleep(POLL_SECONDS)
            for ended in [r for r in running if r.process.poll() is not None]:
                running.remove(ended)
                if _was_killed(ended) and retries[ended.work.name].after_death():
                    on_restart(f"{ended.work.name}: {_death(ended)}; it is taken up again")
                    waiting.insert(0, ended.work)
                elif ended.process.returncode != 0:
                    failures.append(_failure(ended))
            on_poll([r.work.name for r in running])
    finally:
        _stop([r.process for r in running])
    return failures


def _start(work: Pending, threads: int, gpu: int | None) -> subprocess.Popen[bytes]:
    environment = dict(os.environ)
    # Read when torch is imported, so it must be in the environment of the new process.
    environment.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads)))
    if gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = _visible_gpus()[gpu]
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


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    for process in processes:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _was_killed(ended: _Running) -> bool:
    """Whether a signal ended it: at once, or after it had saved."""
    return ended.process.returncode < 0 or ended.process.returncode == STOPPED


def _death(ended: _Running) -> str:
    number = -ended.process.returncode if ended.process.returncode < 0 else signal.SIGTERM.value
    return f"killed by signal {number}" + (", perhaps for lack of memory" if number == signal.SIGKILL else "")


def _failure(ended: _Running) -> str:
    log: Path = ended.work.folder / "log.txt"
    if _was_killed(ended):
        return f"{ended.work.name}: {_death(ended)}, {DEATHS} times without a new checkpoint; see {log}"
    reason = last_line(log).removeprefix("error: ")
    if ended.process.returncode == UNWRITABLE and "cannot write" not in reason:  # nor could the log be written
        reason = f"cannot write in {ended.work.folder}: is the disk full?"
    return f"{ended.work.name}: {reason}; see {log}"
