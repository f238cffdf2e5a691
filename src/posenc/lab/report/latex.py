"""The main table for a paper: LaTeX with the package booktabs, the same numbers as in table.md."""

from __future__ import annotations

from collections.abc import Sequence

_SIGNS = {
    "\\": r"\textbackslash{}", "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "×": r"$\times$", "±": r"$\pm$", "−": "$-$", "–": "--",
    "ν": r"$\nu$", "→": r"$\to$",
}  # fmt: skip


def latex(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    r"""A table of words: names to the left, numbers to the right.

    >>> print(latex(["encoding", "16×"], [["rope_pp", "+0.10 ± 0.02"]]))
    \begin{tabular}{lr}
    \toprule
    encoding & 16$\times$ \\
    \midrule
    rope\_pp & +0.10 $\pm$ 0.02 \\
    \bottomrule
    \end{tabular}
    """
    head, *body = (" & ".join(map(_plain, cells)) + r" \\" for cells in (heads, *rows))
    lines = [rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}", r"\toprule", head, r"\midrule", *body, r"\bottomrule"]
    return "\n".join([*lines, r"\end{tabular}"])


def _plain(text: str) -> str:
    """A cell in which LaTeX reads no sign as its own."""
    return "".join(_SIGNS.get(sign, sign) for sign in text)
