"""Positions of diffusion transformers, compared with the modules of the installed diffusers, as shipped in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from posenc import AxialRoPE
from posenc.positions import Image, Text, Video, grid, latents
from tests.samples import gap

pytestmark = pytest.mark.reference
pytest.importorskip("diffusers")
from diffusers.models import embeddings
from diffusers.models.transformers import (
    transformer_cogview4,
    transformer_cosmos,
    transformer_flux,
    transformer_flux2,
    transformer_hunyuan_video,
    transformer_hunyuanimage,
    transformer_lumina2,
    transformer_qwenimage,
    transformer_wan,
    transformer_z_image,
)

TOLERANCE = 2e-5  # of their float32 angles at these positions
Table = tuple[Tensor, Tensor]


def adjacent(cos: Tensor, sin: Tensor) -> Table:
    """Of tables that repeat each pair for its two channels (2j, 2j + 1)."""
    return cos.reshape(-1, cos.shape[-1])[:, ::2], sin.reshape(-1, sin.shape[-1])[:, ::2]


def halves(cos: Tensor, sin: Tensor) -> Table:
    """Of tables that repeat all pairs for the second half of the channels."""
    return cos[:, : cos.shape[-1] // 2], sin[:, : sin.shape[-1] // 2]


def complexes(*waves: Tensor) -> Table:
    joined = torch.cat([wave.reshape(-1, wave.shape[-1]) for wave in waves])
    return joined.real, joined.imag


def flux() -> tuple[Table, AxialRoPE, Tensor]:
    positions = latents([Text(5), Image(4, 6), Image(3, 2)], model="flux-1")
    module = transformer_flux.FluxPosEmbed(10000, [16, 56, 56])
    return adjacent(*module(positions.float())), AxialRoPE.of_model("flux-1"), positions


def flux_2() -> tuple[Table, AxialRoPE, Tensor]:
    positions = latents([Text(7), Image(3, 4), Image(2, 3)], model="flux-2")
    module = transformer_flux2.Flux2PosEmbed(2000, [32, 32, 32, 32])
    return adjacent(*module(positions.float())), AxialRoPE.of_model("flux-2"), positions


def qwen_image() -> tuple[Table, AxialRoPE, Tensor]:
    module = transformer_qwenimage.QwenEmbedRope(10000, [16, 56, 56], scale_rope=True)
    pictures, words = module([[(1, 5, 7), (1, 6, 4)]], device=torch.device("cpu"), max_txt_seq_len=3)
    positions = latents([Image(5, 7), Image(6, 4), Text(3)], model="qwen-image")
    return complexes(pictures, words), AxialRoPE.of_model("qwen-image"), positions


def wan() -> tuple[Table, AxialRoPE, Tensor]:
    module = transformer_wan.WanRotaryPosEmbed(128, (1, 2, 2), 1024)
    table = adjacent(*module(torch.zeros(1, 16, 3, 8, 12)))
    return table, AxialRoPE.of_model("wan"), latents([Video(3, 4, 6)], model="wan")


def hunyuan_video() -> tuple[Table, AxialRoPE, Tensor]:
    module = transformer_hunyuan_video.HunyuanVideoRotaryPosEmbed(2, 1, [16, 56, 56])
    table = adjacent(*module(torch.zeros(1, 16, 3, 8, 10)))
    return table, AxialRoPE.of_model("hunyuan-video"), latents([Video(3, 4, 5)], model="hunyuan-video")


def hunyuan_image() -> tuple[Table, AxialRoPE, Tensor]:
    module = transformer_hunyuanimage.HunyuanImageRotaryPosEmbed((1, 1), (64, 64))
    return adjacent(*module(torch.zeros(1, 16, 5, 6))), AxialRoPE(128, axes_dims=(64, 64), base=256.0), grid(5, 6)


def z_image() -> tuple[Table, AxialRoPE, Tensor]:
    positions = latents([Text(5), Image(4, 6)], model="z-image")
    module = transformer_z_image.RopeEmbedder(256.0, [32, 48, 48], [64, 128, 128])
    return complexes(module(positions.int())), AxialRoPE.of_model("z-image"), positions


def lumina_2() -> tuple[Table, AxialRoPE, Tensor]:
    module = transformer_lumina2.Lumina2RotaryPosEmbed(10000, [32, 32, 32], [300, 512, 512], 2)
    _, _, _, joined, _, _ = module(torch.zeros(1, 4, 6, 8), torch.ones(1, 5, dtype=torch.long))
    return complexes(joined[0]), AxialRoPE.of_model("lumina-2"), latents([Text(5), Image(3, 4)], model="lumina-2")


def cosmos() -> tuple[Table, AxialRoPE, Tensor]:
    module = transformer_cosmos.CosmosRotaryPosEmbed(128, rope_scale=(2.0, 1.0, 1.0))
    bases = [10_000.0 * scale ** (width / (width - 2)) for scale, width in ((2.0, 44), (1.0, 42), (1.0, 42))]
    rope = AxialRoPE(128, axes_dims=(44, 42, 42), base=bases, layout="half")
    return halves(*module(torch.zeros(1, 16, 3, 4, 6), fps=None)), rope, grid(3, 2, 3)


def cogview_4() -> tuple[Table, AxialRoPE, Tensor]:
    module = transformer_cogview4.CogView4RotaryPosEmbed(128, 2, (256, 256))
    places = grid(6, 10) * 256 // torch.tensor([6, 10])
    rope = AxialRoPE(128, axes_dims=(64, 64), layout="half")
    return halves(*module(torch.zeros(1, 16, 12, 20))), rope, places


def cogvideox() -> tuple[Table, AxialRoPE, Tensor]:
    table = embeddings.get_3d_rotary_pos_embed(64, ((0, 0), (6, 9)), (6, 9), 3)
    return adjacent(*table), AxialRoPE(64, axes_dims=(16, 24, 24)), grid(3, 6, 9)


MODELS: list[Callable[[], tuple[Table, AxialRoPE, Tensor]]] = [
    flux, flux_2, qwen_image, wan, hunyuan_video, hunyuan_image, z_image, lumina_2, cosmos, cogview_4, cogvideox,
]  # fmt: skip


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_equal_to_the_module_as_shipped(model: Callable[[], tuple[Table, AxialRoPE, Tensor]]) -> None:
    expected, rope, positions = model()
    for table, right in zip(rope.table(positions), expected, strict=True):
        assert table.shape == right.shape
        assert gap(table, right.float()) < TOLERANCE


def test_flux_rotates_queries_as_diffusers_does() -> None:
    positions = latents([Text(3), Image(4, 5)], model="flux-1")
    module, rope = transformer_flux.FluxPosEmbed(10000, [16, 56, 56]), AxialRoPE.of_model("flux-1")
    q: Any = torch.randn(1, len(positions), 2, 128)  # (batch, tokens, heads, channels) there
    expected = embeddings.apply_rotary_emb(q, module(positions.float()), sequence_dim=1)
    assert gap(rope.rotate(q.transpose(1, 2), rope.table(positions)), expected.transpose(1, 2)) < TOLERANCE
