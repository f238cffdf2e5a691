"""DroPE: drops the rotation of all layers, and trains the model on at its training length (recalibration).

    python -m examples.long_context.drope MODEL OUT --length 65536 --steps 5000 --batch 32 --lr 1e-4 --temperature auto

    q, k                      not rotated in any layer; a gain of the source's scaling goes too
    q, k ← RMSNorm(q, k)      optional, new weights: over all heads together ("full", the authors') or in each ("head")
    logits ← t · logits       optional, after the training: a temperature for lengths beyond the training length

Plain transformers opens the result. Its config keeps the model type, and rope type "longrope" divides each frequency by
`STOPPED`, under which every cosine is 1 and every sine vanishes; the temperature is that block's gain, √t on queries
and on keys. Config keys that list layers without rotation (SmolLM3's no_rope_layers) exist in few families; this block
is read wherever a model has rope types. A norm needs a class that has one:

    "head"    Qwen3         the same block as Llama, Mistral and Qwen2 with a norm in each head
    "full"    OLMoE         the same block with a norm over all heads; its only expert is the feed-forward layer, and a
                            softmax over one expert is 1

Budgets of the authors (cfgs/run_cfg, trainer_cfg/base_trainer.yaml): Llama-2-7B 5,000 steps of 512 × 4,096 tokens, rate
1e-4; with the norm 15,000 steps, rate 3e-4; SmolLM-360M and 1.7B 120,000 steps at 2,048 tokens and SmolLM2-1.7B at
8,192, in batches of 512, rate 3e-4. That is 10 billion tokens at least; a run of millions shows the mechanism only.

Source: Gelberg et al., arXiv 2512.12167; code SakanaAI/DroPE@260a8bb9, custom_models/attention.py.
Checked against: that code on transformers, tests/golden/drope_*.
Departs from the source: the loop of tuning.py (AdamW without decay, rate falling linearly to 0) where
    the authors have a cosine or warm-up-stable-decay schedule. Their code norms queries or keys alone too; no class of
    transformers does. It has no temperature but a field softmax_scale, which its q/k norm reads from another config.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from examples.long_context.command_line import load_and_write, parser_of, recipe_of
from examples.long_context.tuning import Recipe, tune
from torch import Tensor, nn
from transformers import (
    LlamaForCausalLM,
    MistralForCausalLM,
    OlmoeConfig,
    OlmoeForCausalLM,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from posenc.arguments import check_number
from posenc.evaluation.likelihood import evenly_spaced_pieces, token_losses
from posenc.frequencies.longrope import STOPPED
from posenc.frequencies.modules import LongRoPE
from posenc.hf.attach.rotary_modules import RotaryModules
from posenc.rotary.rope import RoPE

QKNorm = Literal["head", "full"]
TEMPERATURES = (1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4)
"""What the temperature "auto" compares. No source gives a rule; the authors' code leaves the number to its config."""
LR = 1e-4
"""The authors' rate for Llama-2-7B; their number of steps is no default, as no small machine could run it."""
_SOURCES = (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM)
_SHARED = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "hidden_act", "max_position_embeddings", "initializer_range", "rms_norm_eps", "use_cache", "tie_word_embeddings",
    "attention_dropout", "pad_token_id", "bos_token_id", "eos_token_id", "rope_parameters", "head_dim",
)  # fmt: skip


def drop(
    model: nn.Module, text: Tensor, length: int, *, recipe: Recipe, work: Path, original_length: int | None = None,
    temperature: float | Literal["auto"] = 1.0, qk_norm: QKNorm | None = None, pieces: int = 2, last: int = 512,
    progress: Callable[[str], None] = print,
) -> RotaryModules:  # fmt: skip
    """Drop the rotation of a model, train it at the original length, and set the temperature.

    Args:
        model: a live causal model of transformers, which is changed in place; under ``qk_norm`` its weights go into
            another class.
        text: tokens to train on.
        length: tokens that the config shall declare.
        recipe: numbers; rows have the original length at most, as no position that is skipped would be read.
        work: folder of the state, from which the same call resumes.
        original_length: tokens; None: as the configuration says.
        temperature: factor on the attention logits after the training; "auto": the one of `TEMPERATURES` with the
            lowest loss at ``length``.
        qk_norm: a norm of queries and keys with new weights.
        pieces, last: texts of ``length`` tokens that "auto" compares by, and the tokens at their ends that are scored.
        progress: is called with a line of text.

    Raises:
        ValueError: for a model whose rotation cannot be dropped, and a text that is too short.
    """
    if qk_norm is not None and recipe.rank:
        raise ValueError("rank: LoRA trains no norms, and the norms that qk_norm adds are new: use rank 0")
    if temperature != "auto":
        check_number("temperature", temperature, above=0)
    rotations = RotaryModules(model if qk_norm is None else with_qk_norm(model, qk_norm))
    original = original_length or rotations.original_length
    if original is None:
        raise ValueError("original_length must be given: the configuration does not say the model's length")
    tried = TEMPERATURES if temperature == "auto" else (temperature,)
    configs = {value: dropped_config(rotations, original, length, value) for value in tried}
    rotations.rebuild(dropped_config(rotations, original, length))
    row = min(recipe.tokens or original, original)
    tuned: Any = tune(rotations.model, text, recipe, row, state=work / "tuned.pt", progress=progress)
    rotations.model = tuned
    best = tried[0]
    if len(configs) > 1:
        losses = {}
        for value, config in configs.items():
            with rotations.temporarily(config):
                of_pieces = [float(token_losses(tuned, piece, last).mean())
                             for piece in evenly_spaced_pieces(text, length, pieces)]  # fmt: skip
            losses[value] = math.fsum(of_pieces) / len(of_pieces)
            progress(f"temperature {value:g}: {losses[value]:.4f} nats")
        best = min(losses, key=losses.__getitem__)
    rotations.rebuild(configs[best])
    return rotations


def dropped_config(
    rotations: RotaryModules, original_length: int, length: int, temperature: float = 1.0
) -> dict[str, Any]:
    """The configuration of a model whose layers do not rotate, for `RotaryModules.rebuild`.

    Args:
        rotations: of the model, which stays as it is.
        original_length: tokens that the model was trained at.
        length: tokens that the config shall declare.
        temperature: factor on the attention logits.

    Raises:
        ValueError: for a temperature other than 1 where a part of each head alone goes through the rotation, whose gain
            would miss the rest.
    """
    ropes: dict[str, RoPE] = {}
    for kind, rope in rotations.ropes.items():
        assert isinstance(rope, RoPE)  # RotaryModules refuses M-RoPE
        if temperature != 1 and (rope.rotary_dim < rope.head_dim or rotations.read.text_config.rotation.latent):
            raise ValueError(
                f"temperature: the rotation of this model acts on {rope.rotary_dim} channels of each head and not on "
                "the others, so that its gain cannot scale the attention logits: use temperature 1"
            )
        factors = (STOPPED,) * (rope.rotary_dim // 2)
        ropes[kind] = rope.replace(
            scaling=LongRoPE(
                factors, factors, original_length=original_length, factor=length / original_length,
                gain=temperature**0.5,
            )
        )  # fmt: skip
    return rotations.config_with(ropes, original_length, length)


def check_qk_norm(model: Any, norm: QKNorm) -> None:
    """Raise a ValueError where no class of transformers has this model's layers with a norm of queries and keys."""
    name, config = type(model).__name__, model.config
    if norm not in get_args(QKNorm):
        raise ValueError(f"qk_norm must be head or full, got {norm!r}")
    if type(model) not in _SOURCES:
        raise ValueError(
            f"qk_norm: transformers has no class with the layers of {name} and a norm of queries and keys; it has one "
            f"for {', '.join(cls.__name__ for cls in _SOURCES)}: use drope without the norm"
        )
    layers = getattr(config, "layer_types", None) or []
    if getattr(config, "mlp_bias", False) or "sliding_attention" in layers or _has_window(config):
        raise ValueError(
            f"qk_norm: this {name} has windows or biases in its feed-forward layers, which the class with a norm has "
            "not: use drope without the norm"
        )
    if norm == "full" and _head_dim(config) * config.num_attention_heads != config.hidden_size:
        raise ValueError(
            f"qk_norm: the heads of this {name} are {_head_dim(config) * config.num_attention_heads} channels wide "
            f"together and its stream {config.hidden_size}; OLMoE's norm over all heads needs both alike: use head"
        )


def with_qk_norm(model: Any, norm: QKNorm) -> nn.Module:
    """A model of the same weights whose queries and keys are normed, in a class of transformers that does so.

    Args:
        model: a Llama, Mistral or Qwen2 for causal language modelling.
        norm: "head" for Qwen3, "full" for OLMoE.

    Raises:
        ValueError: as `check_qk_norm`.
    """
    check_qk_norm(model, norm)
    source = model.config
    values = {key: getattr(source, key) for key in _SHARED if hasattr(source, key)} | {"head_dim": _head_dim(source)}
    biased = any(name.endswith("q_proj.bias") for name, _ in model.named_parameters())
    values |= {"attention_bias": biased, "torch_dtype": next(model.parameters()).dtype}
    config: Any
    if norm == "head":
        config = Qwen3Config(**values, use_sliding_window=False)
    else:
        config = OlmoeConfig(**values, num_experts=1, num_experts_per_tok=1, norm_topk_prob=False, clip_qkv=None)
    config._attn_implementation = source._attn_implementation
    weight = next(model.parameters())
    with torch.device(weight.device):
        normed: Any = (Qwen3ForCausalLM if norm == "head" else OlmoeForCausalLM)(config)
    normed = normed.to(weight.dtype)
    weights = _with_one_expert(model.state_dict()) if norm == "full" else dict(model.state_dict())
    new = {name: tensor for name, tensor in normed.state_dict().items() if name not in weights}
    for name, tensor in new.items():  # norms begin as 1, what else is new (the router, a bias of o_proj) as 0
        weights[name] = torch.ones_like(tensor) if "_norm." in name else torch.zeros_like(tensor)
    normed.load_state_dict(weights)
    for name, parameter in normed.named_parameters():
        parameter.requires_grad_(name not in new or "_norm." in name)
    normed.generation_config = getattr(model, "generation_config", None)
    return normed.train(model.training)  # type: ignore[no-any-return]


def _with_one_expert(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of feed-forward layers under the names of OLMoE's single expert."""
    renamed: dict[str, Tensor] = {}
    for name, weight in weights.items():
        layer, is_gate, _ = name.partition("mlp.gate_proj.")
        if is_gate:
            up = weights[name.replace("gate_proj", "up_proj")]
            renamed[f"{layer}mlp.experts.gate_up_proj"] = torch.cat([weight, up])[None]
        elif "mlp.down_proj." in name:
            renamed[f"{name.partition('mlp.')[0]}mlp.experts.down_proj"] = weight[None]
        elif "mlp.up_proj." not in name:
            renamed[name] = weight
    return renamed


def _head_dim(config: Any) -> int:
    width: int = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return width


def _has_window(config: Any) -> bool:
    return getattr(config, "sliding_window", None) is not None and getattr(config, "use_sliding_window", True)


def main() -> None:
    """The command."""
    parser = parser_of(__doc__)
    parser.add_argument("--temperature", default="1", help="factor on attention logits afterwards, or auto")
    parser.add_argument("--qk-norm", choices=get_args(QKNorm), help="add a norm of queries and keys")
    options = parser.parse_args()
    recipe = recipe_of(options)
    load_and_write(
        options,
        lambda model, text, tokenizer, work, progress: drop(
            model, text, options.length, recipe=recipe if options.lr else replace(recipe, lr=LR), work=work,
            temperature="auto" if options.temperature == "auto" else float(options.temperature),
            original_length=options.original_length, qk_norm=options.qk_norm, pieces=options.pieces, progress=progress,
        ),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
