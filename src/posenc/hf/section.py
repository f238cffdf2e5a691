"""Where a configuration speaks of its text model, and what it says there of widths, lengths and layers."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from posenc.hf.families import FULL, SLIDING, Family, family_of
from posenc.hf.schema import is_count

Config = dict[str, Any]

_TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
_WIDTHS = (
    ("hidden_size", "num_attention_heads"),
    ("n_embd", "n_head"),
    ("hidden_size", "n_head"),
    ("d_model", "n_heads"),
)
_LENGTHS = ("max_position_embeddings", "n_positions", "n_ctx")


@runtime_checkable
class _HasDict(Protocol):
    def to_dict(self) -> dict[str, Any]: ...


Source = Mapping[str, Any] | str | Path | _HasDict


class Section(NamedTuple):
    """The part of a configuration that describes the text model.

    Attributes:
        path: keys that lead to it, empty for the whole.
        config: that part.
        model_type: its own, or else that of the whole; "" where there is none.
        family: what its code decides.
        known: whether the table of families has it.
    """

    path: tuple[str, ...]
    config: Config
    model_type: str
    family: Family
    known: bool


def load(source: Source) -> Config:
    """A copy of a configuration: a dictionary, an object with ``to_dict()``, a JSON file, a folder with config.json.

    Raises:
        ValueError: for a file that is no JSON object, or anything else.
        OSError: where the file cannot be read.
    """
    if isinstance(source, Mapping):
        return copy.deepcopy(dict(source))
    if isinstance(source, _HasDict):
        return copy.deepcopy(source.to_dict())
    if not isinstance(source, str | Path):
        raise ValueError(f"config must be a mapping, a path or an object with to_dict(), got {type(source).__name__}")
    path = Path(source)
    path = path / "config.json" if path.is_dir() else path
    if not path.exists():
        raise FileNotFoundError(f"config: {path} does not exist; give a config.json, or a folder that has one")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"config: {path} is no JSON: {error}") from None
    if not isinstance(config, dict):
        raise ValueError(f"config: {path} must hold a JSON object, found a {type(config).__name__}")
    return config


def section_of(config: Config) -> Section:
    """The text model's part of a configuration: the innermost of the usual names, or the whole."""
    path: tuple[str, ...] = ()
    inner = config
    types = [config.get("model_type")]
    while (name := next((name for name in _TEXT_PARTS if isinstance(inner.get(name), dict)), None)) is not None:
        if not inner[name]:
            break
        path, inner = (*path, name), inner[name]
        types.insert(0, inner.get("model_type"))
    names = [str(name) for name in types if name]
    family, known = family_of(names, latent="qk_rope_head_dim" in inner)
    return Section(path, inner, names[0] if names else "", family, known)


def replaced(config: Config, section: Section, text: Config) -> Config:
    """The whole configuration with another text part."""
    if not section.path:
        return text
    whole = copy.deepcopy(config)
    inner = whole
    for name in section.path[:-1]:
        inner = inner[name]
    inner[section.path[-1]] = text
    return whole


def max_length(section: Section) -> int | None:
    """The longest length that the configuration declares, in tokens."""
    found = (section.config.get(name) for name in _LENGTHS)
    return next((length for length in found if is_count(length)), None)


def length_key(section: Section) -> str:
    """The key of that length."""
    return next((name for name in _LENGTHS if name in section.config), _LENGTHS[0])


def head_dim(section: Section, kind: str, given: int | None) -> int:
    """Channels of a head that the rotation sees.

    Raises:
        ValueError: where neither the configuration nor the caller says it.
    """
    config = section.config
    if given is not None:
        found: Any = given
    elif section.family.latent and config.get("qk_rope_head_dim") is not None:
        found = config["qk_rope_head_dim"]
    else:
        found = _own_width(section, kind) or config.get("head_dim") or config.get("kv_channels") or _quotient(config)
    if found is None:
        names = " or ".join("head_dim" if not pair else f"{pair[0]} with {pair[1]}" for pair in ((), *_WIDTHS[:2]))
        raise ValueError(f"head_dim: the configuration has neither {names}; add it, or give head_dim=")
    if not is_count(found) or found % 2:
        raise ValueError(f"head_dim must be an even integer of at least 2, found {found!r}")
    return int(found)


def _own_width(section: Section, kind: str) -> Any:
    """The width of one kind of layers where it has its own, as full attention in Gemma 4."""
    config = section.config
    overrides, types = config.get("per_layer_config"), config.get("layer_types")
    if isinstance(overrides, dict) and isinstance(types, list):
        for index, layer in overrides.items():
            if str(index).isdigit() and int(index) < len(types) and types[int(index)] == kind:
                return layer.get("head_dim")
    return config.get("global_head_dim", section.family.full_head_dim) if kind == FULL else None


def _quotient(config: Config) -> Any:
    for width, heads in _WIDTHS:
        if config.get(width) is None or config.get(heads) is None:
            continue
        if not is_count(config[width]) or not is_count(config[heads]):
            raise ValueError(
                f"{width} and {heads} must be integers of at least 1, found {config[width]!r} and {config[heads]!r}"
            )
        return config[width] // config[heads]
    return None


def layer_types(section: Section) -> list[str]:
    """The kind of each layer where the configuration lists them, or an empty list."""
    types = section.config.get("layer_types")
    return list(types) if isinstance(types, list) else []


def plain_layers(section: Section) -> list[int]:
    """Numbers of the layers that ``no_rope_layers`` exempts (Llama 4, SmolLM 3: 1 turns, 0 does not)."""
    flags, count = section.config.get("no_rope_layers"), section.config.get("num_hidden_layers")
    every = section.config.get("no_rope_layer_interval", section.family.plain_every)
    if not flags and is_count(every) and is_count(count):
        flags = [int((layer + 1) % every != 0) for layer in range(count)]
    return [layer for layer, turns in enumerate(flags) if not turns] if isinstance(flags, list) else []


def plain_kinds(section: Section) -> tuple[str, ...]:
    """Kinds of layers that the family's code never turns, beside sliding ones that it does."""
    has_window = section.config.get("sliding_window") is not None
    types = layer_types(section)
    return section.family.plain if has_window and (not types or SLIDING in types) else ()
