"""What engines compute wrong, as measured; the flags that posenc recommends rest on this table alone.

`engine_table.json` holds a figure for each engine and each kind of block, with versions and date; an engine is right
where its figure is below ``right``. What was not measured is not called right.
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


class Cell(NamedTuple):
    """One cell of the table.

    Attributes:
        engine: whose.
        case: the kind of block: a rope type, or one with a key that changes what it means.
        gap: to transformers; None where there is no number.
        right: whether the engine was measured to compute it as transformers does.
        text: a clause for people.
    """

    engine: str
    case: str
    gap: float | None
    right: bool
    text: str


@lru_cache(maxsize=1)
def table() -> dict[str, Any]:
    """The whole file."""
    found: dict[str, Any] = json.loads(
        files("posenc.hf.serving").joinpath("engine_table.json").read_text(encoding="utf-8")
    )
    return found


def cell(engine: str, case: str) -> Cell:
    """What was measured of an engine and a kind of block.

    Raises:
        ValueError: for an engine or a case that the table does not have.
    """
    whole = table()
    if engine not in whole["engines"] or case not in whole["gaps"]:
        raise ValueError(
            f"engine must be one of {', '.join(whole['engines'])} and case of {', '.join(whole['gaps'])}, got "
            f"{engine!r}, {case!r}"
        )
    who, found = f"{engine} {whole['engines'][engine]['version']}", whole["gaps"][case].get(engine)
    if isinstance(found, float):
        right = found <= whole["right"]
        text = f"{who} is right" if right else f"{who} is {found:.2g} away from transformers"
        return Cell(engine, case, found, right, f"{text} ({case}; measured {whole['date']})")
    return Cell(engine, case, None, False, f"{who} ({case}): {found or 'not measured'}")


def cases(block: Block, length: int | None = None) -> list[str]:
    """The kinds that a block belongs to; an engine must be right in each.

    Args:
        block: of ``rope_parameters``, with the names of version 5.
        length: tokens that are served; None: more than the original length.
    """
    kind = block.get("rope_type", "default")
    found = [kind]
    if kind == "yarn":
        found += [f"yarn: {key}" for key in ("attention_factor", "attn_factor") if block.get(key) is not None]
        scales = bool(block.get("mscale")) + bool(block.get("mscale_all_dim"))
        if scales:
            found.append(f"yarn: {'one of ' if scales == 1 else ''}mscale and mscale_all_dim")
        if (block.get("beta_fast") or 32, block.get("beta_slow") or 1) != (32, 1):
            found.append("yarn: betas")
        if block.get("truncate") is False:
            found.append("yarn: truncate false")
    elif kind == "longrope":
        original = block.get("original_max_position_embeddings")
        if length is not None and original is not None and length <= original:
            found = ["longrope: within the original length"]
        gains = {"short_mscale", "long_mscale"} <= {key for key, value in block.items() if value is not None}
        if gains:
            found.append("longrope: short_mscale and long_mscale")
        elif block.get("attention_factor") is not None:
            found.append("longrope: attention_factor")
    elif kind == "proportional" and (block.get("factor") or 1) != 1:
        found.append("proportional: factor")
    if kind != "proportional" and (block.get("partial_rotary_factor") or 1) != 1:
        found.append("partial")
    return found


def wrong(engine: str, block: Block, length: int | None = None) -> list[Cell]:
    """The cells of a block in which an engine is wrong, or was not measured; arguments as for `cases`."""
    known = table()["gaps"]
    return [one for case in cases(block, length) if case in known and not (one := cell(engine, case)).right]
