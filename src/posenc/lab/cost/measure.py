"""Measures costs: every pass at every length, all encodings side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch

from posenc.lab.cost.conditions import Conditions, conditions_of
from posenc.lab.cost.estimate import Known, refusal, too_long_a_record
from posenc.lab.cost.memory import memory_of, out_of_memory
from posenc.lab.cost.passes import make_call
from posenc.lab.cost.results import BASE, LAYER_PASSES, MODEL_PASSES, PASSES, Cost, Costs, Parameters
from posenc.lab.cost.timing import Candidate, Run, Timed, interleaved, once
from posenc.lab.machine import describe_machine, describe_versions
from posenc.lab.model import Decoder
from posenc.lab.specs import check_specs, normal, trained
from posenc.lab.text.profiles import Settings

SHORT = 1.0  # seconds
FIRST = 1024  # tokens: where nothing shorter is asked for, this is looked at before, to know what longer texts need


def measure_costs(
    specs: Sequence[str],
    settings: Settings,
    *,
    lengths: Sequence[int],
    seconds: float,
    on_progress: Callable[[float, str], None] = lambda share, words: None,
    command: str = "posenc cost",
) -> Costs:
    """Measure what encodings cost a model of text.

    Args:
        specs: encodings as the lab names them; "nope" is measured in any case, and a control costs what the row does
            that it controls.
        settings: of a comparison of texts, with device and precision decided; dim, heads, layers, train_length,
            batch_size and threads are read besides.
        lengths: tokens that one layer reads, growing; the whole model reads the training length.
        seconds: for the timed rounds of one cell. A call of more than twenty times as long is not made.
        on_progress: told which share of the work is done, and what comes now.
        command: as it was typed.

    Raises:
        ValueError: for an unknown encoding, and for numbers that do not fit.
    """
    conditions = conditions_of(settings, lengths, seconds)
    checked = check_specs([BASE, *(trained(normal(spec)) for spec in specs)], settings.shape)
    parameters = {spec: _parameters(spec, settings) for spec in checked}
    known: dict[tuple[str, str], Known] = {}
    cells: list[Cost] = []
    plan = _plan(conditions)
    with _threads(conditions.threads):
        for number, (work, length, counts) in enumerate(plan):
            words = f"{PASSES[work]}, {length:,} tokens"
            on_encoding = partial(_progress, on_progress, number, len(plan), words)
            cells += _Group(work, length, conditions, known).measure(checked, counts, on_encoding)
    on_progress(1.0, "done")
    return Costs(
        conditions, parameters, tuple(cells), describe_versions(), describe_machine(conditions.device), command
    )


def _progress(
    on_progress: Callable[[float, str], None], done: int, groups: int, words: str, share: float, what: str
) -> None:
    on_progress((done + share) / groups, f"{words}: {what}")


def _plan(conditions: Conditions) -> list[tuple[str, int, bool]]:
    """Passes with their lengths, and whether their cells count or only inform the estimates."""
    before = [(work, FIRST, False) for work in LAYER_PASSES if conditions.lengths[0] > FIRST]
    layers = [(work, length, True) for length in conditions.lengths for work in LAYER_PASSES]
    return [*before, *layers, *((work, conditions.train_length, True) for work in MODEL_PASSES)]


class _Group:
    """One pass at one length, for all encodings."""

    def __init__(self, work: str, length: int, conditions: Conditions, known: dict[tuple[str, str], Known]) -> None:
        self.work, self.length, self.conditions, self.known = work, length, conditions, known
        self.device = torch.device(conditions.device)
        self.candidates: dict[str, Candidate] = {}
        self.memory: dict[str, int | None] = {}
        self.paths: dict[str, str] = {}
        self.why: dict[str, str | None] = {}

    def measure(self, specs: Sequence[str], times: bool, on_encoding: Callable[[float, str], None]) -> list[Cost]:
        """The cells, in the order of ``specs``; without ``times`` only what the estimates need becomes known."""
        for number, spec in enumerate(specs):
            on_encoding(number / (len(specs) + 1), spec)
            self._prepare(spec)
        if not times:
            return []
        on_encoding(len(specs) / (len(specs) + 1), "timed rounds")
        timed = interleaved(self.candidates, BASE, self.conditions.seconds, self.device)
        for spec, took in timed.items():
            self.known[spec, self.work] = self.known[spec, self.work]._replace(seconds=took.quickest / 1000)
        return [self._cell(spec, timed.get(spec)) for spec in specs]

    def _cell(self, spec: str, timed: Timed | None) -> Cost:
        path, memory, why = self.paths[spec], self.memory.get(spec), self.why[spec]
        if timed is None:
            return Cost(spec, self.work, self.length, None, None, None, None, memory, path, 0, why)
        if timed.relative is None:
            why = f"{BASE} could not be measured here, so there is nothing to compare with"
        t = timed
        return Cost(
            spec, self.work, self.length, t.milliseconds, t.relative, t.low, t.high, memory, path, t.rounds, why
        )

    def _prepare(self, spec: str) -> None:
        """Make a call, see what it needs, and keep it for the rounds, unless it needs more than there is."""
        key = (spec, self.work)
        try:
            run, self.paths[spec] = make_call(spec, self.work, self.length, self.conditions)
            why = refusal(self.known.get(key), self.work, self.paths[spec], self.length, self.conditions)
            if why is None:
                self._look(spec, run)
            else:
                self.why[spec] = why
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            self.paths.setdefault(spec, "")
            self.why[spec] = "there was not enough memory"

    def _look(self, spec: str, run: Run) -> None:
        key = (spec, self.work)
        why = too_long_a_record(self.known.get(key), self.work, self.paths[spec], self.length)
        memory, events = None, 0
        if why is None:
            (memory, events), seconds = self._recorded(run)
            why = f"memory: PyTorch does not tell it on {self.device.type}" if memory is None else None
        else:
            seconds = once(run, self.device)
        if seconds < max(SHORT, self.conditions.seconds):
            seconds = once(run, self.device)  # the first one was cold, and recorded
        self.known[key] = Known(self.length, seconds, memory, events)
        self.candidates[spec] = Candidate(run, seconds)
        self.memory[spec], self.why[spec] = memory, why

    def _recorded(self, run: Run) -> tuple[tuple[int | None, int], float]:
        held: list[tuple[int | None, int]] = []
        seconds = once(lambda: held.append(memory_of(run, self.device)), self.device)
        return held[0], seconds


def _parameters(spec: str, settings: Settings) -> Parameters:
    return Parameters(*Decoder(spec, settings.shape, hidden=settings.hidden, seed=0).parameter_counts())


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
