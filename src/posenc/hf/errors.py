"""Errors of reading a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class NotReadError(ValueError):
    """A configuration that may well be right, and whose rotation posenc cannot read: no fault of the checkpoint."""


class MalformedError(ValueError):
    """What is wrong with a block.

    Attributes:
        found: by the path of each key, what is wrong with it.
        corrected: keys of the text part to put in their place (null: the key goes); its numbers need a look.
        inside: the path of that part, "" where it is the whole.
    """

    def __init__(self, text: str, found: Mapping[str, str], corrected: Mapping[str, Any], inside: str) -> None:
        super().__init__(text)
        self.found, self.corrected, self.inside = dict(found), dict(corrected), inside
