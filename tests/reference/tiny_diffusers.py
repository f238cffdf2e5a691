"""Tiny models of diffusers with random weights, and inputs for one call of each: few channels, few layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import diffusers
import torch
from torch import Tensor, nn

Inputs = dict[str, Any]
Make = Callable[[], tuple[nn.Module, Inputs]]


def flux() -> tuple[nn.Module, Inputs]:
    model = diffusers.FluxTransformer2DModel(
        patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=[4, 6, 6],
    )  # fmt: skip
    ids = torch.cartesian_prod(torch.zeros(1), torch.arange(4.0), torch.arange(5.0))
    inputs: Inputs = {"hidden_states": torch.randn(1, 20, 4), "encoder_hidden_states": torch.randn(1, 3, 32)}
    inputs |= {"pooled_projections": torch.randn(1, 32), "timestep": torch.tensor([0.5]), "img_ids": ids}
    return model, {**inputs, "txt_ids": torch.zeros(3, 3)}


def flux_2() -> tuple[nn.Module, Inputs]:
    model = diffusers.Flux2Transformer2DModel(
        patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, axes_dims_rope=[4, 4, 4, 4],
    )  # fmt: skip
    nothing = torch.zeros(1)
    ids = torch.cartesian_prod(nothing, torch.arange(4.0), torch.arange(5.0), nothing)
    words = torch.cartesian_prod(nothing, nothing, nothing, torch.arange(3.0))
    inputs: Inputs = {"hidden_states": torch.randn(1, 20, 4), "encoder_hidden_states": torch.randn(1, 3, 32)}
    inputs |= {"timestep": torch.tensor([0.5]), "guidance": torch.ones(1)}
    return model, {**inputs, "img_ids": ids[None], "txt_ids": words[None]}


def krea_2() -> tuple[nn.Module, Inputs]:
    model = diffusers.Krea2Transformer2DModel(
        in_channels=4, num_layers=1, attention_head_dim=16, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=32, timestep_embed_dim=16, text_hidden_dim=16, num_text_layers=2, text_num_attention_heads=2,
        text_num_key_value_heads=2, text_intermediate_size=32, num_layerwise_text_blocks=1, num_refiner_text_blocks=1,
        axes_dims_rope=(4, 6, 6),
    )  # fmt: skip
    ids = torch.cartesian_prod(torch.zeros(1), torch.arange(4.0), torch.arange(5.0))
    inputs: Inputs = {"hidden_states": torch.randn(1, 20, 4), "encoder_hidden_states": torch.randn(1, 3, 2, 16)}
    return model, {**inputs, "timestep": torch.tensor([0.5]), "position_ids": torch.cat([torch.zeros(3, 3), ids])}


def qwen_image() -> tuple[nn.Module, Inputs]:
    model = diffusers.QwenImageTransformer2DModel(
        patch_size=2, in_channels=16, out_channels=4, num_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=16, axes_dims_rope=(8, 4, 4),
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 20, 16), "encoder_hidden_states": torch.randn(1, 3, 16)}
    inputs |= {"timestep": torch.tensor([0.5]), "img_shapes": [[(1, 4, 5)]]}
    return model, {**inputs, "encoder_hidden_states_mask": torch.ones(1, 3, dtype=torch.long)}


def wan() -> tuple[nn.Module, Inputs]:
    model = diffusers.WanTransformer3DModel(
        patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4,
        text_dim=16, freq_dim=256, ffn_dim=32, num_layers=1, cross_attn_norm=True, qk_norm="rms_norm_across_heads",
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 3, 8, 10), "timestep": torch.tensor([5])}
    return model, {**inputs, "encoder_hidden_states": torch.randn(1, 4, 16)}


def hunyuan_video() -> tuple[nn.Module, Inputs]:
    model = diffusers.HunyuanVideoTransformer3DModel(
        in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=10, num_layers=1,
        num_single_layers=1, num_refiner_layers=1, patch_size=1, patch_size_t=1, text_embed_dim=16,
        pooled_projection_dim=8, rope_axes_dim=(2, 4, 4),
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 3, 4, 5), "timestep": torch.tensor([500])}
    inputs |= {"encoder_hidden_states": torch.randn(1, 6, 16), "encoder_attention_mask": torch.ones(1, 6)}
    return model, {**inputs, "pooled_projections": torch.randn(1, 8), "guidance": torch.ones(1)}


def hunyuan_image() -> tuple[nn.Module, Inputs]:
    model = diffusers.HunyuanImageTransformer2DModel(
        in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=16, num_layers=1, num_single_layers=1,
        num_refiner_layers=1, text_embed_dim=16, rope_axes_dim=(8, 8),
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 4, 5), "timestep": torch.tensor([500.0])}
    return model, {
        **inputs, "encoder_hidden_states": torch.randn(1, 6, 16), "encoder_attention_mask": torch.ones(1, 6)
    }  # fmt: skip


def z_image() -> tuple[nn.Module, Inputs]:
    model = diffusers.ZImageTransformer2DModel(
        in_channels=4, dim=32, n_layers=1, n_refiner_layers=1, n_heads=2, n_kv_heads=2, cap_feat_dim=16,
        axes_dims=[4, 6, 6], axes_lens=[128, 32, 32],
    )  # fmt: skip
    for learned in (model.x_pad_token, model.cap_pad_token):
        nn.init.normal_(learned)  # left as they lie in memory
    return model, {"x": [torch.randn(4, 1, 8, 10)], "t": torch.tensor([0.5]), "cap_feats": [torch.randn(5, 16)]}


def cogview_4() -> tuple[nn.Module, Inputs]:
    model = diffusers.CogView4Transformer2DModel(
        patch_size=2, in_channels=4, num_layers=1, attention_head_dim=8, num_attention_heads=2, out_channels=4,
        text_embed_dim=8, time_embed_dim=8, condition_dim=4, rope_axes_dim=(8, 8),
    )  # fmt: skip
    sizes = dict.fromkeys(("original_size", "target_size", "crop_coords"), torch.full((1, 2), 20.0))
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 8, 10), "encoder_hidden_states": torch.randn(1, 3, 8)}
    return model, {**inputs, **sizes, "timestep": torch.tensor([500])}


def cosmos() -> tuple[nn.Module, Inputs]:
    model = diffusers.CosmosTransformer3DModel(
        in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=24, num_layers=1, mlp_ratio=2,
        text_embed_dim=16, adaln_lora_dim=4, max_size=(4, 32, 32), patch_size=(1, 2, 2), concat_padding_mask=False,
        extra_pos_embed_type=None,
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 3, 8, 10), "timestep": torch.tensor([5])}
    return model, {**inputs, "encoder_hidden_states": torch.randn(1, 4, 16), "fps": 30}


def ltx() -> tuple[nn.Module, Inputs]:
    model = diffusers.LTXVideoTransformer3DModel(
        in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=16, cross_attention_dim=32,
        num_layers=1, caption_channels=32,
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 24, 4), "timestep": torch.tensor([500])}
    inputs |= {"encoder_hidden_states": torch.randn(1, 4, 32), "encoder_attention_mask": torch.ones(1, 4)}
    inputs |= {"num_frames": 2, "height": 3, "width": 4}
    return model, {**inputs, "rope_interpolation_scale": (8 / 25, 32, 32)}


def cogvideox(patch_size_t: int | None = None) -> tuple[nn.Module, Inputs]:
    from diffusers.pipelines.cogvideo.pipeline_cogvideox import CogVideoXPipeline

    model = diffusers.CogVideoXTransformer3DModel(
        num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=4, time_embed_dim=2, text_embed_dim=8,
        num_layers=1, sample_width=18, sample_height=12, sample_frames=9, patch_size=2, patch_size_t=patch_size_t,
        max_text_seq_length=4, use_rotary_positional_embeddings=True,
    )  # fmt: skip

    class Pipeline:
        transformer, vae_scale_factor_spatial = model, 8

    tables = CogVideoXPipeline._prepare_rotary_positional_embeddings
    frames = 2 if patch_size_t is None else 4
    inputs: Inputs = {"hidden_states": torch.randn(1, frames, 4, 8, 10), "timestep": torch.tensor([500])}
    inputs |= {"encoder_hidden_states": torch.randn(1, 4, 8)}
    return model, {**inputs, "image_rotary_emb": tables(cast(Any, Pipeline), 64, 80, frames, torch.device("cpu"))}


def cogvideox_1_5() -> tuple[nn.Module, Inputs]:
    return cogvideox(2)


def grid_ids(*sizes: float) -> Tensor:
    """Ids ``(tokens, axes)`` of a grid."""
    return torch.cartesian_prod(*(torch.arange(float(size)) for size in sizes))


WORDS = torch.arange(3.0)[:, None] * torch.tensor([0.0, 1, 1])  # text that counts on rows and columns


def flux_3() -> tuple[nn.Module, Inputs]:
    model = diffusers.Flux3Transformer2DModel(
        in_channels=4, cond_in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16,
        num_attention_heads=2, joint_attention_dim=16, timestep_channels=16, axes_dims_rope=(4, 4, 4, 4),
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 20, 4), "encoder_hidden_states": torch.randn(1, 3, 16)}
    inputs |= {"timestep": torch.tensor([0.5]), "image_cond_hidden_states": torch.randn(1, 6, 4)}
    half = torch.tensor([1.0, 0.5, 0.5, 1.0])
    reference = grid_ids(1, 2, 3, 1) * half - torch.tensor([0.0, 0, 0, 1])
    return model, {
        **inputs, "img_ids": grid_ids(1, 4, 5, 1) * half, "txt_ids": grid_ids(1, 1, 1, 3), "image_cond_ids": reference,
    }  # fmt: skip


def bria() -> tuple[nn.Module, Inputs]:
    model = diffusers.BriaTransformer2DModel(
        in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, axes_dims_rope=[4, 6, 6],
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 20, 4), "encoder_hidden_states": torch.randn(1, 3, 32)}
    inputs |= {"timestep": torch.tensor([500.0]), "img_ids": grid_ids(1, 4, 5), "txt_ids": torch.zeros(3, 3)}
    return model, inputs


def bria_fibo() -> tuple[nn.Module, Inputs]:
    model = diffusers.BriaFiboTransformer2DModel(
        in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, axes_dims_rope=[4, 6, 6], text_encoder_dim=16,
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 20, 4), "encoder_hidden_states": torch.randn(1, 3, 32)}
    inputs |= {"timestep": torch.tensor([500.0]), "img_ids": grid_ids(1, 4, 5), "txt_ids": torch.zeros(3, 3)}
    return model, {**inputs, "text_encoder_layers": [torch.randn(1, 3, 16)] * 2}


def ovis_image() -> tuple[nn.Module, Inputs]:
    model = diffusers.OvisImageTransformer2DModel(
        in_channels=4, out_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, axes_dims_rope=(4, 6, 6),
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 20, 4), "encoder_hidden_states": torch.randn(1, 3, 32)}
    inputs |= {"timestep": torch.tensor([0.5]), "img_ids": grid_ids(1, 4, 5), "txt_ids": WORDS}
    return model, inputs


def longcat_image() -> tuple[nn.Module, Inputs]:
    model = diffusers.LongCatImageTransformer2DModel(
        in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=[4, 6, 6],
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 20, 4), "encoder_hidden_states": torch.randn(1, 3, 32)}
    inputs |= {"timestep": torch.tensor([0.5]), "img_ids": 3 + grid_ids(1, 4, 5), "txt_ids": WORDS}
    return model, inputs


def qwen_image_layered() -> tuple[nn.Module, Inputs]:
    model = diffusers.QwenImageTransformer2DModel(
        patch_size=2, in_channels=16, out_channels=4, num_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=16, axes_dims_rope=(8, 4, 4), use_layer3d_rope=True,
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 18, 16), "encoder_hidden_states": torch.randn(1, 3, 16)}
    inputs |= {"timestep": torch.tensor([0.5]), "img_shapes": [[(1, 2, 3), (1, 2, 3), (1, 3, 2)]]}
    return model, {**inputs, "encoder_hidden_states_mask": torch.ones(1, 3, dtype=torch.long)}


def qwen_image_2_1() -> tuple[nn.Module, Inputs]:
    model = diffusers.QwenImage21Transformer2DModel(
        in_channels=4, out_channels=4, num_layers=1, attention_head_dim=16, num_attention_heads=2, context_in_dim=16,
        axes_dims_rope=(8, 4, 4),
    )  # fmt: skip
    # a slot of the text encoder's pictures stands for 2 x 2 latents
    slots = torch.tensor([[False, False, *[True] * 2, False, *[True] * 6]])
    inputs: Inputs = {"hidden_states": torch.randn(1, 32, 4), "encoder_hidden_states": torch.randn(1, 5, 16)}
    inputs |= {"timestep": torch.tensor([0.5]), "img_shapes": [[(1, 2, 4), (1, 4, 6)]]}
    return model, {**inputs, "img_mask": slots}


def nucleus_image() -> tuple[nn.Module, Inputs]:
    model = diffusers.NucleusMoEImageTransformer2DModel(
        patch_size=2, in_channels=16, out_channels=4, num_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=16, axes_dims_rope=(8, 4, 4), moe_enabled=False, capacity_factors=[8.0],
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 20, 16), "encoder_hidden_states": torch.randn(1, 3, 16)}
    inputs |= {"timestep": torch.tensor([0.5]), "img_shapes": [[(1, 4, 5)]]}
    return model, {**inputs, "encoder_hidden_states_mask": torch.ones(1, 3, dtype=torch.long)}


def skyreels_v2() -> tuple[nn.Module, Inputs]:
    model = diffusers.SkyReelsV2Transformer3DModel(
        num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=16, ffn_dim=32,
        num_layers=1,
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 3, 8, 10), "timestep": torch.tensor([5])}
    return model, {**inputs, "encoder_hidden_states": torch.randn(1, 4, 16)}


def chrono_edit() -> tuple[nn.Module, Inputs]:
    model = diffusers.ChronoEditTransformer3DModel(
        num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=16, ffn_dim=32,
        num_layers=1,
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 2, 8, 10), "timestep": torch.tensor([5])}
    return model, {**inputs, "encoder_hidden_states": torch.randn(1, 4, 16)}


def hunyuan_video_1_5() -> tuple[nn.Module, Inputs]:
    model = diffusers.HunyuanVideo15Transformer3DModel(
        in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=16, num_layers=1, num_refiner_layers=1,
        text_embed_dim=16, text_embed_2_dim=16, image_embed_dim=16, rope_axes_dim=(4, 6, 6),
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 3, 4, 5), "timestep": torch.tensor([500.0])}
    for number in ("", "_2"):
        inputs |= {f"encoder_hidden_states{number}": torch.randn(1, 4, 16)}
        inputs |= {f"encoder_attention_mask{number}": torch.ones(1, 4)}
    return model, {**inputs, "image_embeds": torch.randn(1, 2, 16)}


def framepack() -> tuple[nn.Module, Inputs]:
    model = diffusers.HunyuanVideoFramepackTransformer3DModel(
        in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=10, num_layers=1, num_single_layers=1,
        num_refiner_layers=1, text_embed_dim=16, pooled_projection_dim=8, rope_axes_dim=(2, 4, 4),
        has_image_proj=True, image_proj_dim=8, has_clean_x_embedder=True,
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 2, 8, 16), "timestep": torch.tensor([500])}
    inputs |= {"encoder_hidden_states": torch.randn(1, 6, 16), "encoder_attention_mask": torch.ones(1, 6)}
    inputs |= {"pooled_projections": torch.randn(1, 8), "guidance": torch.ones(1)}
    inputs |= {"image_embeds": torch.randn(1, 2, 8)}
    inputs |= {"indices_latents": torch.tensor([9, 10]), "latents_clean": torch.randn(1, 4, 2, 8, 16)}
    inputs |= {"indices_latents_clean": torch.tensor([0, 8])}
    for scale, numbers in ((2, [6, 7]), (4, [2, 3, 4, 5])):
        inputs |= {f"latents_history_{scale}x": torch.randn(1, 4, len(numbers), 8, 16)}
        inputs |= {f"indices_latents_history_{scale}x": torch.tensor(numbers)}
    return model, inputs


def motif_video() -> tuple[nn.Module, Inputs]:
    model = diffusers.MotifVideoTransformer3DModel(
        in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=16, num_layers=1, num_single_layers=1,
        text_embed_dim=16, rope_axes_dim=(4, 6, 6),
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 3, 8, 10), "timestep": torch.tensor([500])}
    return model, {
        **inputs, "encoder_hidden_states": torch.randn(1, 4, 16), "encoder_attention_mask": torch.ones(1, 4),
    }  # fmt: skip


def lumina_2() -> tuple[nn.Module, Inputs]:
    """A batch of captions of unequal lengths."""
    model = diffusers.Lumina2Transformer2DModel(
        in_channels=4, hidden_size=24, num_layers=1, num_refiner_layers=1, num_attention_heads=2, num_kv_heads=1,
        multiple_of=8, axes_dim_rope=(4, 4, 4), axes_lens=(16, 16, 16), cap_feat_dim=16,
    )  # fmt: skip
    mask = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]])
    inputs: Inputs = {"hidden_states": torch.randn(2, 4, 8, 10), "timestep": torch.tensor([0.5, 0.5])}
    return model, {**inputs, "encoder_hidden_states": torch.randn(2, 5, 16), "encoder_attention_mask": mask}


def glm_image() -> tuple[nn.Module, Inputs]:
    model = diffusers.GlmImageTransformer2DModel(
        in_channels=4, out_channels=4, num_layers=1, attention_head_dim=8, num_attention_heads=2, text_embed_dim=8,
        time_embed_dim=8, condition_dim=4, prior_vq_quantizer_codebook_size=8,
    )  # fmt: skip
    sizes = dict.fromkeys(("target_size", "crop_coords"), torch.full((1, 2), 20.0))
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 8, 10), "encoder_hidden_states": torch.randn(1, 3, 8)}
    inputs |= {"prior_token_id": torch.zeros(1, 20, dtype=torch.long), "timestep": torch.tensor([499])}
    return model, {**inputs, **sizes, "prior_token_drop": torch.zeros(1, 20, dtype=torch.bool)}


def kandinsky_5() -> tuple[nn.Module, Inputs]:
    model = diffusers.Kandinsky5Transformer3DModel(
        in_text_dim=16, in_text_dim2=16, time_dim=16, model_dim=32, ff_dim=32, num_text_blocks=1, num_visual_blocks=1,
        axes_dims=(4, 6, 6),
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(2, 3, 8, 10, 4), "encoder_hidden_states": torch.randn(2, 3, 16)}
    inputs |= {"timestep": torch.tensor([500.0, 500.0]), "pooled_projections": torch.randn(2, 16)}
    inputs |= {"visual_rope_pos": [torch.arange(size) for size in (3, 4, 5)], "text_rope_pos": torch.arange(3)}
    return model, {**inputs, "scale_factor": (1.0, 2.0, 2.0)}


def easyanimate() -> tuple[nn.Module, Inputs]:
    model = diffusers.EasyAnimateTransformer3DModel(
        num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=4, patch_size=2, num_layers=1,
        mmdit_layers=1, time_embed_dim=16, text_embed_dim=16,
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 3, 18, 10), "timestep": torch.tensor([500])}
    return model, {**inputs, "encoder_hidden_states": torch.randn(1, 4, 16)}


def minimax_h3() -> tuple[nn.Module, Inputs]:
    """Text, sound and video in one row, with coordinates that are fractions."""
    model = diffusers.MiniMaxH3Transformer3DModel(
        num_attention_heads=2, attention_head_dim=16, hidden_size=32, num_layers=1, num_refiner_layers=1, ffn_dim=32,
        in_channels=4, audio_in_channels=4, text_dim=16, freq_dim=16, time_embed_hidden_dim=16, time_embed_dim=16,
        rope_freq_dim=2,
    )  # fmt: skip
    words, sounds, patches = torch.arange(3), torch.arange(3, 5), torch.arange(5, 17)
    inputs: Inputs = {"hidden_states": torch.randn(1, 12, 16), "audio_hidden_states": torch.randn(1, 2, 4)}
    inputs |= {"encoder_hidden_states": torch.randn(1, 3, 16), "timestep": torch.tensor([500.0])}
    inputs |= {"timestep_indices": torch.zeros(17, dtype=torch.long), "position_ids": torch.rand(17, 3).double() * 20}
    inputs |= {"token_tags": torch.tensor([1] * 3 + [2] * 2 + [0] * 12), "video_indices": patches}
    return model, {**inputs, "audio_indices": sounds, "text_indices": words}


def ideogram_4() -> tuple[nn.Module, Inputs]:
    model = diffusers.Ideogram4Transformer2DModel(
        in_channels=4, num_layers=1, attention_head_dim=20, num_attention_heads=2, intermediate_size=32, adaln_dim=8,
        llm_features_dim=16, mrope_section=(2, 2, 2),
    )  # fmt: skip
    ids = torch.cat([torch.arange(3)[:, None].expand(3, 3), 40 + grid_ids(1, 4, 5).long()])
    inputs: Inputs = {"hidden_states": torch.randn(1, 23, 4), "encoder_hidden_states": torch.randn(1, 23, 16)}
    inputs |= {"timestep": torch.tensor([0.5]), "position_ids": ids[None], "segment_ids": torch.ones(1, 23).long()}
    return model, {**inputs, "indicator": torch.tensor([[3] * 3 + [2] * 20])}


def mochi() -> tuple[nn.Module, Inputs]:
    model = diffusers.MochiTransformer3DModel(
        patch_size=2, num_attention_heads=2, attention_head_dim=8, num_layers=2, pooled_projection_dim=16,
        in_channels=4, text_embed_dim=16, time_embed_dim=4, max_sequence_length=16,
    )  # fmt: skip
    nn.init.normal_(model.pos_frequencies, std=0.02)  # 0 before a checkpoint is loaded
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 2, 8, 10), "encoder_hidden_states": torch.randn(1, 16, 16)}
    return model, {**inputs, "timestep": torch.tensor([500]), "encoder_attention_mask": torch.ones(1, 16).bool()}


def ltx_2(rope_type: str = "interleaved") -> tuple[nn.Module, Inputs]:
    model = diffusers.LTX2VideoTransformer3DModel(
        in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=16, cross_attention_dim=32,
        audio_in_channels=4, audio_out_channels=4, audio_num_attention_heads=2, audio_attention_head_dim=8,
        audio_cross_attention_dim=16, num_layers=1, caption_channels=16, rope_type=rope_type,
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(2, 24, 4), "audio_hidden_states": torch.randn(2, 5, 4)}
    inputs |= {"encoder_hidden_states": torch.randn(2, 4, 16), "audio_encoder_hidden_states": torch.randn(2, 4, 16)}
    inputs |= {"timestep": torch.tensor([500.0, 500.0]), "num_frames": 2, "height": 3, "width": 4, "fps": 24.0}
    return model, {**inputs, "audio_num_frames": 5}


def ltx_2_split() -> tuple[nn.Module, Inputs]:
    return ltx_2("split")


def hunyuan_dit() -> tuple[nn.Module, Inputs]:
    from diffusers.models.embeddings import get_2d_rotary_pos_embed
    from diffusers.pipelines.hunyuandit.pipeline_hunyuandit import get_resize_crop_region_for_grid

    model = diffusers.HunyuanDiT2DModel(
        num_attention_heads=2, attention_head_dim=16, in_channels=4, patch_size=2, sample_size=8, hidden_size=32,
        num_layers=2, cross_attention_dim=16, cross_attention_dim_t5=16, pooled_projection_dim=8, text_len=4,
        text_len_t5=4, use_style_cond_and_image_meta_size=False,
    )  # fmt: skip
    cut = get_resize_crop_region_for_grid((4, 5), 32)
    tables = get_2d_rotary_pos_embed(16, cut, (4, 5), output_type="pt")
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 8, 10), "timestep": torch.tensor([500.0])}
    inputs |= {"encoder_hidden_states": torch.randn(1, 4, 16), "text_embedding_mask": torch.ones(1, 4)}
    inputs |= {"encoder_hidden_states_t5": torch.randn(1, 4, 16), "text_embedding_mask_t5": torch.ones(1, 4)}
    return model, {**inputs, "image_rotary_emb": tables}


def hidream() -> tuple[nn.Module, Inputs]:
    model = diffusers.HiDreamImageTransformer2DModel(
        patch_size=2, in_channels=4, out_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16,
        num_attention_heads=2, caption_channels=[8, 8], text_emb_dim=8, num_routed_experts=2, num_activated_experts=1,
        axes_dims_rope=(8, 4, 4), max_resolution=(16, 16), llama_layers=[0, 1],
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 8, 10), "timesteps": torch.tensor([500.0])}
    inputs |= {"encoder_hidden_states_t5": torch.randn(1, 3, 8), "pooled_embeds": torch.randn(1, 8)}
    return model, {**inputs, "encoder_hidden_states_llama3": torch.randn(2, 1, 3, 8)}


def prx() -> tuple[nn.Module, Inputs]:
    model = diffusers.PRXTransformer2DModel(
        in_channels=4, context_in_dim=16, hidden_size=32, num_heads=2, depth=1, axes_dim=[8, 8]
    )
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 8, 10), "timestep": torch.tensor([0.5])}
    return model, {**inputs, "encoder_hidden_states": torch.randn(1, 3, 16)}


def ernie_image() -> tuple[nn.Module, Inputs]:
    model = diffusers.ErnieImageTransformer2DModel(
        hidden_size=32, num_attention_heads=2, num_layers=1, ffn_hidden_size=32, in_channels=4, out_channels=4,
        text_in_dim=16, rope_axes_dim=(4, 6, 6),
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 4, 5), "timestep": torch.tensor([500.0])}
    return model, {**inputs, "text_bth": torch.randn(1, 3, 16), "text_lens": torch.tensor([3])}


def bria_fibo_2() -> tuple[nn.Module, Inputs]:
    model = diffusers.BriaFibo2Transformer2DModel(
        in_channels=4, dim=32, n_layers=1, n_refiner_layers=1, n_heads=2, cap_feat_dim=16, injection_layer_ids=(0,),
        perceiver_num_layers=1, min_num_gist_tokens=2, max_num_gist_tokens=4, gist_step=1, gist_min_text_len=2,
        gist_max_text_len=8, axes_dims=(4, 6, 6), axes_lens=(16, 16, 16),
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 8, 10), "timestep": torch.tensor([0.5])}
    inputs |= {"encoder_hidden_states": torch.randn(1, 2, 4, 16), "context_latents": [torch.randn(1, 4, 6, 4)]}
    return model, inputs


def joyimage() -> tuple[nn.Module, Inputs]:
    model = diffusers.JoyImageEditTransformer3DModel(
        in_channels=4, out_channels=4, hidden_size=32, num_attention_heads=2, text_dim=16, num_layers=1,
        rope_dim_list=[4, 6, 6], rope_type="mrope",
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 2, 4, 1, 8, 10), "timestep": torch.tensor([500.0])}
    return model, {**inputs, "encoder_hidden_states": torch.randn(1, 3, 16)}


def joyimage_plus() -> tuple[nn.Module, Inputs]:
    model = diffusers.JoyImageEditPlusTransformer3DModel(
        in_channels=4, out_channels=4, hidden_size=32, num_attention_heads=2, text_dim=16, num_layers=1,
        rope_dim_list=[4, 6, 6],
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 27, 4, 1, 2, 2), "timestep": torch.tensor([500.0])}
    inputs |= {"encoder_hidden_states": torch.randn(1, 3, 16), "shape_list": [[(1, 4, 5), (1, 2, 3)]]}
    return model, inputs


def lumina_next() -> tuple[nn.Module, Inputs]:
    from diffusers.models.embeddings import get_2d_rotary_pos_embed_lumina

    model = diffusers.LuminaNextDiT2DModel(
        sample_size=8, in_channels=4, hidden_size=16, num_layers=1, num_attention_heads=2, num_kv_heads=2,
        multiple_of=8, cross_attention_dim=16,
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 8, 10), "timestep": torch.tensor([0.5])}
    inputs |= {
        "encoder_hidden_states": torch.randn(1, 3, 16),
        "encoder_mask": torch.ones(1, 3).bool(),
        "cross_attention_kwargs": {},
    }
    return model, {**inputs, "image_rotary_emb": get_2d_rotary_pos_embed_lumina(8, 384, 384)}


def omnigen() -> tuple[nn.Module, Inputs]:
    model = diffusers.OmniGenTransformer2DModel(
        in_channels=4, hidden_size=16, num_attention_heads=2, num_key_value_heads=2, intermediate_size=16, num_layers=1,
        pad_token_id=0, vocab_size=32, max_position_embeddings=64, original_max_position_embeddings=16,
        rope_scaling={"short_factor": [1.0, 1.5, 2, 3], "long_factor": [1.5, 2, 4, 8]}, pos_embed_max_size=8,
        time_step_dim=16,
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 8, 10), "timestep": torch.tensor([0.5])}
    inputs |= {"input_ids": torch.ones(1, 3).long(), "input_img_latents": [], "input_image_sizes": {}}
    return model, {**inputs, "attention_mask": torch.ones(1, 24, 24), "position_ids": torch.arange(24)[None]}


def anyflow() -> tuple[nn.Module, Inputs]:
    model = diffusers.AnyFlowTransformer3DModel(
        num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=16, freq_dim=16,
        ffn_dim=32, num_layers=1,
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 3, 4, 8, 10), "timestep": torch.full((1, 3), 5.0)}
    return model, {**inputs, "r_timestep": torch.zeros(1, 3), "encoder_hidden_states": torch.randn(1, 4, 16)}


def anyflow_far() -> tuple[nn.Module, Inputs]:
    model = diffusers.AnyFlowFARTransformer3DModel(
        num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=16, freq_dim=16,
        ffn_dim=32, num_layers=1, full_chunk_limit=2, chunk_partition=(1, 1, 1),
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 3, 4, 16, 24), "timestep": torch.full((1, 3), 5.0)}
    inputs |= {"r_timestep": torch.zeros(1, 3), "chunk_partition": [1, 1, 1]}
    return model, {**inputs, "encoder_hidden_states": torch.randn(1, 4, 16)}


def helios() -> tuple[nn.Module, Inputs]:
    model = diffusers.HeliosTransformer3DModel(
        num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=16, freq_dim=16,
        ffn_dim=32, num_layers=1, rope_dim=(4, 4, 4),
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 2, 16, 16), "timestep": torch.tensor([500])}
    inputs |= {"encoder_hidden_states": torch.randn(1, 4, 16), "indices_hidden_states": torch.tensor([[9, 10]])}
    for name, numbers in (("short", [0, 8]), ("mid", [6, 7]), ("long", [2, 3, 4, 5])):
        inputs |= {f"indices_latents_history_{name}": torch.tensor([numbers])}
        inputs |= {f"latents_history_{name}": torch.randn(1, 4, len(numbers), 16, 16)}
    return model, inputs


def sana_wm() -> tuple[nn.Module, Inputs]:
    model = diffusers.SanaWMTransformer3DModel(
        in_channels=4, num_layers=1, hidden_size=32, num_attention_heads=2, softmax_every_n=1, linear_head_dim=16,
        chunk_plucker_post_attn_blocks=0, use_chunk_plucker_post_attn=False, caption_channels=16, image_size=64,
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 3, 4, 5), "timestep": torch.full((1, 1, 3), 500.0)}
    return model, {**inputs, "encoder_hidden_states": torch.randn(1, 1, 4, 16), "mask": torch.ones(1, 4)}


def sana_wm_refiner() -> tuple[nn.Module, Inputs]:
    """Its caller makes the tables by the transformer's method, for a block of frames."""

    class Refiner(diffusers.SanaWMLTX2RefinerTransformer3DModel):  # type: ignore[misc, name-defined]
        def forward(self, **inputs: Any) -> Any:
            tables = self.build_rotary_emb_for_absolute_positions(1, [4, 5], 3, 4, torch.device("cpu"), 24.0)
            return super().forward(video_rotary_emb=tables, **inputs)

    model = Refiner(
        in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=16, cross_attention_dim=32,
        audio_in_channels=4, audio_out_channels=4, audio_num_attention_heads=2, audio_attention_head_dim=8,
        audio_cross_attention_dim=16, num_layers=1, caption_channels=32,
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 24, 4), "timestep": torch.tensor([[500.0]])}
    return model, {**inputs, "encoder_hidden_states": torch.randn(1, 4, 32)}


def wan_animate_2() -> tuple[nn.Module, Inputs]:
    """The pass that reads a reference video, which needs no FlexAttention."""
    from diffusers.models.transformers.transformer_wan_animate_2 import WanAnimate2KVCache

    model = diffusers.WanAnimate2Transformer3DModel(
        text_len=4, in_dim=4, dim=24, ffn_dim=32, freq_dim=16, text_dim=16, out_dim=4, num_heads=2, num_layers=1,
        use_img_emb=False,
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": [torch.randn(2, 3, 8, 10)], "timestep": torch.tensor([500.0])}
    inputs |= {"encoder_hidden_states": [torch.randn(3, 16)], "condition_latents": [torch.randn(2, 3, 8, 10)]}
    inputs |= {"kv_cache": WanAnimate2KVCache(1), "kv_cache_mode": "extract", "seq_len": 60}
    return model, {**inputs, "offset_grid_sizes": torch.tensor([[3, 4, 5]])}


def allegro() -> tuple[nn.Module, Inputs]:
    from diffusers.pipelines.allegro.pipeline_allegro import AllegroPipeline

    model = diffusers.AllegroTransformer3DModel(
        num_attention_heads=2, attention_head_dim=24, in_channels=4, out_channels=4, num_layers=1,
        cross_attention_dim=48, sample_height=8, sample_width=10, sample_frames=3, caption_channels=16,
    )  # fmt: skip

    class Pipeline:
        transformer, vae_scale_factor_spatial = model, 8

    tables = AllegroPipeline._prepare_rotary_positional_embeddings
    inputs: Inputs = {"hidden_states": torch.randn(1, 4, 3, 8, 10), "timestep": torch.tensor([500])}
    inputs |= {"encoder_hidden_states": torch.randn(1, 4, 16), "attention_mask": torch.ones(1, 3, 8, 10)}
    inputs |= {"encoder_attention_mask": torch.ones(1, 4)}
    return model, {**inputs, "image_rotary_emb": tables(cast(Any, Pipeline), 1, 64, 80, 3, torch.device("cpu"))}


def consisid() -> tuple[nn.Module, Inputs]:
    from diffusers.pipelines.consisid.pipeline_consisid import ConsisIDPipeline

    model = diffusers.ConsisIDTransformer3DModel(
        num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=4, time_embed_dim=2, text_embed_dim=8,
        num_layers=1, sample_width=18, sample_height=12, sample_frames=9, max_text_seq_length=4,
        use_rotary_positional_embeddings=True,
    )  # fmt: skip

    class Pipeline:
        transformer, vae_scale_factor_spatial = model, 8

    tables = ConsisIDPipeline._prepare_rotary_positional_embeddings
    inputs: Inputs = {"hidden_states": torch.randn(1, 2, 4, 8, 10), "timestep": torch.tensor([500])}
    inputs |= {"encoder_hidden_states": torch.randn(1, 4, 8)}
    return model, {**inputs, "image_rotary_emb": tables(cast(Any, Pipeline), 64, 80, 2, torch.device("cpu"))}


def kandinsky_6() -> tuple[nn.Module, Inputs]:
    model = diffusers.Kandinsky6Transformer3DModel(
        in_visual_dim=4, out_visual_dim=4, in_text_dim=16, in_text_dim2=16, time_dim=16, model_dim=32, ff_dim=32,
        num_text_blocks=1, num_visual_blocks=1, axes_dims=(4, 6, 6), visual_cond=False, in_audio_dim=4, out_audio_dim=4,
        ca_rope=True,
    )  # fmt: skip
    inputs: Inputs = {"hidden_states": torch.randn(1, 3, 8, 10, 4), "encoder_hidden_states": torch.randn(1, 3, 16)}
    inputs |= {"pooled_projections": torch.randn(1, 16), "timestep": torch.tensor([500.0])}
    return model, {**inputs, "audio_hidden_states": torch.randn(1, 5, 4)}


def kandinsky_6_sr() -> tuple[nn.Module, Inputs]:
    model = diffusers.Kandinsky6SRTransformer3DModel(
        in_visual_dim=4,
        out_visual_dim=4,
        time_dim=16,
        model_dim=32,
        ff_dim=32,
        num_visual_blocks=1,
        axes_dims=(4, 6, 6),
    )
    return model, {"hidden_states": torch.randn(1, 3, 16, 24, 9), "timestep": torch.tensor([500.0])}


def cosmos_3() -> tuple[nn.Module, Inputs]:
    model = diffusers.Cosmos3OmniTransformer(
        head_dim=16, hidden_size=32, intermediate_size=32, latent_channel=4, patch_latent_dim=16, num_attention_heads=2,
        num_hidden_layers=1, num_key_value_heads=1, vocab_size=32, rope_axes_dim=(4, 2, 2),
    )  # fmt: skip
    ids = torch.cat([torch.arange(3)[:, None].expand(3, 3), 3 + grid_ids(2, 2, 3).long()]).T
    inputs: Inputs = {"input_ids": torch.ones(3).long(), "text_indexes": torch.arange(3), "position_ids": ids}
    inputs |= {"und_len": 3, "sequence_length": 15, "vision_tokens": [torch.randn(1, 4, 2, 4, 6)]}
    inputs |= {"vision_token_shapes": [(2, 2, 3)], "vision_sequence_indexes": torch.arange(3, 15)}
    inputs |= {"vision_mse_loss_indexes": torch.arange(3, 15), "vision_timesteps": torch.full((12,), 500.0)}
    return model, {**inputs, "vision_noisy_frame_indexes": [torch.arange(2)]}


MODELS: tuple[Make, ...] = (
    flux, flux_2, flux_3, krea_2, bria, bria_fibo, ovis_image, longcat_image, qwen_image, qwen_image_layered,
    qwen_image_2_1, nucleus_image, wan, skyreels_v2, chrono_edit, hunyuan_video,
    hunyuan_video_1_5, framepack, motif_video, hunyuan_image, hunyuan_dit, lumina_2, z_image, cogview_4, glm_image,
    cosmos, kandinsky_5, easyanimate, cogvideox, cogvideox_1_5, minimax_h3, ideogram_4, mochi, ltx, ltx_2, ltx_2_split,
    hidream, prx, ernie_image, bria_fibo_2, joyimage, joyimage_plus, lumina_next, omnigen, anyflow, anyflow_far, helios,
    sana_wm, sana_wm_refiner, wan_animate_2, allegro, consisid, kandinsky_6, kandinsky_6_sr, cosmos_3,
)  # fmt: skip


def built(make: Make) -> tuple[nn.Module, Inputs]:
    """The model in evaluation mode and its inputs, the same at every call."""
    torch.manual_seed(0)
    model, inputs = make()
    return randomized(model), inputs


def randomized(model: nn.Module) -> nn.Module:
    """The model in evaluation mode, with random numbers where it has zeros.

    Zeros by which a block begins as the identity would hide what attention computes.
    """
    for parameter in model.parameters():
        if not parameter.any():
            nn.init.normal_(parameter, std=0.1 if parameter.ndim > 1 else 0.02)
    return model.eval()


def output(model: nn.Module, inputs: Inputs) -> Tensor:
    """The first output of a call."""
    with torch.no_grad():
        result = model(**inputs, return_dict=False)[0]
    return torch.stack(result) if isinstance(result, list) else cast(Tensor, result)
