"""Numbers as words: cells of tables, and the paragraph that a report opens with. Every word follows from the rows."""

from __future__ import annotations

from collections.abc import Sequence

from posenc.lab.corpus import Facts
from posenc.lab.profiles import Settings
from posenc.lab.table import Row
from posenc.lab.verdict import DEGRADES, FAILS, FLAT, UNDEFINED, USES_CONTEXT, Change

CAUTION = (
    "Flat is the best there is at this scale: a model that never saw longer text has not learnt to use it. The table "
    "measures what a longer context breaks, not what it could be worth."
)
PROTOCOL = (
    "At every length the same bytes are scored, the last {scored} of each of {windows} windows; only the context "
    "before them grows. Change: against 1×, paired over windows, ± its standard error. Verdict, from the longest "
    "length: fails > 0.3 bit worse; degrades ≥ 0.02 and ≥ 2 standard errors; uses context > 0.01 better and > 2 "
    "standard errors; flat otherwise."
)
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


def protocol_text(settings: Settings) -> str:
    """How the numbers were made."""
    return PROTOCOL.format(scored=settings.scored, windows=settings.windows)


def title(settings: Settings) -> str:
    """The headline of a report."""
    return f"Trained on {settings.train_length} bytes, read up to {settings.longest}"


def summary(rows: list[Row], settings: Settings, facts: Facts) -> str:
    """A paragraph for someone who reads nothing else."""
    if not rows:
        return "No job is finished yet."
    longest = f"{settings.lengths[-1]}×"
    groups = {
        word: [row for row in rows if row.verdict == word] for word in (USES_CONTEXT, FLAT, DEGRADES, FAILS, UNDEFINED)
    }
    sentences = [
        f"{_count(rows)} trained on {settings.train_length} bytes at a time and read up to {longest} that length."
    ]
    if groups[USES_CONTEXT]:
        sentences.append(
            f"{_names(groups[USES_CONTEXT])} {verb(groups[USES_CONTEXT], 'gains', 'gain')} from longer text."
        )
    if groups[FLAT]:
        sentences.append(f"{_names(groups[FLAT])} {verb(groups[FLAT], 'stays', 'stay')} flat.")
    if groups[DEGRADES]:
        sentences.append(f"{_with_changes(groups[DEGRADES])} {verb(groups[DEGRADES], 'degrades', 'degrade')}.")
    if groups[FAILS]:
        sentences.append(f"{_with_changes(groups[FAILS])} {verb(groups[FAILS], 'fails', 'fail')}.")
    if groups[UNDEFINED] and len(settings.lengths) > 1:
        sentences.append(
            f"{_names(groups[UNDEFINED])} {verb(groups[UNDEFINED], 'has', 'have')} no meaning past the trained rows."
        )
    sentences.append(_best_inside(rows, facts))
    sentences += _unconverged(rows, facts)
    return " ".join(sentences)


def _count(rows: list[Row]) -> str:
    trained = sum(not row.control for row in rows)
    return (
        f"{trained} small language models that differ only in their positional encoding, each"
        if trained > 1
        else "One small language model,"
    )


def _best_inside(rows: list[Row], facts: Facts) -> str:
    trained = [row for row in rows if not row.control and row.bits[0] is not None]
    if not trained:
        return ""
    best = min(trained, key=lambda row: row.bits[0] or 0.0)
    return (
        f"Inside the trained length {best.spec} is best with {number(best.bits[0])} bits per byte "
        f"(zlib -9 needs {facts.zlib_bits:.2f}, lzma {facts.lzma_bits:.2f})."
    )


def _unconverged(rows: list[Row], facts: Facts) -> list[str]:
    # A model that has learnt the text is ahead of a compressor that only looks for repetitions.
    behind = [row for row in rows if not row.control and (row.bits[0] or 0.0) > facts.zlib_bits]
    if not behind:
        return []
    if len(behind) == sum(not row.control for row in rows):
        return ["None of them needs less than zlib at 1×: this training is too short to judge by."]
    return [
        f"{_names(behind)} {verb(behind, 'needs', 'need')} more than zlib even at 1×, far from converged at this "
        "budget: no final judgement."
    ]


def _with_changes(rows: list[Row]) -> str:
    return join([f"{row.spec} ({row.changes[-1].mean:+.2f})" for row in rows if row.changes[-1] is not None])


def _names(rows: list[Row]) -> str:
    return join([row.spec for row in rows])


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
