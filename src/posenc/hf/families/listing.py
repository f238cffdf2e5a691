"""All model types that are known, in a line each, and those that are refused: ``posenc explain --families``."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from posenc.hf import families
from posenc.hf.families import FAMILIES, Family, RotationRules
from posenc.hf.families.family import TemperatureRule

EQUAL = "whole layers equal transformers' own"


class Line(NamedTuple):
    """One model type.

    Attributes:
        name: the model type.
        state: "read", "no rotation" or "refused".
        text: what it has, or why it is refused.
        layers: of one that is read, `EQUAL` or why its whole layers are not compared.
    """

    name: str
    state: str
    text: str
    layers: str = ""


def every_line() -> list[Line]:
    """A line for each model type that is read, has no rotation, or is refused."""
    return sorted(line for name, family in FAMILIES.items() if (line := _line(name, family)) is not None)


def _line(name: str, family: Family) -> Line | None:
    if family.unsupported:
        return Line(name, "refused", family.unsupported)
    if family.rotation is not None:
        layers = f"whole layers not compared: {family.not_compared}" if family.not_compared else EQUAL
        return Line(name, "read", ", ".join(_features(family, family.rotation)), layers)
    if family.schemes:
        return Line(name, "no rotation", "another encoding, which posenc explain names")
    return None


def _features(family: Family, rotation: RotationRules) -> list[str]:
    window, attention = family.layers.window, family.attention
    words = [f"{'RoPE' if rotation.sections is None else 'M-RoPE'}, {rotation.layout}", f"base {rotation.base:g}"]
    if rotation.share != 1:
        words.append(f"share {rotation.share:g}")
    if rotation.latent:
        words.append("latent attention")
    if rotation.kinds or rotation.nested:
        words.append("a rotation a kind of layers")
    unrotated = rotation.unrotated_kinds or rotation.unrotated_every or rotation.bases_key
    if unrotated or (rotation.block and None in rotation.block.values()):
        words.append("layers without rotation")
    if rotation.rotates_if is not None:
        words.append(f"rotates if {rotation.rotates_if[0]} is {rotation.rotates_if[1]}")
    if window.size is not None or window.every_layer or family.layers.sliding_from_key or window.switch:
        sides = " of two sides" if window.sides else ""
        words.append(f"windows{sides}{' in every layer' if window.every_layer else ''}")
    if family.layers.chunk is not None:
        words.append("chunks")
    if attention.temperature is not None:
        words.append(_of_temperature(attention.temperature))
    if attention.sinks:
        words.append("sinks")
    return words


def _of_temperature(rule: TemperatureRule) -> str:
    form = {
        "power": "a temperature by a power of the position", "log": "a temperature by the logarithm",
        "learned": "a learned temperature",
    }.get(rule.form, "a temperature in steps")  # fmt: skip
    return form + {"all": "", "unrotated": " (layers without rotation)"}.get(rule.layers, f" ({rule.layers} layers)")


def counts() -> dict[str, int]:
    """How many model types are read, have no rotation, are refused; and of how many whole layers were compared."""
    compared = sum(not family.not_compared for family in families.ROTARY.values())
    return {
        "read": len(families.ROTARY), "no rotation": len(families.NON_ROTARY), "refused": len(families.UNSUPPORTED),
        "whole layers compared": compared,
    }  # fmt: skip


def families_text() -> str:
    """The lines as text, fields with tabs between, and the counts at the end."""
    lines = ["\t".join(line).rstrip("\t") for line in every_line()]
    end = ", ".join(f"{count} {state}" for state, count in counts().items())
    return "\n".join([*lines, f"model types: {end}"])


def families_json() -> str:
    """The same as JSON."""
    table: dict[str, Any] = {"families": [line._asdict() for line in every_line()], "counts": counts()}
    return json.dumps(table, indent=2)
