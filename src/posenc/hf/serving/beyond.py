"""What a model does with positions besides its rotary class, of which a measurement of that class says nothing.

Source: vLLM 0.33.0, models/mistral.py, which reads the temperature from a top-level ``llama_4_scaling`` alone, and
    rotary_embedding/dynamic_ntk_scaling_rope.py; SGLang 0.5.23, models/ministral3.py, whose step is
    ``max_position_embeddings``. Read in the released wheels, not run.
"""

from __future__ import annotations

import json

from posenc.frequencies.host import steps_of
from posenc.frequencies.ntk import DynamicNTK
from posenc.hf.config.rope_config import RopeConfig
from posenc.hf.config.rotation import text_rope
from posenc.hf.config.text_config import max_length
from posenc.hf.explanation.layer_facts import model_from_config
from posenc.hf.families.layer_patterns import CHUNKED
from posenc.hf.serving.engines import SGLANG, VLLM, newest, title


def beyond_rotation(config: RopeConfig) -> tuple[str, ...]:
    """Parts of a model's attention that depend on positions and that no rotary class computes, in words."""
    try:
        layers = [layer for layer in model_from_config(config).distinct_layers if layer.attends]
    except ValueError:  # a schedule that is not read, which posenc explain tells
        return ()
    found = {
        "temperature of the queries": any(layer.temperature is not None for layer in layers),
        "attention in chunks": any(layer.kind == CHUNKED for layer in layers),
        "windows": any(layer.window is not None and layer.kind != CHUNKED for layer in layers),
        "layers without rotation": any(layer.spec is None for layer in layers),
        "softmax scale of mscale_all_dim": any(
            rope is not None and config.softmax_factor(kind) != 1 for kind, rope in config.rotations.items()
        ),
        "sparse attention": any(layer.index_topk is not None or layer.not_read for layer in layers),
    }
    return tuple(name for name, is_there in found.items() if is_there)


def engine_notes(config: RopeConfig, engine: str, length: int | None) -> tuple[str, ...]:
    """What an engine is known to do with keys of a config that the rotary class does not read."""
    name, notes = f"{title(engine)} {newest(engine)}", []
    rule = config.text_config.family.attention.temperature
    for block in config.parsed.rope_blocks:
        beta, step = (block.effective.get(key) for key in ("llama_4_scaling_beta", "original_max_position_embeddings"))
        if rule is None or rule.form != "block steps" or not beta or engine not in (VLLM, SGLANG):
            continue
        if engine == VLLM:
            key = json.dumps({"llama_4_scaling": {"original_max_position_embeddings": step, "beta": beta}})
            notes.append(
                f"{name} does not apply the temperature of llama_4_scaling_beta from rope_parameters: add {key[1:-1]} "
                "to the config, outside every block"
            )
        elif max_length(config.text_config) != step:
            declared = max_length(config.text_config)
            notes.append(
                f"{name} computes the step of the temperature from max_position_embeddings ({declared:,} tokens), not "
                f"from {step:,}"
            )
    for rope in config.rotations.values():
        for step in () if rope is None else steps_of(text_rope(rope).scaling):
            within = isinstance(step, DynamicNTK) and length is not None and length < step.original_length
            if within and engine == VLLM:
                notes.append(
                    f"{name} computes its own dynamic NTK wrong below {step.original_length:,} tokens, and no number "
                    f"(NaN) below {round(step.original_length * (1 - 1 / step.factor)):,}: serve the file itself with "
                    f"at least {step.original_length:,}"
                )
    return tuple(dict.fromkeys(notes))
