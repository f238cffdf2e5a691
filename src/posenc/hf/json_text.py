"""Edits the text of a JSON file: single values change, and every other character stays as its author wrote it.

Writing a parsed file anew would change indentation, the spelling of numbers (1e-6 becomes 1e-06) and of characters, so
that a diff would show more than what was meant. Here the places of keys and values are found in the text, and only
these are replaced, inserted or removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NamedTuple

Path = tuple[str, ...]
REMOVED = object()
"""The value of a key that is to go."""
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


class _Member(NamedTuple):
    """A key of an object: where the key begins, and where its value begins and ends."""

    key: str
    begin: int
    value: int
    end: int


def edited(text: str, changes: Mapping[Path, Any]) -> str:
    """The text of a JSON object with other values at some paths.

    Args:
        text: of the file; a byte order mark must be gone.
        changes: by path, the new value, or `REMOVED`. A key that is missing is added behind the last key of its
            object, and objects that are missing on the way to it are made.

    Raises:
        ValueError: for a path that leads through something else than an object, and for a text that holds none.

    >>> edited('{"a": 1e-6, "b": {"c": 2}}', {("b", "c"): 3, ("d",): [1, 2]})
    '{"a": 1e-6, "b": {"c": 3}, "d": [1, 2]}'
    """
    for path, value in changes.items():
        text = _edited_at(text, _behind_space(text, 0), path, value)
    return text


def _edited_at(text: str, begin: int, path: Sequence[str], value: Any) -> str:
    """The text with another value at a path from the object whose brace stands at ``begin``."""
    members, end = _object_at(text, begin)
    name, *deeper = path
    present = [member for member in members if member.key == name]
    if deeper and present and text[present[-1].value] == "{":
        return _edited_at(text, present[-1].value, deeper, value)
    if value is REMOVED:
        return text if deeper or not present else _without(text, begin, name)
    if deeper and present and text[present[-1].value : present[-1].end] != "null":
        raise ValueError(f"{name} must be an object to hold {deeper[0]}")
    for key in reversed(deeper):
        value = {key: value}
    unit, margin = _layout(text, begin, members)
    for member in reversed(present):  # a key that stands twice with one value changes in both places
        flat = "\n" not in text[member.value : member.end] and text[member.value] in "{["
        text = f"{text[: member.value]}{_dumped(value, '' if flat else unit, margin)}{text[member.end :]}"
    if present:
        return text
    line = f"{json.dumps(name, ensure_ascii=False)}: {_dumped(value, unit, margin)}"
    if members:
        at = members[-1].end
        separator = f",\n{margin}" if unit else ", "
        return f"{text[:at]}{separator}{line}{text[at:]}"
    content = f"\n{margin}{line}\n{margin[len(unit) :]}" if unit else line
    return f"{text[: begin + 1]}{content}{text[end - 1 :]}"


def _without(text: str, begin: int, name: str) -> str:
    """The text without a key of an object, and without one of the commas around it."""
    members, end = _object_at(text, begin)
    at = next((at for at, member in enumerate(members) if member.key == name), None)
    if at is None:
        return text
    if at + 1 < len(members):
        start, stop = members[at].begin, members[at + 1].begin
    else:
        start, stop = (members[at - 1].end, members[at].end) if at else (begin + 1, end - 1)
    return _without(text[:start] + text[stop:], begin, name)  # which may stand twice


def _layout(text: str, begin: int, members: Sequence[_Member]) -> tuple[str, str]:
    """The unit of indentation ("" for an object on one line), and the margin of the object's keys."""
    line = text.rfind("\n", 0, begin) + 1
    outer = text[line : min(begin, _behind_space(text, line))]
    if not members:  # as its surroundings
        unit = "  " if "\n" in text else ""
        return unit, outer + unit
    first = text.rfind("\n", 0, members[0].begin) + 1
    if first <= begin:
        return "", ""
    margin = text[first : members[0].begin]
    return (margin.removeprefix(outer) if margin.startswith(outer) else "") or "  ", margin


def _dumped(value: Any, unit: str, margin: str) -> str:
    if not unit:
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False, indent=unit).replace("\n", f"\n{margin}")


def _behind_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _object_at(text: str, begin: int) -> tuple[list[_Member], int]:
    """The members of the object whose brace stands at ``begin``, and its end; values are passed over."""
    if begin >= len(text) or text[begin] != "{":
        raise ValueError("the text must hold a JSON object")
    members: list[_Member] = []
    at = _behind_space(text, begin + 1)
    while text[at] != "}":
        if text[at] == ",":
            at = _behind_space(text, at + 1)
        key, after = scanstring(text, at + 1, False)
        value = _behind_space(text, _behind_space(text, after) + 1)
        _, end = _DECODER.raw_decode(text, value)
        members.append(_Member(key, at, value, end))
        at = _behind_space(text, end)
    return members, at + 1
