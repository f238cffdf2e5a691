"""Which of the recorded comparisons have an encoding among their rows: tables of the documentation, by their folder.

The tables themselves are not part of an installed package; a test holds this list against them.
"""

from __future__ import annotations

from posenc.published import page_address

_IN_TASKS = (
    "nope", "sinusoidal", "learned", "rope", "xpos", "alibi", "t5", "kerple", "sandwich", "fire", "shaw", "fox",
    "data_alibi", "path", "transformer_xl", "cope", "dape", "stick-breaking",
)  # fmt: skip
_BY_DEFAULT = ("nope", "sinusoidal", "rope", "alibi", "t5", "fire", "fox", "stick-breaking")
RECORDED: dict[str, tuple[str, ...]] = {
    "text": ("rope", "alibi"),
    **dict.fromkeys(("quick", "quick-recall", "quick-copy"), _BY_DEFAULT),
    "extension-drope": ("rope", "pi", "ntk", "yarn", "longrope"),
    "extension": ("rope", "pi", "ntk", "yarn", "dynamic_yarn", "streaming_llm"),
    "recall-fox-pro": ("rope", "fox"),
    "flipflop-cope-rope": ("rope", "cope"),
    "copy-sinusoids": ("sinusoidal",),
    "images-m-rope": ("axial",),
    "smollm2": (
        "rope", "pi", "ntk", "dynamic_ntk", "yarn", "llama3", "longrope", "self_extend", "string", "lm_infinite",
        "streaming_llm",
    ),
    "images": (
        "nope", "sinusoidal_grid", "learned_grid", "axial", "mixed", "liere", "comrope_ap", "comrope_ld", "alibi_2d",
        "swin", "log_cpb",
    ),
    "passkey": _IN_TASKS,
    "recall": _IN_TASKS,
    "flipflop": _IN_TASKS,
    "counting": _IN_TASKS,
    "copy": _IN_TASKS,
    "addition": ("nope", "abacus", "rope", "alibi", "fire", "fox"),
}  # fmt: skip


def tables_with(name: str) -> list[str]:
    """The recorded comparisons that have an encoding among their rows, as pages of the guide.

    >>> [page.partition(".html")[0].endswith("results/addition/table") for page in tables_with("abacus")]
    [True]
    """
    return [page_address(f"docs/results/{folder}") for folder, names in RECORDED.items() if name in names]
