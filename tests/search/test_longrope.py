"""The search for LongRoPE's factors: as good as the authors', always within bounds, and able to stop and go on."""

from __future__ import annotations

import json
import math
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posenc import LongRoPE, RoPE
from posenc.search import Candidate, Settings, search
from tests.golden import config, load, names
from tests.samples import bounded

SMALL = Settings(population=16, generations=6, mutations=6, crossovers=6, parents=8)
OPTIONS = {"pairs": 8, "original_length": 512, "factor": 4.0, "settings": SMALL}


def distance(candidate: Candidate) -> float:
    """A cheap objective: how far factors are from a curve, and start tokens from 4."""
    wanted = [1 + 3 * (j / 7) ** 2 for j in range(8)]
    off = sum((math.log(f) - math.log(w)) ** 2 for f, w in zip(candidate.factors, wanted, strict=True))
    return off + 0.01 * abs(candidate.start_tokens - 4)


def golden_objective(arrays):
    logs = arrays["target_factors"].log().tolist()
    return lambda c: 2 + sum((math.log(f) - t) ** 2 for f, t in zip(c.factors, logs, strict=True)) / len(logs)


@pytest.mark.parametrize("name", names("longrope_search_*"))
def test_better_than_the_authors_search_within_its_evaluations(name):
    arrays, options = load(name), config(name)
    for seed in range(4):
        found = search(
            golden_objective(arrays), pairs=options["dim"] // 2, base=options["theta"], seed=seed,
            original_length=options["original_length"], factor=options["factor"],
        )  # fmt: skip
        assert found.evaluations <= int(arrays["evaluations"].min())
        assert found.fitness < float(arrays["final_fitness"].min())
        assert list(found.curve) == sorted(found.curve, reverse=True)


@bounded
@given(pairs=st.integers(1, 20), factor=st.floats(1.02, 600), seed=st.integers(0, 99))
def test_every_candidate_is_in_bounds_on_the_grid_and_new(pairs, factor, seed):
    seen = []
    settings = Settings(population=12, generations=3, mutations=4, crossovers=4, parents=6)
    found = search(
        lambda c: seen.append(c) or math.cos(sum(c.factors)), pairs=pairs, original_length=256, factor=factor,
        seed=seed, settings=settings, start_tokens=(0, 2, 8),
    )  # fmt: skip
    assert len(seen) == len(set(seen)) == found.evaluations <= 12 + 3 * 8
    for factors, start in seen:
        assert list(factors) == sorted(factors)
        assert 1 <= factors[0] <= factors[-1] <= 1.25 * factor + 1e-9
        assert all(abs(f * 100 - round(f * 100)) < 1e-6 for f in factors)
        assert start in (0, 2, 8)


def test_the_seeds_come_first():
    seen = []
    search(lambda c: seen.append(c.factors) or 0.0, **OPTIONS)
    assert seen[0] == (4.0,) * 8
    assert seen[1][0] == 1.0
    assert seen[1][-1] == 4.0
    assert seen[2][0] == 1.0


def test_start_tokens_are_found():
    found = search(distance, **OPTIONS | {"settings": Settings(generations=20)}, start_tokens=(0, 1, 2, 4, 8))
    assert found.start_tokens == 4
    assert found.fitness < 0.01


def test_a_seed_decides_everything_whatever_the_executor():
    alone = search(distance, **OPTIONS, seed=3)
    assert alone == search(distance, **OPTIONS, seed=3)
    assert alone != search(distance, **OPTIONS, seed=4)
    with ThreadPoolExecutor(3) as threads, ProcessPoolExecutor(2) as processes:
        assert alone == search(distance, **OPTIONS, seed=3, executor=threads)
        assert alone == search(distance, **OPTIONS, seed=3, executor=processes)


class TestJournal:
    def stopped(self, journal, after, error=KeyboardInterrupt):
        calls = []

        def objective(candidate):
            calls.append(candidate)
            if len(calls) > after:
                raise error
            return distance(candidate)

        with pytest.raises(error):
            search(objective, **OPTIONS, journal=journal)

    @pytest.mark.parametrize("after", [0, 1, 16, 17, 40])
    def test_stopped_and_gone_on_with_it_ends_the_same(self, tmp_path, after):
        whole = search(distance, **OPTIONS, journal=tmp_path / "whole.jsonl")
        self.stopped(tmp_path / "cut.jsonl", after)
        assert len((tmp_path / "cut.jsonl").read_text().splitlines()) == 1 + after
        calls = []
        found = search(lambda c: calls.append(c) or distance(c), **OPTIONS, journal=tmp_path / "cut.jsonl")
        assert found == whole
        assert len(calls) == whole.evaluations - after
        assert (tmp_path / "cut.jsonl").read_text() == (tmp_path / "whole.jsonl").read_text()

    def test_a_torn_line_is_evaluated_again(self, tmp_path):
        path = tmp_path / "journal.jsonl"
        whole = search(distance, **OPTIONS, journal=path)
        text = path.read_text()
        path.write_text(text[:-30])
        assert search(distance, **OPTIONS, journal=path) == whole
        assert path.read_text() == text

    def test_an_error_in_a_pool_loses_nothing_that_was_finished(self, tmp_path):
        path = tmp_path / "journal.jsonl"
        with ThreadPoolExecutor(1) as pool:
            calls = []

            def objective(candidate):
                calls.append(candidate)
                if len(calls) == 9:
                    raise RuntimeError("the cluster is gone")
                return distance(candidate)

            with pytest.raises(RuntimeError, match="the cluster is gone"):
                search(objective, **OPTIONS, journal=path, executor=pool)
        assert len(path.read_text().splitlines()) == 1 + 15  # the other candidates of the generation were finished
        assert search(distance, **OPTIONS, journal=path) == search(distance, **OPTIONS)

    def test_it_tells_of_every_evaluation(self, tmp_path):
        path = tmp_path / "journal.jsonl"
        found = search(distance, **OPTIONS, journal=path)
        head, *lines = (json.loads(line) for line in path.read_text().splitlines())
        assert head["pairs"] == 8
        assert len(lines) == found.evaluations
        assert len({line["origin"] for line in lines}) >= 4
        assert min(float(line["fitness"]) for line in lines) == found.fitness

    def test_numbers_that_are_none_count_as_worst(self, tmp_path):
        path, values = tmp_path / "journal.jsonl", iter([math.nan, math.inf, -math.inf])
        found = search(lambda c: next(values, None) or distance(c), **OPTIONS, journal=path)
        assert math.isfinite(found.fitness)
        assert sum(evaluation.fitness == math.inf for evaluation in found.log) == 3
        assert search(distance, **OPTIONS, journal=path).fitness == found.fitness

    def test_journals_of_others_are_refused(self, tmp_path):
        path = tmp_path / "journal.jsonl"
        search(distance, **OPTIONS, journal=path)
        with pytest.raises(ValueError, match="is of another search"):
            search(distance, **OPTIONS | {"factor": 8.0}, seed=1, journal=path)
        path.write_text("no json\n")
        with pytest.raises(ValueError, match=r"journal .* is (none|of another)"):
            search(distance, **OPTIONS, journal=path)


def test_it_ends_where_nothing_new_is_left():
    found = search(lambda c: sum(c.factors), pairs=1, original_length=16, factor=1.02)
    assert found.exhausted
    assert found.factors == (1.0,)
    assert found.evaluations == 28  # 1.00, 1.01, … 1.27
    assert not search(distance, **OPTIONS).exhausted


def test_progress_is_told_after_every_generation():
    told = []
    found = search(distance, **OPTIONS, progress=told.append)
    assert [p.generation for p in told] == list(range(7))
    assert told[-1].evaluations == found.evaluations
    assert [p.fitness for p in told] == list(found.curve)


def test_what_it_finds_goes_into_longrope():
    found = search(distance, **OPTIONS)
    scaling = LongRoPE([1.0] * 8, found.factors, original_length=512, factor=4.0, start_tokens=found.start_tokens)
    assert RoPE(16, scaling=scaling).spectrum(2048).theta.shape == (8,)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pairs": 0}, "pairs must be"),
        ({"original_length": 0}, "original_length must be"),
        ({"factor": 1.0}, "factor must be"),
        ({"factor": math.nan}, "factor must be"),
        ({"base": 1.0}, "base must be"),
        ({"start_tokens": ()}, "start_tokens must be"),
        ({"start_tokens": (-1,)}, "start_tokens must be"),
    ],
)
def test_refusals_name_the_argument(options, words):
    with pytest.raises(ValueError, match=words):
        search(distance, **OPTIONS | options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"population": 0}, "population must be"),
        ({"parents": 0}, "parents must be"),
        ({"generations": -1}, "generations must be"),
        ({"probability": 1.5}, "probability must be"),
        ({"step": 0.0}, "step must be"),
        ({"bound": 0.5}, "bound must be"),
    ],
)
def test_settings_out_of_range(options, words):
    with pytest.raises(ValueError, match=words):
        Settings(**options)
