"""Every backend of attention equals the dense one, in values and gradients; structure and reading equal `forward`."""

from __future__ import annotations

import math
from typing import NamedTuple, TypedDict, cast

import torch
from torch import Tensor

from posenc.attend import attention, explain_backend
from posenc.attention_maps import Reading, read_attention
from posenc.backends import BACKENDS, Backend
from posenc.encoding import BiasEncoding, EmbeddingEncoding, Encoding, ScoreEncoding, WeightEncoding
from posenc.testing.cases import INSIDE, Case, applies_to, heads_of, random, tokens_of
from posenc.testing.compare import expect, expect_close
from posenc.testing.shapes import at_hook_point
from posenc.validate import Causal


class Situation(NamedTuple):
    """One way to call attention."""

    name: str
    queries: int = 9
    keys: int = 9
    causal: Causal = True
    masked: bool = False
    packed: bool = False
    placed: bool = False  # positions are given
    window: int | None = None
    softcap: float | None = None
    dropout: float = 0.0


class Options(TypedDict):
    """The keywords of `attention` that a situation sets."""

    q_pos: Tensor | None
    k_pos: Tensor | None
    x: Tensor
    mask: Tensor | None
    segments: Tensor | None
    causal: Causal
    window: int | None
    softcap: float | None
    dropout: float


SITUATIONS = (
    Situation("causal"),
    Situation("bidirectional", causal=False),
    Situation("given positions", placed=True),
    Situation("causal by positions", causal="positions", placed=True),
    Situation("mask with a row that attends to no key", masked=True),
    Situation("mask, bidirectional", masked=True, causal=False),
    Situation("packed documents", packed=True),
    Situation("packed documents and a mask", packed=True, masked=True),
    Situation("window", window=4),
    Situation("window and packed documents", packed=True, window=3),
    Situation("window, bidirectional", causal=False, window=3),
    Situation("one query", queries=1),
    Situation("fewer queries than keys", queries=4),
    Situation("fewer queries, bidirectional", queries=4, causal=False),
    Situation("more queries than keys", queries=9, keys=5, causal=False),
    Situation("a cap on products", softcap=0.7),
    Situation("a cap, one query", queries=1, softcap=0.7),
    Situation("a cap, blocks of queries and documents", queries=70, keys=70, packed=True, masked=True, softcap=0.7),
    Situation("dropout", dropout=0.4),
    Situation("dropout, bidirectional", causal=False, dropout=0.4),
    Situation("dropout, blocks of queries and documents", queries=70, keys=70, packed=True, masked=True, dropout=0.4),
    Situation("blocks of fewer queries than keys", queries=70, keys=90, window=20),
    Situation("blocks of queries", queries=260, keys=260),  # past the 256 queries of a fused kernel's call
    Situation("blocks of queries under a mask", queries=516, keys=516, masked=True),  # and the 512 of a written mask
)
READ = ("causal", "given positions", "packed documents and a mask", "one query", "window, bidirectional")  # situations


def situations(case: Case) -> list[Situation]:
    """The ways in which a case may be called."""
    only = any(encoding.causal_only for encoding in case.fresh())
    return [situation for situation in SITUATIONS if situation.causal or not only]


class Call(NamedTuple):
    """What attention is given in a situation."""

    tensors: tuple[Tensor, Tensor, Tensor]  # q, k, v, of which gradients are wanted
    encodings: list[Encoding]
    options: Options


def call_of(case: Case, situation: Situation, encodings: list[Encoding] | None = None) -> Call:
    """A situation's call, with new encodings where none are given."""
    q, k, v = (t.requires_grad_() for t in tensors(case, situation))
    return Call((q, k, v), encodings_of(case) if encodings is None else encodings, options(case, situation))


def serving(case: Case, situation: Situation = SITUATIONS[0]) -> list[Backend]:
    """Names of the backends that serve a case in a situation."""
    return serving_call(call_of(case, situation), situation)


def serving_call(call: Call, situation: Situation) -> list[Backend]:
    """Names of the backends that serve a call."""
    names = []
    for name in BACKENDS:
        backend = cast("Backend", name)
        try:
            explain_backend(*call.tensors, call.encodings, **call.options, backend=backend)
        except ValueError as error:
            expect("cannot serve" in str(error), f"{situation.name}: {error}")
        else:
            names.append(backend)
    return names


def encodings_of(case: Case) -> list[Encoding]:
    """New encodings of a case that act inside attention."""
    return [e for e in case.make(torch.float64) if not isinstance(e, EmbeddingEncoding)]


def tensors(case: Case, situation: Situation) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v for a situation: two rows, or one where they are long."""
    return heads_of(case, situation.queries, situation.keys, batch=2 if situation.keys < 100 else 1)


def options(case: Case, situation: Situation) -> Options:
    """The keywords of `attention` for a situation."""
    _, queries, keys, causal, masked, packed, placed, window, softcap, dropout = situation
    q_pos = k_pos = mask = segments = None
    if placed or case.axes > 1:
        k_pos = case.positions(torch.arange(keys) * 2 + 3)
        q_pos = k_pos[keys - queries :] if queries <= keys else case.positions(torch.arange(queries))
    if causal == "positions" and case.axes > 1:
        causal = True
    if masked:
        mask = random(queries, keys, seed=5) > -0.5
        mask[queries // 2] = False
    if packed:
        segments = torch.arange(keys) // 4
    x = tokens_of(case, keys, batch=2 if keys < 100 else 1)
    return {
        "q_pos": q_pos,
        "k_pos": k_pos,
        "x": x,
        "mask": mask,
        "segments": segments,
        "causal": causal,
        "window": window,
        "softcap": softcap,
        "dropout": dropout,
    }


@applies_to(*INSIDE)
def backends_equal_dense(case: Case) -> None:
    """Each backend that serves a call gives the values and gradients of the definition, whatever is hidden."""
    encodings = encodings_of(case)
    for situation in situations(case):
        call = call_of(case, situation, encodings)
        expected = differentiated(call, "dense")
        for backend in serving_call(call, situation):
            if backend == "dense" or (situation.dropout and backend == "sdpa"):  # whose kernels draw for themselves
                continue
            for (name, got), reference in zip(differentiated(call, backend).items(), expected.values(), strict=True):
                expect_close(f"backend {backend}, {situation.name}: {name}", got, reference)


@applies_to(*INSIDE)
def rows_without_keys(case: Case) -> None:
    """A query without visible keys gets zeros and gives no gradient, rather than NaN."""
    situation = Situation("a row that attends to no key", masked=True)
    unseen = situation.queries // 2
    call = call_of(case, situation)
    for backend in serving_call(call, situation):
        actual = differentiated(call, backend)
        for name, tensor in actual.items():
            expect(bool(tensor.isfinite().all()), f"backend {backend}: {name} is not finite")
        for name in ("result", "gradient of q"):
            expect(
                bool((actual[name][:, :, unseen] == 0).all()),
                f"backend {backend}: {name} of the unseeing query is not zero",
            )


def differentiated(call: Call, backend: Backend) -> dict[str, Tensor]:
    """The result of attention, and the gradients of q, k, v and all parameters for a random gradient of the result."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)  # a seed of dropout drops the same weights on every backend
        out = attention(*call.tensors, call.encodings, **call.options, backend=backend)
    inputs = dict(zip("qkv", call.tensors, strict=True))
    for encoding in call.encodings:
        inputs |= {f"{type(encoding).__name__}.{name}": p for name, p in encoding.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad(out, list(inputs.values()), random(*out.shape, seed=11), materialize_grads=True)
    return {"result": out, **{f"gradient of {name}": g for name, g in zip(inputs, gradients, strict=True)}}


@applies_to("bias", all_of_them=False)
def distance_structure(case: Case) -> None:
    """``of_distance``, where stated, is `forward` as a function of p_key − p_query, for distances of any shape.

    So are the other forms of the same: a table by distance, slopes.
    """
    q_pos, k_pos = torch.arange(0, 90, 7), torch.arange(0, 90, 5)
    for encoding in at_hook_point(case.make(torch.float64), BiasEncoding):
        distance = k_pos - q_pos[:, None]
        structure = encoding.of_distance(distance) if encoding.axes == 1 else None
        if structure is not None:
            expect_close("of_distance (queries, keys)", structure, encoding(q_pos, k_pos).to(structure.dtype))
            flat = encoding.of_distance(distance.flatten())
            assert flat is not None
            expect_close("of_distance (any,)", flat, structure.flatten(1))
        lookup = encoding.lookup(7, 90, like=q_pos)
        if lookup is not None:
            row = encoding.of_distance(torch.arange(6, -90, -1, dtype=torch.float64))
            assert row is not None, "a bias with a table states of_distance"
            expect_close("lookup", lookup.table[:, lookup.entries.long()].to(row.dtype), row, tolerance=1e-6)
        slopes = encoding.distance_slopes(like=q_pos)
        if slopes is not None:
            assert structure is not None, "a bias with slopes states of_distance"
            expect_close(
                "distance_slopes", -slopes.double()[:, None, None] * distance.abs(), structure.double(), tolerance=1e-6
            )


@applies_to("weight", all_of_them=False)
def weights_are_weights(case: Case) -> None:
    """What replaces softmax gives weights ≥ 0, zero where masked, that sum to at most 1."""
    situation = Situation("weights", masked=True)
    q, k, _ = tensors(case, situation)
    one_hot = torch.eye(situation.keys, dtype=q.dtype).expand(*k.shape[:2], -1, -1)
    keywords = options(case, situation)
    weights = attention(q, k, one_hot, encodings_of(case), **keywords).detach()
    mask = keywords["mask"]
    assert mask is not None
    hidden = ~(mask & torch.ones_like(mask).tril())
    expect(bool((weights >= 0).all()), f"the smallest weight is {float(weights.min()):.3g}")
    expect(bool((weights.sum(-1) <= 1 + 1e-9).all()), f"the largest sum of a row is {float(weights.sum(-1).max()):.6g}")
    expect(bool((weights.masked_select(hidden) == 0).all()), "hidden keys have weights")


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
