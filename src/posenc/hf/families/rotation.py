"""What a model type's code decides about its rotation, and no config says: layout, default base, share of the head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from posenc.frequencies.rotation import Layout

Order = Literal["chunked", "interleaved", "time last"]


class KindKeys(NamedTuple):
    """How a flat config spells the rotation of one of several kinds of layers.

    Attributes:
        theta_key: key of the base, outside the block.
        base: default of that key.
        scaled: whether ``rope_scaling`` applies to this kind.
    """

    theta_key: str
    base: float
    scaled: bool


class DynamicKeys(NamedTuple):
    """How a repository's own code spells dynamic NTK outside any block.

    Attributes:
        factor_key: key of the factor; null or missing: no scaling.
        trained_key: key of the training length, from which the base grows.
        trained: default of that key, in tokens.
    """

    factor_key: str
    trained_key: str
    trained: int


@dataclass(frozen=True)
class RotationRules:
    """The rotation as a model type's code computes it where the config leaves something out.

    Attributes:
        base: default base.
        share: default share of a head's channels that are rotated.
        layout: which channels form a pair.
        theta_key, share_key: names of base and share outside the block, in version 4 of transformers.
        default_share: whether the rope type "default" applies the share too (most families ignore it there).
        trailing: the last channels of a head are rotated, not the first.
        latent: multi-head latent attention: ``qk_rope_head_dim`` channels are rotated, and the softmax scale has
            YaRN's factor of ``mscale_all_dim``.
        layout_key: ``rope_interleave`` decides the layout; null means half.
        rotates_if: a key, and the value without which no layer rotates.
        kinds: kinds of layers that a flat config spells side by side, or empty.
        nested: there are several kinds of layers, and only a nested block can tell them apart.
        flat_dropped: the class takes its defaults for each kind of layers in the place of flat ``rope_parameters``.
        by_layer: a flat config lists base (``rope_theta``) and share (``partial_rotary_factors``) of each layer, and
            the kinds that its scaling is for (``yarn_only_types``); lists may go on with layers that predict tokens.
        unrotated_kinds: kinds of layers that never rotate, where there is a sliding window.
        only_sliding: those kinds never rotate, with or without a window; else they rotate where there is none.
        bases_key: key of a list with the base of each layer, 0 for a layer that does not rotate.
        bases_choose: whether those numbers are bases; else they only say which layers rotate.
        unrotated_every: every so many layers one does not rotate, where the config does not say.
        block: the block of a config that has none.
        original: training length of a config that has none.
        dynamic_keys: of dynamic NTK outside a block; None: the family's code has no such keys.
        head_dim: default width of a head that rotates; None: ``hidden_size`` over the number of heads.
        head_key: key of that width.
        full_head_dim: default width of full attention's heads, where they have a width of their own.
        fixed: no config can change the base or scale the frequencies.
        null_base: a base that is null means that no layer rotates.
        sections: default sections of M-RoPE, pairs that read time, row, column; None: one position for all pairs.
        scaled: defaults of keys in a flat ``rope_scaling``.
        width_key: key of the number of rotated channels in a flat config, in the place of a share.
        order: how M-RoPE assigns pairs to axes; with "time last", sections are row, column, time.
        head_dim_first: the rotary module takes ``head_dim`` before ``qk_rope_head_dim`` (measured by building it with
            192 next to 64); in other latent families the second key decides alone.
        rope_types: the only ones that transformers' config class takes (5.23: Phi3Config.validate_rope, which also
            takes "yarn" for an old name of "longrope"); empty: all.
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
    rotates_if: tuple[str, str | bool] | None = None
    kinds: Mapping[str, KindKeys] = field(default_factory=dict)
    nested: bool = False
    flat_dropped: bool = False
    by_layer: bool = False
    unrotated_kinds: tuple[str, ...] = ()
    only_sliding: bool = False
    bases_key: str | None = None
    bases_choose: bool = False
    unrotated_every: int | None = None
    block: Mapping[str, Any] | None = None
    original: int | None = None
    dynamic_keys: DynamicKeys | None = None
    head_dim: int | None = None
    head_key: str = "head_dim"
    full_head_dim: int | None = None
    fixed: bool = False
    null_base: bool = False
    sections: tuple[int, ...] | None = None
    scaled: Mapping[str, Any] = field(default_factory=dict)
    width_key: str = ""
    order: Order = "chunked"
    head_dim_first: bool = False
    rope_types: tuple[str, ...] = ()

    @property
    def section_keys(self) -> dict[str, Any]:
        """M-RoPE's default sections, as keys of a block; empty without M-RoPE."""
        if self.sections is None:
            return {}
        order = {"mrope_interleaved": True} if self.order == "interleaved" else {}
        return {"mrope_section": list(self.sections), **order}
