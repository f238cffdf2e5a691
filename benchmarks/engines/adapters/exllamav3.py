"""exllamav3: cos and sin of its class RoPE, without its compiled extension.

Source: exllamav3 1.6.5, util/rope.py (RopeSettings and RoPE), model/config.py (read_rope_settings_default).
"""

from __future__ import annotations

import sys
import types
from typing import Any

from benchmarks.engines.adapters import Adapter, Question, Rows, installed
from benchmarks.engines.adapters._configs import BLOCK_AS_IS, head_size, loaded, rows_of, skip_init


def _prepare() -> None:
    """Make its rope importable; its ``__init__`` builds CUDA kernels, which rope.py names and does not call here."""
    skip_init("exllamav3", "exllamav3.util")
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
        original_max_position_embeddings=block.get("original_max_position_embeddings"), **question.options,
    ))  # fmt: skip
    sin, cos = rotary.compute_sincos(torch.tensor(question.positions))
    half = cos.shape[-1] // 2  # in the NeoX layout both halves are equal
    return rows_of(cos[:, :half], sin[:, :half])


ADAPTER = Adapter(
    "exllamav3", "pip install --no-deps exllamav3==1.6.5", installed("exllamav3"), "cos and sin", measure,
    "util/rope.py: RoPE.compute_sincos, with RopeSettings from the config's block", BLOCK_AS_IS,
    "cos and sin are compute_sincos' own, without the compiled extension; the adapter fills RopeSettings",
)  # fmt: skip
