"""Type checkers accept every documented call, and know its types."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CALLS = Path(__file__).parent / "typing" / "documented_calls.py"


def test_the_documented_calls_run() -> None:
    runpy.run_path(str(CALLS))


def test_mypy_accepts_the_documented_calls() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(CALLS)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout


def test_pyright_accepts_the_documented_calls() -> None:
    if shutil.which("pyright") is None:
        pytest.skip("pyright is not installed: pip install pyright")
    ran = subprocess.run(
        ["pyright", "--pythonpath", sys.executable, str(CALLS)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout
