"""Which part of a model each tensor belongs to, and which part of the config describes it.

A tensor of a layer has the layer's number in its name; what stands before the number is the prefix of a stack:
"model.language_model.layers" in ``model.language_model.layers.3.self_attn.k_proj.weight``. Checkpoints of one model
differ in the wrappers in front (``model.``, ``transformer.``, ``bert.``, ``base_model.model.`` or nothing), so that
only the words of a prefix count: a stack of vision belongs to ``vision_config``, one of audio to ``audio_config``, the
largest other stack to the text model. A stack that fits no part of the config is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from posenc.hf.config.text_config import TextConfig, find_text_config
from posenc.hf.families import FAMILIES, record_of
from posenc.hf.sources.load import Config

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]

_NUMBERED = re.compile(r"^(?:(.*?)\.)?(\d{1,6})\.(.+)$")
_WORDS = {
    "image_config": ("image",),
    "vision_config": ("vision", "visual", "image", "vpm", "vit"),
    "audio_config": ("audio", "speech", "sound"),
}
_WRAPPERS = frozenset(  # words of prefixes that say nothing of the part; a stack with any other word is left alone
    (
        "model", "language", "lm", "text", "transformer", "base", "module", "layers", "layer", "h", "block", "blocks",
        "thinker", "llm", "bert", "roberta", "xlm", "embeddings", "gpt", "neox", "encoder", "decoder", "opt",
        "backbone",
    )
)  # fmt: skip
_BLOCKS = ("layer", "layers", "h", "block", "blocks", "resblocks", "albert_layer_groups")


@dataclass
class Part:
    """One part of a model: its config, the tensors of its layers, and its tensors outside of layers.

    Attributes:
        role: "" for the only or the text part, else "vision", "audio", "encoder" or "decoder".
        config: the part of the config that describes it.
        path: keys that lead there from the top of the config.
        root: the whole config.
        prefix: what stands before the number of a layer.
        layers: shapes by the number of the layer and the name behind it.
        outside: shapes of the tensors that belong to no layer, by their whole names.
    """

    role: str
    config: TextConfig
    path: tuple[str, ...]
    root: Config
    prefix: str = ""
    layers: dict[int, dict[str, Shape]] = field(default_factory=dict)
    outside: dict[str, Shape] = field(default_factory=dict)

    @property
    def known(self) -> bool:
        """Whether there is a record of the part's model type, so that rules for its tensors hold."""
        if self.is_tower and not re.search("vision|vit|audio|encoder|speech", self.config.model_type):
            return False  # Qwen2-VL and Qwen3-VL name the whole model in their towers' configs
        known = self.config.model_type in FAMILIES or record_of(self.config.model_type) is not None
        return known or (self.is_tower and self.root.get("model_type") in FAMILIES)

    @property
    def is_tower(self) -> bool:
        """Whether the part reads images or sound, next to a text model."""
        return self.role in ("vision", "image", "audio")

    def path_to(self, key: str) -> str:
        """A key with its path from the top of the config, for readers."""
        return ".".join((*self.path, key))

    def name_of(self, layer: int, rest: str) -> str:
        """The whole name of a tensor of a layer."""
        return f"{self.prefix}.{layer}.{rest}" if self.prefix else f"{layer}.{rest}"


def parts_of(config: Config, shapes: Shapes) -> list[Part]:
    """The parts of a model whose tensors and config are both there, the text part first.

    Raises:
        ValueError: for a config whose parts cannot be determined.
    """
    stacks: dict[str, dict[int, dict[str, Shape]]] = {}
    outside: dict[str, Shape] = {}
    for name, shape in shapes.items():
        match = _NUMBERED.match(name)
        prefix = (match.group(1) or "") if match is not None else ""
        if match is None or prefix.rpartition(".")[2] not in ("", *_BLOCKS):
            outside[name] = shape
            continue
        stacks.setdefault(prefix, {}).setdefault(int(match.group(2)), {})[match.group(3)] = shape
    places = _places(config)
    composite = len(places) > 1 or bool(find_text_config(config).path) or any(map(_is_part, config.items()))
    parts = []
    for role, (path, part_config) in places.items():
        text_config = find_text_config(part_config)
        text_config = TextConfig(
            (*path, *text_config.path), text_config.config, text_config.model_type, text_config.family,
            text_config.known, text_config.defaults,
        )  # fmt: skip
        part = Part(role, text_config, text_config.path, config)
        candidates = [prefix for prefix in stacks if _role_of(prefix, places, composite) == role]
        if candidates:
            part.prefix = max(candidates, key=lambda prefix: sum(map(len, stacks[prefix].values())))
            part.layers = stacks[part.prefix]
        part.outside = {name: shape for name, shape in outside.items() if _role_of(name, places, composite) == role}
        if part.layers or part.outside:
            parts.append(part)
    return parts


def _is_part(item: tuple[str, Any]) -> bool:
    """Whether a key of a config describes another part of the model."""
    key, value = item
    return (
        key.endswith("_config") and isinstance(value, dict) and bool({"hidden_size", "num_hidden_layers"} & set(value))
    )


def _places(config: Config) -> dict[str, tuple[tuple[str, ...], Config]]:
    """The parts that a config describes, by role: where each stands, and its content."""
    if isinstance(config.get("encoder"), dict) and isinstance(config.get("decoder"), dict):
        return {"encoder": (("encoder",), config["encoder"]), "decoder": (("decoder",), config["decoder"])}
    text = find_text_config(config)
    if text.family.attention.direction == "encoder-decoder" and not text.path:
        return {"encoder": ((), config), "decoder": ((), config)}
    places: dict[str, tuple[tuple[str, ...], Config]] = {"": ((), config)}
    parent: Any = config
    for name in text.path[:-1]:
        parent = parent[name]
    for key in _WORDS:
        if isinstance(parent.get(key), dict):
            places[key.removesuffix("_config")] = ((*text.path[:-1], key), parent[key])
    return places


def _role_of(prefix: str, places: Mapping[str, Any], composite: bool) -> str | None:
    """The role of the part that a name belongs to; None for a part that the config does not describe by itself."""
    words = set(re.split(r"[._]", prefix.lower()))
    if "encoder" in places:
        components = prefix.split(".")
        return next((word for word in components if word in ("encoder", "decoder")), None)
    if {"high", "res"} <= words:  # a second tower, as in deepseek_vl_hybrid
        return None
    for key, signs in _WORDS.items():
        role = key.removesuffix("_config")
        if any(word.startswith(sign) for word in words for sign in signs) and role in places:
            return role
    if not composite and "mtp" not in words:
        return ""
    front = _prefix_words(prefix)
    if {"encoder", "decoder"} & set(front) and not {"text", "bert", "roberta", "language"} & set(front):
        return None  # of another part, as in granite_speech and grounding-dino
    return "" if all(word in _WRAPPERS or not word.isalpha() for word in front) else None


def _prefix_words(prefix: str) -> list[str]:
    """The words of a prefix, without the last two components of the whole name of a tensor."""
    components = prefix.split(".")
    if components[-1] in ("weight", "bias", *_BLOCKS):
        components = components[:-1] if components[-1] in _BLOCKS else components[:-2]
    else:
        components = components[:-1]
    return [word for component in components for word in re.split("_", component.lower())]
