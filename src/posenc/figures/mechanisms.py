"""Figures of mechanisms, computed by the encodings themselves."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from posenc.attention_maps import read_attention
from posenc.bias.distance import DistanceBias
from posenc.catalogue import Entry
from posenc.encoding import EmbeddingEncoding, Encoding
from posenc.figures.drawn import Curves, Figure, Heat
from posenc.positions import grid
from posenc.rotary.rope import RoPE
from posenc.testing import Case

TOKENS, SIDE, SEED = 24, 9, 0
ORIGINAL = 2048


def figure_of(entry: Entry) -> Figure:
    """What shows best what an encoding does: wavelengths, a bias by distance, its embedding, or attention's weights."""
    if entry.scaling is not None and not entry.learned:
        return _wavelengths(entry)
    case = Case.from_catalogue(entry.name)
    encodings = case.fresh()
    first = encodings[0] if encodings else None
    if isinstance(first, DistanceBias) and not any(True for _ in first.parameters()):
        return _bias_by_distance(entry, case)
    if isinstance(first, EmbeddingEncoding):
        return _embedding(entry, first)
    return _weights(entry, encodings, case)


def _wavelengths(entry: Entry) -> Figure:
    """Tokens per rotation of each pair, unscaled and scaled, for a model of 2,048 tokens at four times that."""
    shape = {"dim": 512, "num_heads": 8, "train_length": ORIGINAL, "max_length": 4 * ORIGINAL}
    scaled = entry.create(**shape)
    assert isinstance(scaled, RoPE)
    spectra = {"unscaled RoPE": RoPE(64).spectrum().theta, entry.name: scaled.spectrum(4 * ORIGINAL).theta}
    series = {}
    for name, theta in spectra.items():
        row = theta[-1] if theta.ndim == 2 else theta
        wavelengths = [(float(j), 2 * math.pi / float(t)) for j, t in enumerate(row) if float(t) > 0]
        series[name] = wavelengths
    return Curves(
        series,
        "pair",
        "wavelength (tokens)",
        f"wavelengths rise with the pair, unscaled and under {entry.name}; slow pairs lie above the training length",
        (
            f"Wavelength of each pair of a head of 64 channels, unscaled and under {entry.name}, at 4 × {ORIGINAL:,} "
            "tokens. Pairs above the line of the training length never completed a rotation in training. "
            "Pairs that are not rotated have no point."
        ),
        log=True,
        levels={"training length": float(ORIGINAL)},
    )


def _bias_by_distance(entry: Entry, case: Case) -> Figure:
    """The bias of each head by the distance to a key in the past."""
    positions = torch.arange(65)
    encoding = case.make()[0]
    with torch.no_grad():
        bias = encoding(positions[-1:], positions)[..., 0, :].flip(-1)
    series = {f"head {h + 1}": [(float(d), float(b)) for d, b in enumerate(row)] for h, row in enumerate(bias)}
    return Curves(
        series,
        "distance (tokens back)",
        "bias",
        f"a curve for each of {len(series)} heads: the bias of {entry.name} from 0 to 64 tokens back",
        f"What {entry.name} adds to the score of a key by its distance in the past, for each of {len(series)} heads.",
    )


def _embedding(entry: Entry, encoding: EmbeddingEncoding) -> Figure:
    """What is added to tokens 0 … 23, or to a row of a grid."""
    positions = torch.arange(TOKENS) if encoding.axes == 1 else grid(4, 6)
    with torch.no_grad():
        rows = encoding(torch.zeros(1, TOKENS, 32), positions)[0]
    where = "of a text" if encoding.axes == 1 else "of a grid of 4 × 6, row by row"
    return Heat(
        rows.tolist(),
        "channel",
        "token",
        f"a row of cells for each of {TOKENS} tokens: the embedding of {entry.name} in 32 channels",
        (
            f"What {entry.name} adds to the first {TOKENS} tokens {where}, in 32 channels; "
            "the stronger the colour, the larger."
        ),
    )


def _weights(entry: Entry, encodings: list[Encoding], case: Case) -> Figure:
    """Attention's weights between tokens that are all equal, or random where an encoding reads what they say."""
    by_content = "content" in entry.reads or entry.reads == "nothing"
    several = case.axes > 1
    tokens = SIDE * SIDE if several else TOKENS
    weights = weights_of(encodings, case, tokens=tokens, equal_tokens=not by_content)[0, 0]
    if several:
        middle = weights[tokens // 2].view(SIDE, SIDE).tolist()
        return Heat(
            middle,
            "column",
            "row",
            f"a map of the grid, darker where the middle attends more under {entry.name}",
            (
                f"Attention weights of the middle of a grid of {SIDE} × {SIDE} equal tokens under {entry.name}, in one "
                "head: the stronger the colour, the larger the weight. Parameters have their initial values."
            ),
        )
    which = "random" if by_content else "equal"
    return Heat(
        weights.tolist(),
        "key",
        "query",
        f"a cell for each query, downwards, and key, across, darker where {entry.name} gives more weight",
        (
            f"Attention weights of {TOKENS} {which} tokens under {entry.name}, in one head: the stronger the colour, "
            "the larger the weight. Parameters have their initial values."
        ),
    )


def weights_of(encodings: list[Encoding], case: Case, *, tokens: int, equal_tokens: bool) -> Tensor:
    """Attention's weights ``(1, heads, tokens, tokens)`` for drawn tokens, all alike or each its own."""
    source = torch.Generator().manual_seed(SEED)
    heads = {name: getattr(case, name) for name in ("num_heads", "num_kv_heads", "head_dim")}
    tokens_drawn = 1 if equal_tokens else tokens
    x = torch.randn(1, tokens_drawn, case.dim, generator=source).expand(1, tokens, -1)
    q = torch.randn(1, heads["num_heads"], tokens_drawn, heads["head_dim"], generator=source)
    k = (
        q[:, :: heads["num_heads"] // heads["num_kv_heads"]]
        if equal_tokens
        else torch.randn(1, heads["num_kv_heads"], tokens_drawn, heads["head_dim"], generator=source)
    )
    places = grid(SIDE, SIDE) if case.axes == 2 else grid(1, SIDE, SIDE) if case.axes == 3 else torch.arange(tokens)
    with torch.no_grad():
        q, k = 2 * q.expand(-1, -1, tokens, -1), k.expand(-1, -1, tokens, -1)
        return read_attention(q, k, k, encodings, q_pos=places, k_pos=places, x=x, causal=case.axes == 1).weights
