"""The list of public names and signatures, whose changes the changelog has; documented calls run and type-check."""

from __future__ import annotations

import difflib
import importlib
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import posenc
from tests.public_api import LIST, MODULES, public_api

CALLS = Path(__file__).parent / "typing" / "documented_calls.py"


def test_public_names_and_signatures_are_the_listed_ones() -> None:
    listed, result = LIST.read_text(encoding="utf-8").splitlines(), public_api().splitlines()
    changes = list(difflib.unified_diff(listed, result, "listed", "found", lineterm="", n=0))
    assert not changes, "\n".join(["run `python -m tests.public_api` and add a line to CHANGELOG.md:", *changes])


def test_the_list_detects_a_changed_signature(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    before = public_api()
    monkeypatch.setattr(posenc, "list_encodings", lambda another: None)
    assert public_api() != before


def test_public_modules_name_what_exists() -> None:
    for name in MODULES:
        module = importlib.import_module(name)
        assert not [public for public in module.__all__ if not hasattr(module, public)], name
        assert len(set(module.__all__)) == len(module.__all__), name


def test_the_documented_calls_run() -> None:
    runpy.run_path(str(CALLS))


def test_pyright_accepts_the_documented_calls() -> None:
    if shutil.which("pyright") is None:
        pytest.skip("pyright is not installed: pip install pyright")
    ran = subprocess.run(
        ["pyright", "--pythonpath", sys.executable, str(CALLS)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout
