"""Entries: rotations by positions with several coordinates."""

from __future__ import annotations

from posenc.entry import Entry, Shape
from posenc.rotary.axial import AxialRoPE
from posenc.rotary.mhrope import MHRoPE
from posenc.rotary.mixed import MixedRoPE
from posenc.rotary.mrope import MRoPE
from posenc.rotary.vjepa import VJEPARoPE


def _sections(shape: Shape) -> dict[str, object]:
    """Shares of the pairs in Qwen2-VL's proportions: 3/8 for rows and for columns, the rest for time."""
    width = shape.get("rotary_dim", shape.get("head_dim"))
    if not isinstance(width, int):
        return {}
    places = width // 2 * 3 // 8
    return {"sections": (width // 2 - 2 * places, places, places)}


def _heads(shape: Shape) -> dict[str, object]:
    """Key heads in the proportions of the source, 3/8 for rows and for columns; below three, two axes."""
    key_heads = shape.get("num_kv_heads") or shape.get("num_heads")
    if not isinstance(key_heads, int):
        return {}
    if key_heads < 3:
        return {"heads": (1, key_heads - 1)}
    places = max(key_heads * 3 // 8, 1)
    return {"heads": (key_heads - 2 * places, places, places)}


ENTRIES: tuple[Entry, ...] = (
    Entry(
        name="axial",
        encoding=AxialRoPE,
        title="Axial RoPE: each pair is rotated by one coordinate",
        formula="q, k ← R(p) q, R(p) k, pairs rotated by p_axis·theta_t, theta_t = base^(−2t/channels of the axis)",
        source="Heo et al., arXiv 2403.13298, section 3.2",
        parameters="none; head_dim/2 for each class token with learned angles",
        cost="one rotation of q and k per layer",
        past_training="angles never seen in training on every axis that is longer",
        reads="distances",
        extension="coordinates rescaled to the training range, or a scaling of each axis: PI, NTK, YaRN, DyPE, RIFLEx",
        used_in="EVA-02 (arXiv 2303.11331); DINOv3 (arXiv 2508.10104); FLUX.1 and FLUX.2 (diffusers 0.42); "
        "Qwen-Image (arXiv 2508.02324); Wan (arXiv 2503.20314); HunyuanVideo (arXiv 2412.03603)",
    ),
    Entry(
        name="mixed",
        encoding=MixedRoPE,
        title="Mixed RoPE: each pair is rotated by a learned mix of the coordinates",
        formula="q, k ← R(p) q, R(p) k, pairs of head h rotated by Σ_axis theta_h,axis,j·p_axis",
        source="Heo et al., arXiv 2403.13298, section 3.2",
        parameters="key heads × axes × head_dim/2 for each layer; none if not learned",
        cost="a table per key head, in training for each layer; one rotation of q and k per layer",
        past_training="angles never seen in training",
        reads="distances",
        extension="coordinates rescaled to the training range",
        used_in="its paper's own models; Mochi, with frequencies of its own (diffusers 0.42, transformer_mochi.py)",
    ),
    Entry(
        name="mrope",
        encoding=MRoPE,
        title="M-RoPE: time, row and column share the pairs of one RoPE",
        formula="q, k ← R(p) q, R(p) k, pairs rotated by p_axis(j)·theta_j, theta_j = base^(−2j/rotary_dim)",
        source="Wang et al., arXiv 2409.12191, section 2.1",
        parameters="none",
        cost="one rotation of q and k per layer",
        past_training="angles never seen in training; a large image takes fewer positions than it has tokens",
        reads="distances",
        extension="any scaling of its frequencies",
        used_in="Qwen2-VL (arXiv 2409.12191); Qwen2.5-VL (arXiv 2502.13923); Ideogram 4 (diffusers 0.42)",
        defaults=_sections,
    ),
    Entry(
        name="mhrope",
        encoding=MHRoPE,
        title="MHRoPE: time, row and column each have key heads of their own, with all frequencies",
        formula="q, k ← R(p) q, R(p) k, pairs of head h rotated by p_axis(h)·theta_j, theta_j = base^(−2j/rotary_dim)",
        source="Huang et al., arXiv 2510.23095",
        parameters="none",
        cost="a table per key head; one rotation of q and k per layer",
        past_training="angles never seen in training; a large image takes fewer positions than it has tokens",
        reads="distances",
        extension="any scaling of its frequencies",
        used_in="its paper's own models; no other is known to us",
        defaults=_heads,
    ),
    Entry(
        name="vjepa",
        encoding=VJEPARoPE,
        title="V-JEPA's RoPE: frame, row and column each rotate a third of the channels",
        formula="q, k ← R(p) q, R(p) k, pairs rotated by p_axis·theta_i, theta_i = 10000^(−i/n), n = head_dim//6",
        source="Assran et al., arXiv 2506.09985, section 2.1",
        parameters="none",
        cost="one rotation of q and k per layer",
        past_training="angles never seen in training on every axis that is longer",
        reads="distances",
        extension="coordinates rescaled to the training range",
        used_in="V-JEPA 2 (arXiv 2506.09985)",
    ),
)
