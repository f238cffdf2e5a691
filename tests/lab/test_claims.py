"""Claims beside measurements: each says what the rows say, and nothing where nothing was measured."""

from __future__ import annotations

import dataclasses

import pytest
from tests.lab.made_up import BITS, RECORD, TRAINING, costs, rows
from tests.lab.test_extension_report import MEASURED as EXTENDED
from tests.lab.test_extension_report import RECORD as EXTENSION
from tests.lab.test_extension_report import runs as extended
from tests.lab.test_images_report import RECORD as IMAGES
from tests.lab.test_images_report import ROWS as IMAGE_ROWS

from posenc.lab.extension.table import rows_of
from posenc.lab.report import claims
from posenc.lab.report.claims import AGREES, CLAIMS, CONTRADICTED, IN_PART, UNMEASURED
from posenc.lab.report.claims_page import claims_markdown, claims_section, verdicts
from posenc.lab.report.evidence import Evidence

EVIDENCE = Evidence.of([(rows(), RECORD)], [])
EMPTY = Evidence.of([], [])


def outcome(beginning: str, evidence: Evidence = EVIDENCE) -> tuple[str, str]:
    (found,) = [claim for claim in CLAIMS if claim.text.startswith(beginning)]
    return found.outcome(evidence)


def test_without_rows_nothing_is_decided() -> None:
    assert {claim.outcome(EMPTY)[0] for claim in CLAIMS} == {UNMEASURED}
    html = claims_section(EMPTY).html
    assert f"{len(CLAIMS)} more, not measured here" in html
    assert 'class="claims"></div>' in html


@pytest.mark.parametrize(
    ("beginning", "word", "numbers"),
    [
        ("RoPE extrapolates", CONTRADICTED, "rope fails at 16×: 1.6"),
        ("Sinusoidal encodings generalise", CONTRADICTED, "sinusoidal fails at 16×"),
        ("Past the trained length", CONTRADICTED, "rope at 2×"),
        ("ALiBi extrapolates", AGREES, "alibi flat at 16×"),
        ("ALiBi's perplexity", CONTRADICTED, "× 1.0"),
        ("ALiBi is the best", CONTRADICTED, "At 16×, fox is better beyond chance."),
        ("ALiBi's biases", CONTRADICTED, "no parameters"),
        ("Relative biases", IN_PART, "t5 degrades at 16×"),
        ("Past their table", CONTRADICTED, "64 rows"),
        ("Attention with a forget gate", AGREES, "fox flat"),
        ("FIRE serves", UNMEASURED, ""),
        ("YaRN's perplexity", UNMEASURED, ""),
        ("Encodings cost", UNMEASURED, ""),
    ],
)
def test_text_decides(beginning: str, word: str, numbers: str) -> None:
    found = outcome(beginning)
    assert found[0] == word
    assert numbers in found[1]


def test_best_is_who_has_the_lowest_mean_too() -> None:
    claim, last = "ALiBi is the best", (1.6, 4.0, 5.0)
    ahead = Evidence.of([(rows({"alibi": (1.6, 1.6, 1.59), "fox": (1.6, 1.6, 1.6), "rope": last}), RECORD)], [])
    assert outcome(claim, ahead)[0] == AGREES
    level = Evidence.of([(rows({"alibi": (1.6, 1.6, 1.61), "fox": (1.6, 1.6, 1.6), "rope": last}), RECORD)], [])
    word, numbers = outcome(claim, level)
    assert word == IN_PART
    assert "the lowest mean is that of fox, and alibi ranks from 1 to 2" in numbers


def test_the_same_claims_agree_with_other_numbers() -> None:
    bits = {**BITS, "rope": (1.68, 1.68, 1.68), "sinusoidal": (1.7, 1.8, 1.9), "alibi": (1.5, 1.6, 1.5 + 0.4)}
    evidence = Evidence.of([(rows(bits), RECORD)], [])
    assert outcome("RoPE extrapolates", evidence)[0] == AGREES
    assert outcome("Past the trained length", evidence)[0] == AGREES
    assert outcome("ALiBi's perplexity", evidence)[0] == AGREES
    assert outcome("ALiBi extrapolates", evidence)[0] == CONTRADICTED
    best = Evidence.of([(rows({**BITS, "alibi": (1.5, 1.5, 1.5)}), RECORD)], [])
    assert outcome("ALiBi is the best", best)[0] == AGREES


def test_resonance_helps_only_where_rope_does_not() -> None:
    def found(rope: float, resonance: float) -> str:
        bits = {"rope": (1.6, rope, rope), "resonance": (1.6, resonance, resonance)}
        return outcome("Where RoPE degrades", Evidence.of([(rows(bits), RECORD)], []))[0]

    assert found(rope=5.0, resonance=4.5) == CONTRADICTED
    assert found(rope=5.0, resonance=1.7) == IN_PART
    assert found(rope=5.0, resonance=1.6) == AGREES
    assert found(rope=1.6, resonance=1.6) == UNMEASURED


def test_gradients_are_compared_by_their_jolts() -> None:
    def found(jolts: dict[str, float]) -> tuple[str, str]:
        measured = [
            dataclasses.replace(row, training={**TRAINING, "grad_norm_max": 0.5 * jolts.get(row.spec, 8.0)})
            for row in rows()
        ]
        return outcome("Gradients", Evidence.of([(measured, RECORD)], []))

    assert found({"alibi": 2.0, "learned": 20.0})[0] == AGREES
    assert found({"alibi": 9.0}) == (
        CONTRADICTED, "Largest over median gradient norm: alibi 9.0, rope 8.0, sinusoidal 8.0, learned 8.0."
    )  # fmt: skip


def test_pictures_and_costs_decide_too() -> None:
    evidence = Evidence.of([(IMAGE_ROWS, IMAGES)], [costs()])
    assert outcome("LieRE", evidence) == (AGREES, "liere, a constant added to all positions: leaks.")
    assert outcome("ComRoPE", evidence)[0] == UNMEASURED
    word, numbers = outcome("Encodings cost", evidence)
    assert word == CONTRADICTED
    assert numbers.endswith("measured: alibi +2 %, said 1.6 %; rope +30 %, said 2.4 %.")
    assert outcome("Sinusoidal encodings train", evidence)[0] == AGREES
    other = Evidence.of([], [costs(alibi=1.3, rope=1.02)])
    assert outcome("Sinusoidal encodings train", other)[0] == CONTRADICTED
    fair = Evidence.of([], [costs(alibi=1.02, rope=1.03)])
    assert outcome("Encodings cost", fair)[0] == AGREES


def test_what_holds_only_after_training_holds_in_part() -> None:
    measured = {**EXTENDED, "pi+tuned": extended(1.9, 1.9, 1.95), "ntk": extended(1.8, 1.85, 1.9)}
    evidence = Evidence.of([(rows_of(measured), EXTENSION)], [])
    assert claims.holds_to("pi", 8, evidence) == (False, "Within 0.3 bit of a sliding window: pi not even at 2×.")
    after, words = claims.holds_to("pi", 8, evidence, trained_counts=True) or (True, "")
    assert (after, words) == (None, "Within 0.3 bit of a sliding window: pi not even at 2×; pi+tuned up to 8×.")
    assert claims.holds_to("ntk", 4, evidence) is None  # no such length
    assert outcome("NTK-aware", evidence) == (AGREES, "Within 0.3 bit of a sliding window: ntk up to 8×.")


def test_every_claim_is_said_once_and_ends() -> None:
    texts = [claim.text for claim in CLAIMS]
    assert len(set(texts)) == len(texts)
    assert all(text.endswith(".") for text in texts)


def test_the_page_has_contradicted_ones_first() -> None:
    html = claims_section(EVIDENCE).html
    assert html.index(CONTRADICTED) < html.rindex(f">{IN_PART}<") < html.rindex(f">{AGREES}<")
    assert "could be measured here" in html
    assert verdicts([CONTRADICTED, AGREES, AGREES]) == (
        "Of 3 claims that could be measured here, 1 is contradicted and 2 agree"
    )
    assert verdicts([IN_PART]) == "Of 1 claim that could be measured here, 1 agrees in part"
    table = claims_markdown(EVIDENCE)
    assert table.index(f"| {CONTRADICTED} |") < table.rindex(f"| {AGREES} |")
    assert sum(line.startswith(("| ", "- ")) for line in table.splitlines()) == len(CLAIMS) + 2  # and the head
    assert "Not measured here:" in claims_markdown(EMPTY)
    assert claims.GENTLE > 18.2 / 15.1  # what is said counts as gentle
