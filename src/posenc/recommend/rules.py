"""The rules: from needs to choices."""

from __future__ import annotations

from posenc.catalogue import CATALOGUE, Entry, find
from posenc.catalogue.studies import Study, StudyRow, that_ask
from posenc.recommend.needs import TASKS, Needs
from posenc.recommend.reason import TABLE, Answer, Choice, Reason, amount, by_catalogue, compared, of, shown
from posenc.recommend.stretch import stretched

CHOICES = 3  # that are told
_GOOD = ("equivalent", "better")
_BY_DEFINITION = {  # tasks whose encoding follows from what positions are there, with the fact that says so
    "images": ("axial", "places have a row and a column, and each axis turns channels of its own"),
    "video": ("mrope", "places have a time, a row and a column, and texts beside pictures stay in one order"),
    "arithmetic": ("abacus", "a digit is told its place within its number"),
}


def recommend(needs: Needs) -> Answer:
    """What to take.

    >>> recommend(Needs(model="checkpoint", train_length=4096, length=4096)).choices[0].spec
    'rope'
    """
    if needs.model == "checkpoint":
        return stretched(needs)
    asked = that_ask(TASKS[needs.task])
    remarks = [*_of_engines(needs), *_of_measurements(needs, asked)]
    found = [choice for study in asked[:1] for choice in _measured(needs, study, asked)]
    if needs.task in _BY_DEFINITION:
        name, why = _BY_DEFINITION[needs.task]
        first = Choice(name, "made for this kind of place", (by_catalogue(CATALOGUE[name], why + "."),))
        found = [first, *(choice for choice in found if choice.spec != name)]
    return Answer(tuple(found[:CHOICES] or _usual(needs)), tuple(remarks))


def _measured(needs: Needs, study: Study, asked: list[Study]) -> list[Choice]:
    """What was best at the length that is asked for, of what learnt the task and bears the length.

    Rows within the margin of the best come in the order of how surely they are there: first those that bear the length
    wherever they were asked, then those with more trainings, then by their means.
    """
    at = _measured_times(needs, study)
    bears = [
        row for row in study.ranked(at)
        if row.learned and (needs.times == 1 or row.verdict in _GOOD) and _served(row.name, needs.engine)
    ]  # fmt: skip
    level = _level(bears, study, at)
    if needs.times > 1:
        level.sort(key=lambda row: (_breaks(row.name, asked), -_trainings(row.name, asked)))
    ordered = [*level, *bears[len(level) :]]
    return [_choice(row, study, at, asked, level) for row in ordered[:CHOICES]]


def _level(ranked: list[StudyRow], study: Study, at: int) -> list[StudyRow]:
    """Of rows from the best to the worst, those that are no farther from the best than counts as no change."""
    means = [row.means[at * study.train_length][0] for row in ranked]
    return [row for row, mean in zip(ranked, means, strict=True) if abs(mean - means[0]) <= study.margin]


def _breaks(name: str, asked: list[Study]) -> int:
    """How many comparisons do not say that a row bears the length."""
    return sum(one.rows[name].verdict not in _GOOD for one in asked if name in one.rows)


def _trainings(name: str, asked: list[Study]) -> int:
    return sum(one.rows[name].seeds for one in asked if name in one.rows)


def _choice(row: StudyRow, study: Study, at: int, asked: list[Study], level: list[StudyRow]) -> Choice:
    reasons = []
    for one in asked:
        its = one.rows.get(row.name)
        length = min(at, one.longest) * one.train_length
        if its is None or length not in its.means:
            continue
        values = f"{shown(its.means[length][0], one)} at {length // one.train_length}×"
        if length > one.train_length and one.train_length in its.means:
            values += f", {shown(its.means[one.train_length][0], one)} at the trained length; verdict: {its.verdict}"
        reasons.append(Reason(f"{row.name} in {one.name}: {values}.", "as recorded", of(one)))
    most = max((one for one in asked if row.name in one.rows), key=lambda one: one.rows[row.name].seeds)
    reasons += compared(most.rows[row.name], most, at)
    reasons += [by_catalogue(entry, f"{entry.name} costs: {entry.cost}.") for entry in entries_of(row.name)]
    return Choice(row.name, _place(row, study, at, level), tuple(reasons))


def _place(row: StudyRow, study: Study, at: int, level: list[StudyRow]) -> str:
    """Where a row stands among all of its table, or among those that are within the margin of the best."""
    if len(level) > 1 and row in level:
        bear = "" if at == 1 else f" that bear {at}×,"
        return f"one of {len(level)}{bear} within {amount(study.margin, study)} of the best of them in {study.name}"
    ranked = [one.name for one in study.ranked(at)]
    return f"number {ranked.index(row.name) + 1} of {len(ranked)} at {at}× in {study.name}"


def _measured_times(needs: Needs, study: Study) -> int:
    """The measured length to look at: the first that is not shorter, or the longest."""
    measured = sorted({n // study.train_length for row in study.rows.values() for n in row.means})
    return next((times for times in measured if times >= needs.times), measured[-1])


def _of_measurements(needs: Needs, asked: list[Study]) -> list[Reason]:
    """What the measurements do not say."""
    if not asked:
        return [Reason(f"No recorded comparison asks for {needs.task}.", "not measured", TABLE)]
    longest = max(study.longest for study in asked)
    said = []
    if needs.times > longest:
        words = f"Measured up to {longest}× the trained length; {needs.times}× is farther than that."
        said.append(Reason(words, "not measured", of(asked[0])))
    for study in asked:
        seeds, learnt = sorted({row.seeds for row in study.rows.values()}), sum(r.learned for r in study.rows.values())
        times = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"{seeds[0]}"
        words = (
            f"{study.name}: small models of one size, trained at {study.train_length} tokens, {times} "
            f"training{'s' * (seeds[-1] > 1)} each; {learnt} of {len(study.rows)} rows learnt the task, and only these "
            "are judged. Rows whose intervals overlap are not told apart."
        )
        said.append(Reason(words, "as recorded", of(study)))
    return said


def _of_engines(needs: Needs) -> list[Reason]:
    if needs.engine in ("any", "transformers"):
        return []
    words = (
        f"{needs.engine} turns queries and keys by a list of frequencies; of the catalogue it is given rotations with "
        "a fixed spectrum, and nothing else without code of your own."
    )
    return [Reason(words, "by definition", "docs/huggingface.md")]


def _usual(needs: Needs) -> list[Choice]:
    """Where nothing measured decides."""
    entry = CATALOGUE["rope"]
    reasons = [
        Reason("Nothing that was measured decides here.", "not measured", TABLE),
        by_catalogue(entry, f"Released models have it: {entry.used_in}."),
        by_catalogue(entry, f"It can be extended later: {entry.extension}."),
    ]
    if needs.times > 1:
        reasons.append(by_catalogue(entry, f"Past the trained length: {entry.past_training}; give it a window."))
    return [Choice("rope", "what most models have", tuple(reasons))]


def entries_of(spec: str) -> list[Entry]:
    """The catalogue's entries in a list of encodings, whatever its windows and schedule."""
    words = [part.split("@")[0].split(":")[0] for line in spec.split("/") for part in line.split("+")]
    return [find(word) for word in dict.fromkeys(words) if word in CATALOGUE]


def _served(spec: str, engine: str) -> bool:
    """Whether an engine takes it without code of one's own."""
    if engine in ("any", "transformers"):
        return True
    entries = entries_of(spec)
    return len(entries) == 1 and (entries[0].encoding is CATALOGUE["rope"].encoding)
