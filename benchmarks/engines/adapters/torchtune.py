"""torchtune: its rotary modules with the block's numbers as arguments; it reads no config.json.

Source: torchtune 0.6.1, modules/position_embeddings.py, models/llama3_1/_position_embeddings.py.
"""

from __future__ import annotations

from benchmarks.engines.adapters import Adapter, NotRunError, Question, Rows, installed
from benchmarks.engines.adapters._configs import head_size, rows_of, skip_init, version_5_block


def measure(question: Question) -> Rows:
    """cos and sin of the module's cache."""
    import torch

    skip_init("torchtune", "torchtune.modules", "torchtune.models", "torchtune.models.llama3_1")
    from torchtune.models.llama3_1._position_embeddings import (  # type: ignore[import-not-found, unused-ignore]
        Llama3ScaledRoPE,
    )
    from torchtune.modules.position_embeddings import (  # type: ignore[import-not-found, unused-ignore]
        RotaryPositionalEmbeddings,
    )

    block, head = version_5_block(question.config), head_size(question.config)
    base = int(block["rope_theta"])
    if block["rope_type"] == "default":
        rotary = RotaryPositionalEmbeddings(head, question.length, base)
    elif block["rope_type"] == "llama3":
        rotary = Llama3ScaledRoPE(
            head, question.length, base, scale_factor=block["factor"], low_freq_factor=block["low_freq_factor"],
            high_freq_factor=block["high_freq_factor"], old_context_len=block["original_max_position_embeddings"],
        )  # fmt: skip
    else:
        raise NotRunError(f"torchtune has no such scaling as {block['rope_type']}")
    cache = rotary.cache[torch.tensor(question.positions)]
    return rows_of(cache[..., 0], cache[..., 1])


ADAPTER = Adapter(
    "torchtune", "pip install --no-deps torchtune==0.6.1", installed("torchtune"), "cos and sin", measure,
    "RotaryPositionalEmbeddings and Llama3ScaledRoPE, the block's numbers as arguments",
    route="rows of the module's own cache; its packages are imported without their __init__, which needs a "
    "torchao that does not load under torch 2.13",
)  # fmt: skip
