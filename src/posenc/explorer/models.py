"""Configurations as the page shows them, and what it has to know to read a pasted one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from posenc.hf import RopeConfig, facts, read_rope
from posenc.hf.config.rope_keys import ALIASES, FREE, REFUSED_KEYS, TYPES, section_keys
from posenc.hf.config.rotation import Rotation, text_rope
from posenc.hf.explanation.report import ORDERS, has
from posenc.hf.families import ROTARY, ROTATIONS, Family, RotationRules
from posenc.hf.sources.load import Config, Source
from posenc.hf.sources.presets import preset
from posenc.input_files import UnreadableFileError

Facts = dict[str, Any]
COMMAND = "posenc doctor"  # which judges what the page does not
_LLAMA, _DEFAULTS = ROTARY["llama"], RotationRules()
_MAY_DIFFER = (  # between families that are read alike
    "base", "share", "default_share", "layout", "block", "original", "head_dim", "sections", "order",
    "rope_types",
)  # fmt: skip
_STRANGE = (  # keys that change what layers do, whatever the family
    "alibi", "position_embedding_type", "qk_rope_head_dim", "kv_channels", "no_rope_layers", "no_rope_layer_interval",
    "per_layer_config", "attention_chunk_size", "rope_local_base_freq", "global_head_dim", "rope_interleave",
)  # fmt: skip
EXAMPLES: dict[str, Config] = {  # with what their config.json says of layers
    "SmolLM2-135M": {
        "model_type": "llama", "hidden_size": 576, "num_attention_heads": 9, "num_hidden_layers": 30,
        "max_position_embeddings": 8192, "rope_theta": 100_000,
    },
    "Llama-3.1-8B": {**preset("llama-3.1"), "num_hidden_layers": 32, "num_attention_heads": 32},
    "gpt-oss-20b": {**preset("gpt-oss"), "num_hidden_layers": 24, "num_attention_heads": 64, "sliding_window": 128},
    "gemma-3-1b": {**preset("gemma-3"), "num_hidden_layers": 26, "num_attention_heads": 4, "sliding_window": 512},
    "Qwen2.5-7B with YaRN": {**preset("qwen2.5-yarn"), "num_hidden_layers": 28, "num_attention_heads": 28},
    "DeepSeek-V3": {**preset("deepseek-v3"), "num_hidden_layers": 61, "num_attention_heads": 128},
}  # fmt: skip


def models_of(paths: list[Path]) -> list[Facts]:
    """The requested configurations, then the examples.

    Raises:
        OSError, ValueError: for a path that cannot be read. A configuration that cannot be understood is told with its
            error.
    """
    requested = [_model(_short(path), path) for path in paths]
    return requested + [_model(name, config) for name, config in EXAMPLES.items()]


def _short(path: Path) -> str:
    """The end of a path that names it: the folder of a config.json, or the file."""
    resolved = path.resolve()
    return (
        resolved.name
        if resolved.is_dir() or resolved.name != "config.json"
        else f"{resolved.parent.name}/{resolved.name}"
    )


def _model(name: str, source: Source) -> Facts:
    try:
        config = read_rope(source)
        all_facts = facts(config)
    except UnreadableFileError:
        raise
    except ValueError as error:
        return {"name": name, "error": str(error), "kinds": {}, "schedule": [], "layers": [], "findings": []}
    kinds = all_facts["schedule"]["kinds"]
    numbers = {layer: index for index, kind in enumerate(kinds) for layer in kind["layers"]}
    several = len({kind["base"] for kind in kinds} - {None}) > 1
    problem = all_facts["schedule"]["problem"]
    findings = [{key: finding[key] for key in ("key", "text", "level")} for finding in all_facts["findings"]]
    findings += (
        [] if problem is None else [{"key": "layers", "text": f"cannot be read: {problem}", "level": "suspicion"}]
    )
    findings += [
        {"key": "position scheme", "text": encoding["text"], "level": "note"} for encoding in all_facts["encodings"]
    ]
    return {
        "name": name,
        "error": None,
        "kinds": {
            kind: _kind(config, rope, all_facts["layers"][kind])
            for kind, rope in config.layers.items()
            if rope is not None
        },
        "schedule": [f"{kind['kind'].replace('_', ' ')}: {', '.join(has(kind, several=several))}" for kind in kinds],
        "layers": [numbers[layer] for layer in sorted(numbers)],
        "findings": findings,
    }


def _kind(config: RopeConfig, rotation: Rotation, layer: Facts) -> Facts:
    """Spectra and facts; of a rotation with a spectrum for each head, the last head's."""
    rope = text_rope(rotation)
    unscaled = rope.replace(scaling=None).spectrum()
    scaled = rope.spectrum(layer["longest_length"])
    theta = scaled.theta.reshape(-1, scaled.theta.shape[-1])[-1]
    return {
        "unscaled": unscaled.theta.tolist(),
        "scaled": theta.tolist(),
        "gain": layer["gain"],
        "trained": config.facts.trained(rope),
        "longest": layer["longest_length"],
        "facts": _facts(layer),
    }


def _facts(layer: Facts) -> list[tuple[str, str]]:
    sections = layer["sections"]
    axes = [] if sections is None else [("sections", f"{ORDERS[sections['order']]}; in text all three are the same")]
    softmax = [] if layer["softmax_factor"] == 1 else [("softmax scale", f"times {layer['softmax_factor']:.6g}")]
    slow, rotated = layer["pairs_without_full_rotation"], layer["rotating_pairs"]
    return [
        (
            "rotates",
            f"{layer['rotary_dim']} of {layer['head_dim']} channels, {layer['layout']}: {rotated} pairs",
        ),
        *axes,
        ("base", f"{layer['base']:,.6g}"),
        ("scaling", layer["scaling"] or "none"),
        ("training length", _tokens(layer["trained_length"])),
        *([] if layer["window"] is None else [("window", _tokens(layer["window"]))]),
        ("declared length", _tokens(layer["longest_length"])),
        ("without a full rotation", "unknown" if slow is None else f"{slow} of {rotated} pairs"),
        ("gain", f"{layer['gain']:.6g} on queries and keys, {layer['logit_factor']:.6g} on a logit"),
        *softmax,
        ("depends on the length", "yes" if layer["length_dependent"] else "no"),
    ]


def _tokens(length: int | None) -> str:
    return "not given" if length is None else f"{length:,} tokens"


def forms() -> dict[str, Any]:
    """Plain values for the page: ``types`` of a block, and ``families`` whose configurations it can read."""
    return {
        "command": COMMAND,
        "types": {name: {"required": kind.required, "optional": kind.optional} for name, kind in TYPES.items()},
        "free": FREE,
        "aliases": ALIASES,
        "strange": [*_STRANGE, *REFUSED_KEYS],
        "llama": _family_facts(ROTARY["llama"]),
        "families": {name: _family_facts(family) for name, family in ROTARY.items() if _read_alike(ROTATIONS[name])},
    }


def _read_alike(rotation: RotationRules) -> bool:
    decides = (field.name for field in fields(RotationRules) if field.name not in _MAY_DIFFER)
    return all(getattr(rotation, name) == getattr(_DEFAULTS, name) for name in decides)


def _family_facts(family: Family) -> dict[str, Any]:
    rotation = family.rotation or _DEFAULTS
    block: Mapping[str, Any] = rotation.block or {}
    return {
        "base": rotation.base,
        "share": rotation.share,
        "layout": rotation.layout,
        "original": rotation.original,
        "head_dim": rotation.head_dim,
        "block": {**section_keys(rotation), **block},
        "ropeTypes": rotation.rope_types,  # none: all
        # every layer attends to all of the past, unless a config lists kinds
        "uniform": (family.layers, family.attention) == (_LLAMA.layers, _LLAMA.attention),
    }
