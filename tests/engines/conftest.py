"""Engines of tests run in this process: starting one of its own for each takes seconds."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.engines import check, checkpoint
from benchmarks.engines.adapters import Question, load_adapter
from benchmarks.engines.process import answer


class InProcess:
    """`EngineProcess` without a process."""

    def __init__(self, adapter: str, python: str = "") -> None:
        self.adapter = load_adapter(adapter)
        self.version, self.reason = self.adapter.version(), ""

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def ask(self, question: Question) -> dict[str, Any]:
        return answer(self.adapter, question)


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "own_process" not in request.fixturenames:
        for module in (check, checkpoint):
            monkeypatch.setattr(module, "EngineProcess", InProcess)


@pytest.fixture
def own_process() -> None:
    """Of a test whose engines run in processes of their own."""
