"""How far `posenc explain` and `posenc doctor` walk through a config: own functions and files, counted, not timed."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pytest

import posenc_cli
from tests.golden import configs
from tests.test_front_door import LONGEST, lengths_of, walk_of

WAYS = {  # by command and model: the most functions and files, and of those what is no rule
    ("explain", "Qwen/Qwen3-8B"): (245, 36, 175),
    ("explain", "google/gemma-3-1b-it"): (245, 36, 175),
    ("doctor", "Qwen/Qwen3-8B"): (210, 40, 140),
}


@pytest.mark.parametrize(("command", "model"), WAYS, ids=[" ".join(way) for way in WAYS])
def test_a_config_is_walked_through_once(command: str, model: str, tmp_path: Path) -> None:
    config = next(line["config"] for line in configs("published_configs") if line["model"] == model)
    (tmp_path / "config.json").write_text(json.dumps(config))

    def run() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            assert posenc_cli.run([command, str(tmp_path / "config.json")]) == 0

    entered = [code for code in walk_of(run) if not code.co_name.startswith("<")]
    functions = {(code.co_filename, code.co_firstlineno) for code in entered}
    most, most_files, without_rules = WAYS[command, model]
    assert len(functions) <= most, len(functions)
    assert len({path for path, _ in functions}) <= most_files
    assert sum("/hf/rules/" not in path for path, _ in functions) <= without_rules
    assert max(lengths_of(path).get(line, 0) for path, line in functions) <= LONGEST
