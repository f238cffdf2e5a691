"""Files that are no configuration, and objects that are none: refused in words; a byte order mark is passed over."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from posenc.hf import read_rope
from posenc.hf.limits import DEPTH, FILE_BYTES
from tests.hf.checkpoints import CHECKPOINTS

LLAMA, _ = CHECKPOINTS["llama-2-7b"]


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8-sig")
    assert read_rope(tmp_path).config == LLAMA


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (b"", []),
        (b"\0" * 300, []),
        (b"[]", []),
        (b"null", []),
        (b'"llama"', []),
        ('{"model_type": "schön"}'.encode("latin-1"), []),
        (json.dumps(LLAMA).encode("utf-16"), []),
        (json.dumps(LLAMA).encode("utf-32"), []),
        (json.dumps(LLAMA).encode()[:-9], []),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 609\n", ["git lfs pull"]),
        (b'{"rope_theta": 1e4, "rope_theta": 1e6}', ["rope_theta", "10000.0", "1000000.0"]),
        (b'{"rope_scaling": {"factor": 2, "factor": 4}}', ["factor"]),
        (b'{"rope_scaling": {"factor": 1, "factor": true}}', ["factor"]),
        (b'{"rope_theta": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", []),
        (b'{"a": {"b": ' + b"[" * 80 + b"]" * 80 + b"}}", ["64"]),
        (b'{"rope_theta": ' + b"9" * 5000 + b"}", []),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_no_configuration_is_refused_by_its_name(tmp_path: Path, content: bytes, names: list[str]) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ValueError) as error:
        read_rope(tmp_path)
    text = str(error.value)
    assert all(name in text for name in (str(path), *names)), text[:500]
    assert len(text.splitlines()) == 1
    assert len(text) < 400 + len(str(path))


def test_infinity_in_a_key_that_is_not_read_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "time_step_limit": [0.0, float("inf")]}))
    assert read_rope(tmp_path).rope.base == read_rope(LLAMA).rope.base


def pipe(path: Path) -> None:
    os.mkfifo(path)


def socket_file(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as item, contextlib.chdir(path.parent):  # a path of a socket is short
        item.bind(path.name)


@pytest.mark.skipif(os.name == "nt", reason="needs named pipes, devices and sockets")
@pytest.mark.parametrize(
    "make",
    [pipe, socket_file, Path.mkdir, *(lambda path, to=to: path.symlink_to(to) for to in ("/dev/zero", "/dev/tty"))],
    ids=["pipe", "socket", "folder", "zero", "terminal"],
)
@pytest.mark.parametrize("name", ["config.json", "params.json", "model.gguf"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, make: Callable[[Path], object], name: str) -> None:
    make(tmp_path / name)
    begun = time.monotonic()
    with pytest.raises((ValueError, OSError), match=name):
        read_rope(tmp_path / name if name.endswith("gguf") else tmp_path)
    assert time.monotonic() - begun < 2


def test_a_name_of_the_hub_is_told_from_a_lost_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for source, download in (("org/some-model.1", True), ("./some-model", False), ("/no/folder", False)):
        with pytest.raises((FileNotFoundError, ValueError)) as error:
            read_rope(source)
        assert ("hf download org/some-model.1" in str(error.value)) == download


def test_a_key_that_stands_twice_with_one_value_says_nothing_new(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama", "head_dim": 64, "head_dim": 64}')
    assert read_rope(path).rope.head_dim == 64


def test_a_file_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(FILE_BYTES + 1)
    with pytest.raises(ValueError, match=r"config\.json"):
        read_rope(tmp_path)


def test_places_without_a_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    for place in (tmp_path, tmp_path / "config.json", tmp_path / "nowhere"):
        with pytest.raises((OSError, ValueError), match=str(place)):
            read_rope(place)
    with pytest.raises(ValueError, match="path"):
        read_rope("")


class Odd:
    """An object whose ``to_dict`` gives no dictionary."""

    def to_dict(self) -> Any:
        return [1]


def test_objects_that_hold_no_configuration() -> None:
    with pytest.raises(ValueError, match=r"to_dict.*\blist\b"):
        read_rope(Odd())
    with pytest.raises(ValueError, match=r"\btype\b"):
        read_rope(Odd)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="keys"):
        read_rope({1: 2})  # type: ignore[dict-item]
    recursive: dict[str, Any] = {}
    recursive["own"] = recursive
    with pytest.raises(ValueError, match=str(DEPTH)):
        read_rope(recursive)
