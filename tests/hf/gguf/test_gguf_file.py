"""A GGUF file, as the package gguf writes it, and what is said without that package."""

from __future__ import annotations

import importlib
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from posenc.hf import read_rope
from tests.hf.gguf.files import Raw, RawTensor, gguf_bytes, text
from tests.hf.gguf.test_gguf_write import write_file

gguf = pytest.importorskip("gguf")
np = pytest.importorskip("numpy")


def test_a_file_with_factors_and_one_that_lost_them(tmp_path: Path) -> None:
    factors = [1.0] * 20 + [8.0] * 44
    read = read_rope(write_file(tmp_path / "whole.gguf", tensors={"rope_freqs.weight": factors}))
    assert (read.rope.head_dim, read.rope.base, read.rope.layout) == (128, 500000.0, "interleaved")
    assert list(read.rope.scaling.short) == factors
    assert [finding.name for finding in read.findings] == ["gguf-scaling-dropped"]
    result = importlib.import_module("posenc.hf.sources.gguf_file").metadata_of(tmp_path / "whole.gguf")
    assert result["llama.vocab_size"] == 3, "where it is not stated, tokens are counted"
    lost = read_rope(write_file(tmp_path / "lost.gguf", context_length=131072, vocab_size=128256))
    assert lost.rope.scaling is None
    assert [(finding.name, finding.level) for finding in lost.findings] == [("gguf-scaling-lost", "fault")]


KEYS: list[tuple[bytes, Any]] = [
    (b"general.architecture", "llama"), (b"llama.context_length", 131072), (b"llama.embedding_length", 4096),
    (b"llama.block_count", 32), (b"llama.attention.head_count", 32), (b"llama.rope.dimension_count", 128),
    (b"llama.rope.freq_base", 500000.0), (b"llama.vocab_size", 4), (b"tokenizer.ggml.tokens", ["a", "b", "c", "d"]),
]  # fmt: skip
FREQS = RawTensor(b"rope_freqs.weight", [64], 0, 0)
WEIGHT = RawTensor(b"output.weight", [64, 2], 8, 256)  # q8_0
DATA = struct.pack("<64f", *[2.0] * 64) + bytes(2 * 2 * 34 + 24)


def sound(*more: tuple[bytes, Any], tensors: Sequence[RawTensor] = (FREQS, WEIGHT), data: bytes = DATA) -> bytes:
    return gguf_bytes([*KEYS, *more], tensors, data)


def array(kind: int, count: int, content: bytes = b"") -> Raw:
    return Raw(9, struct.pack("<IQ", kind, count) + content)


DAMAGED = {
    "no bytes": b"",
    "magic alone": b"GGUF",
    "something else": b"no such thing" * 100,
    "zeros": bytes(4096),
    "pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n",
    "version 1": gguf_bytes(KEYS, version=1),
    "version 99": gguf_bytes(KEYS, version=99),
    "lists of lists": sound((b"a", array(9, 2**33, b"".join(struct.pack("<IQ", 9, 2**33) for _ in range(40))))),
    "a list without end": sound((b"a", array(4, 2**62))),
    "texts without end": sound((b"a", array(8, 2**33, text(b"x") * 9))),
    "tokens without end": sound((b"tokenizer.ggml.merges", array(8, 2**20, text(b"x") * 9))),
    "a long text": sound((b"a", Raw(8, text(b"x", 2**63)))),
    "a token past the end": sound((b"tokenizer.ggml.merges", array(8, 2, text(b"x", 2**40)))),
    "a type that is none": sound((b"a", Raw(77, b"1234"))),
    "a list of a type that is none": sound((b"a", array(77, 1, b"1234"))),
    "keys without end": gguf_bytes(KEYS, counts=(0, 2**60)),
    "more keys than there are": gguf_bytes(KEYS, counts=(0, 3000)),
    "tensors without end": gguf_bytes(KEYS, counts=(2**60, len(KEYS))),
    "a key that is no text": sound((b"\xff\xfe", 1)),
    "a tensor past the end": sound(tensors=(FREQS, WEIGHT._replace(shape=[64, 2**50]))),
    "a tensor that begins past the end": sound(tensors=(FREQS, WEIGHT._replace(offset=2**60))),
    "truncated weights": sound(data=DATA[:-30]),
    "factors in blocks": sound(tensors=(FREQS._replace(kind=8), WEIGHT)),
    "a million factors": sound(tensors=(FREQS._replace(shape=[2**20]),), data=bytes(2**22)),
    "an alignment of 0": sound((b"general.alignment", 0)),
    "an alignment in letters": sound((b"general.alignment", "32")),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=list(DAMAGED))
def test_a_damaged_file_is_refused_by_its_name_and_at_once(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    begun = time.monotonic()
    with pytest.raises(ValueError) as error:
        read_rope(path)
    assert time.monotonic() - begun < 2
    assert str(path) in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    with pytest.raises(ValueError, match=r"x\.gguf"):
        importlib.import_module("posenc.hf.sources.gguf_file").reader_of(path)


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path, full = tmp_path / "x.gguf", sound()
    path.write_bytes(full)
    assert read_rope(path).rope.base == 500000.0
    for size in range(0, len(full) - 24, 7):
        path.write_bytes(full[:size])
        with pytest.raises(ValueError, match=r"x\.gguf"):
            read_rope(path)


def by_the_package(reader: gguf.GGUFReader) -> dict[str, Any]:
    """What the package gguf reads, as `metadata_of` has it."""
    fields = {
        name: field.contents() for name, field in reader.fields.items() if not name.startswith(("tokenizer.", "GGUF."))
    }
    if "tokenizer.ggml.tokens" in reader.fields:
        fields["llama.vocab_size"] = len(reader.fields["tokenizer.ggml.tokens"].data)
    factors = {t.name: [float(x) for x in t.data.reshape(-1)] for t in reader.tensors if t.name.startswith("rope_")}
    return {**fields, **(factors or {"tensors.without_factors": True})}


def test_the_scan_reads_what_the_package_reads(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    more = [
        (b"general.name", "schön"), (b"general.tags", ["a", "b"]), (b"llama.flag", True), (b"llama.list", [1, 2, 3]),
        (b"llama.none", []), (b"llama.floats", [0.5, 1.5]), (b"llama.wide", Raw(10, struct.pack("<Q", 2**40))),
        (b"llama.double", Raw(12, struct.pack("<d", 0.1))), (b"llama.small", Raw(1, struct.pack("<b", -3))),
    ]  # fmt: skip
    path.write_bytes(sound(*more))
    gguf_file = importlib.import_module("posenc.hf.sources.gguf_file")
    metadata, by_package = gguf_file.metadata_of(path), by_the_package(gguf.GGUFReader(path))
    assert metadata == by_package
    assert [type(item) for item in metadata.values()] == [type(item) for item in by_package.values()]
    assert gguf_file.has_tokenizer(path)


def test_a_factor_without_axes_is_one_number(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(sound(tensors=(FREQS._replace(shape=[]), WEIGHT)))
    gguf_file = importlib.import_module("posenc.hf.sources.gguf_file")
    by_package = by_the_package(gguf_file.reader_of(path))
    assert gguf_file.metadata_of(path)["rope_freqs.weight"] == by_package["rope_freqs.weight"] == [2.0]


def test_signs_that_are_no_text_are_passed_over_where_nothing_hangs_on_them(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(sound((b"general.name", b"\xff\xfe"), (b"tokenizer.chat_template", b"\xff")))
    assert read_rope(path).rope.base == 500000.0


def test_a_quarter_of_a_million_tokens_take_no_time(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    tokens = array(8, 2**18, text(b"token") * 2**18)
    path.write_bytes(
        sound((b"tokenizer.ggml.merges", tokens), (b"tokenizer.ggml.scores", array(6, 2**18, bytes(2**20))))
    )
    begun = time.monotonic()
    assert read_rope(path).rope.base == 500000.0
    assert time.monotonic() - begun < 2


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.delitem(sys.modules, "posenc.hf.sources.gguf_file", raising=False)
    with pytest.raises(ValueError, match=r"posenc\[gguf\]"):
        read_rope(tmp_path / "x.gguf")
