"""Models with recurrent or linear-attention layers, alone or between layers of attention.

One record a model type, read in the modelling and configuration files of transformers 5.23.
"""

from __future__ import annotations

from posenc.hf.families.family import Attention, Family, Sizes
from posenc.hf.families.layer_patterns import FULL, INDEXED, LINEAR, SLIDING, LayerPattern, Listing, Window
from posenc.hf.families.position_schemes import NOPE, RECURRENCE
from posenc.hf.families.rotation import RotationRules

_CONVOLUTIONS = Listing("numbers", "full_attn_idxs", names={"listed": FULL, "others": "conv"})  # as first released

HYBRIDS: dict[str, Family] = {
    "bailing_hybrid": Family(
        RotationRules(base=6e6, layout="interleaved", latent=True, head_dim=64),
        layers=LayerPattern((*5 * (LINEAR,), FULL), period_key="layer_group_size"),
        sizes=Sizes(2560, 32, 42, 262_144),
        since=5,
    ),
    "bamba": Family(
        RotationRules(share=0.5, default_share=True),
        layers=LayerPattern(only_listed=True, listing=Listing("numbers", "attn_layer_indices", default=[])),
        sizes=Sizes(4096, 32, 32, 262_144),
    ),
    "falcon_h1": Family(RotationRules(), sizes=Sizes(4096, 32, 32, 8192)),
    "falcon_mamba": Family(attention=Attention(direction="none"), schemes=(RECURRENCE,)),
    "glm5_next_text": Family(
        layers=LayerPattern((*3 * (LINEAR,), INDEXED)), attention=Attention(top_k=2048), schemes=(NOPE,)
    ),
    "granitemoehybrid": Family(
        RotationRules(rotates_if=("position_embedding_type", "rope")),
        layers=LayerPattern(only_listed=True),
        attention=Attention(scale="attention_multiplier"),
        schemes=(NOPE,),
        sizes=Sizes(4096, 32, 32, 2048),
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
    "lfm2": Family(
        RotationRules(base=1e6),
        layers=LayerPattern(only_listed=True, listing=_CONVOLUTIONS),
        sizes=Sizes(2560, 32, 32, 128_000),
    ),
    "lfm2_moe": Family(
        RotationRules(base=1e6),
        layers=LayerPattern(only_listed=True, listing=_CONVOLUTIONS),
        sizes=Sizes(2048, 32, 32, 128_000),
        since=5,
    ),
    "lfm3": Family(
        RotationRules(base=1e6, nested=True, head_dim=128),
        layers=LayerPattern(only_listed=True),
        sizes=Sizes(2048, 16, 24, 128_000),
        since=5,
    ),
    "mamba": Family(attention=Attention(direction="none"), schemes=(RECURRENCE,)),
    "mamba2": Family(attention=Attention(direction="none"), schemes=(RECURRENCE,)),
    "minimax": Family(
        RotationRules(base=1e6),
        layers=LayerPattern(only_listed=True, window=Window(every_layer=True)),
        sizes=Sizes(4096, 32, 32, 131_072),
    ),
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
    "olmo_hybrid": Family(
        RotationRules(null_base=True),
        layers=LayerPattern((*3 * (LINEAR,), FULL)),
        sizes=Sizes(3840, 30, 32, 65536),
        since=5,
    ),
    "qwen3_5_moe_text": Family(
        RotationRules(share=0.25, default_share=True, head_dim=256, sections=(11, 11, 10), order="interleaved"),
        layers=LayerPattern((*3 * (LINEAR,), FULL)),
        sizes=Sizes(2048, 16, 40, 32768),
        since=5,
    ),
    "qwen3_5_text": Family(
        RotationRules(share=0.25, default_share=True, head_dim=256, sections=(11, 11, 10), order="interleaved"),
        layers=LayerPattern((*3 * (LINEAR,), FULL)),
        sizes=Sizes(4096, 16, 32, 32768),
        since=5,
    ),
    "qwen3_next": Family(
        RotationRules(share=0.25, default_share=True, head_dim=256),
        layers=LayerPattern((*3 * (LINEAR,), FULL)),
        sizes=Sizes(2048, 16, 48, 32768),
    ),
    "qwen4_exp_text": Family(
        RotationRules(default_share=True, head_dim=256, sections=(11, 11, 10), order="interleaved"),
        layers=LayerPattern((*3 * (LINEAR,), INDEXED), period_key="full_attention_interval"),
        sizes=Sizes(2048, 16, 40, 32768),
        since=5,
    ),
    "recurrent_gemma": Family(
        RotationRules(share=0.5, default_share=True),
        layers=LayerPattern((*2 * (LINEAR,), SLIDING), window=Window(2048, key="attention_window_size")),
        sizes=Sizes(2560, 10, 26, None),
    ),
    "rwkv": Family(attention=Attention(direction="none"), schemes=(RECURRENCE,)),
    "xlstm": Family(attention=Attention(direction="none"), schemes=(RECURRENCE,)),
    "zamba": Family(schemes=(NOPE,)),
    "zamba2": Family(
        RotationRules(rotates_if=("use_mem_rope", True), head_key="attention_head_dim"),
        layers=LayerPattern(only_listed=True, types_key="layers_block_type"),
        attention=Attention(scale="half"),
        schemes=(NOPE,),
        sizes=Sizes(2560, 32, 54, 4096),
    ),
    "zaya": Family(
        RotationRules(default_share=True, nested=True, head_dim=128),
        layers=LayerPattern(only_listed=True),
        sizes=Sizes(2048, 8, 40, 131_072),
        since=5,
    ),
}
