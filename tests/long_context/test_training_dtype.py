"""What training does to weights of 16 bits, and to a model whose loss is not finite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from examples.long_context.tuning import Recipe, tune

from posenc.evaluation import token_losses
from posenc.hf.attach.loading import load_causal_lm
from tests.hf.extend.extended import TRAINED, small, text

GENTLE = Recipe(steps=6, warmup=1, lr=2e-5, save_every=2)


def trained(folder: Path, dtype: torch.dtype, stop: str = "none") -> tuple[Any, dict[str, torch.Tensor]]:
    """The trained model in one dtype, and the weights before."""

    def tell(line: str) -> None:
        if line.startswith(stop):
            raise KeyboardInterrupt

    if not (folder / "model").exists():
        small().to(dtype).save_pretrained(folder / "model")
    model = load_causal_lm(folder / "model").model  # whose frequencies are float32
    before = {name: weight.detach().float() for name, weight in model.named_parameters()}
    return tune(model, text(), GENTLE, TRAINED, state=folder / "tuned.pt", progress=tell), before


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_weights_are_trained_as_float32_ones_are(dtype: torch.dtype, tmp_path: Path) -> None:
    model, before = trained(tmp_path / "new", dtype)
    assert {weight.dtype for weight in model.parameters()} == {dtype}
    assert all(weight.isfinite().all() for weight in model.parameters())
    wide = small()
    wide.load_state_dict(before)
    reference = tune(wide, text(), GENTLE, TRAINED, state=tmp_path / "wide.pt")
    for name, weight in reference.named_parameters():
        assert torch.equal(model.get_parameter(name), weight.to(dtype))


def test_a_stopped_training_of_16_bit_weights_ends_with_the_same_ones(tmp_path: Path) -> None:
    uninterrupted, _ = trained(tmp_path / "whole", torch.bfloat16)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "stopped", torch.bfloat16, "step 4")
    resumed, _ = trained(tmp_path / "stopped", torch.bfloat16)
    for name, weight in uninterrupted.named_parameters():
        assert torch.equal(resumed.get_parameter(name), weight)


def test_a_loss_that_is_not_finite_is_an_error_with_its_cause(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"lr: the loss of step \d is"):
        tune(small(), text(), Recipe(steps=4, warmup=0, lr=1e30), TRAINED, state=tmp_path / "tuned.pt")
    model = small()
    model.model.embed_tokens.weight.data[7] = torch.nan
    with pytest.raises(ValueError, match="its loss at 3 tokens is not finite"):
        token_losses(model, torch.tensor([7, 8, 9]), 1)


@pytest.mark.slow
def test_lora_is_merged(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    recipe = Recipe(steps=3, warmup=1, lr=1e-3, save_every=1, rank=2)
    model = tune(small(), text(), recipe, TRAINED, state=tmp_path / "tuned.pt")
    before = small().state_dict()
    assert set(model.state_dict()) == set(before)
    assert any(not torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
