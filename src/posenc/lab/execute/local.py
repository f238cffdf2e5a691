"""Processes of this machine, each with one thread or a few: the default executor.

P processes of one thread are much faster than one process of P threads, because at this size threads mostly wait for
each other. Each job has a process to itself, so that killing one affects no other.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
import traceback
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from threading import Thread

import torch

import posenc
from posenc.hf.atomic_write import UnwritableError
from posenc.lab.execute.executor import DiedError, Executor, Resources, last_line, run_work, thread_variables
from posenc.lab.plugins import ImportAllowlist
from posenc.lab.run.job import Work
from posenc.lab.run.train import StoppedError

WORKER = f"""import sys
sys.path[:0] = [path for path in [{str(Path(posenc.__file__).parents[1])!r}] if path not in sys.path]
from posenc.lab.execute.local import main
sys.exit(main())"""  # the posenc of this process, wherever it was found
STOP_SECONDS = 20  # for a worker to finish its step and save; then it is killed
STOPPED, BAD_INPUT, UNWRITABLE = 143, 2, 74  # exit codes of a worker


class Local(Executor):
    """Starts one process for each job."""

    name, has_queue, elsewhere = "local", False, False

    def start(self, resources: Resources) -> None:
        """Begin without processes."""
        super().start(resources)
        self.running: dict[int, subprocess.Popen[bytes]] = {}  # by slot, which is also the number of its GPU

    def submit(self, work: Work) -> Future[None]:
        """Start a job's process."""
        future: Future[None] = Future()
        slot = min(set(range(len(self.running) + 1)) - set(self.running))
        process = self.running[slot] = self._start_process(work, slot)
        Thread(target=self._wait, args=(future, work, process, slot), daemon=True).start()
        return future

    def stop(self) -> None:
        """Stop what runs: each worker finishes its step and saves."""
        processes = list(self.running.values())
        for process in processes:
            process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for process in processes:
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

    def command(self, work: Work) -> list[str]:
        """The command line of a job's process."""
        # -P: a module is not importable just because it is in the current folder; a job's plugins are named.
        return [
            sys.executable, "-P", "-c", WORKER, str(work.folder),
            "--classes", ",".join(sorted(work.plugins.names)), "--classes-from", str(work.plugins.folder),
            "--parent", str(os.getpid()), "--track", ",".join(work.trackers),
        ]  # fmt: skip

    def _start_process(self, work: Work, slot: int) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **thread_variables(self.resources.threads)}
        if self.resources.gpus:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
            gpus = visible.split(",") if visible else [str(i) for i in range(torch.cuda.device_count())]
            environment["CUDA_VISIBLE_DEVICES"] = gpus[slot % self.resources.gpus]
        with (work.folder / "log.txt").open("ab") as log:
            return subprocess.Popen(
                self.command(work),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # so that Ctrl-C reaches the parent alone
            )


def _error(work: Work, code: int) -> Exception:
    if code < 0 or code == STOPPED:
        number = -code if code < 0 else signal.SIGTERM.value
        return DiedError(
            f"killed by signal {number}" + (", perhaps for lack of memory" if number == signal.SIGKILL else "")
        )
    reason = last_line(work.folder / "log.txt").removeprefix("error: ")
    if code == UNWRITABLE and "cannot be written" not in reason:  # the log could not be written either
        reason = f"cannot write in {work.folder}: is the disk full?"
    return RuntimeError(reason)


def main() -> int:
    """The process of a job: run it; stop at the next step on SIGTERM or when the parent has died."""
    parser = argparse.ArgumentParser(prog="posenc.lab.execute.local")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--classes", default="", help="own classes that may be imported, separated by commas")
    parser.add_argument("--classes-from", type=Path, default=Path(), help="the folder with their modules")
    parser.add_argument("--track", default="", help="trackers, separated by commas")
    options = parser.parse_args()
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    classes, trackers = (tuple(filter(None, text.split(","))) for text in (options.classes, options.track))
    plugins = ImportAllowlist(frozenset(classes), options.classes_from)
    work = Work(options.folder.name, options.folder, plugins, trackers)
    try:
        run_work(work, should_stop=lambda: bool(stopping) or os.getppid() != options.parent)
    except StoppedError:
        return STOPPED
    except (ValueError, OSError) as error:
        with suppress(OSError):  # on a full disk the log is full too
            traceback.print_exc()
            print(f"error: {error}", file=sys.stderr, flush=True)  # noqa: T201  (the last line of log.txt)
        return UNWRITABLE if isinstance(error, UnwritableError) else BAD_INPUT
    return 0


if __name__ == "__main__":
    sys.exit(main())
