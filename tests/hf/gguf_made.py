"""GGUF files of small Llamas, as llama.cpp's conversion writes them: pairs of queries and keys side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import LlamaForCausalLM

from posenc import permute_layout

_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "model.layers": "blk", "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
}  # fmt: skip


def as_gguf(model: LlamaForCausalLM, file: Path, *, base: float, **more: Any) -> Path:
    """Write a model without a tokenizer.

    Args:
        model: its weights and sizes.
        file: where.
        base: what the file says of the rotation.
        **more: further keys of the metadata, behind "llama.".
    """
    import gguf

    c = model.config
    head_dim = c.hidden_size // c.num_attention_heads
    writer = gguf.GGUFWriter(file, "llama")
    sizes = {
        "context_length": c.max_position_embeddings, "block_count": c.num_hidden_layers,
        "embedding_length": c.hidden_size, "feed_forward_length": c.intermediate_size,
        "attention.head_count": c.num_attention_heads, "attention.head_count_kv": c.num_key_value_heads,
        "rope.dimension_count": head_dim, "vocab_size": c.vocab_size, "rope.freq_base": float(base),
        "attention.layer_norm_rms_epsilon": float(c.rms_norm_eps),
    }  # fmt: skip
    add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    for key, value in {**sizes, **more}.items():
        add[type(value)](f"llama.{key}", value)
    for name, weight in model.state_dict().items():
        if "q_proj" in name or "k_proj" in name:
            weight = permute_layout(weight, head_dim, to="interleaved")
        for theirs, ours in _NAMES.items():
            name = name.replace(theirs, ours)
        writer.add_tensor(name, weight.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file
