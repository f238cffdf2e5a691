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
    """The docstring of the module that an entry's class, or its scaling, lies in; None for the empty list.

    Where a module has several encodings with sources of their own, the fields are those of the class's docstring.
    """
    cls = entry.scaling or entry.encoding
    if cls is None:
        return None
    body, fields = _parted(inspect.cleandoc(sys.modules[home_of(cls)].__doc__ or ""))
    first, _, rest = body.partition("\n\n")
    return Described(" ".join(first.split()), rest.strip("\n"), fields or _parted(inspect.getdoc(cls) or "")[1])


def _parted(text: str) -> tuple[str, dict[str, str]]:
    """A docstring up to its fields, and the fields, which a blank line ends."""
    start = re.search(rf"^{_FIELDS[0]}: ", text, re.M)
    body, end = (text, "") if start is None else (text[: start.start()], text[start.start() :].partition("\n\n")[0])
    parts = re.split(rf"^({'|'.join(_FIELDS)}): ", end, flags=re.M)[1:]
    return body, {name: " ".join(words.split()) for name, words in zip(parts[::2], parts[1::2], strict=True)}


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
