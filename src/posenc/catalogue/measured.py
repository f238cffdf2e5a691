"""Which of the recorded comparisons have an encoding among their rows: tables of the documentation, by their folder.

The tables themselves are not part of an installed package; a test holds this list against them.
"""

from __future__ import annotations

_IN_TASKS = (
    "nope", "sinusoidal", "learned", "rope", "xpos", "alibi", "t5", "kerple", "sandwich", "fire", "shaw", "fox",
    "data_alibi", "path", "transformer_xl", "cope", "dape", "stick-breaking",
)  # fmt: skip
_OF_EACH_KIND = ("nope", "sinusoidal", "rope", "xpos", "alibi", "t5", "kerple", "fire", "fox", "stick-breaking")
_IN_SIZES = ("nope", "sinusoidal", "rope", "alibi", "t5", "fire", "fox", "stick-breaking")
RECORDED: dict[str, tuple[str, ...]] = {
    "text": (
        "nope", "sinusoidal", "learned", "rope", "xpos", "resonance", "multiscale", "proportional", "alibi", "t5",
        "kerple", "sandwich", "fire", "log_cpb", "distance_mlp", "shaw", "fox", "data_alibi", "transformer_xl",
        "stick-breaking", "sink", "ssmax", "log_n", "token_relative",
    ),
    "text-more": ("rope", "transformer_xl", "cope", "path", "dape", "mixture"),
    "prose": _OF_EACH_KIND,
    "prose-long": _OF_EACH_KIND,
    "text-1M": _IN_SIZES,
    "text-4M": _IN_SIZES,
    "text-long": _OF_EACH_KIND,
    "methods": (
        "rope", "alibi", "fox", "clipped", "rope_pp", "fope", "pope", "tape", "grape_m", "selective_rope",
        "grape_context", "grape_a", "grape_ap", "kerple", "kerple_weight",
    ),
    "quick": ("nope", "sinusoidal", "learned", "rope", "alibi", "t5", "fox", "stick-breaking"),
    "extension": (
        "rope", "pi", "ntk", "dynamic_ntk", "ntk_by_parts", "yarn", "dynamic_yarn", "llama3", "longrope", "resonance",
        "clex", "clipped", "self_extend", "rerope", "leaky_rerope", "dual_chunk", "string", "lm_infinite",
        "streaming_llm",
    ),
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
    "copy-long": ("nope", "rope", "alibi", "kerple", "fox", "stick-breaking"),
    "addition": ("nope", "abacus", "rope", "alibi", "fire", "fox"),
}  # fmt: skip


def tables_with(name: str) -> list[str]:
    """Paths of the tables in the project's documentation that have an encoding among their rows.

    >>> tables_with("abacus")
    ['docs/results/addition/table.md']
    """
    return [f"docs/results/{folder}/table.md" for folder, names in RECORDED.items() if name in names]
