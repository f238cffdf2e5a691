"""LongRoPE2's search: the paper's critical dimensions, its bounds and its rule, and optima that are known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posenc import LongRoPE, RoPE
from posenc.search import Candidate, Settings, critical_pairs, search_longrope2
from posenc.search.space import CriticalSpace
from tests.golden import configs
from tests.samples import bounded

PHI3 = {"pairs": 48, "base": 10_000.0, "original_length": 2048, "factor": 64.0}
LLAMA3 = {"pairs": 64, "base": 500_000.0, "original_length": 8192, "factor": 16.0}
SMALL = {"pairs": 16, "base": 10_000.0, "original_length": 512, "factor": 4.0}
FEW = Settings(population=16, generations=6, mutations=6, crossovers=6, parents=8)


def factors_of(critical: int, free: list[float]) -> list[float]:
    """The rule, written by hand: RoPE with a base under which the critical pair is as slow as it has to be."""
    pairs, base = critical + len(free), 10_000.0
    # base'^(-r / pairs) = base^(-r / pairs) / lambda_r
    moved = base * free[0] ** (pairs / critical)
    return [moved ** (j / pairs) / base ** (j / pairs) for j in range(critical)] + free


def gap(candidate: Candidate, target: list[float]) -> float:
    return sum(abs(math.log(f / t)) for f, t in zip(candidate.factors, target, strict=True)) / len(target)


@pytest.mark.parametrize(
    ("problem", "theoretical", "searched"),
    [(PHI3, 31, 25), (LLAMA3, 35, 30)],  # section 2.1 (62 of 96 channels), section 3.2 and figure 4
)
def test_the_papers_critical_dimensions(problem, theoretical, searched):
    first, last = critical_pairs(problem["pairs"], problem["base"], problem["original_length"])
    assert last == theoretical
    assert first <= searched < last
    periods = [
        problem["original_length"] / (2 * math.pi * problem["base"] ** (j / problem["pairs"]))
        for j in range(problem["pairs"])
    ]
    assert first == next(j for j, count in enumerate(periods) if count <= 10)
    assert last == next(j for j, count in enumerate(periods) if count <= 1)


def test_the_factors_of_a_released_model_are_a_candidate():
    """Phi-4-mini's long factors (config.json of microsoft/Phi-4-mini-instruct) obey every rule of the search."""
    (released,) = (
        line["config"] for line in configs("published_configs") if line["model"] == "microsoft/Phi-4-mini-instruct"
    )
    factors, length = released["rope_scaling"]["long_factor"], released["original_max_position_embeddings"]
    factor = released["max_position_embeddings"] / length
    assert factor == 32
    assert set(released["rope_scaling"]["short_factor"]) == {1.0}
    first, last = critical_pairs(len(factors), released["rope_theta"], length)
    assert (first, last) == (22, 34)
    space = CriticalSpace(len(factors), 2 * factor, 0.01, tuple(range(last, first - 1, -1)), factor)
    candidate = space.nearest([math.log(f) for f in factors], 31)
    assert list(candidate.factors) == pytest.approx(factors, abs=1e-8)
    for pair in range(first, last + 1):  # and of no other critical pair
        if pair != 31:
            assert space.nearest([math.log(f) for f in factors], pair).factors != pytest.approx(factors, rel=1e-4)


def test_a_model_whose_pairs_all_complete_ten_periods_is_refused():
    with pytest.raises(ValueError, match="completes 10 periods"):
        critical_pairs(8, 100.0, 100_000)


@bounded
@given(
    pairs=st.integers(2, 20), length=st.integers(30, 4000), factor=st.floats(1.02, 300), seed=st.integers(0, 99),
)  # fmt: skip
def test_every_candidate_obeys_the_paper(pairs, length, factor, seed):
    seen: list[Candidate] = []
    settings = Settings(population=12, generations=3, mutations=4, crossovers=4, parents=6)
    base = 1e9  # so that slow pairs complete no ten periods
    result = search_longrope2(
        lambda c: seen.append(c) or math.cos(sum(c.factors)), pairs=pairs, base=base, original_length=length,
        factor=factor, seed=seed, settings=settings,
    )  # fmt: skip
    assert len(seen) == len(set(seen)) == result.evaluations <= 12 + 3 * 8
    first, last = critical_pairs(pairs, base, length)
    for factors, start in seen:
        assert start == 0
        assert list(factors) == sorted(factors)
        assert factors[-1] <= 2 * factor + 1e-9
        assert any(
            factors[r] >= factor - 1e-9
            and all(abs(factors[j] - factors[r] ** (j / r)) < 1e-9 for j in range(r))
            and all(abs(f * 100 - round(f * 100)) < 1e-6 for f in factors[r:])
            for r in range(first, last + 1)
        )
    assert first <= result.critical <= last
    assert result.factors[result.critical] >= factor - 1e-9


def test_the_theory_comes_first_then_smaller_critical_dimensions():
    seen = []
    search_longrope2(lambda c: seen.append(c.factors) or 0.0, **SMALL, settings=FEW)
    first, last = critical_pairs(16, 10_000.0, 512)
    assert (first, last) == (4, 8)
    assert list(seen[0]) == pytest.approx(factors_of(8, [4.0] * 8))
    for factors, r in zip(seen[1:6], (8, 7, 6, 5, 4), strict=True):
        assert len(set(factors[r:])) == 1
        assert list(factors) == pytest.approx(factors_of(r, [factors[-1]] * (16 - r)))


@pytest.mark.parametrize("critical", [4, 6, 8])
def test_a_known_optimum_is_found(critical):
    """The critical dimension exactly, and each factor within 2 % on average, among 1344 candidates."""
    free = [4.4 + 2.5 * (j / (15 - critical)) ** 2 for j in range(16 - critical)]
    target = factors_of(critical, free)
    result = search_longrope2(lambda c: gap(c, target), **SMALL)
    assert result.evaluations == 1344
    assert result.critical == critical
    assert result.fitness < 0.02


def test_real_models_optima_are_found():
    """Phi-3-mini's problem with the critical dimension that the authors found."""
    free = [70.0 + 15 * j / 22 for j in range(23)]
    moved = [free[0] ** (j / 25) for j in range(25)]
    result = search_longrope2(lambda c: gap(c, [*moved, *free]), **PHI3)
    assert result.critical == 25
    assert result.fitness < 0.02


def test_what_it_finds_goes_into_longrope():
    result = search_longrope2(lambda c: c.factors[-1], **SMALL, settings=FEW)
    scaling = LongRoPE([1.0] * 16, result.factors, original_length=512, factor=4.0, gain=1.0)
    rope = RoPE(32, scaling=scaling)
    assert rope.spectrum(512).theta.tolist() == pytest.approx(RoPE(32).spectrum(512).theta.tolist())
    assert float(rope.spectrum(2048).gain) == 1.0
