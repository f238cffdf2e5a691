"""What a model does with positions besides its rotary class, of which a measurement of that class says nothing."""

from __future__ import annotations

from collections.abc import Iterator

from posenc.hf.config.rope_config import RopeConfig, model_from_config
from posenc.hf.families.family import CHUNKED


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


def steps_of_temperature(config: RopeConfig) -> Iterator[tuple[float, int]]:
    """Of each block whose temperature of the queries grows in steps: its beta, and the step in tokens."""
    rule = config.text_config.family.attention.temperature
    for block in config.facts.blocks:
        beta, step = (block.effective.get(key) for key in ("llama_4_scaling_beta", "original_max_position_embeddings"))
        if rule is not None and rule.form == "block steps" and beta and step:
            yield float(beta), int(step)
