"""Entries of place 2, queries and keys."""

from __future__ import annotations

from posenc.catalogue.entry import Entry
from posenc.rotary.rope import RoPE

ENTRIES = (
    Entry(
        name="rope",
        place="rotary",
        encoding=RoPE,
        title="RoPE: rotary position embedding",
        formula="q, k ← R(p) q, R(p) k, pairs turned by p·theta_j, theta_j = base^(−2j/rotary_dim)",
        source="Su et al., arXiv 2104.09864, eq. 15 and 34",
        parameters="none",
        cost="one rotation of q and k a layer",
        past_training="angles never seen in training",
    ),
)
