"""Where tokens are: ids of streams, grids, windows and random draws, from other people's code."""

from __future__ import annotations

import math
from itertools import product

import torch
from torch import Tensor

from posenc.positions import (
    Circle,
    Image,
    Text,
    Video,
    augmented,
    block_order,
    centred,
    following,
    from_token_ids,
    grid,
    multimodal,
    nearest,
    perturbed,
    signed,
    spaced,
    stream,
    windows,
    with_prefix,
)
from posenc.positions.skipping import bounds_of, laid_out
from tests.golden import config, load
from tests.golden.runner import EXACT, Comparisons, golden_test

NAMES = {"mrope_i": "mrope-i", "mmrope": "mm-rope"}


def designs(name: str) -> Comparisons:
    """Counted ids exactly; fractions as float32, in which the comparison has them; the next id."""
    case, arrays = config(name), load(name)
    given, design = case["options"], NAMES.get(case["design"], case["design"])
    options: dict[str, object] = {"design": design}
    if given.get("spatial_reset"):
        options["reset"] = True
    if design == "mm-rope":
        options["scale"] = given["position_scale"]
    if design == "v2pe":
        options["span"] = given["visual_stride"]
    elif design != "circlerope":
        options["stride"] = given["temporal_stride"]
    if design == "circlerope":
        options["circle"] = Circle(given["radius"], given["alpha"], given["move_to_origin"])
    parts: list[Text | Image | Video] = []
    for kind, *size in case["parts"]:  # each picture and video stands between two special tokens, which are text
        if kind == "text":
            parts.append(Text(*size))
        elif kind == "frames":  # before each frame its time and a special token, behind it another one
            parts += [Text(2), Video(*size, between=3), Text(1)]
        else:
            parts += [Text(1), Image(*size) if kind == "image" else Video(*size), Text(1)]
    ids = multimodal(parts, **options)
    yield ids, arrays["positions"], case["tolerance_f32"] if ids.is_floating_point() else EXACT
    last = multimodal([*parts, Text(1)], **options)[-1]
    yield last, (arrays["delta"][0] + len(ids)).expand(3), case["tolerance_f32"]


STREAMS = {
    "image": [Text(3), Image(2, 3), Text(2)],
    "video_short": [Text(2), Video(3, 2, 2), Text(3)],
    "video_long": [Text(2), Video(5, 2, 2), Text(3)],
}


def streams(name: str) -> Comparisons:
    """By parts and by what a model is fed; by frames and by seconds; and Hugging Face's rope delta."""
    arrays, meta, kind = load(name), config(name), name.rpartition("__")[2]
    ids, grids = arrays["input_ids"], {k: arrays[k] for k in ("image_grid_thw", "video_grid_thw") if k in arrays}
    by_time = "qwen25_v4" if kind == "image" else "qwen25_v4_spg1"
    for family, key in (("qwen2-vl", "qwen2_v4"), ("qwen2.5-vl", by_time)):
        expected = arrays[f"{key}_pos"][:, 0].T
        more = {"tokens_per_second": meta["tokens_per_second"]} if family == "qwen2.5-vl" else {}
        tokens = {"image_token": 1, "video_token": 2, **grids, **more}
        yield from_token_ids(ids, family=family, **tokens)[0], expected, EXACT
        assert following(expected)[0, 0] - len(expected) == arrays[f"{key}_delta"].item()
        yield stream(STREAMS[kind], family=family, **more), expected, EXACT
    expected = arrays["qwen2_v4_pos"][:, 0].T
    if kind == "image":
        for family in ("qwen2.5-omni", "qwen3-vl"):
            yield stream(STREAMS[kind], family=family), expected, EXACT
        return
    first, video, last = STREAMS[kind]
    slow = [first, Video(video.frames, 2, 2, 9.0), last]
    yield stream(slow, family="qwen2-vl"), expected, EXACT  # time is no matter
    twice = [first, Video(video.frames, 2, 2, 2.0), last]
    yield stream(twice, family="qwen2.5-vl"), arrays["qwen25_v4_spg1_pos"][:, 0].T, EXACT  # 2 ids a second as released
    half = [first, Video(video.frames, 2, 2, 0.5), last]  # 4.57.1 made seconds whole first
    got = stream(half, family="qwen2.5-vl", tokens_per_second=4)
    assert not torch.equal(got, arrays["qwen25_v4_pos"][:, 0].T)
    yield got[:-3], arrays["qwen25_v5_pos"][:, 0].T[:-3], EXACT  # 5.23 has the frames right
    after = 2 + 2 * (video.frames - 1)
    yield got[-3:], torch.tensor([[after + i] * 3 for i in (1, 2, 3)]), EXACT  # and the text behind them wrong


def stream_of_qwen3(name: str) -> Comparisons:
    arrays = load(name)
    options = {"family": "qwen3-vl", "image_token": 1, "video_token": 2}
    for sizes in ([[2, 4, 4]], torch.tensor([[2, 4, 4]], dtype=torch.int32)):
        got = from_token_ids(arrays["input_ids"], video_grid_thw=sizes, **options)
        yield got, arrays["position_ids"].permute(1, 2, 0), EXACT
    expected, picture = arrays["position_ids"][:, 0].T, Image(2, 2)
    as_pictures = [Text(3), picture, Text(3), picture, Text(3)]
    for parts in (as_pictures, [Text(3), Video(2, 2, 2, between=3), Text(3)]):
        yield stream(parts, family="qwen3-vl"), expected, EXACT


def skipped(name: str) -> Comparisons:
    """PoSE: the same draws give the same rows."""
    golden, meta = load(name), config(name)
    for row, text in enumerate(golden["text_lengths"].tolist()):
        tokens = min(text, meta["train_length"])
        low, high, value = golden["draws_low_high_value"][row].T
        assert bounds_of(tokens, meta["target_length"], text) == tuple(zip(low.tolist(), high.tolist(), strict=True))
        result = laid_out(tokens, *value.view(3, 1, 1))
        yield result.positions[0], golden["position_ids"][row, :tokens], EXACT
        yield result.tokens[0], golden["token_index"][row, :tokens], EXACT


def cosines(coordinates: Tensor, periods: Tensor) -> tuple[Tensor, Tensor]:
    """DINOv3's table at these coordinates."""
    angles = (2 * math.pi * coordinates[:, :, None] / periods).flatten(1).tile(2)
    return angles.cos(), angles.sin()


def dinov3_signed(name: str) -> Comparisons:
    arrays, (size, per) = load(name, None), name.split("__")[1].split("_")[1:3]
    height, width = map(int, size.split("x"))
    places = signed(grid(height, width), (height, width), per="axis" if per == "separate" else per)
    yield cosines(places, arrays["periods"])[0], arrays["cos"], 3e-6


def dinov3_augmented(name: str) -> Comparisons:
    arrays, meta = load(name, None), config(name)
    sizes = (meta["H"], meta["W"])
    options = {word: meta.get(f"{word}_coords") for word in ("shift", "jitter", "rescale")}
    source = torch.Generator().manual_seed(int(name[-1]))
    got = cosines(augmented(signed(grid(*sizes), sizes), **options, generator=source), arrays["periods"])
    yield got[0], arrays["cos"], 3e-6
    yield got[1], arrays["sin"], 3e-6


def liere_spaced(name: str) -> Comparisons:
    sizes, trained = ((6, 4), 4) if "__n2_" in name else ((2, 2, 2), 2)
    yield spaced(grid(*sizes), sizes, trained), load(name)["positions"], 1e-6


COMROPE = {"p0.0_o0.0": (0, "centre"), "p1.0_o0.0": (1, "centre"), "p0.5_o0.2": (2, 1.0)}  # its seed and class token


def comrope_perturbed(name: str) -> Comparisons:
    """From the authors' seeds: draws and their order are theirs too."""
    arrays, meta = load(name), config(name)
    seed, at = COMROPE["_".join(name.split("_")[-2:])]
    edge, frames = meta["grid"], [meta["frames"]] if meta["num_axes"] == 3 else []
    counted = with_prefix(grid(*frames, edge, edge), at=at)  # on a 3 × 3 grid of frames, 1.0 is the picture's middle
    strength = {"intensity": meta["perturbation_intensity"], "offset": meta["offset_intensity"]}
    got = perturbed(counted, edge, **strength, still=1, generator=torch.Generator().manual_seed(seed))
    yield got, arrays["positions"], 1e-6
    if seed == 0:  # nothing is moved
        for middle in ("centre", 0.5):
            yield with_prefix(centred(grid(4, 4), 4), at=middle), arrays["positions"], 1e-6


def nearest_rows(name: str) -> Comparisons:
    """Idefics' and MiniCPM's."""
    arrays, meta = load(name), config(name)
    for (model, side), size in product(zip(("idefics2", "minicpm"), meta["tables"], strict=True), meta["sizes"]):
        rows, columns = nearest(grid(*size), size, onto=side).unbind(-1)
        yield rows * side + columns, arrays[f"{model}_{size[0]}x{size[1]}"], EXACT


def blocks_of_qwen(name: str) -> Comparisons:
    parts = [grid(*size)[block_order(*size, block=(1, 2, 2))][:, 1:] for size in config(name)["grid_thw"]]
    yield torch.cat(parts), load(name)["position_ids"], EXACT


def windows_of_qwen(name: str) -> Comparisons:
    """The order of merged tokens, and where windows of patches end; windows at the border are smaller."""
    arrays, meta = load(name), config(name)
    for number, (frames, height, width) in enumerate(meta["grids"]):
        merged, patches = (frames, height // 2, width // 2), (frames, height, width)
        yield block_order(*merged, block=(1, 4, 4), partial=True), arrays[f"index_{number}"], EXACT
        each = windows(grid(*patches), patches, (1, 8, 8)).bincount()
        yield each.cumsum(0), arrays[f"borders_{number}"][1:], EXACT


test_positions = golden_test({
    "multimodal_positions/*": designs,
    "vision/mrope_index__*": streams,
    "vision/mrope_index_qwen3__*": stream_of_qwen3,
    "pose_l*": skipped,
    "vision/rope2d_dinov3__*": dinov3_signed,
    "vision/rope2d_dinov3_aug__*": dinov3_augmented,
    "vision/liere__n2_g8_*_s1": liere_spaced,
    "vision/liere__n3_g8_*": liere_spaced,
    "vision/comrope_positions__*": comrope_perturbed,
    "vision/nearest_places": nearest_rows,
    "vision/rope2d_qwen_vision__*": blocks_of_qwen,
    "vision/windows_qwen2_5": windows_of_qwen,
})  # fmt: skip
