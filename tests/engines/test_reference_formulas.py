"""The authors' formulas as a third reference: equal to what the authors' own files compute, and used by the check."""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path

import numpy as np
import pytest
from benchmarks.engines import reference_formulas as authors
from benchmarks.engines.__main__ import main
from benchmarks.engines.cases import Case, cases
from benchmarks.engines.check import (
    Cell,
    DisputedError,
    difference,
    disputes,
    frequencies,
    reference_answers,
    reference_names,
    run_check,
)
from benchmarks.engines.reference_formulas import AuthorsAnswer, authors_answer

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


def test_the_authors_formulas_import_nothing_of_posenc() -> None:
    tree = ast.parse(Path(authors.__file__).read_text(encoding="utf-8"))
    imports = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imports += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert sorted(map(str, imports)) == ["__future__", "collections.abc", "math", "typing"]


@pytest.mark.parametrize("name", ["RIGHT", "OFF"])
def test_a_disputed_cell_names_whose_answer_the_engine_gives(name: str) -> None:
    questions = [case for case in cases() if case.row == DISPUTED and case.spelling == "v5" and case.model == "llama"]
    _, cells, _ = run_check([f"{FAKE}:{name}"], questions=questions)
    assert [cell.state for cell in cells] == ["disputed"]
    whose = {"RIGHT": "as in posenc and transformers", "OFF": "as in none of them"}[name]
    assert cells[0].text == (
        "the gain is 1.13862944 in posenc, 1.13862944 in transformers, 1.09801101 in deepseek-ai/DeepSeek-VL2; "
        f"this engine: {whose}"
    )


def test_the_command_shows_all_values_and_names_the_references(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "record.jsonl"
    case = "llama/yarn: one of mscale and mscale_all_dim/v5/256/1024"
    text = "the gain is 1.2 in posenc, 1.2 in transformers, 1.1 in deepseek-ai/DeepSeek-VL2; this engine: as in posenc"
    cell = Cell("right", "1.0", case, "disputed", text=text)
    assert disputes([cell]) == [f"{cell.row} in right is disputed: {text}"]
    line = ["--engine", f"{FAKE}:KEY", "--rope", "yarn: attention_factor", "--out", str(record)]
    assert main([*line, "--json"]) == 1
    references = json.loads(capsys.readouterr().out)["references"]
    assert references["llama/yarn: attention_factor/v5/256/1024"] == ["posenc", "transformers", "jquesnelle/yarn"]
    assert reference_names(named("stablelm/partial/v5/256/1024"))[2:] == ("EleutherAI/gpt-neox",)


def test_a_config_that_the_authors_code_cannot_read_has_two_references() -> None:
    llama = named("llama/yarn/v5/256/1024").config
    block = llama["rope_parameters"]
    assert isinstance(authors_answer(llama, 1024), AuthorsAnswer)
    for config in (
        {**llama, "model_type": "gptj"},
        {**llama, "rope_parameters": {key: value for key, value in block.items() if key != "factor"}},
        {**llama, "rope_parameters": {**block, "rope_type": "unheard"}},
        {**llama, "rope_parameters": {**block, "truncate": False, "beta_fast": 1e6}},
    ):
        assert authors_answer(config, 1024) is None
