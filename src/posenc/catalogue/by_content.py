"""Entries of hook point 4 whose rotations and slopes depend on the tokens: GRAPE."""

from __future__ import annotations

from collections.abc import Mapping

from posenc.entry import IN_ORDER, Entry, a_key_head_per_query_head
from posenc.score.grape import GRAPEA
from posenc.score.grape_context import GRAPEContext
from posenc.score.grape_path import GRAPEAP


def _path_of_a_head(shape: Mapping[str, object]) -> dict[str, object]:
    width = shape.get("head_dim")
    return {"path_dim": width + width % 2} if isinstance(width, int) else {}


ENTRIES = (
    Entry(
        name="grape_context",
        encoding=GRAPEContext,
        title="Contextual GRAPE-M: rotation by a phase that accumulates over tokens",
        formula="s_ij = scale · R(−phase_i)q_i · R(−phase_j)k_j,  phase_t = Σ_{l < t} sigmoid(logit(x_l)/omega_scale)",
        source="Zhang et al., arXiv 2512.07805",
        parameters="dim + 1 + head_dim/2 per layer, times key heads where each has its own",
        cost="a running sum, a rotation of q and all keys; one number per key in the cache",
        past_training="phases keep growing; angles never seen in training",
        reads="content",
        extension="none of its own",
        used_in="its paper's own models; no other is known to us",
        defaults=a_key_head_per_query_head,
        exempt=IN_ORDER,
    ),
    Entry(
        name="grape_a",
        encoding=GRAPEA,
        title="GRAPE-A: a distance bias whose slope depends on keys, queries or both",
        formula="s_ij ← s_ij − max(p_i − p_j, 0) · slope_h · softplus(omega_h) · softplus(u_h·k_j/√d)",
        source="Zhang et al., arXiv 2512.07805",
        parameters="(head_dim + 1) × heads per layer, or (2 · head_dim + 1) × heads",
        cost="a product over all logits, computed by blocks",
        past_training="weights keep decaying with distance, at rates set by content",
        reads="distances and content",
        extension="none needed: like ALiBi, it decays with distance",
        used_in="its paper's own models; no other is known to us",
    ),
    Entry(
        name="grape_ap",
        encoding=GRAPEAP,
        title="GRAPE-AP: a bias that accumulates over the tokens between key and query",
        formula="s_ij ← s_ij + slope_h · Σ_{j < l ≤ i} logsigmoid(p_i · R(−l) p̂_l / d_p)",
        source="Zhang et al., arXiv 2512.07805",
        parameters="dim × heads · path_dim per layer",
        cost="a second product of the size of q·k and a running sum over all logits; path_dim numbers per head and key"
        " in the cache",
        past_training="weights keep decaying with distance; phases of single tokens are as in training",
        reads="content and positions",
        extension="none of its own",
        used_in="its paper's own models; no other is known to us",
        defaults=_path_of_a_head,
        exempt={
            "common_shift": "keys are rotated and queries are not, so absolute positions matter",
            "shuffled_positions": "keys must lie in the order of the text",
        },
    ),
)
