"""Tiny checkpoints for engines that run whole models: any model type of transformers, random weights, a tokenizer.

Weights are float32 and follow from their names' order and one seed. Queries and keys are twice as large as usual, so
that a wrong rotation changes the logits by much more than rounding does.
"""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import torch
from benchmarks.engines.cases import TOKENS
from torch import Tensor

_SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def build_model(config: dict[str, Any]) -> Any:
    """A causal language model of transformers with random weights, the same for configs of the same sizes."""
    from transformers import AutoConfig, AutoModelForCausalLM

    model_config = AutoConfig.for_model(**{**copy.deepcopy(config), **_SPECIAL})
    model = AutoModelForCausalLM.from_config(model_config, attn_implementation="eager").eval().float()
    draw = torch.Generator().manual_seed(2)
    for name, weight in model.named_parameters():
        if "norm" not in name:
            sharp = 2.0 if any(part in name for part in ("q_proj", "k_proj", "qkv_proj")) else 1.0
            weight.data = torch.randn(weight.shape, generator=draw) * sharp / math.sqrt(weight.shape[-1])
    return model


def text(length: int) -> Tensor:
    """Token ids of a fixed text, (1, length)."""
    return torch.randint(3, TOKENS, (1, length), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def logits(model: Any, ids: Tensor, positions: tuple[int, ...]) -> Tensor:
    """Logits at some positions, (positions, vocabulary)."""
    output: Tensor = model(ids, use_cache=False).logits[0, list(positions)]
    return output.float()


def save(model: Any, folder: Path, config: dict[str, Any]) -> None:
    """Write weights and a byte tokenizer, and ``config`` as it is, to which only what engines ask for is added."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from posenc.hf.byte_level import byte_letters

    model.save_pretrained(folder)
    letters = list(byte_letters())
    known = {"<pad>": 0, "<s>": 1, "</s>": 2, **{letter: 3 + place for place, letter in enumerate(letters)}}
    merges = [(letter, "e") for letter in letters[33 : 33 + TOKENS - len(known)]]
    known |= {first + second: len(known) + place for place, (first, second) in enumerate(merges)}
    tokenizer = Tokenizer(models.BPE(known, merges))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    ).save_pretrained(folder)
    saved = json.loads((folder / "config.json").read_text())
    for key in ("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor", "rope_local_base_freq"):
        saved.pop(key, None)
    (folder / "config.json").write_text(json.dumps({**saved, **config, "dtype": "float32", "torch_dtype": "float32"}))
