"""Text encoders, where every token attends to those before and after it, and encoders and decoders in one model.

One record a model type, read in the modelling and configuration files of transformers 5.23.
"""

from __future__ import annotations

from dataclasses import replace

from posenc.hf.families.family import (
    BIDIRECTIONAL,
    BIG_BIRD_BLOCKS,
    ENCODER_DECODER,
    FULL,
    GEMMA_3_KINDS,
    MODERNBERT_KINDS,
    NOT_READ,
    SLIDING,
    Attention,
    DynamicKeys,
    Family,
    LayerPattern,
    RotationRules,
    Window,
)
from posenc.hf.families.position_schemes import (
    AXIAL_TABLES,
    DISENTANGLED,
    PAGE,
    SINUSOIDAL_FAIRSEQ,
    SINUSOIDAL_HALVES,
    SINUSOIDAL_UNBUILT,
    T5_DECODER,
    T5_ENCODER,
    TRANSFORMER_XL,
    UDOP_BIAS,
    Buckets,
    learned,
    learned_after_padding,
    learned_with_offset,
    t5_bias,
)

ENCODERS: dict[str, Family] = {
    (
        "albert bert convbert distilbert dpr electra ernie flaubert megatron-bert rembert roc_bert splinter squeezebert"
    ): Family(attention=BIDIRECTIONAL, schemes=(learned(),)),
    "bert-generation xlm": Family(attention=NOT_READ, schemes=(learned(),)),
    "camembert data2vec-text ibert luke roberta roberta-prelayernorm xlm-roberta xlm-roberta-xl xmod": Family(
        attention=BIDIRECTIONAL, schemes=(learned_after_padding(),)
    ),
    "deberta deberta-v2": Family(
        attention=Attention(scale="unknown", direction="bidirectional"),
        schemes=(
            learned().switched("position_biased_input"),
            DISENTANGLED.switched("relative_attention", default=False),
        ),
    ),
    "esmc eurobert gte jina_embeddings_v3": Family(RotationRules(), attention=BIDIRECTIONAL),
    "mra nystromformer yoso": Family(attention=BIDIRECTIONAL, schemes=(learned_with_offset(),)),
    "neomme ultrabert": Family(unsupported="reads a base and a share for each layer from keys of its own"),
    "big_bird": Family(
        attention=Attention(
            direction="bidirectional",
            partial=BIG_BIRD_BLOCKS,
            partial_defaults={"block_size": 64, "num_random_blocks": 3},
            partial_if=("attention_type", "block_sparse", "block_sparse"),
        ),
        schemes=(learned(),),
    ),
    "canine": Family(
        attention=BIDIRECTIONAL,
        schemes=(replace(learned(), text="learned embeddings of the positions, of characters"),),
    ),
    "embedding_gemma2_text": Family(
        RotationRules(nested=True, full_head_dim=512),
        layers=LayerPattern(
            (*5 * (SLIDING,), FULL),
            period_key="sliding_window_pattern",
            last_full="always",
            window=Window(sides="each"),
        ),
        attention=Attention(direction="bidirectional", scale="one"),
    ),
    "esm": Family(
        RotationRules(rotates_if=("position_embedding_type", "rotary"), fixed=True),
        attention=BIDIRECTIONAL,
        schemes=(learned_after_padding(),),
    ),
    "fnet": Family(attention=Attention(scale="unknown", direction=""), schemes=(learned(),)),
    "funnel": Family(
        attention=Attention(direction="bidirectional", partial="blocks of pooled tokens"), schemes=(TRANSFORMER_XL,)
    ),
    "longformer": Family(
        layers=LayerPattern(window=Window(key="attention_window", every_layer=True, halved=True, sides="each")),
        attention=Attention(direction="bidirectional", partial="global tokens, which the caller marks"),
        schemes=(learned_after_padding(),),
    ),
    "mobilebert": Family(attention=Attention(scale="unknown", direction="bidirectional"), schemes=(learned(),)),
    "modernbert": Family(
        RotationRules(kinds=MODERNBERT_KINDS),
        layers=LayerPattern(
            (FULL, *2 * (SLIDING,)),
            period_key="global_attn_every_n_layers",
            window=Window(key="local_attention", halved=True, sides="each"),
        ),
        attention=BIDIRECTIONAL,
    ),
    "mpnet": Family(
        attention=BIDIRECTIONAL,
        schemes=(learned_after_padding(), t5_bias(buckets=Buckets(distance_key=""), builds=T5_ENCODER)),
    ),
    "nomic_bert": Family(
        RotationRules(dynamic_keys=DynamicKeys("rotary_scaling_factor", "max_trained_positions", 2048)),
        attention=BIDIRECTIONAL,
    ),
    "openai_privacy_filter": Family(
        RotationRules(layout="interleaved"),
        layers=LayerPattern(window=Window(every_layer=True, sides="each")),
        attention=Attention(direction="bidirectional", sinks=("all",)),
    ),
    "reformer": Family(
        attention=Attention(scale="unknown", direction="", partial="hashed and local chunks by attn_layers"),
        schemes=(AXIAL_TABLES,),
    ),
    "roformer": Family(
        RotationRules(layout="interleaved", fixed=True),
        attention=BIDIRECTIONAL,
        not_compared="its attention is written into its layer, where nothing can be watched",
    ),
    # Encoders and decoders of text in one model, after T5 and BART.
    "bart mbart mvp plbart": Family(attention=ENCODER_DECODER, schemes=(learned_with_offset(),)),
    "blenderbot blenderbot-small": Family(attention=ENCODER_DECODER, schemes=(learned(),)),
    "fsmt m2m_100 nllb-moe": Family(attention=ENCODER_DECODER, schemes=(SINUSOIDAL_FAIRSEQ,)),
    "marian pegasus": Family(attention=ENCODER_DECODER, schemes=(SINUSOIDAL_HALVES.with_rows(1024),)),
    "mt5 switch_transformers t5": Family(
        attention=Attention(direction="encoder-decoder", scale="one"),
        schemes=(t5_bias(),),
        layer_keys=("num_layers", "num_decoder_layers"),
    ),
    "barthez": Family(attention=ENCODER_DECODER, schemes=(learned_with_offset(1024),)),
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
    "pegasus_x": Family(attention=ENCODER_DECODER, schemes=(SINUSOIDAL_UNBUILT,)),
    "prophetnet": Family(
        attention=ENCODER_DECODER, schemes=(learned(),), layer_keys=("num_encoder_layers", "num_decoder_layers")
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
