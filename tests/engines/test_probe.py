"""The probe of a running server: each thing that a server can do to positions is told by its answers alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from posenc.engines.endpoint import BudgetError, Endpoint
from posenc.engines.probe import Probe, probe
from posenc_cli import run
from tests.engines.server import Rule, serving

ORIGINAL, LENGTH = 4096, 16384


def run_probe(rule: Rule, **options: int) -> Probe:
    with serving(rule) as url:
        return probe(Endpoint(url), original=ORIGINAL, **{"length": LENGTH, **options})


@pytest.mark.parametrize("probabilities", [True, False])
def test_a_right_server(probabilities: bool) -> None:
    outcome = run_probe(Rule(declares=LENGTH, probabilities=probabilities))
    assert outcome.faults == []
    assert outcome.scaling == "applied"
    assert outcome.declared == LENGTH
    assert outcome.method == ("loss" if probabilities else "secret numbers")
    assert all(point.arrived == pytest.approx(point.requested, rel=0.15) for point in outcome.points)
    assert outcome.points[-1].requested > 0.9 * LENGTH


@pytest.mark.parametrize("probabilities", [True, False])
def test_a_dropped_scaling(probabilities: bool) -> None:
    outcome = run_probe(Rule(right_until=ORIGINAL, probabilities=probabilities))
    assert outcome.scaling == "dropped"
    assert outcome.faults == [f"worse beyond 4,096 tokens, by {outcome.method}: the scaling is probably not applied"]
    if probabilities:
        assert outcome.points[-1].rise is not None
        assert outcome.points[-1].rise.mean == pytest.approx(1.5, abs=0.3)


@pytest.mark.parametrize("probabilities", [True, False])
def test_a_capped_context(probabilities: bool) -> None:
    outcome = run_probe(Rule(cap=9000, probabilities=probabilities, declares=9000))
    assert outcome.cap == 9000
    assert "capped: prompts of more than about 9,000 tokens" in outcome.faults[0]
    assert "maximum context length is 9000" in outcome.points[-1].refused
    assert outcome.truncated_at is None
    assert outcome.scaling == "applied"  # as far as prompts are taken


def test_a_cap_that_the_refusal_names() -> None:
    assert run_probe(Rule(cap=9000)).cap == 9000  # the server declares nothing
    assert run_probe(Rule(cap=9000, refusal="prompt is too long")).cap == pytest.approx(8064, rel=0.1)  # what it took


@pytest.mark.parametrize("probabilities", [True, False])
def test_a_truncated_prompt(probabilities: bool) -> None:
    outcome = run_probe(Rule(keeps=4000, probabilities=probabilities))
    assert outcome.truncated_at == 4000
    assert outcome.faults == ["prompts are truncated to 4,000 tokens without an error"]
    assert outcome.scaling == "not measured"  # nothing beyond it arrived


def test_probabilities_that_are_one_token_off() -> None:
    outcome = run_probe(Rule(right_until=ORIGINAL, one_off=True))
    assert outcome.scaling == "dropped"
    assert outcome.points[0].loss == pytest.approx(2.0, abs=0.3)
    assert "shifted by one token" in outcome.notes[0]
    assert run_probe(Rule(one_off=True)).scaling == "applied"


def test_a_small_rise_is_neither() -> None:
    assert run_probe(Rule(right_until=ORIGINAL, rise=0.22)).scaling == "inconclusive"


def test_a_server_that_does_not_count_tokens() -> None:
    outcome = run_probe(Rule(counts=False, right_until=ORIGINAL))
    assert outcome.scaling == "dropped"
    assert "does not count" in str(outcome)


def test_requests_are_bounded_and_what_was_not_done_is_said() -> None:
    with serving(Rule()) as url:
        endpoint = Endpoint(url, most_requests=5)
        outcome = probe(endpoint, original=ORIGINAL, length=LENGTH)
    assert outcome.requests == 5
    assert "not every length was measured: 5 requests" in outcome.notes[-1]
    with pytest.raises(BudgetError):
        endpoint.complete("a", 1)


def test_a_server_that_refuses_everything_and_one_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="maximum context length is 10"):
        run_probe(Rule(cap=10))
    with pytest.raises(OSError, match="cannot be reached"):
        probe(Endpoint("http://127.0.0.1:9"))
    with pytest.raises(ValueError, match="address such as"):
        Endpoint("localhost:8000")
    with pytest.raises(ValueError, match="address such as"):
        Endpoint("file:///etc/passwd")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"model_type": "llama", "head_dim": 64, "max_position_embeddings": LENGTH, "rope_theta": 1e4}
    block = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL}
    (tmp_path / "config.json").write_text(json.dumps({**config, "rope_scaling": block}))
    with serving(Rule(right_until=ORIGINAL)) as url:
        line = ["engines", "probe", "--endpoint", f"{url}/v1", "--checkpoint", str(tmp_path)]
        assert run(line) == 1
        assert "FAULT  worse beyond 4,096 tokens" in capsys.readouterr().out
        assert run([*line, "--requests", "4", "--json"]) == 3
        assert json.loads(capsys.readouterr().out)["requests"] == 4
    with serving(Rule()) as url:
        assert run(["engines", "probe", "--endpoint", url, "--original", "4096", "--length", "9000"]) == 0
    assert run(["engines", "probe", "--endpoint", "http://127.0.0.1:9"]) == 2
    assert "cannot be reached" in capsys.readouterr().err
    assert run(["engines", "probe", "--endpoint", url, "--api-key-env", "NOT_SET_HERE"]) == 2
    assert "NOT_SET_HERE is not set" in capsys.readouterr().err
