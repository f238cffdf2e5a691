"""The search for LongRoPE's factors: better than the authors', always within bounds, and over in time."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc.search import START_TOKENS, Candidate, Settings, search
from posenc.search.space import Space, seeds
from tests.golden import config, load, names
from tests.samples import bounded, mostly_slow

SMALL = Settings(population=16, generations=6, mutations=6, crossovers=6, parents=8)
OPTIONS = {"pairs": 8, "original_length": 512, "factor": 4.0, "settings": SMALL}


def distance(candidate: Candidate) -> float:
    """A cheap objective: how far factors are from a curve, and start tokens from 4."""
    expected = [1 + 3 * (j / 7) ** 2 for j in range(8)]
    off = sum((math.log(f) - math.log(w)) ** 2 for f, w in zip(candidate.factors, expected, strict=True))
    return off + 0.01 * abs(candidate.start_tokens - 4)


def offsets(candidate: Candidate, target) -> list[float]:
    return [math.log(f / t) for f, t in zip(candidate.factors, target, strict=True)]


@pytest.mark.parametrize("name", names("longrope_search_*"))
def test_better_than_the_authors_search_within_its_evaluations(name):
    arrays, options = load(name), config(name)
    target = arrays["target_factors"].tolist()
    for seed in range(6):
        result = search(
            lambda c: 2 + sum(x * x for x in offsets(c, target)) / len(target),
            pairs=options["dim"] // 2, base=options["theta"], seed=seed,
            original_length=options["original_length"], factor=options["factor"],
        )  # fmt: skip
        assert result.evaluations == int(arrays["evaluations"].min())
        assert result.fitness < float(arrays["final_fitness"].min())
        assert list(result.curve) == sorted(result.curve, reverse=True)
        assert len(result.curve) == arrays["best_curves"].shape[1]


LOGS = [random.Random(7).random() * math.log(40.0) for _ in range(64)]
TARGETS = {
    "at the upper bound": [40.0] * 64,
    "plain": [1.0] * 64,
    "PI": [32.0 * math.exp(0.1 * math.sin(j)) for j in range(64)],
    "NTK": [32.0 ** (j / 63) for j in range(64)],
    "kinked": [1.0] * 20 + [32.0] * 44,
    "in stairs": [1.0] * 10 + [3.0] * 20 + [9.0] * 20 + [32.0] * 14,
    "random": sorted(map(math.exp, LOGS)),
}


@pytest.mark.parametrize("shape", mostly_slow(TARGETS, "NTK", "kinked"))
def test_any_shape_is_found(shape):
    target = TARGETS[shape]
    """64 pairs, 32 times longer: a mean offset of less than 20 % in 1344 evaluations, smooth objective or not."""
    options = {"pairs": 64, "original_length": 2048, "factor": 32.0, "seed": 1}
    smooth = search(lambda c: sum(x * x for x in offsets(c, sorted(target))) / 64, **options)
    assert smooth.fitness < 0.2**2
    kinked = search(lambda c: sum(map(abs, offsets(c, sorted(target)))) / 64, **options)
    assert kinked.fitness < 0.2


@bounded
@given(pairs=st.integers(1, 20), factor=st.floats(1.02, 600), seed=st.integers(0, 99))
def test_every_candidate_is_in_bounds_on_the_grid_and_new(pairs, factor, seed):
    seen = []
    settings = Settings(population=12, generations=3, mutations=4, crossovers=4, parents=6)
    result = search(
        lambda c: seen.append(c) or math.cos(sum(c.factors)), pairs=pairs, original_length=256, factor=factor,
        seed=seed, settings=settings, start_tokens=(0, 2, 8),
    )  # fmt: skip
    assert len(seen) == len(set(seen)) == result.evaluations <= 12 + 3 * 8
    for factors, start in seen:
        assert list(factors) == sorted(factors)
        assert 1 <= factors[0] <= factors[-1] <= 1.25 * factor + 1e-9
        assert all(abs(f * 100 - round(f * 100)) < 1e-6 for f in factors)
        assert start in (0, 2, 8)


@pytest.mark.parametrize("expected", [0, 20, 256])
def test_start_tokens_are_found(expected):
    target = [1 + 7 * (j / 15) ** 2 for j in range(16)]

    def objective(candidate):
        off = sum(x * x for x in offsets(candidate, target)) / 16
        return off + 1e-3 * abs(math.log((candidate.start_tokens + 1) / (expected + 1)))

    actual = search(objective, pairs=16, original_length=2048, factor=8.0, start_tokens=START_TOKENS)
    assert actual.start_tokens == expected
    assert actual.fitness < 1e-3


def test_a_seed_decides_everything():
    alone = search(distance, **OPTIONS, seed=3)
    assert alone == search(distance, **OPTIONS, seed=3)
    assert alone != search(distance, **OPTIONS, seed=4)


def test_no_number_is_the_worst() -> None:
    values = iter([math.nan, math.inf, -math.inf])
    result = search(lambda c: next(values, None) or distance(c), **OPTIONS)
    assert [evaluation.fitness for evaluation in result.log[:3]] == [math.inf] * 3
    assert math.isfinite(result.fitness)
    undefined = search(lambda c: math.nan, **OPTIONS)
    assert (undefined.fitness, undefined.curve) == (math.inf, (math.inf,) * 7)


@pytest.mark.parametrize("value", [None, "low", torch.zeros(2), [1.0]])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(ValueError, match="objective"):
        search(lambda candidate: value, **OPTIONS)


def test_a_small_space_ends_it_early():
    seen = []
    settings = Settings(step=0.5)
    result = search(
        lambda c: seen.append(c) or sum(c.factors), pairs=2, original_length=16, factor=2.0, settings=settings
    )
    assert result.evaluations == len(seen) == len(set(seen)) <= 10  # two factors, not falling, of 1, 1.5, 2 and 2.5
    assert result.factors == (1.0, 1.0)


@pytest.mark.parametrize("settings", [
    Settings(population=1, parents=1, mutations=1, crossovers=0, generations=30),
    Settings(population=2, parents=1, mutations=0, crossovers=1, generations=30),
    Settings(population=5, parents=5, generations=0),
])  # fmt: skip
def test_the_smallest_evolutions(settings):
    result = search(distance, **OPTIONS | {"settings": settings})
    assert result.evaluations == settings.population + settings.generations * (settings.mutations + settings.crossovers)


def test_progress_is_reported_after_every_generation():
    reports = []
    result = search(distance, **OPTIONS, progress=reports.append)
    assert [p.generation for p in reports] == list(range(7))
    assert reports[-1].evaluations == result.evaluations
    assert [p.fitness for p in reports] == list(result.curve)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pairs": 0}, "pairs must be"),
        ({"factor": 1.0}, "factor must be"),
        ({"base": 1.0}, "base must be"),
        ({"start_tokens": ()}, "start_tokens must be"),
        ({"start_tokens": (4, 4)}, "start_tokens must be"),
        ({"start_tokens": (0.5,)}, "start_tokens must be"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_refusals_name_the_argument(options, words):
    with pytest.raises(ValueError, match=words):
        search(distance, **OPTIONS | options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"population": 0}, "population must be"),
        ({"generations": -1}, "generations must be"),
        ({"probability": 1.5}, "probability must be"),
        ({"step": 0.0}, "step must be"),
        ({"bound": 0.5}, "bound must be"),
        ({"parents": 65}, "parents"),
        ({"mutations": 0, "crossovers": 0}, "mutations"),
    ],
)
def test_settings_out_of_range(options, words):
    with pytest.raises(ValueError, match=words):
        Settings(**options)


# The grid of candidates, and the methods that a search starts from.


@bounded
@given(
    logs=st.lists(st.floats(-3, 9), min_size=1, max_size=12),
    limit=st.floats(1.0, 700.0),
    step=st.sampled_from([0.01, 0.05, 0.3]),
)
def test_the_nearest_candidate(logs, limit, step):
    space = Space(len(logs), limit, step, (0,))
    factors, _ = space.nearest(logs, 0)
    assert list(factors) == sorted(factors)
    assert factors[0] >= 1
    assert factors[-1] <= limit + 1e-9
    for factor, log in zip(factors, sorted(logs), strict=True):
        level = (factor - 1) / step
        assert abs(level - round(level)) < 1e-6
        inside = min(max(math.exp(log), 1.0), 1 + space.top * step)
        assert abs(factor - inside) <= step / 2 + 1e-9


def test_a_candidate_is_its_own_nearest():
    space = Space(5, 640.0, 0.01, (0,))
    for factors in [(1.0, 1.01, 1.02, 1.1, 1.11), (7.77, 99.99, 512.34, 639.99, 640.0)]:
        assert space.nearest([math.log(f) for f in factors], 0).factors == factors


def test_seeds_are_the_formulas_of_the_methods():
    pairs, base, length, factor = 32, 10_000.0, 2048, 8.0
    result = seeds(pairs, base, length, factor)
    assert list(result) == ["PI", "NTK", "YaRN"]
    assert result["PI"] == pytest.approx([math.log(factor)] * pairs)
    assert result["NTK"] == pytest.approx([2 * j / (2 * pairs - 2) * math.log(factor) for j in range(pairs)], abs=1e-12)

    def index(turns):
        return 2 * pairs * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = math.floor(index(32)), math.ceil(index(1))
    ramp = [min(max((j - low) / (high - low), 0), 1) for j in range(pairs)]
    assert result["YaRN"] == pytest.approx([-math.log(r / factor + 1 - r) for r in ramp], abs=1e-12)
    assert result["YaRN"][0] == 0
    assert result["YaRN"][-1] == pytest.approx(math.log(factor))
