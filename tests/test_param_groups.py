"""Groups for optimizers: every trained parameter once, encodings at their rates and without decay."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from posenc import Learned, RoPE, T5Bias, list_encodings, param_groups
from posenc.encoding import Encoding
from posenc.layers import SelfAttention
from posenc.score import DAPE
from posenc.testing import Case


def model() -> nn.ModuleList:
    shared = T5Bias(4)
    layers = [SelfAttention(32, 4, encodings=[RoPE(8), shared], qk_norm=True, bias=True) for _ in range(2)]
    return nn.ModuleList([nn.Embedding(10, 32), Learned(32, max_length=16), *layers, nn.LayerNorm(32)])


def test_every_parameter_once() -> None:
    network = model()
    groups = param_groups(network, lr=0.01, weight_decay=0.2)
    grouped = [p for group in groups for p in group["params"]]
    assert len({id(p) for p in grouped}) == len(grouped)
    assert {id(p) for p in grouped} == {id(p) for p in network.parameters()}
    of = {id(p): group for group in groups for p in group["params"]}
    assert of[id(network[0].weight)]["weight_decay"] == 0.2
    assert of[id(network[2].q_norm.weight)]["weight_decay"] == 0.0
    bias = of[id(network[2].encodings[1].weight)]
    assert of[id(network[0].weight)]["lr"] == 0.01
    assert (bias["weight_decay"], bias["lr"]) == (0.0, pytest.approx(0.3))
    assert of[id(network[1].table)]["weight_decay"] == 0.0
    assert of[id(network[1].table)]["lr"] == pytest.approx(0.01 * Learned.lr_multiplier)


def test_no_encoding_decays() -> None:
    """One step with gradients of zero moves what decays, and nothing of any encoding."""
    encodings: list[Encoding] = []
    for name in list_encodings():
        encodings += [] if name == "nope" else Case.from_catalogue(name).make()
    network = nn.ModuleList([nn.Linear(4, 4), *encodings])
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    optimizer = torch.optim.AdamW(param_groups(network, lr=0.01))
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    optimizer.step()
    moved = {name for name, p in network.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {"0.weight"}


def test_inner_encodings_and_frozen_parameters() -> None:
    encoding = DAPE(T5Bias(4))
    rates = {group["lr"] for group in param_groups(encoding, lr=1.0)}
    assert rates == {DAPE.lr_multiplier}
    encoding.bias.weight.requires_grad_(False)
    assert all(p is not encoding.bias.weight for group in param_groups(encoding, lr=1.0) for p in group["params"])
    with pytest.raises(ValueError, match="trained"):
        param_groups(encoding.requires_grad_(False), lr=1.0)
    with pytest.raises(ValueError, match="lr"):
        param_groups(encoding, lr=-1.0)
