"""Megatron-LM: arguments of megatron-core's GPTModel.

Source: megatron-core 0.16.1, models/gpt/gpt_model.py, rotary_pos_embedding.py (Llama 3's scaling with 1, 4 and 8,192
    written down), yarn_rotary_pos_embedding.py. Its rotary classes were run with these arguments, without a model
    (benchmarks/engines/trainers.py): within 9e-5 of posenc's cos and sin. NVIDIA/Megatron-LM#1418:
    max_position_embeddings is the length of the table too.
"""

from __future__ import annotations

from typing import Any

from posenc.hf.serving.lines import Line, Serving, block_in, gain_of_yarn

VERSION = "core 0.16.1"
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def line(serving: Serving) -> Line:
    """The arguments of Megatron."""
    rope = serving.rope
    if serving.facts.text.rotation.latent:
        raise ValueError("latent attention has fields of its own there (MLATransformerConfig), which no line has")
    block = block_in("transformers", rope, serving.length)
    arguments = {
        "max_sequence_length": serving.length, "rotary_base": block["rope_theta"],
        "rotary_percent": rope.rotary_dim / rope.head_dim, **_scaling(block),
    }  # fmt: skip
    words = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return Line("megatron", VERSION, f"GPTModel({words})", True, "its rotary class was run, the model was not")


def _scaling(block: dict[str, Any]) -> dict[str, Any]:
    kind = block["rope_type"]
    if kind == "default":
        return {"position_embedding_type": "rope"}
    if kind == "linear":
        return {"position_embedding_type": "rope", "seq_len_interpolation_factor": block["factor"]}
    if kind == "llama3":
        if any(block[key] != value for key, value in _LLAMA3.items()):
            raise ValueError("its Llama 3 scaling has 1, 4 and 8,192 tokens written down, and this block has others")
        return {"position_embedding_type": "rope", "rope_scaling": True, "rope_scaling_factor": block["factor"]}
    if kind != "yarn":
        raise ValueError(f"it has no rope type {kind}")
    mscale, all_dim = gain_of_yarn(block)[1:]
    config = {
        "yarn_rotary_scaling_factor": block["factor"],
        "yarn_original_max_position_embeddings": block["original_max_position_embeddings"],
        "yarn_beta_fast": block.get("beta_fast", 32.0), "yarn_beta_slow": block.get("beta_slow", 1.0),
        "yarn_mscale": mscale, "yarn_mscale_all_dim": all_dim,
        "yarn_correction_range_round_to_int": block.get("truncate", True),
    }  # fmt: skip
    return {"position_embedding_type": "yarn", "config": config}
