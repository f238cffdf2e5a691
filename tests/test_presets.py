"""Encoding and positions of diffusion models by name: equal to diffusers' position modules, widened to float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from posenc import AxialRoPE, MRoPE, PositionInterpolation, attention
from posenc.diffusion import MODELS, PRESETS, Preset, latents, preset
from posenc.diffusion.rules import region
from posenc.embedding import SinusoidalGrid
from posenc.encoding import RotaryEncoding
from posenc.positions import NO_POSITION, Audio, Image, Text, Video, grid
from posenc.rotary import MixedRoPE
from tests.golden import config, load, names
from tests.samples import gap

MANIFEST = {name: config(name) for name in names("diffusion/*") if "tolerances" in config(name)}
Settings = dict[str, Any]


def of_ltx(settings: Settings, expected: dict[str, Tensor]) -> Preset:
    return Preset(AxialRoPE(settings["dim"], axes=3, convention="ltx"), expected["positions"])


def of_ltx_2(settings: Settings, expected: dict[str, Tensor]) -> Preset:
    options: dict[str, Any] = {"fps": settings["fps"]} if "fps" in settings else {}
    sound = settings["modality"] == "audio"
    parts = [Audio(settings["frames"])] if sound else [Video(*settings["fhw"])]
    if settings["rope_type"] == "split":
        return preset("ltx-2", parts, head_dim=settings["head_dim"], num_heads=settings["heads"], **options)
    positions = latents(parts, model="ltx-2", **options)
    return Preset(AxialRoPE(settings["dim"], axes=1 if sound else 3, convention="ltx"), positions)


def of_hunyuan_dit(settings: Settings, expected: dict[str, Tensor]) -> Preset:
    return preset("hunyuan-dit", [Image(*settings["grid"])], head_dim=settings["head_dim"])


def of_lumina_next(settings: Settings, expected: dict[str, Tensor]) -> Preset:
    rope = AxialRoPE(settings["head_dim"], convention="lumina-next", base=settings["theta"] * settings["ntk_factor"])
    return Preset(rope, expected["positions"] / settings["linear_factor"])


def of_mochi(settings: Settings, expected: dict[str, Tensor]) -> Preset:
    frequencies = expected["pos_frequencies"].transpose(0, 1)
    heads, _, pairs = frequencies.shape
    options: dict[str, Any] = {"head_dim": 2 * pairs, "num_heads": heads, "frequencies": frequencies, "learned": False}
    return preset("mochi", [Video(*settings["grid"])], **options)


def of_ideogram_4(settings: Settings, expected: dict[str, Tensor]) -> Preset:
    sizes = {"head_dim": settings["head_dim"], "sections": settings["mrope_section"], "base": float(settings["theta"])}
    return Preset(preset("ideogram-4", [Image(1, 1)], **sizes).encoding, expected["positions"])


def of_qwen_image_2_1(settings: Settings, expected: dict[str, Tensor]) -> Preset:
    is_picture = iter(settings["image_pad_mask"])
    sizes = [Image(*shape[1:]) for shape in settings["img_shapes"]]
    parts: list[Any] = []
    words = 0
    for picture in is_picture:
        if not picture:
            words += 1
            continue
        parts += [Text(words), sizes.pop(0)]
        words = 0
        for _ in range(parts[-1].height * parts[-1].width - 1):
            next(is_picture)
    widths = settings["axes_dims"]
    return preset("qwen-image-2.1", [*parts, Text(words)], head_dim=sum(widths), axes_dims=widths)


def of_sd3(settings: Settings, expected: dict[str, Tensor]) -> Preset:
    width, trained = settings["embed_dim"], settings["base_size"]
    if "pos_embed_max_size" not in settings:
        return preset("pixart", [Image(*settings["grid_size"])], dim=width, trained=trained, scale=2.0)
    if settings["pos_embed_max_size"] is None:
        side = settings["height"] // settings["patch"]
        return preset("pixart", [Image(side, side)], dim=width, trained=trained, scale=1.0)
    size = [side // settings["patch"] for side in settings["crop_latent"]]
    return preset("sd3", [Image(*size)], dim=width, trained=trained, table=settings["pos_embed_max_size"])


def of_cogvideox_2b(settings: Settings, expected: dict[str, Tensor]) -> Preset:
    width, height = settings["spatial_size_wh"]
    return preset("cogvideox-2b", [Video(settings["temporal_size"], height, width)], dim=settings["embed_dim"])


KINDS: dict[str, Callable[[Settings, dict[str, Tensor]], Preset]] = {
    "LTXVideoRotaryPosEmbed": of_ltx,
    "LTX2AudioVideoRotaryPosEmbed": of_ltx_2,
    "get_2d_rotary_pos_embed": of_hunyuan_dit,
    "get_2d_rotary_pos_embed_lumina": of_lumina_next,
    "MochiRoPE": of_mochi,
    "Ideogram4MRoPE": of_ideogram_4,
    "QwenImage21Rope": of_qwen_image_2_1,
    "PatchEmbed": of_sd3,
    "get_2d_sincos_pos_embed": of_sd3,
    "get_3d_sincos_pos_embed": of_cogvideox_2b,
}


@pytest.mark.parametrize("name", MANIFEST)
def test_equal_to_diffusers_in_float64_and_in_float32(name: str) -> None:
    settings, expected = MANIFEST[name], load(name, None)
    encoding, positions = KINDS[settings["module"]](settings, expected)
    tolerances = dict(zip((torch.float64, torch.float32), settings["tolerances"], strict=True))
    # the files of these two have coordinates before they are divided
    if settings["module"] not in ("get_2d_rotary_pos_embed_lumina", "get_3d_sincos_pos_embed"):
        assert gap(positions.double().reshape(expected["positions"].shape), expected["positions"]) < 1e-12
    for dtype, tolerance in tolerances.items():
        like = torch.zeros(1, dtype=dtype)
        if isinstance(encoding, SinusoidalGrid):
            assert gap(encoding.encode(positions, dtype), expected["embedding"]) < tolerance
            continue
        assert isinstance(encoding, RotaryEncoding)
        table = encoding.table(positions, like=like)
        assert table[0].dtype == dtype
        for part, right in zip(table, ("cos", "sin"), strict=True):
            assert gap(part, expected[right]) < tolerance
        for part_name in ("q", "k") if "q" in expected else ():
            rotated = encoding.rotate(expected[part_name].to(dtype), table)
            assert gap(rotated, expected[f"{part_name}_rot"]) < 10 * tolerance


def test_every_model_has_both_and_they_fit() -> None:
    for name in PRESETS:
        encoding, positions = preset(name, [Video(2, 3, 4)])
        assert positions.shape == (24, len(MODELS[name].axes))
        assert encoding.axes == len(MODELS[name].axes)
        if isinstance(encoding, SinusoidalGrid):
            assert encoding.encode(positions).shape == (24, encoding.dim)
        else:
            assert isinstance(encoding, AxialRoPE | MixedRoPE | MRoPE)
            assert encoding.table(positions)[0].shape[-2] == 24


def test_attention_takes_a_preset() -> None:
    rope, positions = preset("cogvideox", [Text(3), Video(2, 3, 4)], scaling={"frames": PositionInterpolation(2.0)})
    q, k, v = torch.randn(3, 1, 2, 27, 64)
    out = attention(q, k, v, [rope], q_pos=positions, causal=False)
    assert isinstance(rope, AxialRoPE)
    rotated = rope(q, k, positions, positions)
    assert torch.equal(rotated[0][:, :, :3], q[:, :, :3])  # text has no place
    assert gap(out, torch.nn.functional.scaled_dot_product_attention(*rotated, v)) < 1e-5


def test_ltx_heads_have_frequencies_of_their_own() -> None:
    ltx, positions = preset("ltx-2", [Video(2, 2, 3)], head_dim=32, num_heads=4)
    assert isinstance(ltx, MixedRoPE)
    shared = AxialRoPE(128, axes=3, convention="ltx", layout="half")
    dealt = ltx.table(positions)[0]
    assert gap(dealt.transpose(0, 1).flatten(1), shared.table(positions)[0]) < 1e-6
    assert shared.table(positions)[0][:, :1].eq(1).all()  # 128 mod 6 channels in front rest
    assert not torch.equal(dealt[1], dealt[2])


@pytest.mark.parametrize("convention", ["lumina-next", "visionllama", "efficient-loftr", "kimi-k2.5"])
def test_axes_that_take_turns_can_be_scaled(convention: str) -> None:
    positions = grid(3, 4).double()
    unscaled = AxialRoPE(16, convention=convention)
    same = AxialRoPE(16, convention=convention, scaling=PositionInterpolation(1.0))
    rows = AxialRoPE(16, convention=convention, scaling=(PositionInterpolation(2.0), None))
    x = torch.randn(1, 1, 12, 16, dtype=torch.float64)
    like = {"like": x}
    assert (
        gap(unscaled.rotate(x, unscaled.table(positions, **like)), same.rotate(x, same.table(positions, **like)))
        < 1e-14
    )
    shift = 1 if convention == "efficient-loftr" else 0
    halved = (positions + shift) / torch.tensor([2.0, 1.0]) - shift
    assert (
        gap(unscaled.rotate(x, unscaled.table(halved, **like)), rows.rotate(x, rows.table(positions, **like))) < 1e-14
    )


def test_models_that_number_in_ways_of_their_own() -> None:
    assert latents([Video(2, 1, 1)], model="chrono-edit")[:, 0].tolist() == [0, 7]
    assert latents([Video(3, 1, 1)], model="chrono-edit")[:, 0].tolist() == [0, 1, 2]
    assert latents([Video(2, 1, 2)], model="framepack", frames=(1, 17))[:, 0].tolist() == [1, 1, 17, 17]
    assert latents([Text(1), Image(1, 3), Image(1, 1)], model="flux-3").tolist() == [
        [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0.5, 0], [0, 0, 1, 0], [0, 0, 0, -1],
    ]  # fmt: skip
    assert latents([Text(2), Image(1, 1)], model="ideogram-4").tolist() == [[0] * 3, [1] * 3, [65536] * 3]
    layers = latents([Image(1, 1)] * 4 + [Text(1)], model="qwen-image-layered")
    assert layers[:, 0].tolist() == [0, 1, 2, -1, 3]
    h3 = latents([Text(2), Image(2, 2), Audio(2), Audio(2), Video(3, 2, 2)], model="minimax-h3")
    assert h3[2:6, 0].tolist() == [2] * 4  # a first frame
    assert h3[6:10].tolist() == [[2, 0, 0], [3, 0, 0], [2, 0, 16], [3, 0, 16]]
    assert h3[10::4, 0].tolist() == pytest.approx([2, 2 + 5 / 3, 2 + 25 / 3])
    assert latents([Text(1), Video(1, 1, 1)], model="mochi")[0].tolist() == [NO_POSITION] * 3
    assert region((8, 4), (30, 45)) == ((0, 15), (30, 30))
    assert latents([], model="flux-1").shape == (0, 3)
