"""What docs/images.md and docs/pitfalls.md say of diffusers: lines that attach posenc run, errors are as large."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from posenc import MRoPE
from posenc.diffusion import AttachedPositions, preset
from posenc.positions import Image, Text, Video

pytestmark = pytest.mark.reference
diffusers = pytest.importorskip("diffusers")
DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"(?:^    .*\n|^\n)*^    from posenc\.diffusion import .*\n(?:^    .*\n|^\n)*", re.M)


def pipelines() -> dict[str, SimpleNamespace]:
    """The names that the pages use, with transformers of the released widths of a head."""
    small = {"num_layers": 1, "num_attention_heads": 1, "attention_head_dim": 128}
    flux = diffusers.FluxTransformer2DModel(
        in_channels=4, num_single_layers=0, joint_attention_dim=8, pooled_projection_dim=8, **small
    )
    qwen = diffusers.QwenImageTransformer2DModel(in_channels=4, out_channels=4, joint_attention_dim=8, **small)
    hunyuan = diffusers.HunyuanVideoTransformer3DModel(
        in_channels=4, out_channels=4, num_single_layers=0, num_refiner_layers=1, text_embed_dim=8,
        pooled_projection_dim=8, **small,
    )  # fmt: skip
    wan = diffusers.WanTransformer3DModel(in_channels=4, out_channels=4, text_dim=8, freq_dim=16, ffn_dim=8, **small)
    models = {"flux": flux, "qwen": qwen, "hunyuan": hunyuan, "wan": wan}
    return {f"{name}_pipeline": SimpleNamespace(transformer=model) for name, model in models.items()}


def attached(pipeline: SimpleNamespace) -> bool:
    return any(isinstance(module, AttachedPositions) for module in pipeline.transformer.modules())


def test_lines_that_attach_run_on_each_named_pipeline() -> None:
    blocks = BLOCK.findall((DOCS / "images.md").read_text(encoding="utf-8"))
    assert len(blocks) == 1
    code = re.sub("^    ", "", blocks[0], flags=re.M)
    names = pipelines()
    exec(code, dict(names))
    used = {name for name in names if name in code}
    assert len(used) > 2
    left = {name for name, pipeline in names.items() if attached(pipeline)}
    assert left == used - {"flux_pipeline"}, "which the last line detaches"


def test_float32_errors_of_diffusers_are_those_that_pitfalls_names() -> None:
    from diffusers.models.transformers.transformer_ideogram4 import Ideogram4MRoPE
    from diffusers.models.transformers.transformer_ltx import LTXVideoRotaryPosEmbed

    text = (DOCS / "pitfalls.md").read_text(encoding="utf-8")
    sizes = (16, 22, 40)  # 121 frames of 704 × 1,280
    rope, positions = preset("ltx", [Video(*sizes)])
    diffusers_cos = LTXVideoRotaryPosEmbed(2048)(
        torch.zeros(1, 1, 1), *sizes, rope_interpolation_scale=(8 / 25, 32, 32)
    )[0]
    exact = rope.table(positions)[0].repeat_interleave(2, -1)  # type: ignore[operator]
    ltx = float((diffusers_cos[0, :, -exact.shape[-1] :] - exact).abs().max())
    assert f"cosines off by up to {ltx:.3f}, for 121 frames" in text
    positions = preset("ideogram-4", [Text(20), Image(64, 64)]).positions
    cos, sin = Ideogram4MRoPE(256, 5_000_000, (24, 20, 20))(positions[None])
    exact_table = MRoPE(256, sections=(88, 20, 20), interleaved=True, base=5e6).table(positions)
    ideogram = max(
        float((table[0, :, :128] - part).abs().max()) for table, part in zip((cos, sin), exact_table, strict=False)
    )
    assert f"off by up to {ideogram:.4f};" in text
