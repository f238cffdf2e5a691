"""Transformers of diffusers by class: how each rotates queries and keys, read from the keys of its config.json.

The facts come from diffusers 0.42, models/transformers/*.py: keys and defaults of the constructors, widths and bases of
the position modules. `posenc.positions.latents` has the positions by the name of the preset, `posenc.presets`
the encodings. Classes whose rotation was not compared have no record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Config = Mapping[str, Any]
TIME_ROW_COLUMN = ("frame", "row", "column")
ROW_COLUMN = ("row", "column")


@dataclass(frozen=True)
class DiffusionFamily:
    """A class of diffusers.

    Attributes:
        preset: its name in `posenc.presets`.
        positions: where text and pictures stand, in words.
        axes: what the coordinates are.
        widths: channels of each axis, given the configuration with its defaults.
        bases: of the frequencies of each axis, likewise.
        defaults: of the keys that are read.
        layout: "interleaved" or "half".
        attaches: whether `posenc.diffusers.attach` knows its transformer.
        adds: "" or what it adds to its tokens, where it does not rotate.
        learned: "" or how it rotates, where its frequencies are weights.
        notes: what to watch out for.
    """

    preset: str
    positions: str
    axes: tuple[str, ...] = TIME_ROW_COLUMN
    widths: Callable[[Config], Sequence[int]] = lambda config: config["axes_dims_rope"]
    bases: Callable[[Config], Sequence[float]] = lambda config: [float(config["rope_theta"])]
    defaults: Config = field(default_factory=dict)
    layout: str = "interleaved"
    attaches: bool = False
    adds: Callable[[Config], str] = lambda config: ""
    learned: str = ""
    notes: tuple[str, ...] = ()

    def filled(self, config: Config) -> dict[str, Any]:
        """The configuration with the defaults of its class."""
        return {**self.defaults, **{key: value for key, value in config.items() if value is not None}}


def _flux_like(theta: float, **other: Any) -> dict[str, Any]:
    return {"attention_head_dim": 128, "axes_dims_rope": (16, 56, 56), "rope_theta": theta, **other}


def _thirds(config: Config) -> list[int]:
    """Wan and Cosmos: rows and columns have a third each, rounded down to even, time the rest."""
    width = config["attention_head_dim"]
    side = 2 * (width // 6)
    return [width - 2 * side, side, side]


def _eighths(config: Config) -> list[int]:
    """CogVideoX: time a quarter, rows and columns three eighths each."""
    width = config["attention_head_dim"]
    return [width // 4, width // 8 * 3, width // 8 * 3]


def _halves(config: Config) -> list[int]:
    return [config["attention_head_dim"] // 2] * 2


def _cosmos_bases(config: Config) -> list[float]:
    return [
        10_000.0 * float(scale) ** (width / (width - 2))
        for width, scale in zip(_thirds(config), config["rope_scale"], strict=True)
    ]


def _shares(head_dim: int, sections: Sequence[int]) -> list[int]:
    """Interleaved M-RoPE: rows and columns have their sections, frames every pair that is left."""
    rows, columns = sections[1], sections[2]
    return [head_dim - 2 * (rows + columns), 2 * rows, 2 * columns]


def _listed(key: str) -> Callable[[Config], Sequence[int]]:
    return lambda config: config[key]


def _adds_in_2b(config: Config) -> str:
    """CogVideoX-2B and its like."""
    if config["use_rotary_positional_embeddings"]:
        return ""
    return "adds a sinusoidal embedding: SinusoidalGrid(dim, axes=3, family='cogvideox'), preset 'cogvideox-2b'"


def _adds_sincos(preset: str) -> Callable[[Config], str]:
    return lambda config: f"adds a sinusoidal embedding: SinusoidalGrid(dim), column first, preset {preset!r}"


_FLUX_1 = "text at (0, 0, 0), pictures at (0, row, column), references at (1, row, column)"
_QWEN = (
    "pictures at (number, row − ⌈H/2⌉, column − ⌈W/2⌉), text behind them on all axes from max ⌊H/2⌋, ⌊W/2⌋; "
    "of a batch with pictures of several sizes the first row's positions serve all"
)
_GRID = "(frame, row, column); text is not rotated"
_TABLE = "positions end at rope_max_seq_len = {rope_max_seq_len:,} on each axis"
_WAN = {"attention_head_dim": 128, "rope_max_seq_len": 1024, "rope_theta": 10_000.0}
_HUNYUAN = {"attention_head_dim": 128, "rope_axes_dim": (16, 56, 56), "rope_theta": 256.0}
_COGVIDEOX = {
    "attention_head_dim": 64, "rope_theta": 10_000.0, "patch_size_t": None, "use_rotary_positional_embeddings": False,
}  # fmt: skip

DIFFUSION: dict[str, DiffusionFamily] = {
    "FluxTransformer2DModel": DiffusionFamily("flux-1", _FLUX_1, defaults=_flux_like(1e4), attaches=True),
    "ChromaTransformer2DModel": DiffusionFamily("flux-1", _FLUX_1, defaults=_flux_like(1e4), attaches=True),
    "BriaTransformer2DModel": DiffusionFamily("flux-1", _FLUX_1, defaults=_flux_like(1e4), attaches=True),
    "BriaFiboTransformer2DModel": DiffusionFamily("flux-1", _FLUX_1, defaults=_flux_like(1e4), attaches=True),
    "OvisImageTransformer2DModel": DiffusionFamily(
        "ovis-image", "text at (0, l, l), the picture at (0, row, column)", defaults=_flux_like(1e4), attaches=True
    ),
    "LongCatImageTransformer2DModel": DiffusionFamily(
        "longcat-image", "text at (0, l, l), pictures behind it at (1 + n, tokens + row, tokens + column)",
        defaults=_flux_like(1e4), attaches=True,
    ),
    "Flux2Transformer2DModel": DiffusionFamily(
        "flux-2", "text at (0, 0, 0, l), pictures at (10 n, row, column, 0)", (*TIME_ROW_COLUMN, "text"),
        defaults=_flux_like(2e3, axes_dims_rope=(32,) * 4), attaches=True,
    ),
    "Flux3Transformer2DModel": DiffusionFamily(
        "flux-3", "text at (0, 0, 0, l), pictures at (0, row / 2, column / 2, −n)", (*TIME_ROW_COLUMN, "text"),
        defaults=_flux_like(1e4, axes_dims_rope=(32,) * 4), attaches=True,
    ),
    "Krea2Transformer2DModel": DiffusionFamily(
        "krea-2", "text at (0, 0, 0), the picture at (0, row, column)",
        defaults=_flux_like(1e3, axes_dims_rope=(32, 48, 48)), attaches=True,
    ),
    "QwenImageTransformer2DModel": DiffusionFamily(
        "qwen-image", _QWEN, defaults=_flux_like(1e4), attaches=True,
        notes=("coordinates reach from −4,096 to 4,095",),
    ),
    "QwenImage21Transformer2DModel": DiffusionFamily(
        "qwen-image-2.1", "text counts on all axes; a picture at (count, centred row, centred column), then count + "
        "max(H, W)", defaults=_flux_like(1e4), attaches=True, notes=("coordinates reach from −1,024 to 8,191",),
    ),
    "NucleusMoEImageTransformer2DModel": DiffusionFamily(
        "qwen-image", _QWEN, defaults=_flux_like(1e4), attaches=True
    ),
    "WanTransformer3DModel": DiffusionFamily(
        "wan", _GRID, widths=_thirds, defaults=_WAN, attaches=True, notes=(_TABLE,)
    ),
    "WanVACETransformer3DModel": DiffusionFamily(
        "wan", _GRID, widths=_thirds, defaults=_WAN, attaches=True, notes=(_TABLE,)
    ),
    "WanAnimateTransformer3DModel": DiffusionFamily(
        "wan", _GRID, widths=_thirds, defaults=_WAN, attaches=True, notes=(_TABLE,)
    ),
    "SanaVideoTransformer3DModel": DiffusionFamily(
        "wan", _GRID, widths=_thirds, defaults={**_WAN, "attention_head_dim": 112}, attaches=True, notes=(_TABLE,)
    ),
    "SkyReelsV2Transformer3DModel": DiffusionFamily(
        "wan", _GRID, widths=_thirds, defaults=_WAN, attaches=True, notes=(_TABLE,)
    ),
    "ChronoEditTransformer3DModel": DiffusionFamily(
        "chrono-edit", "(frame, row, column), two frames are 0 and 7", widths=_thirds, defaults=_WAN, attaches=True,
        notes=(_TABLE,),
    ),
    "HunyuanVideoTransformer3DModel": DiffusionFamily(
        "hunyuan-video", _GRID, widths=_listed("rope_axes_dim"), defaults=_HUNYUAN, attaches=True
    ),
    "HunyuanVideo15Transformer3DModel": DiffusionFamily(
        "hunyuan-video", _GRID, widths=_listed("rope_axes_dim"), defaults=_HUNYUAN, attaches=True
    ),
    "HunyuanVideoFramepackTransformer3DModel": DiffusionFamily(
        "framepack", "(number of the frame, row, column), the numbers given by the call; text is not rotated",
        widths=_listed("rope_axes_dim"), defaults=_HUNYUAN, attaches=True,
    ),
    "MotifVideoTransformer3DModel": DiffusionFamily(
        "hunyuan-video", _GRID, widths=_listed("rope_axes_dim"), defaults=_HUNYUAN, attaches=True
    ),
    "HunyuanImageTransformer2DModel": DiffusionFamily(
        "hunyuan-image", "(row, column); text is not rotated", ROW_COLUMN, _listed("rope_axes_dim"),
        defaults={**_HUNYUAN, "rope_axes_dim": (64, 64)}, attaches=True,
    ),
    "HunyuanDiT2DModel": DiffusionFamily(
        "hunyuan-dit", "rows and columns spread over the part of a 32 × 32 grid that has the picture's shape",
        ROW_COLUMN, _halves, defaults={"attention_head_dim": 88, "rope_theta": 10_000.0},
        attaches=True, notes=("the column has the first pairs",),
    ),
    "LuminaNextDiT2DModel": DiffusionFamily(
        "lumina-next", "(row, column)", ROW_COLUMN,
        lambda config: [config["hidden_size"] // config["num_attention_heads"] // 2] * 2,
        defaults={"hidden_size": 2304, "num_attention_heads": 32, "rope_theta": 10_000.0},
        notes=("rows and columns alternate pair by pair", "its pipeline scales frequencies by the timestep"),
    ),
    "Lumina2Transformer2DModel": DiffusionFamily(
        "lumina-2", "caption at (l, 0, 0), the picture at (length of the caption, row, column)",
        widths=_listed("axes_dim_rope"), attaches=True,
        defaults={"axes_dim_rope": (32, 32, 32), "rope_theta": 10_000.0, "axes_lens": (300, 512, 512)},
        notes=("positions end at axes_lens = {axes_lens}",),
    ),
    "ZImageTransformer2DModel": DiffusionFamily(
        "z-image", "caption at (1 + l, 0, 0), the picture at (1 + length of the caption, row, column); the caption is "
        "padded to a multiple of 32, which counts", widths=_listed("axes_dims"), attaches=True,
        defaults={"axes_dims": (32, 48, 48), "rope_theta": 256.0, "axes_lens": (1024, 512, 512)},
        notes=("positions end at axes_lens = {axes_lens}",),
    ),
    "CogVideoXTransformer3DModel": DiffusionFamily(
        "cogvideox", "frames counted, rows and columns spread over the part of the trained grid that has the picture's "
        "shape (with patch_size_t, CogVideoX 1.5: counted); text is not rotated",
        widths=_eighths, defaults=_COGVIDEOX, attaches=True, adds=_adds_in_2b,
    ),
    "EasyAnimateTransformer3DModel": DiffusionFamily(
        "easyanimate", "as CogVideoX on a grid of 30 × 45", widths=_eighths,
        defaults={"attention_head_dim": 64, "rope_theta": 10_000.0}, attaches=True,
    ),
    "CogView4Transformer2DModel": DiffusionFamily(
        "cogview-4", "(⌊row · 256 / H⌋, ⌊column · 256 / W⌋); text is not rotated", ROW_COLUMN, _halves, layout="half",
        defaults={"attention_head_dim": 40, "rope_theta": 10_000.0}, attaches=True,
    ),
    "GlmImageTransformer2DModel": DiffusionFamily(
        "glm-image", "(row, column); text is not rotated", ROW_COLUMN, _halves, layout="half",
        defaults={"attention_head_dim": 40, "rope_theta": 10_000.0}, attaches=True,
    ),
    "CosmosTransformer3DModel": DiffusionFamily(
        "cosmos", "(24 · frame / fps, row, column), without fps the frame's number", widths=_thirds,
        bases=_cosmos_bases, layout="half", attaches=True,
        defaults={"attention_head_dim": 128, "rope_scale": (2.0, 1.0, 1.0)},
    ),
    "LTXVideoTransformer3DModel": DiffusionFamily(
        "ltx", "(seconds / 20, pixel / 2048, pixel / 2048) from −1 to 1; text is not rotated", layout="interleaved",
        widths=lambda config: [
            config["num_attention_heads"] * config["attention_head_dim"] // 6 * 2
        ] * 3,
        defaults={"attention_head_dim": 64, "num_attention_heads": 32, "rope_theta": 10_000.0}, attaches=True,
        notes=(
            "frequencies grow, π/2 · base^(t/(n − 1)), and run over the width of all heads before it is cut",
            "diffusers computes these angles in float32, which puts them off by up to 4e-3 radians",
        ),
    ),
    "Kandinsky5Transformer3DModel": DiffusionFamily(
        "kandinsky-5", "(frame, row, column); text has RoPE in blocks of its own", widths=_listed("axes_dims"),
        defaults={"axes_dims": (16, 24, 24), "rope_theta": 10_000.0}, attaches=True,
        notes=("the pipeline divides rows and columns by 2 for videos of 480 to 854 pixels",),
    ),
    "MiniMaxH3Transformer3DModel": DiffusionFamily(
        "minimax-h3", "text at (l, 0, 0), frames behind it in steps of 5/3 · (1, 4, 4, 4, 4), rows and columns in the "
        "middle of 0 … 32", widths=lambda config: [2 * config["rope_freq_dim"]] * 3, layout="half",
        defaults={"rope_freq_dim": 16, "rope_theta": 10_000.0, "attention_head_dim": 128}, attaches=True,
    ),
    "LTX2VideoTransformer3DModel": DiffusionFamily(
        "ltx-2",
        "the middle of a token: (seconds / 20, pixel / 2048, pixel / 2048) from −1 to 1; sound by its seconds alone; "
        "text is not rotated",
        widths=lambda config: [config["num_attention_heads"] * config["attention_head_dim"] // 6 * 2] * 3,
        defaults={
            "attention_head_dim": 128, "num_attention_heads": 32, "rope_theta": 10_000.0, "rope_type": "interleaved",
        }, attaches=True,
        notes=(
            "frequencies grow, π/2 · base^(t/(n − 1)), and run over the width of all heads; rope_type {rope_type}",
            "sound has one axis, frequencies of its own width, and cross-attention to the video by seconds alone",
        ),
    ),
    "Ideogram4Transformer2DModel": DiffusionFamily(
        "ideogram-4", "text at (l, l, l), the picture at (65536, 65536 + row, 65536 + column)",
        widths=lambda config: _shares(config["attention_head_dim"], config["mrope_section"]),
        defaults={"attention_head_dim": 256, "mrope_section": (24, 20, 20), "rope_theta": 5e6}, layout="half",
        attaches=True, notes=(
            "M-RoPE: pairs of one RoPE over the whole head, dealt out alternately; sections {mrope_section}",
        ),
    ),
    "SD3Transformer2DModel": DiffusionFamily("sd3", "", adds=_adds_sincos("sd3")),
    "PixArtTransformer2DModel": DiffusionFamily("pixart", "", adds=_adds_sincos("pixart")),
    "MochiTransformer3DModel": DiffusionFamily(
        "mochi", "", attaches=True, learned="rotates by learned frequencies, which are weights (pos_frequencies): "
        "MixedRoPE(128, num_heads=24, axes=3, frequencies=…), preset 'mochi'",
    ),
}  # fmt: skip
