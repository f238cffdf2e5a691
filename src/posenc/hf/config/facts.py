"""`ModelFacts`: everything that a configuration says of positions, read once, with the key that it came from.

    facts = model_from_config("my-model")
    facts.layers[3].rotation                 # None: that layer does not rotate
    facts.kinds                              # the layers of each kind, by number from 0
    facts.declared, facts.reachable(rope)    # lengths in tokens
    facts.keys["base"]                       # "text_config.rope_parameters.rope_theta"

There is one notion of each length. *Declared* is what the file says of the model (``max_position_embeddings``),
*trained* what it was trained at before a scaling, *reachable* what it is meant for with its scaling.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from posenc.arguments import shown
from posenc.frequencies.host import steps_of
from posenc.frequencies.llama3 import Llama3
from posenc.frequencies.rotation import RoPESpec
from posenc.frequencies.yarn import YaRN
from posenc.hf.config.layers import (
    BY_TOKEN,
    HEADS,
    LEARNED,
    Latent,
    LayerFacts,
    forced_to_rotate,
    index_topk,
    is_causal,
    lacks_window,
    layer_kinds,
    softcap_of,
    temperature_of,
    unread_restriction,
    window_key,
    window_of,
)
from posenc.hf.config.rope_keys import ALL, RopeBlock, find_rope_blocks
from posenc.hf.config.rotation import AS_IT_SAYS, Layers, Reading, Rotation, check_block, rope_of, text_rope
from posenc.hf.config.text_config import (
    DEFAULTS,
    WIDTHS,
    SchemeFacts,
    TextConfig,
    bases,
    count_at,
    find_text_config,
    flag_at,
    is_posenc_config,
    layer_types,
    layers_without_rope,
    max_length,
    position_schemes,
    width_of_heads,
)
from posenc.hf.families.family import (
    COMPRESSED,
    FULL,
    HYBRID_SLIDING,
    INDEXED,
    NO_ATTENTION,
    SCALE_KEYS,
    SLIDING,
    Scale,
)
from posenc.hf.findings import Finding
from posenc.hf.limits import CHANNELS, WIDTH, is_count, is_number
from posenc.hf.sources.load import Config, dotted


@dataclass(frozen=True, eq=False)
class ModelFacts:
    """The positional facts of a model, from a config in Hugging Face's keys; `read_facts` makes them.

    Explaining, examining, extending and writing one configuration share this record. Changing ``config`` afterwards
    has no effect on it. What no rotation needs (windows, temperatures, scales) is read when it is first used; where it
    cannot be understood, a ValueError names its key.

    Attributes:
        config: the whole configuration.
        reading: how it was read.
        text: the part that describes the text model.
        blocks: what the keys say of each kind of layers, and where each value stands; empty for a model of posenc.
        schemes: the encodings of a model without rotation; empty for a model that rotates, and for models of posenc.
        declared: tokens that the file says of the model; None where it does not say.
        layer_kinds: the kind of each layer; empty where the file does not say.
        layers_unread: what of these keys cannot be understood; "" where all can.
        is_own: whether it is a model of posenc, whose encodings its config lists.
        program: whose form it was translated from; "" for Hugging Face's own.
        program_findings: what the translation found.
        before: the rotations that the keys give, where others are in their place; None: they are `rotations`.
    """

    config: Config
    reading: Reading
    text: TextConfig
    blocks: tuple[RopeBlock, ...]
    schemes: tuple[SchemeFacts, ...]
    declared: int | None
    layer_kinds: list[str]
    layers_unread: str = ""
    is_own: bool = False
    program: str = ""
    program_findings: tuple[Finding, ...] = ()
    before: Layers | None = None

    def with_rotations(self, rotations: Layers) -> ModelFacts:
        """The same with other rotations."""
        rotates = any(rope is not None for rope in rotations.values())
        changed = replace(self, before=self.as_read, schemes=() if rotates else self.schemes)
        vars(changed)["rotations"] = rotations  # fills the cached property
        return changed

    @cached_property
    def rotations(self) -> Layers:
        """By kind of layers, what rotates them: as the keys say, or others in its place; None: nothing does."""
        return {block.kind: rope_of(self.text, block, self.reading) for block in self.blocks}

    @property
    def as_read(self) -> Layers:
        """The rotations that the keys give."""
        return self.rotations if self.before is None else self.before

    # Lengths

    def trained(self, rope: RoPESpec) -> int | None:
        """Tokens that the model was trained at before the scaling of a rotation; None where the file does not say."""
        lengths = [getattr(step, "original_length", None) for step in steps_of(rope.scaling)]
        return next((length for length in lengths if length is not None), self.declared)

    def reachable(self, rope: RoPESpec) -> int | None:
        """Tokens that the model is meant for under a rotation, as far as the file says.

        That is the declared length, or factor times the trained one where that is more. Of Llama 3's recipe the factor
        says less than the declared length. Under rope type "linear" the declared length may be meant before the
        scaling: a finding says so.
        """
        lengths = [] if self.declared is None else [self.declared]
        for step in steps_of(rope.scaling):
            trained, factor = getattr(step, "original_length", None), getattr(step, "factor", None)
            if trained is None or factor is None or (isinstance(step, Llama3) and (self.declared or 0) > trained):
                continue
            lengths.append(round(trained * factor))
        return max(lengths, default=None)

    def softmax_factor(self, rotation: Rotation | None) -> float:
        """What the scale of the softmax is multiplied by in addition to 1 / √head_dim: YaRN's mscale_all_dim, or 1."""
        rules = self.text.rotation
        heeded = (rules.latent and rules.yarn_in_softmax) or self.reading.convention == "deepseek"
        if rotation is None or not heeded:
            return 1.0
        steps = steps_of(text_rope(rotation).scaling)
        return math.prod(step.softmax_factor for step in steps if isinstance(step, YaRN))

    # Layers

    @cached_property
    def kinds(self) -> list[tuple[LayerFacts, list[int]]]:
        """Each kind of layers with the numbers of its layers from 0, none where the file does not tell them apart.

        Raises:
            ValueError: as `patterns`.
        """
        kinds, rule = [], self.text.family.attention.scale
        for layer, base, numbers in self.patterns:
            rope = None if layer.rotated_by is None else self.rotations[layer.rotated_by]
            if isinstance(rope, RoPESpec) and layer.rotated_by == ALL and base is not None and base != rope.base:
                rope = rope.replace(base=base)
            rotated = layer._replace(spec=rope, scale=self._scale(layer.kind, rope, rule)) if layer.attends else layer
            kinds.append((rotated, numbers))
        return kinds

    @cached_property
    def patterns(self) -> list[tuple[LayerFacts, float | None, list[int]]]:
        """The same before any frequency is computed: without spec and scale, and with a base that the layers list.

        Raises:
            ValueError: for a key of a window, a temperature or a layer that cannot be understood; it names the key.
        """
        if self.layers_unread:
            raise ValueError(self.layers_unread)
        if self.is_own:
            raise ValueError("encodings: a model of posenc has a schedule: read it with posenc.schedule.Schedule")
        text = self.text
        listed = bases(text) if text.rotation.bases_choose else []
        unrotated = layers_without_rope(text) if text.known else []
        forced = forced_to_rotate(text) if text.model_type == "cohere2_moe" else []
        numbers: dict[tuple[str, bool, float | None, bool], list[int]] = {}
        for n, kind in enumerate(self.layer_kinds):
            key = kind, n in unrotated, listed[n] if n < len(listed) else None, n in forced
            numbers.setdefault(key, []).append(n)
        rotates = {block.kind: block.values is not None for block in self.blocks}
        if self.before is not None:
            rotates = {kind: rope is not None for kind, rope in self.rotations.items()}
        if not numbers:
            numbers = {(kind, not rotating, None, False): [] for kind, rotating in rotates.items()}
        return [
            (self._layer(kind, None if unrotated else self._rotated_by(kind, forced, rotates)), base, of)
            for (kind, unrotated, base, forced), of in numbers.items()
        ]  # fmt: skip

    def _layer(self, kind: str, rotated_by: str | None) -> LayerFacts:
        text_config, attention = self.text, self.text.family.attention
        if kind in NO_ATTENTION or attention.direction == "none":
            return LayerFacts(kind, attends=False)
        window, ahead = window_of(
            text_config, SLIDING if kind == ALL and text_config.family.layers.window.every_layer else kind
        )
        rule = attention.temperature
        has_temperature = rule is not None and rule.layers in ("all", kind, "unrotated" if rotated_by is None else "")
        has_sink = attention.sinks == (ALL,) or kind in attention.sinks
        heads = next((count for key in HEADS if (count := count_at(text_config, key, WIDTH)) is not None), None)
        return LayerFacts(
            kind,
            rotated_by=rotated_by,
            window=window,
            ahead=ahead,
            temperature=temperature_of(text_config, rule) if has_temperature else None,
            sink=(BY_TOKEN if attention.sink_by_token else LEARNED) if has_sink else "",
            causal=is_causal(text_config),
            softcap=None if attention.softcap is None else softcap_of(text_config, attention.softcap),
            heads=heads,
            rotates_last=text_config.rotation.trailing or text_config.get("kv_lora_rank") is not None,
            normed_after=attention.normed_after,
            index_topk=index_topk(text_config) if kind in (INDEXED, COMPRESSED) else None,
            not_read=unread_restriction(text_config, kind),
        )

    def _rotated_by(self, kind: str, forced: bool, rotates: Mapping[str, bool]) -> str | None:
        """The kind whose block rotates a layer of this kind, if it is none that its number exempts."""
        if forced:
            return next((known for known, rotating in rotates.items() if rotating), None)
        name = ALL if ALL in rotates else kind
        if name not in rotates and "compress" in rotates:  # DeepSeek V4: its two are for layers with and without it
            name = "compress" if kind != SLIDING else "main"
        if name not in rotates and kind not in NO_ATTENTION and set(rotates) == {SLIDING, FULL}:
            raise ValueError(
                f"{self.text.key_path('layer_types')}: {shown(kind)} has no rotation of its own among {set(rotates)}"
            )
        return name if rotates.get(name) else None

    def _scale(self, kind: str, rope: Rotation | None, rule: Scale) -> float | None:
        """The factor on the scores: from the head's width or a key of the config, times YaRN's."""
        of_class = self.text.family.attention.scale_number
        value = self.text.get(rule, of_class)
        if rule in SCALE_KEYS and (value is not None or of_class is not None):  # else the class takes the head's width
            if value is None or not is_number(value, 0, above=True):
                return None
            return float(value) if rule == "attention_multiplier" else float(value) ** -0.5
        if rule in ("one", "unknown"):
            return 1.0 if rule == "one" else None
        latent = self.latent
        if latent is not None:
            if latent.rotated is None or latent.unrotated is None:
                return None
            factor = next((self.softmax_factor(rope) for rope in self.rotations.values() if rope is not None), 1.0)
            return float((latent.rotated + latent.unrotated) ** -0.5) * factor
        width = text_rope(rope).head_dim if rope is not None else self._width(kind)
        if width is None or rule == "inverse":
            return None if width is None else 1.0 / width
        return float((width / 2 if rule == "half" else width) ** -0.5)

    def _width(self, kind: str) -> int | None:
        """Channels of a head in a layer that does not rotate; Inkling's sliding ones have a key of their own."""
        if kind == HYBRID_SLIDING and (own := count_at(self.text, "swa_head_dim", CHANNELS)) is not None:
            return own
        widths = [text_rope(rope).head_dim for rope in self.rotations.values() if rope is not None]
        if widths:
            return widths[0]
        text_config = self.text
        return (
            count_at(text_config, text_config.rotation.head_key, CHANNELS)
            or count_at(text_config, "head_dim", CHANNELS)
            or text_config.family.attention.head_dim
            or width_of_heads(text_config)
        )

    @cached_property
    def layers(self) -> tuple[LayerFacts, ...]:
        """What each layer has, by number from 0; empty where the file does not tell them apart."""
        by_number = {n: kind for kind, numbers in self.kinds for n in numbers}
        return tuple(by_number[n] for n in range(len(by_number)))

    @property
    def distinct_layers(self) -> tuple[LayerFacts, ...]:
        """Each kind of layers that there is, or may be where `layers` is empty."""
        return tuple(kind for kind, _ in self.kinds)

    @cached_property
    def latent(self) -> Latent | None:
        """Widths of latent attention; None where attention is not latent."""
        if self.text.get("kv_lora_rank") is None:
            return None
        keys = ("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "kv_lora_rank", "q_lora_rank")
        widths = [None if self.text.get(key) == 0 else count_at(self.text, key, WIDTH) for key in keys]
        rotated = 0 if self.text.get("qk_rope_head_dim") == 0 else widths[0]
        return Latent(rotated, *widths[1:])

    @cached_property
    def parts_not_read(self) -> Mapping[str, str]:
        """Parts next to the text model's layers, by dotted path: towers of images and sound, codecs, prediction layers.

        Each with its model type, "" where it names none; layers that predict further tokens with their number.
        """
        parts, outer = {}, self.config
        for depth in range(len(self.text.path) + 1):
            inside = self.text.path[depth : depth + 1]
            for key, part in outer.items():
                is_model = isinstance(part, dict) and any(name in part for name in _OF_MODELS)
                if is_model and key.endswith("_config") and (key,) != inside:
                    parts[dotted((*self.text.path[:depth], key))] = str(part.get("model_type") or "")
            outer = outer[inside[0]] if inside else outer
        if is_count(predictors := self.text.get("num_nextn_predict_layers")):
            parts[self.text.key_path("num_nextn_predict_layers")] = f"{predictors} that predict further tokens"
        return parts

    # Where values stand

    @cached_property
    def keys(self) -> Mapping[str, str]:
        """By fact, the dotted key that it came from; facts of the model type's code have none.

        Of kinds of layers with a block each, ``FACT of KIND``.
        """
        own = "qk_rope_head_dim" if self.text.rotation.latent else self.text.rotation.head_key
        widths = (own, *(stream for stream, _ in WIDTHS))  # of a head, or else of the stream over the heads
        keys_of = {
            "declared": self.text.length_key,
            "head width": next((key for key in widths if self.text.get(key) is not None), ""),
            "window": window_key(self.text),
        }
        keys = {
            fact: self.text.key_path(key) for fact, key in keys_of.items() if key and self.text.get(key) is not None
        }
        several = len(self.blocks) > 1
        for block in self.blocks:
            for key, paths in block.sources.items():
                if key in (block.values or {}):
                    fact = _FACTS.get(key, key)
                    keys[f"{fact} of {block.kind}" if several else fact] = dotted((*self.text.path, *paths[0]))
        return keys


_OF_MODELS = ("model_type", "hidden_size", "embed_dim", "d_model", "num_hidden_layers", "depth")
_FACTS = {
    "rope_theta": "base", "partial_rotary_factor": "share", "rotary_dim": "share",
    "original_max_position_embeddings": "trained", "rope_type": "scaling",
}  # fmt: skip


def read_facts(
    config: Config, reading: Reading = AS_IT_SAYS, program: str = "", program_findings: tuple[Finding, ...] = ()
) -> ModelFacts:
    """Read a config in Hugging Face's keys; frequencies are computed when they are first asked for.

    A length, a list of layers or a window that is malformed is an error too: no rotation depends on these keys, but
    everything else that is reported of the layers does. A list of kinds that cannot be read is a finding instead.

    Args:
        config: the whole configuration.
        reading: how to read it.
        program, program_findings: as `ModelFacts` has them.

    Raises:
        ValueError: for whatever cannot be understood; it names the key and says what is allowed there.
    """
    text = find_text_config(config)
    if is_posenc_config(config):
        from posenc.hf.config.encoding_spec import posenc_layers  # the catalogue, and so torch

        layers, length = posenc_layers(config), int(config.get("train_length", DEFAULTS["train_length"]))
        facts = ModelFacts(config, reading, text, (), (), length, [], is_own=True)
        vars(facts)["rotations"] = layers  # as above
        return facts
    blocks = tuple(find_rope_blocks(text))
    for block in blocks:
        check_block(text, block, reading)
    declared = max_length(text)
    if text.known or "no_rope_layers" in text:
        layers_without_rope(text)
    schemes = () if any(block.values is not None for block in blocks) else position_schemes(text, config)
    if not schemes:
        layer_types(text)
    flag_at(text, "rope_interleave")
    kinds, unread = list[str](), ""
    try:
        kinds = layer_kinds(text)
    except ValueError as error:
        unread = str(error)
    for kind in {*kinds} or {FULL} if not unread else ():
        lacks_window(text, kind)
    return ModelFacts(
        config, reading, text, blocks, schemes, declared, kinds, unread,
        program=program, program_findings=program_findings,
    )  # fmt: skip
