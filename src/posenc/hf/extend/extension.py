"""extend(): applies another method to a model's rotation, measures the gain, and writes a folder.

An extension measures the model, applies a method, may train, measures again, and writes the folder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from posenc.arguments import check_flag, check_whole, shown
from posenc.hf.attach import detach
from posenc.hf.extend.folder import Work, lines_for, of_distances
from posenc.hf.extend.loading import load_causal_lm
from posenc.hf.extend.measure import Decoding, Measured, ResultCache, decoding_gap, fingerprint, measured
from posenc.hf.extend.methods import AUTO, DISTANCES, PROGRESSIVE, SEARCHED, check_method, choices
from posenc.hf.extend.result import Extension
from posenc.hf.extend.rotary_modules import RotaryModules, apply, scaled
from posenc.hf.extend.search import SIZES, FactorSearch, middle_of, progressive_search
from posenc.hf.extend.tuning import Recipe
from posenc.hf.limits import TOKENS
from posenc.hf.text_loss import Text, Windows, check_room, check_vocabulary, evenly, token_losses, tokens_of, windows_of
from posenc.search import Settings

_STEPS, _SHORT = 8, 256  # tokens that are decoded, and after how many where no length matters


class Job:
    """One extension, from measuring to the folder."""

    def __init__(
        self, rotations: RotaryModules, method: str, original: int, length: int, windows: Windows,
        lengths: tuple[int, ...], sizes: Settings, pieces: int, recipe: Recipe, progress: Callable[[str], None],
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
            "seed": self.recipe.seed,
        }  # fmt: skip
        return {**asked, "recipe": asdict(self.recipe)} if self.method == PROGRESSIVE else asked

    def run(self, work: Work, tokenizer: Any) -> Extension:
        """All of it."""
        if self.method == PROGRESSIVE and work.path is None:
            raise ValueError("out: progressive extension needs a folder, beside which it leaves its state")
        book = ResultCache(work.file("measured.jsonl"))
        before = self._measured(book, "before")
        method = self._chosen(book) if self.method == AUTO else self.method
        gap_before = self._gap(self.rotations.model, method, book, "before")
        self.progress(f"extending by {method}")
        model, config = self._applied(method, work)
        after = self._measured(book, f"after {method} {fingerprint(model)}")
        at, changes = self._decoded_at(method)
        gap = self._gap(model, method, book, f"after {method}")
        decoding = Decoding(at, gap_before, gap, str(next(model.parameters()).dtype).removeprefix("torch."), changes)
        done = Extension(
            method, self.original, self.length, before, after, self.choices, decoding, config,
            None if work.out is None else str(work.out), model,
        )  # fmt: skip
        if work.out is not None:
            work.finish(
                model, tokenizer, {"request": self.request(), **done.record()}, self._serving(done, str(work.out))
            )
        return done

    def _measured(self, book: ResultCache, who: str) -> dict[int, Measured]:
        found: dict[int, Measured] = {}
        for n in self.lengths:
            self._estimate(who, found)
            found[n] = measured(self.rotations.model, self.windows, n, book, who, self.progress)
            self.progress(f"{who.split()[0]}, {n:,} tokens: {found[n].text()} nats")
        return found

    def _estimate(self, who: str, found: Mapping[int, Measured]) -> None:
        """Say how long the readings take, once one is known: at the tokens a second of the longest so far."""
        known = [(n, one.seconds) for n, one in found.items() if one.seconds]
        if not known or len(found) != 1 or who != "before":
            return
        length, seconds = known[-1]
        left = len(self.windows.ends) * (2 * sum(self.lengths) - length)
        if self.method == AUTO:
            left += self.pieces * self.length * len(choices(self.rotations.far(self.original).values()))
        minutes = left * seconds / length / 60
        text = f"{left:,} tokens are still to be read: {minutes:.1f} min at the {length / seconds:,.0f} tokens/s so far"
        search = ", and the search comes on top" if self.method in (SEARCHED, PROGRESSIVE) else ""
        self.progress(f"{text}; long windows are slower{search}")

    def check_applicable(self) -> None:
        """Raise what a method cannot do with this model before anything is measured."""
        rotations = self.rotations
        if self.method in DISTANCES:
            if not rotations.far_layers(self.original):
                raise ValueError(
                    f"method {self.method}: every layer that is rotated attends within a window of at most "
                    f"{self.original:,} tokens, so that no distance is new"
                )
            detach(apply(rotations, self.method, self.original, self.length))
            return
        if not rotations.far(self.original):
            raise ValueError(
                f"method {self.method}: every layer that is rotated attends within a window of at most "
                f"{self.original:,} tokens: its frequencies never meet a longer distance"
            )
        if self.method == AUTO:
            names = choices(rotations.far(self.original).values())
        else:
            names = ("pi",) if self.method in (SEARCHED, PROGRESSIVE) else (self.method,)
        for name in names:
            with rotations.turned(scaled(rotations, name, self.original, self.length)):
                pass

    def _applied(self, method: str, work: Work) -> tuple[nn.Module, dict[str, Any]]:
        """The model as the method wants it, and what its configuration then says of its rotation."""
        rotations, model = self.rotations, self.rotations.model
        if method in DISTANCES:
            return apply(rotations, method, self.original, self.length), {}
        if method == PROGRESSIVE:
            assert work.path is not None
            found = progressive_search(
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
            rotations.put(scaled(rotations, method, self.original, self.length))
        return model, self._said()

    def _searcher(self) -> FactorSearch:
        return FactorSearch(
            self.rotations, original_length=self.original, length=self.length, last=self.windows.last,
            settings=self.sizes, seed=self.recipe.seed,
        )  # fmt: skip

    def _said(self) -> dict[str, Any]:
        """What the live configuration says of rotation and length."""
        config = self.rotations.config.to_dict()
        return {key: config[key] for key in ("rope_parameters", "max_position_embeddings") if key in config}

    def _chosen(self, book: ResultCache) -> str:
        """The method with the lowest loss at the target, on tokens that no window scores."""
        pieces = evenly(self.windows.before, self.length, self.pieces)
        for name in choices(self.rotations.far(self.original).values()):
            key = f"choice {name} {self.windows.digest} {self.length} {self.pieces} {self.windows.last}"
            known = book.get(key)
            if known is None:
                with self.rotations.turned(scaled(self.rotations, name, self.original, self.length)):
                    losses = [token_losses(self.rotations.model, one, self.windows.last) for one in pieces]
                known = [math.fsum(float(one.mean()) for one in losses) / len(losses)]
                book.put(key, known)
            self.choices[name] = known[0]
            self.progress(f"{name}: {known[0]:.4f} nats")
        return min(self.choices, key=self.choices.__getitem__)

    def _decoded_at(self, method: str) -> tuple[int, bool]:
        """At how many tokens decoding is compared with one call, and whether the method depends on the length.

        Where the length matters, decoding goes past the original one; elsewhere a short text shows as much.
        """
        changes = method in (SEARCHED, PROGRESSIVE, "dynamic_ntk")
        far = changes or method in DISTANCES
        return min(self.length, self.original + _STEPS // 2) if far else min(self.length, _SHORT), changes

    def _gap(self, model: nn.Module, method: str, book: ResultCache, who: str) -> float:
        at, _ = self._decoded_at(method)
        key = f"decoding {who} {fingerprint(model)} {self.windows.digest} {at}"
        known = book.get(key)
        if known is None:
            known = [decoding_gap(model, self.windows.tokens[:at], min(_STEPS, at - 1))]
            book.put(key, known)
        return known[0]

    def _serving(self, done: Extension, folder: str) -> str:
        if done.method in DISTANCES:
            return of_distances(folder, done.method)
        config = self.rotations.model.config.to_dict()
        return lines_for(config, folder, self.length, trained=done.method == PROGRESSIVE)


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
    trust_remote_code: bool = False,
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
        trust_remote_code: whether code of the folder may run.
        progress: is told where it stands.

    Raises:
        ValueError: for a model whose rotation cannot be replaced, and for a request that makes no sense.
        OSError: for files that cannot be read or written.
    """
    name = check_method(AUTO if method is None else method)
    check_flag("overwrite", overwrite)
    check_flag("trust_remote_code", trust_remote_code)
    check_whole("length", length, most=TOKENS)
    for word, number in (("windows", windows), ("pieces", pieces)):
        check_whole(word, number, least=1)
    if isinstance(model, nn.Module):
        live = model
    else:
        live, found = load_causal_lm(model, dtype=dtype, device=device, trust_remote_code=trust_remote_code)
        tokenizer = tokenizer or found
    rotations = RotaryModules(live)
    original = _original(original_length, rotations, length)
    last = last or max(1, min(512, original // 8))
    tokens = tokens_of(text, tokenizer)
    check_room(tokens, text, length + (windows - 1) * last)
    check_vocabulary(tokens, live)
    chosen = windows_of(tokens, length, windows, last)
    at = _lengths(lengths, original, length, last)
    job = Job(rotations, name, original, length, chosen, at, search or SIZES, pieces, recipe or Recipe(), progress)
    job.check_applicable()  # before a folder for its state exists
    work = Work(out, job.request(), overwrite=overwrite)
    if work.finished is not None:
        done = load_causal_lm(str(work.out), dtype=dtype, device=device, trust_remote_code=trust_remote_code).model
        return _with_model(Extension.of_record(work.finished, str(out)), done)
    return job.run(work, tokenizer)


def _original(given: int | None, rotations: RotaryModules, length: int) -> int:
    found = given if given is not None else rotations.original_length
    if found is None:
        raise ValueError("original_length must be given: the configuration says nothing of the model's length")
    check_whole("original_length", found, most=TOKENS)
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
