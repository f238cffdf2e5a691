"""Encoders and decoders of text in one model, after T5 and BART.

One record a model type, read in the modelling and configuration files of transformers 5.23.
"""

from __future__ import annotations

from posenc.hf.families.family import (
    BIG_BIRD_BLOCKS,
    FULL,
    GEMMA_3_KINDS,
    SLIDING,
    Attention,
    Family,
    LayerPattern,
    RotationRules,
    Window,
)
from posenc.hf.families.position_schemes import (
    PAGE,
    SINUSOIDAL_FAIRSEQ,
    SINUSOIDAL_HALVES,
    SINUSOIDAL_UNBUILT,
    T5_DECODER,
    UDOP_BIAS,
    learned,
    learned_with_offset,
    t5_bias,
)

ENCODER_DECODERS: dict[str, Family] = {
    "bart mbart mvp plbart": Family(attention=Attention(direction="encoder-decoder"), schemes=(learned_with_offset(),)),
    "blenderbot blenderbot-small": Family(attention=Attention(direction="encoder-decoder"), schemes=(learned(),)),
    "fsmt m2m_100 nllb-moe": Family(attention=Attention(direction="encoder-decoder"), schemes=(SINUSOIDAL_FAIRSEQ,)),
    "marian pegasus": Family(
        attention=Attention(direction="encoder-decoder"), schemes=(SINUSOIDAL_HALVES.with_rows(1024),)
    ),
    "mt5 switch_transformers t5": Family(
        attention=Attention(direction="encoder-decoder", scale="one"),
        schemes=(t5_bias(),),
        layer_keys=("num_layers", "num_decoder_layers"),
    ),
    "barthez": Family(attention=Attention(direction="encoder-decoder"), schemes=(learned_with_offset(1024),)),
    "bigbird_pegasus": Family(
        attention=Attention(
            direction="encoder-decoder",
            partial=BIG_BIRD_BLOCKS,
            partial_defaults={"block_size": 64, "num_random_blocks": 3},
            partial_if=("attention_type", "block_sparse", "block_sparse"),
        ),
        schemes=(learned(),),
    ),
    "led": Family(
        layers=LayerPattern(window=Window(key="attention_window", every_layer=True, halved=True, sides="each")),
        attention=Attention(direction="encoder-decoder", partial="global tokens, which the caller marks"),
        schemes=(
            learned(16384, "max_encoder_position_embeddings").of("encoder"),
            learned(1024, "max_decoder_position_embeddings").of("decoder"),
        ),
    ),
    "longt5": Family(
        layers=LayerPattern(window=Window(key="local_radius", every_layer=True, sides="each")),
        attention=Attention(
            direction="encoder-decoder",
            scale="one",
            partial="means of blocks of {global_block_size} tokens",
            partial_defaults={"global_block_size": 16},
            partial_if=("encoder_attention_type", "transient-global", "local"),
        ),
        schemes=(t5_bias(),),
        layer_keys=("num_layers", "num_decoder_layers"),
    ),
    "pegasus_x": Family(attention=Attention(direction="encoder-decoder"), schemes=(SINUSOIDAL_UNBUILT,)),
    "prophetnet": Family(
        attention=Attention(direction="encoder-decoder"),
        schemes=(learned(),),
        layer_keys=("num_encoder_layers", "num_decoder_layers"),
    ),
    "t5_gemma_module": Family(
        RotationRules(),
        layers=LayerPattern((SLIDING, FULL), window=Window(sides="each")),
        attention=Attention(direction="bidirectional", scale="query_pre_attn_scalar", softcap=0.0),
    ),
    "t5gemma": Family(unsupported="has a rotation in each of its parts: read encoder and decoder by itself"),
    "t5gemma2_decoder": Family(
        RotationRules(kinds=GEMMA_3_KINDS, flat_dropped=True),
        layers=LayerPattern((*5 * (SLIDING,), FULL), period_key="sliding_window_pattern"),
        attention=Attention(scale="query_pre_attn_scalar"),
        not_compared="one softmax over its own tokens and the encoder's",
    ),
    "t5gemma2_text": Family(
        RotationRules(kinds=GEMMA_3_KINDS, flat_dropped=True),
        layers=LayerPattern(
            (*5 * (SLIDING,), FULL), period_key="sliding_window_pattern", window=Window(sides="shared")
        ),
        attention=Attention(direction="bidirectional", scale="query_pre_attn_scalar"),
    ),
    "trocr": Family(layers=LayerPattern(count_key="decoder_layers"), schemes=(learned_with_offset(),)),
    "udop": Family(
        attention=Attention(direction="encoder-decoder", scale="one"),
        schemes=(PAGE, UDOP_BIAS, t5_bias(builds=T5_DECODER).of("decoder")),
        layer_keys=("num_layers", "num_decoder_layers"),
    ),
    "umt5": Family(
        attention=Attention(direction="encoder-decoder", scale="one"),
        schemes=(t5_bias(each_layer=True),),
        layer_keys=("num_layers", "num_decoder_layers"),
    ),
}
