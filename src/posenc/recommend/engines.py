"""Rules about engines, made from what their own code was measured to compute (`posenc.hf.serving`, engine table)."""

from __future__ import annotations

from posenc.hf.serving.table import (
    CONVERTER,
    MLX,
    SGLANG,
    VLLM,
    engine_result,
    newest,
)
from posenc.recommend.rule import Rule, When

_LM = ("decoder", "code", "research")
_PAGE = ("docs/engine-table.md",)
_COLUMNS = {"vllm": VLLM, "sglang": SGLANG, "llama.cpp": CONVERTER, "mlx": MLX}
_SPELLING = {VLLM: "v5", SGLANG: "v5", CONVERTER: "v5", MLX: "v4"}  # of which the sentence tells
_USUAL = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")
_OWN_LINE = "posenc serve MODEL prints a model's own line, or why there is none."


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
                "RoPE (half layout), base 500,000, then continued pretraining in stages up to {length} tokens; "
                "{server} computes it correctly, and plain YaRN too."
            )
            when: When = {"model": "new", "kind": ("decoder", "code"), "algorithmic": False, "engine": engine,
                          "ratio": {"above": 1.0}, "budget": ("none", "fits"),
                          "task": ("general", "perplexity", "retrieval")}  # fmt: skip
            rules.append(Rule("default", words, "engine table", (*_PAGE, "llama3", "deepseek_v3"), when))
    return tuple(rules)


def _measured(engine: str, column: str) -> Rule:
    """Which of the usual rope types the newest record has right, and which not."""
    results = {row: engine_result(column, row, _SPELLING[column]) for row in _USUAL}
    right = ", ".join(row for row, result in results.items() if result.right)
    wrong = ", ".join(row for row, result in results.items() if result.wrong)
    name = f"The converter of llama.cpp (llama_cpp_python {newest(column)})" if column == CONVERTER else (
        f"{{server}} {newest(column)}"
    )  # fmt: skip
    text = f"{name} computes {right} correctly" + (f", but not {wrong}" if wrong else "")
    when: When = {"engine": engine, "kind": (*_LM, "vision-language"), "given": False}  # else the model's own line
    return Rule("engine", f"{text}. {_OWN_LINE}", "engine table", _PAGE, when)


def _other_encodings(engine: str) -> Rule:
    words = "An encoding other than RoPE runs in {server} only in a model class that computes it."
    return Rule("engine", words, "by definition", _PAGE, {"engine": engine, "kind": _LM, "model": "new"})


def _other_models(engine: str) -> Rule:
    kinds = ("encoder", "encoder-decoder", "vision", "video", "image-generation", "speech", "music", "protein",
             "algorithmic", "other")  # fmt: skip
    return Rule("engine", "What {server} computes for {a_what} was not measured here.", "not known", _PAGE,
                {"engine": engine, "kind": kinds})  # fmt: skip
