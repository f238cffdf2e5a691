"""One record for each diffusion transformer: its axes, its sizes as released, and its classes in diffusers.

A record needs no torch, so that `posenc explain` reads a config.json without it. Two tables of code have the
same names: `rules` places tokens on the axes, `modules` computes the tables of each class.

Axes have names, by which scalings ask for them:

    frames              of a video
    rows, columns       of a picture
    text                tokens of text, and what stands behind them
    none                tells pictures and their references apart

Coordinates count patches unless ``step`` says otherwise; sizes and scalings always count patches. ``kept`` is the
reason why no scaling may act on an axis.

Source: diffusers 0.42, models/transformers/*.py and models/controlnets/*.py: keys and defaults of the constructors,
    widths and bases of the position modules; the pipelines' default sizes and what they pass as the timestep.
    RIFLEx' pairs: arXiv 2502.15894. DyPE's sizes: guyyariv/DyPE.
Checked against: tests/reference/test_diffusers.py and test_diffusers_attach.py, on tiny models of these classes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple

from posenc.arguments import shown

Config = Mapping[str, Any]
AxisName = Literal["frames", "rows", "columns", "text", "none"]
ModelName = Literal[
    "flux-1", "ovis-image", "longcat-image", "flux-2", "flux-3", "krea-2", "hidream", "qwen-image",
    "qwen-image-layered", "qwen-image-2.1", "joyimage", "lumina-2", "z-image", "bria-fibo-2", "ernie-image",
    "hunyuan-image", "glm-image", "prx", "lumina-next", "cogview-4", "hunyuan-dit", "omnigen", "wan", "chrono-edit",
    "helios", "hunyuan-video", "framepack", "cogvideox", "cogvideox-1.5", "easyanimate", "allegro", "kandinsky-5",
    "kandinsky-6", "kandinsky-6-sr", "cosmos", "cosmos-3", "ltx", "ltx-2", "mochi", "ideogram-4", "minimax-h3", "sd3",
    "pixart", "cogvideox-2b",
]  # fmt: skip
Noise = Callable[[Any], Any]  # the noise level, 1 to 0, of a timestep (number or tensor) as the transformer is given it


class Axis(NamedTuple):
    """One coordinate of a model's positions.

    Attributes:
        name: what it counts along.
        step: how far the coordinate moves from one token to the next.
        kept: why no scaling acts on it, "" where one may.
    """

    name: AxisName
    step: float = 1.0
    kept: str = ""


_HALVED = "PositionInterpolation(2.0)"


def _by_name(**scalings: str) -> str:
    return "{" + ", ".join(f'"{name}": {scaling}' for name, scaling in scalings.items()) + "}"


def _widths(config: Config) -> Sequence[int]:
    widths: Sequence[int] = config["axes_dims_rope"]
    return widths


def _theta(config: Config) -> Sequence[float]:
    return [float(config["rope_theta"])]


def _rotates(config: Config) -> str:
    return ""


@dataclass(frozen=True)
class Transformer:
    """A class of diffusers that has a model's positions, and how its config.json gives the sizes.

    Attributes:
        defaults: of the keys that are read.
        widths, bases: channels of each axis and bases of their frequencies, given the config with its defaults.
        noise: the noise level of its timestep, where it is not the model's.
        adds: "" or what a checkpoint with this config adds to its tokens, where it does not rotate.
        notes: what to watch out for.
        refused: why posenc does not attach to it, "" where it does.
    """

    defaults: Config = field(default_factory=dict)
    widths: Callable[[Config], Sequence[int]] = _widths
    bases: Callable[[Config], Sequence[float]] = _theta
    noise: Noise | None = None
    adds: Callable[[Config], str] = _rotates
    notes: tuple[str, ...] = ()
    refused: str = ""

    def filled(self, config: Config) -> dict[str, Any]:
        """The configuration with the defaults of its class."""
        return {**self.defaults, **{key: value for key, value in config.items() if value is not None}}


@dataclass(frozen=True)
class Model:
    """A diffusion transformer.

    Attributes:
        axes: of its positions, in their order.
        where: where text and pictures stand, in words.
        axes_dims, base, layout, head_dim, convention: arguments of `AxialRoPE` as released; no widths where the
            encoding is another one. ``head_dim`` is given where only the leading channels are rotated.
        transformers: the classes of diffusers that have these positions.
        takes: which options of `latents` it reads, with their defaults.
        one_picture: whether there is one picture at most in a row.
        text_elsewhere: why text is in no row of its.
        scales: what a scaling is of: "axes", one for each; "positions", which are divided; "pairs", one for all.
        noise: the noise level of its timestep; None: its timestep is none.
        timestep: the transformer's argument that holds it.
        native: tokens along each axis at the size of training or the pipeline's default.
        repeats: the pair of the frames that RIFLEx slows down, from 1, and its period in latent frames; None: unknown.
        takes_gain: whether its table has room for a gain, as YaRN's; one of angles has none.
        has_preset: whether an encoding of posenc computes its rotation.
        rotation: "axial RoPE", or how else queries and keys are rotated.
    """

    axes: tuple[Axis, ...]
    where: str
    axes_dims: tuple[int, ...] = ()
    base: float | tuple[float, ...] = 10_000.0
    layout: Literal["interleaved", "half", "half-by-axis"] = "interleaved"
    head_dim: int | None = None
    convention: str = "eva-02"
    transformers: Mapping[str, Transformer] = field(default_factory=dict)
    takes: Mapping[str, Any] = field(default_factory=dict)
    one_picture: bool = True
    text_elsewhere: str = ""
    scales: Literal["axes", "positions", "pairs"] = "axes"
    noise: Noise | None = None
    timestep: str = "timestep"
    native: Mapping[str, int] = field(default_factory=dict)
    repeats: tuple[int, int] | None = None
    takes_gain: bool = True
    has_preset: bool = True
    rotation: str = "axial RoPE"

    def arguments(self) -> dict[str, object]:
        """What `AxialRoPE` takes."""
        rotated = sum(self.axes_dims)
        named: dict[str, object] = {"head_dim": self.head_dim or rotated, "base": self.base}
        if self.convention != "eva-02":  # whose axes are alike
            return {**named, "axes": len(self.axes_dims), "convention": self.convention}
        named["axes_dims"] = self.axes_dims
        if self.layout != "interleaved":
            named["layout"] = self.layout
        return named if self.head_dim is None else {**named, "rotary_dim": rotated}

    def scaled(self) -> tuple[AxisName, ...]:
        """The axes on which a scaling may act."""
        return tuple(axis.name for axis in self.axes if not axis.kept)

    def suitable(self) -> list[str]:
        """The scalings that suit the model, as Python."""
        scaled = self.scaled()
        if self.scales == "pairs":
            return [_HALVED]
        if self.scales == "positions":
            return [_by_name(**dict.fromkeys(scaled, _HALVED))] if scaled else []
        calls = []
        if {"rows", "columns"} <= set(scaled):
            side = self.native.get("rows", 64)
            if self.noise is not None and "frames" not in [axis.name for axis in self.axes]:
                arguments = [str(side)] * (side != 64) + ['method="ntk"'] * (not self.takes_gain)
                calls.append(f"dype({', '.join(arguments)})")
            if not self.takes_gain:
                calls.append(_by_name(rows=("NTKAware(2.0)"), columns="NTKAware(2.0)"))
            elif "rows" in self.native:
                sizes = {name: f"YaRN(2.0, original_length={self.native[name]})" for name in ("rows", "columns")}
                calls.append(_by_name(**sizes))
            else:
                calls.append(_by_name(rows=_HALVED, columns=_HALVED))
        if "frames" in scaled:
            pair, period = self.repeats or ("k", "period")
            calls.append(f"riflex({pair}, repeats_at={period})")
        return calls


# ---------------------------------------------------------------- noise levels


def of_thousand(timestep: Any) -> Any:
    return timestep / 1000


def of_999(timestep: Any) -> Any:
    """GLM-Image counts from 0 to 999."""
    return (timestep + 1) / 1000


def of_one(timestep: Any) -> Any:
    return timestep


def backwards(timestep: Any) -> Any:
    return 1 - timestep


# ---------------------------------------------------------------- axes

_NONE = Axis("none", kept="it tells pictures apart")
_TEXT = Axis("text", kept="it counts text")
_ROWS_COLUMNS = (Axis("rows"), Axis("columns"))
_PICTURES = (_NONE, *_ROWS_COLUMNS)
_CAPTIONED = (_TEXT, *_ROWS_COLUMNS)
_VIDEO = (Axis("frames"), *_ROWS_COLUMNS)
_SPREAD = "it is spread over the trained grid already, whatever the size of the picture"
_SPREAD_PICTURE = (Axis("rows", kept=_SPREAD), Axis("columns", kept=_SPREAD))
_AREA = "its steps give every picture the same area already"

# ---------------------------------------------------------------- sizes in a config.json


def _listed(key: str) -> Callable[[Config], Sequence[int]]:
    return lambda config: config[key]


def _thirds(config: Config) -> list[int]:
    """Wan and Cosmos: rows and columns have a third each, rounded down to even, time the rest."""
    width = config["attention_head_dim"]
    side = 2 * (width // 6)
    return [width - 2 * side, side, side]


def _thirds_of(width: str, heads: str) -> Callable[[Config], list[int]]:
    return lambda config: _thirds({"attention_head_dim": config[width] // config[heads]})


def _eighths(config: Config) -> list[int]:
    """CogVideoX: time a quarter, rows and columns three eighths each."""
    width = config["attention_head_dim"]
    return [width // 4, width // 8 * 3, width // 8 * 3]


def _equal(config: Config) -> list[int]:
    return [config["attention_head_dim"] // 3] * 3


def _halves(config: Config) -> list[int]:
    return [config["attention_head_dim"] // 2] * 2


def _half_heads(config: Config) -> list[int]:
    return [config["hidden_size"] // config["num_attention_heads"] // 2] * 2


def _sixths(config: Config) -> list[int]:
    """LTX: each axis has a third of the width of all heads, rounded down to even."""
    return [config["num_attention_heads"] * config["attention_head_dim"] // 6 * 2] * 3


def _shares(config: Config) -> list[int]:
    """Interleaved M-RoPE: rows and columns have their sections, frames every pair that is left."""
    head_dim, sections = config.get("attention_head_dim", config.get("head_dim")), config["sections"]
    if head_dim is None:
        raise KeyError("head_dim")
    rows, columns = config[sections][1:]
    return [head_dim - 2 * (rows + columns), 2 * rows, 2 * columns]


def _h3(config: Config) -> list[int]:
    return [2 * config["rope_freq_dim"]] * 3


def _cosmos_bases(config: Config) -> list[float]:
    return [
        10_000.0 * float(scale) ** (width / (width - 2))
        for width, scale in zip(_thirds(config), config["rope_scale"], strict=True)
    ]


def _base_of(key: str) -> Callable[[Config], list[float]]:
    return lambda config: [float(config[key])]


def _fixed(base: float) -> Callable[[Config], list[float]]:
    return lambda config: [base]


def _adds_in_2b(config: Config) -> str:
    """CogVideoX-2B and its like."""
    if config["use_rotary_positional_embeddings"]:
        return ""
    return "adds a sinusoidal embedding: SinusoidalGrid(dim, axes=3, family='cogvideox'), preset 'cogvideox-2b'"


def _adds_sincos(preset: str) -> Callable[[Config], str]:
    return lambda config: f"adds a sinusoidal embedding: SinusoidalGrid(dim), column first, preset {preset!r}"


def _flux_like(theta: float = 1e4, widths: tuple[int, ...] = (16, 56, 56), **options: Any) -> Transformer:
    return Transformer({"attention_head_dim": 128, "axes_dims_rope": widths, "rope_theta": theta}, **options)


_ENDS = ("positions end at rope_max_seq_len = {rope_max_seq_len:,} on each axis",)
_LENS = ("positions end at axes_lens = {axes_lens}",)


def _wan_like(head_dim: int = 128, **options: Any) -> Transformer:
    defaults = {"attention_head_dim": head_dim, "rope_max_seq_len": 1024, "rope_theta": 10_000.0}
    return Transformer(defaults, _thirds, **{"notes": _ENDS, **options})


def _hunyuan_like(widths: tuple[int, ...] = (16, 56, 56)) -> Transformer:
    defaults = {"attention_head_dim": 128, "rope_axes_dim": widths, "rope_theta": 256.0}
    return Transformer(defaults, _listed("rope_axes_dim"))


def _split_halves(width: int, *notes: str) -> Transformer:
    return Transformer({"attention_head_dim": width, "rope_theta": 10_000.0}, _halves, notes=notes)


def _alike(transformer: Transformer, *names: str) -> dict[str, Transformer]:
    """Classes that are read alike."""
    return dict.fromkeys(names, transformer)


def _ltx_2_like(*more: str) -> Transformer:
    return Transformer(
        {"attention_head_dim": 128, "num_attention_heads": 32, "rope_theta": 10_000.0, "rope_type": "interleaved"},
        _sixths, notes=(
            "frequencies grow, π/2 · base^(t/(n − 1)), and run over the width of all heads; rope_type {rope_type}",
            "sound has one axis, frequencies of its own width, and cross-attention to the video by seconds alone",
            *more,
        ),
    )  # fmt: skip


_GRID = "(frame, row, column); text is not rotated"
_FLUX_1 = "text at (0, 0, 0), pictures at (0, row, column), references at (1, row, column)"
_QWEN = (
    "pictures at (number, row − ⌈H/2⌉, column − ⌈W/2⌉), text behind them on all axes from max ⌊H/2⌋, ⌊W/2⌋; "
    "of a batch with pictures of several sizes the first row's positions serve all"
)
_SIDE_64 = {"rows": 64, "columns": 64}
_SIDE_83 = {"rows": 83, "columns": 83}
_QWEN_RANGE = ("coordinates reach from −4,096 to 4,095",)
_OF_480P = {"frames": 21, "rows": 30, "columns": 52}
_SPREAD_VIDEO = (Axis("frames"), *_SPREAD_PICTURE)

MODELS: dict[ModelName, Model] = {
    "flux-1": Model(
        _PICTURES, _FLUX_1, (16, 56, 56), one_picture=False, noise=of_one, native=_SIDE_64, transformers={
            **_alike(_flux_like(), "FluxTransformer2DModel", "ChromaTransformer2DModel", "FluxControlNetModel"),
            **_alike(_flux_like(noise=of_thousand), "BriaTransformer2DModel", "BriaFiboTransformer2DModel"),
        },
    ),
    "ovis-image": Model(
        _PICTURES, "text at (0, l, l), the picture at (0, row, column)", (16, 56, 56), noise=of_one, native=_SIDE_64,
        transformers={"OvisImageTransformer2DModel": _flux_like()},
    ),
    "longcat-image": Model(
        _PICTURES, "text at (0, l, l), pictures behind it at (1 + n, tokens + row, tokens + column)", (16, 56, 56),
        one_picture=False, noise=of_one, native=_SIDE_64, transformers={"LongCatImageTransformer2DModel": _flux_like()},
    ),
    "flux-2": Model(
        (*_PICTURES, _TEXT), "text at (0, 0, 0, l), pictures at (10 n, row, column, 0)", (32,) * 4, 2_000.0,
        one_picture=False, noise=of_one, native=_SIDE_64,
        transformers={"Flux2Transformer2DModel": _flux_like(2e3, (32,) * 4)},
    ),
    "flux-3": Model(
        (_NONE, Axis("rows", 0.5), Axis("columns", 0.5), _TEXT),
        "text at (0, 0, 0, l), pictures at (0, row / 2, column / 2, −n)", (32,) * 4, takes={"scale": (1, 2, 2, 1)},
        one_picture=False, noise=of_one, native=_SIDE_64,
        transformers={"Flux3Transformer2DModel": _flux_like(1e4, (32,) * 4)},
    ),
    "krea-2": Model(
        _PICTURES, "text at (0, 0, 0), the picture at (0, row, column)", (32, 48, 48), 1_000.0, noise=of_one,
        native=_SIDE_64, transformers={"Krea2Transformer2DModel": _flux_like(1e3, (32, 48, 48))},
    ),
    "hidream": Model(
        _PICTURES, "text at (0, 0, 0), the picture at (0, row, column)", (64, 32, 32), noise=of_thousand,
        timestep="timesteps", native=_SIDE_64, transformers={
            "HiDreamImageTransformer2DModel": Transformer(
                {"attention_head_dim": 128, "axes_dims_rope": (64, 32, 32)}, bases=_fixed(10_000.0)
            ),
        },
    ),
    "qwen-image": Model(
        _PICTURES, _QWEN, (16, 56, 56), one_picture=False, noise=of_one, native=_SIDE_83, transformers={
            "QwenImageTransformer2DModel": _flux_like(notes=_QWEN_RANGE),
            "QwenImageControlNetModel": _flux_like(notes=_QWEN_RANGE),
            "NucleusMoEImageTransformer2DModel": _flux_like(),
        },
    ),
    "qwen-image-layered": Model(
        _PICTURES, "as Qwen-Image, the last picture at frame −1", (16, 56, 56), one_picture=False, noise=of_one,
        native=_SIDE_83,
    ),
    "qwen-image-2.1": Model(
        _PICTURES,
        "text counts on all axes; a picture at (count, centred row, centred column), then count + max(H, W)",
        (16, 56, 56), one_picture=False, noise=of_one, native=_SIDE_64, transformers={
            "QwenImage21Transformer2DModel": _flux_like(notes=("coordinates reach from −1,024 to 8,191",)),
        },
    ),
    "joyimage": Model(
        _PICTURES, "pictures at (n, row, column), the one that is made at n = 0; text is not rotated", (16, 56, 56),
        256.0, one_picture=False, noise=of_thousand, native=_SIDE_64, transformers=_alike(
            Transformer(
                {"hidden_size": 3072, "num_attention_heads": 24, "rope_dim_list": (16, 56, 56), "theta": 256},
                _listed("rope_dim_list"), _base_of("theta"),
            ), "JoyImageEditTransformer3DModel", "JoyImageEditPlusTransformer3DModel",
        ),
    ),
    "lumina-2": Model(
        _CAPTIONED, "caption at (l, 0, 0), the picture at (length of the caption, row, column)", (32, 32, 32),
        noise=backwards, native=_SIDE_64, transformers={
            "Lumina2Transformer2DModel": Transformer(
                {"axes_dim_rope": (32, 32, 32), "rope_theta": 10_000.0, "axes_lens": (300, 512, 512)},
                _listed("axes_dim_rope"), notes=_LENS,
            ),
        },
    ),
    "z-image": Model(
        _CAPTIONED, "caption at (1 + l, 0, 0), the picture at (1 + length of the caption, row, column); the caption is "
        "padded to a multiple of 32, which counts", (32, 48, 48), 256.0, noise=backwards, timestep="t", native=_SIDE_64,
        transformers={
            "ZImageTransformer2DModel": Transformer(
                {"axes_dims": (32, 48, 48), "rope_theta": 256.0, "axes_lens": (1024, 512, 512)}, _listed("axes_dims"),
                notes=_LENS,
            ),
            "ZImageControlNetModel": Transformer(
                {"axes_dims": (32, 48, 48), "rope_theta": 256.0}, _listed("axes_dims"),
                refused="it shares the transformer's own module of positions: attach to the transformer before "
                "ZImageControlNetModel.from_transformer",
            ),
        },
    ),
    "bria-fibo-2": Model(
        _CAPTIONED, "gist of the text at (1 + l, 0, 0), pictures behind it at (most gist tokens + 1 + n, row, column)",
        (32, 48, 48), 256.0, one_picture=False, takes={"table": 512}, noise=of_one, native=_SIDE_64, transformers={
            "BriaFibo2Transformer2DModel": Transformer(
                {"axes_dims": (32, 48, 48), "rope_theta": 256.0, "axes_lens": (2048, 512, 512)}, _listed("axes_dims"),
                notes=_LENS,
            ),
        },
    ),
    "ernie-image": Model(
        _CAPTIONED, "text at (l, 0, 0), the picture at (length of the text, row, column)", (32, 48, 48), 256.0,
        noise=of_thousand, native=_SIDE_64, takes_gain=False, has_preset=False, transformers={
            "ErnieImageTransformer2DModel": Transformer(
                {"rope_axes_dim": (32, 48, 48), "rope_theta": 256.0}, _listed("rope_axes_dim"), notes=(
                    "channels (i, i + n/2) pair up, but neighbours have the same angle: no rotation, as queries change "
                    "their length",
                    "takes angles, which have no gain: of YaRN and DyPE's default method only the frequencies fit",
                ),
            ),
        },
    ),
    "hunyuan-image": Model(
        _ROWS_COLUMNS, "(row, column); text is not rotated", (64, 64), 256.0, noise=of_thousand, native=_SIDE_64,
        transformers={"HunyuanImageTransformer2DModel": _hunyuan_like((64, 64))},
    ),
    "glm-image": Model(
        _ROWS_COLUMNS, "(row, column); text is not rotated", (64, 64), layout="half", noise=of_999, native=_SIDE_64,
        transformers={"GlmImageTransformer2DModel": _split_halves(40)},
    ),
    "prx": Model(
        _ROWS_COLUMNS, "(row, column); text is not rotated", (32, 32), noise=of_one, transformers={
            "PRXTransformer2DModel": Transformer(
                {"axes_dim": (32, 32), "theta": 10_000}, _listed("axes_dim"), _base_of("theta")
            ),
        },
    ),
    "lumina-next": Model(
        _ROWS_COLUMNS, "(row, column)", (48, 48), convention="lumina-next", takes={"scale": 1}, noise=backwards,
        native=_SIDE_64, transformers={
            "LuminaNextDiT2DModel": Transformer(
                {"hidden_size": 2304, "num_attention_heads": 32, "rope_theta": 10_000.0}, _half_heads, notes=(
                    "rows and columns alternate pair by pair",
                    "its pipeline scales frequencies by the timestep above the trained size; a scaling that acts "
                    "replaces that",
                ),
            ),
        },
    ),
    "cogview-4": Model(
        _SPREAD_PICTURE, "(⌊row · 256 / H⌋, ⌊column · 256 / W⌋); text is not rotated", (64, 64), layout="half",
        takes={"trained": 256}, noise=of_thousand, transformers={"CogView4Transformer2DModel": _split_halves(40)},
    ),
    "hunyuan-dit": Model(
        _SPREAD_PICTURE, "rows and columns spread over the part of a 32 × 32 grid that has the picture's shape",
        (44, 44), convention="sam-2", takes={"trained": 32}, noise=of_thousand, transformers=_alike(
            _split_halves(88, "the column has the first pairs"), "HunyuanDiT2DModel", "HunyuanDiT2DControlNetModel"
        ),
    ),
    "omnigen": Model(
        (Axis("text"),), "text and patches count on, one row; pictures add a sinusoidal embedding as well", (96,),
        layout="half", scales="positions", has_preset=False, rotation="RoPE with LongRoPE's factors, of one axis",
        transformers={
            "OmniGenTransformer2DModel": Transformer(
                {"hidden_size": 3072, "num_attention_heads": 32, "rope_base": 10_000},
                lambda config: [config["hidden_size"] // config["num_attention_heads"]], _base_of("rope_base"),
                notes=("its factors are the long ones from original_max_position_embeddings tokens on",),
            ),
        },
    ),
    "wan": Model(
        _VIDEO, _GRID, (44, 42, 42), noise=of_thousand, native=_OF_480P, repeats=(6, 51), transformers={
            **_alike(
                _wan_like(), "WanTransformer3DModel", "WanVACETransformer3DModel", "WanAnimateTransformer3DModel",
                "SkyReelsV2Transformer3DModel", "AnyFlowTransformer3DModel",
            ),
            "SanaVideoTransformer3DModel": _wan_like(112),
            "AnyFlowFARTransformer3DModel": _wan_like(
                notes=(*_ENDS, "compressed frames stand in the middle of the patches that they join")
            ),
            "SanaWMTransformer3DModel": Transformer(
                {"linear_head_dim": 112, "rope_theta": 10_000.0},
                lambda config: _thirds({"attention_head_dim": config["linear_head_dim"]}),
                notes=("positions end at 1,024 on each axis",),
            ),
            "WanAnimate2Transformer3DModel": Transformer(
                {"dim": 5120, "num_heads": 40, "rope_theta": 10_000.0}, _thirds_of("dim", "num_heads"),
                notes=("positions end at 512 on each axis", "the reference stands behind the last column"),
            ),
        },
    ),
    "chrono-edit": Model(
        _VIDEO, "(frame, row, column), two frames are 0 and 7", (44, 42, 42), noise=of_thousand, native=_OF_480P,
        repeats=(6, 51), transformers={"ChronoEditTransformer3DModel": _wan_like()},
    ),
    "helios": Model(
        _VIDEO, "(number of the frame, row, column), the numbers given by the call; text is not rotated", (44, 42, 42),
        takes={"frames": None}, noise=of_thousand, native=_OF_480P, repeats=(6, 51), transformers={
            "HeliosTransformer3DModel": Transformer(
                {"attention_head_dim": 128, "rope_dim": (44, 42, 42), "rope_theta": 10_000.0}, _listed("rope_dim"),
                notes=("tables of its longer history are averaged over patches",),
            ),
        },
    ),
    "hunyuan-video": Model(
        _VIDEO, _GRID, (16, 56, 56), 256.0, noise=of_thousand, native={"frames": 33, "rows": 45, "columns": 80},
        repeats=(4, 50), transformers=_alike(
            _hunyuan_like(), "HunyuanVideoTransformer3DModel", "HunyuanVideo15Transformer3DModel",
            "MotifVideoTransformer3DModel",
        ),
    ),
    "framepack": Model(
        _VIDEO, "(number of the frame, row, column), the numbers given by the call; text is not rotated", (16, 56, 56),
        256.0, takes={"frames": None}, noise=of_thousand, repeats=(4, 50),
        transformers={"HunyuanVideoFramepackTransformer3DModel": _hunyuan_like()},
    ),
    "cogvideox": Model(
        _SPREAD_VIDEO, "frames counted, rows and columns spread over the part of the trained grid that has the "
        "picture's shape (with patch_size_t, CogVideoX 1.5: counted); text is not rotated", (16, 24, 24),
        takes={"trained": (30, 45)}, noise=of_thousand, native={"frames": 13}, repeats=(2, 20), transformers=_alike(
            Transformer(
                {"attention_head_dim": 64, "rope_theta": 10_000.0, "patch_size_t": None,
                 "use_rotary_positional_embeddings": False}, _eighths, adds=_adds_in_2b,
            ), "CogVideoXTransformer3DModel", "ConsisIDTransformer3DModel",
        ),
    ),
    "cogvideox-1.5": Model(
        _VIDEO, _GRID, (16, 24, 24), noise=of_thousand, native={"frames": 11, "rows": 48, "columns": 85},
        repeats=(2, 20),
    ),
    "easyanimate": Model(
        _SPREAD_VIDEO, "as CogVideoX on a grid of 30 × 45", (16, 24, 24), takes={"trained": (30, 45)},
        noise=of_thousand, transformers={
            "EasyAnimateTransformer3DModel": Transformer({"attention_head_dim": 64, "rope_theta": 10_000.0}, _eighths),
        },
    ),
    "allegro": Model(
        (Axis("frames", 1 / 2.2), Axis("rows", 0.5), Axis("columns", 0.5)),
        "(frame / 2.2, row / 2, column / 2), the divisors by the config; text is not rotated", (32, 32, 32),
        layout="half-by-axis", takes={"scale": (2.2, 2, 2)}, noise=of_thousand,
        native={"frames": 22, "rows": 45, "columns": 80}, transformers={
            "AllegroTransformer3DModel": Transformer({"attention_head_dim": 96, "rope_theta": 10_000.0}, _equal),
        },
    ),
    "kandinsky-5": Model(
        _VIDEO, "(frame, row, column); text has RoPE in blocks of its own", (16, 24, 24), takes={"scale": 1},
        text_elsewhere="its text has blocks of its own, with RoPE(64, layout='interleaved')", noise=of_thousand,
        native={"frames": 31, "rows": 32, "columns": 48}, transformers={
            "Kandinsky5Transformer3DModel": Transformer(
                {"axes_dims": (16, 24, 24), "rope_theta": 10_000.0}, _listed("axes_dims"),
                notes=("the pipeline divides rows and columns by 2 for videos of 480 to 854 pixels",),
            ),
        },
    ),
    "kandinsky-6": Model(
        (Axis("frames", kept="cross-attention rotates sound by the same frames"), Axis("rows", 0.5),
         Axis("columns", 0.5)),
        "(frame, row / 2, column / 2), the divisors by the config; text and sound have RoPE in blocks of their own",
        (32, 48, 48), takes={"scale": (1, 2, 2)},
        text_elsewhere="its text has blocks of its own, with RoPE(128, layout='interleaved')", noise=of_thousand,
        transformers={
            "Kandinsky6Transformer3DModel": Transformer(
                {"axes_dims": (32, 48, 48), "rope_theta": 10_000.0}, _listed("axes_dims")
            ),
        },
    ),
    "kandinsky-6-sr": Model(
        (Axis("frames"), Axis("rows", 0.5), Axis("columns", 0.5)),
        "(frame, row / 2, column / 2), the divisors by the config", (16, 24, 24), takes={"scale": (1, 2, 2)},
        noise=of_thousand, transformers={
            "Kandinsky6SRTransformer3DModel": Transformer(
                {"axes_dims": (16, 24, 24), "rope_theta": 10_000.0}, _listed("axes_dims")
            ),
        },
    ),
    "cosmos": Model(
        _VIDEO, "(24 · frame / fps, row, column), without fps the frame's number", (44, 42, 42),
        tuple(_cosmos_bases({"attention_head_dim": 128, "rope_scale": (2.0, 1.0, 1.0)})), "half", takes={"fps": None},
        transformers=_alike(
            Transformer({"attention_head_dim": 128, "rope_scale": (2.0, 1.0, 1.0)}, _thirds, _cosmos_bases),
            "CosmosTransformer3DModel", "CosmosControlNetModel",
        ),
    ),
    "cosmos-3": Model(
        (_TEXT, *_ROWS_COLUMNS), "M-RoPE as Qwen3-VL: text at (l, l, l), frames behind it",
        scales="pairs", has_preset=False, rotation="M-RoPE", layout="half", transformers={
            "Cosmos3OmniTransformer": Transformer(
                {"head_dim": 128, "sections": "rope_axes_dim", "rope_axes_dim": (24, 20, 20), "rope_theta": 5e6},
                _shares, notes=("M-RoPE: pairs of one RoPE over the whole head, dealt out alternately",),
            ),
        },
    ),
    "ltx": Model(
        _VIDEO, "(seconds / 20, pixel / 2048, pixel / 2048) from −1 to 1; text is not rotated", (682,) * 3,
        head_dim=2_048, convention="ltx", takes={"fps": 25}, scales="positions", transformers={
            "LTXVideoTransformer3DModel": Transformer(
                {"attention_head_dim": 64, "num_attention_heads": 32, "rope_theta": 10_000.0}, _sixths, notes=(
                    "frequencies grow, π/2 · base^(t/(n − 1)), and run over the width of all heads before it is cut",
                    "diffusers computes these angles in float32, which puts them off by up to 4e-3 radians",
                ),
            ),
        },
    ),
    "ltx-2": Model(
        _VIDEO, "the middle of a token: (seconds / 20, pixel / 2048, pixel / 2048) from −1 to 1; sound by its seconds "
        "alone; text is not rotated", takes={"fps": 24}, scales="positions", transformers={
            "LTX2VideoTransformer3DModel": _ltx_2_like(),
            "SanaWMLTX2RefinerTransformer3DModel": _ltx_2_like("its pipeline asks the module for each block of frames"),
        },
    ),
    "mochi": Model(
        (Axis("frames"), Axis("rows", kept=_AREA), Axis("columns", kept=_AREA)),
        "(frame, row and column from the middle, in steps that give every picture the same area)",
        takes={"trained": 192}, scales="positions",
        rotation="rotates by learned frequencies, which are weights (pos_frequencies): MixedRoPE(128, num_heads=24, "
        "axes=3, frequencies=…), preset 'mochi'", transformers={"MochiTransformer3DModel": Transformer()},
    ),
    "ideogram-4": Model(
        _CAPTIONED, "text at (l, l, l), the picture at (65536, 65536 + row, 65536 + column)", layout="half",
        scales="pairs", noise=backwards, rotation="M-RoPE", transformers={
            "Ideogram4Transformer2DModel": Transformer(
                {"attention_head_dim": 256, "sections": "mrope_section", "mrope_section": (24, 20, 20),
                 "rope_theta": 5e6},
                _shares, notes=("M-RoPE: pairs of one RoPE over the whole head, dealt out alternately; sections "
                                "{mrope_section}",),
            ),
        },
    ),
    "minimax-h3": Model(
        (Axis("frames", kept="text, sound and frames count on it together"), *_SPREAD_PICTURE),
        "text at (l, 0, 0), frames behind it in steps of 5/3 · (1, 4, 4, 4, 4), rows and columns in the middle of "
        "0 … 32", (32, 32, 32), layout="half", head_dim=128, takes={"keyframes": None}, one_picture=False,
        transformers={
            "MiniMaxH3Transformer3DModel": Transformer(
                {"rope_freq_dim": 16, "rope_theta": 10_000.0, "attention_head_dim": 128}, _h3
            ),
        },
    ),
    "sd3": Model(
        (Axis("rows"), Axis("columns")), "(row + top, column + left) / (table / trained), the middle of the table",
        takes={"trained": 64, "table": 192},
        transformers={"SD3Transformer2DModel": Transformer(adds=_adds_sincos("sd3"))},
    ),
    "pixart": Model(
        (Axis("rows"), Axis("columns")), "i · trained / n / 2 for rows and columns", takes={"trained": 64, "scale": 2},
        transformers={"PixArtTransformer2DModel": Transformer(adds=_adds_sincos("pixart"))},
    ),
    "cogvideox-2b": Model(_VIDEO, "(frame, row / 1.875, column / 1.875)", takes={"scale": (1, 1.875, 1.875)}),
}  # fmt: skip

GROWING = ("ltx", "ltx-2")  # whose frequencies grow, over the width of all heads
TRANSFORMERS: dict[str, ModelName] = {name: model for model, record in MODELS.items() for name in record.transformers}
PLACED: tuple[ModelName, ...] = tuple(name for name in MODELS if name not in ("omnigen", "cosmos-3"))
PRESETS: tuple[ModelName, ...] = tuple(name for name in PLACED if MODELS[name].has_preset)


def record_of(name: object, known: Sequence[str] = PLACED) -> Model:
    """The record of a model; a ValueError with the nearest names for any other.

    >>> record_of("FLUX.1-dev")
    Traceback (most recent call last):
    ValueError: model: 'FLUX.1-dev' is not known; did you mean 'flux-1'?
    """
    if isinstance(name, str) and name in known:
        return MODELS[name]  # type: ignore[index]
    meant = _nearest(name, known)
    if meant:
        raise ValueError(f"model: {shown(name)} is not known; did you mean {' or '.join(map(repr, meant))}?")
    raise ValueError(f"model must be one of {tuple(known)}, got {shown(name)}")


def _nearest(name: object, known: Sequence[str]) -> list[str]:
    """The names that are probably meant: those that begin alike, or are spelled nearly so."""
    if not isinstance(name, str):
        return []
    by_letters = {re.sub(r"[^a-z0-9]", "", each.lower()): each for each in known}
    letters = re.sub(r"[^a-z0-9]", "", name.rpartition("/")[2].lower())
    meant = [
        each for key, each in by_letters.items() if letters and (key.startswith(letters) or letters.startswith(key))
    ]
    return meant or [by_letters[key] for key in get_close_matches(letters, by_letters, n=3, cutoff=0.7)]


def python_for(name: str, path: str, part: str = "transformer") -> str:
    """What posenc has for a class of diffusers: the command that reads it, and the two lines of Python.

    Args:
        name: of the class.
        path: of its file or folder.
        part: of the pipeline that it is.
    """
    if name not in TRANSFORMERS:
        return "posenc has nothing for it"
    model = MODELS[TRANSFORMERS[name]]
    calls = model.suitable()
    if not calls or model.transformers[name].refused:
        return f"posenc explain {path} shows its positions; no scaling suits it"
    helper = next((word for word in ("dype", "riflex") if calls[0].startswith(word)), "")
    imports = f"from posenc.diffusion import attach, {helper}" if helper else "from posenc.diffusion import attach"
    if not helper:
        imports = f"from posenc import {re.findall('[A-Za-z]+(?=[(])', calls[0])[0]}; {imports}"
    return (
        f"posenc explain {path} shows its positions, and for larger pictures or longer videos, in Python:\n"
        f"    {imports}\n    attach(pipeline.{part}, {calls[0]})"
    )
