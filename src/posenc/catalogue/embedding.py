"""Entries of hook point 1, token embeddings; and the empty list."""

from __future__ import annotations

from posenc.catalogue.entry import Entry
from posenc.embedding.abacus import Abacus
from posenc.embedding.learned import Learned
from posenc.embedding.sinusoidal import Sinusoidal

ENTRIES = (
    Entry(
        name="nope",
        hook_point="none",
        encoding=None,
        title="NoPE: no positional encoding; the causal mask alone breaks the symmetry",
        formula="s_ij = q_i·k_j · scale",
        source="Haviv et al., arXiv 2203.16634; Kazemnejad et al., arXiv 2305.19466",
        parameters="none",
        cost="none",
        past_training="only the softmax changes: it spreads over more keys",
        reads="nothing",
        extension="none of its own; scores may be sharpened as texts grow, or a window set",
        used_in="every fourth layer of Llama 4, Command A and EXAONE 4.0 (as in transformers 5.23)",
    ),
    Entry(
        name="sinusoidal",
        hook_point="embedding",
        encoding=Sinusoidal,
        title="Sinusoidal position embedding",
        formula="x_t ← x_t + [sin p·theta_j, cos p·theta_j],  theta_j = base^(−2j/dim)",
        source="Vaswani et al., arXiv 1706.03762, section 3.5",
        parameters="none",
        cost="one addition per token, once",
        past_training="sums of waves never seen in training",
        reads="positions",
        extension="none that leaves a trained model as it is: training at the new length",
        used_in="the Transformer (arXiv 1706.03762); Whisper's encoder (arXiv 2212.04356)",
    ),
    Entry(
        name="learned",
        hook_point="embedding",
        encoding=Learned,
        title="Learned position embedding",
        formula="x_t ← x_t + table[p]",
        source="Gehring et al., arXiv 1705.03122; Devlin et al., arXiv 1810.04805",
        parameters="max_length × dim",
        cost="one lookup and addition per token, once",
        past_training="undefined beyond the table",
        reads="positions",
        extension="new rows (grow_table), and training of them",
        used_in="BERT (arXiv 1810.04805); OPT (arXiv 2205.01068); Whisper's decoder (arXiv 2212.04356)",
        exempt={
            "fractional_positions": "a table has no rows between rows",
            "far_positions": "a table ends",
        },
    ),
    Entry(
        name="abacus",
        hook_point="embedding",
        encoding=Abacus,
        title="Abacus embedding: a digit's position inside its number",
        formula="x_t ← x_t + table[id],  id = 1, 2, … along a run of digits, 0 elsewhere",
        source="McLeish et al., arXiv 2405.17399, section 3.1",
        parameters="max_length × dim",
        cost="one lookup and addition per token, once",
        past_training="longer numbers use rows that random shifts reached in training; undefined beyond the table",
        reads="content",
        extension="starts drawn from a wide range in training, so that far rows are trained",
        used_in="its paper's own models; no other is known to us",
        own_positions=True,
        exempt={
            "fractional_positions": "a table has no rows between rows",
            "far_positions": "a table ends",
        },
    ),
)
