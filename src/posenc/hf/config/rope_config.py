"""Configurations of Hugging Face models to `RoPE` or `MRoPE` with their scaling, and back.

    config = read_rope("my-model")            # a folder, a config.json, a dictionary, a transformers configuration
    config.rope                               # RoPE(128, base=500000, ...) with Llama3(8, ...)
    config.findings                           # what a reader should know, as a defaulted original length
    config.with_rope(RoPE(128, base=5e5, scaling=YaRN(4, original_length=8192))).to_config()

Reads every rope type of transformers 5 but "axial", in the spelling of versions 4 and 5, flat and by kind of layers;
where pairs are shared out among time, row and column (Qwen2-VL and on), the rotation is an `MRoPE`.
What cannot be understood is an error that names the key and what is allowed there; nothing is guessed. Writing keeps
the spelling, so that reading and writing a configuration changes nothing. Neither needs torch;
`RopeConfig.layers` and `RopeConfig.rope` are modules of it.

Source: transformers 5.23 (modeling_rope_utils.py, configuration_utils.py and the families' own files).
Checked against: the rotary modules of transformers, for generated configurations of every rope type.
Departs from the source: where transformers 5.23 does not do what a configuration says, each with a finding and
    a test in tests/reference/test_hf_config.py.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, get_args

from posenc.arguments import check_choice, check_several, check_whole, shown
from posenc.frequencies.rotation import Layout
from posenc.hf.config.facts import ModelFacts, read_facts
from posenc.hf.config.rope_keys import ALL, ENGINES
from posenc.hf.config.rotation import (
    Convention,
    Layers,
    Reading,
    Rotation,
    built,
    equivalent,
    of_an_engine,
    scale_frequencies,
)
from posenc.hf.config.text_config import (
    SchemeFacts,
    TextConfig,
    is_posenc_config,
    layer_types,
    layers_without_rope,
    with_text_config,
)
from posenc.hf.config.write import check_meaning, keys_in_version, length_after, without_rope, write_rotations
from posenc.hf.findings import Finding
from posenc.hf.limits import CHANNELS, LAYERS
from posenc.hf.sources.load import Config, Source, load, translate

if TYPE_CHECKING:
    from posenc.rotary.mrope import MRoPE
    from posenc.rotary.rope import RoPE

VERSIONS = (4, 5)  # of transformers, whose spellings there are


def check_rotations(name: str, rope: Rotation | Layers) -> Layers:
    """Rotations by kind of layers, from one for all of them or a mapping; a ValueError that names the argument."""
    if isinstance(rope, Rotation):
        return {ALL: rope}
    if not isinstance(rope, Mapping):
        raise ValueError(f"{name} must be a RoPE, an MRoPE or a mapping of them by kind of layers, got {shown(rope)}")
    for kind, rotation in rope.items():
        if not isinstance(kind, str) or not (rotation is None or isinstance(rotation, Rotation)):
            text = "must have names of kinds of layers, and for each a RoPE, an MRoPE or None"
            raise ValueError(f"{name} {text}, got {shown(kind)}: {shown(rotation)}")
    return rope


def check_version(version: object) -> None:
    """Raise a ValueError unless this is a version of transformers that has a spelling of its own."""
    if not isinstance(version, int) or version not in VERSIONS:
        raise ValueError(f"version must be 4 or 5, got {shown(version)}")


@dataclass(frozen=True, eq=False)
class RopeConfig:
    """The rotations of a configuration.

    Attributes:
        facts: everything that the configuration says, with these rotations.

    >>> block = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768, "rope_theta": 1e6}
    >>> config = read_rope({"model_type": "qwen2", "head_dim": 128, "rope_parameters": block})
    >>> config.rope.scaling.factor
    4.0
    >>> config.to_config() == config.config
    True
    """

    facts: ModelFacts

    @property
    def rotations(self) -> Layers:
        """By kind of layers (``"all"`` where there is one), what rotates them, without torch; None: nothing does."""
        return self.facts.rotations

    @property
    def config(self) -> Config:
        """The whole configuration, as it was read."""
        return self.facts.config

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What a reader should know of the configuration as it was read, each with its key, text, name and level."""
        from posenc.hf.rules import findings_of  # rules read configs, and nothing else of this package

        return findings_of(self.facts)

    @cached_property
    def layers(self) -> Mapping[str, RoPE | MRoPE | None]:
        """The rotations as modules of torch, `RoPE` or `MRoPE`, by kind of layers; None where layers do not rotate."""
        return {kind: None if rotation is None else built(rotation) for kind, rotation in self.rotations.items()}

    @property
    def text_config(self) -> TextConfig:
        """The part of the configuration that describes the text model."""
        return self.facts.text

    @property
    def model_type(self) -> str:
        """Of the text model; "" where the configuration does not say."""
        return self.text_config.model_type

    @property
    def position_schemes(self) -> tuple[SchemeFacts, ...]:
        """The encodings of a model without rotation; empty for a model that rotates, and for models of posenc."""
        return self.facts.schemes

    @property
    def rope(self) -> RoPE | MRoPE:
        """The rotation as a module of torch, where there is only one.

        Raises:
            ValueError: where kinds of layers differ, or none rotates.
        """
        return built(self.rotation)

    @property
    def rotation(self) -> Rotation:
        """The rotation without torch, where there is only one; errors as `rope`."""
        rotating = [rope for rope in self.rotations.values() if rope is not None]
        if self.position_schemes:
            has = "; ".join(scheme.text for scheme in self.position_schemes)
            raise ValueError(f"model_type {self.model_type!r} says nothing of a rotation: its models have {has}")
        if len(rotating) != 1:
            raise ValueError(
                f"layer_type: {len(rotating)} kinds of layers rotate, give one of {', '.join(self.rotations)}"
            )
        return rotating[0]

    def of(self, layer_type: str) -> RoPE | MRoPE | None:
        """The rotation of one kind of layers; in a configuration with one kind, of any that it lists.

        Raises:
            ValueError: for a kind that the configuration does not have.
        """
        rotation = self._rotation_of(layer_type)
        return None if rotation is None else built(rotation)

    def _rotation_of(self, layer_type: str) -> Rotation | None:
        if isinstance(layer_type, str) and layer_type in self.rotations:
            return self.rotations[layer_type]
        if ALL in self.rotations and isinstance(layer_type, str) and layer_type in layer_types(self.text_config):
            return self.rotations[ALL]
        raise ValueError(f"layer_type must be one of {', '.join(self.rotations)}, got {shown(layer_type)}")

    def for_layer(self, index: int) -> RoPE | MRoPE | None:
        """The rotation of one layer, by its number; None where it does not rotate.

        Raises:
            ValueError: where kinds of layers differ and the configuration does not list the kind of each.
        """
        check_whole("index", index, least=0, most=LAYERS - 1)
        text_config = self.text_config
        if index in layers_without_rope(text_config):
            return None
        types = layer_types(text_config)
        if list(self.rotations) == [ALL]:
            return self.layers[ALL]
        if index >= len(types):
            raise ValueError(f"index must be below the {len(types)} layers that layer_types lists, got {index}")
        return self.of(types[index])

    def softmax_factor(self, layer_type: str | None = None) -> float:
        """What the scale of the softmax is multiplied by in addition to 1 / √head_dim: YaRN's mscale_all_dim, or 1."""
        return self.facts.softmax_factor(self.rotation if layer_type is None else self._rotation_of(layer_type))

    def with_rope(self, rope: Rotation | Layers | None) -> RopeConfig:
        """The same configuration with another rotation: one for all layers that rotate, or by kind of layers."""
        if rope is not None and not isinstance(rope, Rotation):
            return RopeConfig(self.facts.with_rotations({**self.rotations, **check_rotations("rope", rope)}))
        return RopeConfig(self.facts.with_rotations({kind: old and rope for kind, old in self.rotations.items()}))

    def with_factors(self, factors: Sequence[float]) -> RopeConfig:
        """The same configuration with each frequency times a factor, as Mistral Large 4 has exp of its learned alpha.

        Raises:
            ValueError: unless there is one above 0 for each pair that rotates, and where no length is declared.
        """
        layers = scale_frequencies(self.rotations, factors, self.facts.declared)
        return RopeConfig(self.facts.with_rotations(layers))

    def like(self, config: Source) -> RopeConfig:
        """Another configuration, read in the way that this one was."""
        return read_rope(config, head_dim=self.facts.reading.head_dim, convention=self.facts.reading.convention)

    def to_config(self, version: int | None = None) -> Config:
        """The whole configuration with these rotations, everything else as it was read.

        One number follows a changed rotation: ``max_position_embeddings`` becomes the length that YaRN, LongRoPE or
        Llama 3's recipe extend the context to, as in transformers (`posenc.hf.config.write`).

        Args:
            version: spelling of transformers 4 or 5; None keeps the spelling that was read.

        Raises:
            ValueError: where the spelling has no room for them; it says what would.
        """
        if version is not None:
            check_version(version)
        facts, reading, text_config, layers = self.facts, self.facts.reading, self.text_config, self.rotations
        same = all(equivalent(rope, facts.as_read.get(kind)) for kind, rope in layers.items())
        # A rope type or a key of an engine, which writing would spell otherwise.
        engines = reading.convention in ENGINES or any(
            of_an_engine(b.effective, reading.convention) for b in facts.blocks
        )
        own = is_posenc_config(self.config)
        if same and (own or facts.schemes or (version is None and engines)):
            return copy.deepcopy(self.config)
        if own:
            raise ValueError("encodings: a model of posenc has its rotation there: change it there")
        longest = None if same else length_after(facts.declared, facts.as_read, layers)
        if version is None:
            text = write_rotations(text_config, facts.blocks, layers, reading.convention, reading.ignore, longest)
        else:
            before = {block.kind: block.values or {} for block in facts.blocks}
            keys = keys_in_version(version, layers, before, text_config.rotation, reading.convention, reading.ignore)
            text = {**without_rope(text_config, facts.blocks), **keys}
        if longest is not None:
            text[text_config.length_key] = longest
        rewritten = with_text_config(self.config, text_config, text)
        check_meaning(rewritten, layers, reading)
        return rewritten


def read_rope(
    config: Source,
    *,
    head_dim: int | None = None,
    layout: Layout | None = None,
    convention: Convention = "transformers",
    ignore: Collection[str] = (),
) -> RopeConfig:
    """Read the rotations of a configuration.

    Args:
        config: a mapping, an object with ``to_dict()``, a JSON file, or a folder with config.json; also a params.json
            of Meta or Mistral, and GGUF: a file, or a mapping of its metadata (`posenc.hf.sources`).
        head_dim: channels of a head, where the configuration does not say.
        layout: of the pairs, for a family that is not known, or converted weights.
        convention: whose reading of YaRN's keys: "transformers"; "deepseek" (the softmax factor of mscale_all_dim
            holds in every family); "vllm" (attn_factor, extrapolation_factor, apply_yarn_scaling) and "sglang"
            (attn_factor, extrapolation_factor), whose own rope types are read as well (`posenc.hf.config.rotation`).
        ignore: keys of the block to keep and not to read.

    Raises:
        ValueError: for a key, value or combination that cannot be understood; it names it and says what is allowed.
        OSError: for a file that cannot be read.
    """
    if head_dim is not None:
        check_whole("head_dim", head_dim, least=2, most=CHANNELS)
    if layout is not None:
        check_choice("layout", layout, get_args(Layout))
    check_choice("convention", convention, get_args(Convention))
    keys = check_several("ignore", ignore)
    strange = [key for key in keys if not isinstance(key, str)]
    if strange:
        raise ValueError(f"ignore must hold keys of the block, which are strings, got {shown(strange[0])}")
    form = translate(load(config))
    reading = Reading(head_dim, layout or form.layout, convention, tuple(keys))
    try:
        facts = read_facts(form.config, reading, form.program, form.findings)
        facts.rotations  # noqa: B018 - which computes the frequencies, and names what has none
        return RopeConfig(facts)
    except ValueError as error:
        raise form.in_source_terms(error) from error


def rope_from_config(
    config: Source, layer_type: str | None = None, *, head_dim: int | None = None
) -> RoPE | MRoPE | None:
    """Return the rotation of a configuration, or of one kind of its layers; `read_rope` has more facts and options.

    Raises:
        ValueError: as `read_rope`, and where kinds of layers differ and none is named.

    >>> rope_from_config({"model_type": "llama", "head_dim": 128, "rope_theta": 500000.0})
    RoPE(128, base=500000, layout='half')
    """
    read = read_rope(config, head_dim=head_dim)
    return read.rope if layer_type is None else read.of(layer_type)


def model_from_config(
    config: Source | RopeConfig,
    *,
    head_dim: int | None = None,
    layout: Layout | None = None,
    convention: Convention = "transformers",
    ignore: Collection[str] = (),
) -> ModelFacts:
    """Return a model's positional facts from its configuration; `ModelFacts.layers` has them layer by layer.

    Args:
        config: as for `read_rope`, or what that has read.
        head_dim, layout, convention, ignore: as for `read_rope`; where that has read already, they count for nothing.

    Raises:
        ValueError: as `read_rope`, and for a key of a window, a temperature or a layer that cannot be understood.
    """
    read = config
    if not isinstance(read, RopeConfig):
        read = read_rope(read, head_dim=head_dim, layout=layout, convention=convention, ignore=ignore)
    read.facts.kinds  # noqa: B018 - which names what cannot be understood
    return read.facts
