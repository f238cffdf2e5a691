"""Models and towers of images: axial rotations, which no `RoPE` stands for, and tables of patches.

One record a model type, read in the modelling and configuration files of transformers 5.23.
"""

from __future__ import annotations

from posenc.hf.families.family import Attention, Family, RotationRules
from posenc.hf.families.position_schemes import (
    BEIT,
    DECOMPOSED,
    FOURIER,
    LATENTS,
    LOG_CPB,
    PATCHES_UNSIZED,
    PIXELS,
    RANDOM_FOURIER,
    SINUSOIDAL_PATCHES,
    SWIN,
    learned,
    nearest,
    patches,
    resized_with_antialias,
    resized_with_offset,
)

_AXIAL = "rotates by the row and the column of an image patch, as AxialRoPE does, and by no position in a text"
_AXIAL_TIME = "rotates by the time, the row and the column of a patch of a video, and by no position in a text"

VISION: dict[str, Family] = {
    "beit data2vec-vision": Family(
        attention=Attention(direction="bidirectional"),
        schemes=(
            patches(prefix=1).switched("use_absolute_position_embeddings", default=False),
            BEIT.switched("use_relative_position_bias", "use_shared_relative_position_bias", default=False),
        ),
    ),
    "bit convnext convnextv2 dinov3_convnext efficientnet mobilenet_v1 mobilenet_v2 poolformer regnet resnet": Family(
        attention=Attention(direction="none"), schemes=(PIXELS,)
    ),
    "clip_vision_model vit vit_msn vitpose_backbone": Family(
        attention=Attention(direction="bidirectional"), schemes=(patches(prefix=1),)
    ),
    (
        "cohere_compass_vision dots3_note_vision_encoder edgetam_video eomt_dinov3 ernie4_5_vl_moe_vision "
        "exaone4_5_vision glm4v_moe_vision glm4v_vision glm5_next_vision glm_image_vision glm_ocr_vision "
        "inkling2_vision lfm3_vl_vision muse_glimmer_vision muse_spark_vision paddleocr_vl_vision "
        "qwen2_5_omni_vision_encoder qwen3_5_moe_vision qwen3_5_vision qwen3_omni_moe_vision_encoder "
        "qwen3_vl_moe_vision qwen3_vl_vision qwen4_exp_vision sam3 sam3_tracker_video sam3_vision_model "
        "sam3_vit_model sapiens2 step3p5_vision video_llama_3_vision"
    ): Family(unsupported=_AXIAL),
    "deepseek_ocr2_sam_vision_model got_ocr2_vision sam_hq_vision_model sam_vision_model": Family(
        attention=Attention(direction="bidirectional"),
        schemes=(patches().switched("use_abs_pos"), DECOMPOSED.switched("use_rel_pos")),
    ),
    "donut-swin maskformer-swin": Family(
        attention=Attention(direction="", partial="windows of window_size patches"), schemes=(SWIN,)
    ),
    "hiera pvt": Family(attention=Attention(direction="bidirectional"), schemes=(PATCHES_UNSIZED,)),
    "idefics2_vision idefics3_vision smolvlm_vision": Family(
        attention=Attention(direction="bidirectional"), schemes=(nearest(patches()),)
    ),
    "ijepa siglip_vision_model": Family(attention=Attention(direction="bidirectional"), schemes=(patches(),)),
    "pp_formulanet_vision slanext_vision unlimited_ocr_sam_vision_model": Family(
        attention=Attention(direction=""),
        schemes=(patches().switched("use_abs_pos"), DECOMPOSED.switched("use_rel_pos")),
    ),
    "qwen2_5_vl_vision qwen2_vl_vision": Family(unsupported=_AXIAL + ': AxialRoPE(head_dim, convention="qwen-vl")'),
    "sam sam_hq": Family(
        attention=Attention(direction=""),
        schemes=(patches(parent="vision_config").of("image"), DECOMPOSED.of("image"), RANDOM_FOURIER.of("prompts")),
    ),
    "swin2sr swinv2": Family(
        attention=Attention(scale="unknown", direction="bidirectional", partial="windows of window_size patches"),
        schemes=(LOG_CPB,),
    ),
    "videomae vit_mae": Family(attention=Attention(direction="bidirectional"), schemes=(SINUSOIDAL_PATCHES,)),
    "deepseek_ocr2_encoder": Family(
        RotationRules(),
        not_compared="image tokens see one another in both directions and the others do not: a mask of its own",
    ),
    "deit": Family(attention=Attention(direction="bidirectional"), schemes=(patches(prefix=2),)),
    "dinov2": Family(attention=Attention(direction="bidirectional"), schemes=(resized_with_offset(patches(prefix=1)),)),
    "dinov2_with_registers": Family(
        attention=Attention(direction="bidirectional"), schemes=(resized_with_antialias(patches(prefix=1)),)
    ),
    "dinov3_vit": Family(unsupported=_AXIAL + ': AxialRoPE(head_dim, convention="dinov3")'),
    "efficientloftr": Family(unsupported=_AXIAL + ': AxialRoPE(head_dim, convention="efficient-loftr")'),
    "esmfold2": Family(
        unsupported="rotates atoms by their three coordinates and by the number of their residue, and by no position"
    ),
    "gemma4_vision": Family(unsupported=_AXIAL + ': AxialRoPE(head_dim, convention="gemma-4")'),
    "imagegpt": Family(schemes=(learned(key="n_positions"),)),
    "kimi_k25_vision": Family(unsupported=_AXIAL + ': AxialRoPE(head_dim, convention="kimi-k2.5")'),
    "lightglue": Family(
        unsupported="rotates by the coordinates of points in an image, which it projects by learned weights"
    ),
    "llama4_vision_model": Family(unsupported=_AXIAL + ': AxialRoPE(head_dim, convention="llama-4")'),
    "minimax_m3_vl_vision": Family(unsupported=_AXIAL_TIME),
    "mlcd_vision_model": Family(unsupported=_AXIAL + ': AxialRoPE(head_dim, convention="qwen-vl", prefix=1)'),
    "perceiver": Family(attention=Attention(direction="bidirectional"), schemes=(LATENTS, FOURIER.of("images"))),
    "pixtral": Family(unsupported=_AXIAL + ': AxialRoPE(head_dim, convention="pixtral")'),
    "sam2_video": Family(unsupported=_AXIAL + ': AxialRoPE(head_dim, convention="sam-2")'),
    "segformer": Family(attention=Attention(direction=""), schemes=(PIXELS,)),
    "siglip2_vision_model": Family(
        attention=Attention(direction="bidirectional"), schemes=(patches(256, 16, count_key="num_patches"),)
    ),
    "swin": Family(
        attention=Attention(direction="bidirectional", partial="windows of window_size patches"), schemes=(SWIN,)
    ),
    "vitdet": Family(
        attention=Attention(direction="bidirectional"),
        schemes=(
            patches(prefix=1).switched("use_absolute_position_embeddings"),
            DECOMPOSED.switched("use_relative_position_embeddings", default=False),
        ),
    ),
    "vjepa2": Family(unsupported=_AXIAL_TIME + ": VJEPARoPE(head_dim, released=True)"),
    "yolos": Family(
        attention=Attention(direction="bidirectional"),
        schemes=(patches(prefix=1, prefix_key="num_detection_tokens", prefix_default=100),),
    ),
}
