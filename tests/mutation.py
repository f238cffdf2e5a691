"""Run tests on sources with one change, without writing it anywhere: the ground of `mutants` and `drawn_mutants`.

Each change is tried in a forked child of a process that has loaded torch and pytest already: the child's loader reads
the changed text in the place of one module's file. That saves the seconds that starting Python and torch take.
"""

from __future__ import annotations

import importlib.machinery
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import CodeType

import hypothesis  # noqa: F401  what tests import, and posenc does not change
import numpy  # noqa: F401
import pytest
import torch

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "posenc"
PASSED, FAILED, INTERRUPTED, NONE_SELECTED = 0, 1, 2, 5  # exit codes of pytest
KILLED = -signal.SIGPROF


def outcome(file: str, text: str, tests: Sequence[str], seconds: int = 300) -> tuple[int, str]:
    """pytest's exit code, and what it printed, for tests of sources where one file has another text.

    Args:
        file: below ``src/posenc``.
        text: what the file says instead.
        tests: arguments of pytest.
        seconds: of a processor, after which a run that does not end is killed; the code is then `KILLED`.
    """
    with tempfile.TemporaryFile("w+") as said:
        sys.stdout.flush()
        child = os.fork()
        if not child:
            signal.setitimer(signal.ITIMER_PROF, seconds)  # of a processor: others may keep the machine busy
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            os._exit(_run(str((SOURCE / file).resolve()), text, tests))
        _, status = os.waitpid(child, 0)
        said.seek(0)
        return os.waitstatus_to_exitcode(status), said.read()


def catches(code: int) -> bool:
    """Whether an exit code says that some test failed, could not even be collected, or did not end."""
    return code in (FAILED, INTERRUPTED) or code < 0


def _run(path: str, text: str, tests: Sequence[str]) -> int:
    os.chdir(ROOT)
    sys.path.insert(0, str(SOURCE.parent))
    torch.set_num_threads(1)
    read = importlib.machinery.SourceFileLoader.get_code

    def get_code(loader: importlib.machinery.SourceFileLoader, fullname: str) -> CodeType | None:
        if loader.path == path:
            return compile(text, path, "exec", dont_inherit=True)
        return read(loader, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
    try:
        return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]))
    except BaseException as error:  # the child must not return into its parent's code
        print(repr(error), file=sys.__stderr__)
        return FAILED
