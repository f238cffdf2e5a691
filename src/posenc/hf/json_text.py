"""Edits the text of a JSON file: single values change, and every other character stays as its author wrote it.

Writing a parsed file anew would change indentation, the spelling of numbers (1e-6 becomes 1e-06) and of characters, so
that a diff would show more than what was meant. Here the places of keys and values are found in the text, and only
these are replaced, inserted or removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

Path = tuple[str, ...]
REMOVED = object()
"""The value of a key that is to go."""
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


@dataclass
class _Member:
    """A key of an object: where the key begins, and where its value begins and ends."""

    key: str
    begin: int
    value: int
    end: int


@dataclass
class _Object:
    """An object of the text: its braces, and its members in order."""

    begin: int
    end: int = 0
    members: list[_Member] = field(default_factory=list)


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
        text = _with(text, path, value)
    return text


def _with(text: str, path: Path, value: Any) -> str:
    start = _skip(text, 0)
    current = _object_at(text, start)
    for depth, name in enumerate(path[:-1]):
        members = [member for member in current.members if member.key == name]
        if not members or text[members[-1].value] != "{":
            if value is REMOVED:
                return text
            inner: Any = value
            for key in reversed(path[depth + 1 :]):
                inner = {key: inner}
            if members and text[members[-1].value : members[-1].end] != "null":
                raise ValueError(f"{'.'.join(path[: depth + 1])} must be an object to hold {path[-1]}")
            return _put(text, current, name, inner)
        current = _object_at(text, members[-1].value)
    return _put(text, current, path[-1], value)


def _put(text: str, current: _Object, key: str, value: Any) -> str:
    """Set, add or remove a key of an object."""
    present = [member for member in current.members if member.key == key]
    if value is REMOVED:
        for member in reversed(present):
            text = _without(text, current, member)
            current = _object_at(text, current.begin)
        return text
    unit, margin = _layout(text, current)
    for member in reversed(present):  # a key that stands twice with one value changes in both places
        flat = "\n" not in text[member.value : member.end] and text[member.value] in "{["
        new = _dumped(value, "" if flat else unit, margin)
        text = f"{text[: member.value]}{new}{text[member.end :]}"
    if present:
        return text
    line = f"{json.dumps(key, ensure_ascii=False)}: {_dumped(value, unit, margin)}"
    if current.members:
        at = current.members[-1].end
        separator = f",\n{margin}" if unit else ", "
        return f"{text[:at]}{separator}{line}{text[at:]}"
    content = f"\n{margin}{line}\n{margin[len(unit) :]}" if unit else line
    return f"{text[: current.begin + 1]}{content}{text[current.end - 1 :]}"


def _without(text: str, current: _Object, member: _Member) -> str:
    index = current.members.index(member)
    if index + 1 < len(current.members):
        return text[: member.begin] + text[current.members[index + 1].begin :]
    if index:
        return text[: current.members[index - 1].end] + text[member.end :]
    return text[: current.begin + 1] + text[current.end - 1 :]


def _layout(text: str, current: _Object) -> tuple[str, str]:
    """The unit of indentation ("" for an object on one line), and the margin of the object's keys."""
    line = text.rfind("\n", 0, current.begin) + 1
    outer = _SPACE.match(text[line : current.begin]) or re.match("", "")
    assert outer is not None
    if not current.members:  # as its surroundings
        unit = "  " if "\n" in text else ""
        return unit, outer.group() + unit
    first = current.members[0].begin
    begin = text.rfind("\n", 0, first) + 1
    if begin <= current.begin:
        return "", ""
    margin = text[begin:first]
    unit = margin.removeprefix(outer.group()) if margin.startswith(outer.group()) else "  "
    return unit or "  ", margin


def _dumped(value: Any, unit: str, margin: str) -> str:
    if not unit:
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False, indent=unit).replace("\n", f"\n{margin}")


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _object_at(text: str, begin: int) -> _Object:
    """The object whose brace stands at ``begin``; its values are passed over, not looked into."""
    if begin >= len(text) or text[begin] != "{":
        raise ValueError("the text must hold a JSON object")
    result = _Object(begin)
    at = _skip(text, begin + 1)
    while text[at] != "}":
        if text[at] == ",":
            at = _skip(text, at + 1)
        key, after = scanstring(text, at + 1, False)
        value = _skip(text, _skip(text, after) + 1)
        _, end = _DECODER.raw_decode(text, value)
        result.members.append(_Member(key, at, value, end))
        at = _skip(text, end)
    result.end = at + 1
    return result
