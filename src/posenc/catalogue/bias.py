"""Entries of hook point 3, biases on the scores."""

from __future__ import annotations

from posenc.bias.alibi import ALiBi
from posenc.bias.cpb import LogCPB
from posenc.bias.fire import FIRE
from posenc.bias.kerple import KERPLE
from posenc.bias.mlp import DistanceMLP
from posenc.bias.sandwich import Sandwich
from posenc.bias.t5 import T5Bias
from posenc.catalogue.entry import Entry

ENTRIES = (
    Entry(
        name="alibi",
        hook_point="bias",
        encoding=ALiBi,
        title="ALiBi: attention with linear biases",
        formula="s_ij ← s_ij − m_h · |p_j − p_i|,  m_h = 2^(−8h/heads)",
        source="Press et al., arXiv 2108.12409, section 3",
        parameters="none",
        cost="one row of numbers per head",
        past_training="larger penalties on farther keys: recent keys keep their weight",
        reads="distances",
        extension="none needed by its definition; smaller slopes reach farther",
        used_in="BLOOM (arXiv 2211.05100); MPT (as in transformers 5.23)",
    ),
    Entry(
        name="t5",
        hook_point="bias",
        encoding=T5Bias,
        title="T5 relative bias",
        formula="s_ij ← s_ij + table[bucket(p_j − p_i), h]",
        source="Raffel et al., arXiv 1910.10683, section 2.1",
        parameters="num_buckets × heads, one table for all layers",
        cost="one row of numbers per head; its gradient",
        past_training="all distances from max_distance on share one bucket",
        reads="distances",
        extension="none needed by its definition; far keys share the last bucket",
        used_in="T5 (arXiv 1910.10683); mT5 (arXiv 2010.11934)",
    ),
    Entry(
        name="kerple",
        hook_point="bias",
        encoding=KERPLE,
        title="KERPLE: a learned kernel of the distance",
        formula="s_ij ← s_ij − p_h · log(1 + a_h·|p_j − p_i|)",
        source="Chi et al., arXiv 2205.09921, eq. 7",
        parameters="2 × heads per layer",
        cost="one row of numbers per head; its gradient",
        past_training="the penalty keeps growing like a logarithm",
        reads="distances",
        extension="none needed by its definition",
        used_in="its paper's own models; no other is known to us",
    ),
    Entry(
        name="sandwich",
        hook_point="bias",
        encoding=Sandwich,
        title="Sandwich: the dot product of sinusoidal embeddings as a bias",
        formula="s_ij ← s_ij + (heads/8h) · Σ_k cos((p_j − p_i)·w_k)",
        source="Chi et al., arXiv 2212.10356, section 5 and appendix E",
        parameters="none",
        cost="one row of numbers per head",
        past_training="keeps falling like a logarithm",
        reads="distances",
        extension="none needed by its definition",
        used_in="its paper's own models; no other is known to us",
    ),
    Entry(
        name="fire",
        hook_point="bias",
        encoding=FIRE,
        title="FIRE: a network of the distance relative to the query's position",
        formula="s_ij ← s_ij + f_h(psi(|p_i − p_j|) / psi(max(L, p_i))),  psi(x) = log(1 + |c x|)",
        source="Li et al., arXiv 2310.04418, eq. 2 to 4",
        parameters="hidden × (2 + heads) + heads + 2 per layer",
        cost="a small network for every query and key",
        past_training="the network's input stays in 0 … 1",
        reads="distances and positions",
        extension="none needed by its definition: the input of its network stays in its range",
        used_in="its paper's own models; no other is known to us",
        exempt={"common_shift": "the normaliser is the query's absolute position"},
    ),
    Entry(
        name="log_cpb",
        hook_point="bias",
        encoding=LogCPB,
        title="Log-CPB: a network of the distance's logarithm, axis by axis, as in Swin V2",
        formula="s_ij ← s_ij + 16·sigmoid(f_h(c)),  c = sign(d)·log2(1 + |d|)/3,  d = 8·(p_i − p_j)/(window − 1)",
        source="Liu et al., arXiv 2111.09883, section 3.3",
        parameters="hidden × (axes + 1 + heads) per layer",
        cost="a small network for every distinct difference; under compilers with several axes for every query and key",
        past_training="the network's input keeps growing like a logarithm; the bias stays in 0 … 16",
        reads="distances",
        extension="the window of training as unit, and training at the larger one",
        used_in="Swin Transformer V2 (arXiv 2111.09883)",
    ),
    Entry(
        name="distance_mlp",
        hook_point="bias",
        encoding=DistanceMLP,
        title="DistanceMLP: a network of the signed distance",
        formula="s_ij ← s_ij + f_h(x),  x = sign(d)·log(1 + |d|),  d = p_i − p_j",
        source="Wang et al., arXiv 2108.00154, section 3.2; x-transformers' DynamicPositionBias",
        parameters="hidden × (2 + heads) + heads per layer; hidden × (hidden + 1) for each hidden layer past the first",
        cost="a small network for every distance",
        past_training="approaches a straight line in the logarithm of the distance, rising or falling as learned",
        reads="distances",
        extension="none of its own",
        used_in="CrossFormer (arXiv 2108.00154)",
    ),
)
