"""Checkpoint: a trained model of transformers, read at many lengths under every way to extend it; nothing is trained.

The same last tokens are scored at every length, and only the text before them grows. In it lie pass keys, which are
asked for at the end (`posenc.lab.tasks.passkeys`), so that one reading measures loss, retrieval and speed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from posenc.lab.config import Config, Profile
from posenc.lab.extras import load
from posenc.lab.metrics import FULL, WINDOW, Curve, Metric, Values
from posenc.lab.model import LabModel
from posenc.lab.tasks.cells import WINDOWED, Cell, cells_of
from posenc.lab.tasks.checkpoint_data import Given, read_given
from posenc.lab.tasks.checkpoint_numbers import CheckpointOptions, options_of, profile, size_of
from posenc.lab.tasks.passkeys import depths, laid
from posenc.lab.tasks.task import PROFILES, Data, Planned, Task, profiles

NATS = "nats a token"


class Checkpoint(Task):
    """Loss, pass keys and speed of a model that is given, by length."""

    name = "checkpoint"
    title = "A trained model, stretched"
    asked = (
        "How far can this model be read past its trained length, at once and without any training? At every length "
        "the same tokens are scored; pass keys are hidden in the text before them."
    )
    shows = (
        "At 1× the model is given the last tokens alone, as many as it was trained with, which costs nothing: a method "
        "is worth something where its loss in longer texts is below that; and it uses what lies far back where it "
        "still finds the keys there."
    )
    metrics = (Metric("nats", NATS, "lower", margin=0.05, fails=0.5),)
    curves = (Curve("passkey_by_depth", axis="depth of the key, percent of the text", of="passkey"),)
    options = CheckpointOptions
    source = "python,prose,headers"

    def profile(self, name: str) -> Profile:
        """Minutes on two cores (quick), hours (standard), ten times as many windows on a GPU (full)."""
        return profiles({one: profile(one) for one in PROFILES}, name)

    def metrics_of(self, config: Config) -> tuple[Metric, ...]:
        """The loss, on all texts and on each; digits of keys; speed."""
        keys = (Metric("passkey", "of digits of pass keys", "higher", margin=0.05, chance=0.1, percent=True),)
        o, (nats,) = options_of(config), self.metrics
        each = [replace(nats, name=f"nats_{corpus}") for corpus in o.corpora.split(",") if corpus]
        return nats, *each, *(keys if o.needles else ()), Metric("speed", "tokens a second", "higher", margin=0.01)

    def check(self, config: Config) -> None:
        """What is only of use in training is left alone."""
        if config.training.steps:
            raise ValueError(f"--steps {config.training.steps}: --task checkpoint trains nothing; leave it out")

    def plan(self, asked: Sequence[str], config: Config) -> list[Planned]:
        """A job for each cell; those of a search after it."""
        rows = list(dict.fromkeys("".join(row.split()).lower() for row in asked))
        for row in rows:
            _module().check_row(row)
        windowed = options_of(config).sliding
        cells = cells_of(rows, size_of(config), _module().reaches, windowed=windowed)
        searches = {(one.method, one.target): one.spec for one in cells if one.part is None}
        bases = {one: searches.get((one.method, one.target)) if one.part is not None else None for one in cells}
        return [Planned(one.spec, tuple(names), config, bases[one]) for one, names in cells.items()]

    def data(self, source: str, config: Config) -> Data:
        """The model of ``--model`` and windows of the corpora."""
        found: Given = _module("source").given(source, config)
        return found

    def settled(self, config: Config, data: Data) -> Config:
        """Sizes follow from the model."""
        found: Config = _module("source").settled(config, _given(data))
        return found

    def load(self, folder: Path, config: Config) -> Data:
        """What was saved."""
        return read_given(folder)

    def model(self, spec: str, config: Config, data: Data, seed: int) -> LabModel:
        """The model as a cell has it."""
        found: LabModel = _module().cell_of(spec, config, _given(data))
        return found

    def evaluate(
        self, model: LabModel, data: Data, rows: Sequence[str], config: Config, device: torch.device
    ) -> Iterator[Values]:
        """Of each window of the cell; or what a search found."""
        heavy: Any = model
        cell: Cell = heavy.cell
        size = float(sum(parameter.numel() for parameter in heavy.parameters()))
        yield from (Values("parameters", [size], spec=row) for row in rows)
        if cell.part is None:
            factors = _module().search(heavy, config, _given(data))
            yield from (Values("longrope_factor", factors, cell.length, spec=row) for row in rows)
            return
        view = WINDOW if cell.method == WINDOWED else FULL
        for number in size_of(config).part(cell.part, cell.length):
            for values in _of_window(heavy, _given(data), number, config, device):
                yield from (Values(values.metric, values.values, cell.length, view, row, values.items, values.documents)
                            for row in rows)  # fmt: skip

    def train_share(self, config: Config) -> float:
        """Nothing."""
        return 0.0

    def batch(self, data: Data, config: Config, seed: int, step: int) -> tuple[Tensor, ...]:
        """There is none."""
        raise ValueError("--task checkpoint trains nothing")

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """There is none."""
        raise ValueError("--task checkpoint trains nothing")

    def probe(self, model: LabModel, data: Data, config: Config, device: torch.device) -> float:
        """There is none."""
        raise ValueError("--task checkpoint trains nothing")


def _of_window(model: Any, data: Given, number: int, config: Config, device: torch.device) -> Iterator[Values]:
    """What one window shows."""
    window, keys = data.windows[number], data.keys[number]
    read = laid(window.tokens, model.cell.length, options_of(config).scored, keys, number)
    tokens, only = read.tokens.to(device), [number]
    start = time.perf_counter()
    logits = model.logits(tokens, read.needed, config.training.train_length)[:-1].float()
    losses = functional.cross_entropy(logits, tokens[-len(logits) :], reduction="none").cpu()
    speed = len(tokens) / (time.perf_counter() - start)
    loss = losses[read.scored].double().mean().item()
    yield Values("nats", [loss], items=only, documents=only)
    yield Values(f"nats_{window.corpus}", [loss], items=only, documents=only)
    yield Values("speed", [speed], items=only, documents=only)
    if keys:
        right = (logits.argmax(-1) == tokens[-len(logits) :]).cpu()
        shares = [right[answer].double().mean().item() for answer in read.answers]
        yield Values("passkey", [sum(shares) / len(shares)], items=only, documents=only)
        yield Values("passkey_by_depth", shares, items=depths(len(shares)), documents=only * len(shares))


def _given(data: Data) -> Given:
    assert isinstance(data, Given)
    return data


def _module(part: str = "model") -> Any:
    """What needs transformers."""
    packages = ("transformers", "tokenizers", "safetensors", "gguf")
    return load(f"posenc.lab.tasks.checkpoint_{part}", packages=packages, extra="hf,gguf", user="--task checkpoint")
