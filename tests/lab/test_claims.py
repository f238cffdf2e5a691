"""Claims are held against runs whose truth is known, and each has its source."""

from __future__ import annotations

import dataclasses
import re

import pandas as pd
import pytest
from tests.lab.synthetic import Made, run_of

from posenc.catalogue import list_encodings
from posenc.lab.report.checks import also, better, gains, harmless, keeps, loses, serves, unmoved
from posenc.lab.report.claims import Check, Claim, asked, judged
from posenc.lab.report.page import counted
from posenc.lab.report.rows import Table, rows_of
from posenc.lab.report.said import CLAIMS
from posenc.lab.report.writing import claims_markdown
from posenc.lab.runs import Run
from posenc.lab.tasks import NAMES

TRUTH = {
    "rope": Made(1.70, 3.0), "alibi": Made(1.70), "kerple": Made(1.70), "t5": Made(1.65, 0.1), "fox": Made(1.70, -0.1),
    "nope": Made(2.5),
}  # fmt: skip


Part = tuple[Run, Table]


def part_of(run: Run) -> Part:
    return run, rows_of(run)


def outcomes(tests: dict[str, Check], *parts: Part, gap: str = "") -> dict[str, str]:
    """What runs say to claims of their task, each with one test."""
    claims = [Claim(name, "source", parts[0][0].task, test, gap) for name, test in tests.items()]
    return {one.claim.text: one.outcome for one in judged(claims, {f"run {n}": part for n, part in enumerate(parts)})}


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
            "both": also(keeps("alibi"), better("alibi", "rope")), "not both": also(keeps("alibi"), keeps("rope")),
            "one unknown": also(keeps("alibi"), keeps("fire")),
        },
        part,
    ) == {
        "alibi keeps": "supported", "rope keeps": "contradicted", "t5 keeps": "not found here",
        "nope keeps": "not testable here", "fire keeps": "not testable here", "rope loses": "supported",
        "alibi loses": "contradicted", "fox gains": "supported", "alibi gains": "not found here",
        "fox beats both": "supported", "rope beats alibi": "contradicted",
        "alibi beats kerple": "not found here", "t5 beats alibi at 1×": "supported",
        "alibi no harm": "supported", "nope no harm": "contradicted",
        "fox beats nope": "not testable here", "alibi serves": "supported", "rope serves": "contradicted",
        "none at 3×": "not testable here", "none at 64×": "not testable here", "at the end": "supported",
        "both": "supported", "not both": "contradicted",
        "one unknown": "not testable here",
    }  # fmt: skip


def test_a_given_model_is_held_against_its_own_text_cut() -> None:
    run = run_of(TRUTH, lengths=(1, 4), seeds=1)
    given = part_of(dataclasses.replace(run, numbers={**run.numbers, "steps": 0}))
    claims = [Claim(name, "source", "text", serves(name, 4)) for name in ("alibi", "t5", "rope")]
    found = {one.claim.text: one for one in judged(claims, {"run": given})}
    assert {name: one.outcome for name, one in found.items()} == {
        "alibi": "supported", "t5": "supported", "rope": "contradicted"
    }  # fmt: skip
    assert "alibi − rope at 1×: +0.0" in found["alibi"].words


def test_a_gap_to_the_source_forbids_a_contradiction(part: Part) -> None:
    tests = {"rope keeps": keeps("rope"), "alibi keeps": keeps("alibi")}
    assert list(outcomes(tests, part, gap="Another recipe.").values()) == ["not found here", "supported"]


def test_runs_that_disagree_are_told_apart(part: Part) -> None:
    other = part_of(run_of({**TRUTH, "rope": Made(1.7), "alibi": Made(1.7)}, data="prose", lengths=(1, 16)))
    tests = {"rope keeps": keeps("rope"), "alibi keeps": keeps("alibi"), "t5 gains": gains("t5")}
    assert outcomes(tests, part, other) == {
        "rope keeps": "supported in some runs", "alibi keeps": "supported", "t5 gains": "not found here"
    }  # fmt: skip
    claims = [Claim(name, "source", "text", test, "Another recipe.") for name, test in tests.items()]
    first, second, _ = judged(claims, {"python": part, "prose": other})
    assert first.words.startswith("python (not found here): rope fails at 16×")
    assert "prose (supported): rope holds" in first.words
    assert second.words.startswith("python: alibi holds")
    assert "1 supported in some runs" in counted([first, second])


def test_where_too_little_was_seen_others_decide(part: Part) -> None:
    unsure = part_of(run_of({**TRUTH, "alibi": Made(1.7, 0.02)}, data="prose", lengths=(1, 16)))
    row = unsure[1].row("alibi")
    assert row is not None
    assert row.verdict == "undecided"
    assert outcomes({"alibi keeps": keeps("alibi")}, unsure) == {"alibi keeps": "not found here"}
    assert outcomes({"alibi keeps": keeps("alibi")}, part, unsure) == {"alibi keeps": "supported"}


def test_one_seed_supports_no_difference() -> None:
    single = part_of(run_of(TRUTH, seeds=1, lengths=(1, 16)))
    assert outcomes({"fox beats rope": better("fox", "rope")}, single) == {"fox beats rope": "not found here"}


def test_views_are_asked_for() -> None:
    run = run_of({"liere": Made(1.0), "comrope_ap": Made(1.0)}, task="images", lengths=(1,))
    lines = run.records[run.records["length"].isin([0, 128])].astype({"view": str, "spec": str})
    moved = lines[lines["metric"] == "right"].assign(view="+20")
    moved.loc[moved["spec"] == "liere", "value"] = 0.0
    records = pd.concat([lines, moved], ignore_index=True)
    run = dataclasses.replace(run, records=records, curves=())
    tests = {"ap": unmoved("comrope_ap", "+20"), "liere": unmoved("liere", "+20", opposite=True)}
    found = outcomes(tests, part_of(run))
    assert set(found.values()) == {"supported"}


def test_each_claim_has_its_source_and_is_tested_in_a_task() -> None:
    for claim in CLAIMS:
        assert re.search(r"arXiv \d{4}\.\d{5}, (abstract|section)|kexue\.fm \d+", claim.source), claim.text
        assert set(claim.task.split()) <= set(NAMES)
    assert len({(claim.text, claim.task) for claim in CLAIMS}) == len(CLAIMS)
    said = " ".join(claim.text + claim.source for claim in CLAIMS)
    assert all(name in said for name in ("PaTH", "DAPE", "Shaw", "Transformer-XL"))


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
        "tape",
    )
    others = [name for place in ("bias", "score", "weight") for name in list_encodings(place)]
    others += ["rope+ssmax", "rope+log_n", "rope+sink", "rope@16/nope:4"]
    text = run_of({name: Made(1.7) for name in (*rotary, *others)}, seeds=3, documents=3, lengths=(1, 16))
    parts = {"text": (text, rows_of(text))}
    of_text = judged(asked(CLAIMS, parts), parts)
    said = judged(CLAIMS, parts)
    assert [one for one in said if one.words] == of_text, "nothing is said of other tasks"
    assert all(one.outcome != "not testable here" for one in of_text), "each names encodings of the catalogue"
    assert counted(of_text).startswith(f"Of {len(of_text)} claims about what was asked, 0 cannot be tested")
    assert counted(of_text[:1]).startswith(f"One claim is about what was asked: {of_text[0].outcome}. ")
    table = claims_markdown(of_text)
    assert table.count("\n| ") == len(of_text) + 2
    assert "alibi holds at 16×: " in table
    assert "Each claim is tested by itself" in table
