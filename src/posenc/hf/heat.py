"""Temperatures of a model: which one a family's code has, with the numbers of the configuration."""

from __future__ import annotations

from typing import Any, NamedTuple

from posenc.hf.beside import Heat
from posenc.hf.config.rope_block import BLOCKS
from posenc.hf.config.text_config import Section, count_at, flag_at
from posenc.hf.limits import TOKENS, is_count, is_number, shown
from posenc.score.temperature import LogN, PowerTemperature, SSMax, StepTemperature, Temperature

_CLASSES: dict[str, type[Temperature]] = {c.__name__: c for c in (LogN, PowerTemperature, SSMax, StepTemperature)}


class Heating(NamedTuple):
    """A factor on the queries that depends on the position p of each.

    Attributes:
        text: the factor in words.
        builds: the call of posenc that builds it.
        options: what that call is given.
    """

    text: str
    builds: str
    options: dict[str, Any]

    def build(self) -> Temperature:
        """The encoding; learned numbers begin as the class begins them."""
        return _CLASSES[self.builds.partition("(")[0]](**self.options)


def heating_of(section: Section, heat: Heat | None) -> Heating | None:
    """The temperature of the layers that have one, or None where the configuration turns it off.

    Raises:
        ValueError: for a number that cannot be; it names the key.
    """
    if heat == "llama4":
        return _llama4(section)
    if heat == "beta":
        return _beta(section)
    if heat == "beam":
        options: dict[str, Any] = {"step": 2048, "power": 0.1}
        return Heating("(1 + (p + 1) / 2048)^0.1", _call("PowerTemperature", options), options)
    if heat == "inkling":
        floor = _tokens(section, "log_scaling_n_floor", 128000 if section.model_type == "inkling2_text" else None)
        alpha = _number(section, "log_scaling_alpha", 0.1)
        if floor is None:
            return None
        text, options = f"1 + {alpha:g} ln max(1, (p + 1) / {floor})", {"original_length": floor, "strength": alpha}
        return Heating(text, _call("LogN", options), options)
    if heat == "learned":
        heads = count_at(section, "num_attention_heads", TOKENS) or 64
        options = {"num_heads": heads, "bias": True, "count": "position"}
        return Heating("scale ln(p + 1) + bias, both learned a head", _call("SSMax", options), options)
    return None


def _llama4(section: Section) -> Heating | None:
    if flag_at(section, "attn_temperature_tuning") is False:
        return None
    step, strength = _tokens(section, "floor_scale", 8192), _number(section, "attn_scale", 0.1)
    return _steps({"step": step, "strength": strength, "offset": 1})


def _beta(section: Section) -> Heating | None:
    """Of Mistral's blocks, in which both numbers stand."""
    block = next((section.config[name] for name in BLOCKS if section.config.get(name)), section.family.block or {})
    step, strength = block.get("original_max_position_embeddings"), block.get("llama_4_scaling_beta")
    if strength is None:
        return None
    if not is_number(strength, 0):
        text = f"must be a number from 0, found {shown(strength)}"
        raise ValueError(f"{section.named('rope_parameters', 'llama_4_scaling_beta')} {text}")
    if not is_count(step, TOKENS):
        text = f"must be an integer in 1..{TOKENS} beside llama_4_scaling_beta, found {shown(step)}"
        raise ValueError(f"{section.named('rope_parameters', 'original_max_position_embeddings')} {text}")
    return _steps({"step": step, "strength": float(strength), "offset": 0})


def _steps(options: dict[str, Any]) -> Heating:
    place = "(p + 1)" if options["offset"] else "p"
    text = f"1 + {options['strength']:g} ln(1 + floor({place} / {options['step']}))"
    return Heating(text, _call("StepTemperature", options), options)


def _call(name: str, options: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in options.items())})"


def _tokens(section: Section, key: str, default: int | None) -> int | None:
    return count_at(section, key, TOKENS) if key in section.config else default


def _number(section: Section, key: str, default: float) -> float:
    found = section.config.get(key, default)
    if not is_number(found, 0):
        raise ValueError(f"{section.named(key)} must be a number from 0, found {shown(found)}")
    return float(found)
