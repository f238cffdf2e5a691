"""posenc's rotation in tiny models of diffusers: the same outputs, others under a scaling, and the model's own back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from posenc import PositionInterpolation, YaRN
from posenc.diffusers import KNOWN, AttachedPositions, attach, detach, dype, riflex
from posenc.frequencies import identify_k
from tests.samples import gap

pytestmark = pytest.mark.reference
diffusers = pytest.importorskip("diffusers")
FOLDER = Path(__file__).parents[1] / "golden" / "diffusion"
MADE = json.loads((FOLDER / "manifest.json").read_text())
Inputs = dict[str, Any]


def flux(width: int = 16) -> tuple[nn.Module, Inputs]:
    axes = [4, 6, 6] if width == 16 else [16, 56, 56]
    model = diffusers.FluxTransformer2DModel(
        patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=width, num_attention_heads=2,
        joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=axes,
    )  # fmt: skip
    ids = torch.cartesian_prod(torch.zeros(1), torch.arange(4.0), torch.arange(5.0))
    inputs: Inputs = {"hidden_states": torch.randn(1, 20, 4), "encoder_hidden_states": torch.randn(1, 3, 32)}
    inputs |= {"pooled_projections": torch.randn(1, 32), "timestep": torch.tensor([0.5]), "img_ids": ids}
    return model, {**inputs, "txt_ids": torch.zeros(3, 3)}


def flux_2() -> tuple[nn.Module, Inputs]:
    model = diffusers.Flux2Transformer2DModel(
        patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, axes_dims_rope=[4, 4, 4, 4],
    )  # fmt: skip
    nothing = torch.zeros(1)
    ids = torch.cartesian_prod(nothing, torch.arange(4.0), torch.arange(5.0), nothing)
    words = torch.cartesian_prod(nothing, nothing, nothing, torch.arange(3.0))
    inputs: Inputs = {"hidden_states": torch.randn(1, 20, 4), "encoder_hidden_states": torch.randn(1, 3, 32)}
    inputs |= {"timestep": torch.tensor([0.5]), "guidance": torch.ones(1)}
    return model, {**inputs, "img_ids": ids[None], "txt_ids": words[None]}


def krea_2() -> tuple[nn.Module, Inputs]:
    model = diffusers.Krea2Transformer2DModel(
        in_channels=4, num_layers=1, attention_head_dim=16, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=32, timestep_embed_dim=16, text_hidden_dim=16, num_text_layers=2, text_num_attention_heads=2,
        text_num_key_value_heads=2, text_intermediate_size=32, num_layerwise_text_blocks=1, num_refiner_text_blocks=1,
        axes_dims_rope=(4, 6, 6),
    )  # fmt: skip
    ids = torch.cartesian_prod(torch.zeros(1), torch.arange(4.0), torch.arange(5.0))
    inputs: Inputs = {"hidden_states": torch.randn(1, 20, 4), "encoder_hidden_states": torch.randn(1, 3, 2, 16)}
    return model, {**inputs, "timestep": torch.tensor([0.5]), "position_ids": torch.cat([torch.zeros(3, 3), ids])}


def qwen_image(width: int = 16) -> tuple[nn.Module, Inputs]:
    model = diffusers.QwenImageTransformer2DModel(
        patch_size=2, in_channels=16, out_channels=4, num_layers=1, attention_head_dim=width, num_attention_heads=2,
        joint_attention_dim=16, axes_dims_rope=(8, 4, 4) if width == 16 else (16, 56, 56),
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 20, 16), "encoder_hidden_states": torch.randn(1, 3, 16)}
    inputs |= {"timestep": torch.tensor([0.5]), "img_shapes": [[(1, 4, 5)]]}
    return model, {**inputs, "encoder_hidden_states_mask": torch.ones(1, 3, dtype=torch.long)}


def wan(width: int = 12) -> tuple[nn.Module, Inputs]:
    model = diffusers.WanTransformer3DModel(
        patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=width, in_channels=4, out_channels=4,
        text_dim=16, freq_dim=256, ffn_dim=32, num_layers=1, cross_attn_norm=True, qk_norm="rms_norm_across_heads",
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 3, 8, 10), "timestep": torch.tensor([5])}
    return model, {**inputs, "encoder_hidden_states": torch.randn(1, 4, 16)}


def hunyuan_video(width: int = 10) -> tuple[nn.Module, Inputs]:
    model = diffusers.HunyuanVideoTransformer3DModel(
        in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=width, num_layers=1,
        num_single_layers=1, num_refiner_layers=1, patch_size=1, patch_size_t=1, text_embed_dim=16,
        pooled_projection_dim=8, rope_axes_dim=(2, 4, 4) if width == 10 else (16, 56, 56),
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 3, 4, 5), "timestep": torch.tensor([500])}
    inputs |= {"encoder_hidden_states": torch.randn(1, 6, 16), "encoder_attention_mask": torch.ones(1, 6)}
    return model, {**inputs, "pooled_projections": torch.randn(1, 8), "guidance": torch.ones(1)}


def hunyuan_image() -> tuple[nn.Module, Inputs]:
    model = diffusers.HunyuanImageTransformer2DModel(
        in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=16, num_layers=1, num_single_layers=1,
        num_refiner_layers=1, text_embed_dim=16, rope_axes_dim=(8, 8),
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 4, 5), "timestep": torch.tensor([500.0])}
    return model, {
        **inputs, "encoder_hidden_states": torch.randn(1, 6, 16), "encoder_attention_mask": torch.ones(1, 6)
    }  # fmt: skip


def z_image() -> tuple[nn.Module, Inputs]:
    model = diffusers.ZImageTransformer2DModel(
        in_channels=4, dim=32, n_layers=1, n_refiner_layers=1, n_heads=2, n_kv_heads=2, cap_feat_dim=16,
        axes_dims=[4, 6, 6], axes_lens=[128, 32, 32],
    )  # fmt: skip
    for learned in (model.x_pad_token, model.cap_pad_token):
        nn.init.normal_(learned)  # left as they lie in memory
    return model, {"x": [torch.randn(4, 1, 8, 10)], "t": torch.tensor([0.5]), "cap_feats": [torch.randn(5, 16)]}


def cogview_4() -> tuple[nn.Module, Inputs]:
    model = diffusers.CogView4Transformer2DModel(
        patch_size=2, in_channels=4, num_layers=1, attention_head_dim=8, num_attention_heads=2, out_channels=4,
        text_embed_dim=8, time_embed_dim=8, condition_dim=4, rope_axes_dim=(8, 8),
    )  # fmt: skip
    sizes = dict.fromkeys(("original_size", "target_size", "crop_coords"), torch.full((1, 2), 20.0))
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 8, 10), "encoder_hidden_states": torch.randn(1, 3, 8)}
    return model, {**inputs, **sizes, "timestep": torch.tensor([500])}


def cosmos() -> tuple[nn.Module, Inputs]:
    model = diffusers.CosmosTransformer3DModel(
        in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=24, num_layers=1, mlp_ratio=2,
        text_embed_dim=16, adaln_lora_dim=4, max_size=(4, 32, 32), patch_size=(1, 2, 2), concat_padding_mask=False,
        extra_pos_embed_type=None,
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 3, 8, 10), "timestep": torch.tensor([5])}
    return model, {**inputs, "encoder_hidden_states": torch.randn(1, 4, 16), "fps": 30}


def ltx() -> tuple[nn.Module, Inputs]:
    model = diffusers.LTXVideoTransformer3DModel(
        in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=16, cross_attention_dim=32,
        num_layers=1, caption_channels=32,
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 24, 4), "timestep": torch.tensor([500])}
    inputs |= {"encoder_hidden_states": torch.randn(1, 4, 32), "encoder_attention_mask": torch.ones(1, 4)}
    inputs |= {"num_frames": 2, "height": 3, "width": 4}
    return model, {**inputs, "rope_interpolation_scale": (8 / 25, 32, 32)}


def cogvideox(patch_size_t: int | None = None) -> tuple[nn.Module, Inputs]:
    from diffusers.pipelines.cogvideo.pipeline_cogvideox import CogVideoXPipeline

    model = diffusers.CogVideoXTransformer3DModel(
        num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=4, time_embed_dim=2, text_embed_dim=8,
        num_layers=1, sample_width=18, sample_height=12, sample_frames=9, patch_size=2, patch_size_t=patch_size_t,
        max_text_seq_length=4, use_rotary_positional_embeddings=True,
    )  # fmt: skip

    class Pipeline:
        transformer, vae_scale_factor_spatial = model, 8

    tables = CogVideoXPipeline._prepare_rotary_positional_embeddings
    inputs: Inputs = {"hidden_states": torch.randn(1, 2, 4, 8, 10), "timestep": torch.tensor([500])}
    inputs |= {"encoder_hidden_states": torch.randn(1, 4, 8)}
    return model, {**inputs, "image_rotary_emb": tables(cast(Any, Pipeline), 64, 80, 2, torch.device("cpu"))}


def cogvideox_1_5() -> tuple[nn.Module, Inputs]:
    return cogvideox(2)


MODELS = [
    flux, flux_2, krea_2, qwen_image, wan, hunyuan_video, hunyuan_image, z_image, cogview_4, cosmos, ltx, cogvideox,
    cogvideox_1_5,
]  # fmt: skip


def made(make: Callable[[], tuple[nn.Module, Inputs]]) -> tuple[nn.Module, Inputs]:
    torch.manual_seed(0)
    model, inputs = make()
    return model.eval(), inputs


def output(model: nn.Module, inputs: Inputs) -> Tensor:
    with torch.no_grad():
        result = model(**inputs, return_dict=False)[0]
    return torch.stack(result) if isinstance(result, list) else cast(Tensor, result)


def interpolated(model: nn.Module) -> Any:
    """Rows and columns at half their coordinates, for a model of two, three or four axes."""
    attached = next(module for module in model.children() if isinstance(module, AttachedPositions))
    axes = attached._plain.axes
    halved = PositionInterpolation(2.0)
    return (halved, halved) if axes == 2 else (None, halved, halved, *[None] * (axes - 3))


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_outputs_stay_the_same_and_detach_restores_bit_for_bit(make: Callable[[], Any]) -> None:
    model, inputs = made(make)
    before, keys = output(model, inputs), list(model.state_dict())
    assert attach(model) is model
    assert gap(output(model, inputs), before) < 2e-5  # LTX: their float32 angles
    assert list(model.state_dict()) == keys
    attach(model, interpolated(model))
    assert gap(output(model, inputs), before) > 1e-6
    assert torch.equal(output(detach(model), inputs), before)
    assert torch.equal(output(detach(model), inputs), before)
    assert not model._forward_pre_hooks


def test_ltx_is_attached_with_the_seconds_and_pixels_of_its_tokens() -> None:
    model, inputs = made(ltx)
    coordinates = torch.randn(1, 3, 24).abs() * 10
    given = {**inputs, "video_coords": coordinates}
    before = output(model, given)
    assert gap(output(attach(model), given), before) < 1e-4
    halved = {**inputs, "video_coords": coordinates / torch.tensor([2.0, 1.0, 1.0])[:, None]}
    attach(model, (PositionInterpolation(2.0), None, None))
    assert gap(output(model, given), output(detach(model), halved)) < 1e-4


@pytest.mark.parametrize("name", [name for name in MADE if "dype" in name])
def test_tables_of_dype_are_the_authors(name: str) -> None:
    golden = MADE[name]
    with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as file:
        positions, cos, sin = (torch.from_numpy(file[key]) for key in ("positions", "cos", "sin"))
    if golden["axes_dims"] != [16, 56, 56]:
        pytest.skip("of other sizes, in tests/rotary/test_axes_dims.py")
    scaling = dype(golden["base_patches"], method=golden.get("method_", "yarn"), dynamic=golden["dype"])
    is_qwen = "video_fhw" in golden
    model, _ = made(lambda: (qwen_image if is_qwen else flux)(128))
    attach(model, scaling)
    attached = cast(AttachedPositions, model.pos_embed)
    attached.timestep = golden["timestep"]
    if is_qwen:
        _, height, width = golden["video_fhw"]
        waves, words = attached([[(1, height, width)]], max_txt_seq_len=2, device=torch.device("cpu"))
        first = positions[:, 1:] + torch.tensor([(height + 1) // 2, (width + 1) // 2])
        rows = (first[:, 0] * width + first[:, 1]).long()
        assert gap(waves.real[rows], cos) < 2e-5
        assert gap(waves.imag[rows], sin) < 2e-5
        assert gap(words.abs(), torch.ones(2, 64)) < 1e-6  # no gain: text is not scaled
        return
    tables = attached(positions)
    for table, right in zip(tables, (cos, sin), strict=True):
        assert gap(table[:, ::2], right) < 2e-5
        assert torch.equal(table[:, ::2], table[:, 1::2])


@pytest.mark.parametrize("name", ["riflex_wan_k6_L40", "riflex_hunyuan_k4_L66"])
def test_tables_of_riflex_are_the_authors(name: str) -> None:
    golden = MADE[name]
    with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as file:
        positions, cos, sin = (torch.from_numpy(file[key]) for key in ("positions", "cos", "sin"))
    model, _ = made(lambda: (wan if "wan" in name else hunyuan_video)(128))
    attach(model, riflex(golden["k"], repeats_at=1))
    frames, height, width = (int(size) + 1 for size in positions.amax(0).tolist())
    frames = golden["L_test"]
    patch = 2 if "wan" in name else 1
    tables = cast(AttachedPositions, model.rope)(torch.zeros(1, 4, frames, patch * height, patch * width))
    rows = (positions @ torch.tensor([float(height * width), float(width), 1.0], dtype=torch.float64)).long()
    for table, right in zip(tables, (cos, sin), strict=True):
        assert gap(table.reshape(-1, 128)[rows, ::2], right) < 2e-5


def test_scalings_that_follow_the_call() -> None:
    model, inputs = made(wan)
    before = output(model, inputs)
    assert torch.equal(output(attach(model, riflex(1, repeats_at=3)), inputs), output(attach(model), inputs))
    assert gap(output(attach(model, riflex(1, repeats_at=2)), inputs), before) > 1e-6
    for make, later in ((flux, 0.3), (hunyuan_video, 300), (z_image, 0.7)):
        model, inputs = made(make)
        name = "t" if make is z_image else "timestep"
        attach(model, dype(2, method="ntk"))
        attached = next(module for module in model.children() if isinstance(module, AttachedPositions))
        output(model, inputs)
        assert attached.timestep == pytest.approx(0.5)
        output(model, {**inputs, name: torch.tensor([later])})
        assert attached.timestep == pytest.approx(0.3)  # Z-Image counts backwards
        late = output(model, {**inputs, name: torch.tensor([later])})
        attach(model, lambda sizes: dype(2, method="ntk")(sizes, 1.0))  # the same step of the model under other tables
        assert gap(output(model, {**inputs, name: torch.tensor([later])}), late) > 1e-7


def test_periods_are_those_of_the_models() -> None:
    assert identify_k(44, 10_000.0, 51) == (6, 51)  # Wan
    assert identify_k(16, 256.0, 50) == (4, 50)  # HunyuanVideo
    assert identify_k(16, 10_000.0, 20) == (2, 20)  # CogVideoX-5B


def test_what_is_refused() -> None:
    assert len(KNOWN) == 13
    with pytest.raises(ValueError, match="transformer must have one of FluxPosEmbed"):
        attach(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="transformer must have one of FluxPosEmbed"):
        detach(nn.Linear(2, 2))
    model, inputs = made(wan)
    with pytest.raises(ValueError, match="one or None for each of 3"):
        attach(model, (None, None))
    assert not isinstance(model.rope, AttachedPositions)
    sums, _ = made(lambda: (diffusers.CogVideoXTransformer3DModel(
        num_attention_heads=2, attention_head_dim=16, num_layers=1, text_embed_dim=8), {}))  # fmt: skip
    with pytest.raises(ValueError, match="CogVideoX-2B"):
        attach(sums)
    measured, _ = made(ltx)
    with pytest.raises(ValueError, match="whose frequencies grow"):
        attach(measured, (YaRN(2.0, original_length=8), None, None))
    with pytest.raises(ValueError, match="its timestep is no noise level"):
        attach(made(cosmos)[0], dype())
    attach(model, dype(2))
    with pytest.raises(ValueError, match="same for all rows"):
        output(model, {**inputs, "hidden_states": torch.randn(2, 4, 3, 8, 10), "timestep": torch.tensor([5, 6])})
    for call in (lambda: dype(0), lambda: dype(method="pi"), lambda: riflex(0, repeats_at=5)):  # type: ignore[arg-type]
        with pytest.raises(ValueError):
            call()
