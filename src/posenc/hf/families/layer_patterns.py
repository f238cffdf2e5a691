"""Which kind of attention each layer has, and how far it reaches, where a model type's code decides and not the config.

Most families repeat a cycle ("five sliding layers, then a full one"); some let the config set its period. Others list
the layers that attend under keys of their own (`Listing`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

FULL, SLIDING, CHUNKED, LINEAR = "full_attention", "sliding_attention", "chunked_attention", "linear_attention"
INDEXED, COMPRESSED = "indexed_attention", "compressed_sparse_attention"
HEAVILY_COMPRESSED, BLOCK_SPARSE = "heavily_compressed_attention", "minimax_m3_sparse"
HYBRID, HYBRID_SLIDING, REFERENCE_SLIDING = "hybrid", "hybrid_sliding", "reference_sliding_attention"
CROSS = "cross_attention"  # from text to an image
WINDOWED = (SLIDING, HYBRID_SLIDING, REFERENCE_SLIDING)
NO_ATTENTION = (LINEAR, "mamba", "conv", "recurrent", "moe", "mlp", CROSS)  # layers without attention to text
KINDS = {  # of layers, as configs of transformers 5.23 name them
    FULL, CHUNKED, INDEXED, HYBRID, *WINDOWED, *NO_ATTENTION, "attention", "window_attention", COMPRESSED,
    HEAVILY_COMPRESSED, BLOCK_SPARSE, "sparse", "dense",
}  # fmt: skip


@dataclass(frozen=True)
class Window:
    """The tokens that a layer with a sliding window attends to.

    Attributes:
        size: default number of tokens.
        key: config key of the size; ``sliding_window`` is read as well where this key is missing.
        every_layer: every layer has the window, whatever its kind.
        halved: the key counts both sides of a token together.
        sides: for bidirectional layers. "each": ``size`` tokens before a token and as many after it; "shared": the two
            sides share ``size``, the token itself among the earlier half; "": the window ends at the token.
        excludes_itself: the key counts the tokens before a token, itself not among them.
        switch: key without which no layer has a window.
    """

    size: int | None = None
    key: str = "sliding_window"
    every_layer: bool = False
    halved: bool = False
    sides: Literal["", "each", "shared"] = ""
    excludes_itself: bool = False
    switch: str = ""


@dataclass(frozen=True)
class Listing:
    """Keys of its own with which a family says what each layer is, where ``layer_types`` is missing.

    Attributes:
        form: how the value is spelled.
            "letters": a string with a letter a layer. "codes": a list with a code a layer. "numbers": the numbers of
            the layers that are "listed" in ``names``, full without it, and the "others" recurrent. "period": the
            layers whose number modulo the key's value equals ``offset_key``'s. "spans": pairs of a list of kinds and
            how often it repeats.
        key: config key; inside ``parent`` where that is given.
        parent: object that holds the key.
        names: kinds of layers by letter or code.
        first: number of the first layer, for "numbers".
        default: value without the key; None: the listing does not apply without it.
        offset_key, offset: key and default of the offset, for "period".
        exact: whether the list must have exactly one entry a layer; else it may be longer.
    """

    form: Literal["letters", "codes", "numbers", "period", "spans"]
    key: str
    parent: str = ""
    names: Mapping[Any, str] = field(default_factory=dict)
    first: int = 0
    default: Any = None
    offset_key: str = ""
    offset: int = 0
    exact: bool = True


@dataclass(frozen=True)
class LayerPattern:
    """Which kind of attention each layer of a family has, and the window of each kind.

    Attributes:
        cycle: kinds of layers, repeated, where the config lists none.
        period_key: config key that sets the cycle's length; its last layer (or its first) stays full.
        anchored_at_end: the cycle counts from the last layer, whose kind is the first of the cycle.
        first_full, last_full: that layer is full whatever the cycle says.
        only_listed: without a list in the config the kinds of the layers are unknown.
        sliding_from_key, sliding_from: key and default of the first layer with a window (Qwen's
            ``max_window_layers``).
        count_key: key of the number of layers, where it is none of the usual ones.
        per_count: blocks of attention in each layer that this key counts.
        types_key: key that lists the kinds.
        full_is: the kind that "full_attention" in that list stands for.
        cross_key: key that lists the layers which attend to an image.
        listing: keys of the family's own that say what each layer is.
        window: of layers with a sliding window.
        chunk: default tokens of a chunk, of layers with chunked attention.
    """

    cycle: tuple[str, ...] = ()
    period_key: str = ""
    anchored_at_end: bool = False
    first_full: bool = False
    last_full: bool = False
    only_listed: bool = False
    sliding_from_key: str = ""
    sliding_from: int = 0
    count_key: str = ""
    per_count: int = 1
    types_key: str = "layer_types"
    full_is: str = FULL
    cross_key: str = ""
    listing: Listing | None = None
    window: Window = Window()
    chunk: int | None = None

    def kinds(
        self, count: int, *, period: int | None = None, sliding_from: int | None = None, windowed: bool = False
    ) -> list[str]:
        """The kind of each of ``count`` layers, first to last.

        Args:
            count: number of layers.
            period: the config's length of the cycle.
            sliding_from: the config's first layer with a window.
            windowed: whether the config gives a window.
        """
        if windowed and self.sliding_from_key:
            first = self.sliding_from if sliding_from is None else sliding_from
            return [SLIDING if layer >= first else FULL for layer in range(count)]
        cycle = self.cycle or (FULL,)
        if period is not None:
            ends_full = cycle[-1] == FULL
            rest = (cycle[0] if ends_full else cycle[-1],) * (period - 1)
            cycle = (*rest, FULL) if ends_full else (FULL, *rest)
        if windowed and self.window.every_layer and not self.cycle:
            cycle = (SLIDING,)
        kinds = [cycle[layer % len(cycle)] for layer in range(count)]
        if self.anchored_at_end:
            kinds.reverse()
        if kinds and self.last_full:
            kinds[-1] = FULL
        if kinds and self.first_full:
            kinds[0] = FULL
        return kinds


FULL_EVERYWHERE = LayerPattern()
