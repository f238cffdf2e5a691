"""Models with recurrent or linear-attention layers, alone or between layers of attention.

One record a model type, read in the modelling and configuration files of transformers 5.23.
"""

from __future__ import annotations

from posenc.hf.families.family import (
    FULL,
    INDEXED,
    LINEAR,
    SLIDING,
    Attention,
    Family,
    LayerPattern,
    Listing,
    RotationRules,
    Window,
)
from posenc.hf.families.position_schemes import NOPE, RECURRENCE

_CONVOLUTIONS = Listing("numbers", "full_attn_idxs", names={"listed": FULL, "others": "conv"})  # as first released

HYBRIDS: dict[str, Family] = {
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
