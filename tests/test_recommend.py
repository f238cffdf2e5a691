"""Recommendations rest on rows: other results give other words, and no sentence is without its row."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import posenc_cli
from posenc.catalogue import CATALOGUE
from posenc.catalogue import studies as recorded
from posenc.catalogue.studies import Contrast, Study, StudyRow
from posenc.recommend import Answer, Needs, Reason, recommend
from posenc.recommend.needs import ENGINES, MODELS, TASKS
from posenc.recommend.thirteen import THIRTEEN, judged
from posenc_cli.arguments import QUESTIONS

DOCS = Path(__file__).parents[1]
MADE = ("docs/table.md", *(f"docs/methods/{name}.md" for name in CATALOGUE))  # pages that the guide makes


def row(name: str, first: float, last: float, verdict: str, *, seeds: int = 3, claimed: bool = True) -> StudyRow:
    means = {64: (first, first, first), 1024: (last, last, last)}
    contrasts = (Contrast("alibi", last - 2.0, last - 2.1, last - 1.9, claimed),)
    at_first = (Contrast("rope", first - 1.5, first - 1.6, first - 1.4, not claimed),)
    return StudyRow(name, seeds, verdict != "did not learn", verdict, means, {}, contrasts, at_first)


def study(task: str, *rows: StudyRow, name: str = "made", better: str = "lower") -> Study:
    return Study(name, task, "title", "bits", better, False, 0.02, 64, {one.name: one for one in rows})


def given(monkeypatch: pytest.MonkeyPatch, *found: Study) -> None:
    monkeypatch.setattr(recorded, "studies", lambda: found)


def tells(reason: Reason, *parts: str) -> bool:
    """Whether a reason names all of these: encodings, lengths, numbers."""
    return all(part in reason.words for part in parts)


def specs(answer: Answer) -> list[str]:
    return [choice.spec for choice in answer.choices]


def test_the_best_that_bears_the_length_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (row("fire", 1.7, 3.0, "fails"), row("fox", 1.8, 1.8, "equivalent"), row("t5", 1.75, 1.85, "equivalent"),
            row("nope", 1.6, 1.6, "did not learn"))  # fmt: skip
    given(monkeypatch, study("text", *rows))
    assert specs(recommend(Needs())) == ["fire", "t5", "fox"]
    assert specs(recommend(Needs(length=16 * 4096))) == ["fox", "t5"]
    (first, *_) = recommend(Needs(length=16 * 4096)).choices
    assert tells(first.reasons[0], "1.800", "16×")
    assert tells(first.reasons[1], "16×", "fox", "better", "alibi", "0.200")
    assert first.reasons[1].sure == "measured, beyond chance"
    given(monkeypatch, study("text", *rows[:1], row("fox", 1.8, 2.2, "worse", claimed=False)))
    assert specs(recommend(Needs(length=16 * 4096))) == ["rope"], "where nothing decides, that is said"
    assert recommend(Needs(length=16 * 4096)).choices[0].reasons[0].sure == "not measured"


def test_texts_no_longer_than_trained_rest_on_the_trained_length(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, study("text", row("t5", 1.75, 1.85, "equivalent")))
    (reason,) = (reason for reason in recommend(Needs()).choices[0].reasons if "rope" in reason.words)
    assert tells(reason, "1×", "t5", "worse", "0.250")
    assert reason.sure == "measured, not beyond chance"
    reasons = recommend(Needs(length=2 * 4096)).choices[0].reasons
    assert any(tells(reason, "16×", "t5", "better", "alibi", "0.150") for reason in reasons)
    assert not any(tells(reason, "rope") for reason in reasons)


def test_of_those_that_are_level_the_surest_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (row("dape", 0.9, 1.0, "equivalent"), row("fire", 0.9, 1.0, "equivalent", seeds=10),
            row("fox", 0.9, 0.99, "equivalent", seeds=10), row("nope", 0.9, 1.0, "inconclusive", seeds=10),
            row("t5", 0.9, 0.9, "equivalent", seeds=10))  # fmt: skip
    recall = study("recall", *rows, name="recall", better="higher")
    given(monkeypatch, recall, study("passkey", row("fire", 0.9, 0.5, "worse"), name="keys", better="higher"))
    answer = recommend(Needs(task="retrieval", length=16 * 4096))
    assert specs(answer) == ["fox", "dape", "fire"]
    assert len({choice.words for choice in answer.choices}) == 1
    assert all(part in answer.choices[0].words for part in ("3", "16×", "0.02", "recall"))
    assert specs(recommend(Needs(task="retrieval")))[0] == "dape", "at the trained length means decide"


def test_a_row_is_compared_where_it_was_trained_most(monkeypatch: pytest.MonkeyPatch) -> None:
    few = study(
        "text", row("t5", 1.75, 1.85, "equivalent", seeds=1, claimed=False), row("fox", 1.9, 1.9, "equivalent", seeds=9)
    )
    many = study("text", row("t5", 1.75, 1.75, "equivalent", seeds=5), name="more")
    given(monkeypatch, few, many)
    first, *_ = recommend(Needs(length=16 * 4096)).choices
    (reason,) = [reason for reason in first.reasons if "alibi" in reason.words]
    assert tells(reason, "16×", "t5", "better", "0.250")
    assert reason.sure == "measured, beyond chance"


def test_higher_is_better_where_the_metric_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = row("rope", 0.9, 0.1, "fails"), row("cope", 0.99, 0.98, "equivalent"), row("t5", 0.95, 0.9, "equivalent")
    given(monkeypatch, study("counting", *rows, better="higher"))
    assert specs(recommend(Needs(task="counting", length=16 * 4096))) == ["cope", "t5"]


def test_the_study_with_most_trainings_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    small = study("text", row("t5", 1.0, 1.0, "equivalent", seeds=1), name="a")
    large = study("text", row("fox", 1.5, 1.5, "equivalent", seeds=5), name="b")
    given(monkeypatch, small, large)
    assert specs(recommend(Needs())) == ["fox"]


def test_engines_are_given_rotations(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, study("text", row("fox", 1.0, 1.0, "equivalent"), row("rope", 1.5, 3.0, "fails")))
    assert specs(recommend(Needs(engine="vllm"))) == ["rope"]
    assert specs(recommend(Needs(engine="any"))) == ["fox", "rope"]


def test_a_checkpoint_is_stretched_by_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch)
    assert specs(recommend(Needs(model="checkpoint", length=8 * 4096)))[0] == "dynamic_yarn"
    assert specs(recommend(Needs(model="checkpoint"))) == ["rope"]
    rows = row("pi", 2.0, 3.0, "fails"), row("yarn", 1.8, 1.9, "worse"), row("yarn+tuned", 1.7, 1.7, "equivalent")
    given(monkeypatch, study("extension", *rows))
    assert specs(recommend(Needs(model="checkpoint", length=8 * 4096))) == ["yarn", "pi"]
    assert specs(recommend(Needs(model="checkpoint", length=8 * 4096, tune=True))) == ["yarn+tuned"]


def test_a_window_costs_nothing_and_is_said_first(monkeypatch: pytest.MonkeyPatch) -> None:
    base = dataclasses.replace(row("rope", 2.0, 5.0, "fails"), window={1024: (2.1, 2.1, 2.1)})
    given(monkeypatch, study("extension", base, row("self_extend", 2.0, 2.3, "worse")))
    window, moved, *_ = recommend(Needs(model="checkpoint", length=16 * 4096)).choices
    assert window.spec == "rope"
    assert "4096" in window.words
    assert tells(window.reasons[0], "2.100", "16×")
    assert moved.spec == "self_extend"
    assert [reason.sure for reason in moved.reasons] == ["as recorded", "by definition"]


def test_what_a_given_model_showed_counts_first_as_far_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    real = study("checkpoint", row("rope", 2.0, 5.0, "fails"), row("self_extend", 2.0, 2.1, "equivalent"), name="real")
    small = study("extension", row("yarn", 1.8, 1.9, "worse"), row("yarn+tuned", 1.7, 1.7, "equivalent"))
    given(monkeypatch, real, small)
    cut, moved, *_ = recommend(Needs(model="checkpoint", length=8 * 4096)).choices
    assert cut.spec == "rope"
    assert "4096" in cut.words
    assert tells(cut.reasons[0], "2.000")
    assert moved.spec == "self_extend"
    assert "16×" in moved.words
    assert specs(recommend(Needs(model="checkpoint", length=8 * 4096, tune=True))) == ["yarn+tuned"]
    assert specs(recommend(Needs(model="checkpoint", length=32 * 4096))) == ["yarn"], "longer than it was read"


@pytest.mark.parametrize(
    ("needs", "name"),
    [
        ({"model": "old"}, "model"),
        ({"task": "poems"}, "task"),
        ({"engine": "mine"}, "engine"),
        ({"length": 0}, "length"),
        ({"train_length": True}, "train_length"),
        ({"model": "checkpoint", "task": "images"}, "model"),
        ({"tune": True}, "tune"),
    ],
)
def test_invalid_needs_are_refused(needs: dict[str, object], name: str) -> None:
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        Needs(**needs)  # type: ignore[arg-type]


def test_every_reason_has_a_row_that_is_there() -> None:
    answers = [recommend(Needs(task=task, length=16 * 4096)) for task in TASKS]
    answers += [recommend(Needs(model="checkpoint", length=16384, tune=tune)) for tune in (True, False)]
    reasons: list[Reason] = [reason for answer in answers for reason in answer.remarks]
    reasons += [reason for answer in answers for choice in answer.choices for reason in choice.reasons]
    reasons += [reason for advice in THIRTEEN for _, _, reason in judged(advice)]
    assert len(reasons) > 60
    for reason in reasons:
        assert reason.row in MADE or (DOCS / reason.row).is_file(), reason.row


def test_there_are_thirteen_and_results_answer_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(THIRTEEN) == 13
    assert all(len(advice.conditions) == 4 for advice in THIRTEEN)
    alibi = next(advice for advice in THIRTEEN if advice.name == "alibi")
    for verdict, said in (("equivalent", "yes"), ("fails", "no"), ("did not learn", "open")):
        given(monkeypatch, study("text", row("alibi", 1.7, 1.8, verdict)))
        assert judged(alibi)[0][1] == said


def test_the_command_tells_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert posenc_cli.run(["recommend", "--model", "checkpoint", "--length", "32768", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [choice["spec"] for choice in told["choices"]] == specs(recommend(Needs(model="checkpoint", length=32768)))
    assert posenc_cli.run(["recommend", "--task", "video"]) == 0
    assert "1. mrope" in capsys.readouterr().out
    assert posenc_cli.run(["recommend", "--length", "0"]) == 2
    assert "length" in capsys.readouterr().err
    assert (QUESTIONS["model"][1], QUESTIONS["task"][1], QUESTIONS["engine"][1]) == (MODELS, tuple(TASKS), ENGINES)


def test_a_terminal_is_asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answers = iter(["checkpoint", "", "vllm", "4,096", "16384"])
    monkeypatch.setattr("builtins.input", lambda question: next(answers))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert posenc_cli.run(["recommend"]) == 0
    assert "dynamic_yarn" in capsys.readouterr().out
    assert next(answers, None) is None
