"""The authors' formulas as a third reference: equal to what the authors' own files compute, and used by the check."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from benchmarks.engines import reference_formulas as authors
from benchmarks.engines.cases import Case, cases
from benchmarks.engines.check import (
    DisputedError,
    difference,
    frequencies,
    reference_answers,
)

from tests.golden import load

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the bench, whose records change seldom
FAKE = Path(__file__).with_name("fake.py")
DISPUTED = "yarn: one of mscale and mscale_all_dim"


def named(name: str) -> Case:
    return next(case for case in cases() if case.name == name)


def near(computed: object, authors_numbers: object) -> bool:
    return bool(np.allclose(computed, np.asarray(authors_numbers), rtol=1e-9, atol=0))


def test_each_formula_is_what_the_authors_files_compute() -> None:
    """`tests/golden/authors_rope.py` ran those files, at the commits that `reference_formulas` names."""
    by_authors = load("authors_rope")
    base, head, original, factor = 1e4, 32, 256, 4.0
    assert near(authors.rope(base, head), by_authors["default"])
    assert near(authors.llama3(5e5, head, 8.0, 1.0, 4.0, 8192), by_authors["llama3_base_500000_original_8192"])
    assert near([math.sin(frequency) for frequency in authors.linear(base, head, factor)], by_authors["linear_sin"])
    for length in (128, 768, 1024):
        assert near(authors.dynamic(base, head, factor, original, length), by_authors[f"dynamic_{length}"])
    assert near(authors.yarn(base, head, factor, original, 32, 1, True), by_authors["yarn"])
    assert near(authors.yarn(base, head, factor, original, 16, 2, True), by_authors["yarn_betas"])
    assert near(authors.yarn(base, head // 2, factor, original, 32, 1, True), by_authors["yarn_partial"])
    assert near(authors.yarn(base, head, factor, original, 32, 1, False), by_authors["openai"])
    assert near(authors.yarn(base, head, factor, original, 32, 1, True), by_authors["deepseek_pair"])
    for name in ("yarn_gain", "openai_gain", "deepseek_gain"):
        assert near(authors.yarn_gain(factor), by_authors[name])
    assert near(authors.deepseek_gain(factor, 1.0, 0.5), by_authors["deepseek_pair_gain"])
    assert near(authors.deepseek_gain(factor, 0.707, 0.0), by_authors["deepseek_lone_gain"])
    assert near(authors.longrope(base, head, [1 + 3 * pair / 15 for pair in range(16)]), by_authors["longrope"])
    assert near(authors.longrope_gain(factor, original), by_authors["longrope_gain"])
    assert near(authors.proportional(1e6, head, 0.25, 1.0), by_authors["proportional_base_1000000"])


def test_the_references_agree_on_every_case_but_a_lone_mscale() -> None:
    for case in cases():
        for kind, answers in reference_answers(case.config, case.length).items():
            third = [name for name in answers if name not in ("posenc", "transformers")]
            assert len(third) == 1, case.name
            gains = {name for name in third if answers[name].gain is None}
            assert gains == (set(third) if "attention_factor" in case.row else set()), (case.name, kind)
            assert bool(difference(answers)) == (case.row == DISPUTED), case.name


def test_a_mistake_that_posenc_and_transformers_share_is_disputed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A formula of an author that is changed by 2e-6 is heard, whatever the engine answers."""
    changed = {"yarn": "llama/yarn/v5/256/1024", "longrope": "phi3/longrope/v4/256/128",
               "llama3": "qwen2/llama3/v5/256/1024", "dynamic": "llama/dynamic/v5/256/768",
               "linear": "gemma3/per layer: linear/nested v5/256/1024",
               "proportional": "gemma4_text/per layer: proportional/v5/256/1024"}  # fmt: skip
    for name, case in changed.items():
        formula = getattr(authors, name)
        with monkeypatch.context() as patch:
            patch.setattr(authors, name, lambda *a, formula=formula: [1.000002 * theta for theta in formula(*a)])
            with pytest.raises(DisputedError, match="pair "):
                frequencies(named(case).config, named(case).length)
