"""The lab's decoder as a model of transformers, parameter by parameter."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

import posenc
from posenc.hf.modeling import PosencConfig, PosencForCausalLM
from posenc.lab.model import VOCABULARY, Block, Decoder
from posenc.lab.specs import names
from posenc.lab.text.profiles import Settings


def to_transformers(decoder: Decoder, spec: str, settings: Settings) -> PosencForCausalLM:
    """A model with the same parameters, and so the same logits.

    Args:
        decoder: a trained one.
        spec: its encodings, all of the catalogue.
        settings: what it was trained with.
    """
    config = PosencConfig(
        vocab_size=VOCABULARY, hidden_size=settings.dim, intermediate_size=settings.hidden,
        num_hidden_layers=settings.layers, num_attention_heads=settings.heads,
        encodings=[{"name": name} for name in names(spec)], train_length=settings.train_length,
        rms_norm_eps=decoder.norm.eps, posenc_version=posenc.__version__,
    )  # fmt: skip
    model = PosencForCausalLM(config)
    model.eval()
    moved: set[int] = set()
    for source, target in _pairs(decoder, model):
        target.load_state_dict(source.state_dict())
        moved.update(map(id, target.parameters()))
    if moved != set(map(id, model.parameters())):
        raise AssertionError(f"{spec}: some parameters have no counterpart in the lab's model")
    return model


@torch.no_grad()
def largest_difference(decoder: Decoder, model: nn.Module, settings: Settings) -> tuple[float, float]:
    """Of the logits of both on bytes drawn at random, up to the trained length; and the largest logit."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(VOCABULARY, (4, settings.train_length), generator=generator)
    wanted, found = decoder(tokens), model(tokens, use_cache=False).logits
    return (wanted - found).abs().max().item(), wanted.abs().max().item()


def _pairs(decoder: Decoder, model: PosencForCausalLM) -> Iterator[tuple[nn.Module, nn.Module]]:
    """Modules of both that hold the same parameters under the same names; shared ones come once a layer."""
    body = model.model
    yield decoder.embed, body.embed_tokens
    yield from zip(decoder.embedding_encodings, body.embedding_encodings(), strict=True)
    yield decoder.norm, body.norm
    yield decoder.head, model.lm_head
    for block, layer in zip(decoder.blocks, body.decoder_layers(), strict=True):
        if not isinstance(block, Block):
            raise AssertionError(f"{type(block).__name__} is no layer of the lab's model")
        yield block.attention_norm, layer.input_layernorm
        yield block.mlp_norm, layer.post_attention_layernorm
        for ours, theirs in (("gate", "gate_proj"), ("value", "up_proj"), ("out", "down_proj")):
            yield block.mlp.get_submodule(ours), layer.mlp.get_submodule(theirs)
        for projection in ("q_proj", "k_proj", "v_proj", "o_proj"):
            yield block.attention.get_submodule(projection), layer.self_attn.get_submodule(projection)
        yield from zip(block.attention.encodings, layer.self_attn.in_order(), strict=True)
