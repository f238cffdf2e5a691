"""What is tried for one encoding, and what is concluded from it: a study of Optuna, kept in a journal on disk.

Two whole numbers are searched: the model's rate in steps of √2 around the profile's, and, where an encoding has
parameters, their own rate in steps of √10. The first trial is the default, the next ones change one of the two.
"""

from __future__ import annotations

from dataclasses import dataclass

import optuna
from optuna.samplers import TPESampler
from optuna.trial import TrialState

from posenc.lab.rates import Tuned

WORTHWHILE = 0.01  # share of the loss that must be gained before a default is given up: less may be chance
_LR = (-4, 4)  # exponents of √2
_OWN = (-1, 4)  # exponents of √10
SEED = 0  # of the sampler
PATIENCE = 20  # how often the sampler may propose what was tried


@dataclass(frozen=True)
class Found:
    """What a study says."""

    tuned: Tuned  # empty where the default stays
    default: float  # loss of the default
    best: float  # the least loss there was
    trials: list[dict[str, float]]  # factors and loss of each, in order


def open_study(storage: optuna.storages.BaseStorage, spec: str, default_own: float | None) -> optuna.Study:
    """The study of a spec, with the trials that are always made queued in a new one."""
    study = optuna.create_study(
        storage=storage, study_name=spec, direction="minimize", load_if_exists=True, sampler=TPESampler(seed=SEED)
    )
    if not study.trials:
        for lr, own in _first(default_own):
            study.enqueue_trial({"lr": lr} if own is None else {"lr": lr, "own": own})
    return study


def ask(study: optuna.Study, has_own: bool) -> tuple[int, Tuned]:
    """The number and the factors of the next trial, one that was not tried yet."""
    done = [trial.params for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))]
    left = [parameters for parameters in _all(has_own) if parameters not in done]
    if not left:
        raise ValueError(f"{study.study_name}: nothing is left to try after {len(done)} trials; ask for fewer")
    for attempt in range(PATIENCE + 1):
        if attempt == PATIENCE:
            study.enqueue_trial(left[0])  # the sampler insists on what it knows
        trial = study.ask()
        trial.suggest_int("lr", *_LR)
        if has_own:
            trial.suggest_int("own", *_OWN)
        if trial.params in left:
            break
        study.tell(trial, state=TrialState.PRUNED)
    return trial.number, factors(trial.params)


def _all(has_own: bool) -> list[dict[str, int]]:
    rates = range(_LR[0], _LR[1] + 1)
    return [
        {"lr": lr, "own": own} if has_own else {"lr": lr}
        for lr in rates
        for own in (range(_OWN[0], _OWN[1] + 1) if has_own else (0,))
    ]


def factors(parameters: dict[str, int]) -> Tuned:
    """From exponents to factors."""
    found = {"lr": 2 ** (parameters["lr"] / 2)}
    if "own" in parameters:
        found["own"] = 10 ** (parameters["own"] / 2)
    return found


def unfinished(study: optuna.Study) -> list[tuple[int, Tuned]]:
    """Trials that were begun and have no result: those of a run that was stopped."""
    trials = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    return [(trial.number, factors(trial.params)) for trial in trials if "lr" in trial.params]


def ended(study: optuna.Study) -> int:
    """How many trials have a result, or failed."""
    return len(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.FAIL)))


def conclude(study: optuna.Study, default_own: float | None) -> Found:
    """The factors of the least loss, unless the default comes near it; a ValueError where the default failed."""
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    lines = [{**factors(trial.params), "loss": trial.value or 0.0} for trial in done]
    first = {"lr": 1.0} if default_own is None else {"lr": 1.0, "own": _nearest(default_own)}
    default = next((line["loss"] for line in lines if all(line[k] == v for k, v in first.items())), None)
    if default is None:
        raise ValueError(f"{study.study_name}: the training with the default rates has failed; see its log")
    best = min(lines, key=lambda line: line["loss"])
    gained = best["loss"] < (1 - WORTHWHILE) * default
    tuned = {key: best[key] for key in first if best[key] != first[key]} if gained else {}
    return Found(tuned, default, best["loss"], lines)


def _first(default_own: float | None) -> list[tuple[int, int | None]]:
    """Exponents of the trials that come before the sampler's own."""
    if default_own is None:
        return [(0, None), (2, None), (-2, None)]
    default = _exponent(default_own)
    others = [own for own in (0, 2, 3) if own != default]
    return [(0, default), *((0, own) for own in others), (2, default)]


def _exponent(own: float) -> int:
    """Of √10, for one of the catalogue's multipliers."""
    return min(range(_OWN[0], _OWN[1] + 1), key=lambda e: abs(10 ** (e / 2) - own))


def _nearest(own: float) -> float:
    return float(10 ** (_exponent(own) / 2))
