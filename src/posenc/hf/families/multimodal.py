"""Models of text and images or video: their text parts, and which text model a composite has.

One record a model type, read in the modelling and configuration files of transformers 5.23.
"""

from __future__ import annotations

from posenc.hf.families.family import Attention, Family, Sizes
from posenc.hf.families.layer_patterns import (
    BLOCK_SPARSE,
    FULL,
    REFERENCE_SLIDING,
    SLIDING,
    LayerPattern,
    Listing,
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
from posenc.hf.families.rotation import RotationRules
from posenc.hf.families.shared import GEMMA_4_BLOCKS

MULTIMODAL: dict[str, Family] = {
    "altclip": Family(
        attention=Attention(direction=""),
        schemes=(
            learned_after_padding(514).of("text"),
            patches(224, 32, prefix=1, parent="vision_config").of("image"),
        ),
        text_type="altclip_text_model",
    ),
    "altclip_text_model": Family(attention=Attention(direction="bidirectional"), schemes=(learned_after_padding(514),)),
    "aria_text": Family(RotationRules(), sizes=Sizes(4096, 32, 32, 2048)),
    "aya_vision": Family(text_type="cohere2"),
    "blip": Family(
        attention=Attention(direction=""),
        schemes=(
            learned(512).of("text"),
            patches(384, 16, prefix=1, parent="vision_config").of("image"),
        ),
        text_type="blip_text_model",
    ),
    "blip-2": Family(text_type="opt"),
    "blip_text_model": Family(attention=Attention(direction="bidirectional"), schemes=(learned(512),)),
    "bridgetower": Family(text_type="bridgetower_text_model"),
    "bridgetower_text_model": Family(
        attention=Attention(direction="bidirectional"), schemes=(learned_after_padding(514),)
    ),
    "bros": Family(attention=Attention(direction="bidirectional"), schemes=(learned(512),)),
    "chameleon": Family(RotationRules(), sizes=Sizes(4096, 32, 32, 4096)),
    "chinese_clip": Family(
        attention=Attention(direction=""),
        schemes=(
            learned(512).of("text"),
            patches(224, 32, prefix=1, parent="vision_config").of("image"),
        ),
        text_type="chinese_clip_text_model",
    ),
    "chinese_clip_text_model": Family(attention=Attention(direction=""), schemes=(learned(512),)),
    "clip": Family(
        attention=Attention(direction=""),
        schemes=(
            learned(77).of("text"),
            patches(224, 32, prefix=1, parent="vision_config").of("image"),
        ),
        text_type="clip_text_model",
    ),
    "clip_text_model": Family(schemes=(learned(77),)),
    "clipseg": Family(
        attention=Attention(direction=""),
        schemes=(
            learned(77).of("text"),
            patches(224, 32, prefix=1, parent="vision_config").of("image"),
        ),
        text_type="clipseg_text_model",
    ),
    "clipseg_text_model": Family(schemes=(learned(77),)),
    "cohere2_vision": Family(text_type="cohere2"),
    "cohere_compass_text": Family(
        RotationRules(nested=True, sections=(24, 20, 20), order="interleaved"),
        layers=LayerPattern(only_listed=True, window=Window(4096)),
        sizes=Sizes(8192, 64, 40, 8192),
        since=5,
    ),
    "cosmos3_edge_text": Family(
        RotationRules(base=1e8, head_dim=128, sections=(24, 20, 20), order="interleaved", rope_types=("default",)),
        sizes=Sizes(2048, 16, 28, 131_072),
        since=5,
    ),
    "cosmos3_omni": Family(text_type="qwen3_vl_text"),
    "deepseek_ocr2_text": Family(RotationRules(), sizes=Sizes(4096, 32, 32, 2048), since=5),
    "deepseek_vl": Family(text_type="llama"),
    "deepseek_vl_hybrid": Family(text_type="llama"),
    "diffusion_gemma_text": Family(
        RotationRules(nested=True, block=GEMMA_4_BLOCKS, head_dim=256, full_head_dim=512),
        layers=LayerPattern((*5 * (SLIDING,), FULL), last_full=True, window=Window(512)),
        attention=Attention(scale="one"),
        sizes=Sizes(2304, 8, 30, 131_072),
        since=5,
    ),
    "dots3_note_text": Family(unsupported="reads a base and a share for each layer from keys of its own"),
    "emu3": Family(text_type="emu3_text_model"),
    "emu3_text_model": Family(RotationRules(base=1e6), sizes=Sizes(4096, 32, 32, 9216)),
    "ernie4_5_moe_vl": Family(
        RotationRules(base=5e5, layout="interleaved", sections=(22, 22, 20), order="time last"),
        text_type="ernie4_5_vl_moe_text",
        since=5,
    ),
    "ernie4_5_vl_moe_text": Family(
        RotationRules(base=5e5, layout="interleaved", sections=(22, 22, 20), order="time last"),
        sizes=Sizes(2560, 20, 28, 131_072),
        since=5,
    ),
    "evolla": Family(RotationRules(base=5e5), sizes=Sizes(4096, 32, 32, 8192)),
    "exaone4_5": Family(text_type="exaone4"),
    "exaone4_5_text": Family(code_of="exaone4", since=5),
    "fast_vlm": Family(text_type="qwen2"),
    "flava": Family(
        attention=Attention(direction=""),
        schemes=(
            learned(512).of("text"),
            patches(224, 16, prefix=1, parent="vision_config").of("image"),
        ),
        text_type="flava_text_model",
    ),
    "flava_text_model": Family(attention=Attention(direction="bidirectional"), schemes=(learned(512),)),
    "florence2": Family(text_type="bart"),
    "fuyu": Family(text_type="persimmon"),
    "gemma4_unified_assistant": Family(text_type="gemma4_unified_text"),
    "glm46v": Family(text_type="glm4v_text"),
    "glm4v_moe_text": Family(
        RotationRules(share=0.5, default_share=True, sections=(8, 12, 12)),
        sizes=Sizes(4096, 96, 46, 65536),
    ),
    "glm4v_text": Family(
        RotationRules(layout="interleaved", default_share=True, sections=(8, 12, 12)),
        sizes=Sizes(4096, 32, 40, 32768),
    ),
    "glm_image_text": Family(
        RotationRules(default_share=True, sections=(8, 12, 12)),
        sizes=Sizes(4096, 32, 40, 131_072),
        since=5,
    ),
    "glm_ocr_text": Family(
        RotationRules(layout="interleaved", default_share=True, sections=(8, 12, 12)),
        sizes=Sizes(1024, 16, 16, 131_072),
        since=5,
    ),
    "glmga": Family(text_type="glm4v_text"),
    "got_ocr2": Family(text_type="qwen2"),
    "granite4_vision_text": Family(
        RotationRules(),
        attention=Attention(scale="attention_multiplier"),
        sizes=Sizes(4096, 32, 32, 2048),
        since=5,
    ),
    "granite_docling_text": Family(
        RotationRules(),
        attention=Attention(scale="attention_multiplier"),
        sizes=Sizes(1024, 16, 28, 32768),
        since=5,
    ),
    "grounding-dino": Family(text_type="bert"),
    "groupvit": Family(
        attention=Attention(direction=""),
        schemes=(
            learned(77).of("text"),
            patches(224, 16, parent="vision_config").of("image"),
        ),
        text_type="groupvit_text_model",
    ),
    "groupvit_text_model": Family(schemes=(learned(77),)),
    "hrm_text": Family(RotationRules(head_dim=128), sizes=Sizes(1536, 12, 128, 2048), since=5),
    "hunyuan_vl": Family(unsupported="rotates the two channels of a pair by different axes"),
    "hunyuan_vl_text": Family(unsupported="rotates the two channels of a pair by different axes"),
    "hyperclovax_vision_v2": Family(text_type="hyperclovax"),
    "idefics": Family(RotationRules(), sizes=Sizes(4096, 32, 32, 2048)),
    "idefics2": Family(text_type="mistral"),
    "idefics3": Family(text_type="llama"),
    "inkling_mm_model": Family(text_type="inkling_text"),
    "instructblip": Family(text_type="opt"),
    "instructblipvideo": Family(text_type="opt"),
    "internvl": Family(text_type="qwen2"),
    "janus": Family(text_type="llama"),
    "jev": Family(text_type="qwen3_5_text"),
    "kimi_k25": Family(text_type="deepseek_v3"),
    "layoutlm": Family(attention=Attention(direction="bidirectional"), schemes=(learned_on_pages(512),)),
    "layoutlmv2": Family(
        attention=Attention(direction="bidirectional"),
        schemes=(
            learned_on_pages(512),
            LAYOUT_BIAS.switched("has_relative_attention_bias", "has_spatial_attention_bias"),
        ),
    ),
    "layoutlmv3": Family(
        attention=Attention(direction="bidirectional"),
        schemes=(
            learned_on_pages(512, padding=1),
            LAYOUT_BIAS_SCALED.switched("has_relative_attention_bias", "has_spatial_attention_bias"),
        ),
    ),
    "lfm2_vl": Family(text_type="lfm2"),
    "lfm3_vl": Family(text_type="lfm3"),
    "lighton_ocr": Family(text_type="qwen3"),
    "lilt": Family(attention=Attention(direction="bidirectional"), schemes=(learned_on_pages(512, padding=0),)),
    "llava": Family(text_type="llama"),
    "llava_next": Family(text_type="llama"),
    "llava_next_video": Family(text_type="llama"),
    "lxmert": Family(attention=Attention(direction="bidirectional"), schemes=(learned(512),)),
    "markuplm": Family(
        attention=Attention(direction="bidirectional"), schemes=(learned_after_padding(512, padding=0),)
    ),
    "metaclip_2": Family(
        attention=Attention(direction=""),
        schemes=(
            learned(77).of("text"),
            patches(224, 32, prefix=1, parent="vision_config").of("image"),
        ),
        text_type="metaclip_2_text_model",
    ),
    "metaclip_2_text_model": Family(schemes=(learned(77),)),
    "minicpm_ocr": Family(text_type="qwen3_5_text"),
    "minicpmv4_6": Family(text_type="qwen3_5_text"),
    "minicpmv4_7": Family(text_type="qwen3_5_text"),
    "minimax_m3_vl_text": Family(
        RotationRules(base=5e6, default_share=True, head_dim=128),
        layers=LayerPattern(
            listing=Listing(
                "codes", "sparse_attention_freq", parent="sparse_attention_config", names={0: FULL, 1: BLOCK_SPARSE}
            )
        ),
        sizes=Sizes(6144, 64, 60, 524_288),
        since=5,
    ),
    "mistral3": Family(text_type="mistral"),
    "mllama": Family(text_type="mllama_text_model"),
    "mllama_text_model": Family(
        RotationRules(base=5e5),
        layers=LayerPattern(cross_key="cross_attention_layers"),
        sizes=Sizes(4096, 32, 40, 131_072),
    ),
    "mm-grounding-dino": Family(text_type="bert"),
    "modernvbert": Family(text_type="modernbert"),
    "molmo2_text": Family(unsupported="scales the rotation only in the layers that rope_scaling_layers lists"),
    "nemotron_h_omni": Family(text_type="nemotron_h"),
    "omdet-turbo": Family(text_type="clip_text_model"),
    "ovis2": Family(text_type="qwen2"),
    "owlv2": Family(
        attention=Attention(direction=""),
        schemes=(
            learned(16).of("text"),
            patches(768, 16, prefix=1, parent="vision_config").of("image"),
        ),
        text_type="owlv2_text_model",
    ),
    "owlv2_text_model": Family(schemes=(learned(16),)),
    "owlvit": Family(
        attention=Attention(direction=""),
        schemes=(
            learned(16).of("text"),
            patches(768, 32, prefix=1, parent="vision_config").of("image"),
        ),
        text_type="owlvit_text_model",
    ),
    "owlvit_text_model": Family(schemes=(learned(16),)),
    "paddleocr_vl_text": Family(
        RotationRules(base=5e5, head_dim=128, sections=(16, 24, 24)),
        sizes=Sizes(1024, 16, 18, 131_072),
        since=5,
    ),
    "paligemma": Family(text_type="gemma"),
    "pe_audio_video": Family(text_type="modernbert"),
    "pe_audio_video_encoder": Family(
        unsupported="rotates frames of sound or video in an encoder, by a product of its own that has not been read"
    ),
    "pe_video": Family(text_type="modernbert"),
    "pe_video_encoder": Family(
        unsupported="rotates frames of sound or video in an encoder, by a product of its own that has not been read"
    ),
    "perception_lm": Family(text_type="llama"),
    "phi4_multimodal": Family(
        RotationRules(default_share=True, original=4096, rope_types=("default", "longrope")),
        layers=LayerPattern(window=Window(every_layer=True)),
        sizes=Sizes(3072, 32, 32, 131_072),
    ),
    "pp_chart2table": Family(text_type="qwen2"),
    "qianfan_ocr": Family(text_type="qwen3"),
    "qwen2_5_omni_text": Family(
        RotationRules(base=1e6, sections=(16, 24, 24)),
        layers=LayerPattern(
            sliding_from_key="max_window_layers", sliding_from=28, window=Window(switch="use_sliding_window")
        ),
        sizes=Sizes(3584, 28, 28, 32768),
    ),
    "qwen2_5_omni_thinker": Family(text_type="qwen2_5_omni_text"),
    "qwen2_5_vl": Family(
        RotationRules(base=1e6, sections=(16, 24, 24)),
        text_type="qwen2_5_vl_text",
        layers=LayerPattern(
            sliding_from_key="max_window_layers", sliding_from=28, window=Window(switch="use_sliding_window")
        ),
    ),
    "qwen2_5_vl_text": Family(
        RotationRules(base=1e6, sections=(16, 24, 24)),
        layers=LayerPattern(
            sliding_from_key="max_window_layers", sliding_from=28, window=Window(switch="use_sliding_window")
        ),
        sizes=Sizes(8192, 64, 80, 32768),
    ),
    "qwen2_vl": Family(
        RotationRules(base=1e6, sections=(16, 24, 24)),
        text_type="qwen2_vl_text",
        layers=LayerPattern(
            sliding_from_key="max_window_layers", sliding_from=28, window=Window(switch="use_sliding_window")
        ),
    ),
    "qwen2_vl_text": Family(
        RotationRules(base=1e6, sections=(16, 24, 24)),
        layers=LayerPattern(
            sliding_from_key="max_window_layers", sliding_from=28, window=Window(switch="use_sliding_window")
        ),
        sizes=Sizes(8192, 64, 80, 32768),
    ),
    "qwen3_omni_moe_text": Family(
        RotationRules(base=1e6, sections=(24, 20, 20), order="interleaved"),
        sizes=Sizes(2048, 28, 28, 32768),
    ),
    "qwen3_omni_moe_thinker": Family(text_type="qwen3_omni_moe_text"),
    "qwen3_vl_moe_text": Family(
        RotationRules(base=5e5, sections=(24, 20, 20), order="interleaved"), sizes=Sizes(2048, 16, 24, 128_000)
    ),
    "qwen3_vl_text": Family(
        RotationRules(base=5e5, head_dim=128, sections=(24, 20, 20), order="interleaved"),
        sizes=Sizes(4096, 32, 32, 128_000),
    ),
    "shieldgemma2": Family(text_type="gemma3_text"),
    "siglip": Family(
        attention=Attention(direction=""),
        schemes=(
            learned(64).of("text"),
            patches(224, 16, parent="vision_config").of("image"),
        ),
        text_type="siglip_text_model",
    ),
    "siglip2": Family(
        attention=Attention(direction=""),
        schemes=(
            learned(64).of("text"),
            patches(256, 16, parent="vision_config", count_key="num_patches").of("image"),
        ),
        text_type="siglip2_text_model",
    ),
    "siglip2_text_model": Family(attention=Attention(direction="bidirectional"), schemes=(learned(64),)),
    "siglip_text_model": Family(attention=Attention(direction="bidirectional"), schemes=(learned(64),)),
    "smolvlm": Family(text_type="llama"),
    "tapas": Family(attention=Attention(direction="bidirectional"), schemes=(learned(1024),)),
    "tvp": Family(attention=Attention(direction="bidirectional"), schemes=(learned(512),)),
    "unlimited_ocr_text": Family(
        RotationRules(),
        layers=LayerPattern((REFERENCE_SLIDING,), window=Window(128)),
        sizes=Sizes(1280, 10, 12, 32768),
        since=5,
        not_compared="its window counts what was generated; a prompt is seen as a whole",
    ),
    "video_llama_3": Family(text_type="qwen2"),
    "video_llava": Family(text_type="llama"),
    "vilt": Family(
        attention=Attention(direction="bidirectional"),
        schemes=(
            learned(40).of("text"),
            patches(384, 32, prefix=1).of("image"),
        ),
    ),
    "vipllava": Family(text_type="llama"),
    "vision-text-dual-encoder": Family(text_type="bert"),
    "visual_bert": Family(attention=Attention(direction="bidirectional"), schemes=(learned(512),)),
    "xclip": Family(
        attention=Attention(direction=""),
        schemes=(
            learned(77).of("text"),
            patches(224, 32, prefix=1, parent="vision_config").of("image"),
        ),
        text_type="xclip_text_model",
    ),
    "xclip_text_model": Family(schemes=(learned(77),)),
}
