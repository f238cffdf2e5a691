"""What a configuration of another program becomes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from posenc.hf.mend import NotReadError
from posenc.hf.numbers import is_number, shown
from posenc.hf.remark import Remark
from posenc.hf.source import Config
from posenc.rotary._rotate import Layout


class Translated(NamedTuple):
    """A configuration in Hugging Face's keys.

    Attributes:
        config: it.
        program: whose it was, "" for Hugging Face's own.
        layout: of the pairs in that program's weights; None: what the family has.
        remarks: what a reader should know of the other form.
        names: keys that were called otherwise there, for errors.
    """

    config: Config
    program: str = ""
    layout: Layout | None = None
    remarks: tuple[Remark, ...] = ()
    names: Mapping[str, str] = {}

    def told(self, error: ValueError) -> ValueError:
        """An error in these keys, with the names that they had."""
        if not self.program:
            return error
        wrong = re.findall(r"\w+", str(error).partition("\nallowed:")[0])
        names = ", ".join(f"{key} is {name}" for key, name in self.names.items() if key in wrong)
        kind = NotReadError if isinstance(error, NotReadError) else ValueError
        between = "\n" if "\n" in str(error) else "; "
        return kind(f"{error}{between}read from {self.program}" + (f", where {names}" if names else ""))


def renamed(config: Config, names: Mapping[str, str]) -> Config:
    """The values that a configuration has under these names: ours by theirs; nulls are dropped."""
    return {ours: config[theirs] for theirs, ours in names.items() if config.get(theirs) is not None}


def number_at(config: Config, key: str, default: float, least: float = 0.0) -> float:
    """A number of the other form; a ValueError that names the key for anything else."""
    found: Any = config.get(key)
    if found is None:
        return default
    if not is_number(found, least):
        raise ValueError(f"{key} must be a number of at least {least:g}, found {shown(found)}")
    return float(found)
