"""Positions of diffusion transformers: equal to what their pipelines and position modules count."""

from __future__ import annotations

import pytest
import torch

from posenc import attention
from posenc.diffusion import MODELS, latents, rotation
from posenc.frequencies import RIFLEx
from posenc.positions import NO_POSITION, Image, Text, Video
from tests.golden import config, load
from tests.samples import gap

ROWS = {
    "flux_d128_text5_img4x6": ("flux-1", [Text(5), Image(4, 6)]),
    "flux2_d128_text7_img3x4_refs": ("flux-2", [Text(7), Image(3, 4), Image(2, 3), Image(2, 2)]),
    "flux_d16_kontext": ("flux-1", [Text(2), Image(2, 5), Image(3, 2)]),
    "flux2_d24_unequal": ("flux-2", [Text(3), Image(3, 4), Image(2, 3), Image(2, 2)]),
    "flux2_d16_text3_img2x5": ("flux-2", [Text(3), Image(2, 5)]),
    "qwen_d128_even6x4_text5": ("qwen-image", [Image(6, 4), Text(5)]),
    "qwen_d128_odd5x7_text3": ("qwen-image", [Image(5, 7), Text(3)]),
    "wan_d128_3x4x6": ("wan", [Video(3, 4, 6)]),
    "wan_d40_2x3x5": ("wan", [Video(2, 3, 5)]),
    "hunyuan_d128_3x4x5": ("hunyuan-video", [Video(3, 4, 5)]),
    "lumina2_d96_caps5_3_row0": ("lumina-2", [Text(5), Image(3, 4)]),
    "lumina2_d96_caps5_3_row1": ("lumina-2", [Text(3), Image(3, 4)]),
    "zimage_d128_cap5_4x6": ("z-image", [Text(5), Image(4, 6)]),
    "zimage_d16_cap3_2x3": ("z-image", [Text(3), Image(2, 3)]),
}


@pytest.mark.parametrize("name", ROWS)
def test_positions_and_rotation_of_the_model(name):
    model, parts = ROWS[name]
    expected, settings = load(f"diffusion/{name}", None), config(f"diffusion/{name}")
    positions = latents(parts, model=model)
    sampled = positions[:: max(1, len(positions) // 24)]  # as many rows as the file has
    assert torch.equal(sampled.double(), expected["positions"])
    rope = rotation(model)
    if settings["head_dim"] == rope.head_dim:
        cos, sin = rope.table(sampled, like=expected["cos"])
        assert gap(cos, expected["cos"]) < 1e-11
        assert gap(sin, expected["sin"]) < 1e-11


def test_kontext_references_and_pictures_of_an_edit():
    assert latents([Text(1), Image(1, 1), Image(1, 2), Image(1, 1)], model="flux-1").tolist() == [
        [0, 0, 0], [0, 0, 0], [1, 0, 0], [1, 0, 1], [1, 0, 0],
    ]  # fmt: skip
    same = Image(2, 2)
    edit = latents([same, same, Text(2)], model="qwen-image")
    assert edit[:, 0].tolist() == [0] * 4 + [1] * 4 + [1, 2]
    assert edit[0].tolist() == [0, -1, -1]


def test_texts_count_on_and_unrotated_text_has_no_place():
    assert latents([Text(2), Image(1, 1), Text(1)], model="flux-2")[:, 3].tolist() == [0, 1, 0, 2]
    assert latents([Text(2), Video(1, 1, 1)], model="wan").tolist() == [[NO_POSITION] * 3] * 2 + [[0, 0, 0]]
    rope = rotation("hunyuan-video")
    positions = latents([Video(1, 2, 2), Text(3)], model="hunyuan-video")
    q, k, v = torch.randn(3, 1, 1, 7, 128)
    assert torch.equal(rope(q, k, positions, positions)[0][:, :, 4:], q[:, :, 4:])
    assert attention(q, k, v, [rope], q_pos=positions, causal=False).shape == q.shape


def test_models_have_positions_and_an_encoding_with_as_many_axes():
    for name, model in MODELS.items():
        if model.axes_dims and model.has_preset:
            assert rotation(name).axes == len(model.axes)
    longer = rotation("wan", scaling=(RIFLEx(6, length=41), None, None))
    assert "RIFLEx(6, length=41)" in str(longer)
