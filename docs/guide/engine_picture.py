"""The README's picture: the table of engines, by kind of rotation, from the bench's records."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from posenc.hf.serving.table import (
    CONVERTER,
    MLX,
    SGLANG,
    VLLM,
    EngineResult,
    engine_result,
    engine_table,
    newest,
)

COLUMNS = {  # engine and spelling of the config, by what the picture calls them
    (VLLM, "v5"): "vLLM", (SGLANG, "v5"): "SGLang", (CONVERTER, "v5"): "llama.cpp convert",
    (MLX, "v4"): "mlx-lm, v4 keys", (MLX, "v5"): "mlx-lm, v5 keys", ("litgpt", "v5"): "litgpt",
    ("torchtitan", "v5"): "torchtitan", ("torchtune", "v5"): "torchtune",
    ("unsloth", "v5"): "unsloth", ("exllamav3", "v5"): "exllamav3", ("lmdeploy", "v5"): "LMDeploy",
}  # fmt: skip
ROWS = (
    "default", "linear", "llama3", "yarn", "yarn: attention_factor", "yarn: mscale and mscale_all_dim", "yarn: betas",
    "yarn: truncate false", "longrope", "longrope, within the original length", "longrope: attention_factor", "dynamic",
)  # fmt: skip
_LEFT, _ABOVE, _WIDE, _TALL = 236, 142, 42, 24
_STYLE = (
    "text{font:13px sans-serif;fill:#1b1f23}.cell{text-anchor:middle}.paper{fill:#fff}.right{fill:#cdeccf}"
    ".off{fill:#ffd0c7}.none{fill:#eceff1}.bold{font-weight:700}"
    "@media(prefers-color-scheme:dark){text{fill:#e6e9ec}.paper{fill:#14171a}.right{fill:#1f4d2b}.off{fill:#7a2e1f}"
    ".none{fill:#2a2f34}}"
)


def engines_tried() -> int:
    """Engines and libraries of the picture, each counted once."""
    return len({engine for engine, _ in COLUMNS})


def engines_off() -> int:
    """Engines and libraries of the picture that compute at least one kind of rotation differently from transformers."""
    return len({engine for engine, _ in COLUMNS if any(map(_is_off, _results(engine)))})


def _results(engine: str) -> Iterator[EngineResult]:
    """The measurement of every row and spelling that an engine was asked, of Llama where it was asked with Llama."""
    for row, spellings in engine_table()["engines"][engine][newest(engine)]["rows"].items():
        for spelling, entries in spellings.items():
            asked = [model for entry in entries for model in entry["models"]]
            yield engine_result(engine, row, spelling, "llama" if "llama" in asked else asked[0])


def _is_off(result: EngineResult) -> bool:
    return result.wrong and result.gap is not None


def picture() -> str:
    """The SVG: a row for each kind of rotation, a column for each engine."""
    wide, tall = _LEFT + _WIDE * len(COLUMNS) + 84, _ABOVE + _TALL * len(ROWS) + 44
    parts = [f'<rect class="paper" width="{wide}" height="{tall}"/>']
    for i, ((engine, _), name) in enumerate(COLUMNS.items()):
        x = _LEFT + i * _WIDE + _WIDE / 2
        words = name if engine == CONVERTER else f"{name} {newest(engine)}"  # whose version is llama_cpp_python's
        parts.append(f'<text transform="translate({x + 4:.0f} {_ABOVE - 8}) rotate(-48)">{escape(words)}</text>')
    for line, row in enumerate(ROWS):
        y = _ABOVE + line * _TALL
        parts.append(f'<text x="6" y="{y + 17}">{escape(row)}</text>')
        parts += [
            _cell(_LEFT + i * _WIDE, y, engine_result(engine, row, spelling, "llama"))
            for i, (engine, spelling) in enumerate(COLUMNS)
        ]
    y = _ABOVE + len(ROWS) * _TALL + 18
    parts.append(f'<text x="6" y="{y}">✓ as transformers computes it. A number: how far off, without an error.</text>')
    parts.append(f'<text x="6" y="{y + 18}">– it has no such key, refuses, or was not measured.</text>')
    box = f'width="{wide}" height="{tall}" viewBox="0 0 {wide} {tall}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img">'
        f"<title>{escape(words_of())}</title><style>{_STYLE}</style>{''.join(parts)}</svg>\n"
    )


def _cell(x: float, y: float, result: EngineResult) -> str:
    kind, text = ("right", "✓") if result.right else ("off", f"{result.gap:.2g}") if _is_off(result) else ("none", "–")
    weight = " bold" if kind == "off" else ""
    box = f'<rect class="{kind}" x="{x + 1:.0f}" y="{y + 1}" width="{_WIDE - 2}" height="{_TALL - 2}"/>'
    return f'{box}<text class="cell{weight}" x="{x + _WIDE / 2:.0f}" y="{y + 17}">{text}</text>'


def words_of() -> str:
    """What is to be seen, in words."""
    return (
        f"Of {engines_tried()} engines and libraries {engines_off()} compute at least one kind of RoPE scaling "
        f"differently from transformers (measured {_dates()})."
    )


def _dates() -> str:
    """The day, or the first and the last, of the newest records."""
    engines = engine_table()["engines"]
    dates = sorted({engines[engine][newest(engine)]["date"] for engine, _ in COLUMNS if newest(engine)})
    return " to ".join(dict.fromkeys((dates[0], dates[-1])))
