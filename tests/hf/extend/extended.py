"""A small model and a text for extensions, and what is asked of them in a few seconds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from posenc.hf.modeling.export import byte_tokenizer
from posenc.search import Settings
from tests.hf.attach.smallest import built, randomize

TRAINED, TARGET = 64, 112
FEW = Settings(population=4, mutations=1, crossovers=1, parents=2, generations=1)


def small(name: str = "llama", **changes: Any) -> Any:
    """A decoder of two layers that reads bytes, with weights that make its scores matter."""
    config = built(name, num_hidden_layers=2, max_position_embeddings=TRAINED, vocab_size=256, **changes).config
    config._attn_implementation = "sdpa"  # as from_pretrained takes it
    config.pad_token_id = config.bos_token_id = config.eos_token_id = 0
    model = AutoModelForCausalLM.from_config(config).eval()
    randomize(model)
    return model


def text(count: int = 700) -> Tensor:
    """Tokens without any sense."""
    return torch.randint(1, 256, (count,), generator=torch.Generator().manual_seed(1))


def request(**changes: Any) -> dict[str, Any]:
    """Arguments that make an extension a matter of seconds."""
    return {"text": text(), "windows": 2, "lengths": [TARGET], "search": FEW, "pieces": 1, **changes}


def saved(folder: Any, model: Any, **options: Any) -> None:
    """A checkpoint with a tokenizer of bytes."""
    model.save_pretrained(folder, **options)
    byte_tokenizer().save_pretrained(folder)
