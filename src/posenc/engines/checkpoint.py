"""What was measured of engines for the kinds of rotation in one config: the rows of the table that posenc carries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from posenc.arguments import shown
from posenc.hf.config.rope_config import read_rope
from posenc.hf.serving.lines import Serving
from posenc.hf.serving.table import engine_table


class Line(NamedTuple):
    """The result for one engine and the config.

    Attributes:
        engine: its name in the table.
        state: "right", "off", "ignored", "refused" or "disputed"; "not run" where nothing was measured.
        text: in words, with version and date.
    """

    engine: str
    state: str
    text: str

    def __str__(self) -> str:
        return f"{self.engine}: {self.text if self.state == 'not run' else f'{self.state}. {self.text}'}"


def check_checkpoint(path: Path, engines: Sequence[str] = ()) -> list[Line]:
    """A line for each engine.

    Args:
        path: a folder with config.json, or the file.
        engines: names in the table; empty: all.

    Raises:
        ValueError: for a config that cannot be read, or an engine that the table does not have.
        OSError: for a file that cannot be read.
    """
    known = tuple(engine_table())
    for engine in engines:
        if engine not in known:
            raise ValueError(f"--engine must be one of {', '.join(known)}, got {shown(engine)}")
    serving = Serving(read_rope(path).facts, None)
    lines = []
    for engine in engines or known:
        if not any(serving.blocks):
            lines.append(Line(engine, "not run", "the config has no rotation"))
            continue
        checked = serving.verdict(engine)
        states = {result.state for result in checked.results}
        order = ("off", "ignored", "refused", "disputed")
        state = next((state for state in order if state in states), "right" if checked.right else "not run")
        lines.append(Line(engine, state, str(checked)))
    return lines
