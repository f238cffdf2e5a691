"""What encodings cost: every kind of method, bytes of caches that are known, and a record with its conditions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from posenc.lab import commands
from posenc.lab.cost import DEFAULT, MEASURES, Conditions, Layer, measure

SMALL = Conditions(1, 64, 4, 4, 16, "cpu", torch.float32, 1)
KEYS_AND_VALUES = 2 * 4 * 16 * 4  # bytes a token


@pytest.mark.parametrize(
    "name", [*DEFAULT, "nope", "rope+alibi", "dynamic_ntk", "self_extend", "path", "yarn+resonance"]
)
def test_a_layer_computes_all_passes_of_a_method(name: str) -> None:
    layer = Layer(name, SMALL)
    whole = layer.total()
    q, k = layer.encode(layer.q, layer.k, layer.x)
    torch.testing.assert_close(layer.attend(q, k, layer.v), whole)
    assert all(gradient is None or gradient.isfinite().all() for gradient in layer.learn())
    step = layer.decode()()
    assert step.shape == (1, 4, 1, 16)
    if not any(encoding.length_dependent for encoding in layer.rotary):  # these span their own keys
        torch.testing.assert_close(step, whole[:, :, -1:], rtol=1e-4, atol=1e-5)
    assert layer.cache_bytes() >= KEYS_AND_VALUES


@pytest.mark.parametrize(("name", "more"), [("nope", 0), ("rope", 0), ("yarn", 0), ("t5", 0), ("fox", 4 * 4)])
def test_a_cache_keeps_keys_values_and_what_scores_read(name: str, more: int) -> None:
    assert Layer(name, SMALL).cache_bytes() == KEYS_AND_VALUES + more
    grouped = Conditions(1, 64, 4, 2, 16, "cpu", torch.float32, 1)
    assert Layer("rope", grouped).cache_bytes() == KEYS_AND_VALUES / 2


def test_costs_are_absolute_and_against_nope() -> None:
    costs = measure(["alibi", "rope"], SMALL)
    assert list(costs) == ["nope", "alibi", "rope"]
    for name, cost in costs.items():
        assert all(
            cost[what] > 0 for what in MEASURES if (name, what) not in {("nope", "encoding"), ("alibi", "encoding")}
        )
        for what in ("total", "training", "decoding"):
            assert cost[f"{what}_over_nope"] == pytest.approx(cost[what] / costs["nope"][what], rel=1e-3)
    assert (costs["alibi"]["encoding"], costs["nope"]["encoding"]) == (0.0, 0.0)
    assert costs["rope"]["parameters"] == 0


def test_the_command_leaves_a_record_and_its_page(tmp_path: Path) -> None:
    words = [
        "cost",
        "rope",
        "t5",
        "--length",
        "32",
        "--heads",
        "2",
        "--head-dim",
        "8",
        "--rounds",
        "1",
        "--device",
        "cpu",
    ]
    assert commands.run([*words, "--out", str(tmp_path / "cost")]) == 0
    record = json.loads((tmp_path / "cost" / "cost.json").read_text())
    assert (record["conditions"]["length"], record["conditions"]["threads"]) == (32, 1)
    assert list(record["costs"]) == ["nope", "rope", "t5"]
    assert record["command"].startswith("posenc cost rope t5")
    assert "| t5 |" in (tmp_path / "cost" / "cost.md").read_text()


@pytest.mark.parametrize(
    "words",
    [
        ["nosuch"], ["rope", "--length", "0"], ["rope", "--heads", "3", "--kv-heads", "2"], ["rope@8"], ["rope/nope:2"],
        ["rope", "--precision", "int8"], ["rope", "--device", "cuda:1"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_cannot_be_measured_is_said_in_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--length", "32", "--rounds", "1", "--device", "cpu"]
    assert commands.run(["cost", *small, *words]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
