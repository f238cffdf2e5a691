"""Formulas in Markdown as MathML, which browsers draw without scripts and fonts of ours."""

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
    text = _DISPLAYED.sub(lambda found: f'\n<div class="formula">{_displayed(found[1])}</div>\n', text)
    text = _INLINE.sub(lambda found: _mathml(found[1], "inline"), text)
    text = re.sub(r"(?<=[^\n])\n<math", " <math", text)  # at the start of a line, Markdown would end the paragraph
    return re.sub(r"^<math", "&#8288;<math", text, flags=re.M)


def _displayed(latex: str) -> str:
    """What stands side by side where there is room, and below each other on a telephone, is a formula each."""
    return "".join(_mathml(part, "block") for part in _SIDE_BY_SIDE.split(latex))


def _mathml(latex: str, display: str) -> str:
    """One formula, without signs that Markdown would read."""
    made = convert(" ".join(latex.split()), display=display)
    made = made.replace("<mo>&#x022A4;</mo>", "<mi>&#x022A4;</mi>")  # a transpose, which must not stretch
    made = _FUNCTION.sub(r'\1<mspace width="0.17em"/>', made)
    for sign in "*_[]\\":
        made = made.replace(sign, f"&#{ord(sign)};")
    return made
