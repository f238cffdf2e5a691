"""A remark on a configuration: a key, a text, and a stable name."""

from __future__ import annotations

from typing import Literal, NamedTuple

Level = Literal["note", "suspicion", "fault"]


class Remark(NamedTuple):
    """A key of the configuration, and what a reader should know about it.

    Attributes:
        key: of the configuration.
        text: what it says of that key, to be read after it.
        name: the same for every remark of one kind, whatever its numbers: "base-lost".
        level: "note": what holds, such as a default; "suspicion": what is likely wrong and the files alone
            cannot decide; "fault": the files decide that something is wrong.
    """

    key: str
    text: str
    name: str = ""
    level: Level = "note"
