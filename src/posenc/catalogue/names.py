"""Other names of encodings: class names, spellings, and the names in other libraries and papers."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from posenc.entry import Entry

ALIASES = {
    "none": "nope", "rotary": "rope", "roformer": "rope", "sine": "sinusoidal", "sincos": "sinusoidal",
    "absolute": "learned", "linear": "pi", "dynamic": "dynamic_ntk", "su": "longrope", "p_rope": "proportional",
    "relative": "shaw", "xl": "transformer_xl", "forgetting": "fox", "forgetting_transformer": "fox", "relative_bias":
    "t5", "cpb": "log_cpb", "swin_v2": "log_cpb", "2d_rope": "axial", "rope_2d": "axial", "rope_mixed": "mixed",
    "2d_alibi": "alibi_2d", "press": "alibi", "contextual": "cope", "clipped_rope": "clipped", "sb": "stick-breaking",
    "cable": "fox", "forget_gate": "fox", "data_dependent_alibi": "data_alibi",
}  # fmt: skip
_AS_NEAR = 0.05  # in likeness, from 0 to 1


def resolve(word: str, catalogue: Mapping[str, Entry]) -> Entry | None:
    """The entry that a word means, whatever its case and signs between words; None where it means none."""
    return catalogue.get(_meanings(catalogue).get(_normalized(word), ""))


def suggestion(word: str, catalogue: Mapping[str, Entry]) -> str:
    """ ": did you mean …?", or where all names stand."""
    if ":" in word:
        return ": a class of your own, module:Class, is taken by posenc compare and posenc tune alone"
    meanings = _meanings(catalogue)
    exact = meanings.get(_normalized(word))
    near = difflib.get_close_matches(_normalized(word), list(meanings), cutoff=0.65)
    likeness = {name: difflib.SequenceMatcher(None, name, _normalized(word)).ratio() for name in near}
    best = [name for name in near if likeness[name] > max(likeness.values()) - _AS_NEAR]
    close = [exact] if exact else list(dict.fromkeys(meanings[name] for name in best))
    if not close:
        return f"; posenc list and posenc.list_encodings() give all {len(catalogue)} names"
    return f": did you mean {' or '.join(map(repr, close))}?"


def _meanings(catalogue: Mapping[str, Entry]) -> dict[str, str]:
    """What each known word means. A class that several entries have names none of them."""
    classes = [(entry.scaling or entry.encoding, name) for name, entry in catalogue.items()]
    counts = [cls for cls, _ in classes]
    named = {_normalized(cls.__name__): name for cls, name in classes if cls is not None and counts.count(cls) == 1}
    aliases = {_normalized(alias): name for alias, name in ALIASES.items() if name in catalogue}
    return {**aliases, **named, **{_normalized(name): name for name in catalogue}}


def _normalized(word: str) -> str:
    return "".join(sign for sign in word.lower() if sign.isalnum())
