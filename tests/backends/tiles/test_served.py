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
PICTURES = ("sdpa", "rows", "dense")  # the tokens of a case lie on no grid: see test_offsets
OTHERS = {  # the encodings that some backend does not serve
    **dict.fromkeys(("swin", "beit", "alibi_2d", "t5_grid"), PICTURES),
    **dict.fromkeys(("decomposed", "shaw", "fox", "data_alibi", "path", "transformer_xl", "cope", "dape",
                     "token_relative", "stick-breaking", "sink"), TILES),
    **dict.fromkeys(("grape_a", "grape_ap"), ("rows", "dense")),
    **dict.fromkeys(("self_extend", "rerope", "leaky_rerope", "dual_chunk", "string", "lm_infinite", "streaming_llm"),
                    RANGES),
}  # fmt: skip
SERVED = {name: OTHERS.get(name, ALL) for name in CATALOGUE}


@pytest.mark.parametrize("name", SERVED)
def test_entries_of_the_catalogue(name):
    """Which backends serve a causal call of 100 tokens, of those that need no particular device."""
    result = tuple(backend for backend in serving(Case.from_catalogue(name), PLAIN) if backend in (*ALL, "ranged"))
    assert sorted(result) == sorted(SERVED[name])


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
