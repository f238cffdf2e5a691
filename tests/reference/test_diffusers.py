"""Positions of diffusion transformers, compared with the modules of the installed diffusers, widened.

Widened: their text with float64 in the place of float32, no formula touched, which shows that the formula is the same;
as shipped, in float32, `test_diffusers_attach` runs whole models. Those whose numbers are golden ones
(tests/test_presets.py, tests/positions/test_streams.py, tests/golden) are not here.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import types
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from posenc.diffusion import Preset, preset
from posenc.encoding import RotaryEncoding
from posenc.positions import Audio, Image, Text, Video
from posenc.positions.parts import Part
from tests.samples import gap

pytestmark = pytest.mark.reference
pytest.importorskip("diffusers")
EMBEDDINGS = "models.embeddings"
WIDER = (("torch.float32", "torch.float64"), (".float()", ".double()"), ("complex64", "complex128"))
Load = Callable[[str], Any]  # a module of diffusers by its name, as shipped or widened


def shipped(name: str) -> Any:
    full = name if name.startswith(("models", "pipelines", "modular")) else f"models.transformers.{name}"
    return importlib.import_module(f"diffusers.{full}")


@cache
def widened(name: str) -> Any:
    """A module of diffusers whose text says float64 where it said float32."""
    module = shipped(name)
    text = inspect.getsource(module)
    for narrow, wide in WIDER:
        text = text.replace(narrow, wide)
    copy = types.ModuleType(f"{module.__name__}_widened")
    copy.__package__ = module.__package__
    sys.modules[copy.__name__] = copy  # where dataclasses look for what their annotations name
    exec(compile(text, str(module.__file__), "exec"), copy.__dict__)
    for word, value in list(vars(copy).items()):  # what it takes from files with formulas is widened as well
        home = str(getattr(value, "__module__", "")).removeprefix("diffusers.")
        shared = home == EMBEDDINGS or home.startswith("models.transformers.transformer_")
        if shared and not home.endswith("_widened"):
            setattr(copy, word, getattr(widened(home), word))
    return copy


class DiffusersTables(NamedTuple):
    """Numbers of diffusers: cos and sin ``(…, pairs)``."""

    cos: Tensor
    sin: Tensor


def adjacent(cos: Tensor, sin: Tensor) -> DiffusersTables:
    """Of tables that repeat each pair for its two channels (2j, 2j + 1)."""
    return DiffusersTables(cos.reshape(-1, cos.shape[-1])[:, ::2], sin.reshape(-1, sin.shape[-1])[:, ::2])


def halves(cos: Tensor, sin: Tensor) -> DiffusersTables:
    """Of tables that repeat all pairs for the second half of the channels."""
    cos, sin = cos.reshape(-1, cos.shape[-1]), sin.reshape(-1, sin.shape[-1])
    return DiffusersTables(cos[:, : cos.shape[-1] // 2], sin[:, : sin.shape[-1] // 2])


def complexes(*waves: Tensor) -> DiffusersTables:
    joined = torch.cat([wave.reshape(-1, wave.shape[-1]) for wave in waves])
    return DiffusersTables(joined.real, joined.imag)


Case = Callable[[Load], tuple[DiffusersTables, Preset]]
CPU = torch.device("cpu")


def flux_3(load: Load) -> tuple[DiffusersTables, Preset]:
    built = preset("flux-3", [Text(2), Image(3, 4), Image(2, 3)])
    before_denoise = shipped("modular_pipelines.flux3.before_denoise")
    numbered = [before_denoise._prepare_image_ids(3, 4, 0.5), before_denoise._prepare_image_ids(2, 3, 0.5, l_coord=-1)]
    words = torch.cartesian_prod(*[torch.arange(1)] * 3, torch.arange(2))
    places = torch.cat([words, *numbered]).double()
    return adjacent(*load("transformer_flux3").Flux3PosEmbed(10000, [32] * 4)(places)), built


def krea_2(load: Load) -> tuple[DiffusersTables, Preset]:
    places = shipped("pipelines.krea2.pipeline_krea2").Krea2Pipeline.prepare_position_ids(3, 4, 5, CPU)
    module = load("transformer_krea2").Krea2RotaryPosEmbed(1000, [32, 48, 48])
    return adjacent(*module(places.double())), preset("krea-2", [Text(3), Image(4, 5)])


def ovis_image(load: Load) -> tuple[DiffusersTables, Preset]:
    pipeline = shipped("pipelines.ovis_image.pipeline_ovis_image").OvisImagePipeline
    numbered = pipeline._prepare_latent_image_ids(1, 3, 4, CPU, torch.float64)
    words = torch.arange(3)[:, None] * torch.tensor([0, 1, 1])  # as its _get_messages and encode_prompt count
    places = torch.cat([words, numbered]).double()
    module = load("transformer_ovis_image").OvisImagePosEmbed(10000, [16, 56, 56])
    return adjacent(*module(places)), preset("ovis-image", [Text(3), Image(3, 4)])


def longcat_image(load: Load) -> tuple[DiffusersTables, Preset]:
    """Text, the picture behind it, and a reference (LongCat-Image-Edit)."""
    ids = shipped("pipelines.longcat_image.pipeline_longcat_image_edit").prepare_pos_ids
    pictures = [ids(1 + n, "image", (5, 5), height=3, width=4) for n in (0, 1)]
    places = torch.cat([ids(0, "text", num_token=5), *pictures]).double()
    module = load("transformer_longcat_image").LongCatImagePosEmbed(10000, [16, 56, 56])
    return adjacent(*module(places)), preset("longcat-image", [Text(5), Image(3, 4), Image(3, 4)])


def sana_video(load: Load) -> tuple[DiffusersTables, Preset]:
    module = load("transformer_sana_video").WanRotaryPosEmbed(112, (1, 2, 2), 1024)
    widths = {"head_dim": 112, "axes_dims": (40, 36, 36)}
    return adjacent(*module(torch.zeros(1, 16, 3, 8, 12))), preset("wan", [Video(3, 4, 6)], **widths)


def qwen_image_layered(load: Load) -> tuple[DiffusersTables, Preset]:
    module = load("transformer_qwenimage").QwenEmbedLayer3DRope(10000, [16, 56, 56], scale_rope=True)
    tables = module([[(1, 2, 3), (1, 2, 3), (1, 2, 3), (1, 3, 2)]], 3, device=CPU)
    parts: list[Part] = [Image(2, 3), Image(2, 3), Image(2, 3), Image(3, 2), Text(3)]
    return complexes(*tables), preset("qwen-image-layered", parts)


def chrono_edit(load: Load) -> tuple[DiffusersTables, Preset]:
    module = load("transformer_chronoedit").ChronoEditRotaryPosEmbed(128, (1, 2, 2), 1024)
    return adjacent(*module(torch.zeros(1, 16, 2, 6, 8))), preset("chrono-edit", [Video(2, 3, 4)])


def hunyuan_image(load: Load) -> tuple[DiffusersTables, Preset]:
    module = load("transformer_hunyuanimage").HunyuanImageRotaryPosEmbed((1, 1), (64, 64))
    return adjacent(*module(torch.zeros(1, 16, 5, 6))), preset("hunyuan-image", [Image(5, 6)])


def cogvideox(load: Load) -> tuple[DiffusersTables, Preset]:
    pipeline = shipped("pipelines.cogvideo.pipeline_cogvideox")
    cut = pipeline.get_resize_crop_region_for_grid((8, 4), 45, 30)
    tables = load(EMBEDDINGS).get_3d_rotary_pos_embed(64, cut, (8, 4), 3)
    return adjacent(*tables), preset("cogvideox", [Video(3, 8, 4)])


def cogvideox_1_5(load: Load) -> tuple[DiffusersTables, Preset]:
    tables = load(EMBEDDINGS).get_3d_rotary_pos_embed(64, None, (4, 6), 3, grid_type="slice", max_size=(30, 45))
    return adjacent(*tables), preset("cogvideox-1.5", [Video(3, 4, 6)])


def easyanimate(load: Load) -> tuple[DiffusersTables, Preset]:
    module = load("transformer_easyanimate").EasyAnimateRotaryPosEmbed(2, 64)
    return adjacent(*module(torch.zeros(1, 16, 3, 18, 10))), preset("easyanimate", [Video(3, 9, 5)])


def cogview_4(load: Load) -> tuple[DiffusersTables, Preset]:
    module = load("transformer_cogview4").CogView4RotaryPosEmbed(128, 2, (256, 256))
    return halves(*module(torch.zeros(1, 16, 12, 20))), preset("cogview-4", [Image(6, 10)])


def glm_image(load: Load) -> tuple[DiffusersTables, Preset]:
    module = load("transformer_glm_image").GlmImageRotaryPosEmbed(128, 2)
    return halves(*module(torch.zeros(1, 16, 12, 20))), preset("glm-image", [Image(6, 10)])


def cosmos(load: Load) -> tuple[DiffusersTables, Preset]:
    module = load("transformer_cosmos").CosmosRotaryPosEmbed(128, rope_scale=(2.0, 1.0, 1.0))
    return halves(*module(torch.zeros(1, 16, 3, 4, 6), fps=30)), preset("cosmos", [Video(3, 2, 3)], fps=30)


def kandinsky_5(load: Load) -> tuple[DiffusersTables, Preset]:
    module = load("transformer_kandinsky").Kandinsky5RoPE3D([16, 24, 24])
    counted = [torch.arange(size) for size in (3, 2, 4)]
    matrices = module((1, 3, 2, 4), counted, scale_factor=(1.0, 2.0, 2.0)).reshape(24, 32, 2, 2)
    return DiffusersTables(matrices[..., 0, 0], matrices[..., 1, 0]), preset(
        "kandinsky-5", [Video(3, 2, 4)], scale=(1, 2, 2)
    )


def minimax_h3(load: Load) -> tuple[DiffusersTables, Preset]:
    steps = shipped("modular_pipelines.minimax_h3.before_denoise")
    frames, _ = steps._frame_position_grid(8, 12, 2, 2)
    times = steps._temporal_position_grid(6, 3.0)
    words = torch.tensor([[float(word), 0, 0] for word in range(3)], dtype=torch.float64)
    places = torch.cat([words, torch.cat([times.repeat_interleave(24)[:, None], frames.repeat(6, 1)], -1)])
    module = load("transformer_minimax_h3").MiniMaxH3RotaryPosEmbed()
    return halves(*module(places)), preset("minimax-h3", [Text(3), Video(6, 4, 6)])


def minimax_h3_keyframes(load: Load) -> tuple[DiffusersTables, Preset]:
    """Pictures that are to be the first and the last frame, sound of two channels, and 17 latent frames."""
    steps = shipped("modular_pipelines.minimax_h3.before_denoise")
    tags, sizes = torch.ones(3, dtype=torch.long), (17, 8, 12, 5, (1, 2, 2))
    build = next(kind.build_packed_sequence for kind in vars(steps).values() if hasattr(kind, "build_packed_sequence"))
    places, *_ = build(tags, *sizes, 2, 2, 0, ("first", "last"))
    module = load("transformer_minimax_h3").MiniMaxH3RotaryPosEmbed()
    parts: list[Part] = [Text(3), Image(4, 6), Image(4, 6), Audio(5), Audio(5), Video(17, 4, 6)]
    return halves(*module(places)), preset("minimax-h3", parts, keyframes=("first", "last"))


def matrices(table: Tensor) -> DiffusersTables:
    """Of rotations as matrices."""
    table = table.reshape(-1, table.shape[-3], 2, 2)
    return DiffusersTables(table[..., 0, 0], table[..., 1, 0])


def hidream(load: Load, rows: int = 4, columns: int = 6) -> tuple[DiffusersTables, Preset]:
    built = preset("hidream", [Image(rows, columns), Text(3)])
    module = load("transformer_hidream_image").HiDreamImageEmbedND(10000, [64, 32, 32])
    return matrices(module(built.positions[None].double())), built


def prx(load: Load, rows: int = 4, columns: int = 6) -> tuple[DiffusersTables, Preset]:
    ids = load("transformer_prx").get_image_ids(1, 2 * rows, 2 * columns, 2, CPU)
    return matrices(load("transformer_prx").PRXEmbedND(64, 10000, [32, 32])(ids)), preset("prx", [Image(rows, columns)])


def joyimage(load: Load, rows: int = 4, columns: int = 6) -> tuple[DiffusersTables, Preset]:
    class Sizes:
        rope_dim_list, theta, hidden_size, num_attention_heads = (16, 56, 56), 256, 128, 1

    class Model:
        config, rope_dim_list, theta, hidden_size, num_attention_heads = Sizes, [16, 56, 56], 256, 128, 1

    plus = load("transformer_joyimage_edit_plus").JoyImageEditPlusTransformer3DModel
    parts = [
        plus._get_rotary_pos_embed_for_range(Model, (n, 0, 0), (n + 1, *size))
        for n, size in enumerate([(rows, columns), (2, 3)])
    ]
    return adjacent(*(torch.cat(each) for each in zip(*parts, strict=True))), preset(
        "joyimage", [Image(rows, columns), Image(2, 3)]
    )


def bria_fibo_2(load: Load, rows: int = 4, columns: int = 6) -> tuple[DiffusersTables, Preset]:
    model = load("transformer_bria_fibo2").BriaFibo2Transformer2DModel
    grids = [((5, 1, 1), (1, 0, 0)), ((1, rows, columns), (9, 0, 0)), ((1, 2, 3), (10, 0, 0))]
    ids = torch.cat([model.create_coordinate_grid(*each, CPU).flatten(0, 2) for each in grids])
    module = load("transformer_bria_fibo2").RopeEmbedder(256.0, [32, 48, 48], [16, 64, 64])
    return complexes(module(ids.long())), preset("bria-fibo-2", [Text(5), Image(rows, columns), Image(2, 3)], table=8)


def helios(load: Load, rows: int = 4, columns: int = 6) -> tuple[DiffusersTables, Preset]:
    module = load("transformer_helios").HeliosRotaryPosEmbed([44, 42, 42], 10000)
    table = module(torch.tensor([[2, 17]]), rows, columns, CPU)[0].flatten(1).T
    return adjacent(*table.chunk(2, -1)), preset("helios", [Video(2, rows, columns)], frames=(2, 17))


def allegro(load: Load, rows: int = 4, columns: int = 6) -> tuple[DiffusersTables, Preset]:
    *tables, frame, row, column = load(EMBEDDINGS).get_3d_rotary_pos_embed_allegro(
        96, ((0, 0), (rows, columns)), (rows, columns), 3, (2.2, 2.0, 2.0)
    )
    numbers = torch.cartesian_prod(frame, row, column).long()
    read = [[part[numbers[:, axis], :16] for part in table] for axis, table in enumerate(tables)]
    return DiffusersTables(*(torch.cat(each, -1) for each in zip(*read, strict=True))), preset(
        "allegro", [Video(3, rows, columns)]
    )


def kandinsky_6(load: Load, rows: int = 4, columns: int = 6) -> tuple[DiffusersTables, Preset]:
    module = load("transformer_kandinsky6").Kandinsky6RoPE3D((32, 48, 48))
    numbers = [torch.arange(size) for size in (3, rows, columns)]
    built = preset("kandinsky-6", [Video(3, rows, columns)])
    return matrices(module(numbers, scale_factor=(1.0, 2.0, 2.0))), built


def kandinsky_6_sr(load: Load, rows: int = 4, columns: int = 6) -> tuple[DiffusersTables, Preset]:
    module = load("transformer_kandinsky6_sr").Kandinsky6SRRoPE3D((16, 24, 24))
    numbers = [torch.arange(size) for size in (3, rows, columns)]
    return matrices(module(numbers, scale_factor=(1.0, 2.0, 2.0))), preset("kandinsky-6-sr", [Video(3, rows, columns)])


def anyflow(load: Load, rows: int = 4, columns: int = 6) -> tuple[DiffusersTables, Preset]:
    module = load("transformer_anyflow").AnyFlowRotaryPosEmbed(128, (1, 2, 2), 1024)
    layout = {"total_frames": 3, "full_frame_shape": (rows, columns)}
    return complexes(module(layout, CPU)["query"]), preset("wan", [Video(3, rows, columns)])


def sana_wm(load: Load, rows: int = 4, columns: int = 6) -> tuple[DiffusersTables, Preset]:
    module = load("transformer_sana_wm").SanaWMRotaryPosEmbed(112, (1, 1, 1), 1024)
    widths = {"head_dim": 112, "axes_dims": (40, 36, 36)}
    return complexes(module((3, rows, columns), CPU)), preset("wan", [Video(3, rows, columns)], **widths)


def wan_animate_2(load: Load, rows: int = 4, columns: int = 6) -> tuple[DiffusersTables, Preset]:
    """A table of numbers on all axes, of which a token reads the row of its number on each."""
    params = load("transformer_wan_animate_2").rope_params
    table = [params(512, width) for width in (44, 42, 42)]
    numbers = torch.cartesian_prod(torch.arange(3), torch.arange(rows), torch.arange(columns))
    read = torch.cat([part[numbers[:, axis]] for axis, part in enumerate(table)], -1)
    return complexes(read), preset("wan", [Video(3, rows, columns)])


NEW: list[Case] = [
    hidream, prx, joyimage, bria_fibo_2, helios, allegro, kandinsky_6, kandinsky_6_sr, anyflow, sana_wm, wan_animate_2,
]  # fmt: skip
CASES: list[Case] = [
    *NEW,
    flux_3, krea_2, ovis_image, longcat_image, sana_video, qwen_image_layered, chrono_edit, hunyuan_image, cogvideox,
    cogvideox_1_5, easyanimate, cogview_4, glm_image, cosmos, kandinsky_5, minimax_h3, minimax_h3_keyframes,
]  # fmt: skip


def differs(expected: DiffusersTables, built: Preset) -> float:
    encoding, positions = built
    assert isinstance(encoding, RotaryEncoding)
    cos, sin = encoding.table(positions, like=torch.zeros(1, dtype=torch.float64))
    return max(gap(cos, expected.cos), gap(sin, expected.sin))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_equal_to_the_module_widened_to_float64(case: Case) -> None:
    expected, built = case(widened)
    assert expected.cos.dtype == torch.float64
    assert differs(expected, built) < 1e-6


@pytest.mark.parametrize("case", NEW, ids=lambda case: case.__name__)
def test_equal_at_another_size_too(case: Callable[..., tuple[DiffusersTables, Preset]]) -> None:
    assert differs(*case(widened, 9, 7)) < 1e-6
