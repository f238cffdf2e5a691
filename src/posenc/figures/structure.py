"""Figures of structure: attention in a transformer block with its hook points, and FoX (Pro)."""

from __future__ import annotations

from posenc.figures.drawn import Flow

HOOK_POINTS = ("embedding", "rotary", "bias", "score", "weight")


def block() -> Flow:
    """Attention in a transformer block, from tokens to its output, with the five places where an encoding acts."""
    embedding, rotary, bias, score, weight = hooks = [f"{i} {name}" for i, name in enumerate(HOOK_POINTS, 1)]
    boxes = {
        "tokens": (1.5, 0), "token embeddings": (1.5, 1), embedding: (1.5, 2), "norm": (1.5, 3),
        "W q": (0, 4), "W k": (1.5, 4), "W v": (3, 4), rotary: (0.75, 5), "q · k / √d": (0.75, 6),
        bias: (0.75, 7), score: (0.75, 8), "causal mask": (0.75, 9), "softmax": (0.1, 10), weight: (1.1, 10),
        "weights × v": (1.75, 11), "W o": (1.75, 12),
    }  # fmt: skip
    arrows = [
        ("tokens", "token embeddings"), ("token embeddings", embedding), (embedding, "norm"),
        ("norm", "W q"), ("norm", "W k"), ("norm", "W v"), ("W q", rotary), ("W k", rotary), (rotary, "q · k / √d"),
        ("q · k / √d", bias), (bias, score), (score, "causal mask"), ("causal mask", "softmax"),
        ("causal mask", weight), ("softmax", "weights × v"), (weight, "weights × v"), ("W v", "weights × v"),
        ("weights × v", "W o"),
    ]  # fmt: skip
    return Flow(
        boxes,
        arrows,
        (
            "boxes and arrows from tokens at the bottom to W o at the top; five boxes are marked: embedding before the "
            "norm, rotary on queries and keys, bias and score after the dot product, weight in place of softmax"
        ),
        (
            "Attention in a transformer block, from the bottom up, with the five hook points of a positional encoding: "
            "1 added to token embeddings, once before the first block; 2 rotates queries and keys; 3 added to the "
            "attention logits by position; 4 changes the logits given queries, keys or tokens; 5 replaces softmax."
        ),
        marked=hooks,
    )


def fox_pro() -> Flow:
    """FoX (Pro) from its input to its output."""
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
        "boxes and arrows from x at the bottom through queries, keys, values and gates to attention and the output",
        (
            "FoX (Pro), from its input x to its output. Keys and values are mixed with the previous token's, by "
            "shares that x decides; queries and keys are normalised; sums of the gates' logarithms are added to the "
            "scores; the output is normalised, and a second gate decides how much of it passes."
        ),
    )
