"""The rules for extending the context of a trained model with RoPE."""

from __future__ import annotations

from posenc.catalogue import CATALOGUE
from posenc.catalogue.studies import Study, StudyRow, that_ask
from posenc.recommend.needs import Needs
from posenc.recommend.reason import TABLE, Answer, Choice, Reason, by_catalogue, of, shown

BASE, TUNED = "rope", "+tuned"
_KEEPS_SHORT = ("longrope", "dynamic_yarn", "dynamic_ntk", "dynamic_pi")  # plain frequencies up to the trained length


def recommend_extension(needs: Needs) -> Answer:
    """What to do with a checkpoint."""
    remarks = (_short_prompts(),)
    if needs.times == 1:
        rope = CATALOGUE["rope"]
        words = "The trained length is enough: every scaling changes what the model was trained with."
        return Answer((Choice("rope", "change nothing", (by_catalogue(rope, words),)),), ())
    of_checkpoints = [study for study in that_ask(("checkpoint",)) if not needs.tune and study.longest >= needs.times]
    studies = [*of_checkpoints, *that_ask(("extension",))]
    choices = [choice for study in studies[:1] for choice in _measured(needs, study)]
    if not choices:
        open_ = Reason("No recorded comparison extends a model at present.", "not measured", TABLE)
        return Answer(tuple(_by_definition(needs)), (open_, *remarks))
    return Answer(tuple(choices), remarks)


def _measured(needs: Needs, study: Study) -> list[Choice]:
    """The best of what was measured at this length, trained at it or not; first what costs nothing."""
    measured = sorted({n / study.train_length for row in study.rows.values() for n in row.means})
    at = next((times for times in measured if times >= needs.times), measured[-1])
    allowed = [row for row in study.ranked(at) if row.name.endswith(TUNED) == needs.tune]
    nothing = (_cut if study.task == "checkpoint" else _window)(needs, study, at)
    return [*([nothing] if nothing else []), *(_choice(row, study, at) for row in allowed[:3])]


def _cut(needs: Needs, study: Study, at: float) -> Choice | None:
    base = study.rows.get(BASE)
    if base is None:
        return None
    words = f"{shown(base.means[study.train_length][0], study)}, at any context length. Earlier tokens are not visible."
    return Choice(BASE, f"given the last {needs.train_length} tokens alone", (Reason(words, "as recorded", of(study)),))


def _window(needs: Needs, study: Study, at: float) -> Choice | None:
    base = study.rows.get(BASE)
    there = base.window.get(round(at * study.train_length)) if base else None
    if there is None:
        return None
    words = f"{shown(there[0], study)} at {at:g}×. Tokens farther back are not visible."
    return Choice(BASE, f"under a window of {needs.train_length} tokens", (Reason(words, "as recorded", of(study)),))


def _choice(row: StudyRow, study: Study, at: float) -> Choice:
    mean = row.means[round(at * study.train_length)][0]
    words = f"{shown(mean, study)} at {at:g}×, {shown(row.means[study.train_length][0], study)} at the trained length."
    entry = CATALOGUE.get(row.name.partition("@")[0].partition("+")[0])
    known = () if entry is None else (by_catalogue(entry, f"{entry.past_training}."),)
    return Choice(row.name, f"measured at {at:g}×", (Reason(words, "as recorded", of(study)), *known))


def _by_definition(needs: Needs) -> list[Choice]:
    yarn, dynamic, longrope = (CATALOGUE[name] for name in ("yarn", "dynamic_yarn", "longrope"))
    shows = by_catalogue(CATALOGUE["rope"], "A window of the trained length shows distances of training alone.")
    words = f"under a window of {needs.train_length} tokens: nothing unseen, and no memory beyond it"
    window = Choice("rope", words, (shows,))
    if needs.tune:
        reason = by_catalogue(longrope, f"{longrope.extension}.")
        return [
            Choice("yarn", "with a short training at the new length", (by_catalogue(yarn, f"{yarn.past_training}."),)),
            Choice("longrope", "searched on the model's own loss, then trained", (reason,)),
            window,
        ]
    return [
        Choice("dynamic_yarn", "without training", (by_catalogue(dynamic, f"{dynamic.past_training}."),)),
        Choice("yarn", "without training, where the engine knows no dynamic form",
               (by_catalogue(yarn, f"{yarn.past_training}."),)),
        window,
    ]  # fmt: skip


def _short_prompts() -> Reason:
    names = ", ".join(name for name in _KEEPS_SHORT if name in CATALOGUE)
    words = (
        "A fixed factor holds for short texts too, and costs there; forms that keep the trained frequencies for short "
        f"texts: {names}."
    )
    return by_catalogue(CATALOGUE["yarn"], words)
