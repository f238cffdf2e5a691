"""Rope types that transformers does not have, by the scalings that do the same: vLLM's and SGLang's, and ``alpha``.

    ntk                     theta_j / exp(a (j + 1)^b),  a = ln(factor) / pairs^b,  b = mixed_b, or else 1 (vLLM)
    dynamic with alpha      the frequencies of base · alpha^(d/(d−2)): Hunyuan, in every convention
    dynamic with factor f   computed once. SGLang: the same with f² − f + 1 for alpha, for f times the length.
                            vLLM: with f L/M − (f − 1), L max_position_embeddings and M max_trained_positions; M is L
                            where it is missing, and then nothing changes
    deepseek_yarn           yarn, where mscale_all_dim is 0 unless it is given
    deepseek_llama_scaling  the same on rotated q and k; the softmax keeps its scale (vLLM)

Without mixed_b vLLM writes "ntk" as a base factor times larger over factor^(2/d), which is b = 1. SGLang multiplies the
gain of deepseek_yarn by attn_factor and reads extrapolation_factor; vLLM reads neither.
Source: transformers 5.23, modeling_hunyuan_v1_dense.py; vLLM 0.33, layers/rotary_embedding (ntk_scaling_rope.py,
    dynamic_ntk_alpha_rope.py, dynamic_ntk_scaling_rope.py, deepseek_scaling_rope.py); SGLang 0.5.23, its factory.py.
"""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from posenc.frequencies.longrope import LongRoPE
from posenc.frequencies.ntk import NTKAware
from posenc.frequencies.yarn import YaRN, mscale_gain
from posenc.hf.schema import ENGINES, OF_ENGINES, TRAINED, VLLM, WITH_ALPHA, Block


def of_an_engine(values: Block, convention: str) -> bool:
    """Whether a block's rope type is none of transformers, or one that engines understand otherwise."""
    rope_type = values.get("rope_type", "default")
    return rope_type == WITH_ALPHA or rope_type in OF_ENGINES or (rope_type == "dynamic" and convention in ENGINES)


def engine_scaling(values: Block, longest: int | None, pairs: int, convention: str) -> nn.Module | None:
    """The scaling of a checked block.

    Args:
        values: of the block, with what holds where it is silent.
        longest: ``max_position_embeddings``.
        pairs: that turn.
        convention: whose reading.
    """
    rope_type: str = values["rope_type"]
    if rope_type == WITH_ALPHA:
        return NTKAware(values["alpha"])
    factor: float = values["factor"]
    if rope_type == "dynamic" and convention == "vllm":
        longer = 1.0 if longest is None else longest / values.get(TRAINED, longest)
        larger = factor * longer - (factor - 1)
        return NTKAware(larger) if larger > 1 else None
    if rope_type == "dynamic":
        return NTKAware(factor * factor - factor + 1)
    if rope_type == "ntk":
        assert longest is not None
        power = values.get("mixed_b", 1.0)
        factors = [math.exp(math.log(factor) * ((pair + 1) / pairs) ** power) for pair in range(pairs)]
        return LongRoPE(factors, factors, original_length=longest, factor=1.0, gain=1.0)
    given: dict[str, Any] = {
        key: values[key]
        for key in ("beta_fast", "beta_slow", "extrapolation_factor", "attn_factor", "mscale", "mscale_all_dim")
        if key in values and not (convention == "vllm" and key in VLLM)
    }
    if "mscale" not in given or "mscale_all_dim" not in given:  # DeepSeek's own code: 1 and 0 for a missing one
        scale, all_dim = given.get("mscale", 1.0), given.get("mscale_all_dim", 0.0)
        given["attention_factor"] = (
            given.get("attn_factor", 1.0) * mscale_gain(factor, scale) / mscale_gain(factor, all_dim)
        )
    yarn = YaRN(factor, original_length=values["original_max_position_embeddings"], **given)
    if rope_type == "deepseek_yarn":
        return yarn
    kept = {key: value for key, value in given.items() if not key.startswith(("mscale", "att"))}
    return YaRN(factor, original_length=yarn.original_length, attention_factor=yarn.gain, **kept)
