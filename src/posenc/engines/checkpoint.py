"""Whether an engine computes one config right: by the committed records, or by running the installed engine.

An engine whose rotary class runs (`Adapter.measures` "cos and sin") runs on the config itself. For the others, and for
engines that are not installed, the recorded kinds of blocks of the config count (`posenc.hf.serving.engines`).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from posenc.arguments import shown
from posenc.engines.adapters import NAMES, load_adapter
from posenc.engines.cases import Case
from posenc.engines.check import USER_CONFIG, State, check_case
from posenc.engines.process import EngineProcess
from posenc.hf import read_rope
from posenc.hf.config.rope_keys import find_rope_blocks
from posenc.hf.config.rotation import text_rope
from posenc.hf.config.text_config import find_text_config
from posenc.hf.explanation.report import longest_length, trained_length
from posenc.hf.serving.engines import UNKNOWN, spelling_of, verdict, versions
from posenc.hf.sources.formats import load_config


class Line(NamedTuple):
    """The result for one engine and the config.

    Attributes:
        engine: the adapter's name.
        state: as `posenc.engines.check` says; "not run" where nothing was measured.
        source: "run here" or "record".
        text: in words, with version and date.
    """

    engine: str
    state: State
    source: str
    text: str

    def __str__(self) -> str:
        if self.state == "not run" and self.source == "record":
            return f"{self.engine}: {self.text}"  # which says that nothing was measured
        return f"{self.engine}: {self.state} ({self.source}). {self.text}"


def check_checkpoint(path: Path, engines: Sequence[str] = (), pythons: Mapping[str, str] | None = None) -> list[Line]:
    """A line for each engine.

    Args:
        path: a folder with config.json, or the file.
        engines: names of adapters, or ``FILE.py:NAME``; these run where they are installed. Empty: all of the records,
            and none runs.
        pythons: interpreters by the names of engines.

    Raises:
        ValueError: for a config that cannot be read, or an adapter that is not known.
        OSError: for a file that cannot be read.
    """
    config = dict(load_config(path))
    lines = []
    for engine in engines or NAMES[1:]:
        line = _run_here(engine, config, (pythons or {}).get(engine, "")) if engines else None
        lines.append(line or _recorded(engine, config))
    return lines


def _run_here(engine: str, config: dict[str, Any], python: str) -> Line | None:
    """The result of running the engine; None where it is not installed or runs whole models only."""
    adapter = load_adapter(engine)
    if adapter.measures != "cos and sin":
        return None
    read = read_rope(config)
    ropes = [text_rope(rotation) for rotation in read.rotations.values() if rotation is not None]
    trained = max((length for rope in ropes if (length := trained_length(read, rope))), default=0)
    longest = max((length for rope in ropes if (length := longest_length(read, rope))), default=0)
    if not ropes or not longest:
        return Line(adapter.name, "not run", "run here", "the config has no rotation, or does not say its length")
    text_config = find_text_config(config)
    original = min(trained or longest, longest) or longest
    case = Case(USER_CONFIG, text_config.model_type, "v5", dict(text_config), original, longest)
    with EngineProcess(engine, python or sys.executable) as process, tempfile.TemporaryDirectory() as place:
        if process.version is None:
            return None
        cell = check_case(process, adapter, case, Path(place))
    return Line(
        adapter.name, cell.state, "run here", f"{adapter.name} {cell.version} at up to {longest:,} tokens: {cell}"
    )


def _recorded(engine: str, config: dict[str, Any]) -> Line:
    """The committed results for the kinds of blocks of a config."""
    text_config = find_text_config(config)
    blocks = [
        None if block.values is None else {key: value for key, value in block.effective.items() if value is not None}
        for block in find_rope_blocks(text_config)
    ]
    if not any(blocks):
        return Line(engine, "not run", "record", "the config has no rotation")
    if not versions(engine):
        return Line(engine, "not run", "record", f"no measurement of {shown(engine)} comes with posenc")
    model_type = text_config.model_type if text_config.known else UNKNOWN
    checked = verdict(engine, blocks, spelling=spelling_of(text_config), model_type=model_type)
    state: State = "right" if checked.right else "not run"
    if any(result.state == "disputed" for result in checked.results):
        state = "disputed"
    if checked.wrong:
        state = next(state for state in ("off", "ignored", "refused") if state in {r.state for r in checked.wrong})
    return Line(engine, state, "record", str(checked))
