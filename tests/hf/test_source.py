"""Files that are no configuration, and objects that are none: refused in words; a byte order mark is passed over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from posenc.hf import read_rope
from posenc.hf.numbers import DEPTH, FILE_BYTES
from tests.hf.checkpoints import CHECKPOINTS

LLAMA, _ = CHECKPOINTS["llama-2-7b"]


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8-sig")
    assert read_rope(tmp_path).config == LLAMA


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["no JSON"]),
        (b"[]", ["must hold a JSON object", "list"]),
        (b"null", ["must hold a JSON object"]),
        (b'"llama"', ["must hold a JSON object", "str"]),
        ('{"model_type": "schön"}'.encode("latin-1"), ["no JSON", "utf-8"]),
        (json.dumps(LLAMA).encode("utf-16"), ["no JSON"]),
        (b'{"rope_theta": 1e4, "rope_theta": 1e6}', ["rope_theta stands twice", "10000.0 and 1000000.0"]),
        (b'{"rope_scaling": {"factor": 2, "factor": 4}}', ["factor stands twice"]),
        (b'{"rope_theta": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", ["nested deeper than 64"]),
        (b'{"a": {"b": ' + b"[" * 80 + b"]" * 80 + b"}}", ["a.b.0", "nested deeper than 64"]),
        (b'{"rope_theta": ' + b"9" * 5000 + b"}", ["no JSON", "digits"]),
        (b'{"rope_theta": ' + b"9" * 4000 + b"}", ["rope_theta must be a number of fewer digits", "bits"]),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_no_configuration_is_refused(tmp_path: Path, content: bytes, words: list[str]) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ValueError) as error:
        read_rope(tmp_path)
    assert all(word in str(error.value) for word in words), str(error.value)[:500]


def test_a_key_that_stands_twice_with_one_value_says_nothing_new(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama", "head_dim": 64, "head_dim": 64}')
    assert read_rope(path).rope.head_dim == 64


def test_a_file_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(FILE_BYTES + 1)
    with pytest.raises(ValueError, match="which no configuration has"):
        read_rope(tmp_path)


def test_places_without_a_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    for place in (tmp_path, tmp_path / "config.json", tmp_path / "nowhere"):
        with pytest.raises(OSError, match="config"):
            read_rope(place)
    with pytest.raises(ValueError, match="the path is empty"):
        read_rope("")


class Odd:
    """An object whose ``to_dict`` gives no dictionary."""

    def to_dict(self) -> Any:
        return [1]


def test_objects_that_hold_no_configuration() -> None:
    with pytest.raises(ValueError, match=r"to_dict\(\) must give a mapping, got list"):
        read_rope(Odd())
    with pytest.raises(ValueError, match="got type"):
        read_rope(Odd)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="keys must be strings, found 1"):
        read_rope({1: 2})  # type: ignore[dict-item]
    own: dict[str, Any] = {}
    own["own"] = own
    with pytest.raises(ValueError, match=f"own.own.own is nested deeper than {DEPTH}"):
        read_rope(own)
