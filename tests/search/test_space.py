"""The grid of candidates, and the methods that a search starts from."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posenc.search import Candidate
from posenc.search.space import Space, seeds
from tests.samples import bounded


def test_the_size_is_the_number_of_candidates():
    space = Space(3, 1.04, 0.01, (0, 8))
    factors = [1.0, 1.01, 1.02, 1.03, 1.04]
    every = {Candidate(f, n) for f in itertools.combinations_with_replacement(factors, 3) for n in (0, 8)}
    assert space.size == len(every)
    results = [space.nearest([0.0] * 3, 0)]
    while (free := space.next_free(results[-1], results)) is not None:
        results.append(free)
    assert len(results) == len(every)
    assert set(results) == every


def test_the_next_free_candidate_from_any_other():
    space = Space(2, 1.02, 0.01, (0,))
    assert space.next_free(Candidate((1.0, 1.02), 0), ()) == Candidate((1.01, 1.01), 0)
    assert space.next_free(Candidate((1.02, 1.02), 0), ()) == Candidate((1.0, 1.0), 0), "around the end"
    assert space.next_free(Candidate((1.0, 1.02), 0), {Candidate((1.01, 1.01), 0)}) == Candidate((1.01, 1.02), 0)


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


def test_one_pair_starts_from_position_interpolation():
    assert seeds(1, 10_000.0, 2048, 4.0) == {"PI": [pytest.approx(math.log(4.0))]}
