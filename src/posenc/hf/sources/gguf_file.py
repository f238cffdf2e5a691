"""Reads a GGUF file: its metadata, and the frequency factors that it stores as tensors.

The package gguf makes several arrays for each token of a tokenizer, half a minute for a real model. `metadata_of` reads
only what a configuration needs and passes over the tokens, in a second, and never past the end of the file: a file that
was downloaded in part is refused, which the package reads.

    magic "GGUF", version, number of tensors, number of keys
    keys      name, type, value; a list has a type and a length; lists of lists are refused, as llama.cpp refuses them
    tensors   name, axes, type, offset; then, aligned, their bytes

Source: ggml/docs/gguf.md; llama.cpp, ggml/src/gguf.cpp.
"""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path
from typing import Any

import gguf

from posenc.hf.limits import CHANNELS, is_count
from posenc.hf.sources.gguf_metadata import FACTORS, NO_FACTORS
from posenc.hf.sources.translated import Config
from posenc.input_files import UnreadableFileError, is_lfs_pointer, lfs_text, open_regular, path_text, printable

_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_FLOATS = {0: "f", 1: "e", 28: "d"}  # types of tensors that `struct` reads
_SIZES: dict[int, tuple[int, int]] = {int(kind): size for kind, size in gguf.GGML_QUANT_SIZES.items()}
_MOST_READ = 2**16  # bytes of a text, and elements of a list, that a configuration may need
_TOKENS = "tokenizer.ggml.tokens"


def metadata_of(path: Path) -> Config:
    """What a file says but of its tokens, with the factors under the names of their tensors.

    Raises:
        UnreadableFileError: for a file that is no GGUF, is damaged or truncated; it names the path.
        OSError: where it cannot be read.
    """
    fields, tokens, factors = _scanned(path)
    if tokens is not None:
        fields.setdefault(f"{fields.get('general.architecture')}.vocab_size", tokens)
    return {**fields, **(factors or {NO_FACTORS: True})}


def has_tokenizer(path: Path) -> bool:
    """Whether a file has the tokens of its model; errors as `metadata_of`."""
    return _scanned(path)[1] is not None


def reader_of(path: Path) -> gguf.GGUFReader:
    """The file, opened by the package gguf once it was read here; a real model's takes seconds."""
    _scanned(path)
    try:
        return gguf.GGUFReader(path)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
        raise UnreadableFileError(
            f"config: {path_text(path)} is no GGUF that the package gguf reads: {error}"
        ) from error


def _scanned(path: Path) -> tuple[Config, int | None, dict[str, list[float]]]:
    """The keys but the tokenizer's, how many tokens it has (None: the file has none), and the factors by name."""
    with open_regular(path) as file:
        start = file.read(64)
        if is_lfs_pointer(start):
            raise UnreadableFileError(lfs_text(path))
        if len(start) < 24 or start[:4] != b"GGUF":
            raise UnreadableFileError(
                f"config: {path_text(path)} is no GGUF file: it does not begin with GGUF and its version"
            )
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                scan = _Scan(data)
                return (*scan.keys(), scan.factors())
            except (ValueError, struct.error) as error:
                raise UnreadableFileError(
                    f"config: {path_text(path)} is no GGUF file, or a damaged one: {printable(str(error)[:200])}"
                ) from None


class _Scan:
    """One pass over the bytes of a file: its `keys`, then the `factors` among its tensors."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at, self.alignment = data, 4, 32
        self.order = "<" if struct.unpack_from("<I", data, 4)[0] & 0xFFFF else ">"  # a version of small numbers
        version, self.tensors, self.count = self._number("I"), self._number("Q"), self._number("Q")
        if version not in _VERSIONS:
            raise ValueError(f"version {version} is none of {', '.join(map(str, _VERSIONS))}")

    def keys(self) -> tuple[Config, int | None]:
        """The keys but the tokenizer's, with lists and texts of up to `_MOST_READ`, and the number of tokens."""
        fields: Config = {}
        tokens = None
        for _ in range(self.count):
            name, kind = self._text().decode(), self._number("I")
            count, value = self._value(name, kind)
            tokens = count if name == _TOKENS else tokens
            if name in fields:  # which of its values counts is the reader's choice: llama.cpp does not load the file
                raise ValueError(f"the key {name} stands twice")
            if value is not None and not name.startswith("tokenizer."):
                fields[name] = value
        self.alignment = fields.get("general.alignment", 32)
        if not is_count(self.alignment):
            raise ValueError("general.alignment must be a number of bytes")
        return fields, tokens

    def factors(self) -> dict[str, list[float]]:
        """The numbers of the tensors that divide frequencies; each tensor lies in the file, as none of a part does."""
        entries = {}
        for _ in range(self.tensors):
            name = self._text().decode()
            shape = [self._number("Q") for _ in range(self._number("I"))]
            entries[name] = (math.prod(shape), self._number("I"), self._number("Q"))
        begin = -(-self.at // self.alignment) * self.alignment
        found = {}
        for name, (count, kind, offset) in entries.items():
            block, size = _SIZES.get(kind, (1, 0))  # none of a type that is newer than the package
            if begin + offset + count // block * size > len(self.data):
                raise ValueError(f"the tensor {name} ends behind the file: it is truncated")
            if name in FACTORS:
                if kind not in _FLOATS or not 0 < count <= CHANNELS:
                    text = f"has {count:,} numbers of type {kind}; at most {CHANNELS:,} of float32 are supported"
                    raise ValueError(f"the tensor {name} {text}")
                numbers = struct.unpack_from(f"{self.order}{count}{_FLOATS[kind]}", self.data, begin + offset)
                found[name] = list(numbers)
        return {name: found[name] for name in FACTORS if name in found}

    def _take(self, size: int) -> int:
        """Where the next ``size`` bytes begin."""
        at = self.at
        if size > len(self.data) - at:
            raise ValueError(f"at byte {at:,} it needs {size:,} more, and ends: it is truncated")
        self.at = at + size
        return at

    def _number(self, kind: str) -> Any:
        numbers = struct.Struct(self.order + kind)
        return numbers.unpack_from(self.data, self._take(numbers.size))[0]

    def _text(self) -> bytes:
        size = self._number("Q")
        at = self._take(size)
        return self.data[at : at + size]

    def _value(self, name: str, kind: int) -> tuple[int, Any]:
        """How many elements a value has, and the value; None for one that no configuration needs."""
        if kind in _FORMATS:
            return 1, self._number(_FORMATS[kind])
        if kind == _STRING:
            text = self._text()
            return 1, text.decode(errors="replace") if len(text) <= _MOST_READ else None
        inner, count = (self._number("I"), self._number("Q")) if kind == _ARRAY else (kind, 0)
        is_read = count <= _MOST_READ and not name.startswith("tokenizer.")
        if inner in _FORMATS:
            at = self._take(struct.calcsize(self.order + _FORMATS[inner]) * count)
            form = f"{self.order}{count}{_FORMATS[inner]}"
            return count, list(struct.unpack_from(form, self.data, at)) if is_read else None
        if inner != _STRING:
            raise ValueError(f"the key {name} has the type {inner}, which there is not, or no list can have")
        if is_read:
            return count, [self._text().decode(errors="replace") for _ in range(count)]
        at, last, size_at = self.at, len(self.data) - 8, struct.Struct(f"{self.order}Q").unpack_from
        for _ in range(count):  # each token of a model
            if at > last:
                raise ValueError(f"a text of {name} is truncated")
            at += 8 + size_at(self.data, at)[0]
        self._take(at - self.at)
        return count, None
