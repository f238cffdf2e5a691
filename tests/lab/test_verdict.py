"""One verdict for every case."""

from __future__ import annotations

import pytest

from posenc.lab.text.verdict import Change, verdict


@pytest.mark.parametrize(
    ("mean", "error", "word"),
    [
        (0.31, 0.001, "fails"),
        (4.0, 3.0, "fails"),  # a collapse is one, however noisy
        (0.30, 0.001, "degrades"),
        (0.02, 0.005, "degrades"),
        (0.1, 0.06, "flat"),  # within two standard errors
        (0.019, 0.001, "flat"),
        (0.0, 0.0, "flat"),
        (-0.01, 0.001, "flat"),
        (-0.011, 0.005, "uses context"),
        (-0.011, 0.006, "flat"),
        (-2.0, 1.5, "flat"),
        (-2.0, 0.5, "uses context"),
    ],
)
def test_verdicts(mean: float, error: float, word: str) -> None:
    assert verdict(Change(mean, error)) == word


def test_what_is_undefined_is_called_so() -> None:
    assert verdict(None) == "past its table"
