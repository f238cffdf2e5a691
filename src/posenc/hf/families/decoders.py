"""Decoders of text, and models with recurrent or linear-attention layers, alone or between layers of attention.

One record a model type, read in the modelling and configuration files of transformers 5.23.
"""

from __future__ import annotations

from posenc.hf.families.family import (
    BEAM,
    BIDIRECTIONAL,
    CHUNKED,
    COMPRESSED,
    FULL,
    GEMMA_3_KINDS,
    HEAVILY_COMPRESSED,
    HYBRID,
    HYBRID_SLIDING,
    INDEXED,
    INKLING,
    INKLING_2,
    LEARNED,
    LINEAR,
    LLAMA_4,
    MISTRAL,
    MODERNBERT_KINDS,
    NOT_READ,
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
    ALIBI,
    BY_TOKEN,
    NOPE,
    RECURRENCE,
    SINUSOIDAL_FAIRSEQ,
    SINUSOIDAL_HALVES,
    TRANSFORMER_XL,
    learned,
    learned_with_offset,
)

_CONVOLUTIONS = Listing("numbers", "full_attn_idxs", names={"listed": FULL, "others": "conv"})  # as first released

DECODERS: dict[str, Family] = {
    "apertus arcee bitnet dbrx diffllama falcon flex_olmo gemma hy_v3 jais2 llama olmo olmo2 olmoe seed_oss": Family(
        RotationRules()
    ),
    "axk1 deepseek_v3 glm4_moe_lite youtu": Family(RotationRules(layout="interleaved", latent=True, layout_key=True)),
    "axk2 deepseek_v32 glm_moe_dsa": Family(
        RotationRules(layout="interleaved", latent=True), layers=LayerPattern((INDEXED,)), attention=Attention(top_k=0)
    ),
    "blt_global_transformer cohere ernie4_5 ernie4_5_moe helium": Family(RotationRules(layout="interleaved")),
    "codegen gptj": Family(RotationRules(layout="interleaved", share_key="rotary_dim", default_share=True, fixed=True)),
    "cohere2 cohere2_moe": Family(
        RotationRules(layout="interleaved", unrotated_kinds=(FULL,), only_sliding=True),
        layers=LayerPattern((*3 * (SLIDING,), FULL), period_key="sliding_window_pattern"),
    ),
    "doge mixtral starcoder2": Family(RotationRules(), layers=LayerPattern(window=Window(every_layer=True))),
    "exaone4 exaone_moe": Family(
        RotationRules(unrotated_kinds=(FULL,)),
        layers=LayerPattern((*3 * (SLIDING,), FULL), period_key="sliding_window_pattern"),
    ),
    "gemma2 vaultgemma": Family(
        RotationRules(),
        layers=LayerPattern((SLIDING, FULL)),
        attention=Attention(scale="query_pre_attn_scalar", softcap=0.0),
    ),
    "gemma4_text gemma4_unified_text": Family(
        RotationRules(nested=True, full_head_dim=512),
        layers=LayerPattern((*5 * (SLIDING,), FULL), last_full="always"),
        attention=Attention(bidirectional_if="all", scale="one"),
    ),
    "glm glm4": Family(RotationRules(layout="interleaved", default_share=True)),
    "glm4_moe nemotron persimmon phi solar_open stablelm": Family(RotationRules(default_share=True)),
    "gpt_neox gpt_neox_japanese": Family(
        RotationRules(theta_key="rotary_emb_base", share_key="rotary_pct", default_share=True)
    ),
    "granite granitemoe granitemoeshared hyperclovax": Family(
        RotationRules(), attention=Attention(scale="attention_multiplier")
    ),
    "granite_swa granitemoe_swa": Family(
        RotationRules(bases_key="layer_rope_theta", bases_choose=True),
        layers=LayerPattern((FULL, *3 * (SLIDING,))),
        attention=Attention(scale="attention_multiplier", sinks=("all",)),
    ),
    "hunyuan_v1_dense hunyuan_v1_moe": Family(RotationRules(), attention=Attention(normed_after=True)),
    "laguna mellum": Family(RotationRules(default_share=True, nested=True), layers=LayerPattern(only_listed=True)),
    "muse_glimmer_text muse_spark_text": Family(
        RotationRules(bases_key="layer_rope_theta"), layers=LayerPattern((FULL, *3 * (SLIDING,)), anchored_at_end=True)
    ),
    "qwen2 qwen3": Family(
        RotationRules(),
        layers=LayerPattern(
            sliding_from_key="max_window_layers", sliding_from=28, window=Window(switch="use_sliding_window")
        ),
    ),
    "afmoe": Family(
        RotationRules(unrotated_kinds=(FULL,), only_sliding=True),
        layers=LayerPattern((*3 * (SLIDING,), FULL), period_key="global_attn_every_n_layers"),
    ),
    "beam": Family(
        RotationRules(nested=True),
        layers=LayerPattern((*5 * (SLIDING,), FULL), last_full=True),
        attention=Attention(temperature=BEAM),
    ),
    "blt": Family(
        unsupported="has a rotation in each of its parts: read encoder_config, decoder_config, global_config "
        "and patcher_config by itself"
    ),
    "blt_local_decoder": Family(
        RotationRules(layout="interleaved"), not_compared="a part of a larger model, whose text and patches it is given"
    ),
    "blt_local_encoder": Family(
        RotationRules(layout="interleaved"),
        layers=LayerPattern(window=Window(every_layer=True)),
        not_compared="a part of a larger model, whose text and patches it is given",
    ),
    "blt_patcher": Family(RotationRules(layout="interleaved"), layers=LayerPattern(window=Window(every_layer=True))),
    "cwm": Family(RotationRules(), layers=LayerPattern((FULL, *3 * (SLIDING,)))),
    "deepseek_v2": Family(RotationRules(layout="interleaved", latent=True)),
    "deepseek_v4": Family(
        RotationRules(
            share=0.125,
            layout="interleaved",
            default_share=True,
            trailing=True,
            kinds={
                "main": KindKeys("rope_theta", 10000.0, scaled=False),
                "compress": KindKeys("compress_rope_theta", 160000.0, scaled=True),
            },
            scaled={"attention_factor": 1.0},
            width_key="qk_rope_head_dim",
        ),
        layers=LayerPattern(
            only_listed=True,
            listing=Listing(
                "codes", "compress_ratios", names={0: SLIDING, 4: COMPRESSED, 128: HEAVILY_COMPRESSED}, exact=False
            ),
            window=Window(every_layer=True),
        ),
        attention=Attention(sinks=("all",), top_k=0),
        not_compared="keys are the values too, rotated and rotated back; and queries attend to compressed tokens",
    ),
    "dots1": Family(
        RotationRules(), layers=LayerPattern(sliding_from_key="max_window_layers", sliding_from=62, window=Window(4096))
    ),
    "flint": Family(
        RotationRules(unrotated_kinds=(FULL,), only_sliding=True),
        layers=LayerPattern((SLIDING, FULL, *2 * (SLIDING,)), first_full=True, last_full=True),
        attention=Attention(sinks=("all",)),
    ),
    "gemma3_text": Family(
        RotationRules(kinds=GEMMA_3_KINDS, flat_dropped=True),
        layers=LayerPattern((*5 * (SLIDING,), FULL), period_key="sliding_window_pattern"),
        attention=Attention(bidirectional_if=True, scale="query_pre_attn_scalar"),
    ),
    "gemma3n_text": Family(
        RotationRules(kinds=GEMMA_3_KINDS, flat_dropped=True),
        layers=LayerPattern((*4 * (SLIDING,), FULL)),
        attention=Attention(scale="one"),
    ),
    "gpt_oss": Family(RotationRules(), layers=LayerPattern((SLIDING, FULL)), attention=Attention(sinks=("all",))),
    "hy_v4": Family(
        RotationRules(latent=True), layers=LayerPattern((INDEXED,)), attention=Attention(sinks=("all",), top_k=0)
    ),
    "iquestcoder": Family(RotationRules(), not_compared="its code is Llama's, whose layers are"),
    "jetmoe": Family(RotationRules(head_key="kv_channels")),
    "kimi_k2": Family(code_of="deepseek_v3"),
    "kolibri1": Family(RotationRules(unrotated_kinds=(FULL,)), layers=LayerPattern((*4 * (SLIDING,), FULL))),
    "llama4_text": Family(
        RotationRules(layout="interleaved", unrotated_every=4),
        layers=LayerPattern((*3 * (CHUNKED,), FULL), by_rotation=(CHUNKED, FULL), chunk=8192),
        attention=Attention(temperature=LLAMA_4),
    ),
    "longcat_flash": Family(
        RotationRules(layout="interleaved", latent=True), layers=LayerPattern(count_key="num_layers", per_count=2)
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
        ),
        layers=LayerPattern(
            (*5 * (SLIDING,), FULL),
            first_full=True,
            window=Window(129, key="sliding_window_size", excludes_itself=True),
        ),
        attention=Attention(sinks=(SLIDING,)),
    ),
    "minicpm3": Family(RotationRules(latent=True)),
    "minimax_m2": Family(RotationRules(share_key="rotary_dim", default_share=True)),
    "ministral": Family(RotationRules(), layers=LayerPattern((SLIDING,))),
    "ministral3": Family(
        RotationRules(), layers=LayerPattern(window=Window(every_layer=True)), attention=Attention(temperature=MISTRAL)
    ),
    "mistral": Family(
        RotationRules(), layers=LayerPattern(window=Window(every_layer=True)), code_if_listed="ministral"
    ),
    "mistral4": Family(
        RotationRules(layout="interleaved", latent=True, layout_key=True), attention=Attention(temperature=MISTRAL)
    ),
    "mistral_large4_text": Family(
        RotationRules(layout="interleaved", latent=True, unrotated_every=4),
        layers=LayerPattern((INDEXED,)),
        attention=Attention(temperature=LEARNED, top_k=0),
    ),
    "modernbert-decoder": Family(
        RotationRules(kinds=MODERNBERT_KINDS),
        layers=LayerPattern(
            (FULL, *2 * (SLIDING,)),
            period_key="global_attn_every_n_layers",
            window=Window(key="local_attention", halved=True),
        ),
    ),
    "muse_glimmer_assistant": Family(
        RotationRules(),
        layers=LayerPattern((SLIDING,), window=Window(sides="each")),
        attention=BIDIRECTIONAL,
        not_compared="drafts tokens for another model, whose states are its keys",
    ),
    "nanochat": Family(unsupported="rotates every pair the other way round"),
    "olmo3": Family(
        RotationRules(
            base=500000.0,
            kinds={
                FULL: KindKeys("rope_theta", 500000.0, scaled=True),
                SLIDING: KindKeys("rope_theta", 500000.0, scaled=False),
            },
            flat_dropped=True,
        ),
        layers=LayerPattern((*3 * (SLIDING,), FULL)),
    ),
    "phi3": Family(
        RotationRules(default_share=True, original=4096, rope_types=("default", "longrope")),
        layers=LayerPattern(window=Window(every_layer=True)),
    ),
    "phimoe": Family(
        # Other types need short_mscale and long_mscale too, which are no keys of theirs.
        RotationRules(rope_types=("default", "longrope")),
        layers=LayerPattern(window=Window(every_layer=True)),
    ),
    "qwen2_moe": Family(
        RotationRules(),
        layers=LayerPattern(
            (SLIDING, FULL),
            sliding_from_key="max_window_layers",
            sliding_from=28,
            window=Window(switch="use_sliding_window"),
        ),
    ),
    "qwen3_moe": Family(
        RotationRules(), layers=LayerPattern(window=Window(every_layer=True, switch="use_sliding_window"))
    ),
    "smollm3": Family(
        RotationRules(unrotated_every=4),
        layers=LayerPattern(by_rotation=(FULL, SLIDING), window=Window(switch="use_sliding_window")),
    ),
    "step3p5": Family(
        RotationRules(nested=True, by_layer=True, default_share=True), layers=LayerPattern(window=Window())
    ),
    "timesfm2_5": Family(
        RotationRules(),
        attention=Attention(scale="unknown", normed_after=True),
        not_compared="norms and a learned scale of each channel follow the rotation",
    ),
    # Of code that comes with the checkpoint. Others of its kind (qwen, internlm2, exaone, minicpm, mimo) spell their
    # rotation as a Llama does and have no record: they are read with a note that the model type is unknown.
    "baichuan": Family(
        unsupported="has its code in the checkpoint: models of 7B rotate queries and keys, models of 13B have ALiBi, "
        "and no key says which"
    ),
    "chatglm": Family(
        unsupported="has its code in the checkpoint: GLM-4 rotates half of the kv_channels of a head, in interleaved "
        "pairs, with a base that rope_ratio multiplies; convert it to model type glm, which posenc reads"
    ),
    "phi3small": Family(
        unsupported="has its code in the checkpoint: rope_embedding_base and rope_position_scale decide its rotation, "
        "and layers other than every dense_attention_every_n_layers-th have block-sparse attention"
    ),
    # Without rotation: learned tables, ALiBi, Transformer-XL's scores.
    "biogpt opt": Family(schemes=(learned_with_offset(),)),
    "bloom mpt": Family(schemes=(ALIBI,)),
    "decision_transformer gpt2 gpt_bigcode openai-gpt": Family(schemes=(learned(key="n_positions"),)),
    "ctrl": Family(schemes=(SINUSOIDAL_HALVES.with_rows(256, "n_positions"),)),
    "gpt_neo": Family(
        layers=LayerPattern(
            (FULL, SLIDING),
            listing=Listing("spans", "attention_types", names={"global": FULL, "local": SLIDING}),
            count_key="num_layers",
            window=Window(key="window_size"),
        ),
        attention=Attention(scale="one"),
        schemes=(learned(),),
    ),
    "inkling2_text": Family(
        layers=LayerPattern((*5 * (HYBRID_SLIDING,), HYBRID), window=Window(key="sliding_window_size")),
        attention=Attention(sinks=("all",), sink_by_token=True, temperature=INKLING_2),
        schemes=(BY_TOKEN,),
    ),
    "inkling_text": Family(
        layers=LayerPattern(
            (*5 * (HYBRID_SLIDING,), HYBRID),
            window=Window(key="sliding_window_size"),
            listing=Listing("numbers", "local_layer_ids", names={"listed": HYBRID_SLIDING, "others": HYBRID}),
        ),
        attention=Attention(scale="inverse", temperature=INKLING),
        schemes=(BY_TOKEN,),
    ),
    "transfo-xl": Family(schemes=(TRANSFORMER_XL,)),
    "xglm": Family(layers=LayerPattern(count_key="num_layers"), schemes=(SINUSOIDAL_FAIRSEQ,)),
    "xlnet": Family(attention=NOT_READ, schemes=(TRANSFORMER_XL,)),
    # With recurrent or linear-attention layers.
    "falcon_mamba mamba mamba2 rwkv xlstm": Family(attention=Attention(direction="none"), schemes=(RECURRENCE,)),
    "lfm2 lfm2_moe": Family(RotationRules(), layers=LayerPattern(only_listed=True, listing=_CONVOLUTIONS)),
    "qwen3_5_moe_text qwen3_5_text": Family(
        RotationRules(default_share=True, sections=(11, 11, 10), order="interleaved"),
        layers=LayerPattern((*3 * (LINEAR,), FULL)),
    ),
    "bailing_hybrid": Family(
        RotationRules(layout="interleaved", latent=True),
        layers=LayerPattern((*5 * (LINEAR,), FULL), period_key="layer_group_size"),
    ),
    "bamba": Family(
        RotationRules(default_share=True),
        layers=LayerPattern(only_listed=True, listing=Listing("numbers", "attn_layer_indices", default=[])),
    ),
    "falcon_h1": Family(RotationRules()),
    "glm5_next_text": Family(
        layers=LayerPattern((*3 * (LINEAR,), INDEXED)), attention=Attention(top_k=0), schemes=(NOPE,)
    ),
    "granitemoehybrid": Family(
        RotationRules(rotates_if=("position_embedding_type", "rope")),
        layers=LayerPattern(only_listed=True),
        attention=Attention(scale="attention_multiplier"),
        schemes=(NOPE,),
    ),
    "jamba": Family(
        layers=LayerPattern(
            only_listed=True,
            listing=Listing("period", "attn_layer_period", default=8, offset_key="attn_layer_offset", offset=4),
        ),
        schemes=(NOPE,),
    ),
    "kimi_k3": Family(code_of="kimi_linear"),
    "kimi_linear": Family(
        layers=LayerPattern(
            only_listed=True, listing=Listing("numbers", "full_attn_layers", parent="linear_attn_config", first=1)
        ),
        schemes=(NOPE,),
    ),
    "lfm3": Family(RotationRules(base=1000000.0, nested=True), layers=LayerPattern(only_listed=True)),
    "minimax": Family(RotationRules(), layers=LayerPattern(only_listed=True, window=Window(every_layer=True))),
    "nemotron_h": Family(
        layers=LayerPattern(
            only_listed=True,
            listing=Listing(
                "letters", "hybrid_override_pattern", names={"M": LINEAR, "E": "moe", "*": FULL, "-": "mlp"}
            ),
        ),
        attention=Attention(head_dim=128),
        schemes=(NOPE,),
    ),
    "olmo_hybrid": Family(RotationRules(null_base=True), layers=LayerPattern((*3 * (LINEAR,), FULL))),
    "qwen3_next": Family(RotationRules(default_share=True), layers=LayerPattern((*3 * (LINEAR,), FULL))),
    "qwen4_exp_text": Family(
        RotationRules(default_share=True, sections=(11, 11, 10), order="interleaved"),
        layers=LayerPattern((*3 * (LINEAR,), INDEXED), period_key="full_attention_interval", full_is=INDEXED),
    ),
    "recurrent_gemma": Family(
        RotationRules(default_share=True),
        layers=LayerPattern((*2 * (LINEAR,), SLIDING), window=Window(key="attention_window_size")),
    ),
    "zamba": Family(schemes=(NOPE,)),
    "zamba2": Family(
        RotationRules(rotates_if=("use_mem_rope", True), head_key="attention_head_dim"),
        layers=LayerPattern(only_listed=True, types_key="layers_block_type"),
        attention=Attention(scale="half"),
        schemes=(NOPE,),
    ),
    "zaya": Family(RotationRules(default_share=True, nested=True), layers=LayerPattern(only_listed=True)),
}
