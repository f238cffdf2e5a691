"""Entries of place 3, biases on the scores."""

from __future__ import annotations

from posenc.bias.alibi import ALiBi
from posenc.bias.t5 import T5Bias
from posenc.catalogue.entry import Entry

ENTRIES = (
    Entry(
        name="alibi",
        place="bias",
        encoding=ALiBi,
        title="ALiBi: attention with linear biases",
        formula="s_ij ← s_ij − m_h · |p_j − p_i|,  m_h = 2^(−8h/heads)",
        source="Press et al., arXiv 2108.12409, section 3",
        parameters="none",
        cost="one row of numbers a head",
        past_training="larger penalties on farther keys: the recent past keeps its weight",
    ),
    Entry(
        name="t5",
        place="bias",
        encoding=T5Bias,
        title="T5 relative bias",
        formula="s_ij ← s_ij + table[bucket(p_j − p_i), h]",
        source="Raffel et al., arXiv 1910.10683, section 2.1",
        parameters="num_buckets × heads, one table for all layers",
        cost="one row of numbers a head; its gradient",
        past_training="all distances from max_distance on share one bucket",
        lengths=lambda train_length: _t5_lengths(train_length),
        lr_multiplier=10.0,
    ),
)


def _t5_lengths(train_length: int) -> dict[str, int]:
    """Buckets up to half the training length, so that every bucket is trained; T5 has 32 for 128 tokens."""
    max_distance = max(2, train_length // 2)
    return {"max_distance": max_distance, "num_buckets": min(32, 2 * (max_distance // 2))}
