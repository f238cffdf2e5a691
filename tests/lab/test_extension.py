"""What an extension compares: names of rows, equal budgets, numbers that cannot work."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
import torch
from rich.console import Console

from posenc import RoPE
from posenc.lab import commands
from posenc.lab.extension import methods
from posenc.lab.extension.methods import METHODS, Reading, normal, parse, scaling
from posenc.lab.extension.settings import CONTINUED, STANDARD, WINDOW, ExtensionSettings, profile
from posenc.lab.plan import Plan, prepare
from posenc.lab.tasks import read_settings, task_named, to_record
from posenc.lab.tasks.extension import TASK, RunCorpus
from posenc.lab.tasks.task import Profile
from posenc.lab.text.corpus import Corpus
from posenc.lab.worker import run_job
from posenc.search import Candidate

TINY = ExtensionSettings(
    train_length=8, lengths=(1, 2, 4), steps=12, batch_size=4, windows=4, dim=16, layers=1, heads=2,
    precision="float32", device="cpu", checkpoint_every=3, fine_tune_length=2, fine_tune_steps=5,
    search_population=4, search_generations=1, search_pieces=2,
)  # fmt: skip


def plan_of(rows: tuple[str, ...], texts: Path, out: Path, seeds: int = 1) -> Plan:
    """A plan with tiny numbers."""
    return Plan(Profile("tiny", rows, seeds, TINY), str(texts), out)


def run_here(plan: Plan) -> list[str]:
    """Run all jobs of a plan in this process, phase by phase; returns their names in the order in which they ran."""
    prepared = prepare(plan, Console(file=io.StringIO()), processes=1)
    names = []
    for work in sorted(prepared.pending, key=lambda work: work.phase):
        run_job(work.folder, work.rows)
        names.append(work.name)
    return names


def test_a_name_says_method_factor_and_training() -> None:
    assert parse("yarn") == Reading("yarn", False, None, "", False)
    assert parse("ntk+resonance@32") == Reading("ntk", True, 32, "", False)
    assert parse("ntk_by_parts+resonance+tuned") == Reading("ntk_by_parts", True, None, "tuned", False)
    assert parse("rope+continued+window") == Reading("rope", False, None, "continued", True)
    assert normal(" YaRN @max", TINY) == "yarn@4"


def test_untrained_rows_are_measured_on_the_one_base_and_others_start_from_it() -> None:
    specs, _ = TASK.specs(profile("standard").encodings, profile("standard").settings, control=True)
    trained = {row: TASK.trained(row) for row in specs}
    untrained = [row for row in specs if not parse(row).training]
    assert {"rope", WINDOW, "yarn", "yarn+resonance", "longrope@32"} <= set(untrained)
    assert {trained[row] for row in untrained} == {"rope"}
    assert trained["yarn+resonance+tuned"] == "yarn+resonance+tuned"
    assert trained[CONTINUED] == "rope+continued"
    assert {TASK.base(spec) for spec in trained.values()} == {None, "rope"}
    assert [spec for spec in trained.values() if TASK.base(spec) is None].count("rope") == len(untrained)


def test_what_rows_start_from_is_added_and_controls_unless_they_are_not_wanted() -> None:
    specs, remark = TASK.specs(["longrope+tuned"], TINY, control=True)
    assert specs == ["longrope+tuned", WINDOW, CONTINUED, "rope", "longrope@2"]
    assert "rope+window and rope+continued+window are measured too, for comparison" in remark
    assert "rope and longrope@2 are measured too, since others start there" in remark
    assert TASK.specs(["yarn", "yarn"], TINY, control=False) == (["yarn"], "")
    assert TASK.specs(["yarn+tuned"], TINY, control=False)[0] == ["yarn+tuned", "rope"]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("yarm", "did you mean yarn"),
        ("alibi", "knows no 'alibi'"),
        ("clex", "clex learns its frequencies"),
        ("yarn@", "a whole number, or max, is needed after the @"),
        ("yarn@8", "a factor from 2 to the longest of --lengths, 4"),
        ("yarn@1", "a factor from 2"),
        ("dynamic_ntk@4", "@ fixes the factor of an untrained row"),
        ("yarn@4+tuned", "a whole number, or max, is needed after the @"),
        ("yarn+tuned@4", "@ fixes the factor of an untrained row"),
        ("yarn+window", "controls of rope alone"),
        ("pi+continued", "controls of rope alone"),
        ("rope+resonance", "rope has no factor"),
        ("rope@4", "rope has no factor"),
        ("rope+tuned+window", r"belongs to rope or to rope\+continued"),
        ("longrope+resonance", r"\+resonance rounds the frequencies of a factor"),
        ("yarn+tuned+resonance", "after the method come"),
        ("yarn+alibi", "after the method come"),
    ],
)
def test_a_row_that_cannot_be_measured_says_why(row: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TASK.specs([row], TINY, control=True)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"fine_tune_length": 3}, r"--fine-tune-length 3: one of --lengths is needed \(2, 4\)"),
        ({"fine_tune_length": 1}, "--fine-tune-length 1: at least 2"),
        ({"batch_size": 6, "fine_tune_length": 4}, "--batch-size 6: a multiple of --fine-tune-length 4"),
        ({"fine_tune_steps": 0}, "--fine-tune-steps 0"),
        ({"fine_tune_lr": 0.0}, "--fine-tune-lr 0.0: a positive number"),
        ({"search_population": 3}, "--search-population 3: at least 4"),
        ({"dim": 6, "heads": 2}, "--dim 6: heads of an even width of at least 4"),
        ({"lengths": (2, 4)}, "--lengths 2,4"),
    ],
)
def test_numbers_that_cannot_work_are_refused(numbers: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TASK.check(dataclasses.replace(TINY, **numbers))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["quick", "standard", "full"])
def test_profiles_can_be_run_and_come_back_from_their_records(name: str) -> None:
    chosen = profile(name)
    TASK.check(chosen.settings)
    assert TASK.specs(chosen.encodings, chosen.settings, control=True)[1] == ""
    assert (
        read_settings({**to_record(chosen.settings), "lengths": list(chosen.settings.lengths)}, Path())
        == chosen.settings
    )
    assert task_named("extension") is TASK
    assert "evaluations" in " ".join(chosen.settings.shown())


def test_the_standard_profile_has_every_method_in_both_forms() -> None:
    rows = [parse(normal(row, profile("standard").settings)) for row in STANDARD]
    untrained = {row.method for row in rows if not row.training}
    tuned = {row.method for row in rows if row.training == "tuned"}
    assert untrained >= {"rope", "pi", "ntk", "ntk_by_parts", "yarn", "llama3", "longrope"}
    assert tuned >= {"rope", "pi", "ntk", "dynamic_ntk", "yarn", "dynamic_yarn", "llama3", "longrope", "clex"}
    assert {row.method for row in rows if row.resonance and row.training} == {"ntk", "ntk_by_parts", "yarn"}
    assert {row.method for row in rows if row.resonance and not row.training} == {"ntk", "ntk_by_parts", "yarn"}
    assert {row.method for row in rows if row.factor == 32} == untrained - {"rope", "yarn_by_turns"}


def test_all_fine_tunings_have_one_budget_and_the_same_texts(corpus: Corpus) -> None:
    data = RunCorpus(corpus, None)
    tuned = {spec: TASK.numbers(spec, TINY) for spec in ("rope+tuned", "yarn+tuned", "clex+tuned", "longrope+tuned")}
    continued = TASK.numbers("rope+continued", TINY)
    assert len(set(tuned.values())) == 1
    numbers = tuned["yarn+tuned"]
    assert (numbers.steps, numbers.lr, numbers.text_length) == (TINY.fine_tune_steps, TINY.fine_tune_lr, 16)
    assert (continued.steps, continued.lr, continued.text_length) == (TINY.fine_tune_steps, TINY.fine_tune_lr, 8)
    assert TASK.amount(numbers) == TASK.amount(continued) == TASK.amount(TINY)
    (texts,) = TASK.batch(data, numbers, 0, 3)
    assert texts.shape == (2, 17)
    assert torch.equal(texts, TASK.batch(data, tuned["clex+tuned"], 0, 3)[0])
    assert not torch.equal(TASK.batch(data, continued, 0, 0)[0], TASK.batch(data, TINY, 0, 0)[0])  # nothing twice
    assert TASK.numbers("rope", TINY) is TINY


@pytest.mark.parametrize("method", [name for name in METHODS if name not in ("rope", "clex")])
def test_every_method_is_plain_rope_at_the_trained_length(method: str) -> None:
    plain = RoPE(8).spectrum().theta
    spectrum = RoPE(8, scaling=scaling(parse(method), 1, TINY)).spectrum(TINY.train_length)
    torch.testing.assert_close(spectrum.theta, plain)
    assert float(spectrum.gain) == 1.0


def test_a_factor_that_follows_the_length_is_what_dynamic_forms_do_by_themselves() -> None:
    for fixed, dynamic in (("pi", "dynamic_pi"), ("ntk", "dynamic_ntk"), ("yarn", "dynamic_yarn")):
        length = 4 * TINY.train_length
        first = RoPE(8, scaling=scaling(parse(fixed), 4, TINY)).spectrum(length)
        second = RoPE(8, scaling=scaling(parse(dynamic), 2, TINY)).spectrum(length)
        torch.testing.assert_close(first.theta, second.theta)
        assert float(first.gain) == pytest.approx(float(second.gain))


def test_longrope_has_plain_frequencies_up_to_the_trained_length_and_the_found_ones_past_it() -> None:
    rope = RoPE(8, scaling=methods.longrope(Candidate((1.0, 1.5, 2.0, 4.0), 0), 4, TINY))
    plain = RoPE(8).spectrum().theta
    torch.testing.assert_close(rope.spectrum(8).theta, plain)
    torch.testing.assert_close(plain / rope.spectrum(9).theta, torch.tensor([1.0, 1.5, 2.0, 4.0], dtype=torch.float64))


@pytest.mark.parametrize(("length", "beta"), [(8, 2.0), (64, 4.0), (128, 8.0), (512, 32.0), (4096, 32.0)])
def test_what_yarn_leaves_alone_goes_with_the_trained_length(length: int, beta: float) -> None:
    assert ExtensionSettings(train_length=length).beta_fast == beta


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["yarm", "--task", "extension"], "yarm: --task extension knows no 'yarm'; did you mean yarn?"),
        (["--task", "extension", "--fine-tune-length", "5"], "--fine-tune-length 5: one of --lengths is needed"),
        (["--task", "text", "--fine-tune-steps", "5"], "--fine-tune-steps: --task text has no such number"),
        (["--task", "extension", "--profile", "quik"], "did you mean quick"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.run(["compare", *arguments, "--out", str(tmp_path / "run")]) == 2
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_command_ends_with_its_report(texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = "--train-length 8 --lengths 1,2,4 --steps 6 --batch-size 4 --windows 4 --dim 16 --layers 1 --heads 2"
    tuning = "--fine-tune-length 2 --fine-tune-steps 3 --fine-tune-lr 0.001 --device cpu --precision float32"
    typed = [*numbers.split(), *tuning.split(), "--data", str(texts), "--out", str(tmp_path / "run"), "--workers", "2"]
    assert commands.run(["compare", "yarn", "yarn@max", "yarn+tuned", "--task", "extension", *typed]) == 0
    assert "rope+window and rope+continued+window are measured too" in capsys.readouterr().out
    table = (tmp_path / "run" / "table.md").read_text()
    for row in ("yarn", "yarn@4", "yarn+tuned", "rope", WINDOW, CONTINUED):
        assert f"| {row} |" in table
    for name in ("report.html", "bits_by_length.png"):
        assert (tmp_path / "run" / name).stat().st_size > 10_000
