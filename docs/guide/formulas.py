"""Formulas of the catalogue, plain text for terminals, as LaTeX; and LaTeX as MathML, which needs no script or font."""

from __future__ import annotations

import re

from latex2mathml.converter import convert

_GREEK = "alpha beta gamma zeta theta lambda mu phi pi psi omega"
_FUNCTIONS = "sin cos log ln exp max min sinh"
_SIGNS = {
    "←": r"\leftarrow", "·": r"\cdot", "−": "-", "Σ": r"\sum", "Π": r"\prod", "≥": r"\ge", "≤": r"\le", "π": r"\pi",
    "⊙": r"\odot", "ᵀ": r"^\top", "²": "^2", "…": r"\dots", "~": r"\sim", "‖": r"\|", "√": r"\surd",
}  # fmt: skip
_TOKEN = re.compile(
    r"[A-Za-z][A-Za-z0-9]*(?:\u0302)?(?:_[A-Za-z0-9]+(?:,[a-z]+)*)*|\d+(?:e-\d+)?(?:\.\d+)?|\s+|.", re.S
)


def as_latex(formula: str) -> str:
    r"""A formula of the catalogue as LaTeX; its parts, which two spaces keep apart, side by side.

    >>> as_latex("theta_j ← theta_j / lambda_j,  gain = sqrt(1 + ln factor)")
    '\\theta_{j} \\leftarrow  \\theta_{j} / \\lambda_{j}, \\qquad \\text{gain} = \\sqrt{1 + \\ln\\, \\text{factor}}'
    """
    return r" \qquad ".join(_part(part) for part in re.split(r"(?<=[,;])\s{2,}", formula))


def _part(text: str) -> str:
    signs = "".join(_sign(token) for token in _TOKEN.findall(text))
    signs = re.sub(r"_(\\text\{\w+\})", r"_{\1}", signs)
    merged = ""
    while merged != signs:  # words that follow one another are prose, whose spaces count
        merged, signs = signs, re.sub(r"\\text\{([^{}]*)\} \\text\{([^{}]*)\}", r"\\text{\1 \2}", signs)
    signs = re.sub(r"(?<=[\w})]) (?=\\text)|(?<=\\text\{)([^{}]*\}) (?=[\w\\])", lambda m: f"{m[1] or ''}\\; ", signs)
    for opening in (r"\sqrt", "^", "_"):
        signs = _braced(signs, opening)
    signs = re.sub(r"\^((?:\w|\\text\{[^{}]*\})_\{[^{}]*\})", r"^{\1}", signs)
    signs = re.sub(r"\\(ln|log|max|min) +(?=\\text)", r"\\\1\\, ", signs)
    return re.sub(r"\\surd\s*(\w)", r"\\sqrt{\1}", signs).strip()


def _sign(token: str) -> str:
    if token in _SIGNS:
        return f"{_SIGNS[token]} " if _SIGNS[token].startswith("\\") else _SIGNS[token]
    if not token[0].isalpha():
        return token
    if token == "sqrt":
        return r"\sqrt"
    name, *lower = token.split("_", 1)
    symbol = _symbol(name)
    if name in _FUNCTIONS.split() and (not lower or len(lower[0]) == 2):
        return f"\\{name}_{{{lower[0]}}} " if lower else f"\\{name} "
    if symbol is None:  # a word, with an index only if that is a letter
        name, *lower = token.rsplit("_", 1) if re.search(r"_[a-z]$", token) else [token]
        symbol = f"\\text{{{name.replace('_', ' ')}}}"
    return f"{symbol}_{{{_lower(lower[0])}}}" if lower else symbol


def _symbol(name: str) -> str | None:
    """A letter, or a Greek one by its name; None for a word."""
    if name.endswith("\u0302"):
        return f"\\hat{{{name[0]}}}"
    if name in _GREEK.split():
        return f"\\{name}"
    return name if len(name) == 1 else None


def _lower(index: str) -> str:
    """An index: letters such as ij, or words."""
    return ",".join(part if len(part) <= 2 else f"\\text{{{part.replace('_', ' ')}}}" for part in index.split(","))


def _braced(text: str, opening: str) -> str:
    """Parentheses behind a sign as LaTeX's braces: a root, a power, an index."""
    while (start := text.find(f"{opening}(")) >= 0:
        depth, end = 0, start + len(opening)
        while True:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            if not depth:
                break
            end += 1
        inside = text[start + len(opening) + 1 : end]
        text = f"{text[:start]}{opening}{{{inside}}}{text[end + 1 :]}"
    return text


_APART = re.compile(r"(^```.*?^```[ ]*$|`[^`\n]+`)", re.M | re.S)  # code, which stays as it is
_DISPLAYED = re.compile(r"^\$\$\n?(.+?)\n?\$\$$", re.M | re.S)
_SIDE_BY_SIDE = re.compile(r"\\qquad")
_FUNCTION = re.compile(r"(<mi>(?:cos|sin|log|ln)</mi>)(?=<m[in]>|<msub>)")  # before what stands in no brackets
_INLINE = re.compile(r"(?<![\\$\w])\$(?=\S)([^$\n]+?)(?<=\S)\$(?![\w$])")


def with_mathml(text: str) -> str:
    r"""Markdown whose formulas between dollar signs are MathML; code is left alone.

    >>> with_mathml("`$x$` is $x$")
    '`$x$` is <math xmlns="http://www.w3.org/1998/Math/MathML" display="inline"><mrow><mi>x</mi></mrow></math>'
    """
    parts = _APART.split(text)
    return "".join(part if i % 2 else _converted(part) for i, part in enumerate(parts))


def _converted(text: str) -> str:
    text = _DISPLAYED.sub(lambda match: f'\n<div class="formula">{_displayed(match[1])}</div>\n', text)
    text = _INLINE.sub(lambda match: _mathml(match[1], "inline"), text)
    text = re.sub(r"(?<=[^\n])\n<math", " <math", text)  # at the start of a line, Markdown would end the paragraph
    return re.sub(r"^<math", "&#8288;<math", text, flags=re.M)


def _displayed(latex: str) -> str:
    """What stands side by side where there is room, and below each other on a telephone, is a formula each."""
    return "".join(_mathml(part, "block") for part in _SIDE_BY_SIDE.split(latex))


def _mathml(latex: str, display: str) -> str:
    """One formula, without signs that Markdown would read."""
    mathml = convert(" ".join(latex.split()), display=display)
    mathml = mathml.replace("<mo>&#x022A4;</mo>", "<mi>&#x022A4;</mi>")  # a transpose: an operator would be resized
    mathml = _FUNCTION.sub(r'\1<mspace width="0.17em"/>', mathml)
    for sign in "*_[]\\":
        mathml = mathml.replace(sign, f"&#{ord(sign)};")
    return mathml
