"""Text encoders: every token attends to those before and after it.

One record a model type, read in the modelling and configuration files of transformers 5.23.
"""

from __future__ import annotations

from dataclasses import replace

from posenc.hf.families.family import (
    BIG_BIRD_BLOCKS,
    FULL,
    MODERNBERT_KINDS,
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
    T5_ENCODER,
    TRANSFORMER_XL,
    Buckets,
    learned,
    learned_after_padding,
    learned_with_offset,
    t5_bias,
)

ENCODERS: dict[str, Family] = {
    (
        "albert bert convbert distilbert dpr electra ernie flaubert megatron-bert rembert roc_bert splinter squeezebert"
    ): Family(attention=Attention(direction="bidirectional"), schemes=(learned(),)),
    "bert-generation xlm": Family(attention=Attention(direction=""), schemes=(learned(),)),
    "camembert data2vec-text ibert luke roberta roberta-prelayernorm xlm-roberta xlm-roberta-xl xmod": Family(
        attention=Attention(direction="bidirectional"), schemes=(learned_after_padding(),)
    ),
    "deberta deberta-v2": Family(
        attention=Attention(scale="unknown", direction="bidirectional"),
        schemes=(
            learned().switched("position_biased_input"),
            DISENTANGLED.switched("relative_attention", default=False),
        ),
    ),
    "esmc eurobert gte jina_embeddings_v3": Family(RotationRules(), attention=Attention(direction="bidirectional")),
    "mra nystromformer yoso": Family(attention=Attention(direction="bidirectional"), schemes=(learned_with_offset(),)),
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
        attention=Attention(direction="bidirectional"),
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
        attention=Attention(direction="bidirectional"),
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
        attention=Attention(direction="bidirectional"),
    ),
    "mpnet": Family(
        attention=Attention(direction="bidirectional"),
        schemes=(learned_after_padding(), t5_bias(buckets=Buckets(distance_key=""), builds=T5_ENCODER)),
    ),
    "nomic_bert": Family(
        RotationRules(dynamic_keys=DynamicKeys("rotary_scaling_factor", "max_trained_positions", 2048)),
        attention=Attention(direction="bidirectional"),
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
        attention=Attention(direction="bidirectional"),
        not_compared="its attention is written into its layer, where nothing can be watched",
    ),
}
