"""A call written down: tensors, numbers, and a text that says which plays which part; and read again.

An operator takes tensors and plain values alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor

from posenc.backends.inputs.dropout import Dropout
from posenc.backends.inputs.visibility import Causal, VisibilityMask
from posenc.backends.tiled import decode
from posenc.backends.tiled.chain import Chain
from posenc.backends.tiled.counts import Counts
from posenc.backends.tiled.head_mixing import Bend, Kernel
from posenc.backends.tiled.network import Network
from posenc.backends.tiled.offsets import LowRank, Offsets
from posenc.backends.tiled.prune import Cut
from posenc.backends.tiled.reflections import BLOCK
from posenc.backends.tiled.softmax import Softmax
from posenc.backends.tiled.sticks import Remainder, Sticks
from posenc.backends.tiled.terms import Column, Decay, Row, Term
from posenc.backends.tiled.tiled_call import ELEMENTS, LONG, QUERIES, Work
from posenc.backends.tiled.vectors import Vectors


class Recipe:
    """A call in the making: tensors, numbers that may be symbols to a compiler, and how they belong together.

    The recipe itself is text: one line a fact, made of constants alone, so that no length makes it another.
    """

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
        self.of_sink = -1  # which tensor is the sink's
        self.lines = [f"scale {scale!r}", f"tolerance {tolerance!r}", f"causal {visibility.causal!r}"]
        self.lines += [] if softcap is None else [f"softcap {softcap!r}"]
        if visibility.mask is not None:
            self.lines.append(f"mask {self._fix(visibility.mask)}")
        if visibility.segments is not None:
            self.lines.append(f"segments {self._fix(visibility.segments[0])} {self._fix(visibility.segments[1])}")

    def _fix(self, tensor: Tensor) -> int:
        self.fixed.append(tensor)
        return len(self.fixed) - 1

    def term(
        self,
        kind: str,
        tensors: dict[str, Tensor],
        *,
        number: int = 0,
        factor: float = 1.0,
        fixed: dict[str, Tensor] | None = None,
    ) -> None:
        """Add a term: tensors by name, a whole number and a factor, and tensors that are no part of any derivative."""
        words = [f"{name}={len(self.tensors) + at}" for at, name in enumerate(tensors)]
        words += [f"{name}@{self._fix(tensor)}" for name, tensor in (fixed or {}).items()]
        self.tensors.extend(tensors.values())
        self.numbers.append(number)
        self.lines.append(f"term {kind} {len(self.numbers) - 1} {factor!r} {' '.join(words)}")

    def drop(self, dropout: Dropout) -> None:
        """Dropout on the weights, with a seed."""
        assert dropout.seed is not None, "the seed of a dropout must be drawn"
        self.lines.append(f"dropout {dropout.p!r} {self._fix(dropout.seed)}")

    def sink(self, logits: Tensor) -> None:
        """A logit a head, ``(heads,)``, that takes weight and has no value."""
        self.of_sink = len(self.tensors)
        self.lines.append(f"sink {self.of_sink}")
        self.tensors.append(logits)

    def sticks(self, vector: Tensor | None, *, attend_current: bool, remainder: str) -> None:
        """Stick-breaking in the place of softmax."""
        at = -1 if vector is None else len(self.tensors)
        if vector is not None:
            self.tensors.append(vector)
        self.lines.append(f"sticks {attend_current!r} {remainder} {at}")

    def text(self, *, learned: bool) -> str:
        """The recipe; ``learned``: whether some term may have a gradient. Others need no room for theirs."""
        frozen = [f"{at}" for at, tensor in enumerate(self.tensors) if at > 2 and not tensor.requires_grad]
        return "\n".join([*self.lines, f"learned {learned!r}", " ".join(["frozen", *frozen])])


def frozen_in(recipe: str) -> set[int]:
    """Which tensors of a recipe need no gradient."""
    (line,) = (line for line in recipe.splitlines() if line.startswith("frozen"))
    return {int(at) for at in line.split()[1:]}


class Plan:
    """A recipe read: the work, and where the tensors of each term, and of the weights, stand."""

    def __init__(self, tensors: Sequence[Tensor], fixed: Sequence[Tensor], numbers: Sequence[int], recipe: str) -> None:
        said = [line.split() for line in recipe.splitlines()]
        facts = {words[0]: words[1:] for words in said if words[0] != "term"}
        q, k, v = (t.detach() for t in tensors[:3])
        wide = torch.promote_types(q.dtype, torch.float32)
        causal: Causal = "positions" if "positions" in facts["causal"][0] else facts["causal"][0] == "True"
        mask = fixed[int(facts["mask"][0])] if "mask" in facts else None
        segments = [fixed[int(at)] for at in facts.get("segments", [])]
        window = None if numbers[0] < 0 else numbers[0]
        visibility = VisibilityMask(
            causal, window, mask, (segments[0], segments[1]) if segments else None, fixed[0], fixed[1]
        )
        scale, tolerance, softmax = float(facts["scale"][0]), float(facts["tolerance"][0]), "sticks" not in facts
        self.frozen = frozen_in(recipe)
        self.of_sink = int(facts["sink"][0]) if "sink" in facts else -1
        self.learns_sink = self.of_sink > 0 and self.of_sink not in self.frozen
        self.terms: list[tuple[str, dict[str, int]]] = []
        terms = []
        bends = any(words[1].startswith("bend") for words in said if words[0] == "term")
        for _, kind, number, factor, *words in (words for words in said if words[0] == "term"):
            named = {name: int(at) for name, at in (word.split("=") for word in words if "=" in word)}
            given = {name: tensors[at].detach().to(wide) for name, at in named.items()}
            given |= {name: fixed[int(at)] for name, at in (word.split("@") for word in words if "@" in word)}
            options = Options(
                scale,
                softmax and self.of_sink < 0 and not bends,
                softmax,
                visibility,
                q.shape[2],
                numbers[int(number)],
                float(factor),
            )
            terms.append(_term(kind, given, options))
            terms[-1].frozen = {position for position, at in enumerate(named.values()) if at in self.frozen}
            self.terms.append((kind, named))
        weights: Softmax | Sticks = Softmax()
        self.of_weights: list[int] = []
        if not softmax:
            current, remainder, at = facts["sticks"]
            self.of_weights = [int(at)] if int(at) >= 0 else []
            vectors = [tensors[at].detach().to(wide) for at in self.of_weights]
            kind = cast("Remainder", remainder)
            weights = Sticks(*vectors, attend_current=current == "True", remainder=kind, tolerance=tolerance)
        softcap = float(facts["softcap"][0]) if "softcap" in facts else None
        dropout = Dropout(float(facts["dropout"][0]), fixed[int(facts["dropout"][1])]) if "dropout" in facts else None
        sink = None if self.of_sink < 0 else tensors[self.of_sink].detach().to(wide)
        work = Work(
            q, k, v, terms, weights, visibility, scale,
            learned=facts["learned"][0] == "True", futures={}, softcap=softcap, dropout=dropout, sink=sink,
        )  # fmt: skip
        skewed = any(isinstance(term, Row | Vectors) for term in terms)
        shared = any(isinstance(term, Network) for term in terms)  # whose features all heads of a tile share
        long = k.shape[2] > LONG
        elements = 2 * ELEMENTS if shared and not long else ELEMENTS // 2 if skewed and long else ELEMENTS
        least = k.shape[1] if work.bends else min(k.shape[1], 2) if shared else 1  # key heads of a tile
        rows = elements // (k.shape[2] * (q.shape[1] // k.shape[1]) * least)
        rows = max(16, min(QUERIES if work.chain is None else BLOCK, rows // 16 * 16))
        self.work = work._replace(cut=_cut(work, tolerance), skewed=skewed, elements=elements, rows=rows)


class Options(NamedTuple):
    """What a term needs to know beside its tensors."""

    scale: float
    blind: bool  # whether the weights do not see what all keys of a query share
    softmax: bool
    visibility: VisibilityMask
    queries: int
    number: int
    factor: float


def _term(kind: str, given: dict[str, Tensor], options: Options) -> Term:
    """One term; tensors along keys are reversed."""
    scale, blind, softmax, visibility = options[:4]
    kind, _, inside = kind.partition(":")
    if inside:
        of_bias = {name.removeprefix("of."): t for name, t in given.items() if name.startswith("of.")}
        bias = _term(inside, of_bias, options._replace(blind=False))
        network = [t for name, t in given.items() if not name.startswith("of.")]
        return Kernel(bias) if kind == "kernel" else Bend(bias, *network, slope=options.factor)
    if kind == "row":
        row = given["row"]
        if blind:  # to a head's constant: what is near the own key shall be small
            own = min(options.queries - 1, row.shape[-1] - 1)
            row = row - row[:, own : own + 1]
        return Row(row)
    if kind == "column":
        return Column(given["values"].flip(-1))
    if kind == "decay":
        gates = given["gates"]
        if visibility.mask is not None and visibility.per_key:  # a hidden key forgets nothing
            gates = gates * visibility.mask[:, :, 0]
        plain = visibility.per_key and (softmax or visibility.window is None)
        return Decay(gates.flip(-1), softmax=softmax, per_key=plain, causal=visibility.causal is True)
    if kind == "vectors":
        hidden = visibility.causal is True and options.number == 0 and options.queries > 1
        return Vectors(given, first=options.number, scale=scale, unseen=QUERIES - 1 if hidden else 0)
    if kind == "offsets":
        return Offsets(given["values"], given["of_queries"], given["of_keys"].flip(0))
    if kind == "lowrank":
        return LowRank(given["left"], given["right"].flip(-1))
    if kind == "chain":
        return Chain(given["whole"], given["near"])
    if kind == "counts":
        keys = [given["keys"].flip(2)] if "keys" in given else []
        queries = [given["queries"]] if "queries" in given else []
        return Counts(given["table"], *queries, *keys, scale=scale, factor=options.factor)
    return Network(*given.values())


def _cut(work: Work, tolerance: float) -> Cut | None:
    """Where far keys may be left out: if distance and gates alone decide about them."""
    rows = [term for term in work.terms if isinstance(term, Row)]
    decays = [term for term in work.terms if isinstance(term, Decay)]
    queries, keys = work.q.shape[2], work.k.shape[2]
    if (
        decode.serves(work)
        or isinstance(work.weights, Sticks)
        or max(queries, keys) <= 512
        or queries > keys
        or not work.terms
    ):
        return None
    if len(rows) > 1 or len(decays) > 1 or len(rows) + len(decays) != len(work.terms):
        return None
    if not work.visibility.plain or (decays and work.visibility.causal is not True):
        return None
    row, decay = rows[0] if rows else None, decays[0] if decays else None
    return Cut(row, decay, work.q, work.k, work.scale, tolerance, work.softcap)
