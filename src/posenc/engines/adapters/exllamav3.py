"""exllamav3: cos and sin of its class RoPE, without its compiled extension.

Source: exllamav3 1.6.5, util/rope.py (RopeSettings and RoPE), model/config.py (read_rope_settings_default).
"""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

from posenc.engines.adapters import Adapter, Question, Rows, installed
from posenc.engines.adapters._configs import PLAIN, head_size, loaded, rows_of


def _prepare() -> None:
    """Make its package importable without running its __init__, which builds CUDA kernels."""
    if "exllamav3" in sys.modules:
        return
    spec = importlib.util.find_spec("exllamav3")
    if spec is None or spec.origin is None:
        raise ImportError("exllamav3 is not installed")
    root = Path(spec.origin).parent
    for name, folder in (("exllamav3", root), ("exllamav3.util", root / "util")):
        package = types.ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package
    extension = types.ModuleType("exllamav3.ext")
    extension.exllamav3_ext = None  # type: ignore[attr-defined]
    sys.modules["exllamav3.ext"] = extension


def measure(question: Question) -> Rows:
    """cos and sin as RoPE.compute_sincos gives them."""
    import torch

    _prepare()
    from exllamav3.util.rope import RoPE, RopeSettings  # type: ignore[import-not-found, unused-ignore]

    config = loaded(question.config)
    block: dict[str, Any] = config.rope_parameters
    rotary = RoPE("cpu", RopeSettings(
        head_dim=head_size(question.config), rope_theta=block["rope_theta"], rope_scaling=block,
        partial_rotary_factor=block.get("partial_rotary_factor", 1.0),
        max_position_embeddings=config.max_position_embeddings,
        original_max_position_embeddings=block.get("original_max_position_embeddings"),
    ))  # fmt: skip
    sin, cos = rotary.compute_sincos(torch.tensor(question.positions))
    half = cos.shape[-1] // 2  # in the NeoX layout both halves are equal
    return rows_of(cos[:, :half], sin[:, :half])


ADAPTER = Adapter(
    "exllamav3", "pip install --no-deps exllamav3==1.6.5", installed("exllamav3"), "cos and sin", measure,
    "util/rope.py: RoPE.compute_sincos, with RopeSettings from the config's block", PLAIN,
)  # fmt: skip
