"""GGUF files of small Llamas, as llama.cpp's conversion writes them, and files byte by byte, sound or not."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from posenc.rotary import permute_layout

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

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
        for llama_cpp_name, module_name in _NAMES.items():
            name = name.replace(llama_cpp_name, module_name)
        writer.add_tensor(name, weight.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


class Raw(NamedTuple):
    """A value as its bytes stand in a file.

    Attributes:
        kind: number of its type.
        content: what follows the type.
    """

    kind: int
    content: bytes


class RawTensor(NamedTuple):
    """A tensor's entry."""

    name: bytes
    shape: Sequence[int]
    kind: int
    offset: int


def text(content: bytes, size: int | None = None) -> bytes:
    """A text of GGUF, which may lie about its length."""
    return struct.pack("<Q", len(content) if size is None else size) + content


def raw(value: Any) -> Raw:
    """A value of Python as GGUF has it."""
    if isinstance(value, Raw):
        return value
    if isinstance(value, bool):
        return Raw(7, struct.pack("<?", value))
    if isinstance(value, int):
        return Raw(4, struct.pack("<I", value))
    if isinstance(value, float):
        return Raw(6, struct.pack("<f", value))
    if isinstance(value, list):
        parts = [raw(item) for item in value]
        kind = parts[0].kind if parts else 4
        return Raw(9, struct.pack("<IQ", kind, len(parts)) + b"".join(part.content for part in parts))
    return Raw(8, text(value if isinstance(value, bytes) else str(value).encode()))


def gguf_bytes(
    keys: Sequence[tuple[bytes, Any]], tensors: Sequence[RawTensor] = (), data: bytes = b"", *, magic: bytes = b"GGUF",
    version: int = 3, counts: tuple[int, int] | None = None,
) -> bytes:  # fmt: skip
    """A whole file."""
    number_of_tensors, number_of_keys = counts or (len(tensors), len(keys))
    head = magic + struct.pack("<IQQ", version, number_of_tensors, number_of_keys)
    for name, value in keys:
        item = raw(value)
        head += text(name) + struct.pack("<I", item.kind) + item.content
    for tensor in tensors:
        axes = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
        head += text(tensor.name) + axes + struct.pack("<IQ", tensor.kind, tensor.offset)
    return head + bytes(-len(head) % 32) + data
