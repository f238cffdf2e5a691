"""Reads a GGUF file: its metadata, and the frequency factors that it stores as tensors.

The package gguf believes what a file says of its own sizes: a list of 2**33 lists in a file of 704 bytes keeps it busy
for hours. `scanned` therefore reads the metadata first, within bounds, and checks that every tensor lies in the file;
the package opens only what has passed. The scan also passes over the tokens in a fraction of a second, for each of
which the package makes several arrays.

    magic "GGUF", version, number of tensors, number of keys
    keys      name, type, value; a list has a type and a length; lists of lists are refused, as llama.cpp refuses them
    tensors   name, axes, type, offset; then, aligned, their bytes

Source: ggml/docs/gguf.md; llama.cpp, ggml/src/gguf.cpp.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from pathlib import Path
from typing import Any, NamedTuple

import gguf

from posenc.hf.limits import CHANNELS, is_count
from posenc.hf.sources.gguf_metadata import FACTORS, NO_FACTORS
from posenc.hf.sources.translated import Config
from posenc.input_files import UnreadableFileError, is_lfs_pointer, lfs_text, open_regular, path_text, printable

_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_FLOATS = {0: "f", 1: "e", 28: "d"}  # types of tensors that `struct` reads
_KEYS, _TENSORS = 2**16, 2**18  # of one file
_ELEMENTS = 2**21  # of all lists together: 262,144 tokens with types, scores and merges are 1.3 million
_MOST_READ = 2**16  # bytes of a text, and elements of a list, that a configuration may need
_NAME = 2**16 - 1  # bytes of a key, by the format
_AXES = 4
_TOKENS = "tokenizer.ggml.tokens"


class _Tensor(NamedTuple):
    """A tensor: its type, its axes and where its bytes lie in the file."""

    kind: int
    shape: tuple[int, ...]
    begin: int


class Scanned(NamedTuple):
    """What a GGUF file says.

    Attributes:
        fields: its keys but the tokenizer's, with lists and texts of up to 65,536 elements.
        tokens: how many the tokenizer has; None where the file has none.
        factors: of frequencies, by the names of their tensors.
    """

    fields: Config
    tokens: int | None
    factors: dict[str, list[float]]


def metadata_of(path: Path) -> Config:
    """What a file says but of its tokens, with the factors under the names of their tensors.

    Raises:
        UnreadableFileError: for a file that is no GGUF, is damaged or truncated; it names the path.
        OSError: where it cannot be read.
    """
    fields, tokens, factors = scanned(path)
    if tokens is not None:
        fields.setdefault(f"{fields.get('general.architecture')}.vocab_size", tokens)
    return {**fields, **(factors or {NO_FACTORS: True})}


def has_tokenizer(path: Path) -> bool:
    """Whether a file has the tokens of its model; errors as `metadata_of`."""
    return scanned(path).tokens is not None


def scanned(path: Path) -> Scanned:
    """The metadata and the factors of a file, read within bounds; errors as `metadata_of`."""
    with open_regular(path) as file:
        start = file.read(64)
        if is_lfs_pointer(start):
            raise UnreadableFileError(lfs_text(path))
        if len(start) < 24 or start[:4] != b"GGUF":
            raise UnreadableFileError(
                f"config: {path_text(path)} is no GGUF file: it does not begin with GGUF and its version"
            )
        length = os.fstat(file.fileno()).st_size
        with mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ) as data:
            try:
                return _Scan(data, length).run()
            except _DamagedError as error:
                raise UnreadableFileError(
                    f"config: {path_text(path)} is no GGUF file, or a damaged one: {error}"
                ) from None


class _DamagedError(ValueError):
    """What is wrong with a file, without its name."""


class _Scan:
    """One pass over the bytes of a file."""

    def __init__(self, data: mmap.mmap, length: int) -> None:
        self.data, self.length, self.at, self.elements = data, length, 4, 0
        version = struct.unpack_from("<I", data, 4)[0]
        self.order = "<" if version & 0xFFFF else ">"  # a version of 3 whose bytes are the other way round
        self.u32, self.u64 = struct.Struct(f"{self.order}I"), struct.Struct(f"{self.order}Q")

    def run(self) -> Scanned:
        version, tensors, keys = self._number(self.u32), self._number(self.u64), self._number(self.u64)
        if version not in _VERSIONS:
            raise _DamagedError(f"version {version} is none of {', '.join(map(str, _VERSIONS))}")
        for what, count, most in (("keys", keys, _KEYS), ("tensors", tensors, _TENSORS)):
            if count > most:
                raise _DamagedError(f"it says that it has {count:,} {what}, more than the limit of {most:,}")
        fields: Config = {}
        seen, tokens = set[str](), None
        for _ in range(keys):
            name = self._name("a key")
            if name in seen:  # which of its values counts is the reader's choice: llama.cpp does not load the file
                raise _DamagedError(f"the key {_brief(name)} stands twice")
            seen.add(name)
            count, value = self._value(name, self._number(self.u32))
            tokens = count if name == _TOKENS else tokens
            if value is not None and not name.startswith("tokenizer."):
                fields[name] = value
        entries = self._tensors(tensors, fields.get("general.alignment", 32))
        return Scanned(fields, tokens, self._factors(entries))

    def _take(self, size: int) -> int:
        """Where the next ``size`` bytes begin."""
        at = self.at
        if size > self.length - at:
            raise _DamagedError(f"at byte {at:,} it needs {size:,} more, and has {self.length - at:,}: it is truncated")
        self.at = at + size
        return at

    def _number(self, of: struct.Struct) -> Any:
        return of.unpack_from(self.data, self._take(of.size))[0]

    def _name(self, what: str) -> str:
        size = self._number(self.u64)
        if size > _NAME:
            raise _DamagedError(f"the name of {what} at byte {self.at:,} has {size:,} bytes")
        at = self._take(size)
        try:
            return self.data[at : at + size].decode()
        except UnicodeDecodeError:
            raise _DamagedError(f"the name of {what} at byte {at:,} is not utf-8") from None

    def _value(self, name: str, kind: int) -> tuple[int, Any]:
        """How many elements a value has, and the value; None for a value too long to matter."""
        if kind in _FORMATS:
            return 1, self._number(struct.Struct(f"{self.order}{_FORMATS[kind]}"))
        if kind == _STRING:
            return 1, self._text()
        if kind != _ARRAY:
            raise _DamagedError(f"the key {_brief(name)} has the type {kind}, which there is not")
        inner, count = self._number(self.u32), self._number(self.u64)
        if inner not in _FORMATS and inner != _STRING:
            raise _DamagedError(f"the key {_brief(name)} is a list of the type {inner}, which no list can have")
        self.elements += count
        if self.elements > _ELEMENTS:
            raise _DamagedError(f"its lists have more than {_ELEMENTS:,} elements, at {_brief(name)}")
        is_read = count <= _MOST_READ and not name.startswith("tokenizer.")
        if inner == _STRING:
            return count, self._texts(count, is_read)
        numbers = struct.Struct(f"{self.order}{count}{_FORMATS[inner]}")
        at = self._take(numbers.size)
        return count, list(numbers.unpack_from(self.data, at)) if is_read else None

    def _text(self) -> str | None:
        size = self._number(self.u64)
        at = self._take(size)
        return self.data[at : at + size].decode(errors="replace") if size <= _MOST_READ else None

    def _texts(self, count: int, is_read: bool) -> list[str | None] | None:
        if is_read:
            return [self._text() for _ in range(count)]
        at, last, size_at = self.at, self.length - 8, self.u64.unpack_from  # a loop over each token of a model
        for _ in range(count):
            if at > last:
                break
            at += 8 + size_at(self.data, at)[0]
        else:
            self._take(at - self.at)
            return None
        self.at = min(at, self.length)
        self._take(8)
        return None

    def _tensors(self, count: int, alignment: Any) -> dict[str, _Tensor]:
        """The tensors, each of which lies in the file: transformers reads one that was downloaded in part."""
        if not is_count(alignment):
            raise _DamagedError(f"general.alignment must be a number of bytes, found {_brief(str(alignment))}")
        tensors: dict[str, _Tensor] = {}
        for _ in range(count):
            name, axes = self._name("a tensor"), self._number(self.u32)
            if axes > _AXES:
                raise _DamagedError(f"the tensor {_brief(name)} has {axes:,} axes")
            shape = tuple(self._number(self.u64) for _ in range(axes))
            tensors[name] = _Tensor(self._number(self.u32), shape, self._number(self.u64))
        base = -(-self.at // alignment) * alignment
        for name, tensor in tensors.items():
            end = base + tensor.begin + _bytes_of(tensor)
            if end > self.length:
                text = f"the tensor {_brief(name)} ends at byte {end:,}, and the file has {self.length:,}"
                raise _DamagedError(f"{text}: it is truncated")
        return {name: tensor._replace(begin=base + tensor.begin) for name, tensor in tensors.items()}

    def _factors(self, tensors: dict[str, _Tensor]) -> dict[str, list[float]]:
        factors = {}
        for name in FACTORS:
            if name not in tensors:
                continue
            tensor = tensors[name]
            count = math.prod(tensor.shape)
            if tensor.kind not in _FLOATS or not 0 < count <= CHANNELS:
                text = f"has {count:,} numbers of type {tensor.kind}; at most {CHANNELS:,} of float32 are supported"
                raise _DamagedError(f"the tensor {name} {text}")
            factors[name] = list(
                struct.unpack_from(f"{self.order}{count}{_FLOATS[tensor.kind]}", self.data, tensor.begin)
            )
        return factors


def _bytes_of(tensor: _Tensor) -> int:
    """How long a tensor is; 0 for a type that is newer than the package."""
    sizes: dict[int, tuple[int, int]] = {int(kind): size for kind, size in gguf.GGML_QUANT_SIZES.items()}
    block, size = sizes.get(tensor.kind, (1, 0))
    return math.prod(tensor.shape) // block * size


def _brief(name: str) -> str:
    return printable(name[:100])


def reader_of(path: Path) -> gguf.GGUFReader:
    """The file, opened by the package gguf once `scanned` has passed it; a real model's takes seconds."""
    scanned(path)
    try:
        return gguf.GGUFReader(path)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
        raise UnreadableFileError(
            f"config: {path_text(path)} is no GGUF that the package gguf reads: {error}"
        ) from error
