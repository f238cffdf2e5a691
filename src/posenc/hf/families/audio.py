"""Models of speech, sound and music.

One record a model type, read in the modelling and configuration files of transformers 5.23.
"""

from __future__ import annotations

from dataclasses import replace

from posenc.hf.families.family import Attention, Family, LayerPattern, RotationRules, Window
from posenc.hf.families.position_schemes import (
    CONVOLUTION,
    DISENTANGLED,
    PATCHES_UNSIZED,
    SHAW,
    SINUSOIDAL,
    SINUSOIDAL_FAIRSEQ,
    SINUSOIDAL_UNBUILT,
    Buckets,
    learned,
    t5_bias,
)

_AUDIO_ENCODER = "has a rotation only in an encoder of sound, by keys of its own (rotary_embedding_base)"
_BY_HEAD = "rotates queries and keys alike by the number of their head, which changes no score: there is no position"

AUDIO: dict[str, Family] = {
    "coarse_acoustics semantic": Family(
        layers=LayerPattern(count_key="num_layers"), schemes=(learned(1024, "block_size"),)
    ),
    "csm gradium_phonon_tts higgs_audio_v2 kyutai_speech_to_text moshi pocket_tts": Family(RotationRules()),
    "data2vec-audio hubert sew unispeech unispeech-sat wav2vec2": Family(
        attention=Attention(direction="bidirectional"), schemes=(CONVOLUTION,)
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
    "audio-spectrogram-transformer": Family(attention=Attention(direction="bidirectional"), schemes=(PATCHES_UNSIZED,)),
    "clvp_decoder": Family(
        unsupported="has learned embeddings of the positions; clvp_encoder rotates, by keys of its own"
    ),
    "clvp_encoder": Family(unsupported="rotates queries, keys and values too, by a width that projection_dim decides"),
    "dia": Family(unsupported="has a rotation in each of its parts: read encoder_config and decoder_config by itself"),
    "dia_decoder": Family(RotationRules(), attention=Attention(scale="one")),
    "dia_encoder": Family(RotationRules(), attention=Attention(direction="bidirectional", scale="one")),
    "fine_acoustics": Family(
        layers=LayerPattern(count_key="num_layers"),
        attention=Attention(direction=""),
        schemes=(learned(1024, "block_size"),),
    ),
    "glmasr_encoder": Family(RotationRules(default_share=True), attention=Attention(direction="bidirectional")),
    "lasr_encoder": Family(RotationRules(), attention=Attention(direction="bidirectional")),
    "moonshine": Family(
        RotationRules(layout="interleaved", default_share=True),
        attention=Attention(direction="encoder-decoder"),
        layer_keys=("encoder_num_hidden_layers", "decoder_num_hidden_layers"),
    ),
    "moonshine_streaming": Family(
        RotationRules(layout="interleaved", default_share=True),
        attention=Attention(direction="encoder-decoder"),
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
    "speech_to_text": Family(attention=Attention(direction="encoder-decoder"), schemes=(SINUSOIDAL_FAIRSEQ,)),
    "speecht5": Family(
        attention=Attention(direction="encoder-decoder"),
        schemes=(CONVOLUTION.of("audio"), SINUSOIDAL.of("text, times a learned number"), SHAW.of("encoder")),
    ),
    "wavlm": Family(
        attention=Attention(direction="bidirectional"),
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
        attention=Attention(direction="encoder-decoder"),
        schemes=(
            SINUSOIDAL_FAIRSEQ.with_rows(1500, "max_source_positions").of("audio"),
            learned(key="max_target_positions").of("text"),
        ),
    ),
}
