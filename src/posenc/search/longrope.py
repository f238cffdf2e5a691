"""The search for LongRoPE's factors: an evolution over one factor a pair and the number of start tokens.

    best = argmin objective(lambda, n),    1 ≤ lambda_j ≤ lambda_{j+1} ≤ 1.25 · factor,  lambda_j = 1 + 0.01 k
    seeds: lambda_j = factor (PI),  factor^(2j/(d−2)) (NTK),  theta_j / YaRN's theta_j

The paper's objective is a model's perplexity on a few long texts. Here it is any callable, lower is better; NaN and
infinities are the worst. The search is a function of its arguments alone, so that an objective which remembers what it
gave lets a stopped search go on. No candidate is evaluated twice, and it ends after population + generations ·
(mutations + crossovers) evaluations, 1344 by default, or earlier where no move leads to a new candidate.

Source: Ding et al., LongRoPE, arXiv 2402.13753, section 3.2, algorithm 1.
Checked against: microsoft/LongRoPE's dim_mono and dim_piece_mono; the best fitness of their runs is reached within
    the same number of evaluations.
Departs from the source: sizes, bounds, grid and seeds are the paper's (the released code starts from YaRN alone, allows
    1 + factor and leaves start tokens out), and so are a quarter of the mutations and of the crossovers. These change
    pairs one by one, which seldom takes a step in all pairs at once. So the other mutations multiply the factors of
    neighbouring pairs by one number or make them equal, and the other crossovers step from the weighted mean of the
    five best along the difference of two parents. All steps are in logarithms. Candidates out of order are sorted
    instead of thrown away, and the population starts from points between the seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from posenc.arguments import LONGEST, check_number, check_whole
from posenc.frequencies.host import check_base, check_length
from posenc.search.evolution import Settings, generations
from posenc.search.space import Candidate, Seed, Space, seeds

Objective = Callable[[Candidate], float]
START_TOKENS = (0, 1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 64, 128, 256)
"""The choices of the paper."""
BOUND = 1.25  # largest factor of the paper, in multiples of the extension's


class Evaluation(NamedTuple):
    """One call of the objective.

    Attributes:
        generation: 0 is the population.
        candidate: what was tried.
        fitness: what the objective gave; infinite for anything that is no finite number.
        origin: where the candidate came from.
    """

    generation: int
    candidate: Candidate
    fitness: float
    origin: str


@dataclass(frozen=True)
class Progress:
    """The state of a search after a generation.

    Attributes:
        generation: 0 is the population.
        generations: the last one.
        evaluations: so far.
        best: candidate so far.
        fitness: of the best.
    """

    generation: int
    generations: int
    evaluations: int
    best: Candidate
    fitness: float


@dataclass(frozen=True)
class Result:
    """What a search found. ``LongRoPE(short, result.factors, start_tokens=result.start_tokens, …)`` puts it to use.

    Attributes:
        factors: one a pair, not falling.
        start_tokens: positions that stay as they are.
        fitness: of these; infinite where the objective gave no finite number at all.
        evaluations: how many there were.
        curve: best fitness after the population and after each generation.
        log: every evaluation, a generation after the other.
        critical: the real critical dimension of LongRoPE2 as a pair; 0 where all factors were searched.
    """

    factors: tuple[float, ...]
    start_tokens: int
    fitness: float
    evaluations: int
    curve: tuple[float, ...]
    log: tuple[Evaluation, ...]
    critical: int = 0


def search(
    objective: Objective,
    *,
    pairs: int,
    base: float = 10_000.0,
    original_length: int,
    factor: float,
    start_tokens: Sequence[int] = (0,),
    seed: int = 0,
    settings: Settings | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Result:
    """Search for the factors, and the start tokens, with the lowest value of an objective.

    Args:
        objective: gives a number for a `Candidate`, the same whenever asked.
        pairs: of RoPE, head_dim / 2.
        base: of RoPE.
        original_length: tokens that the model was trained at.
        factor: how many times longer than trained, above 1.
        start_tokens: choices of how many first positions stay as they are; the paper's are `START_TOKENS`.
        seed: of the random numbers.
        settings: sizes of the evolution; the paper's by default.
        progress: called after each generation.

    Raises:
        ValueError: where an argument makes no sense. Exceptions of the objective come out as they are.

    >>> from posenc import LongRoPE, RoPE
    >>> found = search(lambda c: abs(c.factors[-1] - 3.0), pairs=8, original_length=512, factor=4.0, seed=1)
    >>> found.fitness, found.evaluations
    (0.0, 1344)
    >>> scaling = LongRoPE([1.0] * 8, found.factors, original_length=512, factor=4.0)
    >>> RoPE(16, scaling=scaling).spectrum(2048).length
    2048
    """
    settings = settings or Settings()
    bound = BOUND if settings.bound is None else settings.bound
    check_problem(pairs, base, original_length, factor, seed)
    _check_start_tokens(start_tokens)
    choices = tuple(sorted(start_tokens))
    start = {name: (logs, choices[0]) for name, logs in seeds(pairs, base, original_length, factor).items()}
    space = Space(pairs, bound * factor, settings.step, choices)
    return run(objective, space, start, seed=seed, settings=settings, progress=progress)


def run(
    objective: Objective,
    space: Space,
    start: Mapping[str, Seed],
    *,
    seed: int,
    settings: Settings,
    progress: Callable[[Progress], None] | None,
) -> Result:
    """The evolution over a space, evaluated: what the searches of this package share.

    Args:
        objective, seed, settings, progress: as `search` has them.
        space: what may be tried.
        start: what the population starts from.
    """
    history: dict[Candidate, float] = {}
    log: list[Evaluation] = []
    curve: list[float] = []
    for generation, origins in enumerate(generations(space, start, settings, seed, history)):
        fitness = {candidate: _number(objective(candidate)) for candidate in origins}
        history |= fitness
        log += [Evaluation(generation, candidate, fitness[candidate], origin) for candidate, origin in origins.items()]
        best = min(history, key=history.__getitem__)
        curve.append(history[best])
        if progress is not None:
            progress(Progress(generation, settings.generations, len(history), best, history[best]))
    return Result(*best, history[best], len(history), tuple(curve), tuple(log))


def _number(value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError: a tensor of several numbers
        raise ValueError(f"objective must return one number, got {value!r}") from error
    return number if math.isfinite(number) else math.inf


def check_problem(pairs: int, base: float, original_length: int, factor: float, seed: int) -> None:
    """Raise a ValueError that names the argument which makes no sense for a search."""
    check_whole("pairs", pairs)
    check_whole("seed", seed, least=0, most=LONGEST)
    check_base(base)
    check_length(original_length)
    check_number("factor", factor, above=1)


def _check_start_tokens(start_tokens: Sequence[int]) -> None:
    if not isinstance(start_tokens, Sequence) or not start_tokens or len(set(start_tokens)) != len(start_tokens):
        raise ValueError(f"start_tokens must be a sequence of one or more different numbers, got {start_tokens!r}")
    for number in start_tokens:
        check_whole("start_tokens", number, least=0, most=LONGEST)
