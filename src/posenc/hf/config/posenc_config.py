"""Whether a configuration is one of posenc's own models, or has encodings that `posenc.hf.attach` put there.

What such a model consists of needs torch: `posenc.hf.config.encoding_spec`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from posenc.hf.sources.load import Config

MODEL_TYPE = "posenc"
DEFAULTS: dict[str, Any] = {
    "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "train_length": 2048, "encodings": "rope",
}  # fmt: skip


def is_posenc_config(config: Config) -> bool:
    """Whether a configuration is one of posenc's own."""
    return config.get("model_type") == MODEL_TYPE


class AttachedNames(NamedTuple):
    """Encodings that `posenc.hf.attach` has put into layers of a saved model, in the place of its rotation.

    Attributes:
        words: their names.
        layers: by number from 0; None: every layer with attention.
    """

    words: str
    layers: frozenset[int] | None

    def acts_in(self, layer: int) -> bool:
        """Whether a layer has them."""
        return self.layers is None or layer in self.layers


def attached_names(config: Config) -> AttachedNames | None:
    """What is attached to the model of a configuration; None where that is nothing."""
    block = config.get("posenc")
    lines = block.get("encodings", block.get("built_in_python")) if isinstance(block, dict) else None
    if not isinstance(block, dict) or not isinstance(lines, list):
        return None
    names = [str(line.get("name")) if isinstance(line, dict) else str(line) for line in lines]
    layers = block.get("layers")
    numbers = (
        frozenset(layer for layer in layers if type(layer) is int) if isinstance(layers, list) else frozenset[int]()
    )
    return AttachedNames(" + ".join(names) or "none (NoPE)", numbers or None)
