"""The rules: from needs to choices."""

from __future__ import annotations

from posenc.catalogue import CATALOGUE, Entry, find
from posenc.catalogue.studies import Study, StudyRow, that_ask
from posenc.recommend.context_extension import recommend_extension
from posenc.recommend.needs import TASKS, Needs
from posenc.recommend.reason import TABLE, Answer, Choice, Reason, amount, by_catalogue, compared, of, shown

CHOICES = 3  # that are listed
_GOOD = ("equivalent", "better")
_BY_DEFINITION = {  # tasks whose encoding follows from their positions, and why
    "images": ("axial", "positions have a row and a column, and each axis rotates its own channels"),
    "video": ("mrope", "positions have a time, a row and a column, and text tokens between images keep their order"),
    "arithmetic": ("abacus", "each digit gets its place within its number"),
}


def recommend(needs: Needs) -> Answer:
    """The encodings or the method of context extension that fit the needs, best first.

    >>> recommend(Needs(model="checkpoint", train_length=4096, length=4096)).choices[0].spec
    'rope'
    """
    if needs.model == "checkpoint":
        return recommend_extension(needs)
    studies = that_ask(TASKS[needs.task])
    remarks = [*_of_engines(needs), *_of_measurements(needs, studies)]
    choices = [choice for study in studies[:1] for choice in _measured(needs, study, studies)]
    if needs.task in _BY_DEFINITION:
        name, why = _BY_DEFINITION[needs.task]
        first = Choice(name, "designed for this kind of position", (by_catalogue(CATALOGUE[name], why + "."),))
        choices = [first, *(choice for choice in choices if choice.spec != name)]
    return Answer(tuple(choices[:CHOICES] or _usual(needs)), tuple(remarks))


def _measured(needs: Needs, study: Study, studies: list[Study]) -> list[Choice]:
    """The best rows at the needed length, of those that learned the task and extrapolate to the length.

    Rows within the margin of the best are ordered by evidence: first those that extrapolate in all comparisons that
    have them, then those with more training runs, then by their means.
    """
    at = _measured_times(needs, study)
    fitting = [
        row for row in study.ranked(at)
        if row.learned and (needs.times == 1 or row.verdict in _GOOD) and _works_with(row.name, needs.engine)
    ]  # fmt: skip
    level = _level(fitting, study, at)
    if needs.times > 1:
        level.sort(key=lambda row: (_failures(row.name, studies), -_seeds(row.name, studies)))
    ordered = [*level, *fitting[len(level) :]]
    return [_choice(row, study, at, studies, level) for row in ordered[:CHOICES]]


def _level(ranked: list[StudyRow], study: Study, at: int) -> list[StudyRow]:
    """Of rows from the best to the worst, those within the margin of the best."""
    means = [row.means[at * study.train_length][0] for row in ranked]
    return [row for row, mean in zip(ranked, means, strict=True) if abs(mean - means[0]) <= study.margin]


def _failures(name: str, studies: list[Study]) -> int:
    """Number of comparisons in which a row does not extrapolate to the length."""
    return sum(study.rows[name].verdict not in _GOOD for study in studies if name in study.rows)


def _seeds(name: str, studies: list[Study]) -> int:
    return sum(study.rows[name].seeds for study in studies if name in study.rows)


def _choice(row: StudyRow, study: Study, at: int, studies: list[Study], level: list[StudyRow]) -> Choice:
    reasons = []
    for other in studies:
        its = other.rows.get(row.name)
        length = min(at, other.longest) * other.train_length
        if its is None or length not in its.means:
            continue
        values = f"{shown(its.means[length][0], other)} at {length // other.train_length}×"
        if length > other.train_length and other.train_length in its.means:
            values += (
                f", {shown(its.means[other.train_length][0], other)} at the trained length; verdict: {its.verdict}"
            )
        reasons.append(Reason(f"{row.name} in {other.name}: {values}.", "as recorded", of(other)))
    most = max((other for other in studies if row.name in other.rows), key=lambda other: other.rows[row.name].seeds)
    reasons += compared(most.rows[row.name], most, at)
    reasons += [by_catalogue(entry, f"{entry.name} costs: {entry.cost}.") for entry in entries_of(row.name)]
    return Choice(row.name, _place(row, study, at, level), tuple(reasons))


def _place(row: StudyRow, study: Study, at: int, level: list[StudyRow]) -> str:
    """The rank of a row in its table, or among the rows within the margin of the best."""
    if len(level) > 1 and row in level:
        good = "" if at == 1 else f" that extrapolate to {at}×,"
        return f"one of {len(level)}{good} within {amount(study.margin, study)} of the best of them in {study.name}"
    ranked = [ranked_row.name for ranked_row in study.ranked(at)]
    return f"number {ranked.index(row.name) + 1} of {len(ranked)} at {at}× in {study.name}"


def _measured_times(needs: Needs, study: Study) -> int:
    """The measured length to look at: the first that is not shorter, or the longest."""
    measured = sorted({n // study.train_length for row in study.rows.values() for n in row.means})
    return next((times for times in measured if times >= needs.times), measured[-1])


def _of_measurements(needs: Needs, studies: list[Study]) -> list[Reason]:
    """The limits of the measurements."""
    if not studies:
        return [Reason(f"No recorded comparison asks for {needs.task}.", "not measured", TABLE)]
    longest = max(study.longest for study in studies)
    reasons = []
    if needs.times > longest:
        words = f"Measured up to {longest}× the trained length; {needs.times}× is farther than that."
        reasons.append(Reason(words, "not measured", of(studies[0])))
    for study in studies:
        seeds, learned = sorted({row.seeds for row in study.rows.values()}), sum(r.learned for r in study.rows.values())
        times = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"{seeds[0]}"
        words = (
            f"{study.name}: small models of one size, trained at {study.train_length} tokens, {times} "
            f"training{'s' * (seeds[-1] > 1)} each; {learned} of {len(study.rows)} rows learned the task, and only "
            "these are judged. Rows whose intervals overlap are not told apart."
        )
        reasons.append(Reason(words, "as recorded", of(study)))
    return reasons


def _of_engines(needs: Needs) -> list[Reason]:
    if needs.engine in ("any", "transformers"):
        return []
    words = (
        f"{needs.engine} rotates queries and keys by a list of frequencies; of the catalogue it runs rotations with "
        "a fixed spectrum, and nothing else without code of your own."
    )
    return [Reason(words, "by definition", "docs/huggingface.md")]


def _usual(needs: Needs) -> list[Choice]:
    """The choice where no measurement decides."""
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


def _works_with(spec: str, engine: str) -> bool:
    """Whether an engine runs it without further code."""
    if engine in ("any", "transformers"):
        return True
    entries = entries_of(spec)
    return len(entries) == 1 and (entries[0].encoding is CATALOGUE["rope"].encoding)
