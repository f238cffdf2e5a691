"""Numbers as words: cells of tables, and the paragraph that a report opens with. Every word follows from the rows."""

from __future__ import annotations

from collections.abc import Sequence

from posenc.lab.report.accuracy import percent, with_spread
from posenc.lab.report.scale import WRONG
from posenc.lab.report.standings import ONE_SEED, Standing, leading, standings_of
from posenc.lab.sequences.puzzle import Puzzle
from posenc.lab.sequences.settings import SequenceSettings
from posenc.lab.sequences.table import COLLAPSES, DECLINES, HOLDS, UNDEFINED, UNLEARNT, SequenceRow
from posenc.lab.words import WINDOW_NOTE, cost_cells, cost_heads, join, verb

AnyPuzzle = Puzzle[SequenceSettings]

SOLVED = 0.95  # who holds less than that, holds a part
CAUTION = (
    "Ranges run from the worst to the best seed. What a small model has not learnt in so few steps, a larger one may; "
    "what it loses past the trained length says more. One task is one ability: an encoding that fails here may be the "
    "better one elsewhere."
)
MEANINGS = {
    HOLDS: "every seed keeps 95 % of what it can",
    DECLINES: "loses some of it with length",
    COLLAPSES: "every seed loses more than half",
    UNLEARNT: "not learnt at the training length either",
    UNDEFINED: "has no rows for longer sequences",
}
PROTOCOL = (
    "Per cent of {unit} right, on {count} sequences of each length, the same for all: mean over seeds "
    "(lowest–highest). The model is shown the right answers before the one that it gives. Trained on lengths from "
    "{least} to {most} tokens. {guess} A dash: past a learned table. Verdict, from the longest length: not learnt, at "
    "the training length less than half way from guessing to all right; holds, every seed keeps 95 % of what is above "
    "guessing at the training length; collapses, every seed loses more than half of it; declines otherwise. Rows stand "
    "in the order of the catalogue."
)


def title(puzzle: AnyPuzzle, settings: SequenceSettings) -> str:
    """The headline of a report."""
    return f"{puzzle.title}: trained up to {settings.train_length} tokens, asked up to {settings.tested[-1]:,}"


def unit(puzzle: AnyPuzzle) -> str:
    """What is counted, before the word right."""
    return "sequences with all answers" if puzzle.whole else "answers that are"


def other_unit(puzzle: AnyPuzzle) -> str:
    """The same of the second table of results."""
    return "answers that are" if puzzle.whole else "sequences with all answers"


def protocol_text(rows: list[SequenceRow], puzzle: AnyPuzzle, settings: SequenceSettings) -> str:
    """How the numbers were made; ``rows`` are those of the table."""
    chance, trained = puzzle.chance(settings), puzzle.trained_lengths(settings)
    guess = f"Guessing gets {100 * chance:.3g} %." if chance else "Guessing gets next to nothing."
    text = PROTOCOL.format(
        unit=unit(puzzle), count=settings.windows, least=trained[0], most=trained[-1], guess=guess
    )  # fmt: skip
    return f"{text} {WINDOW_NOTE}" if any(row.control for row in rows) else text


def introduction(puzzle: AnyPuzzle) -> str:
    """What is asked, and what it shows."""
    return f"{puzzle.asked} {puzzle.shows}"


def summary(rows: list[SequenceRow], puzzle: AnyPuzzle, settings: SequenceSettings) -> str:
    """A paragraph for someone who reads nothing else."""
    if not rows:
        return "No job is finished yet."
    trained, seeds = [row for row in rows if not row.control], min(row.seeds for row in rows)
    each = "one seed" if seeds == 1 else f"{seeds} seeds"
    count = f"{len(trained)} small models that differ only in their positional encoding"
    groups = {
        word: [r for r in rows if r.verdict == word] for word in (HOLDS, DECLINES, COLLAPSES, UNDEFINED, UNLEARNT)
    }
    sentences = [
        f"{count if len(trained) > 1 else 'One small model'}, trained with {each} on sequences of up to "
        f"{settings.train_length} tokens and asked up to {settings.lengths[-1]}× that length.",
    ]
    longest = f"{settings.lengths[-1]}×"
    if groups[HOLDS] and len(settings.lengths) > 1:
        named = [row.spec if row.first.mean >= SOLVED else _with_first(row) for row in groups[HOLDS]]
        sentences.append(f"{join(named)} {verb(named, 'holds', 'hold')} up to {longest}.")
    for word, one, many in ((DECLINES, "declines", "decline"), (COLLAPSES, "collapses", "collapse")):
        if groups[word]:
            named = [f"{row.spec} ({_change(row)})" for row in groups[word]]
            sentences.append(f"{join(named)} {verb(named, one, many)}.")
    if groups[UNDEFINED]:
        sentences.append(
            f"{_names(groups[UNDEFINED])} {verb(groups[UNDEFINED], 'has', 'have')} no meaning past the trained rows."
        )
    if groups[UNLEARNT]:
        named = [_with_first(row) for row in groups[UNLEARNT]]
        sentences.append(
            f"{join(named)} {verb(named, 'has', 'have')} not learnt the task in {settings.steps:,} steps: no judgement "
            "about length."
        )
    found = standings(rows, settings)
    sentences += [leading(one) for one in found]
    if any(len(one.seeds) == 1 for one in found):
        sentences.append(ONE_SEED)
    return " ".join(sentences)


def standings(rows: list[SequenceRow], settings: SequenceSettings) -> list[Standing]:
    """Ranks at the training length and at the longest one, by what is wrong."""
    return standings_of(rows, settings.lengths, WRONG)


def _with_first(row: SequenceRow) -> str:
    return f"{row.spec} ({percent(row.first.mean)} %)"


def _change(row: SequenceRow) -> str:
    last = row.accuracy(list(row.of_seeds)[-1])
    return f"{percent(row.first.mean)} → {percent(last.mean if last else 0.0)} %"


def _names(rows: list[SequenceRow]) -> str:
    return join([row.spec for row in rows])


def heads(settings: SequenceSettings, ranked: Sequence[Standing] = ()) -> list[str]:
    """Of the main table."""
    ranks = [f"rank at {found.label}" for found in ranked]
    return ["encoding", *ranks, *(f"{k}×" for k in settings.lengths), "verdict"]


def cells(row: SequenceRow, ranked: Sequence[Standing] = ()) -> list[str]:
    """A row of the main table."""
    ranks = [found.ranks.get(row.spec, "–") for found in ranked]
    return [row.spec, *ranks, *(with_spread(row.accuracy(test)) for test in row.of_seeds), row.verdict]


def other_cells(row: SequenceRow) -> list[str]:
    """A row of the table of the other count."""
    return [row.spec, *(with_spread(row.other(test)) for test in row.others)]


TRAINING_HEADS = cost_heads("sequences/s", "loss")


def training_cells(row: SequenceRow) -> list[str]:
    """A row of the last table: what a training took. Loss is the mean over the last twentieth of the steps, nats."""
    t = row.training
    return cost_cells(row.spec, t, f"{t['sequences_per_second']:,.0f}", f"{t['loss']:.3f}")
