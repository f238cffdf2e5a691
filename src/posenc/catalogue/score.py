"""Entries of hook point 4, scores."""

from __future__ import annotations

from collections.abc import Mapping

from posenc.bias.alibi import ALiBi
from posenc.bias.kerple import KERPLE
from posenc.catalogue.defaults import IN_ORDER, a_key_head_per_query_head
from posenc.catalogue.entry import Entry
from posenc.catalogue.grid_bias import square_window
from posenc.rotary.rope import RoPE
from posenc.score.cope import CoPE
from posenc.score.dape import DAPE
from posenc.score.data_alibi import DataDependentALiBi
from posenc.score.decomposed import DecomposedRelative
from posenc.score.forget import ForgetGate
from posenc.score.kerple_weight import KERPLEWeight
from posenc.score.mixture import Mixture
from posenc.score.path import PaTH
from posenc.score.shaw import Shaw
from posenc.score.token_relative import TokenRelativeBias
from posenc.score.transformer_xl import TransformerXL


def _rotation_bias_or_neither(shape: Mapping[str, object]) -> dict[str, object]:
    head_dim, num_heads = shape.get("head_dim"), shape.get("num_heads")
    if "members" in shape or not isinstance(head_dim, int) or not isinstance(num_heads, int):
        return {}
    return {"members": [RoPE(head_dim), ALiBi(num_heads), []]}


def _kerple(shape: Mapping[str, object]) -> dict[str, object]:
    num_heads = shape.get("num_heads")
    return {"bias": KERPLE(num_heads)} if "bias" not in shape and isinstance(num_heads, int) else {}


def _power(shape: Mapping[str, object]) -> dict[str, object]:
    num_heads = shape.get("num_heads")
    return {"bias": KERPLE(num_heads, kind="power")} if "bias" not in shape and isinstance(num_heads, int) else {}


ENTRIES = (
    Entry(
        name="shaw",
        hook_point="score",
        encoding=Shaw,
        title="Shaw's relative position representations",
        formula="s_ij ← s_ij + scale · q_i·key_table[r],  o_i ← o_i + Σ_j a_ij value_table[r],  r = clip(p_j − p_i)",
        source="Shaw et al., arXiv 1803.02155, eq. 3 and 4",
        parameters="2 × (2·max_distance + 1) × head_dim per layer",
        cost="one product of q with the table, one gather over all logits",
        past_training="all distances beyond max_distance share one vector",
        reads="distances and content",
        extension="none needed by its definition; far keys share the last vector",
        used_in="Music Transformer (arXiv 1809.04281)",
        exempt={"fractional_positions": "a table has no rows between rows"},
    ),
    Entry(
        name="decomposed",
        hook_point="score",
        encoding=DecomposedRelative,
        title="Decomposed relative positions of MViTv2, ViTDet and SAM",
        formula="s_ij ← s_ij + Σ_axis q_i·table_axis[clip(p_i − p_j)]",
        source="Li et al., arXiv 2112.01526, section 4.1, eq. 4",
        parameters="head_dim × Σ_axis (2·window − 1) per layer",
        cost="a product of q with each axis' table, one gather per axis over all logits",
        past_training="differences outside the window use the tables' edge; resized(window) interpolates the tables",
        reads="distances and content",
        extension="the tables resized by interpolation (resized)",
        used_in="MViTv2 (arXiv 2112.01526); ViTDet (arXiv 2203.16527); SAM (arXiv 2304.02643)",
        defaults=lambda shape: square_window(shape, 14),
    ),
    Entry(
        name="fox",
        hook_point="score",
        encoding=ForgetGate,
        title="FoX: the forget gates of the Forgetting Transformer",
        formula="s_ij ← s_ij + Σ_{j < l ≤ i} log f_l,  f_l = sigmoid(weight · x_l + bias)",
        source="Lin et al., arXiv 2503.02130; with the opposite sign CABLE, Veisi et al., arXiv 2503.08067",
        parameters="(dim + 1) × heads per layer",
        cost="one small projection, a running sum over all logits; one number per head and token in the cache",
        past_training="logits keep decaying with distance; nothing new appears",
        reads="content",
        extension="none needed by its definition",
        used_in="its paper's own models; no other is known to us",
        exempt=IN_ORDER,
    ),
    Entry(
        name="data_alibi",
        hook_point="score",
        encoding=DataDependentALiBi,
        title="Data-dependent ALiBi",
        formula="s_ij ← s_ij + Σ_{j < l ≤ i} log f_l · post_log_scale, or other gates for later keys",
        source="x-transformers, after Lin et al., arXiv 2503.02130",
        parameters="(dim + 1) × heads per layer, twice that in both directions; 2 × gate_dim × dim × heads per query",
        cost="one small projection, a running sum over all logits; a product of small queries and keys for form 'rows'",
        past_training="logits keep decaying with distance; nothing new appears",
        reads="content",
        extension="none needed by its definition",
        used_in="none known to us; a part of x-transformers",
        exempt=IN_ORDER,
    ),
    Entry(
        name="path",
        hook_point="score",
        encoding=PaTH,
        title="PaTH: accumulated Householder reflections",
        formula="s_ij = scale · q_i · H_i H_{i−1} … H_{j+1} · k_j,  H_t = I − beta_t w_t w_tᵀ",
        source="Yang et al., arXiv 2505.16381",
        parameters="rank × (dim + num_kv_heads · head_dim) + (dim + 1 + 3 · head_dim) × num_kv_heads per layer",
        cost="a second product of queries with every 128 keys; head_dim + 1 numbers per key head and token cached",
        past_training="longer products of the same reflections",
        reads="content",
        extension="none of its own; its paper joins it with forget gates",
        used_in="its paper's own models; no other is known to us",
        defaults=a_key_head_per_query_head,
        exempt=IN_ORDER,
    ),
    Entry(
        name="transformer_xl",
        hook_point="score",
        encoding=TransformerXL,
        title="Transformer-XL's relative positions",
        formula="s_ij ← scale · ((q_i + u)·k_j + (q_i + v)·W r_(p_i − p_j)),  r sinusoids of the distance",
        source="Dai et al., arXiv 1901.02860, section 3.3",
        parameters="(dim + 2) × heads · head_dim per layer",
        cost="one product of q with W, one with waves over all logits",
        past_training="waves at phases never seen in training, unless distances are clamped",
        reads="distances and content",
        extension="distances clamped to the training range",
        used_in="Transformer-XL (arXiv 1901.02860); XLNet (arXiv 1906.08237)",
    ),
    Entry(
        name="cope",
        hook_point="score",
        encoding=CoPE,
        title="CoPE: positions that count what a query chooses to count",
        formula="s_ij ← s_ij + (q_i·table)[min(Σ_{l ≥ j} sigmoid(scale·q_i·k_l), max_position)]",
        source="Golovneva et al., arXiv 2405.18719, section 4",
        parameters="head_dim × (max_position + 1) per layer",
        cost="a running sum and a gather over all logits",
        past_training="nothing new, if counts reached max_position in training",
        reads="content",
        extension="none needed once counts have reached max_position",
        used_in="its paper's own models; no other is known to us",
        exempt=IN_ORDER,
    ),
    Entry(
        name="dape",
        hook_point="score",
        encoding=DAPE,
        title="DAPE: a bias that adapts to the attention logits",
        formula="s_ij ← s_ij + b_ij + f([s_ij; b_ij]),  f a network across the heads",
        source="Zheng et al., arXiv 2405.14722, section on the method",
        parameters="(2 × heads + 1) × hidden + (hidden + 1) × heads per layer, plus the bias's",
        cost="a network at every query and key, tile by tile",
        past_training="its bias extrapolates as it does alone, adapted by a network outside its training range",
        reads="distances and content",
        extension="as its bias",
        used_in="its paper's own models; no other is known to us",
        defaults=_kerple,
    ),
    Entry(
        name="kerple_weight",
        hook_point="score",
        encoding=KERPLEWeight,
        title="KERPLE's weight kernel: a factor on the dot products that decays with distance",
        formula="s_ij ← s_ij + (exp(−a_h·|p_j − p_i|^p_h) − 1) · scale · q_i·k_j",
        source="Chi et al., arXiv 2205.09921, by the authors' code",
        parameters="2 × heads per layer",
        cost="one factor for every query and key, tile by tile",
        past_training="dot products with far keys decay to 0, so far keys get equal logits",
        reads="distances",
        extension="none needed: the kernel decays with distance",
        used_in="its paper's own models; no other is known to us",
        defaults=_power,
    ),
    Entry(
        name="token_relative",
        hook_point="score",
        encoding=TokenRelativeBias,
        title="A distance bias that the query's token mixes from learned profiles",
        formula="s_ij ← s_ij + (W x_i)_h · P[p_i − p_j],  for distances of 0 … extent − 1",
        source="Inkling in transformers 5.23, of the kind of Shaw et al., arXiv 1803.02155",
        parameters="dim × heads · relative_dim + relative_dim × extent per layer",
        cost="one small projection; relative_dim numbers per head and token in the cache",
        past_training="far keys get no bias",
        reads="distances and content",
        extension="none of its own",
        used_in="Inkling (as in transformers 5.23)",
        exempt={"fractional_positions": "a table has no rows between rows"},
    ),
    Entry(
        name="mixture",
        hook_point="score",
        encoding=Mixture,
        title="A learned mixture of encodings",
        formula="s_ij ← Σ_m softmax(logits_h)_m · score_m(s)_ij,  score_m what member m alone makes of s",
        source="no paper; its members here: RoPE, arXiv 2104.09864, and ALiBi, arXiv 2108.12409",
        parameters="heads × members per layer, times dim + 1 if adaptive, and the members'",
        cost="one product as wide as all rotations together; with score encodings, each member's cost over all logits",
        past_training="each member behaves as it does alone, with the weights learned in training",
        reads="distances",
        extension="as its members",
        used_in="none known to us",
        defaults=_rotation_bias_or_neither,
    ),
)
