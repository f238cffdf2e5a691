"""Claims are tested in runs whose truth is known, and each has its source."""

from __future__ import annotations

import dataclasses
import re

import pandas as pd
import pytest
from tests.lab.synthetic import Truth, run_of

from posenc.catalogue import list_encodings
from posenc.lab.metrics import FULL, WINDOW
from posenc.lab.report.claims import (
    Claim,
    ClaimTest,
    DifferenceEvidence,
    JudgedClaim,
    VerdictEvidence,
    better,
    both,
    gains,
    harmless,
    judge,
    keeps,
    loses,
    outcome_counts,
    relevant_claims,
    serves,
    unmoved,
)
from posenc.lab.report.literature import CLAIMS
from posenc.lab.report.numbers import Table, build_table
from posenc.lab.report.render import claim_evidence, claims_markdown
from posenc.lab.run.folder import Run
from posenc.lab.stats import Caution
from posenc.lab.tasks import task_named, task_names

TRUTH = {
    "rope": Truth(1.70, 3.0), "alibi": Truth(1.70), "kerple": Truth(1.70), "t5": Truth(1.65, 0.1),
    "fox": Truth(1.70, -0.1), "nope": Truth(2.5),
}  # fmt: skip


Part = tuple[Run, Table]


def part_of(run: Run) -> Part:
    return run, build_table(run)


def judged(tests: dict[str, ClaimTest], *parts: Part, gap: str = "") -> dict[str, JudgedClaim]:
    """Claims of the runs' task, each with one test, by name."""
    claims = [Claim(name, "source", (parts[0][0].task,), test, gap) for name, test in tests.items()]
    return {each.claim.text: each for each in judge(claims, {f"run {n}": part for n, part in enumerate(parts)})}


def outcomes(tests: dict[str, ClaimTest], *parts: Part, gap: str = "") -> dict[str, str]:
    """Their outcomes."""
    return {name: claim.outcome for name, claim in judged(tests, *parts, gap=gap).items()}


@pytest.fixture(scope="module")
def part() -> Part:
    return part_of(run_of(TRUTH, lengths=(1, 16)))


def test_outcomes_are_those_of_the_truth(part: Part) -> None:
    assert outcomes(
        {
            "alibi keeps": keeps("alibi"), "rope keeps": keeps("rope"), "t5 keeps": keeps("t5"),
            "nope keeps": keeps("nope"), "fire keeps": keeps("fire"), "rope loses": loses("rope"),
            "alibi loses": loses("alibi"), "fox gains": gains("fox"), "alibi gains": gains("alibi"),
            "fox beats both": better("fox", "alibi", "rope"),
            "rope beats alibi": better("rope", "alibi"), "alibi beats kerple": better("alibi", "kerple"),
            "t5 beats alibi at 1×": better("t5", "alibi", times=1), "fox beats nope": better("fox", "nope"),
            "alibi no harm": harmless("alibi", "kerple"), "nope no harm": harmless("nope", "rope"),
            "alibi serves": serves("alibi", 16), "rope serves": serves("rope", 16), "none at 3×": serves("rope", 3),
            "none at 64×": serves("alibi", 64), "at the end": serves("alibi", 64, 4),
            "both": both(keeps("alibi"), better("alibi", "rope")), "not both": both(keeps("alibi"), keeps("rope")),
            "one unknown": both(keeps("alibi"), keeps("fire")),
        },
        part,
    ) == {
        "alibi keeps": "supported", "rope keeps": "contradicted", "t5 keeps": "contradicted",
        "nope keeps": "supported", "fire keeps": "not testable here", "rope loses": "supported",
        "alibi loses": "contradicted", "fox gains": "supported", "alibi gains": "not found here",
        "fox beats both": "supported", "rope beats alibi": "contradicted",
        "alibi beats kerple": "not found here", "t5 beats alibi at 1×": "supported",
        "alibi no harm": "supported", "nope no harm": "contradicted",
        "fox beats nope": "not testable here", "alibi serves": "supported", "rope serves": "contradicted",
        "none at 3×": "not testable here", "none at 64×": "not testable here", "at the end": "supported",
        "both": "not found here", "not both": "contradicted",
        "one unknown": "not testable here",
    }  # fmt: skip


def test_a_given_model_is_held_against_its_own_text_cut() -> None:
    run = run_of(TRUTH, lengths=(1, 4), seeds=1)
    pretrained = part_of(dataclasses.replace(run, numbers={**run.numbers, "steps": 0}))
    claims = judged({name: serves(name, 4) for name in ("alibi", "t5", "rope")}, pretrained)
    assert {name: claim.outcome for name, claim in claims.items()} == {
        "alibi": "supported", "t5": "supported", "rope": "contradicted"
    }  # fmt: skip
    (evidence,) = claims["t5"].findings["run 0"].evidence
    row = pretrained[1].row("t5")
    assert row is not None
    assert isinstance(evidence, DifferenceEvidence)
    assert (evidence.spec, evidence.other, evidence.times) == ("t5", "rope at 1×", 4)
    shown = row.over_unmodified[512]
    assert (evidence.difference.mean, evidence.difference.low) == pytest.approx((shown.mean, shown.low))


def test_evidence_is_what_the_outcome_rests_on(part: Part) -> None:
    table, tests = part[1], {"keeps": keeps("t5"), "better": better("fox", "alibi", "rope")}
    claims = judged(tests, part)
    row = table.row("t5")
    assert row is not None
    assert row.change is not None
    assert claims["keeps"].findings["run 0"].evidence == (VerdictEvidence("t5", row.verdict, row.change, 16),)
    evidence = claims["better"].findings["run 0"].evidence
    assert [(item.spec, item.other, item.times) for item in evidence] == [
        ("fox", "alibi under its window", 16), ("fox", "rope under its window", 16),
    ]  # fmt: skip
    keys = {"fox": ("fox", FULL), **{f"{spec} under its window": (spec, WINDOW) for spec in ("alibi", "rope")}}
    cells = {name: cells_row.cells[2048].mean for name, key in keys.items() if (cells_row := table.row(*key))}
    for item in evidence:
        assert isinstance(item, DifferenceEvidence)
        assert item.difference.mean == pytest.approx(cells["fox"] - cells[item.other])
    for name in ("keeps", "better"):
        numbers = [float(n.replace("−", "-")) for n in re.findall(r"[+−]\d+\.\d{3}", claim_evidence(claims[name]))]
        shown = [getattr(item, "change", None) or item.difference for item in claims[name].findings["run 0"].evidence]
        assert numbers == pytest.approx([item.mean for item in shown], abs=6e-4)


def test_all_tests_of_a_list_are_adjusted_together() -> None:
    """A difference that is significant by itself is not, among as many tests as 1/p."""
    close = part_of(run_of({"alibi": Truth(1.7), "kerple": Truth(1.7), "t5": Truth(1.685)}, lengths=(1, 16)))
    test = better("t5", "alibi", times=1)
    assert outcomes({"alone": test}, close) == {"alone": "supported"}
    (finding,) = (claim.findings["run 0"] for claim in judged({"alone": test}, close).values())
    (evidence,) = finding.evidence
    assert isinstance(evidence, DifferenceEvidence)
    needed = int(0.05 / evidence.difference.p) + 2
    among = {"alone": test, **{f"other {n}": better("kerple", "alibi", times=1) for n in range(needed)}}
    assert outcomes(among, close)["alone"] == "not found here"


@pytest.mark.parametrize("gain", [0.0, None])
def test_models_that_do_not_use_their_context_show_no_more_than_a_rise(gain: float | None) -> None:
    short = part_of(run_of(TRUTH, lengths=(1, 16), gain=gain))
    tests = {
        "keeps": keeps("alibi"), "loses": loses("rope"), "gains": gains("fox"), "serves": serves("alibi", 16),
        "better": better("fox", "rope"), "better at 1×": better("t5", "alibi", times=1),
    }  # fmt: skip
    claims = outcomes(tests, short)
    assert (claims.pop("better at 1×"), claims.pop("loses")) == ("supported", "supported")
    assert set(claims.values()) == {"not testable here"}


@pytest.mark.parametrize("ngram", [1.6, None])
def test_models_that_did_not_beat_the_n_gram_are_not_compared(ngram: float | None) -> None:
    weak = part_of(run_of(TRUTH, lengths=(1, 16), ngram=ngram))
    tests = {
        "serves": serves("alibi", 16), "better": better("fox", "rope"),
        "better at 1×": better("t5", "alibi", times=1), "harmless": harmless("alibi", "kerple"),
        "anyway": better("t5", "alibi", times=1, must_learn=False),
    }  # fmt: skip
    assert set(outcomes(tests, weak).values()) == {"not testable here"}


def test_rows_tuned_otherwise_test_no_claim() -> None:
    run = run_of(TRUTH, lengths=(1, 16))
    tests = {"t5": better("t5", "alibi", times=1), "kerple": harmless("kerple", "alibi")}
    tuned = part_of(dataclasses.replace(run, tuning={"t5": "one grid", "alibi": "another"}))
    assert outcomes(tests, tuned) == dict.fromkeys(tests, "not testable here")
    same_tuning = part_of(dataclasses.replace(run, tuning=dict.fromkeys(TRUTH, "one grid")))
    assert outcomes(tests, same_tuning) == {"t5": "supported", "kerple": "supported"}


def test_a_gap_to_the_source_forbids_a_contradiction(part: Part) -> None:
    tests = {"rope keeps": keeps("rope"), "alibi keeps": keeps("alibi")}
    assert list(outcomes(tests, part, gap="Another recipe.").values()) == ["not found here", "supported"]


def test_runs_that_disagree_are_distinguished(part: Part) -> None:
    other = part_of(run_of({**TRUTH, "rope": Truth(1.7), "alibi": Truth(1.7)}, data="prose", lengths=(1, 16)))
    tests = {"rope keeps": keeps("rope"), "alibi keeps": keeps("alibi"), "t5 gains": gains("t5")}
    assert outcomes(tests, part, other) == {
        "rope keeps": "supported in some runs", "alibi keeps": "supported", "t5 gains": "contradicted"
    }  # fmt: skip
    first, second, third = judged(tests, part, other, gap="Another recipe.").values()
    assert first.outcomes == {"run 0": "not found here", "run 1": "supported"}
    assert (first.agreed, second.agreed) == (False, True)
    assert outcome_counts([first, second, third]) == {
        "supported": 1, "not found here": 1, "contradicted": 0, "supported in some runs": 1, "not testable here": 0
    }  # fmt: skip


def test_where_too_little_was_seen_others_decide(part: Part) -> None:
    unsure = part_of(run_of({**TRUTH, "alibi": Truth(1.7, 0.02)}, data="prose", lengths=(1, 16)))
    row = unsure[1].row("alibi")
    assert row is not None
    assert row.verdict.kind == "inconclusive"
    assert outcomes({"alibi keeps": keeps("alibi")}, unsure) == {"alibi keeps": "not found here"}
    assert outcomes({"alibi keeps": keeps("alibi")}, part, unsure) == {"alibi keeps": "supported"}


def test_one_seed_supports_no_difference() -> None:
    single = part_of(run_of(TRUTH, seeds=1, lengths=(1, 16)))
    (claim,) = judged({"fox beats rope": better("fox", "rope")}, single).values()
    assert claim.outcome == "not found here"
    assert claim.findings["run 0"].cautions == [Caution("one seed")]


def test_views_are_asked_for() -> None:
    run = run_of({"liere": Truth(1.0), "comrope_ap": Truth(1.0)}, task="images", lengths=(1,))
    lines = run.records[run.records["length"].isin([0, 128])].astype({"view": str, "spec": str})
    moved = lines[lines["metric"] == "right"].assign(view="+20")
    moved.loc[moved["spec"] == "liere", "value"] = 0.0
    records = pd.concat([lines, moved], ignore_index=True)
    run = dataclasses.replace(run, records=records, curves=())
    tests = {"ap": unmoved("comrope_ap", "+20"), "liere": unmoved("liere", "+20", opposite=True)}
    assert set(outcomes(tests, part_of(run)).values()) == {"supported"}


def test_each_claim_has_its_source_and_is_tested_in_a_task() -> None:
    for claim in CLAIMS:
        assert re.search(r"arXiv \d{4}\.\d{5}, (abstract|section)|kexue\.fm \d+", claim.source), claim.text
        assert claim.tasks
        assert set(claim.tasks) <= set(task_names())
    assert len({(claim.text, claim.tasks) for claim in CLAIMS}) == len(CLAIMS)
    about = {spec for claim in CLAIMS for spec in claim.test.about}
    assert {"path", "dape", "shaw", "transformer_xl"} <= about


def test_the_claims_that_a_run_of_everything_can_test() -> None:
    rotary = (
        "nope",
        "sinusoidal",
        "rope",
        "xpos",
        "resonance",
        "proportional",
        "clipped",
        "fope",
        "pope",
        "rope_pp",
    )
    names = [name for place in ("bias", "score", "weight") for name in list_encodings(place)]
    names += ["rope+ssmax", "rope+log_n", "rope+sink", "rope@16/nope:4"]
    text = run_of({name: Truth(1.7) for name in (*rotary, *names)}, seeds=3, documents=3, lengths=(1, 16))
    tables = {"text": part_of(text)}
    of_text = judge(relevant_claims(CLAIMS, tables), tables)
    assert [claim for claim in judge(CLAIMS, tables) if claim.tested] == of_text, "claims of other tasks are not tested"
    assert outcome_counts(of_text)["not testable here"] == 0, "each names encodings of the catalogue"
    lines = [line for line in claims_markdown(of_text).splitlines() if line.startswith("| ")]
    assert len(lines) == len(of_text) + 2
    for claim, line in zip(of_text, lines[2:], strict=True):
        _, source, outcome, evidence = line.strip("| ").split(" | ")
        assert (source, outcome) == (claim.claim.source, claim.outcome)
        assert re.findall(r"[+−]\d+\.\d{3} ± ", evidence)


def test_metrics_of_one_unit_have_one_margin() -> None:
    metrics = [metric for name in task_names() for metric in task_named(name).metrics]
    bounds: dict[str, set[float]] = {}
    for metric in metrics:
        bounds.setdefault(metric.unit, set()).add(metric.margin)
    assert {"bits per byte", "of answers", "of pictures"} <= bounds.keys()
    assert all(len(each) == 1 for each in bounds.values()), bounds
