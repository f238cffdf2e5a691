"""`Structure`: what every structure has, and what a backend asks of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from posenc.structure.tile import Tile

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]  # (score, batch, head, query, key) → score
S = TypeVar("S", bound="Structure")


class Visible(Protocol):
    """What structures need to know of visibility: a `posenc.visibility.VisibilityMask`."""

    @property
    def causal(self) -> object:
        """True: the order of indices; "positions": the order of positions; False: none."""

    @property
    def window(self) -> int | None:
        """Tokens that a query attends to."""

    @property
    def mask(self) -> Tensor | None:
        """``(batch | 1, heads | 1, queries | 1, keys)`` bool."""

    @property
    def segments(self) -> tuple[Tensor, Tensor] | None:
        """Documents of queries and of keys."""

    @property
    def per_key(self) -> bool:
        """Whether, apart from the order of the indices, each key is hidden from all queries or from none."""


class TileFacts(NamedTuple):
    """What decides whether tiles can compute a structure exactly."""

    few_queries: bool  # as few as a decode step has
    aligned: bool  # positions are those of the indices
    num_kv_heads: int
    softmax: bool  # whether weights are softmax's, with or without a sink
    structures: Sequence[Structure]  # all structures of the call, in their order


class TileContext(NamedTuple):
    """What a structure needs to know of a call before its tiles."""

    scale: float
    softmax: bool  # whether weights are softmax's, with or without a sink
    constants_cancel: bool  # whether a number that all keys of a query share has no effect, as under softmax
    visibility: Visible
    queries: int
    dtype: torch.dtype  # of scores: float32 or better


class InputGradients(NamedTuple):
    """What a structure adds to gradients that are not its own."""

    scores: Tensor | None = None  # of the products of q and k, as far as they go: (batch, heads, rows, columns)
    q: Tensor | None = None  # of q times the scale: (batch, heads, rows, width)


NO_INPUT_GRADIENTS = InputGradients()


class Structure:
    """One known form of an encoding's contribution. Subclasses are dataclasses of tensors and plain numbers.

    In tiles, a structure adds itself to the scores of a tile in place; given the gradient of the tile's scores, it
    gathers the gradients of its own tensors and returns what it contributes to those of queries and keys. An object
    that an encoding has stated is never changed: the backend makes a copy, calls `prepare` once, and lets the copy work
    on all tiles of one pass.
    """

    description: ClassVar[str]  # a noun phrase, for `posenc.explain_backend`
    stage: ClassVar[int] = 2  # when a tile adds it: 1 reads bare dot products; −1: it changes q and k, and adds nothing
    adds_only: ClassVar[bool] = False  # whether it adds numbers that depend on no query's content
    scans: bool = False  # whether a tile must begin at the newest key, as sums run from there
    skewed: ClassVar[bool] = False  # whether it reads the gradient of the scores by distance
    shares_features: ClassVar[bool] = False  # whether all heads of a tile share what it computes first

    learned: dict[str, int]  # of a working copy: tensors that want a gradient, and where among the call's they stand
    gradients: dict[str, Tensor]  # of a working copy: where gradients are gathered

    def tile_refusal(self, encoding: str, facts: TileFacts) -> str | None:
        """Why tiles cannot compute the structure in this call, in words that name the encoding; or None."""
        return None

    def row_factor(self) -> Tensor | None:
        """What all logits of a query are multiplied by, ``(batch | 1, heads | 1, queries)``, if that is all."""
        return None

    def sink_logits(self) -> Tensor | None:
        """Logits ``(heads,)`` that take weight and have no value, if the structure is softmax with such a sink."""
        return None

    def with_products(self: S, q: Tensor, k: Tensor, *, changed: bool, chained: bool) -> S:
        """The structure with its own tensors instead of dot products that a tile no longer has.

        Args:
            q, k: of the call.
            changed: whether a tile's dot products have been changed by the time this structure reads them.
            chained: whether queries have been carried through reflections.
        """
        return self

    def score_mod(self, queries: int, keys: int, visible: Visible) -> ScoreMod:
        """The structure inside FlexAttention's kernel."""
        raise TypeError(f"{type(self).__name__} has no score_mod")

    def flex_refusal(self, encoding: str, *, ordered: bool, sink: bool) -> str | None:
        """Why FlexAttention cannot compute the structure, or None.

        Args:
            encoding: the name of the encoding that states it.
            ordered: whether visibility is the causal order of indices, with or without hidden keys.
            sink: whether a sink takes weight.
        """
        return f"{encoding} is no term per key and no decay by gates"

    def tensors(self) -> dict[str, Tensor]:
        """Its floating-point tensors, by field."""
        fields = {name: getattr(self, name) for name in type(self).__match_args__}  # type: ignore[attr-defined]
        return {name: t for name, t in fields.items() if isinstance(t, Tensor) and t.is_floating_point()}

    def prepare(self, context: TileContext) -> None:
        """Get a working copy ready: tensors in the precision of scores; in subclasses those along keys reversed."""
        for name, tensor in self.tensors().items():
            setattr(self, name, tensor.to(context.dtype))

    def start_backward(self) -> None:
        """Make room for the gradients, in the precision of the scores; contiguous, as views are taken of them."""
        self.gradients = {name: tensor.new_zeros(tensor.shape) for name, tensor in self.tensors().items()}

    def finish_backward(self) -> dict[str, Tensor]:
        """The gradients by field, as the encoding stated the tensors: in the order of the sequence."""
        return self.gradients

    def add(self, scores: Tensor, q: Tensor, tile: Tile, mask: Tensor | None) -> object:
        """Add the structure to ``scores`` (batch, heads, rows, columns), in place; returns what `gradient` wants back.

        Args:
            scores: of q and k, with −inf at hidden keys.
            q: queries of the tile times the scale, ``(batch, heads, rows, width)``.
            tile: which.
            mask: 0 at visible and −inf at hidden keys, ``(batch | 1, heads | 1, rows, columns)``; None in plain order.
        """
        raise NotImplementedError

    def gradient(self, grad: Tensor, q: Tensor, tile: Tile, saved: object) -> InputGradients:
        """Gather the gradients of its own tensors from the scores' gradient, whose rows end in zeros if `skewed`."""
        raise NotImplementedError

    @property
    def reads_values(self) -> bool:
        """Whether `add_output` does anything."""
        return False

    def add_output(self, out: Tensor, weights: Tensor, tile: Tile) -> None:
        """Add what the weights, whose rows end in zeros, read in addition to v to ``out``."""

    def output_gradient(self, grad_weights: Tensor, grad: Tensor, weights: Tensor, tile: Tile) -> None:
        """The gradients of `add_output`: of the weights, in place, and of its own tensors."""

    def own_values(self) -> Tensor | int:
        """What the weight of a query's own key reads in addition to v, ``(value_dim,)``."""
        return 0

    def own_values_gradient(self, grad: Tensor) -> None:
        """Gather the gradient of `own_values`."""


class Bias(Protocol):
    """A bias of positions, by what it states of itself: `posenc.encoding.BiasEncoding`."""

    def of_distance(self, distance: Tensor) -> Tensor | None:
        """``(heads, *distance.shape)``."""

    def distance_slopes(self, *, like: Tensor) -> Tensor | None:
        """``(heads,)``, where the bias is a slope times the distance."""

    def network(self, queries: int, keys: int, *, like: Tensor) -> Structure | None:
        """A `Network`, of queries that are the last of the keys."""

    def offsets(self, q_pos: Tensor, k_pos: Tensor) -> Structure | None:
        """`Offsets`, of given positions."""
