"""What advice needs to know of a checkpoint, read from its configuration; no weights are opened."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from posenc.hf.config.facts import ModelFacts
from posenc.hf.config.layers import HEADS
from posenc.hf.config.rope_config import RopeConfig, read_rope
from posenc.hf.config.rotation import text_rope
from posenc.hf.config.text_config import TextConfig, count_at, max_length, width_of_heads
from posenc.hf.explanation.report import facts, schedule_facts
from posenc.hf.families.family import COMPRESSED, HEAVILY_COMPRESSED
from posenc.hf.limits import TOKENS, WIDTH
from posenc.recommend.needs import Checkpoint

_BFLOAT16 = 2  # bytes
_KEY_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
_COMPRESSED = (COMPRESSED, HEAVILY_COMPRESSED)
_KINDS = {  # model types whose kind their layers do not tell
    "whisper": "speech", "moonshine": "speech", "moonshine_streaming": "speech", "speech_to_text": "speech",
    "wav2vec2": "speech", "wav2vec2_conformer": "speech", "wav2vec2_bert": "speech", "hubert": "speech",
    "esm": "protein", "esmc": "protein", "musicgen": "music", "musicgen_melody": "music",
}  # fmt: skip


def read_checkpoint(path: Path, name: str = "") -> tuple[Checkpoint, str]:
    """The facts of a configuration and the kind of model that it describes, a key of `KINDS`.

    Args:
        path: a config.json, the folder of a checkpoint, or a GGUF file.
        name: how commands call it, such as a model of the Hugging Face Hub; "": the path.

    Raises:
        ValueError: as `read_rope`.
    """
    config = read_rope(path)
    checkpoint = checkpoint_of(config, path)
    return replace(checkpoint, path=name or checkpoint.path, name=name or checkpoint.name), kind_of(config)


def checkpoint_of(config: RopeConfig, path: Path) -> Checkpoint:
    """The facts of a configuration that was read."""
    attending = [layer for layer in config.facts.distinct_layers if layer.attends]
    rows = next((scheme.positions or scheme.rows for scheme in config.position_schemes if scheme.rows), None)
    declared = max_length(config.text_config) if any(config.rotations.values()) else rows
    declared = declared or _declared_length(config.text_config)
    # A window as long as the declared context, as in Phi-3, keeps no distance out; nor does a window in a layer that
    # also attends to compressed keys of all earlier tokens, as in DeepSeek-V4.
    windows = [layer.window for layer in attending if layer.window is not None and layer.kind not in _COMPRESSED
               and (declared is None or layer.window < declared)]  # fmt: skip
    a_layer, cached_tokens = _cache(config)
    return Checkpoint(
        path=str(path), name=path.parent.name if path.name == "config.json" and path.parent.name else path.name,
        config=config, declared=declared,
        windowed="No" if not windows else "All" if len(windows) == len(attending) else "Some",
        window=max(windows, default=None), cache=a_layer, cached_tokens=cached_tokens, slowest=_slowest(config),
    )  # fmt: skip


def _slowest(config: RopeConfig) -> float | None:
    """Wavelength of the slowest pair of layers without a window, scaled as the configuration says."""
    layers = [layer for layer in facts(config)["layers"].values() if layer is not None and layer["window"] is None]
    return max(
        (layer["scaled_wavelengths"]["longest"] for layer in layers if layer["scaled_wavelengths"]), default=None
    )


def kind_of(config: RopeConfig) -> str:
    """The kind of model, as far as a configuration says it."""
    causal = {layer.causal for layer in config.facts.distinct_layers if layer.attends}
    names = {kind["kind"] for kind in schedule_facts(config)["kinds"]}
    root = config.config.get("model_type")
    if (known := _KINDS.get(config.model_type) or _KINDS.get(root if isinstance(root, str) else "")) is not None:
        return known
    if any("Grid" in scheme.builds for scheme in config.position_schemes):
        return "vision"
    if {"encoder", "decoder"} <= names:
        return "encoder-decoder"
    if "vision_config" in config.config:
        return "vision-language"
    return "encoder" if causal == {False} else "decoder"


def _declared_length(text: TextConfig) -> int | None:
    """The context length that a model without rotation declares; MPT has a key of its own for it."""
    return max_length(text) or count_at(text, "max_seq_len", TOKENS)


def _cache(config: RopeConfig) -> tuple[int | None, tuple[int | None, ...]]:
    """Bytes of the cache for one token in one layer, and the most tokens that each layer keeps; None: not known.

    Not known where layers differ in their heads, share each other's keys, or compress them: one width would be wrong.
    """
    text, read = config.text_config, config.facts
    attending = [layer for layer in read.layers if layer.attends]
    widths = {text_rope(rope).head_dim for rope in config.rotations.values() if rope is not None}
    differs = len(widths) > 1 or bool(text.get("num_kv_shared_layers"))
    compressed = any(layer.kind in _COMPRESSED or layer.not_read for layer in attending)
    channels = _channels(read, next(iter(widths), None))
    if channels is None or not attending or differs or compressed or not all(layer.causal for layer in attending):
        return None, ()
    return channels * _BFLOAT16, tuple(layer.window for layer in attending)


def _channels(model: ModelFacts, width: int | None) -> int | None:
    """Numbers that a layer caches for one token; ``width``: of a head of a model that rotates."""
    if model.latent is not None and model.latent.keys is not None:  # all heads share one latent vector and one key
        return model.latent.keys + (model.latent.rotated or 0)
    heads, width = _key_heads(model.text), width or width_of_heads(model.text)
    return None if heads is None or width is None else 2 * heads * width


def _key_heads(text: TextConfig) -> int | None:
    """Heads of keys and values, fewer than those of queries where these share them."""
    if text.get("multi_query") is True and not text.get("new_decoder_architecture"):  # Falcon, GPT-BigCode
        return 1
    counts = (count_at(text, key, WIDTH) for key in (*_KEY_HEADS, *HEADS))
    return next((count for count in counts if count is not None), None)
