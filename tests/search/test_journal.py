"""The journal of a search: what it holds, what it survives, what it refuses."""

from __future__ import annotations

import json
import math

import pytest

from posenc.search import Candidate, Settings, search

OPTIONS = {
    "pairs": 6,
    "original_length": 512,
    "factor": 4.0,
    "start_tokens": (0, 4, 16),
    "settings": Settings(population=12, generations=4, mutations=5, crossovers=5, parents=6),
}
TOTAL = 12 + 4 * 10


def distance(candidate: Candidate) -> float:
    expected = [1.0, 1.2, 1.9, 2.0, 3.7, 4.4]
    off = sum((math.log(f) - math.log(w)) ** 2 for f, w in zip(candidate.factors, expected, strict=True))
    return off + 0.01 * abs(candidate.start_tokens - 4)


def undefined_at_times(candidate: Candidate) -> float:
    """Not a number for some candidates, so that most of the seeds' offspring has none."""
    return distance(candidate) if candidate.factors[0] < 1.1 else (math.nan, math.inf, -math.inf)[len(candidate) % 3]


@pytest.fixture
def finished(tmp_path):
    """A finished search and its journal."""
    path = tmp_path / "finished.jsonl"
    return search(distance, **OPTIONS, journal=path), path


def test_a_line_for_every_evaluation(finished):
    result, path = finished
    header, *lines = map(json.loads, path.read_text().splitlines())
    assert header["pairs"] == 6
    assert header["start_tokens"] == [0, 4, 16]
    assert header["population"] == 12
    got = [(x["generation"], (tuple(x["factors"]), x["start_tokens"]), x["fitness"], x["origin"]) for x in lines]
    assert got == list(result.log)
    assert len(got) == TOTAL
    assert {x["origin"] for x in lines} >= {"PI", "NTK", "YaRN", "between seeds", "redraw", "segment", "centre"}


def test_a_finished_search_asks_nothing_more(finished):
    result, path = finished
    before = path.read_bytes()

    def never(candidate):
        raise AssertionError("asked again")

    assert search(never, **OPTIONS, journal=path) == result
    assert path.read_bytes() == before


@pytest.mark.parametrize("after", [1, 11, 12, 13, 37])
def test_an_interrupted_search_ends_as_one_left_alone(finished, tmp_path, after):
    result, path = finished
    cut = tmp_path / "cut.jsonl"
    calls = []

    def interrupted(candidate):
        if len(calls) == after:
            raise KeyboardInterrupt
        calls.append(candidate)
        return distance(candidate)

    with pytest.raises(KeyboardInterrupt):
        search(interrupted, **OPTIONS, journal=cut)
    assert cut.read_text().splitlines() == path.read_text().splitlines()[: 1 + after]
    resumed = search(distance, **OPTIONS, journal=cut)
    assert resumed == result
    assert cut.read_text() == path.read_text()


@pytest.mark.parametrize("cut", [1, 2, 40, 100])
def test_a_torn_last_line_is_evaluated_again(finished, cut):
    result, path = finished
    content = path.read_bytes()
    path.write_bytes(content[:-cut])
    calls = []
    assert search(lambda c: calls.append(c) or distance(c), **OPTIONS, journal=path) == result
    assert calls == [result.log[-1].candidate]
    assert path.read_bytes() == content


def test_a_torn_first_line_is_a_new_journal(finished, tmp_path):
    result, path = finished
    torn = tmp_path / "torn.jsonl"
    for size in (0, 1, 50):
        torn.write_bytes(path.read_bytes()[:size])
        assert search(distance, **OPTIONS, journal=torn) == result
        assert torn.read_bytes() == path.read_bytes()


def test_no_number_is_the_worst_and_stays_in_the_journal(tmp_path):
    path = tmp_path / "journal.jsonl"
    values = iter([math.nan, math.inf, -math.inf])
    result = search(lambda c: next(values, None) or distance(c), **OPTIONS, journal=path)
    texts = [json.loads(line).get("fitness") for line in path.read_text().splitlines()[1:]]
    assert texts[:3] == ["nan", "inf", "-inf"]
    assert all(isinstance(text, float) for text in texts[3:])
    assert [evaluation.fitness for evaluation in result.log[:3]] == [math.inf] * 3
    assert math.isfinite(result.fitness)
    assert search(distance, **OPTIONS, journal=path) == result


def test_an_objective_that_is_often_undefined(tmp_path):
    result = search(undefined_at_times, **OPTIONS, journal=tmp_path / "journal.jsonl")
    assert result == search(undefined_at_times, **OPTIONS, journal=tmp_path / "journal.jsonl")
    assert result.fitness < 0.2
    undefined = search(lambda c: math.nan, **OPTIONS)
    assert undefined.fitness == math.inf
    assert undefined.evaluations == TOTAL
    assert undefined.curve == (math.inf,) * 5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pairs": 7}, "pairs = 6, not 7"),
        ({"base": 5e5}, "base = 10000.0, not 500000.0"),
        ({"original_length": 256}, "original_length = 512, not 256"),
        ({"factor": 8.0}, "factor = 4.0, not 8.0"),
        ({"start_tokens": (0,)}, r"start_tokens = \[0, 4, 16\], not \[0\]"),
        ({"seed": 1}, "seed = 0, not 1"),
        ({"settings": Settings()}, "population = 12, not 64"),
    ],
)
def test_a_journal_of_another_search_is_refused(finished, change, words):
    _, path = finished
    content = path.read_bytes()
    with pytest.raises(ValueError, match=rf"finished\.jsonl.*\b{words}"):
        search(distance, **OPTIONS | change, journal=path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b"my notes", b"my notes\n", b'{"format": "other"}\n', b"[1]\n", b"\xff\xfe\n\n"])
def test_a_file_that_is_no_journal_is_refused_and_left(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"notes\.txt"):
        search(distance, **OPTIONS, journal=path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("line", ["no json", "{}", '{"factors": 1, "start_tokens": 0, "fitness": 1}'])
def test_a_line_that_cannot_be_read_is_named(finished, line):
    _, path = finished
    lines = path.read_text().splitlines()
    lines[6] = line
    path.write_text("\n".join([*lines, "torn"]))
    content = path.read_bytes()
    with pytest.raises(ValueError, match="line 7"):
        search(distance, **OPTIONS, journal=path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("num_lines", [20, None])
def test_a_candidate_that_the_search_never_tries_is_refused(finished, num_lines):
    """As from a file edited by hand: going on would leave evaluations uncounted."""
    _, path = finished
    lines = path.read_text().splitlines()[:num_lines]
    stranger = json.loads(lines[-1]) | {"factors": [1.0, 1.0, 1.0, 1.0, 1.0, 1.23]}
    path.write_text("\n".join([*lines, json.dumps(stranger)]) + "\n")
    with pytest.raises(ValueError, match="candidates"):
        search(distance, **OPTIONS, journal=path)
