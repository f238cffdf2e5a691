"""Rules whose sentences are made from recorded comparisons: numbers, intervals, trainings and scope come from the rows.

No rule here orders encodings by an interval that contains the opposite, nor by models that do not use the context of
the case; where the records say nothing of a case, that is the sentence.
"""

from __future__ import annotations

from collections.abc import Iterator

from posenc.catalogue.studies import Contrast, Mean, Study, StudyRow, studies
from posenc.recommend.needs import DECODERS
from posenc.recommend.rule import Rule, When

_FINDINGS, _STUDY = "docs/findings.md", "docs/results/context-study"
_FROM_64 = "models of 0.1 million parameters, trained on up to 64 tokens"


def measured_rules() -> tuple[Rule, ...]:
    """The rules that the recorded comparisons support."""
    by_name = {study.name: study for study in studies()}
    makers = {
        "images": _images, "addition": _addition, "counting": _counting, "flipflop": _flipflop, "copy": _copy,
        "recall": _recall, "smollm2": _streams,
    }  # fmt: skip
    return (*_texts(), *(rule for name, make in makers.items() if name in by_name for rule in make(by_name[name])))


def page_of(study: Study) -> str:
    """The recorded run of a comparison; the site has its table."""
    return f"docs/results/{study.name}"


def estimate(mean: Mean | tuple[float, float, float], study: Study, *, signed: bool = False) -> str:
    """A mean with half of its interval, as the reports show it."""
    value, low, high = mean
    sign = "+" if signed else ""
    half = (high - low) / 2
    if study.percent:
        return f"{100 * value:{sign}.1f} ± {100 * half:.1f}".replace("-", "−")
    return f"{value:{sign}.3f} ± {half:.3f}".replace("-", "−")


def over_length(row: StudyRow) -> Contrast:
    """The change of a row from the training length to the longest."""
    return next(contrast for contrast in row.contrasts if contrast.against == "1x")


def _change(row: StudyRow, study: Study) -> str:
    contrast = over_length(row)
    return estimate((contrast.mean, contrast.low, contrast.high), study, signed=True)


def _texts() -> Iterator[Rule]:
    words = (
        "Our own small-model runs do not help with this choice: they were trained on 64 bytes, and their use of "
        "context is mostly unmeasured."
    )
    when: When = {"kind": (*DECODERS, "encoder", "encoder-decoder"), "model": "new", "algorithmic": False}
    yield Rule("measured", words, "measured here", (_FINDINGS,), when)


def _images(study: Study) -> Iterator[Rule]:
    rows = {name: row for name, row in study.rows.items() if row.learned}
    there = {name: row.views["finer_scaled"] for name, row in rows.items() if "finer_scaled" in row.views}
    best = max(there, key=lambda name: there[name][0])
    behind = [name for name in there if there[name][2] < there[best][1]]
    seeds = next(iter(rows.values())).seeds
    shown = ", ".join(f"{name} {estimate(there[name], study)}" for name in ("learned_grid", "axial") if name in behind)
    scope = f"scanned digits, 6 × 6 patches, {len(rows)} encodings, {seeds} trainings each, no rate tuned"
    words = (
        f"On a finer grid with scaled coordinates {best} classifies {estimate(there[best], study)} % of pictures, and "
        f"its interval lies above the intervals of {len(behind)} of the {len(there) - 1} others ({shown}); on larger "
        f"grids no encoding keeps its accuracy ({scope})."
    )
    yield Rule("measured", words, "measured here", (page_of(study),), {"kind": "vision"})


def _addition(study: Study) -> Iterator[Rule]:
    seeds = study.rows["abacus"].seeds
    longest = study.rows["abacus"].means[2 * study.train_length]
    words = (
        f"Trained on sums of up to 6 digits, no encoding adds numbers of 13 digits: Abacus has {100 * longest[0]:.0f} "
        f"% of the sums ({seeds} trainings, 0.6 million parameters, 3,000 steps, no recurrent layers). Of single "
        "digits it has more right than RoPE or ALiBi (finding 9)."
    )
    when: When = {
        "model": "new",
        "algorithmic": True,
        "task": ("arithmetic", "general", "perplexity", "retrieval", "streaming"),
    }
    yield Rule("measured", words, "measured here", (page_of(study), _FINDINGS), when)


def _near(study: Study, task: str, name: str) -> Iterator[Rule]:
    row = study.rows["rope"]
    window = row.window[max(row.window)]
    words = (
        f"In {name} RoPE changes by {_change(row, study)} points from the training length to {study.longest} times it; "
        f"with a sliding window of the training length it has {estimate(window, study)} % there ({row.seeds} "
        f"trainings, {_FROM_64})."
    )
    yield Rule(
        "measured", words, "measured here", (page_of(study),), {"model": "new", "task": task, "algorithmic": True}
    )


def _flipflop(study: Study) -> Iterator[Rule]:
    yield from _near(study, "state", "flip-flop")


def _copy(study: Study) -> Iterator[Rule]:
    yield from _near(study, "copying", "copy")


def _counting(study: Study) -> Iterator[Rule]:
    yield from _near(study, "counting", "counting")
    names = [name for name in ("alibi", "cope") if name in study.rows]
    changes = " and ".join(f"{name} changes by {_change(study.rows[name], study)}" for name in names)
    held = [name for name in names if study.rows[name].verdict == "equivalent"]
    words = (
        f"Over the same lengths {changes} points; within 2 points of no change is shown for "
        f"{', '.join(held) or 'none of them'} ({study.rows[names[0]].seeds} trainings)."
    )
    yield Rule(
        "measured", words, "measured here", (page_of(study),), {"model": "new", "task": "counting", "algorithmic": True}
    )


def _recall(study: Study) -> Iterator[Rule]:
    flat = [name for name in ("kerple", "stick-breaking", "fire") if study.rows[name].verdict == "equivalent"]
    words = (
        f"In recall from farther back than any training sequence, {', '.join(flat)} stay within 2 points of no change "
        f"up to {study.longest} times the training length, and RoPE changes by {_change(study.rows['rope'], study)} "
        f"points ({study.rows['rope'].seeds} trainings, {_FROM_64}): too small and too short to choose by for "
        "{length} tokens."
    )
    when: When = {"kind": DECODERS, "model": "new", "task": "retrieval", "ratio": {"above": 1.0}}
    yield Rule("measured", words, "measured here", (page_of(study),), when)


def _streams(study: Study) -> Iterator[Rule]:
    row = study.rows["streaming_llm"]
    against = next(c for c in row.contrasts if c.against == "rope under its window")
    words = (
        f"With StreamingLLM the loss of SmolLM2-135M changes by {_change(row, study)} nats a token from 8,192 to "
        f"{max(row.means):,} tokens; a window without the first tokens is {abs(against.mean):.3f} "
        f"({abs(against.high):.3f} to {abs(against.low):.3f}) worse (three documents, no training)."
    )
    yield Rule("measured", words, "measured here", (page_of(study),),
               {"model": "checkpoint", "task": "streaming", "kind": DECODERS, "plan": ("unknown", "extend"),
                "ratio": {"above": 1.0}})  # fmt: skip
    words = (
        "At 1.5 times its length, without training, YaRN gives SmolLM2-135M a loss equivalent to truncating the text "
        "to the training length (100 documents, margin 0.02 nats a token), and Self-Extend a loss lower by 0.016 ± "
        "0.007 nats. Five other methods, retrieval, chunking and other models have not been evaluated."
    )
    released: When = {
        "model": "checkpoint", "kind": DECODERS, "plan": ("unknown", "extend"),
        "task": ("general", "perplexity", "retrieval"), "tune": False,
    }  # fmt: skip
    pages = (f"{_STUDY}/likelihood/table.md", f"{_STUDY}/plan.md")
    yield Rule("measured", words, "measured here", pages, {**released, "ratio": {"above": 1.0, "upto": 2.0}})
    words = "We have not measured whether {length} tokens beat truncating the text to {train_length}."
    yield Rule("unknown", words, "not known", (_FINDINGS,), {**released, "ratio": {"above": 2.0}})
