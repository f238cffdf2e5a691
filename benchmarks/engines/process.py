"""One engine in a process of its own: a crash or hang of the engine loses one answer, not the run.

``python -m benchmarks.engines.process ADAPTER`` is the other side, a JSON line per question. Its first line of output
has the engine's version (null: not installed). Each line of input is a `Question`; the output is {"rows": …},
{"refused": the engine's error} or {"not_run": why the adapter does not test it}. What the engine prints goes to stderr,
so it cannot end up among the answers.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, Any, Self

from benchmarks.engines.adapters import Adapter, NotRunError, Question, load_adapter

from posenc.arguments import one_line

ROOT = Path(__file__).parents[2]  # where this package is found


class EngineProcess:
    """One adapter in an interpreter; it is started again for the next question where the last one ended it.

    Attributes:
        adapter: a name of an adapter, or ``FILE.py:NAME``.
        python: the interpreter, which must have posenc and the engine.
        seconds: for one answer, and for the start.
        version: of the engine there; None where it is not installed.
        reason: why it is not installed, where the engine says.
    """

    def __init__(self, adapter: str, python: str = sys.executable, seconds: float = 300.0) -> None:
        self.adapter, self.python, self.seconds = adapter, python, seconds
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115  # it lives as long as this object
        greeting = self._start()
        self.version: str | None = greeting.get("version")
        self.reason = str(greeting.get("reason") or greeting.get("refused") or "")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()
        self._errors.close()

    def ask(self, question: Question) -> dict[str, Any]:
        """The worker's answer (`answer`); an end or a silence of the process is a refusal."""
        if self._process is None:
            self._start()
        process = self._process
        if process is None or process.stdin is None:
            return {"refused": "its process does not start again"}
        try:
            process.stdin.write(json.dumps({**question._asdict(), "options": dict(question.options)}) + "\n")
            process.stdin.flush()
        except OSError:  # it has ended; reading says how
            pass
        return self._read()

    def _start(self) -> dict[str, Any]:
        paths = [str(ROOT), os.environ.get("PYTHONPATH")]
        command = [self.python, "-m", "benchmarks.engines.process", self.adapter]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            )  # fmt: skip
        except OSError as error:
            raise ValueError(f"--python {self.adapter}={self.python}: {error.strerror}") from error
        self._lines = queue.Queue()
        threading.Thread(target=_pass_on, args=(self._process.stdout, self._lines), daemon=True).start()
        return self._read()

    def _read(self) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=self.seconds)
        except queue.Empty:
            self._stop()
            return {"refused": f"no answer in {self.seconds:g} s"}
        if line is None:
            code = self._process.wait() if self._process is not None else 0
            self._stop()
            return {"refused": f"its process ended with exit code {code}{self._last_error()}"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_error(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        return f": {one_line(lines[-1])[:200]}" if lines else ""

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        try:
            process.wait(5 if process.poll() is None else 0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _pass_on(stream: IO[str] | None, lines: queue.Queue[str | None]) -> None:
    if stream is not None:
        for line in stream:
            lines.put(line)
    lines.put(None)


def engine_name(adapter: str) -> str:
    """The name of a column: an adapter's own name, or NAME of ``FILE.py:NAME``."""
    file, _, name = adapter.rpartition(":")
    return f"{Path(file).stem}:{name}" if file else adapter


def answer(adapter: Adapter, question: Question) -> dict[str, Any]:
    """What an engine says to one question."""
    try:
        return {"rows": adapter.measure(question)}
    except NotRunError as error:
        return {"not_run": one_line(str(error))}
    except ImportError as error:  # a package that is missing here says nothing about the engine
        return {"not_run": one_line(f"{type(error).__name__}: {error}")[:240]}
    except Exception as error:  # whatever an engine raises is a cell of the table
        return {"refused": one_line(f"{type(error).__name__}: {error}")[:240]}


def main() -> None:
    """Serve one adapter until stdin ends."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    adapter = load_adapter(sys.argv[1])

    def write(content: dict[str, Any]) -> None:
        channel.write(json.dumps(content) + "\n")
        channel.flush()

    try:
        write({"version": adapter.version()})
    except Exception as error:  # an engine that cannot be imported is not installed, and says why
        write({"version": None, "reason": one_line(f"{type(error).__name__}: {error}")})
    for line in sys.stdin:
        message = json.loads(line)
        lists = {key: tuple(message[key]) for key in ("positions", "tokens")}
        write(answer(adapter, Question(**{**message, **lists})))


if __name__ == "__main__":
    main()
