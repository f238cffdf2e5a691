"""The paragraph that a report of texts opens with. Every word follows from the rows."""

from __future__ import annotations

from posenc.lab.report.standings import ONE_SEED, leading, standings_of
from posenc.lab.text.corpus import Facts
from posenc.lab.text.profiles import Settings
from posenc.lab.text.table import Row
from posenc.lab.text.verdict import DEGRADES, FAILS, FLAT, UNDEFINED, USES_CONTEXT
from posenc.lab.words import join, number, verb

MANY = 6  # names that a sentence can take


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
    standings = standings_of(rows, settings.lengths)
    sentences += [leading(found) for found in standings] or [_best_inside(rows)]
    if any(len(found.seeds) == 1 for found in standings):
        sentences.append(ONE_SEED)
    zlib, lzma = f"{facts.zlib_bits:.2f}", f"{facts.lzma_bits:.2f}"
    sentences.append(f"For the same text, zlib -9 needs {zlib} bits per byte and lzma {lzma}.")
    sentences += _unconverged(rows, facts)
    return " ".join(sentences)


def _count(rows: list[Row]) -> str:
    trained = sum(not row.control for row in rows)
    return (
        f"{trained} small language models that differ only in their positional encoding, each"
        if trained > 1
        else "One small language model,"
    )


def _best_inside(rows: list[Row]) -> str:
    """Without numbers of single windows there is nothing to test."""
    trained = [row for row in rows if not row.control and row.bits[0] is not None]
    if not trained:
        return ""
    best = min(trained, key=lambda row: row.bits[0] or 0.0)
    return f"Inside the trained length {best.spec} needs the fewest, {number(best.bits[0])} bits per byte."


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
    """Names with their changes; of many, the smallest change and the largest."""
    known = sorted((row.changes[-1].mean, row.spec) for row in rows if row.changes[-1] is not None)
    if len(known) > MANY:
        (low, first), (high, last) = known[0], known[-1]
        return f"{len(known)} encodings, from {first} ({low:+.2f}) to {last} ({high:+.2f}),"
    return join([f"{row.spec} ({row.changes[-1].mean:+.2f})" for row in rows if row.changes[-1] is not None])


def _names(rows: list[Row]) -> str:
    return join([row.spec for row in rows])
