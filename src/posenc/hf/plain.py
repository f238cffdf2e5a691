"""What a configuration says of single layers: which do not turn, which base each has, which window."""

from __future__ import annotations

from posenc.hf.families.layer_patterns import SLIDING
from posenc.hf.numbers import LAYERS, TOKENS, is_number, shown
from posenc.hf.section import Section, check_layers, count_at, layer_types


def plain_layers(section: Section) -> list[int]:
    """Numbers of the layers that ``no_rope_layers`` exempts (Llama 4, SmolLM 3: 1 turns, 0 does not).

    In families with a list of bases those whose base is 0.

    Raises:
        ValueError: for anything but a list of 0 and 1 (or of bases), one for each layer.
    """
    if section.rotation.bases_key is not None:
        return [layer for layer, base in enumerate(bases(section)) if not base]
    flags, count = section.config.get("no_rope_layers"), count_at(section, "num_hidden_layers", LAYERS)
    every = section.rotation.unrotated_every
    if section.config.get("no_rope_layer_interval") is not None:
        every = count_at(section, "no_rope_layer_interval", LAYERS)
    if flags is not None and not (isinstance(flags, list) and all(flag in (0, 1) for flag in flags)):
        text = f"must be a list of 0 and 1, one for each layer, or null, found {shown(flags)}"
        raise ValueError(f"{section.named('no_rope_layers')} {text}")
    if flags:
        check_layers(section, "no_rope_layers", flags)
    elif every is not None and count is not None:
        flags = [int((layer + 1) % every != 0) for layer in range(count)]
    return [layer for layer, turns in enumerate(flags or []) if not turns]


def bases(section: Section) -> list[float]:
    """The base of each layer, 0 for one that does not turn, or an empty list where the configuration has none.

    Raises:
        ValueError: for anything but a list of numbers, 0 or above 1, one for each layer.
    """
    key = section.rotation.bases_key or ""
    found = section.config.get(key)
    if found is None:
        return []
    if not isinstance(found, list) or not all(is_number(one, 0) and (one == 0 or one > 1) for one in found):
        text = f"must be a list of numbers, 0 or above 1, one for each layer, or null, found {shown(found)}"
        raise ValueError(f"{section.named(key)} {text}")
    check_layers(section, key, found)
    return list(found)


def window(section: Section) -> int | None:
    """Tokens that a sliding layer sees; None where the configuration has none, or 0 as Qwen 2 saves it.

    Raises:
        ValueError: for what is no number of tokens, and for 0 where the family's code asks whether there is a window.
    """
    if section.config.get("sliding_window") == 0 and not section.rotation.unrotated_kinds:
        return None
    return count_at(section, "sliding_window", TOKENS)


def plain_kinds(section: Section) -> tuple[str, ...]:
    """Kinds of layers that the family's code never turns, beside sliding ones that it does."""
    family, types = section.rotation, layer_types(section)
    if family.only_sliding:
        window(section)  # which must be right even where it does not decide
        return family.unrotated_kinds
    return family.unrotated_kinds if window(section) is not None and (not types or SLIDING in types) else ()
