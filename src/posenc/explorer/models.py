"""Configurations as the page shows them: the spectra of each kind of layers, the layer map, facts in words, remarks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from posenc.hf import RopeConfig, facts, read_rope
from posenc.hf.config.rotation import Rotation, text_rope
from posenc.hf.explanation.describe import has
from posenc.hf.explanation.report import ORDERS, trained_length
from posenc.hf.sources.load import Config, Source
from posenc.hf.sources.presets import preset
from posenc.input_files import UnreadableFileError

Told = dict[str, Any]
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


def models_of(paths: list[Path]) -> list[Told]:
    """What was asked for, then the examples.

    Raises:
        OSError, ValueError: for a path that cannot be read. A configuration that cannot be understood is told with its
            error.
    """
    given = [_model(_short(path), path) for path in paths]
    return given + [_model(name, config) for name, config in EXAMPLES.items()]


def _short(path: Path) -> str:
    """The end of a path that names it: the folder of a config.json, or the file."""
    whole = path.resolve()
    return whole.name if whole.is_dir() or whole.name != "config.json" else f"{whole.parent.name}/{whole.name}"


def _model(name: str, source: Source) -> Told:
    try:
        config = read_rope(source)
        told = facts(config)
    except UnreadableFileError:
        raise
    except ValueError as error:
        return {"name": name, "error": str(error), "kinds": {}, "schedule": [], "layers": [], "remarks": []}
    kinds = told["schedule"]["kinds"]
    numbers = {layer: index for index, kind in enumerate(kinds) for layer in kind["layers"]}
    several = len({kind["base"] for kind in kinds} - {None}) > 1
    problem = told["schedule"]["problem"]
    remarks = [{key: remark[key] for key in ("key", "text", "level")} for remark in told["remarks"]]
    remarks += [] if problem is None else [{"key": "layers", "text": f"are not told: {problem}", "level": "suspicion"}]
    remarks += [{"key": "instead", "text": one["text"], "level": "note"} for one in told["encodings"]]
    return {
        "name": name,
        "error": None,
        "kinds": {
            kind: _kind(config, rope, told["layers"][kind]) for kind, rope in config.layers.items() if rope is not None
        },
        "schedule": [f"{kind['kind'].replace('_', ' ')}: {', '.join(has(kind, several=several))}" for kind in kinds],
        "layers": [numbers[layer] for layer in sorted(numbers)],
        "remarks": remarks,
    }


def _kind(config: RopeConfig, rotation: Rotation, found: Told) -> Told:
    """Spectra and facts; of a rotation with a spectrum for each head, the last head's."""
    rope = text_rope(rotation)
    plain = rope.replace(scaling=None).spectrum()
    scaled = rope.spectrum(found["longest_length"])
    theta = scaled.theta.reshape(-1, scaled.theta.shape[-1])[-1]
    return {
        "plain": plain.theta.tolist(),
        "scaled": theta.tolist(),
        "gain": found["gain"],
        "trained": trained_length(config, rope),
        "longest": found["longest_length"],
        "facts": _facts(found),
    }


def _facts(found: Told) -> list[tuple[str, str]]:
    sections = found["sections"]
    axes = [] if sections is None else [("sections", f"{ORDERS[sections['order']]}; in text all three are the same")]
    softmax = [] if found["softmax_factor"] == 1 else [("softmax scale", f"times {found['softmax_factor']:.6g}")]
    slow, turning = found["pairs_without_full_rotation"], found["rotating_pairs"]
    return [
        ("turns", f"{found['rotary_dim']} of {found['head_dim']} channels, {found['layout']}: {turning} pairs"),
        *axes,
        ("base", f"{found['base']:,.6g}"),
        ("scaling", found["scaling"] or "none"),
        ("trained at", _tokens(found["trained_length"])),
        *([] if found["window"] is None else [("window", _tokens(found["window"]))]),
        ("meant for", _tokens(found["longest_length"])),
        ("never complete a turn", "not known" if slow is None else f"{slow} of {turning} pairs"),
        ("gain", f"{found['gain']:.6g} on queries and keys, {found['logit_factor']:.6g} on a logit"),
        *softmax,
        ("depends on the length", "yes" if found["length_dependent"] else "no"),
    ]


def _tokens(length: int | None) -> str:
    return "not given" if length is None else f"{length:,} tokens"
