"""What a transformer of diffusers does with positions, in numbers and words: `posenc explain` on its config.json.

Reads the file by the class that it names (``_class_name``); of a whole pipeline, in a folder or on the Hub, its
transformers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from posenc.arguments import shown
from posenc.diffusion.models import GROWING, MODELS, TRANSFORMERS, Model, Transformer

Facts = dict[str, Any]


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
    if not isinstance(name, str) or name not in TRANSFORMERS:
        raise ValueError(
            f"_class_name must be one of {', '.join(sorted(TRANSFORMERS))}, as diffusers 0.42 has them; "
            f"got {shown(name)}"
        )
    title = TRANSFORMERS[name]
    kind = MODELS[title].transformers[name]
    filled = kind.filled(config)
    if title == "cogvideox" and filled.get("patch_size_t"):
        title = "cogvideox-1.5"
    if title == "qwen-image" and filled.get("use_layer3d_rope"):
        title = "qwen-image-layered"
    model = MODELS[title]
    facts: Facts = {"class": name, "preset": title if model.has_preset else None, "attaches": not kind.refused}
    if reason := kind.adds(filled):
        return {**facts, "rotation": None, "instead": reason, "attaches": False, "scalings": [], "findings": []}
    scalings = model.suitable() if facts["attaches"] else []
    if not model.axes_dims and model.scales == "positions" and title not in GROWING:  # Mochi
        return {**facts, "rotation": None, "instead": model.rotation, "scalings": scalings, "findings": []}
    widths, bases = _numbers(model, kind, filled)
    axes = [
        {
            "axis": axis.name, "channels": width, "base": base, "wavelengths": _wavelengths(title, width, base),
            "step": axis.step, "kept": axis.kept, "native": model.native.get(axis.name),
        }
        for axis, width, base in zip(model.axes, widths, bases, strict=True)
    ]  # fmt: skip
    split = filled.get("rope_type") == "split"  # LTX-2: half layout within each head
    rotation = {
        "kind": model.rotation,
        "layout": "half" if split else model.layout,
        "axes": axes,
        "positions": model.where,
    }
    notes = [note.format(**filled) for note in kind.notes]
    if kind.refused:
        notes.append(kind.refused)
    call = _call(title, model, widths, bases, filled) if model.has_preset else None
    finding = _finding(title, widths, filled)
    return {
        **facts, "rotation": rotation, "notes": notes, "posenc": call, "scalings": scalings,
        "findings": [finding] if finding else [],
    }  # fmt: skip


def _numbers(model: Model, kind: Transformer, filled: Mapping[str, Any]) -> tuple[list[int], list[float]]:
    """Channels and base of each axis, checked."""
    try:
        widths, bases = list(kind.widths(filled)), list(kind.bases(filled))
    except (TypeError, KeyError, ValueError, ZeroDivisionError) as error:
        raise ValueError(f"{shown(dict(filled))} has no sizes of this class: {error!r}") from error
    valid = all(isinstance(width, int) and not isinstance(width, bool) and width >= 2 for width in widths)
    if not valid or len(widths) != len(model.axes) or any(width % 2 for width in widths):
        names = ", ".join(axis.name for axis in model.axes)
        raise ValueError(
            f"channels must be even, one number for each coordinate of this pipeline's positions ({names}), "
            f"got {shown(widths)}"
        )
    bases = bases * len(widths) if len(bases) == 1 else bases
    if len(bases) != len(widths) or not all(math.isfinite(base) and base > 1 for base in bases):
        raise ValueError(f"bases must be numbers above 1, got {shown(bases)}")
    return widths, bases


def _wavelengths(title: str, width: int, base: float) -> tuple[float, float]:
    """The shortest and the longest, in units of a coordinate."""
    pairs = width // 2
    if title in GROWING:
        return 4 / base, 4.0
    if MODELS[title].scales == "pairs":  # type: ignore[index]  # one list for all axes, of which rows and columns have the fast pairs
        return 2 * math.pi, 2 * math.pi * base
    return 2 * math.pi, 2 * math.pi * base ** ((pairs - 1) / pairs)


def _call(title: str, model: Model, widths: Sequence[int], bases: Sequence[float], filled: Mapping[str, Any]) -> str:
    """The encoding as a call of posenc."""
    if title == "ideogram-4":
        sections = tuple(width // 2 for width in widths)
        return f"MRoPE({filled['attention_head_dim']}, sections={sections}, interleaved=True, base={bases[0]:g})"
    if title in GROWING:
        return f"AxialRoPE({filled['num_attention_heads'] * filled['attention_head_dim']}, axes=3, convention='ltx')"
    base = "" if set(bases) == {10_000.0} else f", base={bases[0]:g}"
    if len(set(bases)) > 1:
        base = f", base={tuple(bases)}"
    if model.convention != "eva-02":
        return f"AxialRoPE({sum(widths)}, convention={model.convention!r}{base})"
    head_dim = filled.get("attention_head_dim", sum(widths)) if title == "minimax-h3" else sum(widths)
    options = base + (f", layout={model.layout!r}" if model.layout != "interleaved" else "")
    options += f", rotary_dim={sum(widths)}" if head_dim != sum(widths) else ""
    return f"AxialRoPE({head_dim}, axes_dims={tuple(widths)}{options})"


def _finding(title: str, widths: Sequence[int], filled: Mapping[str, Any]) -> str | None:
    """That the axes do not fill the head, where the model needs that."""
    head_dim = filled.get("attention_head_dim")
    if title in (*GROWING, "minimax-h3") or head_dim is None or sum(widths) == head_dim:
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
        lines += _attach_lines(facts)
    for name, other in facts.get("siblings", {}).items():
        lines.append(
            f"{name}: " + ("the same" if other["same"] else f"different; posenc explain FOLDER/{name} shows it")
        )
    return "\n".join(lines)


def _rotation_lines(facts: Facts) -> list[str]:
    rotation = facts["rotation"]
    lines = [
        f"  {rotation['kind']}, {rotation['layout']}, the same in every block", f"  positions: {rotation['positions']}"
    ]  # fmt: skip
    for axis in rotation["axes"]:
        shortest, longest = axis["wavelengths"]
        native = f"; {axis['native']} tokens at the default size" if axis["native"] else ""
        lines.append(
            f"  {axis['axis']}: {axis['channels']} channels, base {axis['base']:,.6g}, "
            f"wavelengths {shortest:,.3g} to {longest:,.5g}{native}"
        )
    lines += [f"  {note}" for note in facts["notes"]]
    lines += [f"fault: {finding}" for finding in facts["findings"]]
    if facts["posenc"]:
        lines.append(f"posenc: {facts['posenc']}; with positions: posenc.diffusion.preset({facts['preset']!r}, parts)")
    return lines


def _attach_lines(facts: Facts) -> list[str]:
    """The scalings that the model takes, as calls of posenc."""
    calls = [f"posenc.diffusion.attach(transformer, {scaling})" for scaling in facts["scalings"]]
    if not calls:
        axes = facts["rotation"]["axes"] if facts["rotation"] else []
        reasons = "; ".join(f"{axis['axis']}: {axis['kept']}" for axis in axes if axis["kept"])
        return [f"larger pictures, longer videos: no scaling suits it ({reasons})"]
    return ["larger pictures, longer videos:", *(f"  {call}" for call in calls)]
