"""``python -m guide.engine_picture``: the table of engines by kind of rotation as the README's picture.

From the engine table that `posenc.hf` carries (benchmarks/engine_table.py measures it). A test fails where the picture
is older than the table.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from posenc.hf.serving.engines import EngineResult, engine_result, engine_table

PICTURE = Path(__file__).parents[1] / "docs" / "assets" / "engines.svg"
COLUMNS = {  # of the table, by what the picture calls them
    "vLLM": "vLLM", "SGLang": "SGLang", "llama.cpp's converter": "llama.cpp convert",
    "mlx-lm, version-4 keys": "mlx-lm, v4 keys", "mlx-lm, version-5 keys": "mlx-lm, v5 keys", "litgpt": "litgpt",
    "torchtitan": "torchtitan", "unsloth": "unsloth",
}  # fmt: skip
WRITER = "llama.cpp, posenc gguf"  # what posenc writes for llama.cpp: no engine of its own
ROWS = (
    "default", "linear", "llama3", "yarn", "yarn: attention_factor", "yarn: mscale and mscale_all_dim", "yarn: betas",
    "yarn: truncate false", "longrope", "longrope: within the original length", "longrope: attention_factor", "dynamic",
)  # fmt: skip
_LEFT, _ABOVE, _WIDE, _TALL = 236, 142, 42, 24
_STYLE = (
    "text{font:13px sans-serif;fill:#1b1f23}.cell{text-anchor:middle}.paper{fill:#fff}.right{fill:#cdeccf}"
    ".off{fill:#ffd0c7}.none{fill:#eceff1}.bold{font-weight:700}"
    "@media(prefers-color-scheme:dark){text{fill:#e6e9ec}.paper{fill:#14171a}.right{fill:#1f4d2b}.off{fill:#7a2e1f}"
    ".none{fill:#2a2f34}}"
)


def engines_tried() -> int:
    """Engines and libraries of the table, each counted once."""
    return len({_engine(column) for column in COLUMNS})


def engines_off() -> int:
    """Those of them that were measured to compute at least one kind of rotation differently from transformers."""
    return len({_engine(column) for column in COLUMNS if any(_is_off(r) for r in _results(column))})


def _engine(column: str) -> str:
    return column.partition(",")[0]


def _results(column: str) -> list[EngineResult]:
    return [engine_result(column, case) for case in engine_table()["gaps"]]


def _is_off(result: EngineResult) -> bool:
    return result.gap is not None and not result.right


def picture() -> str:
    """The SVG: a row for each kind of rotation, a column for each engine."""
    table = engine_table()
    wide, tall = _LEFT + _WIDE * len(COLUMNS) + 84, _ABOVE + _TALL * len(ROWS) + 44
    parts = [f'<rect class="paper" width="{wide}" height="{tall}"/>']
    for i, (column, name) in enumerate(COLUMNS.items()):
        x = _LEFT + i * _WIDE + _WIDE / 2
        version = table["engines"][column]["version"].rpartition(" ")[2]
        words = f"{name} {version}" if version[0].isdigit() and "." in version else name
        parts.append(f'<text transform="translate({x + 4:.0f} {_ABOVE - 8}) rotate(-48)">{escape(words)}</text>')
    for row, case in enumerate(ROWS):
        y = _ABOVE + row * _TALL
        parts.append(f'<text x="6" y="{y + 17}">{escape(case)}</text>')
        parts += [_cell(_LEFT + i * _WIDE, y, engine_result(column, case)) for i, column in enumerate(COLUMNS)]
    y = _ABOVE + len(ROWS) * _TALL + 18
    parts.append(f'<text x="6" y="{y}">✓ as transformers computes it. A number: how far off, without an error.</text>')
    parts.append(f'<text x="6" y="{y + 18}">– it has no such key, refuses, or was not measured.</text>')
    box = f'width="{wide}" height="{tall}" viewBox="0 0 {wide} {tall}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img">'
        f"<title>{escape(words_of())}</title><style>{_STYLE}</style>{''.join(parts)}</svg>\n"
    )


def _cell(x: float, y: float, result: EngineResult) -> str:
    kind, text = (
        ("right", "✓") if result.right else ("none", "–") if result.gap is None else ("off", f"{result.gap:.2g}")
    )
    weight = " bold" if kind == "off" else ""
    box = f'<rect class="{kind}" x="{x + 1:.0f}" y="{y + 1}" width="{_WIDE - 2}" height="{_TALL - 2}"/>'
    return f'{box}<text class="cell{weight}" x="{x + _WIDE / 2:.0f}" y="{y + 17}">{text}</text>'


def words_of() -> str:
    """What is to be seen, in words."""
    return (
        f"Of {engines_tried()} engines and libraries {engines_off()} compute at least one kind of RoPE scaling "
        f"differently from transformers (measured {engine_table()['date']})."
    )


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
