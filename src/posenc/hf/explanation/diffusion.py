"""What a transformer of diffusers does with positions, in numbers and words: `posenc explain` on its config.json.

Reads the file by the class that it names (``_class_name``); of a whole pipeline, in a folder or on the Hub, its
transformers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from posenc.arguments import shown
from posenc.hf.families.diffusion import DIFFUSION, DiffusionFamily
from posenc.hf.sources.hub import local_source
from posenc.hf.sources.load import load
from posenc.hf.sources.pipeline import transformer_configs

Facts = dict[str, Any]
_GROWING = ("ltx", "ltx-2")  # whose frequencies grow, over the width of all heads


class Transformer(NamedTuple):
    """A transformer of diffusers, as `posenc explain` reads it.

    Attributes:
        config: its configuration.
        siblings: the further transformers of its pipeline by the names of their parts.
    """

    config: Mapping[str, Any]
    siblings: Mapping[str, Mapping[str, Any]]


def diffusion_config(source: str | Path) -> Transformer | None:
    """The transformer of diffusers in a file or a folder, or on the Hub; None for anything else, read elsewhere.

    Raises:
        ValueError: for a pipeline without a transformer.
        OSError: for a pipeline whose transformer has no config.json.
    """
    path = local_source(source)
    if path.is_dir() and not (path / "config.json").exists():
        configs = {name: load(config) for name, config in transformer_configs(path).items()}
        if not configs:
            return None
        main = next(iter(configs))
        return Transformer(configs.pop(main), configs)
    path = path / "config.json" if path.is_dir() else path
    if not path.exists() or path.suffix != ".json":
        return None
    config = load(path)
    return Transformer(config, {}) if "_class_name" in config and "model_type" not in config else None


def diffusion_facts(config: Mapping[str, Any], siblings: Mapping[str, Mapping[str, Any]] | None = None) -> Facts:
    """All facts as plain values, ready for JSON.

    Args:
        config: of the transformer.
        siblings: further transformers of its pipeline; "same" tells of each whether all its facts are these.

    Raises:
        ValueError: for a class that is not known, and for keys that do not have the form of its constructor.
    """
    facts = _facts(config)
    if not siblings:
        return facts
    return {**facts, "siblings": {name: {"same": _facts(other) == facts} for name, other in siblings.items()}}


def _facts(config: Mapping[str, Any]) -> Facts:
    name = config.get("_class_name")
    if not isinstance(name, str) or name not in DIFFUSION:
        raise ValueError(
            f"_class_name must be one of {', '.join(sorted(DIFFUSION))}, as diffusers 0.42 has them; got {shown(name)}"
        )
    family = DIFFUSION[name]
    filled = family.filled(config)
    facts: Facts = {"class": name, "preset": family.preset, "attaches": family.attaches}
    if family.learned:
        return {**facts, "rotation": None, "instead": family.learned, "findings": []}
    if reason := family.adds(filled):
        return {**facts, "rotation": None, "instead": reason, "attaches": False, "findings": []}
    widths, bases = _numbers(family, filled)
    preset = family.preset
    if preset == "cogvideox" and filled.get("patch_size_t"):
        preset = "cogvideox-1.5"
    if preset == "qwen-image" and filled.get("use_layer3d_rope"):
        preset = "qwen-image-layered"
    axes = [
        {"axis": axis, "channels": width, "base": base, "wavelengths": _wavelengths(family.preset, width, base)}
        for axis, width, base in zip(family.axes, widths, bases, strict=True)
    ]
    rotation = {"layout": family.layout, "axes": axes, "positions": family.positions}
    notes = [note.format(**filled) for note in family.notes]
    call = _call(family.preset, widths, bases, filled, family.layout)
    finding = _finding(widths, filled, family.preset)
    findings = [finding] if finding else []
    return {**facts, "preset": preset, "rotation": rotation, "notes": notes, "posenc": call, "findings": findings}


def _numbers(family: DiffusionFamily, filled: Mapping[str, Any]) -> tuple[list[int], list[float]]:
    """Channels and base of each axis, checked."""
    try:
        widths, bases = list(family.widths(filled)), list(family.bases(filled))
    except (TypeError, KeyError, ValueError, ZeroDivisionError) as error:
        raise ValueError(f"{shown(dict(filled))} has no sizes of this class: {error!r}") from error
    valid = all(isinstance(width, int) and not isinstance(width, bool) and width >= 2 for width in widths)
    if not valid or len(widths) != len(family.axes) or any(width % 2 for width in widths):
        raise ValueError(f"channels must be even, one number for each of {len(family.axes)} axes, got {shown(widths)}")
    bases = bases * len(widths) if len(bases) == 1 else bases
    if len(bases) != len(widths) or not all(math.isfinite(base) and base > 1 for base in bases):
        raise ValueError(f"bases must be numbers above 1, got {shown(bases)}")
    return widths, bases


def _wavelengths(preset: str, width: int, base: float) -> tuple[float, float]:
    """The shortest and the longest, in units of a coordinate."""
    pairs = width // 2
    if preset in _GROWING:
        return 4 / base, 4.0
    if preset == "ideogram-4":  # one list for all axes, of which rows and columns have the fast pairs
        return 2 * math.pi, 2 * math.pi * base
    return 2 * math.pi, 2 * math.pi * base ** ((pairs - 1) / pairs)


def _call(preset: str, widths: Sequence[int], bases: Sequence[float], filled: Mapping[str, Any], layout: str) -> str:
    """The encoding as a call of posenc."""
    if preset == "ideogram-4":
        sections = tuple(width // 2 for width in widths)
        return f"MRoPE({filled['attention_head_dim']}, sections={sections}, interleaved=True, base={bases[0]:g})"
    if preset in _GROWING:
        return f"AxialRoPE({filled['num_attention_heads'] * filled['attention_head_dim']}, axes=3, convention='ltx')"
    base = "" if set(bases) == {10_000.0} else f", base={bases[0]:g}"
    if len(set(bases)) > 1:
        base = f", base={tuple(bases)}"
    if preset in ("hunyuan-dit", "lumina-next"):
        convention = "sam-2" if preset == "hunyuan-dit" else preset
        return f"AxialRoPE({sum(widths)}, convention={convention!r}{base})"
    head_dim = filled.get("attention_head_dim", sum(widths)) if preset == "minimax-h3" else sum(widths)
    options = base + (", layout='half'" if layout == "half" else "")
    options += f", rotary_dim={sum(widths)}" if head_dim != sum(widths) else ""
    return f"AxialRoPE({head_dim}, axes_dims={tuple(widths)}{options})"


def _finding(widths: Sequence[int], filled: Mapping[str, Any], preset: str) -> str | None:
    """That the axes do not fill the head, where the model needs that."""
    head_dim = filled.get("attention_head_dim")
    if preset in (*_GROWING, "minimax-h3") or head_dim is None or sum(widths) == head_dim:
        return None
    return f"the axes have {sum(widths)} channels in all, a head has {head_dim}: the model cannot rotate its queries"


def diffusion_text(config: Mapping[str, Any], siblings: Mapping[str, Mapping[str, Any]] | None = None) -> str:
    """The facts in words; see `diffusion_facts`."""
    facts = diffusion_facts(config, siblings)
    lines = [f"{facts['class']} (diffusers)"]
    if facts["rotation"] is None:
        lines.append(f"  {facts['instead']}")
    else:
        lines += _rotation_lines(facts)
    if facts["attaches"]:
        lines.append("larger pictures, longer videos: posenc.diffusers.attach(transformer, scaling=…)")
    for name, other in facts.get("siblings", {}).items():
        lines.append(
            f"{name}: " + ("the same" if other["same"] else f"different; posenc explain FOLDER/{name} shows it")
        )
    return "\n".join(lines)


def _rotation_lines(facts: Facts) -> list[str]:
    rotation = facts["rotation"]
    lines = [f"  axial RoPE, {rotation['layout']}, the same in every block", f"  positions: {rotation['positions']}"]
    for axis in rotation["axes"]:
        shortest, longest = axis["wavelengths"]
        lines.append(
            f"  {axis['axis']}: {axis['channels']} channels, base {axis['base']:,.6g}, "
            f"wavelengths {shortest:,.3g} to {longest:,.5g}"
        )
    lines += [f"  {note}" for note in facts["notes"]]
    lines += [f"fault: {finding}" for finding in facts["findings"]]
    lines.append(f"posenc: {facts['posenc']}; with positions: posenc.presets.preset({facts['preset']!r}, parts)")
    return lines


def diffusion_json(config: Mapping[str, Any], siblings: Mapping[str, Mapping[str, Any]] | None = None) -> str:
    """The facts as JSON."""
    return json.dumps(diffusion_facts(config, siblings), indent=2, ensure_ascii=False)
