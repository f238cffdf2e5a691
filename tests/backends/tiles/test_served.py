"""Who is served by which backend: what the encodings of the catalogue state, and what tiles refuse, in words."""

from __future__ import annotations

import pytest
import torch

from posenc import (
    ALiBi,
    AttentionSink,
    BiasEncoding,
    ScoreEncoding,
    T5Bias,
    WeightEncoding,
    attention,
    explain_backend,
)
from posenc.bias import FIRE, LogCPB
from posenc.catalogue import CATALOGUE
from posenc.score import CoPE, Shaw, TransformerXL
from posenc.testing import Case
from posenc.testing.backends import Situation, encodings_of, options, serving, tensors
from posenc.weight import StickBreaking
from tests.samples import qkv

PLAIN = Situation("plain", 100, 100)
ALL, TILES, RANGES = ("sdpa", "tiled", "rows", "dense"), ("tiled", "rows", "dense"), ("ranged", "rows", "dense")
SERVED = {
    "nope": ALL,
    "sinusoidal": ALL,
    "learned": ALL,
    "abacus": ALL,
    "sinusoidal_grid": ALL,
    "learned_grid": ALL,
    "random_fourier": ALL,
    "rope": ALL,
    "axial": ALL,
    "mixed": ALL,
    "mrope": ALL,
    "mhrope": ALL,
    "vjepa": ALL,
    "liere": ALL,
    "comrope_ap": ALL,
    "comrope_ld": ALL,
    "xpos": ALL,
    "pi": ALL,
    "dynamic_pi": ALL,
    "ntk": ALL,
    "dynamic_ntk": ALL,
    "ntk_by_parts": ALL,
    "part_ntk": ALL,
    "yarn": ALL,
    "dynamic_yarn": ALL,
    "llama3": ALL,
    "longrope": ALL,
    "longrope2": ALL,
    "dynamic_longrope": ALL,
    "resonance": ALL,
    "riflex": ALL,
    "dype": ALL,
    "clex": ALL,
    "multiscale": ALL,
    "proportional": ALL,
    "clipped": ALL,
    "fope": ALL,
    "pope": ALL,
    "grape_m": ALL,
    "rope_pp": ALL,
    "alibi": ALL,
    "t5": ALL,
    "kerple": ALL,
    "bam": ALL,
    "sandwich": ALL,
    "fire": ALL,
    "log_cpb": ALL,
    "distance_mlp": ALL,
    "swin": ("sdpa", "rows", "dense"),  # these tokens lie on no grid: see test_offsets
    "beit": ("sdpa", "rows", "dense"),
    "alibi_2d": ("sdpa", "rows", "dense"),
    "t5_grid": ("sdpa", "rows", "dense"),
    "decomposed": TILES,
    "shaw": TILES,
    "fox": TILES,
    "data_alibi": TILES,
    "path": TILES,
    "selective_rope": ALL,  # by queries and keys that have been rotated
    "repo": ALL,
    "grape_context": ALL,
    "grape_a": ("rows", "dense"),
    "grape_ap": ("rows", "dense"),
    "transformer_xl": TILES,
    "cope": TILES,
    "dape": TILES,
    "mixture": ALL,
    "stick-breaking": TILES,
    "sink": TILES,
    "ssmax": ALL,
    "log_n": ALL,
    "step_temperature": ALL,
    "power_temperature": ALL,
    "token_relative": TILES,
    "self_extend": RANGES,
    "rerope": RANGES,
    "leaky_rerope": RANGES,
    "dual_chunk": RANGES,
    "string": RANGES,
    "lm_infinite": RANGES,
    "streaming_llm": RANGES,
}


@pytest.mark.parametrize("name", SERVED)
def test_entries_of_the_catalogue(name):
    """Which backends serve a causal call of 100 tokens, of those that need no particular device."""
    result = tuple(backend for backend in serving(Case.from_catalogue(name), PLAIN) if backend in (*ALL, "ranged"))
    assert sorted(result) == sorted(SERVED[name])


def test_the_table_holds_no_others():
    assert set(SERVED) <= set(CATALOGUE)


@pytest.mark.parametrize("name", [name for name, backends in SERVED.items() if backends == TILES])
def test_structures_are_chosen_by_themselves(name):
    """Where no kernel can serve, tiles come before rows and the definition."""
    case = Case.from_catalogue(name)
    result = explain_backend(*tensors(case, PLAIN), encodings_of(case), **options(case, PLAIN))
    assert result.backend in ("flex", "tiled")
    assert "rows" in result.refused


class Halved(WeightEncoding):
    """Says nothing of itself."""

    def forward(self, scores, context):
        return scores.sigmoid() / (2 * scores.shape[-1])


class ByParity(BiasEncoding):
    """Says nothing of itself."""

    def forward(self, q_pos, k_pos):
        return ((k_pos % 2)[..., None, :] - (q_pos % 2)[..., None]).expand(4, -1, -1).float()


class Sharpened(ScoreEncoding):
    """Says nothing of itself."""

    def forward(self, scores, context):
        return 2 * scores


POSITIONS = {"q_pos": torch.arange(100)}
REFUSED = {
    "a weight of its own": ([Halved()], {}, "Halved states no structure"),
    "a bias of its own": ([ByParity()], {}, "ByParity states no structure"),
    "a score of its own": ([Sharpened()], {}, "Sharpened states no structure for this call"),
    "positions with a bias": ([ALiBi(4)], POSITIONS, "positions"),
    "positions with a network": ([FIRE(4)], POSITIONS, "positions"),
    "positions with vectors": ([Shaw(8, max_distance=3)], POSITIONS, "positions"),
    "positions with waves": ([TransformerXL(32, num_heads=4)], POSITIONS, "positions"),
    "no grid": ([LogCPB(4, axes=2)], {"q_pos": torch.arange(200).view(100, 2) ** 2}, "positions"),
    "fractions": ([LogCPB(4, axes=2)], {"q_pos": torch.rand(100, 2)}, "positions"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case):
    encodings, inputs, words = REFUSED[case]
    with pytest.raises(ValueError, match=rf"'tiled'.*{words}"):
        attention(*qkv(1, 4, 100), encodings, backend="tiled", **{"causal": True, **inputs})
    assert words in explain_backend(*qkv(1, 4, 100), encodings, **{"causal": True, **inputs}).refused["tiled"]


def test_other_devices_are_refused():
    with pytest.raises(ValueError, match="tiled"):
        attention(*(t.to("meta") for t in qkv(1, 4, 100)), [T5Bias(4, bidirectional=True).to("meta")], backend="tiled")


@pytest.mark.parametrize("queries", [0, 5])
def test_nothing_in_nothing_out(queries):
    q, k, v = qkv(0 if queries else 2, 4, queries, 6)
    assert attention(q, k, v, [T5Bias(4, bidirectional=True)], backend="tiled").shape == q.shape


@pytest.mark.parametrize(
    "encoding",
    [CoPE(8, max_position=5), Shaw(8, max_distance=3), StickBreaking(), AttentionSink(4)],
    ids=lambda encoding: type(encoding).__name__,
)
@pytest.mark.parametrize(("queries", "keys", "backend"), [(1, 300, "dense"), (16, 300, "tiled"), (16, 40, "dense")])
def test_the_definition_serves_small_matrices_and_tiles_the_others(encoding, queries, keys, backend):
    q, k, v = qkv(1, 4, queries, keys)
    with torch.no_grad():
        assert explain_backend(q, k, v, [encoding]).backend == backend
        assert explain_backend(q, k, v, [T5Bias(4)]).backend == "sdpa", "a kernel serves the others"
