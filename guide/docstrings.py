"""Parses module docstrings into parts, and prepares class docstrings for Markdown."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import dataclass
from typing import Any

import griffe

from posenc.catalogue import Entry
from posenc.frequencies.modules import home_of

_FIELDS = ("Source", "Checked against", "Departs from the source")


@dataclass(frozen=True)
class Described:
    """What a module says of itself: first line, formula and words, and the fields at its end."""

    first: str
    body: str
    fields: dict[str, str]


def described(entry: Entry) -> Described | None:
    """The docstring of the module that an entry's class, or its scaling, lies in; None for the empty list."""
    cls = entry.scaling or entry.encoding
    if cls is None:
        return None
    text = inspect.cleandoc(sys.modules[home_of(cls)].__doc__ or "")
    start = re.search(rf"^{_FIELDS[0]}: ", text, re.M)
    body, end = (text, "") if start is None else (text[: start.start()], text[start.start() :])
    first, _, rest = body.partition("\n\n")
    parts = re.split(rf"^({'|'.join(_FIELDS)}): ", end, flags=re.M)[1:]
    fields = {name: " ".join(text.split()) for name, text in zip(parts[::2], parts[1::2], strict=True)}
    return Described(" ".join(first.split()), rest.strip("\n"), fields)


class Fenced(griffe.Extension):
    """Doctests of docstrings as blocks of code: Markdown would read their ``>>>`` as quotations."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """A docstring whose paragraphs with ``>>>`` are fenced.

    >>> print(fenced("It.\\n\\n>>> 1\\n1"))
    It.
    <BLANKLINE>
    ```pycon
    >>> 1
    1
    ```
    """
    return "\n\n".join(
        f"```pycon\n{part}\n```" if part.lstrip().startswith(">>>") else part for part in text.split("\n\n")
    )
