"""Weight files that are damaged, half there, or no weights: told by name, and nothing of them is believed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("safetensors")

import posenc_cli
from posenc.hf.doctor import examine
from posenc.hf.sources.tensor_files import shards_of, tensors_in

A = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
B = {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]}
CONFIG = {"model_type": "llama", "head_dim": 64, "max_position_embeddings": 8192, "rope_theta": 5e5}
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4" * 64 + b"\nsize 4976698672\n"


def encoded(header: Any, data: bytes = bytes(32), *, size: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if size is None else size).to_bytes(8, "little") + text + data


DAMAGED = {
    "no bytes": b"",
    "three bytes": b"abc",
    "zeros": bytes(4096),
    "pointer": POINTER,
    "web page": b"<!DOCTYPE html><html>404</html>" * 10,
    "no json": encoded(b"{" * 40),
    "a list": encoded([A, B]),
    "null": encoded(b"null"),
    "no tensor": encoded({}),
    "an entry of null": encoded({"a": None}),
    "an entry of text": encoded({"a": "x" * 10_000}),
    "brackets": encoded(b'{"a": ' + b"[" * 40_000 + b"]" * 40_000 + b"}"),
    "endless header": encoded({"a": A, "b": B}, size=2**60),
    "header past the end": encoded({"a": A, "b": B}, size=2000),
    "header with no end": encoded({"a": A, "b": B}, size=2**64 - 1),
    "truncated": encoded({"a": A, "b": B}, bytes(31)),
    "too long": encoded({"a": A, "b": B}, bytes(33)),
    "gap": encoded({"a": A, "b": {**B, "data_offsets": [26, 34]}}, bytes(34)),
    "overlap": encoded({"a": A, "b": {**B, "data_offsets": [20, 28]}}, bytes(28)),
    "backwards": encoded({"a": {**A, "data_offsets": [24, 0]}, "b": B}),
    "wrong shape": encoded({"a": {**A, "shape": [2, 4]}, "b": B}),
    "endless shape": encoded({"a": {**A, "shape": [2**62, 2**62]}, "b": B}),
    "not utf-8": encoded(b'{"\xff": 1}'),
}


def folder_with(tmp_path: Path, **files: bytes) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    for name, content in files.items():
        (tmp_path / name.replace("_dot_", ".")).write_bytes(content)
    return tmp_path


@pytest.mark.parametrize("content", DAMAGED.values(), ids=list(DAMAGED))
def test_a_damaged_file_is_refused_by_its_name_and_at_once(tmp_path: Path, content: bytes) -> None:
    path = folder_with(tmp_path, model_dot_safetensors=content) / "model.safetensors"
    begun = time.monotonic()
    with pytest.raises(ValueError) as error:
        tensors_in(path)
    assert time.monotonic() - begun < 2
    text = str(error.value)
    assert text.startswith(str(path))
    assert len(text.splitlines()) == 1
    assert len(text) < 400 + len(str(path))
    result = {(item.name, item.level, item.key) for item in examine(tmp_path).findings}
    assert ("weights-unreadable", "fault", "model.safetensors") in result


@pytest.mark.parametrize(
    "make",
    [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to(path)],
    ids=["pipe", "folder", "zero", "circle"],
)
def test_what_is_no_regular_file_is_not_opened(
    tmp_path: Path, make: Callable[[Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    folder_with(tmp_path)
    make(tmp_path / "model-00001-of-00002.safetensors")
    assert posenc_cli.run(["doctor", str(tmp_path), "--json"]) == 1
    result = json.loads(capsys.readouterr().out)["findings"]
    assert [item["key"] for item in result if item["level"] == "fault"] == ["model-00001-of-00002.safetensors"]


def index(**shards: Any) -> bytes:
    return json.dumps({"metadata": {}, "weight_map": shards}).encode()


SOUND = encoded({"a": A, "b": B})


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (index(a="s1.safetensors", b="s2.safetensors"), ["s2.safetensors"]),
        (index(a="s1.safetensors", c="s1.safetensors"), ["c", "s1.safetensors"]),
        (index(a="s1.safetensors", b="../../etc/passwd"), ["passwd"]),
        (index(a="s1.safetensors", b=None), ["weight_map"]),
        (index(a="s1.safetensors", b=""), []),
        (b"{}", ["weight_map"]),
        (b"[]", ["weight_map"]),
        (b"", []),
        (POINTER, ["git lfs pull"]),
    ],
    ids=["missing", "lost", "elsewhere", "null", "empty", "object", "list", "no bytes", "pointer"],
)
def test_an_index_is_compared_with_its_shards(tmp_path: Path, content: bytes, names: list[str]) -> None:
    folder_with(tmp_path, s1_dot_safetensors=SOUND)
    (tmp_path / "model.safetensors.index.json").write_bytes(content)
    result = [item for item in examine(tmp_path).findings if item.name == "weights-unreadable"]
    assert [(item.level, item.key) for item in result] == [("fault", "model.safetensors.index.json")]
    assert all(name in result[0].text for name in names)
    assert str(tmp_path) not in result[0].text


def test_a_folder_without_any_of_its_shards_is_no_damage(tmp_path: Path) -> None:
    folder_with(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_bytes(index(a="s1.safetensors", b="s2.safetensors"))
    assert examine(tmp_path).healthy
    assert shards_of(tmp_path / "model.safetensors.index.json") == {"a": "s1.safetensors", "b": "s2.safetensors"}


@pytest.mark.parametrize(("content", "bad"), [(POINTER, True), (b"", True), (b"PK\x03\x04" + bytes(99), False)])
def test_pickled_weights_are_not_opened_but_looked_at(tmp_path: Path, content: bytes, bad: bool) -> None:
    folder_with(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(content)
    assert [item.key for item in examine(tmp_path).findings if item.alarms] == ["pytorch_model.bin"] * bad
