"""One config in an installed engine: its rotary class runs on the config itself, up to the length that it declares."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.engines.adapters import load_adapter
from benchmarks.engines.cases import Case
from benchmarks.engines.check import USER_CONFIG, Cell, check_case
from benchmarks.engines.process import EngineProcess

from posenc.hf import read_rope
from posenc.hf.config.rotation import text_rope
from posenc.hf.config.text_config import find_text_config


def check_config(engine: str, config: dict[str, Any], python: str = sys.executable) -> Cell | None:
    """The cell of one config; None where the engine is not installed.

    Args:
        engine: a name of an adapter of a rotary class, or ``FILE.py:NAME``.
        config: the content of config.json.
        python: the interpreter with the engine.

    Raises:
        ValueError: for a config that cannot be read, or without a rotation or a length; for an adapter that is not
            known, or that runs whole models, which the table has.
    """
    adapter = load_adapter(engine)
    if adapter.measures != "cos and sin":
        raise ValueError(f"{adapter.name} runs whole models: posenc engines check has what was measured of them")
    read = read_rope(config)
    ropes = [text_rope(rotation) for rotation in read.rotations.values() if rotation is not None]
    trained = max((length for rope in ropes if (length := read.facts.trained(rope))), default=0)
    longest = max((length for rope in ropes if (length := read.facts.reachable(rope))), default=0)
    if not ropes or not longest:
        raise ValueError("the config has no rotation, or does not say its length")
    text_config = find_text_config(config)
    original = min(trained or longest, longest)
    case = Case(USER_CONFIG, text_config.model_type, "v5", dict(text_config), original, longest)
    with EngineProcess(engine, python) as process, tempfile.TemporaryDirectory() as place:
        return None if process.version is None else check_case(process, adapter, case, Path(place))
