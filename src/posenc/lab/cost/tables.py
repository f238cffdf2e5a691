"""Costs as tables of words, for cost.md, a terminal or a page."""

from __future__ import annotations

from dataclasses import dataclass

from posenc.lab.cost.results import BASE, LAYER_PASSES, PASSES, Cost, Costs
from posenc.lab.report.markdown import markdown_table

TITLE = "What encodings cost"
WIDE, MANY = 0.3, 0.2  # quartiles that far apart, as a share of the ratio, in that share of the cells
NOTES = (
    f"Times are medians over rounds that run all encodings one after the other in one process; a ratio is to {BASE} in "
    "the same round, median (quartiles). Memory is what the tensors of one call hold at most at the same time, beyond "
    "inputs and parameters; with a backward pass all gradients are part of it.",
    "A layer alone does for itself what layers of a model share: an embedding is added, and a table of rotations made, "
    "in every call. The whole model does both once.",
    "Encodings have their first values, as before a training, and content is random: what gates (FoX, CoPE) and "
    "stick-breaking may skip is what such content lets them skip. Options that follow the training length do so here; "
    "tables of positions have a row for every position.",
)
LEGEND = (
    "own: parameters of the encoding. train: forward and backward. MiB, path: of a layer in training. kT/s: thousand "
    "tokens a second in training, without the optimizer."
)


@dataclass(frozen=True)
class CostTable:
    """A table of words: a line for each encoding, whose first cell is its name."""

    title: str
    heads: list[str]
    lines: list[list[str]]


def overview(costs: Costs) -> CostTable:
    """One line for each encoding: the layer at the longest length, and the whole model. `LEGEND` explains it."""
    c = costs.conditions
    longest = c.lengths[-1]
    lines = []
    for spec in costs.encodings:
        layer = {work: costs.cell(spec, work, longest) for work in LAYER_PASSES}
        model = costs.cell(spec, "model", c.train_length)
        speed = costs.tokens_per_second(spec)
        lines.append(
            [
                spec, f"{costs.parameters[spec].own:,}", *(ratio(layer[work]) for work in LAYER_PASSES),
                mebibytes(layer["train"]), layer["train"].path or "–", ratio(model),
                "–" if speed is None else f"{speed / 1000:.1f}",
            ]
        )  # fmt: skip
    title = f"One layer at {longest:,} tokens, and training of the whole model; times as multiples of those of {BASE}"
    heads = ["encoding", "own", "forward", "train", "decode", "MiB", "path", "model", "kT/s"]
    return CostTable(title, heads, lines)


def all_tables(costs: Costs) -> list[CostTable]:
    """Every number: the whole model, then time and memory of a layer in each pass, then the paths of attention."""
    layers = [table for work in LAYER_PASSES for table in (_times(costs, work), _memory(costs, work))]
    return [_model(costs), *layers, _paths(costs)]


def missing(costs: Costs) -> list[str]:
    """A line for each cell of which something could not be measured."""
    return [f"{c.encoding}, {PASSES[c.work]}, {c.length:,} tokens: {c.why}." for c in costs.cells if c.why]


def unsteady(costs: Costs) -> list[str]:
    """A line that warns of a busy machine, if the rounds of many cells differ."""
    ratios = [c for c in costs.cells if c.encoding != BASE and c.relative and c.rounds > 1]
    wide = sum((c.high or 0) - (c.low or 0) > WIDE * (c.relative or 0) for c in ratios)
    if wide <= MANY * len(ratios):
        return []
    return [
        f"In {wide} of {len(ratios)} cells the quartiles lie more than {WIDE:.0%} apart: the machine was busy, or "
        "--seconds too short. Quieter numbers are worth another run."
    ]


def markdown(costs: Costs) -> str:
    """cost.md."""
    parts = [f"# {TITLE}\n", *(note + "\n" for note in (*NOTES, *unsteady(costs)))]
    first = overview(costs)
    for table in (first, *all_tables(costs)):
        parts += [f"## {table.title}\n", *markdown_table(table.heads, table.lines), ""]
        parts += [LEGEND + "\n"] if table is first else []
    if missing(costs):
        parts += ["## Not measured\n", *(f"- {line}" for line in missing(costs)), ""]
    return "\n".join(
        [
            *parts,
            f"Command: `{costs.command}`  ",
            f"Settings: {'; '.join(f'{k} {v}' for k, v in costs.conditions.shown().items())}  ",
            f"Versions: {', '.join(f'{k} {v}' for k, v in costs.versions.items())}  ",
            f"Machine: {', '.join(f'{k} {v}' for k, v in costs.machine.items())}",
            "",
        ]
    )


def ratio(cell: Cost) -> str:
    """``1.05``; a dash where nothing was measured."""
    return "–" if cell.relative is None else f"{cell.relative:.2f}"


def mebibytes(cell: Cost) -> str:
    """``12.5``."""
    return "–" if cell.memory is None else f"{cell.memory / 2**20:.1f}"


def milliseconds(cell: Cost) -> str:
    """``0.123``, ``12.3``: three digits that count."""
    took = cell.milliseconds
    if took is None:
        return "–"
    return f"{took:.3f}" if took < 1 else f"{took:.2f}" if took < 10 else f"{took:.1f}" if took < 100 else f"{took:.0f}"


def with_quartiles(cell: Cost) -> str:
    """``1.05 (1.02–1.08)``."""
    if cell.relative is None or cell.low is None or cell.high is None:
        return "–"
    if cell.rounds == 1:
        return f"{cell.relative:.2f} (1 round)"
    return f"{cell.relative:.2f} ({cell.low:.2f}–{cell.high:.2f})"


def _times(costs: Costs, work: str) -> CostTable:
    """Milliseconds of the base, ratios of all others beside theirs."""
    lines = []
    for spec in costs.encodings:
        cells = [costs.cell(spec, work, length) for length in costs.conditions.lengths]
        lines.append([spec, *(part for cell in cells for part in (milliseconds(cell), with_quartiles(cell)))])
    heads = [head for length in costs.conditions.lengths for head in (f"{length:,} tokens, ms", f"× {BASE}")]
    return CostTable(f"One layer, {PASSES[work]}: time", ["encoding", *heads], lines)


def _memory(costs: Costs, work: str) -> CostTable:
    lengths = costs.conditions.lengths
    lines = [[spec, *(mebibytes(costs.cell(spec, work, n)) for n in lengths)] for spec in costs.encodings]
    return CostTable(
        f"One layer, {PASSES[work]}: memory, MiB", ["encoding", *(f"{n:,} tokens" for n in lengths)], lines
    )


def _paths(costs: Costs) -> CostTable:
    """Which path attention takes, by length where it changes."""
    lines = []
    for spec in costs.encodings:
        words = []
        for work in LAYER_PASSES:
            cells = [costs.cell(spec, work, length) for length in costs.conditions.lengths]
            steps = [c for c, before in zip(cells, [None, *cells], strict=False) if not before or before.path != c.path]
            parts = [step.path if step is cells[0] else f"from {step.length:,} {step.path}" for step in steps]
            words.append(", ".join(parts))
        lines.append([spec, *words])
    return CostTable("Paths of attention", ["encoding", *LAYER_PASSES.values()], lines)


def _model(costs: Costs) -> CostTable:
    c, lines = costs.conditions, []
    for spec in costs.encodings:
        counts, speed = costs.parameters[spec], costs.tokens_per_second(spec)
        reads, learns = (costs.cell(spec, work, c.train_length) for work in ("model-forward", "model"))
        lines.append(
            [
                spec, f"{counts.total:,}", f"{counts.own:,}", milliseconds(reads), with_quartiles(reads),
                milliseconds(learns), with_quartiles(learns), "–" if speed is None else f"{speed:,.0f}",
                mebibytes(learns),
            ]
        )  # fmt: skip
    heads = [
        "encoding", "parameters", "own", "forward, ms", f"× {BASE}", "forward + backward, ms", f"× {BASE}",
        "tokens a second", "MiB",
    ]  # fmt: skip
    title = f"The whole model at {c.train_length:,} tokens, batch {c.batch_size}"
    return CostTable(title, heads, lines)
