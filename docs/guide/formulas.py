"""LaTeX as MathML, which needs no script from a network."""

from __future__ import annotations

import re

from latex2mathml.converter import convert

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
