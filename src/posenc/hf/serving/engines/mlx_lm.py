"""mlx-lm: ``mlx_lm.server``, which serves a written folder and takes no flags about positions."""

from __future__ import annotations

import shlex

from posenc.hf.serving.lines import Line, Serving
from posenc.hf.serving.table import MLX, version_of

COLUMN, VERSION = MLX, version_of(MLX)


def line(serving: Serving) -> Line:
    """The line of mlx-lm, whose model classes read other keys each: Gemma's reads no scaling."""
    name, checked = shlex.quote(serving.folder), serving.verdict(MLX)
    result = Line("mlx-lm", VERSION, f"mlx_lm.server --model {name}", checked.right, str(checked))
    if checked.right is False:
        both = serving.verdict(MLX, spelling="both")
        text_config = serving.facts.text
        newer = not any(text_config.get(key) is not None for key in ("rope_scaling", "rope_theta"))
        older = newer and text_config.family.since < 5 and both.right
        advice = f". posenc convert {name} --spelling both adds the keys that it reads: {both}" if older else ""
        return result._replace(command="", right=False, text=f"{checked}{advice}")
    return result if checked.right else result._replace(command="")
