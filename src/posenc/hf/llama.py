"""A model of posenc with RoPE alone, as the Llama that it is: no posenc is needed to run it."""

from __future__ import annotations

from typing import Any

from transformers import LlamaConfig, LlamaForCausalLM

from posenc.arguments import shown
from posenc.hf.compose import rope_to_config
from posenc.hf.modeling import PosencForCausalLM
from posenc.rotary.rope import RoPE


def plain_llama(model: PosencForCausalLM) -> LlamaForCausalLM:
    """The same logits from transformers' own Llama.

    Args:
        model: one whose only encoding is RoPE, with any scaling that a rope type of transformers can express.

    Raises:
        ValueError: where Llama cannot express the model; it says what stands in the way.
    """
    if not isinstance(model, PosencForCausalLM):
        raise ValueError(f"model must be a PosencForCausalLM, got {shown(model)}")
    c = model.config
    if c.qk_norm:
        raise ValueError("qk_norm: Llama does not normalise queries and keys, so this model is none")
    rope = _rope_of(model)
    config = LlamaConfig(
        vocab_size=c.vocab_size, hidden_size=c.hidden_size, intermediate_size=c.intermediate_size,
        num_hidden_layers=c.num_hidden_layers, num_attention_heads=c.num_attention_heads,
        num_key_value_heads=c.num_key_value_heads, rms_norm_eps=c.rms_norm_eps, attention_bias=c.attention_bias,
        max_position_embeddings=c.max_position_embeddings, initializer_range=c.initializer_range,
        tie_word_embeddings=c.tie_word_embeddings, bos_token_id=None, eos_token_id=None, use_cache=c.use_cache,
        **_written(rope, c.train_length),
    )  # fmt: skip
    llama = LlamaForCausalLM(config).to(model.device, model.dtype)
    llama.load_state_dict(model.state_dict())
    return llama.train(model.training)


def _rope_of(model: PosencForCausalLM) -> RoPE:
    lines = model.config.lines()
    names = "+".join(line["name"] for line in lines) or "nope"
    only = model.config.create(lines[0]) if len(lines) == 1 else None
    if not isinstance(only, RoPE):
        raise ValueError(f"encodings: Llama tells tokens apart by RoPE alone, and this model has {names}")
    if not only.fixed():
        raise ValueError(
            f"encodings: the frequencies of {names} depend on the length of a text, and Llama keeps keys that were "
            "rotated for a shorter one: it would not decode what this model does"
        )
    return only


def _written(rope: RoPE, train_length: int) -> dict[str, Any]:
    """The keys of a configuration; frequencies that have no rope type of their own go in as LongRoPE's factors."""
    try:
        keys = rope_to_config(rope, model_type="llama")
    except ValueError as error:
        try:
            keys = rope_to_config(rope, model_type="llama", as_longrope=True, original_length=train_length)
        except ValueError as reason:
            raise ValueError(f"encodings: Llama cannot turn like this model: {reason}") from error
    return {key: value for key, value in keys.items() if key not in ("model_type", "max_position_embeddings")}
