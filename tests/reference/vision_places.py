"""Where transformers' vision models place tokens, and what their code makes of it: golden numbers, made on demand.

``python -m tests.reference.vision_places`` writes them to ``tests/golden/vision.npz``, `test_vision_models` compares.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from tests.reference.vision_models import Arrays, random_tensor, write


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


MAKERS = {
    "rope2d_sam2__d16_3x5": sam_2,
    "rope2d_mlcd__d16_3x5": mlcd,
    "fourier_perceiver__4x7_b6": lambda: perceiver([4, 7], 6, [4, 7]),
    "fourier_perceiver__2x3x5_b3": lambda: perceiver([2, 3, 5], 3, [16, 32, 48]),
    "fourier_perceiver__9_b1": lambda: perceiver([9], 1, [9]),
    "nearest_places": nearest,
    "windows_qwen2_5": windows,
}


if __name__ == "__main__":
    write(MAKERS)
