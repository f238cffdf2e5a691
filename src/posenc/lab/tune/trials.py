"""What is tried for one encoding, and what is concluded: a function of the trials so far, so that a run can go on.

Two whole numbers are searched: the model's rate in steps of √2 around the profile's, and, where an encoding has
parameters, their own rate in steps of √10. The first trial is the default, the next ones change one of the two; then
Optuna's tree of Parzen estimators proposes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import TPESampler
from optuna.trial import TrialState, create_trial

from posenc.lab.rates import Tuned

WORTHWHILE = 0.01  # share of the loss that must be gained before a default is given up: less may be chance
LR, OWN = range(-4, 5), range(-1, 5)  # exponents of √2 and of √10
PATIENCE = 20  # how often the sampler may propose what was tried
Exponents = tuple[int, ...]  # of the model's rate and, where there are own parameters, of theirs


@dataclass(frozen=True)
class Trial:
    """One training: its factors, and the loss of its last twentieth; None where it failed."""

    tuned: Tuned
    loss: float | None

    @property
    def exponents(self) -> Exponents:
        """What was searched."""
        return exponents_of(self.tuned)


@dataclass(frozen=True)
class Found:
    """What the trials of an encoding say: factors, empty where the default stays, and the losses they rest on."""

    tuned: Tuned
    default: float
    best: float


def propose(spec: str, trials: Sequence[Trial], default: Tuned) -> Tuned:
    """The factors to try next; a ValueError where nothing is left.

    Args:
        spec: for the error.
        trials: so far.
        default: factors without tuning: 1 for "lr", and for "own" the encoding's, if it has parameters.
    """
    done = [trial.exponents for trial in trials]
    first = exponents_of(default)
    known: list[Exponents] = [first, (2,), (-2,)]
    if len(first) > 1:
        known = [first, *((0, own) for own in (0, 2, 3) if own != first[1]), (2, first[1])]
    left = [wanted for wanted in (*known, *_all(len(first) > 1)) if wanted not in done]
    if not left:
        raise ValueError(f"{spec}: nothing is left to try after {len(done)} trials; ask for fewer")
    return factors_of(left[0] if left[0] in known else _sampled(trials, left))


def _sampled(trials: Sequence[Trial], left: Sequence[Exponents]) -> Exponents:
    ranges = {"lr": LR, "own": OWN} if len(left[0]) > 1 else {"lr": LR}
    searched: dict[str, BaseDistribution] = {n: IntDistribution(r[0], r[-1]) for n, r in ranges.items()}
    study = optuna.create_study(sampler=TPESampler(seed=len(trials)))
    for trial in trials:
        state = TrialState.FAIL if trial.loss is None else TrialState.COMPLETE
        tried = dict(zip(searched, trial.exponents, strict=True))
        study.add_trial(create_trial(state=state, value=trial.loss, params=tried, distributions=searched))
    for _ in range(PATIENCE):
        asked = study.ask(searched)
        found = tuple(asked.params.values())
        if found in left:
            return found
        study.tell(asked, state=TrialState.PRUNED)
    return left[0]  # the sampler insists on what it knows


def conclude(spec: str, trials: Sequence[Trial], default: Tuned) -> Found:
    """The factors of the least loss, unless the default comes near it; a ValueError where the default failed."""
    losses = {trial.exponents: trial.loss for trial in trials if trial.loss is not None}
    first = exponents_of(default)
    if first not in losses:
        raise ValueError(f"{spec}: the training with the default rates has failed; see its log")
    best = min(losses, key=losses.__getitem__)
    gained = losses[best] < (1 - WORTHWHILE) * losses[first]
    changed = [name for name, a, b in zip(default, best, first, strict=True) if a != b and gained]
    return Found({name: factors_of(best)[name] for name in changed}, losses[first], losses[best])


def factors_of(exponents: Exponents) -> Tuned:
    """From exponents to factors."""
    bases = {"lr": 2.0, "own": 10.0}
    return {name: base ** (e / 2) for (name, base), e in zip(bases.items(), exponents, strict=False)}


def exponents_of(tuned: Tuned) -> Exponents:
    """From factors to the nearest exponents that are searched."""
    steps = {"lr": (LR, 2.0), "own": (OWN, 10.0)}
    near = {name: round(2 * math.log(factor, steps[name][1])) for name, factor in sorted(tuned.items())}
    return tuple(min(max(e, steps[name][0][0]), steps[name][0][-1]) for name, e in near.items())


def _all(has_own: bool) -> list[Exponents]:
    return [(lr, own) for lr in LR for own in OWN] if has_own else [(lr,) for lr in LR]
