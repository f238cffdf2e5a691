"""Which encodings say that they have no meaning for keys after the query."""

from __future__ import annotations

import pytest

from posenc import ALiBi, T5Bias
from posenc.bias import Sandwich
from posenc.score import ForgetGate, Shaw, XPos


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        (T5Bias(4), True),
        (T5Bias(4, bidirectional=True), False),
        (XPos(8), True),
        (ForgetGate(16, num_heads=4), False),
        (ForgetGate(16, num_heads=4, kind="rows"), True),
        (ForgetGate(16, num_heads=4, kind="bidirectional"), False),
        (ALiBi(4), False),
        (Sandwich(4), False),
        (Shaw(8, max_distance=4), False),
    ],
    ids=repr,
)
def test_said_of_each(encoding, expected):
    assert encoding.causal_only is expected
