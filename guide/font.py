"""``python -m guide.font FONT``: writes the font of formulas, a subset of STIX Two Math, from its full font file.

Browsers set MathML well only with a font that has a table MATH: without one, brackets and root signs do not grow with
what they enclose. FONT is ``files/stix-two-math-latin-400-normal.woff2`` of the npm package @fontsource/stix-two-math
5.3.0 (SIL Open Font License 1.1, no reserved names). Needs fonttools and brotli; building the site does not.
"""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

FONT = Path(__file__).parents[1] / "docs" / "assets" / "stix-two-math.woff2"
_FORMULA = re.compile(r"<math.*?</math>", re.S)
_LETTER = re.compile(r"<mi>(.)</mi>")  # which browsers set in italics
# Fixed, so that a formula with another common sign needs no new font.
SIGNS = (
    "".join(map(chr, range(0x20, 0x7F)))
    + "ΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩαβγδεζηθικλμνξοπρςστυφχψωϵϑϰϕϱϖ"
    + "¬¯±·×÷…′″‖ℓℝℂℤℕ←↑→↓↔↦⇐⇒⇔∀∂∃∅∇∈∉∋∏∑−∓∗∘√∝∞∠∣∥∧∨∩∪∫∼≃≅≈≔≠≡≤≥≪≫⊂⊆⊕⊖⊗⊙⊤⊥⋅⋮⋯⋱⌈⌉⌊⌋⟨⟩\u2061\u2062\u2063"
)


def italic(letter: str) -> str:
    """The mathematical italic letter that a browser draws for a single letter of a formula; others as they are.

    >>> italic("x"), italic("h"), italic("θ"), italic("2")
    ('𝑥', 'ℎ', '𝜃', '2')
    """
    if letter == "h":  # which Unicode has among the letters of physics
        return "ℎ"
    for first, last, start in (("A", "Z", 0x1D434), ("a", "z", 0x1D44E), ("Α", "Ω", 0x1D6E2), ("α", "ω", 0x1D6FC)):
        if first <= letter <= last:
            return chr(start + ord(letter) - ord(first))
    return {"∂": "𝜕", "ϵ": "𝜖", "ϑ": "𝜗", "ϰ": "𝜘", "ϕ": "𝜙", "ϱ": "𝜚", "ϖ": "𝜛"}.get(letter, letter)


def characters() -> set[str]:
    """What the font has: `SIGNS`, and the italics of its letters."""
    return {*SIGNS, *map(italic, SIGNS)}


def rendered_characters(page: str) -> set[str]:
    """The characters that a browser draws for the formulas of a page with MathML."""
    formulas = re.sub(r"&(?!lt;|gt;|amp;)[^;]+;", lambda sign: html.unescape(sign[0]), "".join(_FORMULA.findall(page)))
    text = html.unescape(re.sub(r"<[^>]+>", "", _LETTER.sub(lambda letter: italic(letter[1]), formulas)))
    return {sign for sign in text if not sign.isspace()}


def write(source: Path, target: Path = FONT) -> None:
    """Write the subset; the same bytes for the same source and versions of fonttools and brotli."""
    from fontTools import subset

    options = subset.Options(flavor="woff2", layout_features=["*"], notdef_outline=True, hinting=False)
    options.name_IDs = ["*"]  # the names carry the copyright and the licence
    font = subset.load_font(str(source), options)
    worker = subset.Subsetter(options)
    worker.populate(unicodes=[ord(sign) for sign in characters()])
    worker.subset(font)
    font["head"].modified = font["head"].created  # else the time of the run
    subset.save_font(font, str(target), options)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
    sys.stdout.write(f"{FONT} has {FONT.stat().st_size:,} bytes\n")
