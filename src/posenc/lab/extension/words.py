"""Numbers of an extension as words. Every word follows from the rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from posenc.lab.extension.methods import BASE
from posenc.lab.extension.settings import CONTINUED, WINDOW, ExtensionSettings
from posenc.lab.extension.table import FIXED, FOLLOWS, TUNED, ExtensionRow, difference
from posenc.lab.report.standings import ONE_SEED, Standing, leading, standing
from posenc.lab.statistics.intervals import Interval
from posenc.lab.words import cost_cells, join, verb, with_spread

CAUTION = (
    "A small model of bytes that was trained on short texts has little use for what lies far back: the most an "
    "extension can do here is to lose nothing. Compare the methods with each other; their losses are not those of a "
    "large model."
)
PROTOCOL = (
    "At every length the same bytes are scored, the last {scored} of each of {windows} windows; only the context "
    "before them grows. Without training, a method's factor is the length itself in trained lengths (its most "
    "favourable case), or fixed where @ says so. Fine-tuned (+tuned): {steps} steps from the same trained model, on "
    "texts of {times}× its length, the same texts and as many bytes a step for all, with the factor {times} at every "
    "length; dynamic_ and clex go with the length by themselves. clex has the same positions as all others, not the "
    "drawn ones of its own recipe. longrope: factors searched on training text, {evaluations} candidates for each "
    "length. The fastest pair turns {turns:.0f} times in the trained length, so yarn and ntk_by_parts leave alone "
    "what turns more than {beta:g} times."
)
WINDOW_NOTE = (
    "{window}: the trained model under a sliding window of the trained length, which costs no training and never sees "
    "a new distance. {continued}: the same after as many bytes more at the trained length; the fine-tuned rows are "
    "compared with that. Against the window: bits more than it at the same length, paired over seeds and windows, ± "
    "standard error. Verdict, at {times}×: fails > 0.3 bit worse; degrades ≥ 0.02 worse and uses context > 0.01 "
    "better, where the 95 % interval leaves 0 out; flat otherwise. Each interval stands for itself: one of twenty "
    "leaves 0 out by chance. Holds to: fails at no length up to it."
)


def protocol_text(settings: ExtensionSettings) -> str:
    """How the numbers were made."""
    s = settings
    return PROTOCOL.format(
        scored=s.scored, windows=s.windows, steps=s.fine_tune_steps, times=s.fine_tune_length,
        evaluations=s.evaluations, turns=s.train_length / 6.283185307179586, beta=s.beta_fast,
    )  # fmt: skip


def window_note(settings: ExtensionSettings) -> str:
    """What rows are compared with, and what verdicts mean."""
    return WINDOW_NOTE.format(window=WINDOW, continued=CONTINUED, times=settings.fine_tune_length)


def title(settings: ExtensionSettings) -> str:
    """The headline of a report."""
    return f"A RoPE model of {settings.train_length} bytes, extended up to {settings.longest}"


def against_text(interval: Interval | None) -> str:
    """``+0.131 ± 0.012``."""
    return "–" if interval is None else f"{interval.mean:+.3f} ± {interval.error:.3f}"


def holds_text(row: ExtensionRow) -> str:
    """``4×``."""
    return "–" if row.holds_to is None else f"{row.holds_to}×" if row.holds_to else "nowhere"


def summary(rows: list[ExtensionRow], settings: ExtensionSettings) -> str:
    """A paragraph for someone who reads nothing else."""
    if not rows:
        return "No job is finished yet."
    sentences = [_what(rows, settings)]
    if all(row.at_judged is None for row in rows):
        return " ".join([*sentences, "Nothing stands beside them to compare with: the sliding window was left out."])
    kinds = {
        kind: [row for row in rows if row.kind == kind and row.at_judged is not None]
        for kind in (FOLLOWS, FIXED, TUNED)
    }
    if kinds[FOLLOWS]:
        sentences += ["Without training:", *_reached(kinds[FOLLOWS])]
    if kinds[FIXED]:
        sentences.append(_price(kinds[FIXED], "A factor fixed at the start costs at 1×"))
    if kinds[TUNED]:
        tuned = f"After {settings.fine_tune_steps} steps at {settings.fine_tune_length}×:"
        sentences += [tuned, *_reached(kinds[TUNED]), *_beside_plain(kinds[TUNED])]
        sentences.append(_price(kinds[TUNED], "Their price at 1×"))
    for found in standings(rows, settings):
        sentences += [leading(found), *([ONE_SEED] if len(found.seeds) == 1 else [])]
    return " ".join(sentences)


def _what(rows: list[ExtensionRow], settings: ExtensionSettings) -> str:
    methods = {row.reading.method for row in rows} - {BASE}
    seeds = max(row.seeds for row in rows)
    models = "One small model with RoPE" if seeds == 1 else f"{seeds} small models with RoPE"
    ways = f", its frequencies scaled in {len(methods)} ways" if len(methods) > 1 else ""
    return (
        f"{models}, trained on {settings.train_length} bytes at a time and read up to {settings.lengths[-1]}× that "
        f"length{ways}."
    )


def _reached(rows: list[ExtensionRow]) -> list[str]:
    """Who beats the window, and who fails where."""
    sentences = []
    better: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for row in rows:
        better[tuple(row.better_at)].append(row.spec)
    for lengths, specs in better.items():
        if lengths:
            at = join([f"{k}×" for k in lengths])
            sentences.append(f"{join(specs)} {verb(specs, 'beats', 'beat')} the sliding window at {at}.")
    if not any(better):
        sentences.append("nobody beats the sliding window at any length.")
    reached: dict[int, list[str]] = defaultdict(list)
    for row in rows:
        reached[max(1, row.holds_to or 0)].append(row.spec)
    parts = [
        f"{join(specs)} {f'up to {k}×' if k > 1 else 'at no longer length'}"
        for k, specs in sorted(reached.items(), reverse=True)
    ]
    sentences.append(f"Within 0.3 bit of it {verb(rows, 'stays', 'stay')} {'; '.join(parts)}.")
    return sentences


def _beside_plain(rows: list[ExtensionRow]) -> list[str]:
    """What scaling adds to the fine-tuning."""
    plain = next((row for row in rows if row.reading.method == BASE), None)
    others = [row for row in rows if row is not plain]
    if plain is None or not others:
        return []
    place = plain.lengths.index(plain.judged)
    found: dict[str, list[str]] = defaultdict(list)
    for row in others:
        interval = difference(row.runs, plain.runs, place)
        if interval is not None and (interval.high < 0 or interval.low > 0):
            found["better" if interval.mean < 0 else "worse"].append(f"{row.spec} ({interval.mean:+.3f})")
    told = [f"{word}: {join(found[word])}" for word in ("better", "worse") if found[word]]
    rest = "nobody is better or worse beyond doubt" if not told else "; ".join(told)
    return [f"Against {plain.spec}, which has no scaling, at {plain.judged}×: {rest}."]


def _price(rows: list[ExtensionRow], words: str) -> str:
    """What rows cost where the model was trained."""
    costs = [f"{row.spec} {row.against[0].mean:+.2f}" for row in rows if row.against[0] is not None]
    return f"{words}: {', '.join(costs)} bits."


def standings(rows: list[ExtensionRow], settings: ExtensionSettings) -> list[Standing]:
    """Ranks of all rows together at the judged length."""
    judged = settings.fine_tune_length
    found = standing(rows, settings.lengths.index(judged), f"{judged}×")
    return [] if found is None else [found]


def heads(settings: ExtensionSettings, ranked: Sequence[Standing] = ()) -> list[str]:
    """Of the main table."""
    lengths, judged = [f"{k}×" for k in settings.lengths], settings.fine_tune_length
    ranks = [f"rank at {found.label}" for found in ranked]
    return [
        "method",
        *ranks,
        *lengths,
        "against the window, 1×",
        f"against it, {judged}×",
        "holds to",
        f"verdict at {judged}×",
    ]


def cells(row: ExtensionRow, ranked: Sequence[Standing] = ()) -> list[str]:
    """A row of the main table."""
    ranks = [found.ranks.get(row.spec, "–") for found in ranked]
    bits = [with_spread(mean, spread) for mean, spread in zip(row.bits, row.spread, strict=True)]
    against = [against_text(interval) for interval in (row.against[0], row.at_judged)]
    return [row.spec, *ranks, *bits, *against, holds_text(row), row.verdict]


def training_cells(row: ExtensionRow) -> list[str]:
    """A row of the second table: what a training took."""
    t = row.training
    return cost_cells(row.spec, t, f"{t['bytes_per_second'] / 1000:.1f}", f"{t['loss_bits']:.3f}")
