"""Text decoders: language models that rotate, and those with learned tables, ALiBi or other encodings.

One record a model type, read in the modelling and configuration files of transformers 5.23.
"""

from __future__ import annotations

from posenc.hf.families.family import Attention, Family, Sizes
from posenc.hf.families.layer_patterns import (
    CHUNKED,
    COMPRESSED,
    FULL,
    HEAVILY_COMPRESSED,
    HYBRID,
    HYBRID_SLIDING,
    INDEXED,
    SLIDING,
    LayerPattern,
    Listing,
    Window,
)
from posenc.hf.families.position_schemes import (
    ALIBI,
    BY_TOKEN,
    SINUSOIDAL_FAIRSEQ,
    SINUSOIDAL_HALVES,
    TRANSFORMER_XL,
    learned,
    learned_with_offset,
)
from posenc.hf.families.rotation import KindKeys, RotationRules
from posenc.hf.families.shared import GEMMA_3_KINDS, GEMMA_4_BLOCKS, GPT_OSS_BLOCK, MODERNBERT_KINDS
from posenc.hf.families.temperature import BEAM, INKLING, INKLING_2, LEARNED, LLAMA_4, MISTRAL

DECODERS: dict[str, Family] = {
    "afmoe": Family(
        RotationRules(unrotated_kinds=(FULL,), only_sliding=True, head_dim=128),
        layers=LayerPattern((*3 * (SLIDING,), FULL), period_key="global_attn_every_n_layers", window=Window(1024)),
        sizes=Sizes(2048, 16, 32, 16384),
        since=5,
    ),
    "apertus": Family(
        RotationRules(
            base=1.2e7,
            block={
                "rope_type": "llama3",
                "original_max_position_embeddings": 8192,
                "low_freq_factor": 1.0,
                "factor": 8.0,
                "high_freq_factor": 4.0,
            },
        ),
        sizes=Sizes(4096, 32, 32, 65536),
    ),
    "arcee": Family(RotationRules(), sizes=Sizes(2560, 32, 32, 4096)),
    "axk1": Family(
        RotationRules(
            layout="interleaved",
            latent=True,
            layout_key=True,
            head_dim=64,
            head_dim_first=True,
        ),
        sizes=Sizes(7168, 64, 61, 32768),
        since=5,
    ),
    "axk2": Family(
        RotationRules(layout="interleaved", latent=True, head_dim=32),
        layers=LayerPattern((INDEXED,)),
        attention=Attention(top_k=2048),
        sizes=Sizes(2048, 32, 48, 131_072),
        since=5,
    ),
    "beam": Family(
        RotationRules(
            nested=True, block={SLIDING: {"rope_type": "default", "rope_theta": 1e4}, FULL: None}, head_dim=128
        ),
        layers=LayerPattern((*5 * (SLIDING,), FULL), last_full=True, window=Window(512)),
        attention=Attention(temperature=BEAM),
        sizes=Sizes(5120, 48, 52, 8192),
        since=5,
    ),
    "biogpt": Family(schemes=(learned_with_offset(1024),)),
    "bitnet": Family(RotationRules(base=5e5), sizes=Sizes(2560, 20, 30, 2048)),
    "bloom": Family(schemes=(ALIBI,)),
    "blt": Family(
        unsupported="has a rotation in each of its parts: read encoder_config, decoder_config, global_config and "
        "patcher_config by itself"
    ),
    "blt_global_transformer": Family(RotationRules(base=5e5, layout="interleaved"), sizes=Sizes(2048, 16, 25, 4096)),
    "blt_local_decoder": Family(
        RotationRules(base=5e5, layout="interleaved"),
        sizes=Sizes(1024, 16, 9, 24576),
        not_compared="a part of a larger model, whose text and patches it is given",
    ),
    "blt_local_encoder": Family(
        RotationRules(base=5e5, layout="interleaved"),
        layers=LayerPattern(window=Window(every_layer=True)),
        sizes=Sizes(1024, 16, 1, 24576),
        not_compared="a part of a larger model, whose text and patches it is given",
    ),
    "blt_patcher": Family(
        RotationRules(layout="interleaved"),
        layers=LayerPattern(window=Window(512, every_layer=True)),
        sizes=Sizes(768, 12, 14, 8192),
    ),
    "codegen": Family(
        RotationRules(layout="interleaved", share_key="rotary_dim", default_share=True, fixed=True),
        sizes=Sizes(4096, 16, 28, 2048),
    ),
    "cohere": Family(RotationRules(base=5e5, layout="interleaved"), sizes=Sizes(8192, 64, 40, 8192)),
    "cohere2": Family(
        RotationRules(layout="interleaved", unrotated_kinds=(FULL,), only_sliding=True),
        layers=LayerPattern((*3 * (SLIDING,), FULL), period_key="sliding_window_pattern", window=Window(4096)),
        sizes=Sizes(8192, 64, 40, 8192),
    ),
    "cohere2_moe": Family(
        RotationRules(layout="interleaved", unrotated_kinds=(FULL,), only_sliding=True, head_dim=128),
        layers=LayerPattern((*3 * (SLIDING,), FULL), period_key="sliding_window_pattern", window=Window(4096)),
        sizes=Sizes(8192, 64, 40, 8192),
        since=5,
    ),
    "ctrl": Family(schemes=(SINUSOIDAL_HALVES.with_rows(256, "n_positions"),)),
    "cwm": Family(
        RotationRules(
            base=1e6,
            block={
                "rope_type": "llama3",
                "original_max_position_embeddings": 8192,
                "low_freq_factor": 1.0,
                "factor": 16.0,
                "high_freq_factor": 4.0,
            },
            head_dim=128,
        ),
        layers=LayerPattern((FULL, *3 * (SLIDING,)), window=Window(8192)),
        sizes=Sizes(6144, 48, 64, 131_072),
        since=5,
    ),
    "dbrx": Family(RotationRules(), sizes=Sizes(2048, 16, 24, 2048)),
    "decision_transformer": Family(schemes=(learned(1024, "n_positions"),)),
    "deepseek_v2": Family(
        RotationRules(layout="interleaved", latent=True, head_dim=64), sizes=Sizes(4096, 32, 32, 2048)
    ),
    "deepseek_v3": Family(
        RotationRules(
            layout="interleaved",
            latent=True,
            layout_key=True,
            head_dim=64,
            head_dim_first=True,
        ),
        sizes=Sizes(7168, 128, 61, 4096),
    ),
    "deepseek_v32": Family(
        RotationRules(layout="interleaved", latent=True, head_dim=64),
        layers=LayerPattern((INDEXED,)),
        attention=Attention(top_k=2048),
        sizes=Sizes(7168, 128, 61, 163_840),
        since=5,
    ),
    "deepseek_v4": Family(
        RotationRules(
            share=0.125,
            layout="interleaved",
            default_share=True,
            trailing=True,
            kinds={
                "main": KindKeys("rope_theta", 1e4, scaled=False),
                "compress": KindKeys("compress_rope_theta", 1.6e5, scaled=True),
            },
            head_dim=512,
            scaled={"attention_factor": 1.0},
            width_key="qk_rope_head_dim",
        ),
        layers=LayerPattern(
            only_listed=True,
            listing=Listing(
                "codes", "compress_ratios", names={0: SLIDING, 4: COMPRESSED, 128: HEAVILY_COMPRESSED}, exact=False
            ),
            window=Window(128, every_layer=True),
        ),
        attention=Attention(sinks=("all",), top_k=512),
        sizes=Sizes(4096, 64, 43, 1_048_576),
        since=5,
        not_compared="keys are the values too, rotated and rotated back; and queries attend to compressed tokens",
    ),
    "diffllama": Family(RotationRules(), sizes=Sizes(2048, 32, 16, 2048)),
    "doge": Family(
        RotationRules(),
        layers=LayerPattern(window=Window(every_layer=True)),
        sizes=Sizes(1024, 8, 32, 2048),
    ),
    "dots1": Family(RotationRules(), sizes=Sizes(4608, 32, 62, 2048)),
    "ernie4_5": Family(
        RotationRules(base=5e5, layout="interleaved", head_dim=128),
        sizes=Sizes(1024, 16, 18, 131_072),
    ),
    "ernie4_5_moe": Family(RotationRules(base=5e5, layout="interleaved"), sizes=Sizes(2560, 20, 28, 131_072)),
    "exaone4": Family(
        RotationRules(unrotated_kinds=(FULL,)),
        layers=LayerPattern((*3 * (SLIDING,), FULL), period_key="sliding_window_pattern", window=Window(4096)),
        sizes=Sizes(4096, 32, 32, 2048),
    ),
    "exaone_moe": Family(
        RotationRules(unrotated_kinds=(FULL,)),
        layers=LayerPattern((*3 * (SLIDING,), FULL), period_key="sliding_window_pattern", window=Window(4096)),
        sizes=Sizes(4096, 32, 32, 2048),
        since=5,
    ),
    "falcon": Family(RotationRules(), sizes=Sizes(4544, 71, 32, 2048)),
    "flex_olmo": Family(RotationRules(base=5e5), sizes=Sizes(4096, 32, 32, 4096)),
    "flint": Family(
        RotationRules(unrotated_kinds=(FULL,), only_sliding=True, head_dim=128),
        layers=LayerPattern((SLIDING, FULL, *2 * (SLIDING,)), first_full=True, last_full=True, window=Window(513)),
        attention=Attention(sinks=("all",)),
        sizes=Sizes(2048, 32, 49, 262_144),
        since=5,
    ),
    "gemma": Family(RotationRules(head_dim=256), sizes=Sizes(3072, 16, 28, 8192)),
    "gemma2": Family(
        RotationRules(head_dim=256),
        layers=LayerPattern((SLIDING, FULL), window=Window(4096)),
        attention=Attention(scale="query_pre_attn_scalar", softcap=50.0),
        sizes=Sizes(2304, 8, 26, 8192),
    ),
    "gemma3_text": Family(
        RotationRules(kinds=GEMMA_3_KINDS, head_dim=256),
        layers=LayerPattern((*5 * (SLIDING,), FULL), period_key="sliding_window_pattern", window=Window(4096)),
        attention=Attention(bidirectional_if=True, scale="query_pre_attn_scalar"),
        sizes=Sizes(2304, 8, 26, 131_072),
    ),
    "gemma3n_text": Family(
        RotationRules(kinds=GEMMA_3_KINDS, head_dim=256),
        layers=LayerPattern((*4 * (SLIDING,), FULL), window=Window(512)),
        attention=Attention(scale="one"),
        sizes=Sizes(2048, 8, 35, 32768),
    ),
    "gemma4_text": Family(
        RotationRules(nested=True, block=GEMMA_4_BLOCKS, head_dim=256, full_head_dim=512),
        layers=LayerPattern((*5 * (SLIDING,), FULL), last_full=True, window=Window(512)),
        attention=Attention(bidirectional_if="all", scale="one"),
        sizes=Sizes(2304, 8, 30, 131_072),
        since=5,
    ),
    "gemma4_unified_text": Family(
        RotationRules(nested=True, block=GEMMA_4_BLOCKS, head_dim=256, full_head_dim=512),
        layers=LayerPattern((*5 * (SLIDING,), FULL), last_full=True, window=Window(1024)),
        attention=Attention(bidirectional_if="all", scale="one"),
        sizes=Sizes(2304, 8, 30, 262_144),
        since=5,
    ),
    "glm": Family(
        RotationRules(share=0.5, layout="interleaved", default_share=True, head_dim=128),
        sizes=Sizes(4096, 32, 40, 131_072),
    ),
    "glm4": Family(
        RotationRules(share=0.5, layout="interleaved", default_share=True, head_dim=128),
        sizes=Sizes(4096, 32, 40, 131_072),
    ),
    "glm4_moe": Family(RotationRules(share=0.5, default_share=True), sizes=Sizes(4096, 96, 46, 131_072)),
    "glm4_moe_lite": Family(
        RotationRules(layout="interleaved", latent=True, layout_key=True, head_dim=64, head_dim_first=True),
        sizes=Sizes(2048, 20, 47, 202_752),
        since=5,
    ),
    "glm_moe_dsa": Family(
        RotationRules(layout="interleaved", latent=True, head_dim=64),
        layers=LayerPattern((INDEXED,)),
        attention=Attention(top_k=2048),
        sizes=Sizes(6144, 64, 78, 202_752),
        since=5,
    ),
    "gpt2": Family(schemes=(learned(1024, "n_positions"),)),
    "gpt_bigcode": Family(schemes=(learned(1024, "n_positions"),)),
    "gpt_neo": Family(
        layers=LayerPattern(
            (FULL, SLIDING),
            listing=Listing("spans", "attention_types", names={"global": FULL, "local": SLIDING}),
            count_key="num_layers",
            window=Window(256, key="window_size"),
        ),
        attention=Attention(scale="one"),
        schemes=(learned(2048),),
    ),
    "gpt_neox": Family(
        RotationRules(
            share=0.25,
            theta_key="rotary_emb_base",
            share_key="rotary_pct",
            default_share=True,
        ),
        sizes=Sizes(6144, 64, 44, 2048),
    ),
    "gpt_neox_japanese": Family(
        RotationRules(theta_key="rotary_emb_base", share_key="rotary_pct", default_share=True),
        sizes=Sizes(2560, 32, 32, 2048),
    ),
    "gpt_oss": Family(
        RotationRules(base=1.5e5, block=GPT_OSS_BLOCK, head_dim=64),
        layers=LayerPattern((SLIDING, FULL), window=Window(128)),
        attention=Attention(sinks=("all",)),
        sizes=Sizes(2880, 64, 36, 131_072),
    ),
    "gptj": Family(
        RotationRules(layout="interleaved", share_key="rotary_dim", default_share=True, fixed=True),
        sizes=Sizes(4096, 16, 28, 2048),
    ),
    "granite": Family(
        RotationRules(),
        attention=Attention(scale="attention_multiplier"),
        sizes=Sizes(4096, 32, 32, 2048),
    ),
    "granite_swa": Family(
        RotationRules(bases_key="layer_rope_theta", bases_choose=True),
        layers=LayerPattern((FULL, *3 * (SLIDING,)), window=Window(128)),
        attention=Attention(scale="attention_multiplier", sinks=("all",)),
        sizes=Sizes(2560, 20, 24, 8192),
        since=5,
    ),
    "granitemoe": Family(
        RotationRules(),
        attention=Attention(scale="attention_multiplier"),
        sizes=Sizes(4096, 32, 32, 2048),
    ),
    "granitemoe_swa": Family(
        RotationRules(bases_key="layer_rope_theta", bases_choose=True),
        layers=LayerPattern((FULL, *3 * (SLIDING,)), window=Window(128)),
        attention=Attention(scale="attention_multiplier", sinks=("all",)),
        sizes=Sizes(4096, 32, 32, 2048),
        since=5,
    ),
    "granitemoeshared": Family(
        RotationRules(),
        attention=Attention(scale="attention_multiplier"),
        sizes=Sizes(4096, 32, 32, 2048),
    ),
    "helium": Family(RotationRules(base=1e5, layout="interleaved", head_dim=128), sizes=Sizes(2560, 20, 24, 4096)),
    "hunyuan_v1_dense": Family(
        RotationRules(),
        attention=Attention(normed_after=True),
        sizes=Sizes(4096, 32, 32, 2048),
    ),
    "hunyuan_v1_moe": Family(
        RotationRules(),
        attention=Attention(normed_after=True),
        sizes=Sizes(4096, 32, 32, 2048),
    ),
    "hy_v3": Family(RotationRules(base=11_158_840.0, head_dim=128), sizes=Sizes(4096, 64, 80, 131_072), since=5),
    "hy_v4": Family(
        RotationRules(latent=True, head_dim=64),
        layers=LayerPattern((INDEXED,)),
        attention=Attention(sinks=("all",), top_k=2048),
        sizes=Sizes(2816, 32, 34, 262_144),
        since=5,
    ),
    "hyperclovax": Family(
        RotationRules(), attention=Attention(scale="attention_multiplier"), sizes=Sizes(4096, 32, 32, 2048), since=5
    ),
    "inkling2_text": Family(
        layers=LayerPattern((*5 * (HYBRID_SLIDING,), HYBRID), window=Window(1024, key="sliding_window_size")),
        attention=Attention(sinks=("all",), sink_by_token=True, temperature=INKLING_2),
        schemes=(BY_TOKEN,),
    ),
    "inkling_text": Family(
        layers=LayerPattern(
            (*5 * (HYBRID_SLIDING,), HYBRID),
            window=Window(512, key="sliding_window_size"),
            listing=Listing("numbers", "local_layer_ids", names={"listed": HYBRID_SLIDING, "others": HYBRID}),
        ),
        attention=Attention(scale="inverse", temperature=INKLING),
        schemes=(BY_TOKEN,),
    ),
    "jais2": Family(RotationRules(), sizes=Sizes(3328, 26, 32, 8192), since=5),
    "jetmoe": Family(RotationRules(head_dim=128, head_key="kv_channels"), sizes=Sizes(2048, 32, 12, 4096)),
    "kimi_k2": Family(code_of="deepseek_v3"),
    "kolibri1": Family(
        RotationRules(unrotated_kinds=(FULL,), head_dim=128),
        layers=LayerPattern((*4 * (SLIDING,), FULL), window=Window(513)),
        sizes=Sizes(2560, 48, 50, 262_144),
        since=5,
    ),
    "laguna": Family(
        RotationRules(
            default_share=True,
            nested=True,
            block={
                SLIDING: {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0},
                FULL: {"rope_type": "default", "rope_theta": 5e5, "partial_rotary_factor": 0.5},
            },
            head_dim=128,
        ),
        layers=LayerPattern(only_listed=True, window=Window(512)),
        sizes=Sizes(2048, 48, 40, 131_072),
        since=5,
    ),
    "llama": Family(RotationRules(), sizes=Sizes(4096, 32, 32, 2048)),
    "llama4_text": Family(
        RotationRules(base=5e5, layout="interleaved", unrotated_every=4, head_dim=128),
        layers=LayerPattern((*3 * (CHUNKED,), FULL), chunk=8192),
        attention=Attention(temperature=LLAMA_4),
        sizes=Sizes(5120, 40, 48, 131_072),
    ),
    "longcat_flash": Family(
        RotationRules(base=1e7, layout="interleaved", latent=True, head_dim=64, head_dim_first=True),
        layers=LayerPattern(count_key="num_layers", per_count=2),
        sizes=Sizes(6144, 64, 56, 131_072),
    ),
    "mellum": Family(
        RotationRules(default_share=True, nested=True, head_dim=128),
        layers=LayerPattern(only_listed=True, window=Window(1024)),
        sizes=Sizes(2304, 32, 28, 131_072),
        since=5,
    ),
    "mimo_v2_flash": Family(
        RotationRules(
            share=0.334,
            default_share=True,
            kinds={
                # The class reads no rope_scaling: it drops a flat block, or fails where one stands alone.
                FULL: KindKeys("rope_theta", 5e6, scaled=False),
                SLIDING: KindKeys("swa_rope_theta", 1e4, scaled=False),
            },
            head_dim=192,
        ),
        layers=LayerPattern(
            (*5 * (SLIDING,), FULL),
            first_full=True,
            window=Window(129, key="sliding_window_size", excludes_itself=True),
        ),
        attention=Attention(sinks=(SLIDING,)),
        sizes=Sizes(4096, 64, 48, 131_072),
        since=5,
    ),
    "minicpm3": Family(RotationRules(latent=True, head_dim=32), sizes=Sizes(2560, 40, 62, 32768), since=5),
    "minimax_m2": Family(
        RotationRules(base=5e6, share_key="rotary_dim", default_share=True, head_dim=128),
        sizes=Sizes(3072, 48, 62, 196_608),
        since=5,
    ),
    "ministral": Family(
        RotationRules(),
        layers=LayerPattern((SLIDING,), window=Window(4096)),
        sizes=Sizes(4096, 32, 32, 131_072),
    ),
    "ministral3": Family(
        RotationRules(
            base=1e6,
            block={
                "rope_type": "yarn",
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "mscale_all_dim": 1.0,
                "mscale": 1.0,
                "llama_4_scaling_beta": 0.1,
                "factor": 16.0,
                "original_max_position_embeddings": 16384,
            },
            head_dim=128,
        ),
        layers=LayerPattern(window=Window(every_layer=True)),
        attention=Attention(temperature=MISTRAL),
        sizes=Sizes(4096, 32, 34, 262_144),
        since=5,
    ),
    "mistral": Family(
        RotationRules(),
        layers=LayerPattern(window=Window(4096, every_layer=True)),
        sizes=Sizes(4096, 32, 32, 131_072),
        code_if_listed="ministral",
    ),
    "mistral4": Family(
        RotationRules(
            layout="interleaved",
            latent=True,
            layout_key=True,
            block={
                "rope_type": "yarn",
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "mscale_all_dim": 1.0,
                "mscale": 1.0,
                "llama_4_scaling_beta": 0.1,
                "factor": 128.0,
                "original_max_position_embeddings": 8192,
            },
        ),
        attention=Attention(temperature=MISTRAL),
        sizes=Sizes(4096, 32, 36, 1_048_576),
        since=5,
    ),
    "mistral_large4_text": Family(
        RotationRules(
            layout="interleaved",
            latent=True,
            unrotated_every=4,
            block={
                "rope_type": "yarn",
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "factor": 2048.0,
                "original_max_position_embeddings": 512,
                "attention_factor": 1.0,
            },
            head_dim=64,
        ),
        layers=LayerPattern((INDEXED,)),
        attention=Attention(temperature=LEARNED, top_k=2048),
        sizes=Sizes(6144, 64, 72, 1_048_576),
        since=5,
    ),
    "mixtral": Family(
        RotationRules(base=1e6),
        layers=LayerPattern(window=Window(every_layer=True)),
        sizes=Sizes(4096, 32, 32, 131_072),
    ),
    "modernbert-decoder": Family(
        RotationRules(kinds=MODERNBERT_KINDS),
        layers=LayerPattern(
            (FULL, *2 * (SLIDING,)),
            period_key="global_attn_every_n_layers",
            window=Window(128, key="local_attention", halved=True),
        ),
        sizes=Sizes(768, 12, 22, 8192),
    ),
    "mpt": Family(schemes=(ALIBI,)),
    "muse_glimmer_assistant": Family(
        RotationRules(base=5e5, head_dim=128),
        layers=LayerPattern((SLIDING,), window=Window(2048, sides="each")),
        attention=Attention(direction="bidirectional"),
        sizes=Sizes(6656, 32, 5, 131_072),
        since=5,
        not_compared="drafts tokens for another model, whose states are its keys",
    ),
    "muse_glimmer_text": Family(
        RotationRules(bases_key="layer_rope_theta", head_dim=128),
        layers=LayerPattern((FULL, *3 * (SLIDING,)), anchored_at_end=True, window=Window(2048)),
        sizes=Sizes(6656, 32, 52, 131_072),
        since=5,
    ),
    "muse_spark_text": Family(
        RotationRules(base=5e5, bases_key="layer_rope_theta", head_dim=64),
        layers=LayerPattern((FULL, *3 * (SLIDING,)), anchored_at_end=True, window=Window(2048)),
        sizes=Sizes(8192, 128, 62, 1_048_576),
        since=5,
    ),
    "nanochat": Family(unsupported="rotates every pair the other way round"),
    "nemotron": Family(RotationRules(share=0.5, default_share=True), sizes=Sizes(6144, 48, 32, 4096)),
    "olmo": Family(RotationRules(), sizes=Sizes(4096, 32, 32, 2048)),
    "olmo2": Family(RotationRules(), sizes=Sizes(4096, 32, 32, 2048)),
    "olmo3": Family(
        RotationRules(
            base=5e5,
            kinds={
                FULL: KindKeys("rope_theta", 5e5, scaled=True),
                SLIDING: KindKeys("rope_theta", 5e5, scaled=False),
            },
        ),
        layers=LayerPattern((*3 * (SLIDING,), FULL), window=Window(4096)),
        sizes=Sizes(4096, 32, 32, 2048),
    ),
    "olmoe": Family(RotationRules(), sizes=Sizes(2048, 16, 16, 4096)),
    "openai-gpt": Family(schemes=(learned(512, "n_positions"),)),
    "opt": Family(schemes=(learned_with_offset(2048),)),
    "persimmon": Family(RotationRules(share=0.5, default_share=True), sizes=Sizes(4096, 64, 36, 16384)),
    "phi": Family(RotationRules(share=0.5, default_share=True), sizes=Sizes(2048, 32, 24, 2048)),
    "phi3": Family(
        RotationRules(default_share=True, original=4096, rope_types=("default", "longrope")),
        layers=LayerPattern(window=Window(every_layer=True)),
        sizes=Sizes(3072, 32, 32, 4096),
    ),
    "phimoe": Family(
        # Other types need short_mscale and long_mscale too, which are no keys of theirs.
        RotationRules(base=1e6, rope_types=("default", "longrope")),
        layers=LayerPattern(window=Window(every_layer=True)),
        sizes=Sizes(4096, 32, 32, 131_072),
    ),
    "qwen2": Family(
        RotationRules(),
        layers=LayerPattern(
            sliding_from_key="max_window_layers", sliding_from=28, window=Window(switch="use_sliding_window")
        ),
        sizes=Sizes(4096, 32, 32, 32768),
    ),
    "qwen2_moe": Family(RotationRules(), sizes=Sizes(2048, 16, 24, 32768)),
    "qwen3": Family(
        RotationRules(head_dim=128),
        layers=LayerPattern(
            sliding_from_key="max_window_layers", sliding_from=28, window=Window(switch="use_sliding_window")
        ),
        sizes=Sizes(4096, 32, 32, 32768),
    ),
    "qwen3_moe": Family(RotationRules(), sizes=Sizes(2048, 32, 24, 32768)),
    "seed_oss": Family(RotationRules(head_dim=128), sizes=Sizes(4096, 80, 64, 524_288)),
    "smollm3": Family(
        RotationRules(base=2e6, unrotated_every=4),
        layers=LayerPattern(window=Window(switch="use_sliding_window")),
        sizes=Sizes(2048, 16, 36, 32768),
    ),
    "solar_open": Family(
        RotationRules(base=1e6, default_share=True, head_dim=128), sizes=Sizes(4096, 64, 48, 131_072), since=5
    ),
    "stablelm": Family(RotationRules(share=0.25, default_share=True), sizes=Sizes(2560, 32, 32, 4096)),
    "starcoder2": Family(
        RotationRules(),
        layers=LayerPattern(window=Window(every_layer=True)),
        sizes=Sizes(3072, 24, 30, 4096),
    ),
    "step3p5": Family(unsupported="reads a base and a share for each layer from keys of its own"),
    "timesfm2_5": Family(
        RotationRules(head_dim=80),
        attention=Attention(scale="unknown", normed_after=True),
        sizes=Sizes(1280, 16, 20, 16384),
        since=5,
        not_compared="norms and a learned scale of each channel follow the rotation",
    ),
    "transfo-xl": Family(schemes=(TRANSFORMER_XL,)),
    "vaultgemma": Family(
        RotationRules(head_dim=256),
        layers=LayerPattern((SLIDING, FULL), window=Window(4096)),
        attention=Attention(scale="query_pre_attn_scalar", softcap=50.0),
        sizes=Sizes(2304, 8, 26, 8192),
    ),
    "xglm": Family(layers=LayerPattern(count_key="num_layers"), schemes=(SINUSOIDAL_FAIRSEQ,)),
    "xlnet": Family(attention=Attention(direction=""), schemes=(TRANSFORMER_XL,)),
    "youtu": Family(
        RotationRules(
            layout="interleaved",
            latent=True,
            layout_key=True,
            head_dim=64,
            head_dim_first=True,
        ),
        sizes=Sizes(2048, 16, 32, 131_072),
        since=5,
    ),
}
