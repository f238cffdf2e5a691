"""posenc's rotation in tiny models of diffusers: the same outputs, others under a scaling, and the model's own back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from posenc import PositionInterpolation
from posenc.diffusers import AttachedPositions, attach, detach
from posenc.frequencies import DyPE, RIFLEx
from tests.samples import gap

pytestmark = pytest.mark.reference
diffusers = pytest.importorskip("diffusers")


def flux() -> tuple[nn.Module, dict[str, Any]]:
    model = diffusers.FluxTransformer2DModel(
        patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=[4, 6, 6],
    )  # fmt: skip
    ids = torch.cartesian_prod(torch.zeros(1), torch.arange(4.0), torch.arange(5.0))
    inputs = {"hidden_states": torch.randn(1, 20, 4), "encoder_hidden_states": torch.randn(1, 3, 32)}
    inputs |= {"pooled_projections": torch.randn(1, 32), "timestep": torch.tensor([0.5]), "img_ids": ids}
    return model, {**inputs, "txt_ids": torch.zeros(3, 3)}


def qwen_image() -> tuple[nn.Module, dict[str, Any]]:
    model = diffusers.QwenImageTransformer2DModel(
        patch_size=2, in_channels=16, out_channels=4, num_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=16, axes_dims_rope=(8, 4, 4),
    )  # fmt: skip
    inputs = {"hidden_states": torch.randn(1, 20, 16), "encoder_hidden_states": torch.randn(1, 3, 16)}
    inputs |= {"timestep": torch.tensor([0.5]), "img_shapes": [[(1, 4, 5)]]}
    return model, {**inputs, "encoder_hidden_states_mask": torch.ones(1, 3, dtype=torch.long)}


def wan() -> tuple[nn.Module, dict[str, Any]]:
    model = diffusers.WanTransformer3DModel(
        patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=16,
        freq_dim=256, ffn_dim=32, num_layers=1, cross_attn_norm=True, qk_norm="rms_norm_across_heads",
    )  # fmt: skip
    inputs = {"hidden_states": torch.randn(1, 4, 3, 8, 10), "timestep": torch.tensor([5])}
    return model, {**inputs, "encoder_hidden_states": torch.randn(1, 4, 16)}


MODELS = [flux, qwen_image, wan]


def output(model: nn.Module, inputs: dict[str, Any]) -> torch.Tensor:
    with torch.no_grad():
        return model(**inputs).sample


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_outputs_stay_the_same_and_detach_restores_bit_for_bit(make: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    model, inputs = make()
    model.eval()
    before = output(model, inputs)
    parameters = sum(p.numel() for p in model.parameters())
    assert attach(model) is model
    assert gap(output(model, inputs), before) < 1e-5
    assert sum(p.numel() for p in model.parameters()) == parameters
    attach(model, (None, PositionInterpolation(2.0), PositionInterpolation(2.0)))
    assert gap(output(model, inputs), before) > 1e-6
    assert torch.equal(output(detach(model), inputs), before)
    assert torch.equal(output(detach(model), inputs), before)


def test_scalings_that_follow_the_size_of_the_call() -> None:
    torch.manual_seed(0)
    model, inputs = wan()
    seen = []

    def riflex(sizes: tuple[int, ...]) -> Any:
        seen.append(sizes)
        return (RIFLEx(1, length=max(2, sizes[0])), None, None)

    before = output(model, inputs)
    assert gap(output(attach(model, riflex), inputs), before) > 1e-6
    assert seen[-1] == (3, 4, 5)
    flux_model, flux_inputs = flux()
    plain = output(flux_model, flux_inputs)
    clock = {"timestep": 1.0}

    def dype(sizes: tuple[int, ...]) -> Any:
        return (None, *[DyPE(n, original_length=2, method="ntk", timestep=clock["timestep"]) for n in sizes[1:]])

    attach(flux_model, dype)
    first = output(flux_model, flux_inputs)
    clock["timestep"] = 0.3
    assert gap(output(flux_model, flux_inputs), first) > 1e-6
    assert gap(first, plain) > 1e-6


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="transformer must have one of Flux2PosEmbed"):
        attach(nn.Linear(2, 2))
    model, _ = wan()
    with pytest.raises(ValueError, match="one or None for each of 3"):
        attach(model, (None, None))
    assert not isinstance(model.rope, AttachedPositions)
