"""A tiled call as an operator can take it: tensors, whole numbers, and a text that says which plays which part.

A custom operator takes tensors and plain values alone, and what it takes must mean the same in another process: graphs
that `torch.compile` has cached or an exporter has saved keep the text. So the text is canonical, one line a fact, made
of constants: no length and no address is in it, and numbers that may be symbols to a compiler go beside it. Its first
line names the format; a text of another format is an error and never a guess.

Writing is plain string formatting, which compilers trace. A text is parsed once (`TileSpec.read`), not once a call and
again in its backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, cast

import torch
from torch import Tensor

from posenc.backends.tiled.counts import Counts
from posenc.backends.tiled.head_mixing import HeadMixing, Kernel
from posenc.backends.tiled.network import Network
from posenc.backends.tiled.offsets import LowRank, Offsets
from posenc.backends.tiled.prune import PruneBounds
from posenc.backends.tiled.reflections import BLOCK, Chain
from posenc.backends.tiled.softmax import Softmax
from posenc.backends.tiled.sticks import Remainder, Sticks
from posenc.backends.tiled.terms import Column, Decay, Row, Term, TermContext
from posenc.backends.tiled.tiled_call import ELEMENTS, FEW, LONG, QUERIES, TiledCall
from posenc.backends.tiled.vectors import Vectors
from posenc.dropout import Dropout
from posenc.structure import Sticks as StatedSticks
from posenc.structure import TileTerm
from posenc.visibility import Causal, VisibilityMask

FORMAT = "posenc tiles 1"
FACTS = frozenset(
    ["scale", "tolerance", "causal", "softcap", "mask", "segments", "dropout", "sink", "sticks", "learned", "frozen"]
)
TERMS: dict[str, type[Term]] = {  # a new structure with a tile term adds its class here
    "row": Row, "column": Column, "decay": Decay, "vectors": Vectors, "counts": Counts, "offsets": Offsets,
    "lowrank": LowRank, "network": Network, "chain": Chain, "kernel": Kernel, "bend": HeadMixing,
}  # fmt: skip


class SpecWriter:
    """Gathers the tensors and numbers of a call, and writes how they belong together."""

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        visibility: VisibilityMask,
        scale: float,
        tolerance: float,
        softcap: float | None = None,
    ) -> None:
        self.tensors: list[Tensor] = [q, k, v]
        self.fixed: list[Tensor] = [visibility.q_pos, visibility.k_pos]
        self.numbers: list[int] = [-1 if visibility.window is None else visibility.window]
        self.sink_index = -1
        self.lines = [FORMAT, f"scale {scale!r}", f"tolerance {tolerance!r}", f"causal {visibility.causal!r}"]
        self.lines += [] if softcap is None else [f"softcap {softcap!r}"]
        if visibility.mask is not None:
            self.lines.append(f"mask {self._fix(visibility.mask)}")
        if visibility.segments is not None:
            of_queries, of_keys = visibility.segments
            self.lines.append(f"segments {self._fix(of_queries)} {self._fix(of_keys)}")

    def _fix(self, tensor: Tensor) -> int:
        self.fixed.append(tensor)
        return len(self.fixed) - 1

    def term(self, term: TileTerm) -> None:
        """Add a term."""
        words = [f"{name}={len(self.tensors) + at}" for at, name in enumerate(term.tensors)]
        words += [f"{name}@{self._fix(tensor)}" for name, tensor in (term.fixed or {}).items()]
        self.tensors.extend(term.tensors.values())
        self.numbers.append(term.number)
        factor = 1.0 if term.factor is None else term.factor
        self.lines.append(f"term {term.kind} {len(self.numbers) - 1} {factor!r} {' '.join(words)}")

    def drop(self, dropout: Dropout) -> None:
        """Dropout on the weights, with a seed."""
        assert dropout.seed is not None, "the seed of a dropout must be drawn"
        self.lines.append(f"dropout {dropout.p!r} {self._fix(dropout.seed)}")

    def sink(self, logits: Tensor) -> None:
        """A logit a head, ``(heads,)``, that takes weight and has no value."""
        self.sink_index = len(self.tensors)
        self.lines.append(f"sink {self.sink_index}")
        self.tensors.append(logits)

    def sticks(self, sticks: StatedSticks) -> None:
        """Stick-breaking instead of softmax."""
        at = -1 if sticks.vector is None else len(self.tensors)
        if sticks.vector is not None:
            self.tensors.append(sticks.vector)
        self.lines.append(f"sticks {sticks.attend_current!r} {sticks.remainder} {at}")

    def text(self, *, learned: bool) -> str:
        """The text; ``learned``: whether some term may have a gradient. Others need no room for theirs."""
        frozen = [f"{at}" for at, tensor in enumerate(self.tensors) if at > 2 and not tensor.requires_grad]
        return "\n".join([*self.lines, f"learned {learned!r}", " ".join(["frozen", *frozen])])


class TermSpec(NamedTuple):
    """One term: its kind, and where its tensors and its number stand."""

    kind: str
    number: int  # index among the numbers
    factor: float
    tensors: tuple[tuple[str, int], ...]  # name and index among the tensors
    fixed: tuple[tuple[str, int], ...]  # name and index among the tensors without gradients


class SticksSpec(NamedTuple):
    """Stick-breaking: see `posenc.structure.Sticks`."""

    attend_current: bool
    remainder: Remainder
    vector: int | None  # index among the tensors


class TileSpec(NamedTuple):
    """A text, read: immutable and shared by all calls that have it."""

    scale: float
    tolerance: float
    causal: Causal
    softcap: float | None
    mask: int | None  # indices among the tensors without gradients
    segments: tuple[int, int] | None
    terms: tuple[TermSpec, ...]
    dropout: tuple[float, int] | None  # probability, and where the seed stands
    sink: int | None
    sticks: SticksSpec | None
    learned: bool
    frozen: frozenset[int]  # tensors that need no gradient

    @property
    def learns_sink(self) -> bool:
        """Whether a sink's logits want a gradient."""
        return self.sink is not None and self.sink not in self.frozen

    @staticmethod
    def read(text: str) -> TileSpec:
        """The spec of a text that `SpecWriter` wrote, here or in another process; parsed once.

        Raises:
            ValueError: for any other text, one of another version of the library included.
        """
        return _read(text)


@lru_cache(maxsize=4096)
def _read(text: str) -> TileSpec:
    first, *lines = text.split("\n")
    if first != FORMAT:
        raise ValueError(
            f"the graph calls posenc's tiles in the format {first!r}, this version of posenc reads {FORMAT!r}: compile "
            "or export it again with this version"
        )
    terms, facts = [], dict[str, list[str]]()
    for line in lines:
        word, *rest = line.split()
        if word == "term":
            terms.append(_read_term(rest))
        elif word in FACTS:
            facts[word] = rest
        else:
            raise ValueError(f"unknown line {line!r} in the text of a tiled call")
    order = facts["causal"][0]
    causal: Causal = "positions" if "positions" in order else order == "True"
    sticks = None
    if "sticks" in facts:
        current, remainder, at = facts["sticks"]
        sticks = SticksSpec(current == "True", cast("Remainder", remainder), int(at) if int(at) >= 0 else None)
    segments = [int(at) for at in facts.get("segments", [])]
    return TileSpec(
        scale=float(facts["scale"][0]),
        tolerance=float(facts["tolerance"][0]),
        causal=causal,
        softcap=float(facts["softcap"][0]) if "softcap" in facts else None,
        mask=int(facts["mask"][0]) if "mask" in facts else None,
        segments=(segments[0], segments[1]) if segments else None,
        terms=tuple(terms),
        dropout=(float(facts["dropout"][0]), int(facts["dropout"][1])) if "dropout" in facts else None,
        sink=int(facts["sink"][0]) if "sink" in facts else None,
        sticks=sticks,
        learned=facts["learned"][0] == "True",
        frozen=frozenset(int(at) for at in facts["frozen"]),
    )


def _read_term(words: list[str]) -> TermSpec:
    kind, number, factor, *names = words
    if not set(kind.split(":")) <= TERMS.keys():
        raise ValueError(f"unknown term {kind!r} in the text of a tiled call: this version of posenc has none such")
    tensors = tuple((name, int(at)) for name, _, at in (word.partition("=") for word in names if "=" in word))
    fixed = tuple((name, int(at)) for name, _, at in (word.partition("@") for word in names if "@" in word))
    return TermSpec(kind, int(number), float(factor), tensors, fixed)


def tiled_call(spec: TileSpec, tensors: Sequence[Tensor], fixed: Sequence[Tensor], numbers: Sequence[int]) -> TiledCall:
    """The call of a spec: tensors without gradients, terms, and how large its tiles are."""
    q, k, v = (t.detach() for t in tensors[:3])
    wide = torch.promote_types(q.dtype, torch.float32)
    visibility = VisibilityMask(
        spec.causal,
        None if numbers[0] < 0 else numbers[0],
        None if spec.mask is None else fixed[spec.mask],
        None if spec.segments is None else (fixed[spec.segments[0]], fixed[spec.segments[1]]),
        fixed[0],
        fixed[1],
    )
    softmax = spec.sticks is None
    mixes_heads = any(term.kind.startswith("bend") for term in spec.terms)
    context = TermContext(
        spec.scale, softmax and spec.sink is None and not mixes_heads, softmax, visibility, q.shape[2], 0, 1.0
    )
    terms = []
    for term in spec.terms:
        of_term = {name: tensors[at].detach().to(wide) for name, at in term.tensors}
        of_term |= {name: fixed[at] for name, at in term.fixed}
        terms.append(_build(term.kind, of_term, context._replace(number=numbers[term.number], factor=term.factor)))
        terms[-1].frozen = {place for place, (_, at) in enumerate(term.tensors) if at in spec.frozen}
    weights: Softmax | Sticks = Softmax()
    if spec.sticks is not None:
        current, remainder, at = spec.sticks
        vectors = [] if at is None else [tensors[at].detach().to(wide)]
        weights = Sticks(*vectors, attend_current=current, remainder=remainder, tolerance=spec.tolerance)
    call = TiledCall(
        q, k, v, terms, weights, visibility, spec.scale,
        learned=spec.learned, futures={}, softcap=spec.softcap,
        dropout=None if spec.dropout is None else Dropout(spec.dropout[0], fixed[spec.dropout[1]]),
        sink=None if spec.sink is None else tensors[spec.sink].detach().to(wide),
    )  # fmt: skip
    skewed = any(term.skewed for term in terms)
    shared = any(term.shares_features for term in terms)
    long = k.shape[2] > LONG
    elements = 2 * ELEMENTS if shared and not long else ELEMENTS // 2 if skewed and long else ELEMENTS
    bounds = _prune_bounds(call, spec.tolerance)
    if bounds is not None and bounds.decay is not None and bounds.decay.steep(QUERIES):
        elements *= 2  # most keys of a tile are left out, and what remains is overhead: more heads share it
    least = k.shape[1] if call.mixes_heads else min(k.shape[1], 2) if shared else 1  # key heads of a tile
    rows = elements // (k.shape[2] * (q.shape[1] // k.shape[1]) * least)
    rows = max(16, min(QUERIES if call.chain is None else BLOCK, rows // 16 * 16))
    return call._replace(bounds=bounds, skewed=skewed, elements=elements, rows=rows)


def _build(kind: str, tensors: dict[str, Tensor], context: TermContext) -> Term:
    """One term, with the bias inside it if it has one; tensors along keys are reversed."""
    kind, _, inside = kind.partition(":")
    if not inside:
        return TERMS[kind].build(tensors, context)
    of_bias = {name.removeprefix("of."): t for name, t in tensors.items() if name.startswith("of.")}
    bias = _build(inside, of_bias, context._replace(constants_cancel=False))
    network = [t for name, t in tensors.items() if not name.startswith("of.")]
    return Kernel(bias) if kind == "kernel" else HeadMixing(bias, *network, slope=context.factor)


def _prune_bounds(call: TiledCall, tolerance: float) -> PruneBounds | None:
    """Where far keys may be left out: if distance and gates alone decide about them."""
    rows = [term for term in call.terms if isinstance(term, Row)]
    decays = [term for term in call.terms if isinstance(term, Decay)]
    queries, keys = call.q.shape[2], call.k.shape[2]
    if (
        queries <= FEW  # one pass over the keys costs what finding the bounds does
        or isinstance(call.weights, Sticks)
        or max(queries, keys) <= 512
        or queries > keys
        or not call.terms
    ):
        return None
    if len(rows) > 1 or len(decays) > 1 or len(rows) + len(decays) != len(call.terms):
        return None
    if not call.visibility.order_only or (decays and call.visibility.causal is not True):
        return None
    row, decay = rows[0] if rows else None, decays[0] if decays else None
    return PruneBounds(row, decay, call.q, call.k, call.scale, tolerance, call.softcap)
