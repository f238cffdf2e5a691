"""Measures costs: every pass at every length, all encodings side by side, with a progress bar.

A cell is skipped, with the reason, where the same encoding and pass at a smaller length predict too much time or
memory.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console
from rich.progress import Progress

from posenc.lab.config import Config
from posenc.lab.cost.costs import (
    BASE,
    FACTS,
    LAYER_PASSES,
    MODEL_PASSES,
    PASSES,
    Costs,
    frame_of,
    read_costs,
    write_costs,
)
from posenc.lab.cost.passes import Conditions, make_call
from posenc.lab.cost.timing import (
    Candidate,
    Run,
    free_memory,
    interleaved,
    memory_of,
    out_of_memory,
    relative,
    seconds_of,
)
from posenc.lab.models.decoder import Decoder
from posenc.lab.run.machine import describe_machine, describe_versions
from posenc.lab.specs import check_specs

LENGTHS = {"quick": (64, 256, 1024), "standard": (64, 256, 1024, 4096), "full": (512, 2048, 8192, 32768)}  # tokens
LENGTHS["llama-125m"] = LENGTHS["full"]
SECONDS = {"quick": 0.15, "standard": 1.0, "full": 3.0, "llama-125m": 3.0}  # for the timed rounds of one cell
SHARE = 0.8  # of the free memory may be used
PATIENCE, LEAST = 20, 5.0  # a call may take this many times the seconds of a cell, and this many seconds in any case
RECORD = 1_000_000  # events of the profiler, about a gigabyte
MATRICES = 4  # full matrices of scores that the dense path holds at least
GIB = 2**30


class Known(NamedTuple):
    """What one call was seen to need."""

    length: int = 1
    seconds: float = 0.0
    memory: int | None = None  # bytes
    events: int = 0  # of the profiler


def refusal(known: Known, work: str, path: str, length: int, conditions: Conditions) -> str | None:
    """Why a cell cannot be measured, or None.

    Args:
        known: of a smaller length, if there was one.
        work: a key of `posenc.lab.cost.costs.PASSES`.
        path: of attention.
        length: tokens.
        conditions: of the measuring.
    """
    c, longer, dense = conditions, length / known.length, path == "dense"
    # A decoding step is linear, but for paths by the definition: one of PaTH, for one, looks at all pairs of keys.
    seconds = known.seconds * (longer if work == "decode" and not dense else longer**2)
    if seconds > max(LEAST, PATIENCE * c.seconds):
        return f"a call would take about {seconds:.0f} s; with more --seconds it is measured"
    scores = (c.config.training.batch_size if work in MODEL_PASSES else 1) * c.config.model.heads * length**2
    least = 4 * MATRICES * scores if dense and work != "decode" else 0
    needed, free = max(least, (known.memory or 0) * longer ** (1 + dense)), free_memory(torch.device(c.device))
    if free is not None and needed > SHARE * free:
        return f"it would need about {needed / GIB:.1f} GiB, and {free / GIB:.1f} GiB are free"
    return None


def too_long_a_record(known: Known, work: str, path: str, length: int) -> str | None:
    """Why memory cannot be recorded, or None: the profiler notes each operation, and there are more with more tiles."""
    events = known.events * (1 if work == "decode" or path == "dense" else (length / known.length) ** 2)
    return f"memory: its record would have about {events / 1e6:.0f} million events" if events > RECORD else None


SHORT = 1.0  # seconds
FIRST = 1024  # tokens: where nothing shorter is asked for, this is looked at before, to know what longer texts need
Line = dict[str, object]


def measure_costs(
    specs: Sequence[str],
    config: Config,
    *,
    lengths: Sequence[int],
    seconds: float,
    on_progress: Callable[[float, str], None] = lambda share, words: None,
    command: str = "posenc cost",
) -> Costs:
    """Measure what encodings cost a model of text.

    Args:
        specs: encodings as the lab names them; "nope" is measured in any case.
        config: of a comparison of texts, with the device decided; the model, train_length, batch_size, precision and
            threads are read besides.
        lengths: tokens that one layer reads, growing; the whole model reads the training length.
        seconds: for the timed rounds of one cell. A call of more than twenty times as long is not made.
        on_progress: called with the share of the work that is done and the next step.
        command: as it was typed.

    Raises:
        ValueError: for an unknown encoding, and for numbers that do not fit.
    """
    conditions, m, t = Conditions(config, tuple(lengths), seconds), config.model, config.training
    shape = conditions.shape(m.layers)
    checked = check_specs([BASE, *specs], shape)
    parameters = {spec: Decoder(spec, shape, hidden=m.hidden, seed=0).parameter_counts() for spec in checked}
    layers = [(work, length) for length in conditions.lengths for work in LAYER_PASSES]
    plan, known = [*layers, *((work, t.train_length) for work in MODEL_PASSES)], dict[tuple[str, str], Known]()
    lines = list[Line]()
    with _threads(config.machine.threads):
        if conditions.lengths[0] > FIRST:
            on_progress(0.0, f"a look at {FIRST:,} tokens")
            for work in LAYER_PASSES:
                _Group(work, FIRST, conditions, known).prepare(checked)
        for number, (work, length) in enumerate(plan):
            group = _Group(work, length, conditions, known)
            for done, spec in enumerate(checked):
                share = (number + done / (len(checked) + 1)) / len(plan)
                on_progress(share, f"{PASSES[work]}, {length:,} tokens: {spec}")
                group.prepare([spec])
            lines += group.timed()
    on_progress(1.0, "done")
    return Costs(
        frame_of(lines), conditions.shown(), parameters, t.batch_size * t.train_length, describe_versions(),
        describe_machine(conditions.device), command,
    )  # fmt: skip


class _Group:
    """One pass at one length, for all encodings; ``known`` is what each pass of each was seen to need, and grows."""

    def __init__(self, work: str, length: int, conditions: Conditions, known: dict[tuple[str, str], Known]) -> None:
        self.work, self.length, self.conditions, self.known = work, length, conditions, known
        self.device = torch.device(conditions.device)
        self.candidates: dict[str, Candidate] = {}
        self.lines: dict[str, Line] = {}

    def prepare(self, specs: Sequence[str]) -> None:
        """Make the calls, see what each needs, and keep it for the rounds, unless it needs more than there is."""
        for spec in specs:
            line: Line = {"spec": spec, "pass": self.work, "length": self.length, "path": "", "rounds": 0, "why": ""}
            self.lines[spec] = line
            try:
                run, line["path"] = call = make_call(spec, self.work, self.length, self.conditions)
                requirements = self.known.get((spec, self.work), Known()), self.work, call.path, self.length
                line["why"] = refusal(*requirements, self.conditions) or ""
                if not line["why"]:
                    line["why"] = self._look(spec, run, too_long_a_record(*requirements))
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise
                line["why"] = "there was not enough memory"

    def timed(self) -> list[Line]:
        """The cells, with times."""
        taken = interleaved(self.candidates, BASE, seconds=self.conditions.seconds, device=self.device)
        for spec, rounds in taken.items():
            line, key = self.lines[spec], (spec, self.work)
            line |= {"milliseconds": 1000 * statistics.median(rounds.values()), "rounds": len(rounds)}
            self.known[key] = self.known[key]._replace(seconds=min(rounds.values()))  # what load has the least part in
            if BASE in taken:
                line["relative"], line["low"], line["high"] = relative(rounds, taken[BASE])
            else:
                line["why"] = f"{BASE} could not be measured here, so there is nothing to compare with"
        return list(self.lines.values())

    def _look(self, spec: str, run: Run, why: str | None) -> str:
        """Make the call once or twice; returns why its memory is not known, if it is not."""
        held: list[tuple[int | None, int]] = []
        look = run if why else lambda: held.append(memory_of(run, self.device))
        seconds = seconds_of(look, self.device)
        if seconds < max(SHORT, self.conditions.seconds):
            seconds = seconds_of(run, self.device)  # the first one was cold, and recorded
        memory, events = held[0] if held else (None, 0)
        self.known[spec, self.work] = Known(self.length, seconds, memory, events)
        self.candidates[spec], self.lines[spec]["memory"] = Candidate(run, seconds), memory
        return why or ("" if memory is not None else f"memory: PyTorch does not tell it on {self.device.type}")


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measure_with_progress(
    specs: Sequence[str], config: Config, lengths: Sequence[int], seconds: float, console: Console, *, command: str
) -> Costs:
    """Measure under a progress bar; without a terminal, print a line for each tenth of the work."""
    tenths = {0}
    with Progress(
        *Progress.get_default_columns(), console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=1.0)

        def tell(share: float, words: str) -> None:
            bar.update(task, completed=share, description=words)
            if not console.is_terminal and int(10 * share) not in tenths:
                tenths.add(int(10 * share))
                console.print(f"{100 * share:.0f} %: {words}")

        return measure_costs(specs, config, lengths=lengths, seconds=seconds, on_progress=tell, command=command)


def costs_of_run(
    out: Path, specs: Sequence[str], config: Config, lengths: Sequence[int], seconds: float, console: Console, *,
    command: str,
) -> Costs:  # fmt: skip
    """The costs of a run's encodings: those measured before, else measured now, while no job of the run works."""
    if (out / FACTS).is_file():
        earlier = read_costs(out)
        if set(specs) <= set(earlier.frame["spec"].astype(str)):
            return earlier
    console.print("Measuring what the encodings cost …", style="dim")
    costs = measure_with_progress(specs, config, lengths, seconds, console, command=command)
    write_costs(out, costs)
    return costs
