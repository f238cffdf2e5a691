"""extend(): another method for a model's rotation, what it is worth, and a folder with the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from posenc.arguments import check_flag, check_whole, shown
from posenc.hf.attach import attach
from posenc.hf.extend.book import Book, fingerprint
from posenc.hf.extend.decoding import decoding_gap
from posenc.hf.extend.folder import Work
from posenc.hf.extend.loading import loaded
from posenc.hf.extend.losses import Measured, evenly, measured, token_losses
from posenc.hf.extend.methods import AUTO, CHOICES, DISTANCES, PROGRESSIVE, SEARCHED, check_method, moved, stretched
from posenc.hf.extend.progressive import middle_of, progressed
from posenc.hf.extend.rotations import Rotations
from posenc.hf.extend.searching import SIZES, Searcher
from posenc.hf.extend.serving import lines_for, of_distances
from posenc.hf.extend.texts import Text, Windows, tokens_of, windows_of
from posenc.hf.extend.tuning import Recipe
from posenc.hf.extend.verdict import sentences, worth
from posenc.search import Settings

_STEPS, _SHORT = 8, 256  # tokens that are decoded, and after how many where no length matters


@dataclass(frozen=True)
class Extension:
    """What an extension did and what it is worth. Print it.

    Attributes:
        method: that was taken.
        original_length, length: tokens that the model was trained at, and that it is extended to.
        before, after: losses in nats a token by the tokens of context, always of the same tokens.
        choices: with the method "auto", the loss of each at ``length``, on other tokens.
        gap: at how many tokens decoding was held against one call, and how far apart logits are, over the largest.
        config: the text part of the configuration says this of its rotation; {} for distances that are moved.
        folder: where it lies; None: nowhere.
        model: live, changed.
    """

    method: str
    original_length: int
    length: int
    before: Mapping[int, Measured]
    after: Mapping[int, Measured]
    choices: Mapping[str, float]
    gap: tuple[int, float]
    config: Mapping[str, Any]
    folder: str | None = None
    model: nn.Module | None = field(default=None, repr=False, compare=False)

    @property
    def worth(self) -> bool | None:
        """Whether the longer text is read better than its end was by the model before; None: no difference shown."""
        return worth(self.before, self.after, self.original_length, self.length)

    def record(self) -> dict[str, Any]:
        """As plain data."""
        kept = {key: value for key, value in vars(self).items() if key not in ("model", "folder", "before", "after")}
        for name in ("before", "after"):
            kept[name] = {str(n): asdict(one) for n, one in getattr(self, name).items()}
        return kept

    @classmethod
    def of_record(cls, record: Mapping[str, Any], folder: str) -> Extension:
        """The same again, without the model."""
        losses = {
            name: {int(n): Measured(tuple(one["windows"]), one["seconds"]) for n, one in record[name].items()}
            for name in ("before", "after")
        }
        rest = {key: record[key] for key in ("method", "original_length", "length", "choices", "config")}
        return cls(**rest, **losses, gap=(record["gap"][0], record["gap"][1]), folder=folder)

    def __str__(self) -> str:
        title = f"{self.method}: {self.original_length:,} to {self.length:,} tokens"
        lines = [title, f"{'context':>10}  {'before':>17}  {'after':>17}  {'difference':>18}  tokens/s"]
        for n in sorted({*self.before, *self.after}):
            one, other = self.before.get(n), self.after.get(n)
            texts = ["" if each is None else each.text() for each in (one, other)]
            apart = other.minus(one).text(signed=True) if one is not None and other is not None else ""
            timed = other or one
            speed = f"{n / timed.seconds:,.0f}" if timed is not None and timed.seconds else ""
            lines.append(f"{n:>10,}  {texts[0]:>17}  {texts[1]:>17}  {apart:>18}  {speed:>8}")
        if self.choices:
            lines.append("tried: " + ", ".join(f"{name} {loss:.4f}" for name, loss in self.choices.items()))
        lines += sentences(self.before, self.after, self.original_length, self.length, self.gap)
        if self.folder is not None:
            lines.append(f"Written to {self.folder}; SERVING.md there tells vLLM, SGLang and llama.cpp.")
        return "\n".join(lines)


def extend(
    model: nn.Module | str | Path,
    length: int,
    method: str | None = None,
    *,
    out: str | Path | None = None,
    text: Text = None,
    tokenizer: Any = None,
    original_length: int | None = None,
    lengths: Iterable[int] | None = None,
    windows: int = 4,
    last: int | None = None,
    search: Settings | None = None,
    pieces: int = 2,
    recipe: Recipe | None = None,
    overwrite: bool = False,
    dtype: str = "auto",
    device: str = "cpu",
    progress: Callable[[str], None] = lambda told: None,
) -> Extension:
    """Extend a model to a longer text, and measure what that is worth.

    Args:
        model: a live causal model of transformers, which is changed in place; or its folder, or a GGUF file.
        length: tokens that it is to read.
        method: one of `posenc.hf.extend.METHODS`; None or "auto": the one of yarn, ntk, llama3 and dynamic_ntk with
            the lowest loss at ``length``.
        out: a new folder for weights, configuration, tokenizer and lines for engines. Beside it lies the state, in a
            folder that ends in ``.work``, until all is done: the same call goes on from there.
        text: to measure, search and train on: a file, tokens, or None for the built-in English (`tokens_of`).
        tokenizer: of a live model.
        original_length: tokens that it was trained at; None: what its configuration says.
        lengths: tokens of context at which the loss is measured; None: a quarter of the original length, that, and
            ``length``.
        windows: of text, each measured at every length.
        last: tokens at the end of each that are scored; None: 512, or an eighth of the original length if that is less.
        search: sizes of the search of "longrope" and "progressive"; None: 48 evaluations.
        pieces: of text that a search and "auto" judge on.
        recipe: numbers of "progressive".
        overwrite: whether ``out`` may take the place of a folder that is there.
        dtype, device: of a model that is loaded.
        progress: is told where it stands.

    Raises:
        ValueError: for a model whose rotation cannot be replaced, and for a request that makes no sense.
        OSError: for files that cannot be read or written.
    """
    name = check_method(AUTO if method is None else method)
    check_flag("overwrite", overwrite)
    for word, number in (("length", length), ("windows", windows), ("pieces", pieces)):
        check_whole(word, number, least=1)
    if isinstance(model, nn.Module):
        live = model
    else:
        live, found = loaded(model, dtype=dtype, device=device)
        tokenizer = tokenizer or found
    rotations = Rotations(live)
    original = _original(original_length, rotations, length)
    last = last or max(1, min(512, original // 8))
    chosen = windows_of(tokens_of(text, tokenizer), length, windows, last)
    at = _lengths(lengths, original, length, last)
    job = _Job(rotations, name, original, length, chosen, at, search or SIZES, pieces, recipe or Recipe(), progress)
    work = Work(out, job.request(), overwrite=overwrite)
    if work.finished is not None:
        done = loaded(str(work.out), dtype=dtype, device=device).model
        return _with_model(Extension.of_record(work.finished, str(out)), done)
    return job.run(work, tokenizer)


def _original(given: int | None, rotations: Rotations, length: int) -> int:
    found = given if given is not None else rotations.original_length
    if found is None:
        raise ValueError("original_length must be given: the configuration says nothing of the model's length")
    check_whole("original_length", found, least=1)
    if length <= found:
        raise ValueError(f"length must be more than the {found:,} tokens that the model reaches, got {length:,}")
    return found


def _lengths(given: Iterable[int] | None, original: int, length: int, last: int) -> tuple[int, ...]:
    found = sorted({original // 4, original, length} if given is None else set(given))
    if given is None:
        found = [n for n in found if n > last]
    if not found or any(type(n) is not int or not last < n <= length for n in found):
        raise ValueError(f"lengths must be whole numbers in {last + 1}..{length}, got {shown(found)}")
    return tuple(found)


def _with_model(extension: Extension, model: nn.Module) -> Extension:
    return Extension(**{**vars(extension), "model": model})


class _Job:
    """One extension, from measuring to the folder."""

    def __init__(
        self, rotations: Rotations, method: str, original: int, length: int, windows: Windows, lengths: tuple[int, ...],
        sizes: Settings, pieces: int, recipe: Recipe, progress: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.rotations, self.method, self.original, self.length = rotations, method, original, length
        self.windows, self.lengths, self.sizes, self.pieces = windows, lengths, sizes, pieces
        self.recipe, self.progress = recipe, progress
        self.weights = fingerprint(rotations.model)
        self.choices: dict[str, float] = {}
        if method == PROGRESSIVE:
            middle_of(recipe, original, length)

    def request(self) -> dict[str, Any]:
        """All that decides the outcome."""
        asked = {
            "model": self.weights, "method": self.method, "original_length": self.original, "length": self.length,
            "text": self.windows.digest, "windows": len(self.windows.ends), "last": self.windows.last,
            "lengths": list(self.lengths), "pieces": self.pieces, "search": asdict(self.sizes),
        }  # fmt: skip
        return {**asked, "recipe": asdict(self.recipe)} if self.method == PROGRESSIVE else asked

    def run(self, work: Work, tokenizer: Any) -> Extension:
        """All of it."""
        if self.method == PROGRESSIVE and work.path is None:
            raise ValueError("out: progressive extension needs a folder, beside which it leaves its state")
        book = Book(work.file("measured.jsonl"))
        before = self._measured(book, "before")
        method = self._chosen(book) if self.method == AUTO else self.method
        self.progress(f"extending by {method}")
        model, config = self._applied(method, work)
        after = self._measured(book, f"after {method} {fingerprint(model)}")
        done = Extension(
            method, self.original, self.length, before, after, self.choices, self._gap(model, method, book), config,
            None if work.out is None else str(work.out), model,
        )  # fmt: skip
        if work.out is not None:
            work.finish(
                model, tokenizer, {"request": self.request(), **done.record()}, self._serving(done, str(work.out))
            )
        return done

    def _measured(self, book: Book, who: str) -> dict[int, Measured]:
        found = {}
        for n in self.lengths:
            found[n] = measured(self.rotations.model, self.windows, n, book, who)
            self.progress(f"{who.split()[0]}, {n:,} tokens: {found[n].text()} nats")
        return found

    def _applied(self, method: str, work: Work) -> tuple[nn.Module, dict[str, Any]]:
        """The model as the method wants it, and what its configuration then says of its rotation."""
        rotations, model = self.rotations, self.rotations.model
        if method in DISTANCES:
            layers = rotations.far_layers(self.original)
            return attach(model, [moved(method, self.original, self.length)], layers=layers), {}
        if method == PROGRESSIVE:
            assert work.path is not None
            found = progressed(
                self._searcher(), self.windows.before, self.recipe, pieces=self.pieces, work=work.path,
                progress=self.progress,
            )  # fmt: skip
            return found, self._said()
        if method == SEARCHED:
            searcher = self._searcher()
            factors = searcher.search(
                evenly(self.windows.before, self.length, self.pieces), trained=self.original,
                factor=self.length / self.original, journal=work.file("search.jsonl"), progress=self.progress,
            )  # fmt: skip
            rotations.put(searcher.config((1.0,) * searcher.pairs, factors))
        else:
            rotations.put(self._scaled(method))
        return model, self._said()

    def _searcher(self) -> Searcher:
        return Searcher(
            self.rotations, original_length=self.original, length=self.length, last=self.windows.last,
            settings=self.sizes, seed=self.recipe.seed,
        )  # fmt: skip

    def _scaled(self, method: str) -> dict[str, Any]:
        factor, far = self.length / self.original, self.rotations.far(self.original)
        ropes = {kind: stretched(rope, method, factor, self.original) for kind, rope in far.items()}
        return self.rotations.written(ropes, self.original, self.length)

    def _said(self) -> dict[str, Any]:
        """What the live configuration says of rotation and length."""
        config = self.rotations.config.to_dict()
        return {key: config[key] for key in ("rope_parameters", "max_position_embeddings") if key in config}

    def _chosen(self, book: Book) -> str:
        """The method with the lowest loss at the target, on tokens that no window scores."""
        pieces = evenly(self.windows.before, self.length, self.pieces)
        for name in CHOICES:
            key = f"choice {name} {self.windows.digest} {self.length} {self.pieces} {self.windows.last}"
            known = book.get(key)
            if known is None:
                with self.rotations.turned(self._scaled(name)):
                    losses = [token_losses(self.rotations.model, one, self.windows.last) for one in pieces]
                known = [math.fsum(float(one.mean()) for one in losses) / len(losses)]
                book.put(key, known)
            self.choices[name] = known[0]
            self.progress(f"{name}: {known[0]:.4f} nats")
        return min(self.choices, key=self.choices.__getitem__)

    def _gap(self, model: nn.Module, method: str, book: Book) -> tuple[int, float]:
        """Where the length matters, decoding goes past the trained one; elsewhere a short text shows as much."""
        changes = method in (*DISTANCES, SEARCHED, PROGRESSIVE, "dynamic_ntk")
        at = min(self.length, self.original + _STEPS // 2) if changes else min(self.length, _SHORT)
        key = f"decoding {method} {fingerprint(model)} {self.windows.digest} {at}"
        known = book.get(key)
        if known is None:
            known = [decoding_gap(model, self.windows.tokens[:at], min(_STEPS, at - 1))]
            book.put(key, known)
        return at, known[0]

    def _serving(self, done: Extension, folder: str) -> str:
        if done.method in DISTANCES:
            return of_distances(folder, done.method)
        config = self.rotations.model.config.to_dict()
        return lines_for(config, folder, self.length, trained=done.method == PROGRESSIVE)
