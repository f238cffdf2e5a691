"""What the translation of another program's configuration gives: keys of Hugging Face, findings, and its errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from posenc.arguments import shown
from posenc.frequencies.rotation import Layout
from posenc.hf.findings import Finding, NotReadError
from posenc.hf.limits import is_number

Config = dict[str, Any]


class Translated(NamedTuple):
    """A configuration in Hugging Face's keys.

    Attributes:
        config: it.
        program: whose it was, "" for Hugging Face's own.
        layout: of the pairs in that program's weights; None: what the family has.
        findings: what a reader should know of the other form.
        names: keys that were called otherwise there, for errors.
    """

    config: Config
    program: str = ""
    layout: Layout | None = None
    findings: tuple[Finding, ...] = ()
    names: Mapping[str, str] = {}

    def in_source_terms(self, error: ValueError) -> ValueError:
        """An error in these keys on one line, under the names that they have there."""
        if not self.program:
            return error
        lines = str(error).replace(" or n_embd with n_head", "").split("\n")
        text = "; ".join(dict.fromkeys(map(self.in_source_words, lines)))
        kind = NotReadError if isinstance(error, NotReadError) else ValueError
        return kind(f"{text}; read from {self.program}")

    def in_source_words(self, text: str) -> str:
        """A text with the names that keys have in the other program's file."""
        if not self.names:
            return text
        known = "|".join(sorted(map(re.escape, self.names), key=len, reverse=True))
        key = re.compile(rf"(?<![\w.])(?:rope_parameters\.|rope_scaling\.)?({known})\b(?!=)")
        return key.sub(lambda match: self.names[match[1]], text)


def renamed(config: Config, names: Mapping[str, str]) -> Config:
    """The values that a configuration has under these names: ours by theirs; nulls are dropped."""
    return {new: config[old] for old, new in names.items() if config.get(old) is not None}


def number_at(config: Config, key: str, default: float, least: float = 0.0) -> float:
    """A number of the other form; a ValueError that names the key for anything else."""
    value: Any = config.get(key)
    if value is None:
        return default
    if not is_number(value, least):
        raise ValueError(f"{key} must be a number of at least {least:g}, found {shown(value)}")
    return float(value)
