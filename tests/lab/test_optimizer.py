"""Groups and schedule."""

from __future__ import annotations

import dataclasses
from typing import cast

import pytest
import torch

from posenc import catalogue
from posenc.lab.model import Decoder
from posenc.lab.optimizer import lr_at, make_optimizer, set_lr
from posenc.lab.specs import Shape
from posenc.lab.text.profiles import Settings

SETTINGS = Settings(lr=0.01, weight_decay=0.3, steps=100, warmup=10, decay=0.4)


def _groups(spec: str) -> tuple[Decoder, dict[str, dict]]:
    model = Decoder(spec, Shape(dim=16, heads=2, layers=2, train_length=8), hidden=32, seed=0)
    optimizer = make_optimizer(model, SETTINGS)
    set_lr(optimizer, 0.01)
    return model, {group["name"]: group for group in optimizer.param_groups}


def test_only_matrices_decay_and_an_encoding_has_its_own_rate() -> None:
    model, groups = _groups("t5")
    assert {name: g["weight_decay"] for name, g in groups.items()} == {"matrices": 0.3, "vectors": 0.0, "encoding": 0.0}
    assert {name: g["lr"] for name, g in groups.items()} == {"matrices": 0.01, "vectors": 0.01, "encoding": 0.3}
    assert all(p.dim() >= 2 for p in groups["matrices"]["params"])
    assert all(p.dim() == 1 for p in groups["vectors"]["params"])
    assert sum(p.numel() for p in groups["encoding"]["params"]) == model.parameter_counts()[1] > 0


@pytest.mark.parametrize("spec", ["nope", "learned", "t5", "shaw"])
def test_every_parameter_is_in_one_group(spec: str) -> None:
    model, groups = _groups(spec)
    grouped = [id(p) for group in groups.values() for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in model.parameters())
    assert len(grouped) == len(set(grouped))


def test_a_mix_gives_each_part_its_own_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    slower = dataclasses.replace(catalogue.info("shaw"), lr_multiplier=3.0)
    monkeypatch.setitem(cast(dict[str, catalogue.Entry], catalogue.CATALOGUE), "shaw", slower)
    model = Decoder("t5+shaw", Shape(dim=16, heads=2, layers=1, train_length=8), hidden=32, seed=0)
    optimizer = make_optimizer(model, SETTINGS)
    rates = sorted(g["multiplier"] for g in optimizer.param_groups if g["name"] == "encoding")
    assert rates == [3.0, 30.0]
    assert sum(len(g["params"]) for g in optimizer.param_groups) == len(list(model.parameters()))


def test_the_schedule_rises_stays_and_falls() -> None:
    rates = torch.tensor([lr_at(step, SETTINGS) for step in range(100)])
    assert rates[0] == pytest.approx(0.01 / 11)
    assert (rates[:10].diff() > 0).all()
    assert (rates[10:60] == 0.01).all()
    assert (rates[60:].diff() < 0).all()
    assert rates[-1] == pytest.approx(0.01 / 41)


def test_a_short_run_warms_up_for_at_most_a_fifth() -> None:
    short = dataclasses.replace(SETTINGS, steps=10, warmup=100, decay=0.0)
    assert [lr_at(s, short) == 0.01 for s in range(10)] == [False, False] + [True] * 8
