"""Models of speech, sound and music.

One record a model type, read in the modelling and configuration files of transformers 5.23.
"""

from __future__ import annotations

from dataclasses import replace

from posenc.hf.families.family import Attention, Family, Sizes
from posenc.hf.families.layer_patterns import LayerPattern, Window
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
from posenc.hf.families.rotation import RotationRules
from posenc.hf.families.shared import AUDIO_ENCODER, BY_HEAD

AUDIO: dict[str, Family] = {
    "audio-spectrogram-transformer": Family(attention=Attention(direction="bidirectional"), schemes=(PATCHES_UNSIZED,)),
    "audioflamingo3": Family(text_type="qwen2"),
    "clvp_decoder": Family(
        unsupported="has learned embeddings of the positions; clvp_encoder rotates, by keys of its own"
    ),
    "clvp_encoder": Family(unsupported="rotates queries, keys and values too, by a width that projection_dim decides"),
    "coarse_acoustics": Family(layers=LayerPattern(count_key="num_layers"), schemes=(learned(1024, "block_size"),)),
    "csm": Family(RotationRules(base=5e5), sizes=Sizes(2048, 32, 16, 2048)),
    "data2vec-audio": Family(attention=Attention(direction="bidirectional"), schemes=(CONVOLUTION,)),
    "dia": Family(unsupported="has a rotation in each of its parts: read encoder_config and decoder_config by itself"),
    "dia_decoder": Family(
        RotationRules(head_dim=128), attention=Attention(scale="one"), sizes=Sizes(2048, 16, 18, 3072)
    ),
    "dia_encoder": Family(
        RotationRules(head_dim=128),
        attention=Attention(direction="bidirectional", scale="one"),
        sizes=Sizes(1024, 16, 12, 1024),
    ),
    "fine_acoustics": Family(
        layers=LayerPattern(count_key="num_layers"),
        attention=Attention(direction=""),
        schemes=(learned(1024, "block_size"),),
    ),
    "fun_asr_nano": Family(text_type="qwen3"),
    "glmasr": Family(text_type="llama"),
    "glmasr_encoder": Family(
        RotationRules(share=0.5, default_share=True),
        attention=Attention(direction="bidirectional"),
        sizes=Sizes(1280, 20, 32, 1500),
        since=5,
    ),
    "gradium_phonon_tts": Family(RotationRules(), sizes=Sizes(768, 12, 6, 8192), since=5),
    "granite_speech": Family(text_type="granite"),
    "granite_speech_plus": Family(text_type="granite"),
    "higgs_audio_v2": Family(
        RotationRules(
            base=5e5,
            block={
                "rope_type": "llama3",
                "original_max_position_embeddings": 1024,
                "low_freq_factor": 0.125,
                "factor": 32.0,
                "high_freq_factor": 0.5,
            },
            head_dim=128,
        ),
        sizes=Sizes(3072, 24, 28, 2048),
        since=5,
    ),
    "hubert": Family(attention=Attention(direction="bidirectional"), schemes=(CONVOLUTION,)),
    "kyutai_speech_to_text": Family(RotationRules(), sizes=Sizes(2048, 32, 48, 750)),
    "lasr_encoder": Family(
        RotationRules(),
        attention=Attention(direction="bidirectional"),
        sizes=Sizes(512, 8, 17, 10000),
        since=5,
    ),
    "mimi": Family(
        RotationRules(), layers=LayerPattern(window=Window(250, every_layer=True)), sizes=Sizes(512, 8, 8, 8000)
    ),
    "mimi_decoder": Family(
        RotationRules(),
        layers=LayerPattern(window=Window(250, every_layer=True)),
        sizes=Sizes(512, 8, 8, 8000),
        since=5,
    ),
    "mimi_encoder": Family(
        RotationRules(),
        layers=LayerPattern(window=Window(250, every_layer=True)),
        sizes=Sizes(512, 8, 8, 8000),
        since=5,
    ),
    "moonshine": Family(
        RotationRules(share=0.9, layout="interleaved", default_share=True),
        attention=Attention(direction="encoder-decoder"),
        sizes=Sizes(288, 8, 6, 512),
        layer_keys=("encoder_num_hidden_layers", "decoder_num_hidden_layers"),
    ),
    "moonshine_streaming": Family(
        RotationRules(share=0.8, layout="interleaved", default_share=True),
        attention=Attention(direction="encoder-decoder"),
        sizes=Sizes(320, 8, 6, 4096),
        since=5,
        layer_keys=("encoder_config.num_hidden_layers", "num_hidden_layers"),
    ),
    "moshi": Family(RotationRules(), sizes=Sizes(4096, 32, 32, 3000)),
    "moss_transcribe_diarize": Family(text_type="qwen3"),
    "musicflamingo": Family(
        text_type="qwen2",
        unsupported="rotates the states of its sound encoder by the seconds of a recording; its text_config is a text "
        "model: read that by itself",
    ),
    "musicgen_decoder": Family(schemes=(SINUSOIDAL_UNBUILT,)),
    "musicgen_melody_decoder": Family(schemes=(SINUSOIDAL_UNBUILT,)),
    "nemo_speechlm": Family(text_type="nemotron_h"),
    "nemotron3_5_transcribe_asr_audio": Family(
        unsupported="rotates frames of sound in its encoder; its text model nemotron_h has no rotation"
    ),
    "nemotron3_5_transcribe_audio": Family(
        unsupported="rotates frames of sound in its encoder; its text model nemotron_h has no rotation"
    ),
    "nemotron3_5_transcribe_word_timestamp": Family(
        unsupported="rotates frames of sound in its encoder; its text model nemotron_h has no rotation"
    ),
    "nemotron3_diarization": Family(unsupported="rotates frames of sound, and is no decoder"),
    "nemotron3_diarization_audio": Family(unsupported="rotates frames of sound, and is no decoder"),
    "nemotron_asr_streaming_encoder": Family(
        unsupported="has relative scores after Transformer-XL in an encoder of sound, and no rotation"
    ),
    "neucodec": Family(unsupported=BY_HEAD),
    "parakeet_encoder": Family(
        unsupported="has relative scores after Transformer-XL in an encoder of sound, and no rotation"
    ),
    "pe_audio": Family(text_type="modernbert"),
    "pe_audio_encoder": Family(
        unsupported="rotates frames of sound or video in an encoder, by a product of its own that has not been read"
    ),
    "pocket_tts": Family(RotationRules(), sizes=Sizes(1024, 16, 6, 8192), since=5),
    "pocket_tts_audio_tokenizer": Family(
        RotationRules(),
        layers=LayerPattern(window=Window(250, every_layer=True)),
        sizes=Sizes(512, 8, 2, 8000),
        since=5,
    ),
    "pop2piano": Family(
        attention=Attention(direction="encoder-decoder", scale="one"),
        schemes=(t5_bias(),),
        layer_keys=("num_layers", "num_decoder_layers"),
    ),
    "qwen2_audio": Family(text_type="qwen2"),
    "qwen3_asr": Family(text_type="qwen3"),
    "seamless_m4t": Family(unsupported=AUDIO_ENCODER),
    "semantic": Family(layers=LayerPattern(count_key="num_layers"), schemes=(learned(1024, "block_size"),)),
    "sew": Family(attention=Attention(direction="bidirectional"), schemes=(CONVOLUTION,)),
    "sew-d": Family(
        attention=Attention(scale="unknown", direction="bidirectional"),
        schemes=(
            CONVOLUTION,
            DISENTANGLED.switched("relative_attention"),
        ),
    ),
    "speech_to_text": Family(attention=Attention(direction="encoder-decoder"), schemes=(SINUSOIDAL_FAIRSEQ,)),
    "speecht5": Family(
        attention=Attention(direction="encoder-decoder"),
        schemes=(
            CONVOLUTION.of("audio"),
            SINUSOIDAL.of("text, times a learned number"),
            SHAW.of("encoder"),
        ),
    ),
    "unispeech": Family(attention=Attention(direction="bidirectional"), schemes=(CONVOLUTION,)),
    "unispeech-sat": Family(attention=Attention(direction="bidirectional"), schemes=(CONVOLUTION,)),
    "vibevoice": Family(text_type="qwen2"),
    "vibevoice_asr": Family(text_type="qwen2"),
    "voxtral": Family(text_type="llama"),
    "voxtral_realtime_encoder": Family(
        RotationRules(head_dim=64),
        layers=LayerPattern(window=Window(750, every_layer=True)),
        sizes=Sizes(1280, 32, 32, 1500),
        since=5,
    ),
    "voxtral_realtime_text": Family(
        RotationRules(),
        layers=LayerPattern(window=Window(4096, every_layer=True)),
        sizes=Sizes(4096, 32, 32, 131_072),
        since=5,
    ),
    "wav2vec2": Family(attention=Attention(direction="bidirectional"), schemes=(CONVOLUTION,)),
    "wav2vec2-bert": Family(unsupported=AUDIO_ENCODER),
    "wav2vec2-conformer": Family(unsupported=AUDIO_ENCODER),
    "wavlm": Family(
        attention=Attention(direction="bidirectional"),
        schemes=(
            CONVOLUTION,
            replace(
                t5_bias(each_layer=True, buckets=Buckets(320, 800, "num_buckets", "max_bucket_distance"), builds=""),
                text="T5's bias: a learned number for each head and bucket of the distance, a table for each layer, "
                "gated by the token",
            ),
        ),
    ),
    "whisper": Family(
        attention=Attention(direction="encoder-decoder"),
        schemes=(
            SINUSOIDAL_FAIRSEQ.with_rows(1500, "max_source_positions").of("audio"),
            learned(448, "max_target_positions").of("text"),
        ),
    ),
    "xcodec2": Family(unsupported=BY_HEAD),
}
