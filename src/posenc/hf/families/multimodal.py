"""Models of text and images or video: their text parts, and which text model a composite has.

One record a model type, read in the modelling and configuration files of transformers 5.23.
"""

from __future__ import annotations

from posenc.hf.families.family import (
    BLOCK_SPARSE,
    FULL,
    INDEXED,
    REFERENCE_SLIDING,
    SLIDING,
    Attention,
    Family,
    KindKeys,
    LayerPattern,
    Listing,
    RotationRules,
    Window,
)
from posenc.hf.families.position_schemes import (
    LAYOUT_BIAS,
    LAYOUT_BIAS_SCALED,
    learned,
    learned_after_padding,
    learned_on_pages,
    patches,
)

MULTIMODAL: dict[str, Family] = {
    "altclip_text_model bridgetower_text_model": Family(
        attention=Attention(direction="bidirectional"), schemes=(learned_after_padding(),)
    ),
    "aria_text chameleon deepseek_ocr2_text emu3_text_model evolla hrm_text idefics": Family(RotationRules()),
    "blip chinese_clip clip clipseg metaclip_2 owlv2 owlvit xclip": Family(
        attention=Attention(direction=""),
        schemes=(learned().of("text"), patches(prefix=1, parent="vision_config").of("image")),
    ),
    "blip_text_model bros flava_text_model lxmert siglip2_text_model siglip_text_model tapas tvp visual_bert": Family(
        attention=Attention(direction="bidirectional"), schemes=(learned(),)
    ),
    (
        "clip_text_model clipseg_text_model groupvit_text_model metaclip_2_text_model owlv2_text_model "
        "owlvit_text_model xclip_text_model"
    ): Family(schemes=(learned(),)),
    "qwen3_omni_moe_text qwen3_vl_moe_text qwen3_vl_text": Family(
        RotationRules(sections=(24, 20, 20), order="interleaved")
    ),
    "glm4v_moe_text glm_image_text": Family(RotationRules(default_share=True, sections=(8, 12, 12))),
    "glm4v_text glm_ocr_text": Family(RotationRules(layout="interleaved", default_share=True, sections=(8, 12, 12))),
    "granite4_vision_text granite_docling_text": Family(
        RotationRules(), attention=Attention(scale="attention_multiplier")
    ),
    "groupvit siglip": Family(
        attention=Attention(direction=""),
        schemes=(learned().of("text"), patches(parent="vision_config").of("image")),
    ),
    "hunyuan_vl hunyuan_vl_text": Family(unsupported="rotates the two channels of a pair by different axes"),
    "pe_audio_video_encoder pe_video_encoder": Family(
        unsupported="rotates frames of sound or video in an encoder, by a product of its own that has not been read"
    ),
    "qwen2_5_omni_text qwen2_5_vl_text qwen2_vl_text": Family(
        RotationRules(sections=(16, 24, 24)),
        layers=LayerPattern(
            sliding_from_key="max_window_layers", sliding_from=28, window=Window(switch="use_sliding_window")
        ),
    ),
    "qwen2_5_vl qwen2_vl": Family(
        RotationRules(base=1000000.0, sections=(16, 24, 24)),
        layers=LayerPattern(
            sliding_from_key="max_window_layers", sliding_from=28, window=Window(switch="use_sliding_window")
        ),
    ),
    "altclip": Family(
        attention=Attention(direction=""),
        schemes=(learned_after_padding().of("text"), patches(prefix=1, parent="vision_config").of("image")),
    ),
    "chinese_clip_text_model": Family(attention=Attention(direction=""), schemes=(learned(),)),
    "cohere_compass_text": Family(
        RotationRules(nested=True, sections=(24, 20, 20), order="interleaved"), layers=LayerPattern(only_listed=True)
    ),
    "cosmos3_edge_text": Family(RotationRules(sections=(24, 20, 20), order="interleaved", rope_types=("default",))),
    "diffusion_gemma_text": Family(
        RotationRules(nested=True, full_head_dim=512),
        layers=LayerPattern((*5 * (SLIDING,), FULL), last_full="always"),
        attention=Attention(scale="one"),
    ),
    "dots3_note_text": Family(
        RotationRules(
            layout="interleaved",
            latent=True,
            yarn_in_softmax=False,
            kinds={
                INDEXED: KindKeys("rope_theta", 8e7, scaled=True),
                SLIDING: KindKeys("swa_rope_theta", 5e4, scaled=True, prefix="swa_", head_dim=256, unrotated=192),
            },
        ),
        layers=LayerPattern(
            (SLIDING, INDEXED, SLIDING, SLIDING),
            first_full=True,
            full_is=INDEXED,
            window=Window(512, key="sliding_window_size"),
        ),
        attention=Attention(scale="unknown", top_k=0),
        not_compared="sliding layers have latent widths of their own",
    ),
    "ernie4_5_moe_vl": Family(
        RotationRules(base=500000.0, layout="interleaved", sections=(22, 22, 20), order="time last"),
        text_type="ernie4_5_vl_moe_text",
        since=5,
    ),
    "ernie4_5_vl_moe_text": Family(RotationRules(layout="interleaved", sections=(22, 22, 20), order="time last")),
    "exaone4_5_text": Family(code_of="exaone4", since=5),
    "flava": Family(
        attention=Attention(direction=""),
        schemes=(learned().of("text"), patches(224, 16, prefix=1, parent="vision_config").of("image")),
    ),
    "layoutlm": Family(attention=Attention(direction="bidirectional"), schemes=(learned_on_pages(),)),
    "layoutlmv2": Family(
        attention=Attention(direction="bidirectional"),
        schemes=(learned_on_pages(), LAYOUT_BIAS.switched("has_relative_attention_bias", "has_spatial_attention_bias")),
    ),
    "layoutlmv3": Family(
        attention=Attention(direction="bidirectional"),
        schemes=(
            learned_on_pages(padding=1),
            LAYOUT_BIAS_SCALED.switched("has_relative_attention_bias", "has_spatial_attention_bias"),
        ),
    ),
    "lilt": Family(attention=Attention(direction="bidirectional"), schemes=(learned_on_pages(padding=0),)),
    "markuplm": Family(attention=Attention(direction="bidirectional"), schemes=(learned_after_padding(padding=0),)),
    "minimax_m3_vl_text": Family(
        RotationRules(default_share=True),
        layers=LayerPattern(
            listing=Listing(
                "codes", "sparse_attention_freq", parent="sparse_attention_config", names={0: FULL, 1: BLOCK_SPARSE}
            )
        ),
    ),
    "mllama_text_model": Family(RotationRules(), layers=LayerPattern(cross_key="cross_attention_layers")),
    "molmo2_text": Family(unsupported="scales the rotation only in the layers that rope_scaling_layers lists"),
    "paddleocr_vl_text": Family(RotationRules(sections=(16, 24, 24))),
    "phi4_multimodal": Family(
        RotationRules(default_share=True, original=4096, rope_types=("default", "longrope")),
        layers=LayerPattern(window=Window(every_layer=True)),
    ),
    "siglip2": Family(
        attention=Attention(direction=""),
        schemes=(learned().of("text"), patches(256, 16, parent="vision_config", count_key="num_patches").of("image")),
    ),
    "unlimited_ocr_text": Family(
        RotationRules(),
        layers=LayerPattern((REFERENCE_SLIDING,)),
        not_compared="its window counts what was generated; a prompt is seen as a whole",
    ),
    "vilt": Family(
        attention=Attention(direction="bidirectional"), schemes=(learned().of("text"), patches(prefix=1).of("image"))
    ),
}
