"""Figures of image and video generators: channels and positions of their axes, and frequencies of larger sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from posenc.diffusion import latents, rotation
from posenc.diffusion.models import ModelName
from posenc.figures.drawn import Curves, Stacked, Tokens
from posenc.frequencies import DyPE, NTKAware, PositionInterpolation, RIFLEx, YaRN
from posenc.positions import Image, Text
from posenc.rotary.axial import AxialRoPE
from posenc.rotary.rope import RoPE

SPLITS: dict[str, ModelName] = {
    "FLUX.1, Qwen-Image": "flux-1", "HunyuanVideo": "hunyuan-video", "Wan, Cosmos": "wan", "Z-Image": "z-image",
    "FLUX.2": "flux-2", "MiniMax-H3": "minimax-h3", "HunyuanImage": "hunyuan-image", "GLM-Image": "glm-image",
    "Lumina 2": "lumina-2", "CogVideoX": "cogvideox", "Kandinsky 5": "kandinsky-5",
}  # fmt: skip
AXES = {2: ("rows", "columns"), 3: ("first axis", "rows", "columns"), 4: ("first axis", "rows", "columns", "text")}
ROWS, COLUMNS, WORDS = 4, 6, 5  # of the pictures and the text that are drawn
BY_ROW: dict[str, ModelName] = {"FLUX.1": "flux-1", "FLUX.2": "flux-2", "Z-Image": "z-image"}
TRAINED, LARGER = 64, 128  # FLUX.1's patches along a side of 1,024 and of 2,048 pixels
STEPS = (1.0, 0.7, 0.4, 0.1)
SHORT, LONG, REPEATS_AT, PAIR = 33, 66, 50, 4  # HunyuanVideo: latent frames of 129 and of 261 frames, and RIFLEx's pair


def axes_split() -> Stacked:
    """How the channels of a head are divided among the axes."""
    rows = {}
    for title, name in SPLITS.items():
        rope = rotation(name)
        widths = widths_of(rope)
        kinds = AXES[len(widths)]
        rest = rope.head_dim - sum(widths)
        rows[title] = [*zip(kinds, map(float, widths), strict=True), *([("not rotated", float(rest))] if rest else [])]
    return Stacked(
        rows,
        "channels of a head",
        "a bar for each model, cut into its axes: the first axis is the shortest piece in most of them",
        (
            "How image and video models divide the channels of a head among their axes. The first axis is the frame in "
            "video models and tells pictures from reference pictures or captions in image models."
        ),
    )


def token_grids() -> Tokens:
    """Rows and columns of one picture under four models."""
    shown: dict[str, ModelName] = {
        "FLUX.1": "flux-1", "Qwen-Image": "qwen-image", "CogVideoX": "cogvideox", "Mochi": "mochi",
    }  # fmt: skip
    panels = {}
    for title, name in shown.items():
        has_text = name in ("flux-1", "qwen-image")
        positions = latents([Image(ROWS, COLUMNS), *([Text(WORDS)] if has_text else [])], model=name)
        panels[title] = _kinds(positions, {"picture": ROWS * COLUMNS, "text": WORDS * has_text}, across=2, down=1)
    return Tokens(
        panels,
        "column",
        "row",
        (
            "four panels of one grid of tokens: from 0 on with all text at the origin, centred with text on a diagonal "
            "behind it, spread over a trained grid, and centred with a constant area"
        ),
        (
            f"One picture of {ROWS} × {COLUMNS} latent patches and {WORDS} tokens of text. FLUX.1 counts from 0 and "
            "has all text at the origin; Qwen-Image centres the picture and starts text behind it; CogVideoX spreads "
            "the picture over the trained 30 × 45; Mochi centres it and keeps its area at 192². The last two give text "
            "no position."
        ),
    )


def reference_axes() -> Tokens:
    """The first axis of a picture, of its reference and of text."""
    picture, text = Image(ROWS, COLUMNS), Text(WORDS)
    count = ROWS * COLUMNS
    both = {"picture": count, "text": WORDS, "reference": count}
    panels = {
        "FLUX.1 Kontext": _kinds(latents([picture, text, picture], model="flux-1"), both, across=2, down=0),
        "FLUX.2": _kinds(latents([picture, text, picture], model="flux-2"), both, across=2, down=0),
        "Qwen-Image-Edit": _kinds(latents([picture, text, picture], model="qwen-image"), both, across=2, down=0),
        "Z-Image": _kinds(
            latents([text, picture], model="z-image"), {"text": WORDS, "picture": count}, across=2, down=0
        ),
    }
    return Tokens(
        panels,
        "column",
        "first axis",
        (
            "four panels: the reference lies one step behind the picture in FLUX.1 Kontext and Qwen-Image-Edit, ten "
            "steps in FLUX.2; in Z-Image the caption counts along the first axis and the picture follows"
        ),
        (
            f"The first axis of a picture, of a reference picture and of {WORDS} tokens of text, by the column; each "
            f"sign of a picture stands for its {ROWS} rows. FLUX.2 counts text on its fourth axis, which is not drawn."
        ),
    )


def row_periods() -> Curves:
    """After how many rows each pair returns to the same angle."""
    series = {title: _periods(axis_of(model, 1)) for title, model in BY_ROW.items()}
    return Curves(
        series,
        "pair of the rows",
        "period (latent rows)",
        "three rising lines: the slower half of the pairs lies far above the line of the training size",
        (
            "After how many rows of latent patches each pair of the row axis has completed a rotation. Pairs above the "
            "line have not completed one in a picture of 1,024 pixels. Bases: FLUX.1 10,000, FLUX.2 2,000, Z-Image 256."
        ),
        log=True,
        levels={"1,024 pixels": float(TRAINED)},
    )


def larger_pictures() -> Curves:
    """By which factor fixed scalings slow the pairs of FLUX.1's rows down."""
    factor = LARGER / TRAINED
    scalings = {
        "PI": PositionInterpolation(factor), "NTK-aware": NTKAware(factor),
        "YaRN": YaRN(factor, original_length=TRAINED), "DyPE, first step": DyPE(LARGER, original_length=TRAINED),
    }  # fmt: skip
    return _slowdown(
        {name: axis_of("flux-1", 1, scaling).spectrum().theta for name, scaling in scalings.items()},
        "four curves from 1 to 2: flat for position interpolation, rising from the fast to the slow pairs otherwise",
        (
            f"By which factor each pair of FLUX.1's rows is slowed down for a side of {LARGER} patches (2,048 pixels) "
            f"instead of {TRAINED}. At 1 the model meets angles that it was not trained on; at 2 it tells neighbouring "
            "patches apart by half the angle. YaRN has its defaults for language models."
        ),
    )


def dype_steps() -> Curves:
    """By which factor DyPE slows the same pairs while a picture is denoised."""
    return _slowdown(
        {
            f"t = {t:g}": axis_of("flux-1", 1, DyPE(LARGER, original_length=TRAINED, timestep=t)).spectrum().theta
            for t in STEPS
        },
        "four curves: at the first step most pairs are slowed down by 2, later ever fewer of the slowest pairs",
        (
            "DyPE on the same axis: at pure noise (t = 1) it interpolates most pairs, and gives them back to their "
            "trained frequencies, the fast ones first, as t falls."
        ),
    )


def riflex_periods() -> Curves:
    """Periods of HunyuanVideo's frames, and which of them RIFLEx changes."""
    trained, slowed = _time_axis(None), _time_axis(RIFLEx(PAIR, length=LONG))
    return Curves(
        {"HunyuanVideo": _periods(trained, first=1), "with RIFLEx": _periods(slowed, first=1)},
        "pair of the frames, from 1",
        "period (latent frames)",
        "two rising lines of eight points that differ in the fourth, which lies above the longer video with RIFLEx",
        (
            f"After how many latent frames each pair of HunyuanVideo's time axis comes round. Pair {PAIR} does after "
            f"{REPEATS_AT}, which a video of {LONG} reaches; RIFLEx slows this pair alone."
        ),
        log=True,
        levels={"trained": float(SHORT), "asked for": float(LONG)},
    )


def riflex_angle() -> Curves:
    """The cosine of the pair that comes round, over the frames of a longer video."""
    frames = torch.arange(LONG + 1)
    series = {}
    for name, rope in {"HunyuanVideo": _time_axis(None), "with RIFLEx": _time_axis(RIFLEx(PAIR, length=LONG))}.items():
        cos = rope.table(frames)[0][:, PAIR - 1]
        series[name] = [(float(frame), float(value)) for frame, value in enumerate(cos)]
    return Curves(
        series,
        "latent frame",
        f"cosine of pair {PAIR}",
        "two waves over 66 frames: the unscaled one is back at 1 in frame 50, the slowed one not before the last frame",
        (
            f"Pair {PAIR} of HunyuanVideo's time axis: at frame {REPEATS_AT} it is back at the angle of frame 0, and "
            f"the video starts again. With RIFLEx it makes nine tenths of a rotation within {LONG} latent frames."
        ),
    )


def widths_of(rope: AxialRoPE) -> tuple[int, ...]:
    """The rotated channels of each axis."""
    return rope.axes_dims or (rope.rotary_dim // rope.axes,) * rope.axes


def axis_of(model: ModelName, axis: int, scaling: torch.nn.Module | None = None) -> RoPE:
    """RoPE with the frequencies of one axis of a model."""
    rope = rotation(model)
    base = rope.base[axis] if isinstance(rope.base, Sequence) else rope.base
    assert base is not None
    return RoPE(widths_of(rope)[axis], base=base, scaling=scaling)


def _time_axis(scaling: torch.nn.Module | None) -> RoPE:
    return axis_of("hunyuan-video", 0, scaling)


def _kinds(
    positions: Tensor, counts: dict[str, int], *, across: int, down: int
) -> dict[str, list[tuple[float, float]]]:
    """Two coordinates of consecutive tokens by their kind."""
    points = [(float(place[across]), float(place[down])) for place in positions]
    kinds, start = {}, 0
    for kind, count in counts.items():
        if count:
            kinds[kind] = points[start : start + count]
        start += count
    return kinds


def _periods(rope: RoPE, first: int = 0) -> list[tuple[float, float]]:
    return [(float(pair + first), 2 * math.pi / float(theta)) for pair, theta in enumerate(rope.spectrum().theta)]


def _slowdown(spectra: dict[str, Tensor], label: str, caption: str) -> Curves:
    unscaled = axis_of("flux-1", 1).spectrum().theta
    series = {
        name: [(float(pair), float(ratio)) for pair, ratio in enumerate(unscaled / theta)]
        for name, theta in spectra.items()
    }
    return Curves(series, "pair of the rows", "unscaled / scaled frequency", label, caption)
