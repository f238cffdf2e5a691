"""Rules about engines, made from what their own code was measured to compute (`posenc.hf.serving`, engine table)."""

from __future__ import annotations

from posenc.hf.serving.table import (
    CONVERTER,
    MLX,
    SGLANG,
    SPELLINGS,
    VLLM,
    engine_result,
    engine_results,
    engine_table,
    newest,
)
from posenc.recommend.rule import Rule, When

_LM = ("decoder", "code", "research")
_PAGE = ("docs/engine-table.md",)
_COLUMNS = {"vllm": VLLM, "sglang": SGLANG, "llama.cpp": CONVERTER, "mlx": MLX}
_SPELLING = {VLLM: "v5", SGLANG: "v5", CONVERTER: "v5", MLX: "v4"}  # of which the sentence tells
_OWN_LINE = (
    "posenc extend MODEL --length {length_digits} --config-only prints a model's own line, or why there is none."
)


def engine_rules() -> tuple[Rule, ...]:
    """What each engine computes right and wrong, with versions, and what to do."""
    return tuple(
        rule for engine, column in _COLUMNS.items()
        for rule in (_measured(engine, column), _other_encodings(engine), _other_models(engine))
    )  # fmt: skip


def engine_defaults() -> tuple[Rule, ...]:
    """For each engine that computes both usual ways to a long context right, the default that says so."""
    rules = []
    for engine, column in _COLUMNS.items():
        if all(engine_result(column, row, _SPELLING[column]).right for row in ("default", "yarn", "llama3")):
            words = (
                "RoPE (half layout). Decide now how you will reach {length} tokens: two ways are in use, and {server} "
                "computes a raised base and plain YaRN right."
            )
            when: When = {"model": "new", "kind": ("decoder", "code"), "algorithmic": False, "engine": engine,
                          "ratio": {"above": 1.0}, "budget": ("none", "fits"),
                          "task": ("general", "perplexity", "retrieval")}  # fmt: skip
            rules.append(Rule("default", words, "engine table", (*_PAGE, "llama3", "deepseek_v3"), when))
    return tuple(rules)


def _measured(engine: str, column: str) -> Rule:
    """The newest record's results; for Llama where Llama was tested."""
    results = [result for result in engine_results(column) if result.spelling == _SPELLING[column]]
    right = [result.row for result in results if result.right]
    wrong = [f"{r.row} ({r.gap:.2g})" for r in results if r.wrong and r.gap is not None]
    known = ", ".join(name for name in ("default", "linear", "llama3", "yarn", "longrope") if name in right)
    version = newest(column)
    measures = engine_table()["engines"][column][version]["measures"]
    what = {"cos and sin": "rotary class", "logits": "whole models"}[measures]
    name = f"The converter of llama.cpp (llama_cpp_python {version})" if column == CONVERTER else (
        f"{{server}} {version}, {what},"
    )  # fmt: skip
    text = f"{name} computes {len(right)} of {len(results)} kinds of {SPELLINGS[_SPELLING[column]]} right"
    text += f", plain {known} among them." if known else "."
    text += f" Different from transformers (largest difference): {'; '.join(wrong)}." if wrong else ""
    when: When = {"engine": engine, "kind": (*_LM, "vision-language"), "given": False}  # else the model's own line
    return Rule("engine", f"{text} {_OWN_LINE}", "engine table", _PAGE, when)


def _other_encodings(engine: str) -> Rule:
    words = "An encoding other than RoPE runs in {server} only in a model class that computes it."
    return Rule("engine", words, "by definition", _PAGE, {"engine": engine, "kind": _LM, "model": "new"})


def _other_models(engine: str) -> Rule:
    kinds = ("encoder", "encoder-decoder", "vision", "video", "image-generation", "speech", "music", "protein",
             "algorithmic", "other")  # fmt: skip
    return Rule("engine", "What {server} computes for {a_what} was not measured here.", "not known", _PAGE,
                {"engine": engine, "kind": kinds})  # fmt: skip
