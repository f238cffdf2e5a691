"""Rules for models new and trained: the memory of a cache, the engine, and what nothing here says."""

from __future__ import annotations

from posenc.hf.serving.table import CONVERTER, MLX, SGLANG, VLLM, engine_result, version_of
from posenc.recommend.needs import DECODERS, KINDS, SERVERS, TEXT
from posenc.recommend.rule import Rule, When

_WITHOUT_CACHE = ("encoder", "vision")
_CACHED = {"kind": tuple(kind for kind in KINDS if kind not in _WITHOUT_CACHE)}
_IN_TABLE = (*DECODERS, "vision-language")
_OTHER_KINDS = tuple(kind for kind in KINDS if kind not in ("decoder", "code"))
_COLUMNS = {"vllm": VLLM, "sglang": SGLANG, "llama.cpp": CONVERTER, "mlx": MLX}
_SPELLING = {MLX: "v4"}  # of which the sentence tells, where it is not version 5's
_USUAL = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")

MEMORY = (
    Rule("memory", "A bfloat16 cache for {length} tokens takes {cache} GiB {shape}, and you have {memory}, which holds "
         "{fitting} tokens. Keep a window of so many, which loses what left it, quantise the cache, or take a model "
         "with local layers (Gemma 3: five with a window of 1,024 to one global) or linear attention in most layers "
         "(Qwen3.5: three of four).", "practice", ("quantized_cache", "gemma3", "qwen3_5"),
         {**_CACHED, "budget": "over"}),
    Rule("memory", "A bfloat16 cache for {length} tokens takes {cache} GiB {shape}: within your {memory}.",
         "by definition", ("docs/decoding.md",), {**_CACHED, "budget": "fits"}),
    Rule("memory", "The shape of this model's cache could not be read from its configuration.", "not known",
         ("docs/decoding.md",), {**_CACHED, "budget": "unknown"}),
    Rule("memory", "An encoder keeps no key/value cache, so a budget of {memory} GiB for it decides nothing.",
         "by definition", ("docs/decoding.md",), {"kind": _WITHOUT_CACHE, "budget": ("over", "fits", "unknown")}),
)  # fmt: skip

UNKNOWN = (
    Rule("unknown", "Nothing recorded here tests {goal} for {a_what}.", "not known", ("docs/findings.md",),
         {"kind": _OTHER_KINDS, "task": ("perplexity", "retrieval", "streaming")}),
    Rule("unknown", "What an extension does to {goal} was not tested here, and no source is known here.", "not known",
         ("docs/findings.md",), {"model": "checkpoint", "kind": TEXT, "algorithmic": True, "ratio": {"above": 1.0}}),
    Rule("engine", "What {server} computes for {a_what} was not measured here.", "not known", ("docs/engine-table.md",),
         {"engine": SERVERS, "kind": tuple(kind for kind in KINDS if kind not in _IN_TABLE)}),
)  # fmt: skip


def engine_rules() -> tuple[Rule, ...]:
    """Which of the usual rope types each engine was measured to compute right, and which not."""
    return tuple(_of_engine(engine, column) for engine, column in _COLUMNS.items())


def _of_engine(engine: str, column: str) -> Rule:
    results = {row: engine_result(column, row, _SPELLING.get(column, "v5")) for row in _USUAL}
    right = ", ".join(row for row, result in results.items() if result.right)
    wrong = ", ".join(row for row, result in results.items() if result.right is False)
    name = f"{{server}} {version_of(column)}"
    if column == CONVERTER:
        name = f"The converter of llama.cpp (llama_cpp_python {version_of(column)})"
    text = f"{name} computes {right} correctly{f', but not {wrong}' if wrong else ''}."
    line = "posenc serve MODEL prints a model's own line, or why there is none."
    when: When = {"engine": engine, "kind": _IN_TABLE, "given": False}  # else the model's own line
    return Rule("engine", f"{text} {line}", "engine table", ("docs/engine-table.md",), when)
