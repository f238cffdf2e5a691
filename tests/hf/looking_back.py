"""A Llama whose weights are written by hand: it says again what stood `BACK` tokens before, by its rotation alone.

Queries and keys come from a channel that is the same for all tokens. A query holds the angles of `BACK` tokens under
the base that the weights are made for, so that its score is greatest there; under any other base it is not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from posenc.hf.modeling.export import byte_tokenizer

BACK, LETTERS, HEAD = 17, 16, 32
FIRST = ord("a")


def looking_back(base: float = 5e5, sharp: float = 20.0, **changes: Any) -> LlamaForCausalLM:
    """The model; ``sharp`` is how much more it looks there than elsewhere."""
    sizes = {"vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    block = {"rope_type": "default", "rope_theta": base}
    known = {"intermediate_size": 8, "max_position_embeddings": 256, "rope_parameters": block, **sizes, **changes}
    model = LlamaForCausalLM(LlamaConfig(**known)).eval()
    angles = (BACK - 1) * base ** -(torch.arange(HEAD // 2) / (HEAD // 2))  # the next token stands one further
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_() if weight.ndim > 1 else weight.fill_(1.0)
        model.model.embed_tokens.weight[:, 0] = 1.0
        letters = torch.arange(LETTERS)
        model.model.embed_tokens.weight[FIRST + letters, 1 + letters] = 1.0
        attention = model.model.layers[0].self_attn
        for head in range(2):
            rows = slice(head * HEAD, head * HEAD + HEAD // 2), slice(head * HEAD + HEAD // 2, (head + 1) * HEAD)
            size = sharp**0.5 / 4
            attention.k_proj.weight[rows[0], 0] = size
            attention.q_proj.weight[rows[0], 0] = size * torch.cos(angles)
            attention.q_proj.weight[rows[1], 0] = -size * torch.sin(angles)
        attention.v_proj.weight[letters, 1 + letters] = 1.0
        attention.o_proj.weight[1 + LETTERS + letters, letters] = 1.0
        model.lm_head.weight[FIRST + letters, 1 + LETTERS + letters] = 1.0
    return model


def text(tokens: int = 1600) -> Tensor:
    """Letters of which each stood `BACK` tokens before, but for one in twenty."""
    source = torch.Generator().manual_seed(2)
    result = torch.randint(FIRST, FIRST + LETTERS, (tokens,), generator=source)
    again = torch.rand(tokens, generator=source) < 0.95
    for place in range(BACK, tokens):
        result[place] = result[place - BACK] if again[place] else result[place]
    return result


def saved(model: LlamaForCausalLM, folder: Path) -> Path:
    """The model with its tokenizer in a folder."""
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder
