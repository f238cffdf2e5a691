"""Text for streams whose encoding lacks signs: a plain substitute for each, and never a traceback.

ASCII, and the code pages 437 and 1252 of Windows, have no →, − or θ. Where a stream lacks a sign it gets ``->``, ``-``
or ``theta``.
"""

from __future__ import annotations

import codecs
import io
import unicodedata
from typing import TextIO

_SIGNS = {
    "←": "<-", "→": "->", "↔": "<->", "⇒": "=>", "↦": "|->", "↑": "^", "↓": "v", "×": "x", "·": "*", "−": "-",
    "–": "-", "—": "-", "‑": "-", "…": "...", "≤": "<=", "≥": ">=", "≠": "!=", "≈": "~", "±": "+/-", "√": "sqrt",
    "∞": "inf", "∈": "in", "∂": "d", "∇": "grad", "∏": "prod", "∑": "sum", "Σ": "sum", "Π": "prod", "∫": "int",
    "‖": "||", "′": "'", "″": "''", "‘": "'", "’": "'", "“": '"', "”": '"', "•": "*", "°": " deg", "µ": "u",
    "⊙": "(*)", "⊗": "(x)", "⊕": "(+)", "⌊": "floor(", "⌋": ")", "⌈": "ceil(", "⌉": ")", "∅": "{}", "∪": "or",
    "ø": "o", "ł": "l", "ß": "ss", "«": "<<", "»": ">>", "✓": "yes", "✗": "no", "∼": "~", "∘": "o", "∥": "||",
    "½": "1/2", "¼": "1/4", "∓": "-/+", "\N{COMBINING TILDE}": "~", "∧": "and",
    "∨": "or", "¬": "not ", "∀": "for all ", "∃": "there is ", "∝": "~", "≡": "==", "⁻": "^-", "⁺": "^+",
}  # fmt: skip
_NAME = "posenc-plain"


def plain(text: str) -> str:
    """``text`` in ASCII.

    >>> plain("θ ← θ·√2 ± 3e−7, x²")
    'theta <- theta*sqrt2 +/- 3e-7, x^2'
    """
    return "".join(sign if sign.isascii() else substitute(sign) for sign in text)


def substitute(sign: str) -> str:
    """What stands for one sign in ASCII; ``?`` if there is nothing to be said."""
    if sign in _SIGNS:
        return _SIGNS[sign]
    name = unicodedata.name(sign, "")
    if name.startswith("GREEK "):
        letter = name.removeprefix("GREEK ").partition(" WITH ")[0]
        small, letter = "SMALL" in letter, letter.rpartition(" ")[2].lower()
        return letter if small else letter.capitalize()
    if name.startswith("BOX DRAWINGS "):
        return "-" if "HORIZONTAL" in name and "VERTICAL" not in name else "|" if name.endswith(" VERTICAL") else "+"
    if name.startswith(("BLOCK", "FULL BLOCK", "BRAILLE")) or " BLOCK" in name:
        return "#"
    return _decomposed(sign) or ("" if unicodedata.combining(sign) else "?")


def make_printable(*streams: TextIO) -> None:
    """Let streams write a substitute where they would raise a UnicodeEncodeError."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_NAME)


def fitting(text: str, stream: TextIO) -> str:
    """``text`` as a stream will write it: what is laid out in columns must know its width before."""
    encoding = getattr(stream, "encoding", None) or "ascii"
    return text.encode(encoding, errors=_NAME).decode(encoding)


def _decomposed(sign: str) -> str:
    mark = {"<super>": "^", "<sub>": "_"}.get(unicodedata.decomposition(sign).partition(" ")[0], "")
    rest = "".join(part for part in unicodedata.normalize("NFKD", sign) if part.isascii())
    return mark + rest if rest else ""


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(substitute, error.object[error.start : error.end])), error.end


codecs.register_error(_NAME, _replace)
