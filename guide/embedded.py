"""``python -m guide.embedded``: what was measured, as the file that the explorer of an installed package carries.

docs/results lies in the repository alone. A test fails where the file is older than the results.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from guide.measured import Measured, measured

FILE = Path(__file__).parents[1] / "src" / "posenc" / "explorer" / "measured.json"


def embedded() -> str:
    """The text of the file: comparisons, each with its rows by encoding."""
    studies: dict[str, dict[str, Any]] = {}
    for name, rows in sorted(measured().items()):
        for row in rows:
            studies.setdefault(row.study, _study(row))["rows"][name] = _row(row)
    lines = [json.dumps(studies[name], ensure_ascii=False) for name in sorted(studies)]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _study(row: Measured) -> dict[str, Any]:
    shared = {name: getattr(row, name) for name in ("study", "title", "unit", "better", "train_length")}
    return {**shared, "rows": {}}


def _row(row: Measured) -> dict[str, Any]:
    means = [[length, *numbers] for length, numbers in sorted(row.means.items())]
    return {"verdict": row.verdict, "seeds": row.seeds, "means": means}


if __name__ == "__main__":
    FILE.write_text(embedded(), encoding="utf-8")
