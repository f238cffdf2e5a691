"""torchtitan: fields of RoPE.Config in a model's Python config.

Source: torchtitan 0.3.0, models/common/rope.py, whose cache the bench compared with transformers without YaRN; its YaRN
    leaves cos and sin without the gain, which its DeepSeek model puts into the softmax scale.
"""

from __future__ import annotations

from typing import Any

from posenc.hf.serving.lines import Line, Serving, block_in
from posenc.hf.serving.table import verdict, version_of

COLUMN = "torchtitan"
VERSION = version_of(COLUMN)


def line(serving: Serving) -> Line:
    """The fields of torchtitan."""
    rope = serving.rope
    block = block_in("transformers", rope, serving.length)
    fields = {"dim": rope.rotary_dim, "max_seq_len": serving.length, "theta": block["rope_theta"], **_scaling(block)}
    checked = verdict(COLUMN, [block], model_type="llama")  # one module serves all of its models
    words = ", ".join(f"{name}={value!r}" for name, value in fields.items())
    return Line("torchtitan", VERSION, f"RoPE.Config({words})", checked.right, str(checked))


def _scaling(block: dict[str, Any]) -> dict[str, Any]:
    kind = block["rope_type"]
    if kind == "default":
        return {}
    if kind == "llama3":
        keys = ("low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
        return {"scaling": "llama", "scaling_factor": block["factor"], **{key: block[key] for key in keys}}
    if kind == "yarn":
        raise ValueError("its YaRN has no gain on cos and sin: only its DeepSeek model has one, in the softmax scale")
    raise ValueError(f"it has no rope type {kind}")
