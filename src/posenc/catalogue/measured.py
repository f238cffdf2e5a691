"""Which of the recorded comparisons have an encoding among their rows: tables of the documentation, by their folder.

The tables themselves are no part of an installed package; a test holds this list against them.
"""

from __future__ import annotations

_IN_TEXT = (
    "nope", "sinusoidal", "learned", "rope", "xpos", "resonance", "multiscale", "proportional", "alibi", "t5",
    "kerple", "sandwich", "fire", "log_cpb", "distance_mlp", "shaw", "fox", "data_alibi", "path", "transformer_xl",
    "cope", "dape", "mixture", "stick-breaking",
)  # fmt: skip
RECORDED: dict[str, tuple[str, ...]] = {
    "standard": _IN_TEXT,
    "quick": ("nope", "sinusoidal", "learned", "rope", "alibi", "t5", "fox", "stick-breaking"),
    "production": ("nope", "rope", "alibi", "fox", "sink", "ssmax", "log_n", "token_relative"),
    "extension": (
        "rope", "pi", "ntk", "dynamic_ntk", "ntk_by_parts", "yarn", "dynamic_yarn", "llama3", "longrope", "resonance",
        "clex",
    ),
    "images": ("nope", "sinusoidal_grid", "learned_grid", "axial", "mixed", "liere", "comrope_ap", "comrope_ld"),
    "passkey": _IN_TEXT,
    "recall": _IN_TEXT,
    "flipflop": _IN_TEXT,
    "counting": _IN_TEXT,
    "copy": _IN_TEXT,
    "addition": ("nope", "abacus", "rope", "alibi", "fire", "fox"),
}  # fmt: skip


def tables_with(name: str) -> list[str]:
    """Paths of the tables in the project's documentation that have an encoding among their rows.

    >>> tables_with("abacus")
    ['docs/results/addition/table.md']
    """
    return [f"docs/results/{folder}/table.md" for folder, names in RECORDED.items() if name in names]
