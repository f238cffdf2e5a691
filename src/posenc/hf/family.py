"""What a line of the table of families says: everything of a rotation that a family's code decides by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from posenc.rotary._rotate import Layout

FULL, SLIDING = "full_attention", "sliding_attention"
Order = Literal["chunked", "interleaved", "time last"]


class Kind(NamedTuple):
    """How a flat configuration spells one of several kinds of layers.

    Attributes:
        theta_key: key of its base, beside the block.
        base: where that key is missing.
        scaled: whether ``rope_scaling`` is for it.
    """

    theta_key: str
    base: float
    scaled: bool


class Family(NamedTuple):
    """One or several model types that share their code for rotation.

    Attributes:
        base: where a configuration has none.
        share: part of the head that turns, where a configuration has none.
        layout: pairs of channels.
        theta_key, share_key: names of both beside the block, in version 4.
        default_share: whether the rope type "default" heeds the share too (most families ignore it there).
        trailing: the last channels of a head turn, not the first.
        latent: multi-head latent attention: ``qk_rope_head_dim`` channels turn, and the softmax scale has
            YaRN's factor of ``mscale_all_dim``.
        layout_key: ``rope_interleave`` decides the layout; null means no.
        turns_if: a key and its value without which the layers do not turn.
        kinds: kinds of layers that a flat configuration spells in one go, or empty.
        nested: there are several kinds of layers, and only a nested block can tell them apart.
        plain: kinds of layers that never turn, under a sliding window.
        only_sliding: the others never turn, whether or not there is a window; else they do where there is none.
        bases_key: key of a list with the base of each layer, 0 for one that does not turn.
        bases_choose: whether its numbers are bases, or say only which layers turn.
        plain_every: every so many layers one does not turn, where a configuration does not say.
        block: the block of a configuration that has none.
        original: trained length of a configuration that has none.
        head_dim: width of a head that turns, where a configuration has no such key; None: the stream's over the heads'.
        head_key: the key of that width.
        full_head_dim: width of full attention's heads, where it has its own and a configuration does not say.
        fixed: no configuration can change the base or scale the frequencies.
        null_base: a base that is null means that no layer turns.
        sections: of M-RoPE, where a configuration has none: pairs that read time, row, column; None: the code of the
            family turns all pairs by one position.
        scaled: keys of a flat ``rope_scaling`` where it has none.
        width_key: key that a flat configuration has for the channels that are rotated, in the place of a share.
        order: how M-RoPE deals out the pairs; with time last, sections are row, column, time.
    """

    base: float = 10_000.0
    share: float = 1.0
    layout: Layout = "half"
    theta_key: str = "rope_theta"
    share_key: str = "partial_rotary_factor"
    default_share: bool = False
    trailing: bool = False
    latent: bool = False
    layout_key: bool = False
    turns_if: tuple[str, str | bool] | None = None
    kinds: Mapping[str, Kind] = {}
    nested: bool = False
    plain: tuple[str, ...] = ()
    only_sliding: bool = False
    bases_key: str | None = None
    bases_choose: bool = False
    plain_every: int | None = None
    block: Mapping[str, Any] | None = None
    original: int | None = None
    head_dim: int | None = None
    head_key: str = "head_dim"
    full_head_dim: int | None = None
    fixed: bool = False
    null_base: bool = False
    sections: tuple[int, ...] | None = None
    scaled: Mapping[str, Any] = {}
    width_key: str = ""
    order: Order = "chunked"

    @property
    def shares(self) -> dict[str, Any]:
        """What its code says of M-RoPE, as keys of a block."""
        if self.sections is None:
            return {}
        order = {"mrope_interleaved": True} if self.order == "interleaved" else {}
        return {"mrope_section": list(self.sections), **order}
