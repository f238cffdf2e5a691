"""One extension, from measuring to the folder."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from torch import nn

from posenc.hf.attach import detach
from posenc.hf.extend.applied import move, scaled
from posenc.hf.extend.book import Book, fingerprint
from posenc.hf.extend.decoding import Decoding, decoding_gap
from posenc.hf.extend.folder import Work
from posenc.hf.extend.measured import Measured, measured
from posenc.hf.extend.methods import AUTO, DISTANCES, PROGRESSIVE, SEARCHED, choices
from posenc.hf.extend.progressive import middle_of, progressed
from posenc.hf.extend.result import Extension
from posenc.hf.extend.rotations import Rotations
from posenc.hf.extend.searching import Searcher
from posenc.hf.extend.serving import lines_for, of_distances
from posenc.hf.extend.tuning import Recipe
from posenc.hf.losses import evenly, token_losses
from posenc.hf.texts import Windows
from posenc.search import Settings

_STEPS, _SHORT = 8, 256  # tokens that are decoded, and after how many where no length matters


class Job:
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
            "seed": self.recipe.seed,
        }  # fmt: skip
        return {**asked, "recipe": asdict(self.recipe)} if self.method == PROGRESSIVE else asked

    def run(self, work: Work, tokenizer: Any) -> Extension:
        """All of it."""
        if self.method == PROGRESSIVE and work.path is None:
            raise ValueError("out: progressive extension needs a folder, beside which it leaves its state")
        book = Book(work.file("measured.jsonl"))
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

    def _measured(self, book: Book, who: str) -> dict[int, Measured]:
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
            detach(move(rotations, self.method, self.original, self.length))
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
            return move(rotations, method, self.original, self.length), {}
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
            rotations.put(scaled(rotations, method, self.original, self.length))
        return model, self._said()

    def _searcher(self) -> Searcher:
        return Searcher(
            self.rotations, original_length=self.original, length=self.length, last=self.windows.last,
            settings=self.sizes, seed=self.recipe.seed,
        )  # fmt: skip

    def _said(self) -> dict[str, Any]:
        """What the live configuration says of rotation and length."""
        config = self.rotations.config.to_dict()
        return {key: config[key] for key in ("rope_parameters", "max_position_embeddings") if key in config}

    def _chosen(self, book: Book) -> str:
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

    def _gap(self, model: nn.Module, method: str, book: Book, who: str) -> float:
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
