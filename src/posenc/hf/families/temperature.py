"""Temperatures: a factor on the queries that depends on the position, as a model type's code computes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class TemperatureRule:
    """Which temperature a family's code has, and the keys and defaults of its numbers.

    Attributes:
        form: "steps": 1 + strength · ln(1 + floor((p + offset) / length)), numbers outside the block; "block steps":
            the same with numbers inside the block; "power": (1 + (p + 1) / length)^strength; "log":
            1 + strength · ln max(1, (p + 1) / length); "learned": scale · ln(p + 1) + bias, both learned a head.
        layers: layers that have it: "all", "unrotated", or a kind of layers.
        length, length_key: default and key of the length, in tokens; without both there is no temperature.
        strength, strength_key: default and key of the strength.
        offset: added to the position in "steps".
        switch: key that turns the temperature off where it is false.
    """

    form: Literal["steps", "block steps", "power", "log", "learned"]
    layers: str = "all"
    length: int | None = None
    length_key: str = ""
    strength: float = 0.1
    strength_key: str = ""
    offset: int = 0
    switch: str = ""

    @property
    def words(self) -> str:
        """The rule in a few words, for a list of families."""
        form = {"power": "a temperature by a power of the position", "log": "a temperature by the logarithm",
                "learned": "a learned temperature"}.get(self.form, "a temperature in steps")  # fmt: skip
        where = {"all": "", "unrotated": " (layers without rotation)"}.get(self.layers, f" ({self.layers} layers)")
        return form + where


LLAMA_4 = TemperatureRule(
    "steps", "unrotated", 8192, "floor_scale", 0.1, "attn_scale", offset=1, switch="attn_temperature_tuning"
)
MISTRAL = TemperatureRule("block steps", length_key="original_max_position_embeddings",
                          strength_key="llama_4_scaling_beta")  # fmt: skip
BEAM = TemperatureRule("power", "unrotated", 2048, strength=0.1)
INKLING = TemperatureRule("log", "hybrid", None, "log_scaling_n_floor", 0.1, "log_scaling_alpha")
INKLING_2 = TemperatureRule("log", "hybrid", 128_000, "log_scaling_n_floor", 0.1, "log_scaling_alpha")
LEARNED = TemperatureRule("learned")
