"""Temperatures of a model: the rule of its model type, with the numbers of its config."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from posenc.arguments import shown
from posenc.hf.config.rope_keys import BLOCKS
from posenc.hf.config.text_config import TextConfig, count_at
from posenc.hf.families.family import TemperatureRule
from posenc.hf.limits import TOKENS, is_count, is_number

if TYPE_CHECKING:
    from posenc.score.temperature import Temperature


class TemperatureSpec(NamedTuple):
    """A factor on the queries that depends on the position p of each.

    Attributes:
        text: the factor in words.
        builds: the call of posenc that builds it.
        options: arguments of that call.
    """

    text: str
    builds: str
    options: dict[str, Any]

    def build(self) -> Temperature:
        """The encoding; learned numbers begin as the class begins them."""
        from posenc.score import temperature  # torch

        encoding: Temperature = getattr(temperature, self.builds.partition("(")[0])(**self.options)
        return encoding


def temperature_of(text_config: TextConfig, rule: TemperatureRule | None) -> TemperatureSpec | None:
    """The temperature of the layers that have one, or None where the config disables it.

    Raises:
        ValueError: for a number that cannot be; it names the key.
    """
    if rule is None or (rule.switch and not text_config.get(rule.switch, True)):  # a released file has 4 for true
        return None
    if rule.form == "block steps":
        return _block_steps(text_config, rule)
    if rule.form == "learned":
        heads = count_at(text_config, "num_attention_heads", TOKENS) or 64
        options: dict[str, Any] = {"num_heads": heads, "bias": True, "count": "position"}
        return TemperatureSpec("scale ln(p + 1) + bias, both learned a head", _call("SSMax", options), options)
    length, strength = _tokens(text_config, rule), _strength(text_config, rule)
    if rule.form == "power":
        options = {"step": length, "power": strength}
        return TemperatureSpec(f"(1 + (p + 1) / {length})^{strength:g}", _call("PowerTemperature", options), options)
    if rule.form == "steps":
        return _steps({"step": length, "strength": strength, "offset": rule.offset})
    if length is None:
        return None
    text, options = f"1 + {strength:g} ln max(1, (p + 1) / {length})", {"original_length": length, "strength": strength}
    return TemperatureSpec(text, _call("LogN", options), options)


def _block_steps(text_config: TextConfig, rule: TemperatureRule) -> TemperatureSpec | None:
    """Of Mistral's blocks, in which both numbers stand."""
    block = next((text_config[name] for name in BLOCKS if text_config.get(name)), text_config.rotation.block or {})
    step, strength = block.get(rule.length_key), block.get(rule.strength_key)
    if strength is None:
        return None
    if not is_number(strength, 0):
        text = f"must be a number from 0, found {shown(strength)}"
        raise ValueError(f"{text_config.key_path('rope_parameters', rule.strength_key)} {text}")
    if not is_count(step, TOKENS):
        text = f"must be an integer in 1..{TOKENS} where the config has {rule.strength_key}, found {shown(step)}"
        raise ValueError(f"{text_config.key_path('rope_parameters', rule.length_key)} {text}")
    return _steps({"step": step, "strength": float(strength), "offset": rule.offset})


def _steps(options: dict[str, Any]) -> TemperatureSpec:
    position = "(p + 1)" if options["offset"] else "p"
    text = f"1 + {options['strength']:g} ln(1 + floor({position} / {options['step']}))"
    return TemperatureSpec(text, _call("StepTemperature", options), options)


def _call(name: str, options: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in options.items())})"


def _tokens(text_config: TextConfig, rule: TemperatureRule) -> int | None:
    return count_at(text_config, rule.length_key, TOKENS) if rule.length_key in text_config else rule.length


def _strength(text_config: TextConfig, rule: TemperatureRule) -> float:
    value = text_config.get(rule.strength_key, rule.strength)
    if not is_number(value, 0):
        raise ValueError(f"{text_config.key_path(rule.strength_key)} must be a number from 0, found {shown(value)}")
    return float(value)
