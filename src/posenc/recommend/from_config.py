"""What advice needs to know of a checkpoint, read from its configuration; no weights are opened."""

from __future__ import annotations

from pathlib import Path

from posenc.hf.config.rope_config import RopeConfig, read_rope
from posenc.hf.config.text_config import TextConfig, count_at, max_length, width_of_heads
from posenc.hf.explanation.describe import schedule_facts
from posenc.hf.explanation.layer_facts import HEADS, Model, model_from_config
from posenc.hf.explanation.report import facts
from posenc.hf.families.layer_patterns import COMPRESSED, HEAVILY_COMPRESSED
from posenc.hf.limits import TOKENS, WIDTH
from posenc.recommend.needs import Checkpoint

_BFLOAT16 = 2  # bytes
_COMPRESSED = (COMPRESSED, HEAVILY_COMPRESSED)
_KINDS = {  # model types whose kind their layers do not tell
    "whisper": "speech", "moonshine": "speech", "moonshine_streaming": "speech", "speech_to_text": "speech",
    "wav2vec2": "speech", "wav2vec2_conformer": "speech", "wav2vec2_bert": "speech", "hubert": "speech",
    "esm": "protein", "esmc": "protein", "musicgen": "music", "musicgen_melody": "music",
}  # fmt: skip


def read_checkpoint(path: Path) -> tuple[Checkpoint, str]:
    """The facts of a configuration and the kind of model that it describes, a key of `KINDS`.

    Args:
        path: a config.json, the folder of a checkpoint, or a GGUF file.

    Raises:
        ValueError: as `read_rope`.
    """
    config = read_rope(path)
    model = model_from_config(config)
    return checkpoint_of(config, model, path), kind_of(config, model)


def checkpoint_of(config: RopeConfig, model: Model, path: Path) -> Checkpoint:
    """The facts of a configuration that was read."""
    rotations = [layer for layer in facts(config)["layers"].values() if layer is not None]
    attending = [layer for layer in model.distinct_layers if layer.attends]
    a_layer, cached_tokens = _cache(config, model)
    # Where kinds of layers differ, the widest attention decides what the model can reach.
    widest = max(rotations, key=lambda r: (r["window"] is None, r["longest_length"] or 0), default=None)
    declared = widest["longest_length"] if widest else None
    # A window as long as the declared context, as in Phi-3, keeps no distance out; nor does a window in a layer that
    # also attends to compressed keys of all earlier tokens, as in DeepSeek-V4.
    windowed = [layer for layer in attending if layer.window is not None and layer.kind not in _COMPRESSED
                and (declared is None or layer.window < declared)]  # fmt: skip
    windows = [layer.window for layer in windowed if layer.window is not None]
    pattern = "full" if not windows else "windows" if len(windows) == len(attending) else "mixed"
    everywhere = [layer for layer in attending if layer not in windowed]
    if pattern == "mixed" and widest and all(layer.spec is None for layer in everywhere):
        pattern = "global-nope"
    scheme, rows = _scheme(config)
    return Checkpoint(
        name=path.parent.name if path.name == "config.json" and path.parent.name else path.name,
        model_type=config.model_type, scheme="rope" if widest else scheme, rows=rows, pattern=pattern,
        window=max(windows, default=None), scaling=(widest["scaling"] or "") if widest else "",
        length_dependent=bool(widest and widest["length_dependent"]),
        declared=declared if widest else rows or _declared_length(config.text_config),
        original=widest["trained_length"] if widest else rows,
        cache=a_layer, cached_tokens=cached_tokens,
    )  # fmt: skip


def kind_of(config: RopeConfig, model: Model) -> str:
    """The kind of model, as far as a configuration says it."""
    causal = {layer.causal for layer in model.distinct_layers if layer.attends}
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


def _scheme(config: RopeConfig) -> tuple[str, int | None]:
    """Which encoding a model without rotation has, and the positions of a learned table."""
    for scheme in config.position_schemes:
        if scheme.rows is not None:
            return "table", scheme.positions or scheme.rows
        if scheme.builds.startswith("ALiBi"):
            return "alibi", None
        if scheme.buckets is not None:
            return "bias", None
    return "none", None


def _cache(config: RopeConfig, model: Model) -> tuple[int | None, tuple[int | None, ...]]:
    """Bytes of the cache for one token in one layer, and the most tokens that each layer keeps; None: not known.

    Not known where layers differ in their heads, share each other's keys, or compress them: one width would be wrong.
    """
    text = config.text_config
    attending = [layer for layer in model.layers if layer.attends]
    widths = {layer["head_dim"] for layer in facts(config)["layers"].values() if layer is not None}
    differs = len(widths) > 1 or bool(text.get("num_kv_shared_layers"))
    compressed = any(layer.kind in _COMPRESSED or layer.not_read for layer in attending)
    channels = _channels(text, model)
    if channels is None or not attending or differs or compressed or not all(layer.causal for layer in attending):
        return None, ()
    return channels * _BFLOAT16, tuple(layer.window for layer in attending)


def _channels(text: TextConfig, model: Model) -> int | None:
    """Numbers that a layer caches for one token."""
    if model.latent is not None and model.latent.keys is not None:  # all heads share one latent vector and one key
        return model.latent.keys + (model.latent.rotated or 0)
    heads = count_at(text, "num_key_value_heads", WIDTH) or next(
        (count for key in HEADS if (count := count_at(text, key, WIDTH)) is not None), None
    )
    width = width_of_heads(text)
    return None if heads is None or width is None else 2 * heads * width
