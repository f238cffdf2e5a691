"""torchtitan: ComplexRoPE with the block's numbers under torchtitan's names; it reads no config.json.

YaRN is not tested: torchtitan's models put its gain into the softmax scale, so cos and sin alone decide nothing.
Source: torchtitan 0.3.0, models/common/rope.py.
"""

from __future__ import annotations

from typing import Any

from benchmarks.engines.adapters import Adapter, NotRunError, Question, Rows, installed
from benchmarks.engines.adapters._configs import head_size, rows_of, version_5_block

_NAMES = {
    "default": ("none", {}),
    "llama3": ("llama", {"factor": "scaling_factor", "low_freq_factor": "low_freq_factor",
                         "high_freq_factor": "high_freq_factor",
                         "original_max_position_embeddings": "original_max_position_embeddings"}),
}  # fmt: skip


def measure(question: Question) -> Rows:
    """cos and sin of the module's cache."""
    import torch
    from torchtitan.models.common.rope import (  # type: ignore[import-not-found, unused-ignore]
        ComplexRoPE,
    )

    block = version_5_block(question.config)
    if block["rope_type"] == "yarn":
        raise NotRunError("YaRN's gain is in the models' softmax scale, so that cos and sin alone decide nothing")
    if block["rope_type"] not in _NAMES:
        raise NotRunError(f"RoPE.Config has no such scaling as {block['rope_type']}")
    scaling, names = _NAMES[block["rope_type"]]
    unknown = set(block) - {*names, "rope_type", "rope_theta"}
    if unknown:
        raise NotRunError(f"RoPE.Config has no key for {', '.join(sorted(unknown))}")
    settings: dict[str, Any] = {names[key]: value for key, value in block.items() if key in names}
    rotary = ComplexRoPE(ComplexRoPE.Config(
        dim=head_size(question.config), max_seq_len=question.length, theta=block["rope_theta"], scaling=scaling,
        **settings,
    ))  # fmt: skip
    cache = rotary.cache[torch.tensor(question.positions)]
    return rows_of(cache.real, cache.imag)


ADAPTER = Adapter(
    "torchtitan", "pip install --no-deps torchtitan==0.3.0", installed("torchtitan"), "cos and sin", measure,
    "models/common/rope.py: ComplexRoPE, the block's numbers under torchtitan's names",
    route="rows of the module's own cache; the adapter translates the block's keys, as torchtitan reads no config.json",
)  # fmt: skip
