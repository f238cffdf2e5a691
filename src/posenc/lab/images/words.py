"""Numbers as words: cells of tables, and the paragraph that a report opens with. Every word follows from the rows."""

from __future__ import annotations

from posenc.lab.images.measure import FINER, LARGE, SHIFT, TRAINED
from posenc.lab.images.pictures import PictureFacts
from posenc.lab.images.settings import ImageSettings
from posenc.lab.images.table import COLLAPSES, LEAKS, UNDEFINED, UNMOVED, ImageRow
from posenc.lab.report.accuracy import apart, percent
from posenc.lab.words import cost_cells, cost_heads, join, verb

CAUTION = (
    "Ranges run from the worst to the best seed. Encodings whose ranges overlap, or that are less than three standard "
    "errors of this many pictures apart, are not ranked here: on another grid the seeds of one encoding may lie 30 "
    "points apart. Enlarging changes the content of a patch as well as its place, and everything drops; finer tokens "
    "change the place alone and are the better test. Small grey pictures say nothing about photographs."
)
PROTOCOL = (
    "Per cent of {test} held-out pictures that are recognised: mean over seeds (lowest–highest). Trained: as in "
    "training, {grid} × {grid} tokens. Moved: the picture shifted by one token, mean of the eight directions. +k: the "
    "picture stays, k tokens are added to both coordinates of every position. Finer: overlapping patches, "
    "{finer} × {finer} tokens. Large: everything twice as large, {double} × {double} tokens. Scaled: coordinates of "
    "the trained grid, between its whole numbers; counted: 0, 1, 2, …, past the trained ones. A dash: coordinates "
    "outside a learned table. Verdict, on +k: unmoved, within half a point with every seed and constant; collapses, "
    "more than half is lost with every seed at the smallest constant; leaks otherwise. Rows stand in the order of the "
    "catalogue."
)
MEANINGS = {
    UNMOVED: "a constant added to all positions changes nothing",
    LEAKS: "a constant costs something",
    COLLAPSES: "the smallest constant costs more than half",
    UNDEFINED: "a constant leads out of its table",
}
LABELS = {
    TRAINED: "trained", SHIFT: "moved", FINER[0]: "finer, scaled", FINER[1]: "finer, counted",
    LARGE[0]: "large, scaled", LARGE[1]: "large, counted",
}  # fmt: skip


def label(test: str) -> str:
    """How a test is called in tables."""
    return LABELS.get(test, test)


def title(settings: ImageSettings) -> str:
    """The headline of a report."""
    n = settings.grid
    return f"Trained on {n} × {n} tokens, moved, and read on {2 * n - 1} × {2 * n - 1} and {2 * n} × {2 * n}"


def protocol_text(settings: ImageSettings, facts: PictureFacts) -> str:
    """How the numbers were made."""
    n = settings.grid
    return PROTOCOL.format(test=facts.test_images, grid=n, finer=2 * n - 1, double=2 * n)


def summary(rows: list[ImageRow], settings: ImageSettings, facts: PictureFacts) -> str:
    """A paragraph for someone who reads nothing else."""
    if not rows:
        return "No job is finished yet."
    seeds = min(row.seeds for row in rows)
    each = "one seed" if seeds == 1 else f"{seeds} seeds"
    count = f"{len(rows)} small vision transformers that differ only in their positional encoding"
    sentences = [
        f"{count if len(rows) > 1 else 'One small vision transformer'}, trained with {each} on "
        f"{facts.train_images:,} pictures of {settings.grid} × {settings.grid} tokens.",
        *_inside(rows, seeds, facts.test_images),
        *_constants(rows),
        *_finer(rows, seeds, facts.test_images),
    ]
    return " ".join(sentences)


def _inside(rows: list[ImageRow], seeds: int, pictures: int) -> list[str]:
    found = {row.spec: accuracy for row in rows if (accuracy := row.accuracy(TRAINED)) is not None}
    if len(found) < 2:
        return []
    if seeds == 1:
        return ["One seed ranks nothing: what follows compares each encoding with itself."]
    best = max(found.values())
    level = [spec for spec, accuracy in found.items() if not apart(best, accuracy, pictures)]
    behind = [f"{spec} ({percent(a.mean)} %)" for spec, a in found.items() if apart(best, a, pictures)]
    low, high = min(found[spec].low for spec in level), max(found[spec].high for spec in level)
    reach = f"{percent(low)} to {percent(high)} %" if percent(low) != percent(high) else f"{percent(low)} %"
    if len(level) == 1:
        sentences = [f"As trained, {level[0]} is ahead of all others with every seed ({reach})."]
    else:
        sentences = [f"As trained, {join(level)} cannot be told from the best ({reach})."]
    return sentences + ([f"{join(behind)} {verb(behind, 'is', 'are')} behind with every seed."] if behind else [])


def _constants(rows: list[ImageRow]) -> list[str]:
    groups = {word: [row for row in rows if row.verdict == word] for word in (UNMOVED, LEAKS, COLLAPSES, UNDEFINED)}
    sentences = []
    if groups[UNMOVED]:
        sentences.append(f"A constant added to all positions changes nothing for {_names(groups[UNMOVED])}.")
    for word, one, many in ((LEAKS, "loses", "lose"), (COLLAPSES, "collapses", "collapse")):
        if groups[word]:
            named = [_with_loss(row) for row in groups[word]]
            sentences.append(f"{join(named)} {verb(named, one, many)}{' by it' if word == LEAKS else ''}.")
    if groups[UNDEFINED]:
        specs = groups[UNDEFINED]
        sentences.append(f"{_names(specs)} {verb(specs, 'ends at its table', 'end at their tables')}.")
    return sentences


def _with_loss(row: ImageRow) -> str:
    """What a seed loses at most in its mean over seeds, and with which constant."""
    before = row.accuracy(TRAINED)
    after = {test: found.mean for test in row.constants if (found := row.accuracy(test)) is not None}
    if before is None or not after:
        return row.spec
    worst = min(after, key=after.__getitem__)
    return f"{row.spec} ({percent(before.mean)} → {percent(after[worst])} % at {worst})"


def _finer(rows: list[ImageRow], seeds: int, pictures: int) -> list[str]:
    # Who does not read positions has the same number twice.
    reading = [row for row in rows if row.of_seeds[FINER[0]] != row.of_seeds[FINER[1]]]
    pairs = [(row, row.accuracy(FINER[0]), row.accuracy(FINER[1])) for row in reading]
    known = [(row, scaled, counted) for row, scaled, counted in pairs if scaled is not None and counted is not None]
    better = [row for row, scaled, counted in known if apart(scaled, counted, pictures)]
    if not better:
        return []
    which = "all encodings that have both" if len(better) == len(known) > 1 else _names(better)
    return [
        f"On finer tokens, coordinates scaled to the trained grid do better than counted ones for {which}"
        f"{', with every seed' if seeds > 1 else ''}."
    ]


def _names(rows: list[ImageRow]) -> str:
    return join([row.spec for row in rows])


TRAINING_HEADS = cost_heads("images/s", "loss")


def training_cells(row: ImageRow) -> list[str]:
    """A row of the second table: what a training took. Loss is the mean over the last twentieth of the steps, nats."""
    t = row.training
    return cost_cells(row.spec, t, f"{t['images_per_second']:,.0f}", f"{t['loss']:.3f}")
