"""Stop a release whose positions are broken: the doctor in continuous integration.

    python examples/doctor_in_ci.py path/to/checkpoint ...

Without a path it shows what it does at a checkpoint that it breaks itself.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from posenc.hf.doctor import examine, fix

MEANT = {"length-dependent"}  # findings that are known and meant to be so


def check(folders: list[Path]) -> int:
    """Print what is wrong in each; the number of folders in which anything is."""
    sick = 0
    for folder in folders:
        report = examine(folder).accepting(MEANT)
        print(report)
        sick += not report.healthy
    return sick


def shown() -> None:
    """A Llama 3.1 whose scaling was lost on the way, found and mended."""
    config = {
        "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "vocab_size": 128256,
        "max_position_embeddings": 131072, "rope_theta": 500000.0,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "checkpoint"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        assert check([folder]) == 1
        print("written:", [path.name for path in fix(folder, Path(name) / "fixed")])
        assert check([Path(name) / "fixed"]) == 0


if __name__ == "__main__":
    folders = [Path(name) for name in sys.argv[1:] if Path(name).is_dir()]
    if folders:
        sys.exit(min(1, check(folders)))
    shown()
