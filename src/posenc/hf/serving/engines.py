"""What engines compute wrong, as measured: a table of engines and kinds of rope blocks, and questions about one block.

The table is measured by benchmarks/engine_table.py and holds a gap from transformers, or the reason why there is none,
for each engine and kind of block. Needs no torch.
"""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from posenc.hf.config.block_schema import Block

VLLM, SGLANG = "vLLM", "SGLang"
CONVERTER, WRITER = "llama.cpp's converter", "llama.cpp, posenc gguf"
MLX_4, MLX_5 = "mlx-lm, version-4 keys", "mlx-lm, version-5 keys"

_AS_TOKENS = ("qwen3_vl", "qwen3_5")  # whose positions never exceed the number of tokens, as vLLM's models say


class EngineResult(NamedTuple):
    """How one engine computes one kind of block, as measured.

    Attributes:
        engine: name and keys, a column of the table.
        case: the kind of block: a rope type, or one with a key that changes its meaning.
        gap: difference from transformers; None where there is no number.
        right: whether the engine was measured to compute the block as transformers does.
        text: a clause for messages.
    """

    engine: str
    case: str
    gap: float | None
    right: bool
    text: str


@lru_cache(maxsize=1)
def engine_table() -> dict[str, Any]:
    """What engines compute wrong, from ``engine_table.json``: a gap for each engine and kind of block, versions, date.

    An engine is right where its gap is below ``right``. What was not measured is not called right.
    """
    path = files("posenc.hf.serving").joinpath("engine_table.json")
    table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return table


def engine_result(engine: str, case: str) -> EngineResult:
    """The measurement of an engine on a kind of block.

    Raises:
        ValueError: for an engine or a case that the table does not have.
    """
    table = engine_table()
    if engine not in table["engines"] or case not in table["gaps"]:
        raise ValueError(
            f"engine must be one of {', '.join(table['engines'])} and case of {', '.join(table['gaps'])}, got "
            f"{engine!r}, {case!r}"
        )
    name, gap = f"{engine} {table['engines'][engine]['version']}", table["gaps"][case].get(engine)
    if isinstance(gap, float):
        right = gap <= table["right"]
        text = f"{name} is right" if right else f"{name} is {gap:.2g} away from transformers"
        date = table["dates"].get(case, table["date"])
        return EngineResult(engine, case, gap, right, f"{text} ({case}; measured {date})")
    return EngineResult(engine, case, None, False, f"{name} ({case}): {gap or 'not measured'}")


def cases_of_block(block: Block, length: int | None = None, model_type: str = "") -> list[str]:
    """The kinds that a block belongs to; an engine must be right in each.

    Args:
        block: of ``rope_parameters``, with the names of version 5.
        length: tokens that are served; None: more than the original length.
        model_type: of the text model, where engines treat families differently.
    """
    kind = block.get("rope_type", "default")
    cases = [kind]
    if kind == "yarn":
        cases += [f"yarn: {key}" for key in ("attention_factor", "attn_factor") if block.get(key) is not None]
        scales = bool(block.get("mscale")) + bool(block.get("mscale_all_dim"))
        if scales:
            cases.append(f"yarn: {'one of ' if scales == 1 else ''}mscale and mscale_all_dim")
        if (block.get("beta_fast") or 32, block.get("beta_slow") or 1) != (32, 1):
            cases.append("yarn: betas")
        if block.get("truncate") is False:
            cases.append("yarn: truncate false")
        if block.get("mrope_section") is not None:  # vLLM's ramp counts from 4 times the original length in most models
            cases.append("yarn: M-RoPE, Qwen3-VL and Qwen3.5" if model_type.startswith(_AS_TOKENS) else "yarn: M-RoPE")
    elif kind == "longrope":
        original = block.get("original_max_position_embeddings")
        if length is not None and original is not None and length <= original:
            cases = ["longrope: within the original length"]
        gains = {"short_mscale", "long_mscale"} <= {key for key, value in block.items() if value is not None}
        if gains:
            cases.append("longrope: short_mscale and long_mscale")
        elif block.get("attention_factor") is not None:
            cases.append("longrope: attention_factor")
    elif kind == "proportional" and (block.get("factor") or 1) != 1:
        cases.append("proportional: factor")
    if kind != "proportional" and (block.get("partial_rotary_factor") or 1) != 1:
        cases.append("partial")
    return cases


def engine_errors(engine: str, block: Block, length: int | None = None, model_type: str = "") -> list[EngineResult]:
    """The kinds of a block that an engine computes wrong, or that were not measured; see `cases_of_block`."""
    measured = engine_table()["gaps"]
    results = [engine_result(engine, case) for case in cases_of_block(block, length, model_type) if case in measured]
    return [result for result in results if not result.right]
