"""mlx-vlm: ``mlx_vlm.server``, for models that see; oMLX runs the same classes.

No record of the bench is of it: of what its code decides, that is known which was read.
Source: mlx-vlm 0.7.10, models/qwen3_5/language.py:918 (base, share and sections alone are handed to the rotary class:
    jundot/omlx#3347); models/qwen2_vl, qwen2_5_vl, qwen3_vl, qwen3_vl_moe and paddleocr_vl/config.py, which raise an
    error for every rope type but mrope and default. Read in the released wheel, not run.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from posenc.hf.serving.lines import Line, Serving

COLUMN, VERSION = "mlx_vlm", "0.7.10"
FOR_PARTS = True
_UNSCALED = ("qwen3_5", "qwen3_5_moe")
_REFUSED = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "paddleocr_vl")


def line(serving: Serving) -> Line:
    """The line of mlx-vlm, whose classes are its own and not mlx-lm's."""
    wrong = [*differences(serving)]
    if wrong:
        return Line("mlx-vlm", VERSION, "", False, f"{wrong[0]} (read in its code, not run)")
    command = f"mlx_vlm.server --model {shlex.quote(serving.folder)}"
    return Line("mlx-vlm", VERSION, command, None, "not measured: its classes read keys of their own")


def differences(serving: Serving) -> Iterator[str]:
    """What mlx-vlm's code makes of a config otherwise than the file says."""
    kinds = {block.get("rope_type", "default") for block in serving.blocks if block is not None} - {"default"}
    model_type = serving.facts.text.model_type.removesuffix("_text")
    if kinds and model_type in _UNSCALED:
        yield f"mlx-vlm's class of {model_type} reads no scaling, so that {' and '.join(sorted(kinds))} has no effect"
    elif kinds and model_type in _REFUSED:
        yield f"mlx-vlm's class of {model_type} refuses rope type {' and '.join(sorted(kinds))}"
