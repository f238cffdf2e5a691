"""Figures by name: illustrations of the learning chapters, the structure of FoX (Pro), and measured comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from posenc.bias.alibi import alibi_slopes
from posenc.catalogue.studies import studies
from posenc.embedding.sinusoidal import Sinusoidal
from posenc.figures.drawn import Curves, Figure, Flow, Heat
from posenc.figures.mechanisms import ORIGINAL, PAIRS_SHOWN, TOKENS
from posenc.frequencies.yarn import YaRN
from posenc.rotary.rope import RoPE

SHOWN = "text"  # a comparison, and the rows that a picture has room for: one or two of each kind
SHOWN_ROWS = ("stick-breaking", "t5", "fox", "alibi", "fire", "rope", "sinusoidal", "learned")


def _sinusoids() -> Figure:
    added = Sinusoidal(16)(torch.zeros(1, 65, 16), torch.arange(65))[0]
    series = {f"channel {c}": [(float(p), float(added[p, c])) for p in range(65)] for c in (0, 4, 8)}
    return Curves(
        series,
        "position",
        "embedding",
        "three channels of the sinusoidal embedding",
        "Three channels of the sinusoidal embedding: fast, slower, slowest. Together they are the hands of a clock.",
    )


def _binary() -> Figure:
    rows = [[float(p >> bit & 1) for bit in range(5)] for p in range(TOKENS)]
    return Heat(
        rows,
        "bit, lowest first",
        "position",
        "positions in binary",
        "Positions 0 … 23 in binary. The lowest bit changes at each token, each next bit half as often.",
    )


def _rotation_decay() -> Figure:
    rope = RoPE(64)
    ones = torch.ones(1, 1, 1, 64)
    positions = torch.arange(129)
    with torch.no_grad():
        rotated = rope.rotate(ones.expand(-1, -1, 129, -1), rope.table(positions))[0, 0]
    scores = (rotated @ rotated[0]) / 64
    return Curves(
        {"score": [(float(d), float(s)) for d, s in enumerate(scores)]},
        "distance in tokens",
        "score",
        "score of a vector with itself under RoPE by distance",
        "The score of a vector of ones with itself under RoPE, by distance: cosines of all wavelengths, added up.",
    )


def _slopes() -> Figure:
    series = {
        f"head {h + 1}": [(0.0, 0.0), (64.0, -64 * float(slope))]
        for h, slope in enumerate(alibi_slopes(8))
        if h % 2 == 0
    }
    return Curves(
        series,
        "tokens back",
        "bias",
        "biases of ALiBi",
        (
            "ALiBi: each head has a slope of its own, so that some attend to near keys and others to far ones. "
            "Four of eight heads."
        ),
    )


def _context_extension() -> Figure:
    unscaled, extended = RoPE(64), RoPE(64, scaling=YaRN(4.0, original_length=ORIGINAL))
    series = {}
    for name, rope, factor in (("unscaled", unscaled, 1.0), ("interpolated", unscaled, 4.0), ("YaRN", extended, 1.0)):
        theta = rope.spectrum().theta / factor
        series[name] = [(float(j), 2 * math.pi / float(t)) for j, t in enumerate(theta)]
    series["training length"] = [(0.0, float(ORIGINAL)), (float(PAIRS_SHOWN - 1), float(ORIGINAL))]
    return Curves(
        series,
        "pair",
        "tokens per rotation",
        "wavelengths, unscaled and scaled",
        (
            f"Wavelengths of a model trained at {ORIGINAL:,} tokens, extended to four times that. "
            "Interpolation slows every pair; YaRN leaves the fast pairs alone and slows the slow ones."
        ),
        log=True,
    )


def _unseen_angles() -> Figure:
    theta = RoPE(64).spectrum().theta
    seen = [(float(j), min(1.0, float(t) * 128 / (2 * math.pi))) for j, t in enumerate(theta)]
    return Curves(
        {"share of a full rotation": seen},
        "pair",
        "share",
        "share of a full rotation that training at 128 tokens shows",
        (
            "How much of its circle each pair of a 64-channel head has shown after 128 tokens. "
            "Pairs below 1 meet new angles at token 129."
        ),
    )


def _fox_pro() -> Figure:
    boxes = {
        "x": (2, 0), "W q · x": (0, 1), "W k · x": (1, 1), "W v · x": (2, 1), "gates f": (3, 1), "W g · x": (4, 1),
        "mixed keys": (1, 2), "mixed values": (2, 2), "norm q": (0, 3), "norm k": (1, 3), "sum of log f": (3, 3),
        "attention": (1.5, 4), "norm o": (1.5, 5), "sigmoid": (4, 5), "times": (2.75, 6), "W o · y": (2.75, 7),
    }  # fmt: skip
    arrows = [
        ("x", "W q · x"), ("x", "W k · x"), ("x", "W v · x"), ("x", "gates f"), ("x", "W g · x"),
        ("W q · x", "norm q"), ("W k · x", "mixed keys"), ("W v · x", "mixed values"), ("gates f", "sum of log f"),
        ("mixed keys", "norm k"), ("norm q", "attention"), ("norm k", "attention"), ("mixed values", "attention"),
        ("sum of log f", "attention"), ("attention", "norm o"), ("W g · x", "sigmoid"), ("norm o", "times"),
        ("sigmoid", "times"), ("times", "W o · y"),
    ]  # fmt: skip
    return Flow(
        boxes,
        arrows,
        "the structure of FoX (Pro)",
        (
            "FoX (Pro), from its input x to its output. Keys and values are mixed with the previous token's, by "
            "shares that x decides; queries and keys are normalised; sums of the gates' logarithms are added to the "
            "scores; the output is normalised, and a second gate decides how much of it passes."
        ),
    )


def _measured() -> Figure:
    study = next(study for study in studies() if study.name == SHOWN)
    ranked = [*study.ranked(study.longest), *(row for row in study.rows.values() if len(row.means) == 1)]
    rows = [row for row in ranked if row.name in SHOWN_ROWS]
    series = {
        row.name: [(length / study.train_length, mean) for length, (mean, _, _) in sorted(row.means.items())]
        for row in rows
    }
    if study.counting is not None:  # the same at every length: the targets are, and an n-gram's context is short
        order, ngram, unigram = study.counting.order, study.counting.ngram, study.counting.unigram
        for name, value in ((f"{order}-gram", ngram), ("single bytes", unigram)):
            series[name] = [(1.0, value), (float(study.longest), value)]
    seeds = max(row.seeds for row in rows)
    return Curves(
        series,
        "multiples of the training length",
        study.unit,
        "encodings beyond their training length",
        (
            f"{study.unit.capitalize()} of small models, one for each encoding, trained at {study.train_length} tokens "
            f"({seeds} training{'s' * (seeds > 1)} each) and evaluated at up to {study.longest} times that; the "
            f"same bytes are scored at every length, and {study.better} is better. "
            "Level lines: an n-gram of the training text, and the entropy of single bytes."
        ),
        log_x=True,
    )


NAMED: dict[str, Callable[[], Figure]] = {
    "sinusoids": _sinusoids, "binary": _binary, "rotation-decay": _rotation_decay, "slopes": _slopes,
    "context-extension": _context_extension, "unseen-angles": _unseen_angles, "fox-pro": _fox_pro,
    "measured": _measured,
}  # fmt: skip
