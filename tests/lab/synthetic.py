"""Synthetic runs, with the same layout that trainings leave: seeds × documents, two views, probes, trainings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from posenc.lab.metrics import FULL, WINDOW, Curve, Metric, Values, Words
from posenc.lab.run.folder import RECORDS, Run, write_run
from posenc.lab.run.records import records_frame, write_records

LENGTHS, TRAINED = (1, 2, 4, 8, 16), 128
BITS = Metric("bits", "bits per byte", "lower", margin=0.02, within=0.1, fails=0.3)
RIGHT = Metric("right", "answers right", "higher", margin=0.05, chance=0.1, learned=0.95, fails=0.5, percent=True)


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
    """
    metric = BITS if task == "text" else RIGHT
    draw = np.random.default_rng(7)
    of_documents = draw.normal(0, 0.1, documents).repeat(2)  # common to all encodings, as difficulty is
    frames = []
    for n, (spec, truth) in enumerate(truths.items()):
        for seed in range(seeds):
            values = _values(truth, metric, of_documents, steps, lengths, np.random.default_rng([n, seed]))
            frames.append(records_frame(values, job=f"{spec}-{seed}", spec=spec, seed=seed))
    numbers = {
        "task": task, "train_length": TRAINED, "lengths": lengths, "steps": steps, "batch_size": 32, "dim": 128,
        "layers": 4, "heads": 4, "windows": 2 * documents,
    }  # fmt: skip
    return Run(
        path, Words(task, f"{task.capitalize()} of different lengths", "What comes next?", "Stable values."),
        (metric,), (Curve("by_position", "position, tokens", metric.name),), numbers,
        {name: str(value) for name, value in numbers.items()}, {"train": data}, {"name": data, "size": "3 MB"},
        {"posenc": "0.1", "torch": "2.9"}, {"processor": "made up", "cores": "2"}, f"posenc compare --task {task}",
        records=pd.concat(frames, ignore_index=True),
    )  # fmt: skip


def written(run: Run) -> Run:
    """The same run as a folder."""
    run.path.mkdir(parents=True)
    write_run(run, machine={"threads": 1})
    write_records(run.path / RECORDS, run.records, {"run": run.path.name})
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
