"""What `read_attention` gives without values is what the definition computes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from posenc.attend import attention
from posenc.attention_maps import Reading, read_attention
from posenc.encoding import Encoding, ScoreEncoding, WeightEncoding
from posenc.testing.backends import Situation, encodings_of, options, situations, tensors
from posenc.testing.cases import INSIDE, Case, applies_to
from posenc.testing.compare import expect_close

READ = ("causal", "given positions", "packed documents and a mask", "one query", "window, bidirectional")  # situations


@applies_to(*INSIDE)
def scores_are_read(case: Case) -> None:
    """`read_attention` gives the scores and weights of the definition, of some queries as of all, and needs no values.

    Results of the definition are linear in values that scores do not read: minus the results for values of 0, they are
    the weights times the values.
    """
    for situation in situations(case):
        if situation.name in READ:
            _read(case, situation)


def _read(case: Case, situation: Situation) -> None:
    q, k, v = tensors(case, situation)
    encodings, keywords = encodings_of(case), options(case, situation)
    reads_values = any(isinstance(encoding, ScoreEncoding) and encoding.reads.values for encoding in encodings)
    read = read_attention(q, k, v if reads_values else None, encodings, **keywords)
    _check_scores(situation.name, read, encodings)
    if not reads_values:
        out, without_values = (
            attention(q, k, values, encodings, **keywords, backend="dense") for values in (v, torch.zeros_like(v))
        )
        group = q.shape[1] // k.shape[1]
        expect_close(f"{situation.name}: weights", read.weights @ v.repeat_interleave(group, 1), out - without_values)
    some = slice(situation.queries // 2, None)
    part = read_attention(q, k, v if reads_values else None, encodings, queries=some, **keywords)
    expect_close(f"{situation.name}: weights of some queries", part.weights, read.weights[:, :, some])
    expect_close(f"{situation.name}: scores of some queries", finite(part.scores), finite(read.scores[:, :, some]))


def _check_scores(name: str, read: Reading, encodings: list[Encoding]) -> None:
    """The weights are the softmax of the scores, unless something takes its place."""
    if not any(isinstance(encoding, WeightEncoding) for encoding in encodings):
        seen = (read.scores > -math.inf).any(-1, keepdim=True)
        expected = torch.where(seen, finite(read.scores).softmax(-1), 0.0)
        expect_close(f"{name}: softmax of the scores", read.weights, expected)


def finite(scores: Tensor) -> Tensor:
    """Scores with −inf, at hidden keys, made a number that can be compared."""
    return scores.masked_fill(scores == -math.inf, -1e9)
