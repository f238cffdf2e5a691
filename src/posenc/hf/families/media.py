"""Models of images, video and sound, and the text parts of models that read them.

One record a model type, read in the modelling and configuration files of transformers 5.23.
"""

from __future__ import annotations

from dataclasses import replace

from posenc.hf.families.family import (
    BIDIRECTIONAL,
    BLOCK_SPARSE,
    ENCODER_DECODER,
    FULL,
    INDEXED,
    NOT_READ,
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
    BEIT,
    CONVOLUTION,
    DECOMPOSED,
    DISENTANGLED,
    FOURIER,
    LATENTS,
    LAYOUT_BIAS,
    LAYOUT_BIAS_SCALED,
    LOG_CPB,
    PATCHES_UNSIZED,
    PIXELS,
    RANDOM_FOURIER,
    SHAW,
    SINUSOIDAL,
    SINUSOIDAL_FAIRSEQ,
    SINUSOIDAL_PATCHES,
    SINUSOIDAL_UNBUILT,
    SWIN,
    Buckets,
    learned,
    learned_after_padding,
    learned_on_pages,
    nearest,
    patches,
    resized_with_antialias,
    resized_with_offset,
    t5_bias,
)

_AXIAL = "rotates by the row and the column of an image patch, as AxialRoPE does, and by no position in a text"
_AXIAL_TIME = "rotates by the time, the row and the column of a patch of a video, and by no position in a text"
_AUDIO_ENCODER = "has a rotation only in an encoder of sound, by keys of its own (rotary_embedding_base)"
_BY_HEAD = "rotates queries and keys alike by the number of their head, which changes no score: there is no position"

MEDIA: dict[str, Family] = {
    "altclip_text_model bridgetower_text_model": Family(attention=BIDIRECTIONAL, schemes=(learned_after_padding(),)),
    "aria_text chameleon deepseek_ocr2_text emu3_text_model evolla hrm_text idefics": Family(RotationRules()),
    "blip chinese_clip clip clipseg metaclip_2 owlv2 owlvit xclip": Family(
        attention=NOT_READ, schemes=(learned().of("text"), patches(prefix=1, parent="vision_config").of("image"))
    ),
    "blip_text_model bros flava_text_model lxmert siglip2_text_model siglip_text_model tapas tvp visual_bert": Family(
        attention=BIDIRECTIONAL, schemes=(learned(),)
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
        attention=NOT_READ, schemes=(learned().of("text"), patches(parent="vision_config").of("image"))
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
        attention=NOT_READ,
        schemes=(learned_after_padding().of("text"), patches(prefix=1, parent="vision_config").of("image")),
    ),
    "chinese_clip_text_model": Family(attention=NOT_READ, schemes=(learned(),)),
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
        attention=NOT_READ,
        schemes=(learned().of("text"), patches(224, 16, prefix=1, parent="vision_config").of("image")),
    ),
    "layoutlm": Family(attention=BIDIRECTIONAL, schemes=(learned_on_pages(),)),
    "layoutlmv2": Family(
        attention=BIDIRECTIONAL,
        schemes=(learned_on_pages(), LAYOUT_BIAS.switched("has_relative_attention_bias", "has_spatial_attention_bias")),
    ),
    "layoutlmv3": Family(
        attention=BIDIRECTIONAL,
        schemes=(
            learned_on_pages(padding=1),
            LAYOUT_BIAS_SCALED.switched("has_relative_attention_bias", "has_spatial_attention_bias"),
        ),
    ),
    "lilt": Family(attention=BIDIRECTIONAL, schemes=(learned_on_pages(padding=0),)),
    "markuplm": Family(attention=BIDIRECTIONAL, schemes=(learned_after_padding(padding=0),)),
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
        attention=NOT_READ,
        schemes=(learned().of("text"), patches(256, 16, parent="vision_config", count_key="num_patches").of("image")),
    ),
    "unlimited_ocr_text": Family(
        RotationRules(),
        layers=LayerPattern((REFERENCE_SLIDING,)),
        not_compared="its window counts what was generated; a prompt is seen as a whole",
    ),
    "vilt": Family(attention=BIDIRECTIONAL, schemes=(learned().of("text"), patches(prefix=1).of("image"))),
    # Models and towers of images: axial rotations, which no `RoPE` stands for, and tables of patches.
    "beit data2vec-vision": Family(
        attention=BIDIRECTIONAL,
        schemes=(
            patches(prefix=1).switched("use_absolute_position_embeddings", default=False),
            BEIT.switched("use_relative_position_bias", "use_shared_relative_position_bias", default=False),
        ),
    ),
    "bit convnext convnextv2 dinov3_convnext efficientnet mobilenet_v1 mobilenet_v2 poolformer regnet resnet": Family(
        attention=Attention(direction="none"), schemes=(PIXELS,)
    ),
    "clip_vision_model vit vit_msn vitpose_backbone": Family(attention=BIDIRECTIONAL, schemes=(patches(prefix=1),)),
    (
        "cohere_compass_vision dots3_note_vision_encoder edgetam_video eomt_dinov3 ernie4_5_vl_moe_vision "
        "exaone4_5_vision glm4v_moe_vision glm4v_vision glm5_next_vision glm_image_vision glm_ocr_vision "
        "inkling2_vision lfm3_vl_vision muse_glimmer_vision muse_spark_vision paddleocr_vl_vision "
        "qwen2_5_omni_vision_encoder qwen3_5_moe_vision qwen3_5_vision qwen3_omni_moe_vision_encoder "
        "qwen3_vl_moe_vision qwen3_vl_vision qwen4_exp_vision sam3 sam3_tracker_video sam3_vision_model "
        "sam3_vit_model sapiens2 step3p5_vision video_llama_3_vision"
    ): Family(unsupported=_AXIAL),
    "deepseek_ocr2_sam_vision_model got_ocr2_vision sam_hq_vision_model sam_vision_model": Family(
        attention=BIDIRECTIONAL, schemes=(patches().switched("use_abs_pos"), DECOMPOSED.switched("use_rel_pos"))
    ),
    "donut-swin maskformer-swin": Family(
        attention=Attention(direction="", partial="windows of window_size patches"), schemes=(SWIN,)
    ),
    "hiera pvt": Family(attention=BIDIRECTIONAL, schemes=(PATCHES_UNSIZED,)),
    "idefics2_vision idefics3_vision smolvlm_vision": Family(attention=BIDIRECTIONAL, schemes=(nearest(patches()),)),
    "ijepa siglip_vision_model": Family(attention=BIDIRECTIONAL, schemes=(patches(),)),
    "pp_formulanet_vision slanext_vision unlimited_ocr_sam_vision_model": Family(
        attention=NOT_READ, schemes=(patches().switched("use_abs_pos"), DECOMPOSED.switched("use_rel_pos"))
    ),
    "qwen2_5_vl_vision qwen2_vl_vision": Family(unsupported=_AXIAL + ': AxialRoPE(head_dim, convention="qwen-vl")'),
    "sam sam_hq": Family(
        attention=NOT_READ,
        schemes=(patches(parent="vision_config").of("image"), DECOMPOSED.of("image"), RANDOM_FOURIER.of("prompts")),
    ),
    "swin2sr swinv2": Family(
        attention=Attention(scale="unknown", direction="bidirectional", partial="windows of window_size patches"),
        schemes=(LOG_CPB,),
    ),
    "videomae vit_mae": Family(attention=BIDIRECTIONAL, schemes=(SINUSOIDAL_PATCHES,)),
    "deepseek_ocr2_encoder": Family(
        RotationRules(),
        not_compared="image tokens see one another in both directions and the others do not: a mask of its own",
    ),
    "deit": Family(attention=BIDIRECTIONAL, schemes=(patches(prefix=2),)),
    "dinov2": Family(attention=BIDIRECTIONAL, schemes=(resized_with_offset(patches(prefix=1)),)),
    "dinov2_with_registers": Family(attention=BIDIRECTIONAL, schemes=(resized_with_antialias(patches(prefix=1)),)),
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
    "perceiver": Family(attention=BIDIRECTIONAL, schemes=(LATENTS, FOURIER.of("images"))),
    "pixtral": Family(unsupported=_AXIAL + ': AxialRoPE(head_dim, convention="pixtral")'),
    "sam2_video": Family(unsupported=_AXIAL + ': AxialRoPE(head_dim, convention="sam-2")'),
    "segformer": Family(attention=NOT_READ, schemes=(PIXELS,)),
    "siglip2_vision_model": Family(attention=BIDIRECTIONAL, schemes=(patches(256, 16, count_key="num_patches"),)),
    "swin": Family(
        attention=Attention(direction="bidirectional", partial="windows of window_size patches"), schemes=(SWIN,)
    ),
    "vitdet": Family(
        attention=BIDIRECTIONAL,
        schemes=(
            patches(prefix=1).switched("use_absolute_position_embeddings"),
            DECOMPOSED.switched("use_relative_position_embeddings", default=False),
        ),
    ),
    "vjepa2": Family(unsupported=_AXIAL_TIME + ": VJEPARoPE(head_dim, released=True)"),
    "yolos": Family(
        attention=BIDIRECTIONAL, schemes=(patches(prefix=1, prefix_key="num_detection_tokens", prefix_default=100),)
    ),
    # Speech, sound and music.
    "coarse_acoustics semantic": Family(
        layers=LayerPattern(count_key="num_layers"), schemes=(learned(1024, "block_size"),)
    ),
    "csm gradium_phonon_tts higgs_audio_v2 kyutai_speech_to_text moshi pocket_tts": Family(RotationRules()),
    "data2vec-audio hubert sew unispeech unispeech-sat wav2vec2": Family(
        attention=BIDIRECTIONAL, schemes=(CONVOLUTION,)
    ),
    "mimi mimi_decoder mimi_encoder pocket_tts_audio_tokenizer voxtral_realtime_encoder voxtral_realtime_text": Family(
        RotationRules(), layers=LayerPattern(window=Window(every_layer=True))
    ),
    "musicgen_decoder musicgen_melody_decoder": Family(schemes=(SINUSOIDAL_UNBUILT,)),
    "nemotron3_5_transcribe_asr_audio nemotron3_5_transcribe_audio nemotron3_5_transcribe_word_timestamp": Family(
        unsupported="rotates frames of sound in its encoder; its text model nemotron_h has no rotation"
    ),
    "nemotron3_diarization nemotron3_diarization_audio": Family(
        unsupported="rotates frames of sound, and is no decoder"
    ),
    "nemotron_asr_streaming_encoder parakeet_encoder": Family(
        unsupported="has relative scores after Transformer-XL in an encoder of sound, and no rotation"
    ),
    "neucodec xcodec2": Family(unsupported=_BY_HEAD),
    "seamless_m4t wav2vec2-bert wav2vec2-conformer": Family(unsupported=_AUDIO_ENCODER),
    "audio-spectrogram-transformer": Family(attention=BIDIRECTIONAL, schemes=(PATCHES_UNSIZED,)),
    "clvp_decoder": Family(
        unsupported="has learned embeddings of the positions; clvp_encoder rotates, by keys of its own"
    ),
    "clvp_encoder": Family(unsupported="rotates queries, keys and values too, by a width that projection_dim decides"),
    "dia": Family(unsupported="has a rotation in each of its parts: read encoder_config and decoder_config by itself"),
    "dia_decoder": Family(RotationRules(), attention=Attention(scale="one")),
    "dia_encoder": Family(RotationRules(), attention=Attention(direction="bidirectional", scale="one")),
    "fine_acoustics": Family(
        layers=LayerPattern(count_key="num_layers"), attention=NOT_READ, schemes=(learned(1024, "block_size"),)
    ),
    "glmasr_encoder": Family(RotationRules(default_share=True), attention=BIDIRECTIONAL),
    "lasr_encoder": Family(RotationRules(), attention=BIDIRECTIONAL),
    "moonshine": Family(
        RotationRules(layout="interleaved", default_share=True),
        attention=ENCODER_DECODER,
        layer_keys=("encoder_num_hidden_layers", "decoder_num_hidden_layers"),
    ),
    "moonshine_streaming": Family(
        RotationRules(layout="interleaved", default_share=True),
        attention=ENCODER_DECODER,
        layer_keys=("encoder_config.num_hidden_layers", "num_hidden_layers"),
    ),
    "musicflamingo": Family(
        unsupported="rotates the states of its sound encoder by the seconds of a recording; its text_config is "
        "a text model: read that by itself"
    ),
    "pe_audio_encoder": Family(
        unsupported="rotates frames of sound or video in an encoder, by a product of its own that has not been read"
    ),
    "pop2piano": Family(
        attention=Attention(direction="encoder-decoder", scale="one"),
        schemes=(t5_bias(),),
        layer_keys=("num_layers", "num_decoder_layers"),
    ),
    "sew-d": Family(
        attention=Attention(scale="unknown", direction="bidirectional"),
        schemes=(CONVOLUTION, DISENTANGLED.switched("relative_attention")),
    ),
    "speech_to_text": Family(attention=ENCODER_DECODER, schemes=(SINUSOIDAL_FAIRSEQ,)),
    "speecht5": Family(
        attention=ENCODER_DECODER,
        schemes=(CONVOLUTION.of("audio"), SINUSOIDAL.of("text, times a learned number"), SHAW.of("encoder")),
    ),
    "wavlm": Family(
        attention=BIDIRECTIONAL,
        schemes=(
            CONVOLUTION,
            replace(
                t5_bias(each_layer=True, buckets=Buckets(320, 800, "num_buckets", "max_bucket_distance"), builds=""),
                text="T5's bias: a learned number for each head and bucket of the distance, a table for each "
                "layer, gated by the token",
            ),
        ),
    ),
    "whisper": Family(
        attention=ENCODER_DECODER,
        schemes=(
            SINUSOIDAL_FAIRSEQ.with_rows(1500, "max_source_positions").of("audio"),
            learned(key="max_target_positions").of("text"),
        ),
    ),
}
