"""posenc tune: one grid for all encodings, how it grows, what is concluded, and how a stopped search goes on."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console
from tests.lab.conftest import InProcess

from posenc.lab.console import plain_console
from posenc.lab.run.optimizer import read_procedures, read_tuned
from posenc.lab.run.planning import RunRequest, prepare
from posenc.lab.run.records import read_records
from posenc.lab.tasks import task_named
from posenc.lab.tune.tuner import LIMITS, PROCEDURE, SEEDS, Exponents, Search, tune


def searched(search: Search, loss: Callable[[Exponents, int], float | None]) -> list[Exponents]:
    """The grid when nothing is left to try, with these losses."""
    while due := search.untried():
        search.losses |= {(point, seed): loss(point, seed) for _, point, seed in due}
    return search.points


def bowl(*best: int) -> Callable[[Exponents, int], float]:
    """Losses with their least at a point; seeds differ by a constant."""
    return lambda point, seed: 1 + seed + sum((a - b) ** 2 for a, b in zip(point, best, strict=True))


def test_the_grid_is_the_same_for_all_and_combines_both_rates() -> None:
    common, both = Search(None), Search(30.0)
    assert [common.factors(point)["lr"] for point in common.points] == pytest.approx([2**0.5, 2, 2**1.5, 4, 2**2.5])
    assert {point[:1] for point in both.points} == set(common.points)
    assert len(both.points) == 15
    own_rates = {both.factors(point)["own"] for point in both.points}
    assert sorted(own_rates) == pytest.approx([30 / 10**0.5, 30, 30 * 10**0.5])
    assert {seed for _, _, seed in both.untried()} == set(range(SEEDS))


def test_a_best_point_inside_ends_the_search() -> None:
    search = Search(1.0)
    assert len(searched(search, bowl(3, 0))) == 15
    conclusion = search.conclude("spec")
    assert (conclusion.tuned, conclusion.points, conclusion.at_limit) == (
        pytest.approx({"lr": 2**1.5, "own": 1.0}),
        15,
        False,
    )
    assert conclusion.loss == pytest.approx(1.5), "the mean over seeds"


def test_an_edge_that_is_best_is_moved_until_the_best_lies_inside() -> None:
    search = Search(1.0)
    points = searched(search, bowl(7, -2))
    assert {common for common, _ in points} == set(range(1, 9))
    assert {own_rate for _, own_rate in points} == set(range(-3, 2))
    assert len(points) == 8 * 5, "every combination"
    assert search.conclude("spec").tuned == pytest.approx({"lr": 2**3.5, "own": 0.1})
    low = Search(None)
    assert {common for (common,) in searched(low, bowl(-1))} == set(range(-2, 6))


def test_the_search_ends_at_its_limits_and_says_so() -> None:
    search = Search(None)
    points = searched(search, lambda point, seed: -point[0])
    assert max(points) == (LIMITS[0][1],)
    assert search.conclude("spec").at_limit


def test_a_point_of_which_a_seed_failed_is_never_chosen() -> None:
    search = Search(None)
    searched(search, lambda point, seed: None if point == (3,) and seed == 1 else bowl(3)(point, seed))
    assert search.conclude("spec").tuned["lr"] == pytest.approx(2), "of two equal ones the smaller rate"
    nothing = Search(None)
    searched(nothing, lambda point, seed: None)
    with pytest.raises(ValueError, match="spec: every training of the search has failed"):
        nothing.conclude("spec")


def test_both_seeds_decide() -> None:
    search = Search(None)
    searched(search, lambda point, seed: abs(point[0] - (2 if seed == 0 else 4)) + 0.1 * (point[0] != 3))
    assert search.conclude("spec").tuned["lr"] == pytest.approx(2**1.5)


@pytest.fixture
def request_of(tmp_path: Path) -> Callable[..., RunRequest]:
    """A tuning in seconds."""
    numbers = {
        "dim": 16, "layers": 1, "heads": 2, "steps": 4, "batch_size": 4, "windows": 4, "lengths": (1, 2),
        "device": "cpu",
    }  # fmt: skip
    task = task_named("flipflop")
    profile = task.profile("quick")

    def request(*encodings: str, out: str = "run", **more: int) -> RunRequest:
        config = profile.config.replaced({**numbers, **more})
        changed = dataclasses.replace(profile, encodings=encodings, config=config)
        return RunRequest(changed, task.source, tmp_path / out, "posenc tune")

    return request


def test_a_stopped_search_goes_on_and_ends_the_same(
    request_of: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The losses of four steps are noise, so that edges would be moved many times.
    monkeypatch.setattr("posenc.lab.tune.tuner.LIMITS", ((1, 5), (-1, 1)))
    console, request = Console(quiet=True), request_of("t5", "rope")
    conclusions = tune(request, 2, console, InProcess())
    out, jobs = request.out, request.out / "tune" / "jobs"
    trials = pd.read_csv(out / "trials.csv")
    assert trials.groupby("spec").size().to_dict() == {"rope": 5 * SEEDS, "t5": 15 * SEEDS}
    assert trials["train_loss"].notna().all()
    means = trials.groupby(["spec", "trial"])["train_loss"].mean()
    for spec, conclusion in conclusions.items():
        assert conclusion.loss == pytest.approx(means[spec].min(), rel=1e-5)
    assert not list(jobs.glob("*/checkpoint.pt"))
    records, _ = read_records(out / "tune" / "records.parquet")
    assert {"train_loss", "probe"} < set(records["metric"])
    assert read_tuned(out) == {spec: conclusion.tuned for spec, conclusion in conclusions.items()}
    assert read_procedures(out) == {"t5": PROCEDURE, "rope": PROCEDURE}
    written_records = jobs / "t5-seed0-trial0" / "records.parquet"
    before = written_records.stat().st_mtime_ns
    for name in ("rope-seed0-trial0", "rope-seed1-trial4", "t5-seed1-trial3"):  # as if it had been stopped
        shutil.rmtree(jobs / name)
    assert tune(request, 2, console, InProcess()) == conclusions
    pd.testing.assert_frame_equal(pd.read_csv(out / "trials.csv"), trials)
    assert written_records.stat().st_mtime_ns == before


def test_further_encodings_join_and_other_numbers_are_refused(
    request_of: Callable[..., RunRequest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posenc.lab.tune.tuner.LIMITS", ((1, 5), (-1, 1)))
    console, request = Console(quiet=True), request_of("rope")
    tune(request, 2, console, InProcess())
    first = pd.read_csv(request.out / "trials.csv")
    tune(request_of("alibi"), 2, console, InProcess())
    both = pd.read_csv(request.out / "trials.csv")
    pd.testing.assert_frame_equal(both[both["spec"] == "rope"], first)
    assert set(read_tuned(request.out)) == {"rope", "alibi"}
    tuned = json.loads((request.out / "tuned.json").read_text())
    assert {spec: losses["points"] for spec, losses in tuned["losses"].items()} == {"rope": 5, "alibi": 5}
    shutil.copytree(request.out / "tune", tmp_path / "third" / "tune")
    (tmp_path / "third" / "tuned.json").write_text(json.dumps({**tuned, "numbers": {}}))
    with pytest.raises(ValueError, match=r"tuned.json is of other numbers or data: move it away"):
        tune(request_of("rope", out="third"), 1, console)
    (tmp_path / "other").mkdir()
    shutil.copy(request.out / "tune" / "run.json", tmp_path / "other" / "run.json")
    with pytest.raises(ValueError, match=r"other holds a run of another configuration .*steps 4 there, 5 here"):
        tune(request_of("rope", out="other", steps=5), 1, console)


def test_a_comparison_records_how_its_rows_were_tuned(
    request_of: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posenc.lab.tune.tuner.LIMITS", ((1, 5), (-1, 1)))
    tune(request_of("rope", "alibi"), 2, Console(quiet=True), InProcess())
    run = prepare(request_of("rope", "alibi", "nope"), plain_console(quiet=True)).run
    assert run.tuning_of("rope") == run.tuning_of("alibi") == PROCEDURE
    assert run.tuning_of("nope") == ""
    assert set(run.rates) == {"rope", "alibi"}


def test_tuning_refuses_tasks_that_repeat_their_data(tmp_path: Path) -> None:
    profile = task_named("images").profile("quick")
    profile = dataclasses.replace(profile, encodings=("nope",), config=profile.config.replaced({"epochs": 1}))
    with pytest.raises(ValueError, match="--task images: its training repeats its data"):
        tune(RunRequest(profile, "digits", tmp_path, "posenc tune"), None, Console(quiet=True))
