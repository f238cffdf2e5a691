"""Numbers as words: the cells of tables, and what is said beside them. Every word follows from the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from posenc.lab.text.corpus import Facts
from posenc.lab.text.profiles import Settings
from posenc.lab.text.table import Row
from posenc.lab.text.verdict import DEGRADES, FAILS, FLAT, UNDEFINED, USES_CONTEXT, Change

if TYPE_CHECKING:
    from posenc.lab.report.standings import Standing

CAUTION = (
    "Flat is the best there is at this scale: a model that never saw longer text has not learnt to use it. The table "
    "measures what a longer context breaks, not what it could be worth."
)
PROTOCOL = (
    "At every length the same bytes are scored, the last {scored} of each of {windows} windows; only the context "
    "before them grows. Change: against 1×, paired over seeds and windows, ± its standard error. Verdict, from the "
    "longest length: fails > 0.3 bit worse; degrades ≥ 0.02 and ≥ 2 standard errors; uses context > 0.01 better and "
    "> 2 standard errors; flat otherwise."
)
MEANINGS = {
    USES_CONTEXT: "better with longer text than at 1×",
    FLAT: "no change that could be told from none",
    DEGRADES: "worse, by less than 0.3 bit",
    FAILS: "more than 0.3 bit worse at the longest length",
    UNDEFINED: "has no rows for longer text",
}
WINDOW_NOTE = (
    "+window: the same checkpoint under a sliding window of the training length; "
    "whoever claims to use longer text has to beat it."
)


def number(value: float | None, digits: int = 3) -> str:
    """A number, or a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


def with_spread(value: float | None, spread: float | None) -> str:
    """A mean over seeds with their standard deviation, if there is one."""
    return number(value) if spread is None else f"{number(value)} ± {number(spread)}"


def change_text(change: Change | None) -> str:
    """``+0.131 ± 0.012``."""
    return "–" if change is None else f"{change.mean:+.3f} ± {change.error:.3f}"


def perplexity_text(row: Row) -> str:
    """``3.04 → 3.33``."""
    first, last = row.perplexities
    return f"{first:.2f} → {number(last, 2)}"


def compressor_line(facts: Facts) -> str:
    """What a reader compares the numbers with."""
    return (
        f"For comparison, bits per byte of the same validation text: entropy of single bytes {facts.entropy_bits:.3f}, "
        f"zlib -9 {facts.zlib_bits:.3f}, lzma {facts.lzma_bits:.3f}."
    )


def amount_text(settings: Settings, facts: Facts) -> str:
    """How much text a model has seen."""
    drawn, there = settings.training_bytes, facts.train_bytes
    times = f"{drawn / there:,.2f}" if drawn < 10 * there else f"{drawn / there:,.0f}"
    return f"Each model was trained on {drawn / 1e6:.3g} MB, drawn from {there / 1e6:.3g} MB: {times} times all of it."


def protocol_text(settings: Settings) -> str:
    """How the numbers were made."""
    return PROTOCOL.format(scored=settings.scored, windows=settings.windows)


def title(settings: Settings) -> str:
    """The headline of a report."""
    return f"Trained on {settings.train_length} bytes, read up to {settings.longest}"


def result_heads(settings: Settings, standings: Sequence[Standing]) -> list[str]:
    """Of the main table."""
    lengths = [f"{k}×" for k in settings.lengths]
    ranks = [f"rank at {found.label}" for found in standings]
    return ["encoding", *ranks, *lengths, f"change at {lengths[-1]}", "byte perplexity", "verdict"]


def result_cells(row: Row, standings: Sequence[Standing]) -> list[str]:
    """A row of the main table."""
    ranks = [found.ranks.get(row.spec, "–") for found in standings]
    bits = [with_spread(b, s) for b, s in zip(row.bits, row.spread, strict=True)]
    return [row.spec, *ranks, *bits, change_text(row.changes[-1]), perplexity_text(row), row.verdict]


def join(parts: list[str]) -> str:
    """``a, b and c``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def verb(subjects: Sequence[object], one: str, many: str) -> str:
    """The form that fits how many they are."""
    return one if len(subjects) == 1 else many


def cost_heads(speed: str, loss: str) -> list[str]:
    """The heads of the second table, with the task's words for speed and loss."""
    gradient = ["gradient norm, median", "p95", "max", "clipped"]
    return ["encoding", "parameters", "of the encoding", speed, loss, *gradient, "peak memory, MB"]


TRAINING_HEADS = cost_heads("kB/s", "loss, bits")


def training_cells(row: Row) -> list[str]:
    """A row of the second table: what a training took. Loss is the mean over the last twentieth of the steps."""
    t = row.training
    return cost_cells(row.spec, t, f"{t['bytes_per_second'] / 1000:.1f}", f"{t['loss_bits']:.3f}")


def cost_cells(spec: str, training: dict[str, float], speed: str, loss: str) -> list[str]:
    """A row of the second table in any task."""
    t = training
    return [
        spec,
        f"{t['parameters']:,.0f}",
        f"{t['encoding_parameters']:,.0f}",
        speed,
        loss,
        f"{t['grad_norm_median']:.2f}",
        f"{t['grad_norm_p95']:.2f}",
        f"{t['grad_norm_max']:.2f}",
        f"{100 * t['clipped_share']:.0f} %",
        f"{t['peak_memory'] / 1e6:.0f}",
    ]
