"""A corpus: two streams of tokens, the windows that models are judged on, and the facts that a report must state.

The split goes by SHA-256 of a document's name, so that adding a document moves no other one across it. At most two
windows come from a document, and none that is found elsewhere: documents are what a result is sampled over.

Duplicates are found by hashing: every run of 64 bytes has a hash, and runs whose hash falls into one eighth of the
range are kept. Whether a run is kept depends on its own bytes alone, so that equal text leaves equal traces wherever it
stands, and a share of traces estimates a share of text: about 120 are compared for a window of 1,000 bytes.

Tokens are bytes, or byte pairs of a tokenizer that is trained on the training stream (`posenc.lab.data.tokens`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import TypedDict

from posenc.lab.data.batching import share_of
from posenc.lab.data.documents import Document, Source, is_utf8
from posenc.lab.data.tokens import (
    BYTES,
    EXPECTED_BYTES,
    Encoded,
    encode_stream,
    token_bytes,
    train_tokenizer,
    vocabulary_of,
)
from posenc.lab.files import Count, Facts, read_bytes, read_record, write_atomically

HELD_OUT = 0.35  # of the documents that are long enough for a window; more where that gives too few windows
SPARE = 1.25  # windows sought for one needed, since some are found elsewhere
SEPARATOR = b"\0"
STREAMS, FILE, TOKENIZER = ("train", "validation"), "corpus.json", "tokenizer.json"


@dataclass(frozen=True)
class Corpus:
    """Tokens of documents separated by token 0, which is byte 0, in the order of the hashes of their names."""

    train: Tensor  # (train_tokens,) uint8 of bytes, int32 of byte pairs
    validation: Tensor  # (validation_tokens,)
    windows: Windows  # of the evaluation, in the validation stream
    details: dict[str, str]  # facts in words
    tokenizer: bytes = b""  # content of tokenizer.json; empty where tokens are bytes

    @cached_property
    def _hashes(self) -> dict[str, str]:
        parts = [self.train.numpy().tobytes(), self.validation.numpy().tobytes(), json.dumps(self.windows).encode()]
        names = [*STREAMS, "windows"]
        if self.tokenizer:
            parts, names = [*parts, self.tokenizer], [*names, "tokenizer"]
        return {f"{name}_sha256": hashlib.sha256(part).hexdigest() for name, part in zip(names, parts, strict=True)}

    @property
    def vocabulary(self) -> int:
        """How many different tokens there are."""
        return len(self.token_bytes)

    @cached_property
    def token_bytes(self) -> Tensor:
        """How many bytes each token has, ``(vocabulary,)`` int64."""
        return torch.from_numpy(token_bytes(self.tokenizer))

    def tokens_per_byte(self, scored: int) -> float:
        """The last ``scored`` tokens of all windows, over their bytes: bits per token times this are bits per byte.

        One number for all windows, so that the mean over windows is all bits over all bytes.
        """
        if not self.tokenizer:
            return 1.0
        targets = self.validation[torch.tensor(self.windows.ends)[:, None] + torch.arange(-scored, 0)]
        return targets.numel() / int(self.token_bytes[targets.long()].sum())

    @cached_property
    def training_bytes_per_token(self) -> float:
        """The bytes of the training stream, over its tokens."""
        counts = torch.bincount(self.train, minlength=self.vocabulary) if self.tokenizer else torch.ones(256)
        return float((counts * self.token_bytes).sum() / counts.sum())

    def identity(self) -> dict[str, str]:
        """SHA-256 of both streams, and of where the windows lie."""
        return dict(self._hashes)

    def facts(self) -> dict[str, str]:
        """Name, sizes, what was left out, what compressors need."""
        return dict(self.details)

    def save(self, folder: Path) -> None:
        """Write the streams and what belongs to them."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in STREAMS:
            write_atomically(folder / f"{name}.bin", getattr(self, name).numpy().tobytes())
        if self.tokenizer:
            write_atomically(folder / TOKENIZER, self.tokenizer)
        record = {"windows": self.windows, "facts": self.details, "hashes": self._hashes}
        write_atomically(folder / FILE, json.dumps(record).encode())


class CorpusRecord(TypedDict):
    """What corpus.json holds."""

    windows: tuple[tuple[Count, ...], tuple[Count, ...]]
    facts: Facts
    hashes: Facts


def load_corpus(folder: Path) -> Corpus:
    """Read what `Corpus.save` wrote, and check it against its hashes."""
    path = folder / FILE
    record = read_record(path, CorpusRecord)
    stored = folder / TOKENIZER
    tokenizer = read_bytes(stored) if "tokenizer_sha256" in record["hashes"] and stored.is_file() else b""
    kind = np.int32 if "tokenizer_sha256" in record["hashes"] else np.uint8
    train, validation = (torch.from_numpy(np.fromfile(folder / f"{name}.bin", kind)) for name in STREAMS)
    corpus = Corpus(train, validation, Windows(*record["windows"]), record["facts"], tokenizer)
    for part in {**corpus._hashes, **record["hashes"]}:
        if corpus._hashes.get(part) != record["hashes"].get(part):
            name = part.removesuffix("_sha256")
            raise ValueError(f"{folder}: {name} is truncated or not of this run: remove the folder and start again")
    return corpus


def make_corpus(source: Source, *, window: int, windows: int, scored: int, tokens: str = BYTES) -> Corpus:
    """Split documents into training and validation, and choose the windows.

    Args:
        source: the documents and their name.
        window: tokens of an evaluation window, with the one before its first.
        windows: how many of them there must be.
        scored: tokens at the end of each that are scored; no token is scored twice.
        tokens: ``bytes``, or ``bpe:N`` for byte pairs trained on the training documents.
    """
    if not any(document.text for document in source.documents):
        raise ValueError(f"data: {source.title} is empty")
    vocabulary = vocabulary_of(tokens)
    documents, unreadable = source.documents, 0
    if tokens != BYTES:  # whose tokenizer reads characters
        documents = [document for document in source.documents if is_utf8(document.text)]
        unreadable = len(source.documents) - len(documents)
    room = WindowLayout(window, scored, piece=None if source.independent else 2 * window)
    train, held_out = split(documents, room if tokens == BYTES else _in_bytes(room), windows)
    train_texts, held_out_texts = ([document.text for document in side] for side in (train, held_out))
    train_text, held_out_text = SEPARATOR.join(train_texts), SEPARATOR.join(held_out_texts)
    tokenizer, encoded, train_stream = b"", None, _tensor(train_text)
    if tokens != BYTES:
        tokenizer = train_tokenizer(vocabulary, train_texts)
        train_stream = torch.from_numpy(encode_stream(tokenizer, train_texts).tokens)
        encoded = encode_stream(tokenizer, held_out_texts)
    unit = "bytes" if encoded is None else "tokens"
    if len(train_stream) < 2 * window:
        raise ValueError(
            f"data: {source.title} leaves {len(train_stream)} {unit} for training, too short for windows of {window} "
            f"{unit}: at least {2 * window} are needed"
        )
    names = [document.name for document in held_out]
    chosen, left_out = choose_windows(train_text, held_out_text, names, room, windows, encoded)
    stream = _tensor(held_out_text) if encoded is None else torch.from_numpy(encoded.tokens)
    places = np.array(chosen.ends)[:, None] - np.array([scored, 0])
    places = places if encoded is None else encoded.offsets[places]
    scored_bytes = [int(stop - begin) for begin, stop in places]
    facts = {
        "text": source.title,
        "training": f"{len(train_text):,} bytes in {len(train):,} documents",
        "held out": f"{len(held_out_text):,} bytes in {len(held_out):,} documents",
        "windows": f"{windows:,} of {window:,} {unit} from {len(set(chosen.documents)):,} "
        f"{'documents' if source.independent else 'pieces of documents'}, at most two of each",
        "left out as found elsewhere": left_out,
    }
    if encoded is not None:
        facts["tokens"] = (
            f"byte pairs of a vocabulary of {vocabulary:,}, trained on the training text: {len(train_stream):,} tokens "
            f"of training; {sum(scored_bytes) / (scored * windows):.2f} bytes a token where models are judged, on the "
            f"same tokens, and so on the same bytes, at every length; {unreadable:,} documents not in UTF-8 left out"
        )
    return Corpus(train_stream, stream, chosen, facts, tokenizer)


def _in_bytes(room: WindowLayout) -> WindowLayout:
    """What fits into a document of bytes, about, where a layout is in tokens; the split must precede the tokenizer."""
    piece = None if room.piece is None else EXPECTED_BYTES * room.piece
    return WindowLayout(EXPECTED_BYTES * room.window, EXPECTED_BYTES * room.scored, piece)


def split(documents: Sequence[Document], room: WindowLayout, windows: int) -> tuple[list[Document], list[Document]]:
    """Training and validation documents, each in the order of the hashes of their names.

    A small folder may leave too little in validation: then further documents follow in that order.
    """
    ordered = sorted(documents, key=lambda document: share_of(document.name))
    fitting = [d for d in ordered if d.held_out is True or (d.held_out is None and room.of(len(d.text)))]
    held_out: set[Document] = set()
    fitting_windows = 0
    for document in fitting:
        in_validation = document.held_out or share_of(document.name) < HELD_OUT or fitting_windows < SPARE * windows
        if in_validation and len(held_out) + 1 < len(documents):
            held_out.add(document)
            fitting_windows += room.of(len(document.text))
    if fitting_windows < windows:
        longest = max(len(document.text) for document in documents)
        raise ValueError(
            f"data: too short: {fitting_windows} of {windows} evaluation windows of {room.window} bytes fit, at "
            f"most two into a document ({len(documents)} documents, the longest of {longest} bytes): give more text, "
            "or lower --windows, --lengths or --train-length"
        )
    return [d for d in ordered if d not in held_out], [d for d in ordered if d in held_out]


def _tensor(stream: bytes) -> Tensor:
    return torch.from_numpy(np.frombuffer(bytearray(stream), np.uint8))


WIDTH, EVERY = 64, 8  # bytes of a run, a power of 2; one of so many is kept
_BLOCK = 2**20
_BASE, _MIX = 0x9E3779B97F4A7C15, np.uint64(0xBF58476D1CE4E5B9)  # odd numbers without a pattern

Bytes = NDArray[np.uint8]


def traces(text: Bytes) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Where the kept runs of a text start, growing, and their hashes."""
    places, hashes = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
    for start in range(0, max(0, len(text) - WIDTH + 1), _BLOCK):
        h = text[start : start + _BLOCK + WIDTH - 1].astype(np.uint64) + np.uint64(1)
        width, power = 1, _BASE
        while width < WIDTH:  # of two neighbouring runs one of twice the width
            h = h[:-width] * np.uint64(power) + h[width:]
            width, power = 2 * width, power * power % 2**64
        h *= _MIX
        sampled = np.flatnonzero(h >> np.uint64(32) & np.uint64(EVERY - 1) == 0)
        places.append(sampled + start)
        hashes.append(h[sampled])
    return np.concatenate(places), np.concatenate(hashes)


class Overlap:
    """Which traces of held-out documents occur in the training text or in a held-out document before.

    Args:
        train: the training text.
        held_out: the held-out text.
        starts: where its documents begin, growing.
    """

    def __init__(self, train: Bytes, held_out: Bytes, starts: Sequence[int]) -> None:
        self._places, hashes = traces(held_out)
        owners = np.searchsorted(np.asarray(starts), self._places, side="right")
        _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
        in_training = np.append(np.sort(traces(train)[1]), np.uint64(0))  # never empty; the last one is never found
        in_train = in_training[np.searchsorted(in_training[:-1], hashes)] == hashes
        seen = in_train | (owners[first][inverse] < owners)
        self._seen = np.concatenate([[0], np.cumsum(seen)])

    def shares(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.float64]:
        """The share of traces that occur elsewhere, for each piece of held-out text from a start to a stop."""
        low = np.searchsorted(self._places, starts)
        high = np.maximum(low, np.searchsorted(self._places, stops - WIDTH, side="right"))
        elsewhere: NDArray[np.float64] = (self._seen[high] - self._seen[low]) / np.maximum(1, high - low)
        return elsewhere


OF_A_DOCUMENT = 2
FOUND_ELSEWHERE = 0.2  # share of a window from which on it is not judged on


class Windows(NamedTuple):
    """Where windows end in the validation stream, growing, and the number of the document that each is from."""

    ends: tuple[int, ...]
    documents: tuple[int, ...]


@dataclass(frozen=True)
class WindowLayout:
    """What fits into a document.

    Attributes:
        window: tokens of a window, with the one before its first.
        scored: tokens at its end that are scored.
        piece: of so many tokens are the parts of a long document that stand for documents; None for whole documents.
    """

    window: int
    scored: int
    piece: int | None = None

    def of(self, length: int) -> int:
        """How many windows a document of so many tokens gives."""
        return sum(min(OF_A_DOCUMENT, len(self.ends(start, stop))) for start, stop in self.parts(0, length))

    def parts(self, start: int, stop: int) -> list[tuple[int, int]]:
        """A document from ``start`` to ``stop``, or its pieces; the last one takes what is left."""
        count = max(1, (stop - start) // self.piece) if self.piece else 1
        cuts = [start + k * (self.piece or 0) for k in range(count)]
        return list(zip(cuts, [*cuts[1:], stop], strict=True))

    def ends(self, start: int, stop: int) -> range:
        """Where windows may end, so that no token is scored twice."""
        return range(start + self.window, stop + 1, self.scored)


def choose_windows(
    train: bytes,
    held_out: bytes,
    names: Sequence[str],
    room: WindowLayout,
    windows: int,
    encoded: Encoded | None = None,
) -> tuple[Windows, str]:
    """Windows at random, one of each document before a second of any; and what was left out, in words.

    Args:
        train: training text.
        held_out: documents, separated by byte 0.
        names: of the documents: what is chosen of one goes by the hash of its name.
        room: what fits into one.
        windows: how many are needed; a ValueError where there are fewer.
        encoded: the same documents as tokens, in which then all of ``room`` and of the windows counts; None for bytes.
    """
    stream = np.frombuffer(held_out, np.uint8) if encoded is None else encoded.tokens
    stops = [*np.flatnonzero(stream == 0).tolist(), len(stream)]
    parts, start = list[tuple[int, int, str]](), 0
    for name, stop in zip(names, stops, strict=True):
        parts += [(a, b, f"{name}#{a - start}") for a, b in room.parts(start, stop)]
        start = stop + 1

    def byte_of(places: NDArray[np.int64]) -> NDArray[np.int64]:
        return places if encoded is None else encoded.offsets[places]

    candidates = [np.arange(len(room.ends(a, b))) * room.scored + a + room.window for a, b, _ in parts]
    begins = byte_of(np.array([a for a, _, _ in parts])).tolist()
    overlap = Overlap(np.frombuffer(train, np.uint8), np.frombuffer(held_out, np.uint8), begins)
    shares = [overlap.shares(byte_of(ends - room.window), byte_of(ends)) for ends in candidates]
    remaining = [ends[share <= FOUND_ELSEWHERE] for ends, share in zip(candidates, shares, strict=True)]
    rounds = [_sampled_ends(ends, name) for ends, (_, _, name) in zip(remaining, parts, strict=True)]
    every = [(turn, number, ends[turn]) for number, ends in enumerate(rounds) for turn in range(len(ends))]
    before, gone = sum(map(len, candidates)), sum(map(len, candidates)) - sum(map(len, remaining))
    lost = sum(len(a) > 0 and len(b) == 0 for a, b in zip(candidates, remaining, strict=True))
    description = (
        f"{gone:,} of {before:,} possible windows, of which more than {FOUND_ELSEWHERE:.0%} also stands in the "
        f"training text or in another held-out document; {lost:,} of {len(parts):,} documents have no other"
    )
    if len(every) < windows:
        raise ValueError(f"data: {len(every)} of {windows} evaluation windows are left ({description}): give more text")
    chosen = sorted((int(end), number) for _, number, end in sorted(every)[:windows])
    return Windows(tuple(end for end, _ in chosen), tuple(number for _, number in chosen)), description


def _sampled_ends(ends: NDArray[np.int64], name: str) -> NDArray[np.int64]:
    """Two of the ends at random, or as many as there are."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return np.random.default_rng(seed).permutation(ends)[:OF_A_DOCUMENT]
