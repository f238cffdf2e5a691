"""Entries of hook point 2, queries and keys."""

from __future__ import annotations

from posenc.entry import Entry
from posenc.rotary.fope import FoPE
from posenc.rotary.grape import GRAPEM
from posenc.rotary.pope import PoPE
from posenc.rotary.rope import RoPE
from posenc.rotary.rope_pp import RoPEpp

ENTRIES = (
    Entry(
        name="rope",
        encoding=RoPE,
        title="RoPE: rotary position embedding",
        formula="q, k ← R(p) q, R(p) k, pairs rotated by p·theta_j, theta_j = base^(−2j/rotary_dim)",
        source="Su et al., arXiv 2104.09864, eq. 15 and 34",
        parameters="none",
        cost="one rotation of q and k per layer",
        past_training="angles never seen in training",
        reads="distances",
        extension="any scaling of its frequencies, best with a short training; or a window",
        used_in="Llama (arXiv 2302.13971); PaLM (arXiv 2204.02311); GPT-NeoX-20B (arXiv 2204.06745)",
    ),
    Entry(
        name="fope",
        encoding=FoPE,
        title="FoPE: pairs rotated by Fourier series of the frequencies that complete a full rotation in training",
        formula="cos_hj(p) = Σ_m cos(p·theta_m)·cos_coef[h, m, j], sin alike, over theta_m ≥ 2π/original_length",
        source="Hua et al., arXiv 2412.17739",
        parameters="2 × key heads × frequencies × series per layer, not trained by default",
        cost="a table per key head, made by two small products",
        past_training="each wave repeats values of training; their sums are new",
        reads="distances and positions",
        extension="none of its own; scalings of frequencies apply to the rotated pairs",
        used_in="its paper's own models; no other is known to us",
        exempt={"common_shift": "scores under a series of waves depend on both positions, not on their distance alone"},
    ),
    Entry(
        name="pope",
        encoding=PoPE,
        title="PoPE: magnitudes from content, angles from position alone",
        formula="s_ij = scale · Σ_c softplus(q_ic)·softplus(k_jc)·cos((p_i − p_j)theta_c − bias_hc)",
        source="Gopalakrishnan et al., arXiv 2509.10534",
        parameters="key heads × head_dim per layer",
        cost="queries and keys twice as wide, recomputed from all keys in every call",
        past_training="angles never seen in training, but content has no part in them",
        reads="distances and content",
        extension="none of its own; its paper uses it unchanged at longer contexts",
        used_in="its paper's own models; no other is known to us",
        exempt={
            "rotary_shapes": "every channel becomes a point of the plane, so heads are twice as wide",
            "rotation_is_linear": "strengths are softplus of the channels",
            "odd_head_dim_raises": "channels do not come in pairs",
            "double_parameters": "keys have biases and queries none, so there is no table of both",
        },
    ),
    Entry(
        name="rope_pp",
        encoding=RoPEpp,
        title="RoPE++: some heads use the imaginary part of RoPE's complex dot product",
        formula="s_ij = Re Σ q_pair·conj(k_pair)·e^(i((p_i − p_j)theta − π/2)) in imaginary heads, as RoPE in others",
        source="Liu et al., arXiv 2512.07525",
        parameters="none",
        cost="as RoPE, plus one pass over q",
        past_training="angles never seen in training",
        reads="distances",
        extension="scalings of frequencies, as RoPE's",
        used_in="its paper's own models; no other is known to us",
    ),
    Entry(
        name="grape_m",
        encoding=GRAPEM,
        title="GRAPE-M: RoPE with learned frequencies, rotating in the opposite direction",
        formula="q, k ← R(−p) q, R(−p) k, pairs rotated by p·theta_j, theta_j = exp(log_theta_j / log_scale)",
        source="Zhang et al., arXiv 2512.07805",
        parameters="head_dim / 2 per layer, times key heads if each has its own",
        cost="one rotation of q and k per layer, by a table computed in every call",
        past_training="angles never seen in training",
        reads="distances",
        extension="scalings of frequencies, as RoPE's",
        used_in="its paper's own models; no other is known to us",
    ),
)
