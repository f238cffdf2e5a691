"""What a file of a run may say. It may come from anybody, so it is checked before it becomes a name or a path."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar, get_args, get_origin, get_type_hints

LONGEST_NAME, LONGEST_TEXT, MOST_FACTS = 200, 1000, 1000  # signs, signs, entries
MOST_SEEDS = 10_000
T = TypeVar("T")
_PART = re.compile(r"[a-z0-9_-]+")


def check_spec(value: object, path: Path) -> str:
    """The name of an encoding, a mix or a row of a table; a ValueError that names the file where it is none.

    Letters, digits, ``_`` and ``-``, joined by ``+``; ``module:Class`` for a class of somebody's own; ``@`` and a
    number at the end; further such kinds of layers behind ``/``, each with ``:`` and a number.
    """
    if (
        not isinstance(value, str)
        or len(value) > LONGEST_NAME
        or not all(_is_rule(rule, n) for n, rule in enumerate(value.split("/")))
    ):
        raise ValueError(f"{path}: {shown(value)} is not the name of an encoding; the file was left as it is")
    return value


def _is_rule(rule: str, place: int) -> bool:
    """Whether a part of a spec between slashes names encodings, with a window or a number of layers or neither."""
    if place > 0:
        rule, colon, every = rule.rpartition(":")
        if not colon or re.fullmatch(r"[0-9]{1,9}", every) is None:
            return False
    head, at, number = rule.partition("@")
    return all(_is_part(part) for part in head.split("+")) and (
        not at or re.fullmatch(r"[0-9]{1,9}", number) is not None
    )


def check_seed(value: object, path: Path) -> int:
    """A number of a seed."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MOST_SEEDS:
        raise ValueError(f"{path}: seed {shown(value)}: a whole number from 0 to {MOST_SEEDS - 1} is needed")
    return value


def check_protocol(value: object, path: Path) -> int:
    """The number of the protocol that a result was computed by; 0 where a file says none."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 10_000:
        raise ValueError(f"{path}: protocol {shown(value)}: a whole number is needed")
    return value


def check_trial(value: object, path: Path) -> str:
    """What tells the jobs of one spec and seed apart."""
    if not isinstance(value, str) or re.fullmatch(r"(trial[0-9]{1,9})?", value) is None:
        raise ValueError(f"{path}: {shown(value)} is not the name of a trial")
    return value


def check_words(value: object, what: str, path: Path) -> dict[str, str]:
    """Facts in words: versions, hashes, a machine."""
    if not isinstance(value, dict) or len(value) > MOST_FACTS:
        raise ValueError(f"{path}: {what} must be an object of texts, got {shown(value)}")
    for key, text in value.items():
        if not isinstance(text, str) or not (_is_line(key) and _is_line(text)):
            raise ValueError(f"{path}: {what} must hold lines of text, got {shown(key)}: {shown(text)}")
    return dict(value)


def check_digests(value: object, path: Path) -> dict[str, str]:
    """SHA-256 of the files of own classes, by name."""
    found = check_words(value, "code", path)
    for name in found:
        if not _is_own(name):
            raise ValueError(f"{path}: code must be that of classes like my_module:MyClass, got {shown(name)}")
    return found


def check_factors(value: object, path: Path) -> dict[str, float]:
    """Tuned factors: ``lr``, ``own`` or both, positive."""
    fits = isinstance(value, dict) and set(value) <= {"lr", "own"}
    if not fits or not all(is_number(x) and x > 0 for x in value.values()):  # type: ignore[attr-defined]
        raise ValueError(
            f'{path}: factors "lr" and "own" for each encoding, all positive, are needed, not {shown(value)}'
        )
    return dict(value)  # type: ignore[call-overload,no-any-return]


def dataclass_of(kind: type[T], record: object, path: Path) -> T:
    """A dataclass from plain data, each field of the type that it is declared with; JSON has no tuples."""
    hints = get_type_hints(kind)
    if not isinstance(record, dict) or set(record) != set(hints):
        raise ValueError(f"{path} was written by another version of posenc: its {kind.__name__} are others")
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in record.items()}
    for name, hint in hints.items():
        part, *_ = get_args(hint) or (hint,)
        found = values[name] if get_origin(hint) is tuple else (values[name],)
        if not isinstance(found, tuple) or not all(_is_a(part, one) for one in found):
            raise ValueError(f"{path}: {name} {shown(record[name])} is not of the type {hint}")
    return kind(**values)


def refuse_links(paths: Iterable[Path]) -> None:
    """Make sure that what is to be written into is no link: it could lead anywhere."""
    for path in paths:
        if path.is_symlink():
            raise ValueError(f"{path} is a link; a run writes into folders and files of its own alone: replace it")


def is_number(value: object) -> bool:
    """Whether a value is a finite number, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def shown(value: object) -> str:
    """A value as it is quoted in an error: one short line."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _is_a(kind: object, value: object) -> bool:
    return is_number(value) if kind is float else type(value) is kind and (kind is not str or _is_line(value))


def _is_part(part: str) -> bool:
    return _PART.fullmatch(part) is not None or _is_own(part)


def _is_own(name: str) -> bool:
    module, colon, attribute = name.partition(":")
    return bool(colon) and attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))


def _is_line(text: object) -> bool:
    return isinstance(text, str) and len(text) <= LONGEST_TEXT and text.isprintable()
