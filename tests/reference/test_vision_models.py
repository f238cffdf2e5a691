"""What the code of transformers' vision and document models makes of random inputs, and where they place tokens.

The golden numbers of these are what it makes today; ``python -m tests.reference.test_vision_models`` writes them to
``tests/golden/vision.npz``.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.golden import config, load, save
from tests.samples import gap

Arrays = tuple[dict[str, Tensor], dict[str, Any]]


def random_tensor(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers that are exact in float32."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def gemma_4() -> Arrays:
    """Gemma 4's vision rotary embedding on a grid of 3 × 5, x (batch, tokens, heads, width)."""
    from transformers.models.gemma4 import modeling_gemma4 as code

    config = SimpleNamespace(rope_parameters={"rope_type": "axial", "rope_theta": 100.0}, head_dim=24)
    places = torch.stack(torch.meshgrid(torch.arange(5), torch.arange(3), indexing="xy"), -1).reshape(1, 15, 2)
    x = random_tensor(1, 15, 2, 24)
    cos, sin = code.Gemma4VisionRotaryEmbedding(config)(x, places)
    rotated = code.apply_multidimensional_rope(x, cos, sin, places)
    return {"x": x, "x_rot": rotated}, {"code": "transformers 5.23.0 gemma4", "sizes": [3, 5]}


def kimi_k25() -> Arrays:
    """Kimi K2.5's vision rotary embedding on a grid of 3 × 5, x (batch, tokens, heads, width)."""
    from transformers.models.kimi_k25 import modeling_kimi_k25 as code
    from transformers.vision_utils import get_vision_position_ids

    rope = {"rope_type": "axial", "rope_theta": 10_000.0}
    config = SimpleNamespace(rope_parameters=rope, hidden_size=48, num_attention_heads=2, head_dim=None)
    places = get_vision_position_ids(torch.tensor([[1, 3, 5]]), spatial_merge_size=1)
    x = random_tensor(1, 15, 2, 24)
    cos, sin = code.Kimi_K25VisionRotaryEmbedding(config)(x, places)
    rotated, _ = code.apply_rotary_pos_emb_vision(x, x, cos, sin)
    return {"x": x, "x_rot": rotated}, {"code": "transformers 5.23.0 kimi_k25", "sizes": [3, 5]}


def efficient_loftr() -> Arrays:
    """EfficientLoFTR's rotary embedding on a grid of 3 × 5: x (batch, tokens, 1, width), before it has heads."""
    from transformers.models.efficientloftr import modeling_efficientloftr as code

    config = SimpleNamespace(
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 4.0},
        hidden_size=48, num_attention_heads=8, head_dim=None, q_aggregation_kernel_size=4, q_aggregation_stride=4,
    )  # fmt: skip
    x = random_tensor(1, 15, 1, 48)
    cos, sin = code.EfficientLoFTRRotaryEmbedding(config)(torch.zeros(1, 48, 12, 20))
    rotated, _ = code.apply_rotary_pos_emb(x, x, cos.reshape(1, 15, 48), sin.reshape(1, 15, 48), unsqueeze_dim=2)
    return {"x": x, "x_rot": rotated}, {"code": "transformers 5.23.0 efficientloftr", "sizes": [3, 5], "heads": 8}


def llama_4() -> Arrays:
    """Llama 4's vision rotary embedding on a grid of 4 × 4 and a class token, x (batch, tokens, heads, width)."""
    from transformers.models.llama4 import modeling_llama4 as code

    config = SimpleNamespace(
        image_size=56, patch_size=14, hidden_size=48, num_attention_heads=2, rope_parameters={"rope_theta": 10_000.0}
    )
    x = random_tensor(1, 17, 2, 24)
    rotated, _ = code.vision_apply_rotary_emb(x, x, code.Llama4VisionRotaryEmbedding(config)(x))
    return {"x": x, "x_rot": rotated}, {"code": "transformers 5.23.0 llama4", "sizes": [4, 4]}


def sam(window: tuple[int, int], sizes: tuple[int, int]) -> Arrays:
    """A layer of SAM whose tables are of one size and its picture of another, x (batch, rows, columns, channels)."""
    from transformers.models.sam import modeling_sam as code

    config = SimpleNamespace(
        image_size=1, patch_size=1, num_attention_heads=2, hidden_size=16, qkv_bias=True, attention_dropout=0.0,
        use_rel_pos=True,
    )  # fmt: skip
    layer = filled(code.SamVisionAttention(config, window_size=window[0]), window)
    return of_layer(layer, sizes, "transformers 5.23.0 sam")


def vitdet(window: tuple[int, int], sizes: tuple[int, int]) -> Arrays:
    """The same of ViTDet."""
    from transformers.models.vitdet import modeling_vitdet as code

    config = SimpleNamespace(
        hidden_size=16, num_attention_heads=2, qkv_bias=True, use_relative_position_embeddings=True
    )
    return of_layer(
        filled(code.VitDetAttention(config, input_size=window), window), sizes, "transformers 5.23.0 vitdet"
    )


def filled(layer: Any, window: tuple[int, int]) -> Any:
    """A layer with random weights and with tables for a window."""
    for seed, (name, parameter) in enumerate(layer.named_parameters()):
        rows = {"rel_pos_h": 2 * window[0] - 1, "rel_pos_w": 2 * window[1] - 1}.get(name)
        shape = parameter.shape if rows is None else (rows, parameter.shape[1])
        parameter.data = random_tensor(*shape, seed=seed) * 0.5
    return layer


def of_layer(layer: Any, sizes: tuple[int, int], code: str) -> Arrays:
    """What a layer makes of random tokens, in float64, and its parameters, which float32 holds."""
    x = random_tensor(2, *sizes, 16, seed=9)
    arrays = {"x": x, "rel_pos_h": layer.rel_pos_h, "rel_pos_w": layer.rel_pos_w}
    for name, linear in (("qkv", layer.qkv), ("proj", layer.proj)):
        arrays |= {f"{name}_w": linear.weight, f"{name}_b": linear.bias}
    arrays = {name: array.detach().float() for name, array in arrays.items()}
    arrays["y"] = layer.double()(x.double())[0]
    return arrays, {"code": code, "sizes": list(sizes), "heads": 2}


def pooled() -> Arrays:
    """SAM's function for queries of 6 × 4 and keys of 3 × 2, as MViTv2 pools them."""
    from transformers.models.sam.modeling_sam import SamVisionAttention

    q, tables = random_tensor(2, 24, 8), [random_tensor(11, 8, seed=1), random_tensor(7, 8, seed=2)]
    layer = SimpleNamespace(get_rel_pos=lambda *sizes: SamVisionAttention.get_rel_pos(None, *sizes))
    bias = SamVisionAttention.get_decomposed_rel_pos(layer, q, *tables, (6, 4), (3, 2))
    arrays = {"q": q, "rel_pos_h": tables[0], "rel_pos_w": tables[1], "bias": bias.reshape(2, 24, 3, 2)}
    return arrays, {"code": "transformers 5.23.0 sam"}


def boxes() -> tuple[Tensor, Tensor]:
    """Boxes (batch, tokens, 4) in thousandths of a page, and the places of tokens in the text."""
    source = torch.Generator().manual_seed(3)
    corner = torch.randint(0, 900, (2, 20, 2), generator=source)
    bbox = torch.cat([corner, corner + torch.randint(1, 100, (2, 20, 2), generator=source)], -1)
    return bbox, torch.stack([torch.arange(20), torch.arange(20) * 9])


def tables(sizes: tuple[int, int, int]) -> dict[str, Tensor]:
    """A table for the place in the text, for x and for y, (buckets, 3 heads)."""
    return {
        f"table_{name}": random_tensor(n, 3, seed=n + i) for i, (name, n) in enumerate(zip("txy", sizes, strict=True))
    }


def layoutlm(version: int) -> Arrays:
    """What LayoutLM adds to the scores; version 3 over the square root of heads that are 16 wide."""
    from transformers.models.layoutlmv2.modeling_layoutlmv2 import LayoutLMv2Encoder
    from transformers.models.layoutlmv3.modeling_layoutlmv3 import LayoutLMv3Encoder

    config = SimpleNamespace(
        num_hidden_layers=0, has_relative_attention_bias=True, has_spatial_attention_bias=True, rel_pos_bins=32,
        max_rel_pos=128, rel_2d_pos_bins=64, max_rel_2d_pos=256, num_attention_heads=3,
    )  # fmt: skip
    (bbox, positions), extra = boxes(), tables((32, 64, 64))
    encoder = (LayoutLMv2Encoder if version == 2 else LayoutLMv3Encoder)(config).double()
    for name in "txy":
        linear = encoder.rel_pos_bias if name == "t" else getattr(encoder, f"rel_pos_{name}_bias")
        linear.weight.data = extra[f"table_{name}"].double().T
    if version == 2:
        text, page = encoder._calculate_1d_position_embeddings, encoder._calculate_2d_position_embeddings
        bias = text(positions) + page(bbox)
    else:
        bias = (encoder._cal_1d_pos_emb(positions) + encoder._cal_2d_pos_emb(bbox)) / 16**0.5
    meta = {"code": f"transformers 5.23.0 layoutlmv{version}"}
    return {"bbox": bbox, "positions": positions, "bias": bias, **extra}, meta


def udop() -> Arrays:
    """What UDOP adds to the scores, for boxes from 0 to 1."""
    from transformers.models.udop import modeling_udop as code

    bbox, extra = boxes()[0] / 1000, tables((32, 32, 32))
    kinds = code.RelativePositionBias1D, code.RelativePositionBiasHorizontal, code.RelativePositionBiasVertical
    biases = [kind(num_heads=3) for kind in kinds]
    for bias, table in zip(biases, extra.values(), strict=True):
        bias.relative_attention_bias.weight.data = table.double()
    added = code.RelativePositionBiasAggregated(biases)(attention_mask=torch.ones(2, 20), bbox=bbox)
    return {"bbox": bbox, "bias": added, **extra}, {"code": "transformers 5.23.0 udop"}


def buckets() -> Arrays:
    """LayoutLMv3's buckets of all differences of a page, for several numbers of them."""
    from transformers.models.layoutlmv3.modeling_layoutlmv3 import LayoutLMv3Encoder

    differences, shapes = torch.arange(-1100, 1101), [[64, 256], [32, 128], [32, 100], [16, 1000]]
    arrays = {"differences": differences}
    for n, longest in shapes:
        arrays[f"buckets_{n}_{longest}"] = LayoutLMv3Encoder.relative_position_bucket(
            None, differences, num_buckets=n, max_distance=longest
        )
    return arrays, {"code": "transformers 5.23.0 layoutlmv3", "shapes": shapes}


def random_fourier() -> Arrays:
    """SAM's embedding of a picture of 3 × 5 tokens, and of points (x, y) in a picture of 64 × 64 pixels."""
    from transformers.models.sam.modeling_sam import SamPositionalEmbedding

    matrix, points = random_tensor(2, 8), torch.tensor([[3, 60], [0, 0], [63, 17]])
    module = SamPositionalEmbedding(SimpleNamespace(scale=1, num_pos_feats=8)).double()
    module.positional_embedding.data = matrix.double()
    y, x = torch.meshgrid(*((torch.arange(n).double() + 0.5) / n for n in (3, 5)), indexing="ij")
    picture = module(torch.stack([x, y], -1))
    embedded = module((points[None, None] + 0.5).double(), (64, 64))[0, 0]
    arrays = {"positional_embedding": matrix, "points": points, "picture": picture, "embedded": embedded}
    return arrays, {"code": "transformers 5.23.0 sam"}


def sam_2() -> Arrays:
    """SAM 2's memory attention: queries of a picture of 3 × 5; keys of two pictures and 4 pointers, which stay."""
    from transformers.models.sam2_video import modeling_sam2_video as code

    config = SimpleNamespace(
        rope_parameters={"rope_type": "axial", "rope_theta": 10_000.0}, memory_attention_hidden_size=32,
        memory_attention_downsample_rate=1, memory_attention_num_attention_heads=2,
        memory_attention_rope_feat_sizes=[5, 3],
    )  # fmt: skip
    q, k = random_tensor(1, 2, 15, 16), random_tensor(1, 2, 34, 16, seed=1)
    places = code.Sam2VideoMemoryAttention.precompute_positions(config)
    cos, sin = code.Sam2VideoVisionRotaryEmbedding(config)(q, places)
    rotated = code.apply_rotary_pos_emb_2d(q, k, cos, sin, num_k_exclude_rope=4, repeat_freqs_k=True)
    arrays = {"q": q, "k": k, "q_rot": rotated[0], "k_rot": rotated[1]}
    return arrays, {"code": "transformers 5.23.0 sam2_video", "sizes": [3, 5], "frames": 2, "pointers": 4}


def mlcd() -> Arrays:
    """MLCD's rotary embedding of a class token, whose angles are learned, and a picture of 3 × 5, by its model."""
    from transformers import MLCDVisionConfig
    from transformers.models.mlcd import modeling_mlcd as code

    config = MLCDVisionConfig(
        hidden_size=32, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=2
    )
    model = code.MLCDVisionModel(config).eval()
    tokens, x, seen = random_tensor(1, 8), random_tensor(1, 16, 2, 16, seed=1), dict[str, Any]()
    model.class_pos_emb.data = tokens
    model.embeddings.forward = lambda pixels: torch.zeros(1, 16, 32)
    model.encoder.register_forward_pre_hook(lambda module, args, inputs: seen.update(inputs), with_kwargs=True)
    with torch.no_grad():
        model(torch.zeros(1, 3, 6, 10))
    rotated, _ = code.apply_rotary_pos_emb_vision(x, x, *(part[None] for part in seen["position_embeddings"]))
    return {"x": x, "x_rot": rotated, "angles": tokens}, {"code": "transformers 5.23.0 mlcd", "sizes": [3, 5]}


def perceiver(sizes: list[int], bands: int, resolution: list[int]) -> Arrays:
    """Perceiver's Fourier features of a grid, (tokens, channels)."""
    from transformers.models.perceiver.modeling_perceiver import PerceiverFourierPositionEncoding as Features

    features = Features(num_bands=bands, max_resolution=tuple(resolution))
    built = features(sizes, 1, torch.device("cpu"), torch.float32)[0]
    return {"features": built}, {"code": "transformers 5.23.0 perceiver", "sizes": sizes, "resolution": resolution}


def nearest() -> Arrays:
    """Rows of Idefics2's table of 8 × 8 that pictures of several sizes read, and of MiniCPM-V's of 70 × 70."""
    from transformers.models.idefics2.modeling_idefics2 import Idefics2VisionEmbeddings
    from transformers.vision_utils import get_vision_nearest_position_ids

    config = SimpleNamespace(hidden_size=1, image_size=8, patch_size=1, num_channels=1)
    module = Idefics2VisionEmbeddings(config)
    module.patch_embedding.weight.data.zero_()
    module.patch_embedding.bias.data.zero_()
    module.position_embedding.weight.data = torch.arange(64.0)[:, None]
    sizes, arrays = [[3, 5], [8, 8], [1, 20], [17, 6]], dict[str, Tensor]()
    for height, width in sizes:
        rows = module(torch.zeros(1, 1, height, width), torch.ones(1, height, width, dtype=torch.bool))
        arrays[f"idefics2_{height}x{width}"] = rows.flatten().long()
        arrays[f"minicpm_{height}x{width}"] = get_vision_nearest_position_ids(torch.tensor([[height, width]]), 70)
    return arrays, {"code": "transformers 5.23.0 idefics2, vision_utils", "sizes": sizes, "tables": [8, 70]}


def windows() -> Arrays:
    """Qwen2.5-VL's windows of 8 × 8 patches, of 2 × 2 merged ones each: which merged token comes when, and borders."""
    from transformers.vision_utils import get_vision_window_index

    grids, arrays = [[1, 10, 22], [2, 8, 16], [1, 4, 2]], dict[str, Tensor]()
    for number, grid in enumerate(grids):
        result = get_vision_window_index(torch.tensor([grid]), spatial_merge_size=2, window_size=112, patch_size=14)
        arrays[f"index_{number}"], arrays[f"borders_{number}"] = result
    return arrays, {"code": "transformers 5.23.0 vision_utils", "grids": grids}


MAKERS: dict[str, Callable[[], Arrays]] = {
    "rope2d_gemma4__d24_3x5": gemma_4,
    "rope2d_kimi_k25__d24_3x5": kimi_k25,
    "rope2d_efficientloftr__d48_3x5": efficient_loftr,
    "rope2d_llama4__d24_4x4": llama_4,
    "decomposed_sam__w3x5_3x5_H2": lambda: sam((3, 5), (3, 5)),
    "decomposed_sam__w4x4_5x6_H2": lambda: sam((4, 4), (5, 6)),
    "decomposed_vitdet__w3x5_3x5_H2": lambda: vitdet((3, 5), (3, 5)),
    "decomposed_vitdet__w7x6_4x5_H2": lambda: vitdet((7, 6), (4, 5)),
    "decomposed_pooled__q6x4_k3x2": pooled,
    "t5_grid_layoutlmv2__H3": lambda: layoutlm(2),
    "t5_grid_layoutlmv3__H3": lambda: layoutlm(3),
    "t5_grid_udop__H3": udop,
    "t5_grid_buckets": buckets,
    "random_fourier_sam__d16": random_fourier,
    "rope2d_sam2__d16_3x5": sam_2,
    "rope2d_mlcd__d16_3x5": mlcd,
    "fourier_perceiver__4x7_b6": lambda: perceiver([4, 7], 6, [4, 7]),
    "fourier_perceiver__2x3x5_b3": lambda: perceiver([2, 3, 5], 3, [16, 32, 48]),
    "fourier_perceiver__9_b1": lambda: perceiver([9], 1, [9]),
    "nearest_places": nearest,
    "windows_qwen2_5": windows,
}


@pytest.mark.reference
@pytest.mark.parametrize("name", MAKERS)
def test_golden_numbers_equal_the_authors(name: str) -> None:
    pytest.importorskip("transformers")
    arrays, meta = load(f"vision/{name}", None), config(f"vision/{name}")
    built, source = MAKERS[name]()
    assert meta == source
    assert arrays.keys() == built.keys()
    assert all(gap(arrays[key], built[key]) < 1e-6 * (1 + built[key].abs().max()) for key in built)


if __name__ == "__main__":
    for name, make in MAKERS.items():
        arrays, meta = make()
        save(f"vision/{name}", {key: tensor.detach().numpy() for key, tensor in arrays.items()}, meta)
