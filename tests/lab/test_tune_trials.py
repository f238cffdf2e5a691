"""What is tried, in which order, and what is concluded."""

from __future__ import annotations

import pytest

optuna = pytest.importorskip("optuna")

from posenc.lab.tune.trials import ask, conclude, ended, open_study, unfinished  # noqa: E402


def study(own: float | None) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return open_study(optuna.storages.InMemoryStorage(), "spec", own)


def test_defaults_come_first_and_nothing_is_tried_twice() -> None:
    found, tried = study(10.0), []
    for _ in range(12):
        number, factors = ask(found, has_own=True)
        found.tell(number, 1.0)
        tried.append((round(factors["lr"], 4), round(factors["own"], 4)))
    assert tried[:4] == [(1.0, 10.0), (1.0, 1.0), (1.0, 31.6228), (2.0, 10.0)]
    assert len(set(tried)) == 12
    assert ended(found) == 12


def test_without_parameters_only_the_common_rate_is_searched() -> None:
    found = study(None)
    tried = []
    for _ in range(9):  # all there are
        number, factors = ask(found, has_own=False)
        found.tell(number, abs(factors["lr"] - 2.0) + 1.0)
        assert set(factors) == {"lr"}
        tried.append(factors["lr"])
    assert sorted(tried) == pytest.approx([2 ** (e / 2) for e in range(-4, 5)])
    assert conclude(found, None).tuned == {"lr": 2.0}
    with pytest.raises(ValueError, match="nothing is left to try after 9 trials"):
        ask(found, has_own=False)


@pytest.mark.parametrize(("best", "tuned"), [(0.995, {}), (0.985, {"own": 10.0})])
def test_a_default_is_given_up_for_more_than_a_hundredth_only(best: float, tuned: dict[str, float]) -> None:
    found = study(1.0)
    for loss in (1.0, best):
        number, _ = ask(found, has_own=True)
        found.tell(number, loss)
    said = conclude(found, 1.0)
    assert (said.tuned, said.default, said.best) == (tuned, 1.0, best)


def test_what_was_begun_is_found_again() -> None:
    found = study(1.0)
    number, factors = ask(found, has_own=True)
    assert unfinished(found) == [(number, factors)]
    found.tell(number, 1.0)
    assert unfinished(found) == []


def test_a_default_that_failed_is_named() -> None:
    found = study(None)
    number, _ = ask(found, has_own=False)
    found.tell(number, state=optuna.trial.TrialState.FAIL)
    with pytest.raises(ValueError, match="spec: the training with the default rates has failed"):
        conclude(found, None)
