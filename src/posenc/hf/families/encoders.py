"""Text encoders: every token attends to those before and after it.

One record a model type, read in the modelling and configuration files of transformers 5.23.
"""

from __future__ import annotations

from dataclasses import replace

from posenc.hf.families.family import Attention, Family, Sizes
from posenc.hf.families.layer_patterns import FULL, SLIDING, LayerPattern, Window
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
from posenc.hf.families.rotation import DynamicKeys, RotationRules
from posenc.hf.families.shared import BIG_BIRD_BLOCKS, GPT_OSS_BLOCK, MODERNBERT_KINDS

ENCODERS: dict[str, Family] = {
    "albert": Family(attention=Attention(direction="bidirectional"), schemes=(learned(512),)),
    "bert": Family(attention=Attention(direction="bidirectional"), schemes=(learned(512),)),
    "bert-generation": Family(attention=Attention(direction=""), schemes=(learned(512),)),
    "big_bird": Family(
        attention=Attention(
            direction="bidirectional",
            partial=BIG_BIRD_BLOCKS,
            partial_defaults={"block_size": 64, "num_random_blocks": 3},
            partial_if=("attention_type", "block_sparse", "block_sparse"),
        ),
        schemes=(learned(4096),),
    ),
    "camembert": Family(attention=Attention(direction="bidirectional"), schemes=(learned_after_padding(512),)),
    "canine": Family(
        attention=Attention(direction="bidirectional"),
        schemes=(replace(learned(16384), text="learned embeddings of the positions, of characters"),),
    ),
    "convbert": Family(attention=Attention(direction="bidirectional"), schemes=(learned(512),)),
    "data2vec-text": Family(attention=Attention(direction="bidirectional"), schemes=(learned_after_padding(512),)),
    "deberta": Family(
        attention=Attention(scale="unknown", direction="bidirectional"),
        schemes=(
            learned(512).switched("position_biased_input"),
            DISENTANGLED.switched("relative_attention", default=False),
        ),
    ),
    "deberta-v2": Family(
        attention=Attention(scale="unknown", direction="bidirectional"),
        schemes=(
            learned(512).switched("position_biased_input"),
            DISENTANGLED.switched("relative_attention", default=False),
        ),
    ),
    "distilbert": Family(attention=Attention(direction="bidirectional"), schemes=(learned(512),)),
    "dpr": Family(attention=Attention(direction="bidirectional"), schemes=(learned(512),)),
    "electra": Family(attention=Attention(direction="bidirectional"), schemes=(learned(512),)),
    "embedding_gemma2_text": Family(
        RotationRules(
            nested=True,
            block={
                SLIDING: {"rope_type": "default", "rope_theta": 1e4},
                FULL: {"rope_type": "default", "rope_theta": 1e6},
            },
            head_dim=256,
            full_head_dim=512,
        ),
        layers=LayerPattern(
            (*5 * (SLIDING,), FULL),
            period_key="sliding_window_pattern",
            last_full=True,
            window=Window(512, sides="each"),
        ),
        attention=Attention(direction="bidirectional", scale="one"),
        sizes=Sizes(512, 4, 24, 262_144),
        since=5,
    ),
    "ernie": Family(attention=Attention(direction="bidirectional"), schemes=(learned(512),)),
    "esm": Family(
        RotationRules(rotates_if=("position_embedding_type", "rotary"), fixed=True),
        attention=Attention(direction="bidirectional"),
        schemes=(learned_after_padding(1026),),
        sizes=Sizes(768, 12, 12, 1026),
    ),
    "esmc": Family(
        RotationRules(), attention=Attention(direction="bidirectional"), sizes=Sizes(2560, 40, 80, 2048), since=5
    ),
    "eurobert": Family(
        RotationRules(), attention=Attention(direction="bidirectional"), sizes=Sizes(768, 12, 12, 8192), since=5
    ),
    "flaubert": Family(attention=Attention(direction="bidirectional"), schemes=(learned(512),)),
    "fnet": Family(attention=Attention(scale="unknown", direction=""), schemes=(learned(512),)),
    "funnel": Family(
        attention=Attention(direction="bidirectional", partial="blocks of pooled tokens"), schemes=(TRANSFORMER_XL,)
    ),
    "gte": Family(
        RotationRules(base=1.6e5),
        attention=Attention(direction="bidirectional"),
        sizes=Sizes(768, 12, 12, 8192),
        since=5,
    ),
    "ibert": Family(attention=Attention(direction="bidirectional"), schemes=(learned_after_padding(512),)),
    "jina_embeddings_v3": Family(
        RotationRules(base=2e4),
        attention=Attention(direction="bidirectional"),
        sizes=Sizes(1024, 16, 24, 8194),
        since=5,
    ),
    "longformer": Family(
        layers=LayerPattern(window=Window(512, key="attention_window", every_layer=True, halved=True, sides="each")),
        attention=Attention(direction="bidirectional", partial="global tokens, which the caller marks"),
        schemes=(learned_after_padding(512),),
    ),
    "luke": Family(attention=Attention(direction="bidirectional"), schemes=(learned_after_padding(512),)),
    "megatron-bert": Family(attention=Attention(direction="bidirectional"), schemes=(learned(512),)),
    "mobilebert": Family(attention=Attention(scale="unknown", direction="bidirectional"), schemes=(learned(512),)),
    "modernbert": Family(
        RotationRules(kinds=MODERNBERT_KINDS),
        layers=LayerPattern(
            (FULL, *2 * (SLIDING,)),
            period_key="global_attn_every_n_layers",
            window=Window(128, key="local_attention", halved=True, sides="each"),
        ),
        attention=Attention(direction="bidirectional"),
        sizes=Sizes(768, 12, 22, 8192),
    ),
    "mpnet": Family(
        attention=Attention(direction="bidirectional"),
        schemes=(
            learned_after_padding(512),
            t5_bias(buckets=Buckets(distance_key=""), builds=T5_ENCODER),
        ),
    ),
    "mra": Family(attention=Attention(direction="bidirectional"), schemes=(learned_with_offset(512),)),
    "neomme": Family(unsupported="reads a base and a share for each layer from keys of its own"),
    "nomic_bert": Family(
        RotationRules(base=1000.0, dynamic_keys=DynamicKeys("rotary_scaling_factor", "max_trained_positions", 2048)),
        attention=Attention(direction="bidirectional"),
        sizes=Sizes(768, 12, 12, 2048),
        since=5,
    ),
    "nystromformer": Family(attention=Attention(direction="bidirectional"), schemes=(learned_with_offset(510),)),
    "openai_privacy_filter": Family(
        RotationRules(base=1.5e5, layout="interleaved", block=GPT_OSS_BLOCK, head_dim=64),
        layers=LayerPattern(window=Window(128, every_layer=True, sides="each")),
        attention=Attention(direction="bidirectional", sinks=("all",)),
        sizes=Sizes(640, 14, 8, 131_072),
        since=5,
    ),
    "reformer": Family(
        attention=Attention(scale="unknown", direction="", partial="hashed and local chunks by attn_layers"),
        schemes=(AXIAL_TABLES,),
    ),
    "rembert": Family(attention=Attention(direction="bidirectional"), schemes=(learned(512),)),
    "roberta": Family(attention=Attention(direction="bidirectional"), schemes=(learned_after_padding(512),)),
    "roberta-prelayernorm": Family(
        attention=Attention(direction="bidirectional"), schemes=(learned_after_padding(512),)
    ),
    "roc_bert": Family(attention=Attention(direction="bidirectional"), schemes=(learned(512),)),
    "roformer": Family(
        RotationRules(layout="interleaved", fixed=True),
        attention=Attention(direction="bidirectional"),
        sizes=Sizes(768, 12, 12, 1536),
        not_compared="its attention is written into its layer, where nothing can be watched",
    ),
    "splinter": Family(attention=Attention(direction="bidirectional"), schemes=(learned(512),)),
    "squeezebert": Family(attention=Attention(direction="bidirectional"), schemes=(learned(512),)),
    "ultrabert": Family(unsupported="reads a base and a share for each layer from keys of its own"),
    "xlm": Family(attention=Attention(direction=""), schemes=(learned(512),)),
    "xlm-roberta": Family(attention=Attention(direction="bidirectional"), schemes=(learned_after_padding(512),)),
    "xlm-roberta-xl": Family(attention=Attention(direction="bidirectional"), schemes=(learned_after_padding(514),)),
    "xmod": Family(attention=Attention(direction="bidirectional"), schemes=(learned_after_padding(512),)),
    "yoso": Family(attention=Attention(direction="bidirectional"), schemes=(learned_with_offset(4096),)),
}
