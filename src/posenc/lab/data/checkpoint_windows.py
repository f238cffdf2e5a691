"""Evaluation windows for a pretrained model, in its tokens, with passkeys hidden in the text.

    text … [The pass key of the red box is 48213. Remember it.] … text … scored … [The pass key of the red box is 48213]

Corpora alternate, and each window ends where a document ends, among the documents of at least about half the longest
window. Where the document is shorter, the documents before it in name order precede it; they lie in the same folder of
a package.

Each window hides one key per depth and asks for all of them after the scored tokens, so that one prefill measures loss
and retrieval. The order of the questions rotates from window to window, so that no depth is always asked last; earlier
questions stand there with their correct answers. After Mohtashami and Jaggi, Landmark Attention, arXiv 2305.16300,
section 4.2, with several keys, distinguished by a colour, in meaningful text.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from typing_extensions import TypedDict

from posenc.lab.data import read_source
from posenc.lab.data.batching import counter_seed
from posenc.lab.data.documents import Document
from posenc.lab.files import read_bytes, write_atomically
from posenc.lab.schema import Count, Facts, Line, read_record

COLOURS = ("red", "blue", "green", "black", "white", "brown", "grey", "pink", "orange", "purple")
DIGITS = 5
HIDDEN = "\n\nThe pass key of the {} box is {}. Remember it.\n\n"
QUESTION = "\n\nThe pass key of the {} box is "


class Passkey(NamedTuple):
    """One passkey, as tokens: the hidden sentence, the question, and the answer."""

    hidden: list[int]
    question: list[int]
    answer: list[int]


class PreparedWindow(NamedTuple):
    """One evaluation window with its passkeys, as the model reads it.

    Attributes:
        tokens: ``(length,)``.
        needed: how many of the last ones matter, one before the first that is scored included.
        scored: where the scored ones lie among the predicted ones, which are needed − 1.
        answers: likewise the answers, in the order of depth.
    """

    tokens: Tensor
    needed: int
    scored: slice
    answers: list[slice]


def passkeys(tokens_of: Callable[[str], list[int]], window: int, count: int) -> list[Passkey]:
    """The keys of a window, by depth: a function of its number alone."""
    generator = torch.Generator().manual_seed(counter_seed("passkey", 0, window))
    keys = torch.randint(10, (count, DIGITS), generator=generator)
    colours = torch.randperm(len(COLOURS), generator=generator)
    prepared = []
    for n in range(count):
        colour, key = COLOURS[int(colours[n])], "".join(map(str, keys[n].tolist()))
        question = tokens_of(QUESTION.format(colour))
        answered = tokens_of(QUESTION.format(colour) + key)
        same = next((k for k, (a, b) in enumerate(zip(question, answered, strict=False)) if a != b), len(question))
        prepared.append(Passkey(tokens_of(HIDDEN.format(colour, key)), answered[:same], answered[same:]))
    return prepared


def key_depths(count: int) -> list[int]:
    """Where keys are hidden, percent of the text before the scored tokens."""
    return [round(100 * (n + 0.5) / count) for n in range(count)]


def prepare_window(window: Tensor, length: int, scored: int, keys: Sequence[Passkey], turn: int) -> PreparedWindow:
    """The last tokens of a window with its keys, ``length`` in all.

    Args:
        window: tokens; the last ``scored`` of them are scored.
        length: tokens that are read.
        scored: how many.
        keys: by depth.
        turn: index of the key that is asked first.

    Raises:
        ValueError: for a length that has no room.
    """
    order = [(n + turn) % len(keys) for n in range(len(keys))]
    tail, answers = list[int](), dict[int, slice]()
    for n in order:
        start = scored + len(tail) + len(keys[n].question)
        answers[n] = slice(start, start + len(keys[n].answer))
        tail += keys[n].question + keys[n].answer
    room = length - scored - len(tail) - sum(len(key.hidden) for key in keys)
    if room < len(keys) + 1:
        raise ValueError(
            f"--scored {scored}: {length} tokens have no room for them and {len(keys)} passkeys; lower --scored or "
            "--needles, or raise --lengths"
        )
    text, last = window[-(scored + room) :], 0
    parts = list[Tensor]()
    for depth, key in zip(key_depths(len(keys)), keys, strict=True):
        at = depth * room // 100
        parts += [text[last:at], torch.tensor(key.hidden)]
        last = at
    tokens = torch.cat([*parts, text[last:], torch.tensor(tail, dtype=torch.long)])
    return PreparedWindow(tokens, scored + len(tail) + 1, slice(0, scored), [answers[n] for n in range(len(keys))])


FILE, TOKENS = "checkpoint.json", "tokens.bin"
_BYTES = 2  # of text for each token of the longest window, that a document needs: about half of a window
_PIECE = 16  # bytes for each token of the longest window, after which a document counts as another one
Tokens = Callable[[str], list[int]]


class Window(NamedTuple):
    """A piece of a corpus, ``(longest,)`` tokens; number n of all has the document n."""

    corpus: str
    tokens: Tensor


class CutWindows(NamedTuple):
    """Windows and search pieces cut out of corpora, and a description of their sources by corpus."""

    windows: tuple[Window, ...]
    pieces: tuple[Tensor, ...]
    descriptions: dict[str, str]


@dataclass(frozen=True)
class PretrainedData:
    """A pretrained model and its evaluation data.

    Attributes:
        windows: the corpora in turn.
        pieces: of text for searches, which no window has.
        keys: the passkeys of each window.
        model: what tells the weights from others.
        source: the folder of transformers where they lie.
        details: facts for the report.
        sliding: whether the model can be read under a sliding window.
        write: writes the model to a folder; None where ``source`` is read as it is.
        folder: where this was read from; searches keep there what they have found.
    """

    windows: tuple[Window, ...]
    pieces: tuple[Tensor, ...]
    keys: tuple[tuple[Passkey, ...], ...]
    model: str
    source: str
    details: dict[str, str]
    sliding: bool
    write: Callable[[Path], None] | None = None
    folder: Path | None = None

    def identity(self) -> dict[str, str]:
        """Of the tokens, the keys and the weights."""
        keys = json.dumps(self.keys).encode()
        contents = {"tokens_sha256": self._content(), "keys_sha256": keys}
        return {**{name: hashlib.sha256(part).hexdigest() for name, part in contents.items()}, "model": self.model}

    def facts(self) -> dict[str, str]:
        """The model, the texts and their sizes."""
        return dict(self.details)

    def save(self, folder: Path) -> None:
        """Tokens and keys; and the model, if it must be read from here."""
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / TOKENS, self._content())
        record = {
            "corpora": [window.corpus for window in self.windows], "pieces": len(self.pieces), "keys": self.keys,
            "model": self.model, "source": self.source, "facts": self.details, "sliding": self.sliding,
        }  # fmt: skip
        if self.write is not None and not (folder / "model" / "config.json").exists():
            self.write(folder / "model")
        write_atomically(folder / FILE, json.dumps(record).encode())

    def _content(self) -> bytes:
        parts = torch.stack([*(window.tokens for window in self.windows), *self.pieces])
        return parts.numpy().astype("<i4").tobytes()


class PretrainedRecord(TypedDict):
    """What checkpoint.json holds."""

    corpora: list[Line]
    pieces: Count
    keys: tuple[tuple[Passkey, ...], ...]
    model: Line
    source: Line
    facts: Facts
    sliding: bool


def read_pretrained(folder: Path) -> PretrainedData:
    """Read what `PretrainedData.save` wrote; the caller compares its `PretrainedData.identity` with the run's."""
    path = folder / FILE
    record = read_record(path, PretrainedRecord)
    corpora, stored = record["corpora"], read_bytes(folder / TOKENS)
    rows = len(corpora) + record["pieces"]
    if rows < 1 or len(stored) % (4 * rows):
        raise ValueError(f"{folder}: {TOKENS} is truncated or not of this run: remove the folder and start again")
    tokens = torch.from_numpy(np.frombuffer(stored, "<i4").astype(np.int64)).view(rows, -1)
    windows = tuple(Window(*pair) for pair in zip(corpora, tokens, strict=False))
    return PretrainedData(
        windows, tuple(tokens[len(windows) :]), record["keys"], record["model"], record["source"], record["facts"],
        record["sliding"], folder=folder,
    )  # fmt: skip


def cut_windows(sources: Sequence[str], tokens_of: Tokens, *, longest: int, windows: int, pieces: int) -> CutWindows:
    """Windows of the corpora, alternating, and pieces of further documents.

    Args:
        sources: as ``--data`` names them.
        tokens_of: a text as tokens.
        longest: tokens of each.
        windows, pieces: how many.

    Raises:
        ValueError: for a corpus with too little text.
    """
    by_source, descriptions, every = list[list[Window]](), dict[str, str](), windows + pieces
    for number, name in enumerate(sources):
        source, label = read_source(name), _label(name)
        documents = _pieces(sorted(source.documents, key=lambda document: document.name), _PIECE * longest)
        chosen = _chosen(documents, _BYTES * longest, len(range(number, every, len(sources))))
        by_source.append([Window(label, _before(documents, n, longest, tokens_of, name)) for n in chosen])
        descriptions[label] = f"{source.title}: the ends of {', '.join(documents[n].name for n in chosen)}"[:1000]
    in_turn = [by_source[n % len(sources)][n // len(sources)] for n in range(every)]
    return CutWindows(tuple(in_turn[:windows]), tuple(window.tokens for window in in_turn[windows:]), descriptions)


def _label(source: str) -> str:
    """A short name of a corpus."""
    return re.sub(r"[^A-Za-z0-9]+", "-", Path(source).stem).strip("-")[:20] or "text"


def _pieces(documents: Sequence[Document], most: int) -> list[Document]:
    """Documents, long ones in pieces."""
    return [
        Document(document.name if start == 0 else f"{document.name}#{start}", document.text[start : start + most])
        for document in documents
        for start in range(0, len(document.text), most)
    ]


def _chosen(documents: Sequence[Document], least: int, count: int) -> list[int]:
    """Documents of at least so many bytes, by the hash of their names; the longest where there are too few."""
    if len(documents) < count:
        raise ValueError(f"data: {count} documents are needed, one for each window, got {len(documents)}")
    long = [n for n, document in enumerate(documents) if len(document.text) >= least]
    if len(long) < count:
        return sorted(range(len(documents)), key=lambda n: -len(documents[n].text))[:count]
    return sorted(long, key=lambda n: hashlib.sha256(documents[n].name.encode()).digest())[:count]


def _before(documents: Sequence[Document], last: int, longest: int, tokens_of: Tokens, name: str) -> Tensor:
    """The last tokens up to the end of a document."""
    text, taken = documents[last].text, 1
    while len(tokens := tokens_of(text.decode(errors="ignore"))) < longest:
        if taken == len(documents):
            raise ValueError(f"data: {name} has {len(tokens):,} tokens in all, and {longest:,} are needed for a window")
        enough_bytes = len(text) + 8 * (longest - len(tokens))
        while taken < len(documents) and len(text) < enough_bytes:
            text = documents[last - taken].text + b"\n\n" + text  # before the first one stands the last one
            taken += 1
    return torch.tensor(tokens[-longest:], dtype=torch.long)
