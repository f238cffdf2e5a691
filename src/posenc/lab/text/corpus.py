"""A corpus: two streams of bytes, where the validation documents lie, and the facts a report must state.

The split goes by SHA-256 of a document's name, so that adding a document moves no other one across it.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import math
import zlib
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from posenc.lab.files import read_bytes, read_json, write_atomically
from posenc.lab.foreign import dataclass_of, shown
from posenc.lab.text.documents import Document

HELD_OUT_SHARE = 0.1
SEPARATOR = b"\0"


@dataclass(frozen=True)
class Facts:
    """What a report states about its corpus; bits are bits per byte of the validation stream."""

    name: str
    train_bytes: int
    train_documents: int
    train_sha256: str
    validation_bytes: int
    validation_documents: int
    validation_sha256: str
    entropy_bits: float  # of single bytes
    zlib_bits: float  # zlib at level 9
    lzma_bits: float

    def identity(self) -> dict[str, str]:
        """What tells one corpus from another."""
        return {"train_sha256": self.train_sha256, "validation_sha256": self.validation_sha256}

    def shown(self) -> dict[str, str]:
        """Name, sizes, hashes, compressibility."""
        return {
            "text": self.name,
            "training": f"{self.train_bytes:,} bytes in {self.train_documents} documents",
            "training SHA-256": self.train_sha256,
            "validation": f"{self.validation_bytes:,} bytes in {self.validation_documents} documents",
            "validation SHA-256": self.validation_sha256,
            "entropy of single bytes": f"{self.entropy_bits:.3f} bits",
            "zlib -9": f"{self.zlib_bits:.3f} bits per byte",
            "lzma": f"{self.lzma_bits:.3f} bits per byte",
        }


@dataclass(frozen=True)
class Corpus:
    """Bytes as tokens. ``spans`` are the (start, stop) of the documents in the validation stream."""

    train: Tensor  # (train_bytes,) uint8, documents separated by byte 0
    validation: Tensor  # (validation_bytes,) uint8
    spans: tuple[tuple[int, int], ...]
    facts: Facts


def make_corpus(name: str, documents: list[Document], *, window: int, windows: int, stride: int) -> Corpus:
    """Split documents into training and validation.

    Args:
        name: how reports call the corpus.
        documents: the texts.
        window: bytes an evaluation window needs inside one document.
        windows: how many of them there must be.
        stride: bytes between the ends of two windows of one document.
    """
    if not any(document.text for document in documents):
        raise ValueError(f"data: {name} is empty")
    train, held_out = split(documents, window=window, windows=windows, stride=stride)
    train_stream = SEPARATOR.join(document.text for document in train)
    validation_stream = SEPARATOR.join(document.text for document in held_out)
    spans, start = [], 0
    for document in held_out:
        spans.append((start, start + len(document.text)))
        start += len(document.text) + len(SEPARATOR)
    if len(train_stream) < 2 * window:
        raise ValueError(
            f"data: {name} leaves {len(train_stream)} bytes for training, too short for windows of {window} bytes: "
            f"at least {2 * window} are needed"
        )
    facts = _facts(name, train_stream, len(train), validation_stream, len(held_out))
    return Corpus(_tensor(train_stream), _tensor(validation_stream), tuple(spans), facts)


def split(
    documents: list[Document], *, window: int, windows: int, stride: int
) -> tuple[list[Document], list[Document]]:
    """Training and validation documents, each in the order given."""
    share = {document: _share_of(document.name) for document in documents}
    held_out = {d for d in documents if d.held_out or (d.held_out is None and share[d] < HELD_OUT_SHARE)}
    found = sum(_room(document, window, stride) for document in held_out)
    # A small folder may leave too little in validation: then further documents follow in the order of their hashes.
    for document in sorted(documents, key=share.__getitem__):
        room = _room(document, window, stride)
        if found >= windows or document.held_out is not None:
            break
        if room and document not in held_out and len(held_out) + 1 < len(documents):
            held_out.add(document)
            found += room
    if found < windows:
        longest = max(len(document.text) for document in documents)
        wanted = "more text" if longest >= window else "longer documents (books, long source files)"
        total = sum(len(document.text) for document in documents)
        raise ValueError(
            f"data: too short: {found} of {windows} evaluation windows of {window} bytes, each inside one document, "
            f"fit ({total} bytes, longest document {longest}): give {wanted}, or lower --lengths, --train-length "
            "or --windows"
        )
    return [d for d in documents if d not in held_out], [d for d in documents if d in held_out]


def draw_batch(stream: Tensor, *, seed: int, step: int, batch_size: int, length: int) -> Tensor:
    """The training batch of a step, ``(batch_size, length + 1)`` int64: a pure function of its arguments."""
    generator = torch.Generator().manual_seed(counter_seed("batch", seed, step))
    starts = torch.randint(len(stream) - length, (batch_size, 1), generator=generator)
    return stream[starts + torch.arange(length + 1)].long()


def counter_seed(purpose: str, seed: int, step: int) -> int:
    """A 63-bit seed that depends on all three and that no neighbouring counter comes near."""
    digest = hashlib.sha256(f"{purpose}:{seed}:{step}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def store_corpus(corpus: Corpus, folder: Path) -> None:
    """Write the streams where workers and other machines of a shared file system read them."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "train.bin", corpus.train.numpy().tobytes())
    write_atomically(folder / "validation.bin", corpus.validation.numpy().tobytes())
    record = {"facts": asdict(corpus.facts), "spans": corpus.spans}
    write_atomically(folder / "corpus.json", json.dumps(record).encode())


def load_corpus(folder: Path) -> Corpus:
    """Read what `store_corpus` wrote, and check it against its hashes."""
    record = read_json(folder / "corpus.json", ("facts", "spans"))
    facts = dataclass_of(Facts, record["facts"], folder / "corpus.json")
    streams = []
    for part, size, expected in (
        ("train", facts.train_bytes, facts.train_sha256),
        ("validation", facts.validation_bytes, facts.validation_sha256),
    ):
        path = folder / f"{part}.bin"
        stream = read_bytes(path, size) if path.exists() else b""
        if hashlib.sha256(stream).hexdigest() != expected:
            raise ValueError(f"{path} is truncated or not the text of this run: remove {folder} and start again")
        streams.append(_tensor(stream))
    return Corpus(streams[0], streams[1], _spans(record["spans"], facts, folder / "corpus.json"), facts)


def _spans(found: object, facts: Facts, path: Path) -> tuple[tuple[int, int], ...]:
    """Where documents lie in the validation stream, from plain data."""
    spans = []
    for pair in found if isinstance(found, list) else [None]:
        fits = isinstance(pair, list) and len(pair) == 2 and all(type(place) is int for place in pair)
        if not isinstance(pair, list) or not fits or not 0 <= pair[0] <= pair[1] <= facts.validation_bytes:
            raise ValueError(f"{path}: spans must be places in {facts.validation_bytes} bytes, got {shown(pair)}")
        spans.append((pair[0], pair[1]))
    return tuple(spans)


def _share_of(name: str) -> float:
    """Where a name falls in [0, 1): the first eight bytes of its SHA-256, as a fraction."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64


def _room(document: Document, window: int, stride: int) -> int:
    return max(0, (len(document.text) - window) // stride + 1) if len(document.text) >= window else 0


def _tensor(stream: bytes) -> Tensor:
    return torch.frombuffer(bytearray(stream), dtype=torch.uint8)


def _facts(name: str, train: bytes, train_documents: int, validation: bytes, validation_documents: int) -> Facts:
    size = len(validation)
    return Facts(
        name=name,
        train_bytes=len(train),
        train_documents=train_documents,
        train_sha256=hashlib.sha256(train).hexdigest(),
        validation_bytes=size,
        validation_documents=validation_documents,
        validation_sha256=hashlib.sha256(validation).hexdigest(),
        entropy_bits=-sum(n / size * math.log2(n / size) for n in Counter(validation).values()),
        zlib_bits=8 * len(zlib.compress(validation, 9)) / size,
        lzma_bits=8 * len(lzma.compress(validation)) / size,
    )
