"""The snapshot of what commands print."""

from __future__ import annotations

from tests.hf.wording import SNAPSHOT, printed


def test_the_outputs_are_those_of_the_snapshot() -> None:
    assert printed() == SNAPSHOT.read_text(encoding="utf-8"), "python -m tests.hf.wording writes it anew: read the diff"
