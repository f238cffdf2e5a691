"""Rules about engines, made from what their own code was measured to compute (`posenc.hf.serving`, engine table)."""

from __future__ import annotations

from posenc.hf.serving.engines import CONVERTER, MLX_4, MLX_5, SGLANG, VLLM, WRITER, engine_result, engine_table
from posenc.recommend.rule import Rule, When

_LM = ("decoder", "code", "research")
_PAGE = ("docs/serving.md",)
_COLUMNS = {"vllm": VLLM, "sglang": SGLANG, "llama.cpp": CONVERTER, "mlx": MLX_4}
_MORE = {  # what a user of the engine does about it
    "vllm": "posenc serve-flags CHECKPOINT --length {length_digits} prints its line.",
    "sglang": "posenc serve-flags CHECKPOINT --length {length_digits} prints its line.",
    "llama.cpp": "posenc gguf writes what the converter drops ({writer}); posenc serve-flags CHECKPOINT --length "
                 "{length_digits} prints the server's line.",
    "mlx": "Keep the keys of transformers 4 (rope_scaling) in the config: with version-5 keys alone its Llama reads no "
           "scaling ({version_5}).",
}  # fmt: skip


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
        if all(engine_result(column, case).right for case in ("default", "yarn", "llama3")):
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
    table = engine_table()
    results = [engine_result(column, case) for case, gaps in table["gaps"].items() if column in gaps]
    right = [result.case for result in results if result.right]
    wrong = [f"{r.case} ({r.gap:.2g})" for r in results if r.gap is not None and not r.right]
    none = [f"{r.case} ({table['gaps'][r.case][column]})" for r in results if r.gap is None]
    known = ", ".join(name for name in ("default", "linear", "llama3", "yarn", "longrope") if name in right)
    version, what = table["engines"][column]["version"], table["engines"][column]["what"]
    name = f"{column} ({version})" if engine == "llama.cpp" else f"{{server}} {version}, {what},"
    text = f"{name} computes {len(right)} of {len(results)} cases right, plain {known} among them."
    text += f" Wrong, by the gap to transformers: {', '.join(wrong)}." if wrong else ""
    text += f" Without a number: {', '.join(none)}." if none else ""
    text += " "
    facts = {
        "writer": f"right in {sum(engine_result(WRITER, c).right for c in table['gaps'])} cases",
        "version_5": f"YaRN is {engine_result(MLX_5, 'yarn').gap:.2g} off",
    }
    more = _MORE[engine]
    for key, value in facts.items():
        more = more.replace("{" + key + "}", value)
    when: When = {"engine": engine, "kind": (*_LM, "vision-language")}
    return Rule("engine", text + more, "engine table", _PAGE, when)


def _other_encodings(engine: str) -> Rule:
    words = "An encoding other than RoPE runs in {server} only in a model class that computes it."
    return Rule("engine", words, "by definition", _PAGE, {"engine": engine, "kind": _LM, "model": "new"})


def _other_models(engine: str) -> Rule:
    kinds = ("encoder", "encoder-decoder", "vision", "video", "image-generation", "speech", "music", "protein",
             "algorithmic", "other")  # fmt: skip
    return Rule("engine", "What {server} computes for {a_what} was not measured here.", "not known", _PAGE,
                {"engine": engine, "kind": kinds})  # fmt: skip
