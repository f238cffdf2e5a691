"""Synthetic runs, with the same layout that trainings leave: seeds × documents, two views, probes, trainings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from posenc.lab.metrics import (
    BASELINES,
    FULL,
    NGRAM,
    NGRAM_ORDERS,
    NGRAM_PROBE,
    REACH,
    UNIGRAM,
    WINDOW,
    Curve,
    Metric,
    Values,
    Words,
)  # fmt: skip
from posenc.lab.run.folder import RECORDS, Run, write_run
from posenc.lab.run.records import empty, records_frame, write_records

LENGTHS, TRAINED = (1, 2, 4, 8, 16), 128
BITS = Metric("bits", "bits per byte", "lower")
NGRAM_BITS, UNIGRAM_BITS = 1.9, 8.0  # of the baselines of texts
RIGHT = Metric("right", "answers right", "higher", margin=0.05, chance=0.1, learned=0.95, percent=True)


class Truth(NamedTuple):
    """One encoding: its value at 1×, how much worse it is at the longest length, and past it nothing."""

    first: float
    loss: float = 0.0  # at the longest length, in the metric's unit; reached in equal steps of the octave
    ends: bool = False  # undefined past the trained length


TEXT = {
    "rope": Truth(1.70, 3.0), "alibi": Truth(1.72), "t5": Truth(1.66, 0.07), "fox": Truth(1.71, -0.06),
    "nope": Truth(2.10, 2.0), "learned": Truth(1.75, ends=True), "rope+alibi": Truth(1.69, 0.05),
}  # fmt: skip
TASK = {"rope": Truth(1.0, 0.6), "alibi": Truth(0.98), "cope": Truth(0.99, 0.0), "nope": Truth(0.4, 0.1)}


def run_of(
    truths: Mapping[str, Truth] = TEXT,
    *,
    task: str = "text",
    seeds: int = 4,
    documents: int = 10,
    steps: int = 1200,
    path: Path = Path("made-up"),
    data: str = "corpus",
    lengths: tuple[int, ...] = LENGTHS,
    gain: float | None = 0.3,
    ngram: float | None = NGRAM_BITS,
) -> Run:
    """A run, the same for the same arguments.

    Args:
        truths: encodings with their true values.
        task: "text", measured in bits per byte; of any other the share of right answers.
        seeds: trainings of each encoding.
        documents: texts, each with two windows.
        steps: of a training.
        path: where it lies.
        data: name of the data.
        lengths: of the tests, in trained ones.
        gain: what context from a quarter of the training length on brings; None: no reach in the records.
        ngram: bits of the baseline; None: no baselines in the records.
    """
    metric = BITS if task == "text" else RIGHT
    draw = np.random.default_rng(7)
    of_documents = draw.normal(0, 0.1, documents).repeat(2)  # common to all encodings, as difficulty is
    frames = []
    for n, (spec, truth) in enumerate(truths.items()):
        for seed in range(seeds):
            values = _values(truth, metric, of_documents, steps, lengths, np.random.default_rng([n, seed]))
            if metric is BITS and gain is not None:
                values = [*values, *_reach(truth, of_documents, gain, np.random.default_rng([n, seed, 1]))]
            frames.append(records_frame(values, job=f"{spec}-{seed}", spec=spec, seed=seed))
    numbers = {
        "task": task, "train_length": TRAINED, "lengths": lengths, "steps": steps, "batch_size": 32, "dim": 128,
        "layers": 4, "heads": 4, "windows": 2 * documents,
    }  # fmt: skip
    return Run(
        Words(task, f"{task.capitalize()} of different lengths", "What comes next?", "Stable values."),
        (metric,), (Curve("by_position", "position, tokens", metric.name),), numbers,
        {name: str(value) for name, value in numbers.items()}, {"train": data}, {"name": data, "size": "3 MB"},
        {"posenc": "0.1", "torch": "2.9"}, {"processor": "made up", "cores": "2"}, f"posenc compare --task {task}",
        path=path, rounding={"threads": 1}, records=pd.concat(frames, ignore_index=True),
        baselines=empty() if ngram is None or metric is RIGHT else baselines_of_text(ngram, of_documents),
    )  # fmt: skip


def baselines_of_text(
    ngram: float, of_documents: np.ndarray, *, length: int = TRAINED, documents: Sequence[int] | None = None
) -> pd.DataFrame:
    """Records of an n-gram of a mean, as difficult texts make it."""
    texts = list(np.arange(len(of_documents)) // 2) if documents is None else documents
    values = [
        Values(NGRAM, (ngram + of_documents).tolist(), length, documents=texts),
        Values(NGRAM_ORDERS, [4.6, 3.6, 2.8, ngram, ngram + 0.1, ngram + 0.2], items=range(1, 7)),
        Values(NGRAM_PROBE, [ngram]),
        Values(UNIGRAM, [UNIGRAM_BITS]),
    ]
    return records_frame(values, job=BASELINES, spec="n-gram", seed=0)


def _reach(truth: Truth, of_documents: np.ndarray, gain: float, draw: np.random.Generator) -> list[Values]:
    """The loss by truncated context: each halving below T/4 costs 0.3, and T/4 costs ``gain``."""
    texts = (np.arange(len(of_documents)) // 2).tolist()
    losses = {8: gain + 0.6, 16: gain + 0.3, 32: gain, 64: gain / 2}
    return [
        Values(
            REACH, (truth.first + loss + of_documents + draw.normal(0, 0.002, len(of_documents))).tolist(), context,
            documents=texts,
        )
        for context, loss in losses.items()
    ]  # fmt: skip


def written(run: Run) -> Run:
    """The same run as a folder."""
    run.path.mkdir(parents=True)
    write_run(run)
    every = pd.concat([run.records, run.baselines], ignore_index=True)
    write_records(run.path / RECORDS, every, {"run": run.path.name})
    return run


def _values(
    truth: Truth,
    metric: Metric,
    of_documents: np.ndarray,
    steps: int,
    lengths: tuple[int, ...],
    draw: np.random.Generator,
) -> Sequence[Values]:
    """What a task measures of one training."""
    worse, count = (1 if metric.better == "lower" else -1), len(of_documents)
    of_seed, texts = draw.normal(0, 0.004), np.arange(count) // 2
    measured = []
    for times in lengths:
        if truth.ends and times > 1:
            break
        loss = truth.loss * math.log(times, max(LENGTHS))
        for view, by in ((FULL, loss), (WINDOW, 0.004))[: 2 if times > 1 else 1]:
            values = truth.first + worse * by + of_seed + draw.normal(0, 0.004, count)
            values = values + of_documents if metric is BITS else (draw.random(count) < values).astype(float)
            measured.append(Values(metric.name, values.tolist(), times * TRAINED, view, documents=texts.tolist()))
    places = 16 * np.arange(8 * max(LENGTHS)) + 8
    past = np.clip(np.log2(places / TRAINED), 0, None) / np.log2(max(LENGTHS))
    curve = truth.first + worse * (truth.loss * past + 8 / (places + 16))
    measured.append(Values("by_position", curve.tolist(), TRAINED * max(LENGTHS), items=places.tolist()))
    at = np.linspace(steps / 20, steps, 20).astype(int)
    measured.append(Values("probe", (truth.first + worse * 3 * np.exp(-5 * at / steps)).tolist(), items=at.tolist()))
    trained = {"parameters": 866_000 + 64 * len(metric.name), "seconds": 250.0, "train_loss": truth.first}
    return [*measured, *(Values(name, [value]) for name, value in trained.items())]
