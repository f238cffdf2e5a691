"""What notes of learners advised, thirteen times "use X if", each condition held against the rows.

A condition is the notes' own; what answers it is a fact of the catalogue or a recorded comparison, never this file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from posenc.catalogue import CATALOGUE, Entry
from posenc.catalogue.studies import that_ask
from posenc.recommend.reason import Reason, by_catalogue, of, shown

Answered = Literal["yes", "no", "open", "as stated"]
Judge = Callable[[Entry], tuple[Answered, Reason]]


class Advice(NamedTuple):
    """One "use X if": the encoding, and its conditions, each with what answers it."""

    name: str
    conditions: tuple[tuple[str, Judge], ...]


def fact(words: str, holds: Callable[[Entry], bool]) -> Judge:
    """What the catalogue decides."""

    def judge(entry: Entry) -> tuple[Answered, Reason]:
        return ("yes" if holds(entry) else "no"), by_catalogue(entry, words)

    return judge


def field(name: str, label: str) -> Judge:
    """What the catalogue says, in its words."""
    return lambda entry: ("as stated", by_catalogue(entry, f"{label}: {getattr(entry, name)}."))


def length(*, wanted: bool = True) -> Judge:
    """Whether texts longer than were trained are borne; with ``wanted`` False, whether they are better avoided."""

    def judge(entry: Entry) -> tuple[Answered, Reason]:
        for study in that_ask(("text",)):
            row = study.rows.get(entry.name)
            if row is None:
                continue
            lengths = sorted(row.means)
            values = ", ".join(f"{shown(row.means[n][0], study)} at {n // study.train_length}×" for n in lengths)
            reason = Reason(f"{values}: {row.verdict}.", "as recorded", of(study))
            if not row.learned:
                return "open", reason
            bears = row.verdict in ("equivalent", "better")
            return ("yes" if bears == wanted else "no"), reason
        return "open", Reason(
            "No recorded comparison has a row of it.", "not measured", f"docs/methods/{entry.name}.md"
        )

    return judge


def extension(times: int, *, tuned: bool = False) -> Judge:
    """How a model that was trained without it fares so many trained lengths on."""

    def judge(entry: Entry) -> tuple[Answered, Reason]:
        name = entry.name + ("+tuned" if tuned else "")
        for study in that_ask(("extension",)):
            row = study.rows.get(name)
            at = times * study.train_length
            if row is not None and at in row.means:
                first, last = (shown(row.means[n][0], study) for n in (study.train_length, at))
                words = f"{name}: {first} at the trained length, {last} at {times}×."
                return "as stated", Reason(words, "as recorded", of(study))
        return "open", _unmeasured(entry, "No recorded comparison extends a model by it.")

    return judge


def unmeasured(words: str) -> Judge:
    """What nothing here decides."""
    return lambda entry: ("open", _unmeasured(entry, words))


def _unmeasured(entry: Entry, words: str) -> Reason:
    return Reason(words, "not measured", f"docs/methods/{entry.name}.md")


_USED, _COST = field("used_in", "used in"), field("cost", "costs")
_PARAMETERS, _PAST = field("parameters", "parameters"), field("past_training", "past the trained length")
_EXTENDS = field("extension", "extension")
_FIXED = fact("No parameters of its own, nothing drawn at random.", lambda e: not e.learned)
_LEARNED = fact("Learned, and read by distance.", lambda e: e.learned and e.kind == "relative")
_STRETCHES = fact("Made for models that were trained without it.", lambda e: e.stretches)
_CONTENT = fact("Reads what tokens say.", lambda e: e.kind == "by content")
_BOUND = fact("Undefined past its table: the two lengths must be the same.", lambda e: e.table_bound)

THIRTEEN = (
    Advice("sinusoidal", (
        ("a standard encoder-decoder", _USED), ("deterministic positions", _FIXED),
        ("the trained length is enough", length(wanted=False)), ("no parameters", _FIXED),
    )),
    Advice("learned", (
        ("established architectures such as GPT-2 and BERT", _USED), ("trained and read at one length", _BOUND),
        ("its parameters can be afforded", _PARAMETERS), ("no longer texts", _BOUND),
    )),
    Advice("rope", (
        ("a decoder-only language model", _USED),
        ("relative positions without a bias on the scores",
         fact("Acts on queries and keys, and their product depends on the distance.",
              lambda e: e.hook_point == "rotary" and e.kind == "relative")),
        ("interpolates well", extension(4)), ("can be extended later", _EXTENDS),
    )),
    Advice("alibi", (
        ("excellent extrapolation out of the box", length()), ("longer texts without training", length()),
        ("simplicity, no learned parameters", _FIXED), ("trained short, read long", length()),
    )),
    Advice("t5", (
        ("an encoder-decoder", _USED), ("learned relative biases", _LEARNED),
        ("trained with texts of various lengths", _PAST), ("its parameters can be afforded", _PARAMETERS),
    )),
    Advice("yarn", (
        ("an existing RoPE model is to read longer texts", _STRETCHES),
        ("fast pairs kept, slow ones interpolated", _PAST),
        ("short texts stay as good", extension(1)), ("it can be trained at the new length", extension(8, tuned=True)),
    )),
    Advice("ntk", (
        ("longer texts at once, without training", extension(4)), ("pairs scaled unlike", _PAST),
        ("2 to 8 times the length", extension(8)), ("little to spend", _COST),
    )),
    Advice("longrope", (
        ("a hundred times the length or more", unmeasured("Nothing here was extended as far.")),
        ("a search can be afforded", _PARAMETERS), ("short and long texts apart", _PAST),
        ("progressive training can be afforded", extension(8, tuned=True)),
    )),
    Advice("fire", (
        ("excellent generalisation to length", length()), ("learned relative positions", _LEARNED),
        ("a function instead of a table", _PARAMETERS), ("a small network's cost", _COST),
    )),
    Advice("resonance", (
        ("RoPE or YaRN that degrades with length", length()), ("no interference of wavelengths", _PAST),
        ("clean periods over very long texts", _PAST), ("beside other scalings", _EXTENDS),
    )),
    Advice("cope", (
        ("positions that depend on content", _CONTENT), ("structured data such as code", length()),
        ("positions that adapt to structure", _CONTENT), ("sight of both content and place", _PAST),
    )),
    Advice("clex", (
        ("learned, continuous scaling", fact("Learned, and a scaling.", lambda e: e.learned and e.stretches)),
        ("any length", _PAST), ("its training can be afforded", _PARAMETERS), ("diverse lengths in training", _EXTENDS),
    )),
    Advice("multiscale", (
        ("other frequencies in each head", _COST),
        ("near and far patterns at once", unmeasured("No comparison here asks for both at once.")),
        ("models of several resolutions", unmeasured("No comparison here has several resolutions.")),
        ("frequencies set for each head", _PARAMETERS),
    )),
)  # fmt: skip


def judged(advice: Advice) -> list[tuple[str, Answered, Reason]]:
    """Each condition with its answer.

    >>> judged(THIRTEEN[1])[1][1]
    'yes'
    """
    entry = CATALOGUE[advice.name]
    return [(words, *judge(entry)) for words, judge in advice.conditions]
