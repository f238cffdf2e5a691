"""Documented calls run, and pyright accepts them; mypy reads them in the session `lint`."""

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


def test_pyright_accepts_the_documented_calls() -> None:
    if shutil.which("pyright") is None:
        pytest.skip("pyright is not installed: pip install pyright")
    ran = subprocess.run(
        ["pyright", "--pythonpath", sys.executable, str(CALLS)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout
