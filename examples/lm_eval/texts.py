"""The texts of the task posenc_bytes, read from the file next to this one, wherever lm_eval is started."""

from __future__ import annotations

import json
from pathlib import Path

import datasets


def load(**metadata: object) -> dict[str, datasets.Dataset]:
    """The test split; lm_eval hands over whatever ``metadata`` the task has."""
    lines = Path(__file__).with_name("texts.jsonl").read_text(encoding="utf-8").splitlines()
    return {"test": datasets.Dataset.from_list([json.loads(line) for line in lines])}
