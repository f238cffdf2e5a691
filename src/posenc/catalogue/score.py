"""Entries of place 4, scores."""

from __future__ import annotations

from posenc.catalogue.entry import Entry
from posenc.score.shaw import Shaw

ENTRIES = (
    Entry(
        name="shaw",
        place="score",
        encoding=Shaw,
        title="Shaw's relative position representations",
        formula="s_ij ← s_ij + scale · q_i·key_table[r],  o_i ← o_i + Σ_j a_ij value_table[r],  r = clip(p_j − p_i)",
        source="Shaw et al., arXiv 1803.02155, eq. 3 and 4",
        parameters="2 × (2·max_distance + 1) × head_dim a layer",
        cost="one product of q with the table, one gather over all scores",
        past_training="all distances beyond max_distance look alike",
        lengths=lambda train_length: {"max_distance": max(1, train_length // 4)},
        lr_multiplier=10.0,
        shared=False,
        exempt={"fractional_positions": "a table has no rows between rows"},
    ),
)
