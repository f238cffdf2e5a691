"""What the commands write: no sign that steers a terminal, and a plain substitute for signs that a stream lacks.

A config, a header or a tensor's name may hold an escape sequence that rewrites the screen, or a mark that reverses the
direction of writing. `neutral_streams` stands between every command and its streams, so that no command can forget it:
such signs come out as ``\\u001b``, which a string of JSON may hold as well.

ASCII, and the code pages 437 and 1252 of Windows, have no →, − or θ. Where a stream lacks a sign it gets ``->``, ``-``
or ``theta``.
"""

from __future__ import annotations

import codecs
import io
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

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


def to_ascii(text: str) -> str:
    """``text`` in ASCII.

    >>> to_ascii("θ ← θ·√2 ± 3e−7, x²")
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


def neutral(text: str) -> str:
    r"""``text`` with its control, format and lone surrogate signs escaped; line ends and tabs stay.

    >>> print(neutral("a\x1b[2J\u202eb"))
    a\u001b[2J\u202eb
    """
    if text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(sign if _harmless(sign) else _escaped(sign) for sign in text)


def _harmless(sign: str) -> bool:
    return sign in "\n\t" or sign.isprintable() or unicodedata.category(sign) == "Zs"


def _escaped(sign: str) -> str:
    pairs = sign.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{pairs[at : at + 4]}" for at in range(0, len(pairs), 4))


class NeutralStream:
    """A stream of text that writes `neutral` texts, and is the other stream in all else.

    A carriage return at the beginning stays: a progress bar writes itself anew with it. rich, whose colours and cursor
    movements are its own, finds the other stream at ``rich_proxied_file``; `posenc.lab.console` neutralises its texts.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        """Write; returns how many signs were given."""
        begin = text[:1] if text[:1] == "\r" else ""
        self.rich_proxied_file.write(begin + neutral(text[len(begin) :]))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextmanager
def neutral_streams() -> Iterator[None]:
    """Let stdout and stderr be neutral, and write a substitute where they would raise a UnicodeEncodeError."""
    before = sys.stdout, sys.stderr
    for stream in before:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_NAME)
    sys.stdout, sys.stderr = (
        stream if isinstance(stream, NeutralStream) else cast("TextIO", NeutralStream(stream)) for stream in before
    )
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


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
