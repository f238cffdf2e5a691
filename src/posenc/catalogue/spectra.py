"""Entries of hook point 2: RoPE under other spectra: rounded, learned, a base a head, in part at rest."""

from __future__ import annotations

from posenc.catalogue.defaults import a_quarter, dynamics, pair_that_repeats, slowest_third
from posenc.catalogue.entry import Entry
from posenc.catalogue.scaled import NO_SHIFT
from posenc.frequencies.clex import CLEX
from posenc.frequencies.clipped import Clipped
from posenc.frequencies.modules import Proportional, RIFLEx
from posenc.frequencies.multiscale import MultiScale
from posenc.frequencies.resonance import Resonance
from posenc.rotary.rope import RoPE

ENTRIES = (
    Entry(
        name="resonance",
        hook_point="rotary",
        encoding=RoPE,
        scaling=Resonance,
        title="Resonance RoPE: wavelengths rounded to whole tokens",
        formula="theta_j ← 2π / round(2π / theta_j)",
        source="Wang et al., arXiv 2403.00071",
        parameters="none",
        cost="none",
        past_training="pairs with wavelengths below the training length repeat exactly the angles of training",
        reads="distances",
        extension="a scaling of the frequencies before it, such as YaRN",
        used_in="its paper's own models; no other is known to us",
    ),
    Entry(
        name="riflex",
        hook_point="rotary",
        encoding=RoPE,
        scaling=RIFLEx,
        title="RIFLEx: the pair that comes round within a longer video is slowed down until it does not",
        formula="theta_k ← share · 2π / length, all other frequencies as they are",
        source="Zhao et al., arXiv 2502.15894, eq. 8",
        parameters="none",
        cost="none",
        past_training="for the time axis of videos, which repeat past a period; slower pairs meet new angles",
        reads="distances",
        extension="is itself an extension: another length",
        used_in="none known to be trained with it; serves HunyuanVideo, CogVideoX and Wan (arXiv 2502.15894)",
        extends_context=True,
        defaults=pair_that_repeats,
    ),
    Entry(
        name="clex",
        hook_point="rotary",
        encoding=RoPE,
        scaling=CLEX,
        title="CLEX: RoPE with frequencies from a learned differential equation over the scale",
        formula="d ln theta / dt = network(ln theta, t) + d ln theta_ntk / dt,  t = ceil(length / original_length)",
        source="Chen et al., arXiv 2310.16450",
        parameters="2 × pairs × (2 · pairs) for all layers",
        cost="a solution of the equation per change of weights; a table per row length",
        past_training="trained on sampled scales up to max_factor; beyond it the last spectrum stays",
        reads="distances and lengths",
        extension="is itself an extension: trained on sampled scales up to max_factor",
        used_in="its paper's own models; no other is known to us",
        extends_context=True,
        defaults=dynamics,
        exempt={"common_shift": NO_SHIFT},
    ),
    Entry(
        name="multiscale",
        hook_point="rotary",
        encoding=RoPE,
        scaling=MultiScale,
        title="Multiscale RoPE: one base per head",
        formula="theta_hj = base_h^(−2j/d),  base_h log-spaced from min_base to max_base",
        source="RoPE: Su et al., arXiv 2104.09864, section 3.2; the heads' bases: Nexus (2024), no paper",
        parameters="none",
        cost="a table per head",
        past_training="angles never seen in training; heads with small bases have fewer of them",
        reads="distances",
        extension="a scaling of the frequencies",
        used_in="none known to us",
    ),
    Entry(
        name="proportional",
        hook_point="rotary",
        encoding=RoPE,
        scaling=Proportional,
        title="p-RoPE: the slowest pairs are not rotated",
        formula="theta_j ← theta_j for the fastest share of the pairs, 0 for the others",
        source="Barbero et al., arXiv 2410.06205",
        parameters="none",
        cost="none",
        past_training="rotated pairs meet new angles, but slow ones, which carry content, are never rotated",
        reads="distances",
        extension="a scaling of the remaining frequencies",
        used_in="Gemma 4's full attention (as in transformers 5.23)",
        defaults=a_quarter,
    ),
    Entry(
        name="clipped",
        hook_point="rotary",
        encoding=RoPE,
        scaling=Clipped,
        title="Clipped RoPE: the slowest pairs are slowed to frequency 0 (its authors' CoPE)",
        formula="theta_j ← theta_j · (1 + cos(pi t_j))/2 for the slowest pairs, t_j from 0 to 1",
        source="arXiv 2602.05258",
        parameters="none",
        cost="none",
        past_training="pairs without a full rotation in training rotate less or not at all; fast pairs keep theirs",
        reads="distances",
        extension="is itself one, trained for or put in later",
        used_in="its paper's own models; no other is known to us",
        defaults=slowest_third,
    ),
)
