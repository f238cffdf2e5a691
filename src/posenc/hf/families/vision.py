"""Models and towers of images: axial rotations, which no `RoPE` stands for, and tables of patches.

One record a model type, read in the modelling and configuration files of transformers 5.23.
"""

from __future__ import annotations

from posenc.hf.families.family import Attention, Family, Sizes
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
from posenc.hf.families.rotation import RotationRules
from posenc.hf.families.shared import AXIAL, AXIAL_TIME

VISION: dict[str, Family] = {
    "beit": Family(
        attention=Attention(direction="bidirectional"),
        schemes=(
            patches(224, 16, prefix=1).switched("use_absolute_position_embeddings", default=False),
            BEIT.switched("use_relative_position_bias", "use_shared_relative_position_bias", default=False),
        ),
    ),
    "bit": Family(attention=Attention(direction="none"), schemes=(PIXELS,)),
    "clip_vision_model": Family(attention=Attention(direction="bidirectional"), schemes=(patches(224, 32, prefix=1),)),
    "cohere_compass_vision": Family(unsupported=AXIAL),
    "convnext": Family(attention=Attention(direction="none"), schemes=(PIXELS,)),
    "convnextv2": Family(attention=Attention(direction="none"), schemes=(PIXELS,)),
    "data2vec-vision": Family(
        attention=Attention(direction="bidirectional"),
        schemes=(
            patches(224, 16, prefix=1).switched("use_absolute_position_embeddings", default=False),
            BEIT.switched("use_relative_position_bias", "use_shared_relative_position_bias", default=False),
        ),
    ),
    "deepseek_ocr2_encoder": Family(
        RotationRules(),
        sizes=Sizes(4096, 32, 32, 32768),
        since=5,
        not_compared="image tokens see one another in both directions and the others do not: a mask of its own",
    ),
    "deepseek_ocr2_sam_vision_model": Family(
        attention=Attention(direction="bidirectional"),
        schemes=(
            patches(1024, 16).switched("use_abs_pos"),
            DECOMPOSED.switched("use_rel_pos"),
        ),
    ),
    "deit": Family(attention=Attention(direction="bidirectional"), schemes=(patches(224, 16, prefix=2),)),
    "dinov2": Family(
        attention=Attention(direction="bidirectional"), schemes=(resized_with_offset(patches(224, 14, prefix=1)),)
    ),
    "dinov2_with_registers": Family(
        attention=Attention(direction="bidirectional"), schemes=(resized_with_antialias(patches(224, 16, prefix=1)),)
    ),
    "dinov3_convnext": Family(attention=Attention(direction="none"), schemes=(PIXELS,)),
    "dinov3_vit": Family(unsupported=AXIAL + ': AxialRoPE(head_dim, convention="dinov3")'),
    "donut-swin": Family(attention=Attention(direction="", partial="windows of window_size patches"), schemes=(SWIN,)),
    "dots3_note_vision_encoder": Family(unsupported=AXIAL),
    "edgetam_video": Family(unsupported=AXIAL),
    "efficientloftr": Family(unsupported=AXIAL + ': AxialRoPE(head_dim, convention="efficient-loftr")'),
    "efficientnet": Family(attention=Attention(direction="none"), schemes=(PIXELS,)),
    "eomt_dinov3": Family(unsupported=AXIAL),
    "ernie4_5_vl_moe_vision": Family(unsupported=AXIAL),
    "esmfold2": Family(
        unsupported="rotates atoms by their three coordinates and by the number of their residue, and by no position"
    ),
    "exaone4_5_vision": Family(unsupported=AXIAL),
    "gemma4_vision": Family(unsupported=AXIAL + ': AxialRoPE(head_dim, convention="gemma-4")'),
    "glm4v_moe_vision": Family(unsupported=AXIAL),
    "glm4v_vision": Family(unsupported=AXIAL),
    "glm5_next_vision": Family(unsupported=AXIAL),
    "glm_image_vision": Family(unsupported=AXIAL),
    "glm_ocr_vision": Family(unsupported=AXIAL),
    "got_ocr2_vision": Family(
        attention=Attention(direction="bidirectional"),
        schemes=(
            patches(1024, 16).switched("use_abs_pos"),
            DECOMPOSED.switched("use_rel_pos"),
        ),
    ),
    "hiera": Family(attention=Attention(direction="bidirectional"), schemes=(PATCHES_UNSIZED,)),
    "idefics2_vision": Family(attention=Attention(direction="bidirectional"), schemes=(nearest(patches(224, 32)),)),
    "idefics3_vision": Family(attention=Attention(direction="bidirectional"), schemes=(nearest(patches(224, 32)),)),
    "ijepa": Family(attention=Attention(direction="bidirectional"), schemes=(patches(224, 16),)),
    "imagegpt": Family(schemes=(learned(1024, "n_positions"),)),
    "inkling2_vision": Family(unsupported=AXIAL),
    "kimi_k25_vision": Family(unsupported=AXIAL + ': AxialRoPE(head_dim, convention="kimi-k2.5")'),
    "lfm3_vl_vision": Family(unsupported=AXIAL),
    "lightglue": Family(
        unsupported="rotates by the coordinates of points in an image, which it projects by learned weights"
    ),
    "llama4_vision_model": Family(unsupported=AXIAL + ': AxialRoPE(head_dim, convention="llama-4")'),
    "llava_onevision": Family(text_type="qwen2"),
    "maskformer-swin": Family(
        attention=Attention(direction="", partial="windows of window_size patches"), schemes=(SWIN,)
    ),
    "minimax_m3_vl_vision": Family(unsupported=AXIAL_TIME),
    "mlcd_vision_model": Family(unsupported=AXIAL + ': AxialRoPE(head_dim, convention="qwen-vl", prefix=1)'),
    "mobilenet_v1": Family(attention=Attention(direction="none"), schemes=(PIXELS,)),
    "mobilenet_v2": Family(attention=Attention(direction="none"), schemes=(PIXELS,)),
    "muse_glimmer_vision": Family(unsupported=AXIAL),
    "muse_spark_vision": Family(unsupported=AXIAL),
    "paddleocr_vl_vision": Family(unsupported=AXIAL),
    "perceiver": Family(
        attention=Attention(direction="bidirectional"),
        schemes=(
            LATENTS,
            FOURIER.of("images"),
        ),
    ),
    "pixtral": Family(unsupported=AXIAL + ': AxialRoPE(head_dim, convention="pixtral")'),
    "poolformer": Family(attention=Attention(direction="none"), schemes=(PIXELS,)),
    "pp_formulanet_vision": Family(
        attention=Attention(direction=""),
        schemes=(
            patches(512, 16).switched("use_abs_pos"),
            DECOMPOSED.switched("use_rel_pos"),
        ),
    ),
    "pvt": Family(attention=Attention(direction="bidirectional"), schemes=(PATCHES_UNSIZED,)),
    "qwen2_5_omni_vision_encoder": Family(unsupported=AXIAL),
    "qwen2_5_vl_vision": Family(unsupported=AXIAL + ': AxialRoPE(head_dim, convention="qwen-vl")'),
    "qwen2_vl_vision": Family(unsupported=AXIAL + ': AxialRoPE(head_dim, convention="qwen-vl")'),
    "qwen3_5_moe_vision": Family(unsupported=AXIAL),
    "qwen3_5_vision": Family(unsupported=AXIAL),
    "qwen3_omni_moe_vision_encoder": Family(unsupported=AXIAL),
    "qwen3_vl_moe_vision": Family(unsupported=AXIAL),
    "qwen3_vl_vision": Family(unsupported=AXIAL),
    "qwen4_exp_vision": Family(unsupported=AXIAL),
    "regnet": Family(attention=Attention(direction="none"), schemes=(PIXELS,)),
    "resnet": Family(attention=Attention(direction="none"), schemes=(PIXELS,)),
    "sam": Family(
        attention=Attention(direction=""),
        schemes=(
            patches(1024, 16, parent="vision_config").of("image"),
            DECOMPOSED.of("image"),
            RANDOM_FOURIER.of("prompts"),
        ),
    ),
    "sam2_video": Family(unsupported=AXIAL + ': AxialRoPE(head_dim, convention="sam-2")'),
    "sam3": Family(text_type="clip_text_model", unsupported=AXIAL),
    "sam3_tracker_video": Family(unsupported=AXIAL),
    "sam3_vision_model": Family(unsupported=AXIAL),
    "sam3_vit_model": Family(unsupported=AXIAL),
    "sam_hq": Family(
        attention=Attention(direction=""),
        schemes=(
            patches(1024, 16, parent="vision_config").of("image"),
            DECOMPOSED.of("image"),
            RANDOM_FOURIER.of("prompts"),
        ),
    ),
    "sam_hq_vision_model": Family(
        attention=Attention(direction="bidirectional"),
        schemes=(
            patches(1024, 16).switched("use_abs_pos"),
            DECOMPOSED.switched("use_rel_pos"),
        ),
    ),
    "sam_vision_model": Family(
        attention=Attention(direction="bidirectional"),
        schemes=(
            patches(1024, 16).switched("use_abs_pos"),
            DECOMPOSED.switched("use_rel_pos"),
        ),
    ),
    "sapiens2": Family(unsupported=AXIAL),
    "segformer": Family(attention=Attention(direction=""), schemes=(PIXELS,)),
    "siglip2_vision_model": Family(
        attention=Attention(direction="bidirectional"), schemes=(patches(256, 16, count_key="num_patches"),)
    ),
    "siglip_vision_model": Family(attention=Attention(direction="bidirectional"), schemes=(patches(224, 16),)),
    "slanext_vision": Family(
        attention=Attention(direction=""),
        schemes=(
            patches(512, 16).switched("use_abs_pos"),
            DECOMPOSED.switched("use_rel_pos"),
        ),
    ),
    "smolvlm_vision": Family(attention=Attention(direction="bidirectional"), schemes=(nearest(patches(224, 32)),)),
    "step3p5_vision": Family(unsupported=AXIAL),
    "swin": Family(
        attention=Attention(direction="bidirectional", partial="windows of window_size patches"), schemes=(SWIN,)
    ),
    "swin2sr": Family(
        attention=Attention(scale="unknown", direction="bidirectional", partial="windows of window_size patches"),
        schemes=(LOG_CPB,),
    ),
    "swinv2": Family(
        attention=Attention(scale="unknown", direction="bidirectional", partial="windows of window_size patches"),
        schemes=(LOG_CPB,),
    ),
    "unlimited_ocr_sam_vision_model": Family(
        attention=Attention(direction=""),
        schemes=(
            patches(1024, 16).switched("use_abs_pos"),
            DECOMPOSED.switched("use_rel_pos"),
        ),
    ),
    "video_llama_3_vision": Family(unsupported=AXIAL),
    "videomae": Family(attention=Attention(direction="bidirectional"), schemes=(SINUSOIDAL_PATCHES,)),
    "vit": Family(attention=Attention(direction="bidirectional"), schemes=(patches(224, 16, prefix=1),)),
    "vit_mae": Family(attention=Attention(direction="bidirectional"), schemes=(SINUSOIDAL_PATCHES,)),
    "vit_msn": Family(attention=Attention(direction="bidirectional"), schemes=(patches(224, 16, prefix=1),)),
    "vitdet": Family(
        attention=Attention(direction="bidirectional"),
        schemes=(
            patches(224, 16, prefix=1).switched("use_absolute_position_embeddings"),
            DECOMPOSED.switched("use_relative_position_embeddings", default=False),
        ),
    ),
    "vitpose_backbone": Family(
        attention=Attention(direction="bidirectional"), schemes=(patches((256, 192), (16, 16), prefix=1),)
    ),
    "vjepa2": Family(unsupported=AXIAL_TIME + ": VJEPARoPE(head_dim, released=True)"),
    "yolos": Family(
        attention=Attention(direction="bidirectional"),
        schemes=(patches((512, 864), 16, prefix=1, prefix_key="num_detection_tokens", prefix_default=100),),
    ),
}
