"""The page on larger pictures and longer videos: its blocks run as they stand, on tiny random pipelines of diffusers.

``from_pretrained`` gives a pipeline of one narrow layer in the place of a checkpoint, text is a random embedding, and
latents are not decoded. What the page says of sizes and frames is then compared with what these pipelines do.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

pytestmark = pytest.mark.reference
pytest.importorskip("transformers")
diffusers = pytest.importorskip("diffusers")

from posenc.diffusion import attach, detach, dype  # noqa: E402
from tests.reference.tiny_diffusers import randomized  # noqa: E402
from tests.test_documentation import HOWTO, run_blocks  # noqa: E402

PAGE = HOWTO / "larger-pictures-longer-videos.md"


class TinyFlux(diffusers.FluxPipeline):  # type: ignore[misc, name-defined]
    """FLUX.1's pipeline with heads of 12 channels, two steps, and latents as its pictures."""

    def encode_prompt(self, *inputs: Any, **options: Any) -> tuple[Tensor, Tensor, Tensor]:
        return torch.ones(1, 4, 16), torch.ones(1, 16), torch.zeros(4, 3)

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        steps = {"num_inference_steps": 2, "output_type": "latent", "generator": torch.manual_seed(0)}
        return super().__call__(*inputs, **steps, **options)


class TinyWan(diffusers.WanPipeline):  # type: ignore[misc, name-defined]
    """Wan's pipeline with heads of 128 channels, two steps, pictures of 32 x 32 pixels, and latents as its videos."""

    def encode_prompt(self, *inputs: Any, **options: Any) -> tuple[Tensor, Tensor]:
        return torch.ones(1, 4, 16), torch.zeros(1, 4, 16)

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        steps = {"num_inference_steps": 2, "output_type": "latent", "generator": torch.manual_seed(0)}
        return super().__call__(*inputs, height=32, width=32, **steps, **options)


def tiny_flux() -> TinyFlux:
    sizes = {"block_out_channels": (4,) * 4, "down_block_types": ("DownEncoderBlock2D",) * 4}
    vae = diffusers.AutoencoderKL(**sizes, up_block_types=("UpDecoderBlock2D",) * 4, norm_num_groups=1)
    transformer = diffusers.FluxTransformer2DModel(
        in_channels=4 * vae.config.latent_channels, num_layers=1, num_single_layers=1, attention_head_dim=12,
        num_attention_heads=1, joint_attention_dim=16, pooled_projection_dim=16, axes_dims_rope=(4, 4, 4),
    )  # fmt: skip
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler()
    pipeline = TinyFlux(scheduler, vae, None, None, None, None, randomized(transformer))
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def tiny_wan() -> TinyWan:
    vae = diffusers.AutoencoderKLWan(base_dim=2, dim_mult=[1] * 4, num_res_blocks=1)
    transformer = diffusers.WanTransformer3DModel(
        num_attention_heads=1, attention_head_dim=128, text_dim=16, ffn_dim=16, num_layers=1
    )
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler()
    pipeline = TinyWan(None, None, vae=vae, scheduler=scheduler, transformer=randomized(transformer))
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@pytest.fixture
def pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Tiny pipelines in the place of the checkpoints that the page names, and Wan's as a folder."""
    torch.manual_seed(0)
    by_name = {"black-forest-labs/FLUX.1-dev": tiny_flux(), "Wan-AI/Wan2.1-T2V-1.3B-Diffusers": tiny_wan()}
    for kind in (diffusers.FluxPipeline, diffusers.WanPipeline):
        monkeypatch.setattr(kind, "from_pretrained", lambda name, torch_dtype: by_name[name])
    folder = tmp_path / "Wan2.1-T2V-1.3B-Diffusers"
    (folder / "transformer").mkdir(parents=True)
    (folder / "model_index.json").write_text(json.dumps({"transformer": ["diffusers", "WanTransformer3DModel"]}))
    by_name["Wan-AI/Wan2.1-T2V-1.3B-Diffusers"].transformer.save_config(folder / "transformer")
    monkeypatch.chdir(tmp_path)
    return by_name


def test_the_page_runs_as_it_stands(pipelines: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    run_blocks(PAGE, capsys)
    for pipeline in pipelines.values():
        assert not any(type(module).__name__ == "AttachedPositions" for module in pipeline.transformer.modules())


def test_pictures_up_to_the_trained_size_stay_the_same() -> None:
    torch.manual_seed(0)
    flux = tiny_flux()
    sizes = [(1024, 1024), (512, 1280)]
    before = [flux("", height=height, width=width).images for height, width in sizes]
    attach(flux.transformer, dype())
    after = [flux("", height=height, width=width).images for height, width in sizes]
    assert torch.equal(before[0], after[0])
    assert (before[1] - after[1]).abs().max() > 1e-4
    again = flux("", height=512, width=1280).images
    detach(flux.transformer)
    assert torch.equal(again, after[1])
    assert torch.equal(flux("", height=512, width=1280).images, before[1])


@pytest.mark.parametrize("attached_first", [True, False])
def test_offloaded_models_are_attached_to_in_either_order(attached_first: bool) -> None:
    accelerate = pytest.importorskip("accelerate")
    torch.manual_seed(0)
    flux = tiny_flux()
    size = {"height": 512, "width": 1280}
    before = flux("", **size).images
    steps = [
        lambda: attach(flux.transformer, dype()),
        lambda: accelerate.cpu_offload_with_hook(flux.transformer, torch.device("cpu")),
    ]
    for step in steps if attached_first else steps[::-1]:
        step()
    assert (flux("", **size).images - before).abs().max() > 1e-4
    detach(flux.transformer)
    assert torch.equal(flux("", **size).images, before)
