"""What docs/decoding.md shows runs, from its first line to its last."""

from __future__ import annotations

import re
from pathlib import Path

import torch

PAGE = Path(__file__).parents[2] / "docs" / "decoding.md"


def test_the_page_runs():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) >= 5
    torch._dynamo.reset()
    exec(compile("\n".join(blocks), PAGE.name, "exec"), {"__name__": "page"})
    torch._dynamo.reset()
