"""The keys that repair what a remark reports; each is read again, and must make the remark disappear."""

from __future__ import annotations

from collections.abc import Iterator

from posenc.hf.config.posenc_config import is_posenc_config
from posenc.hf.config.rope_config import RopeConfig, read_rope
from posenc.hf.config.rotation import text_rope
from posenc.hf.config.text_config import with_text_config
from posenc.hf.config.upstream_bugs import is_llama_3
from posenc.hf.findings import Finding
from posenc.hf.sources.load import Config
from posenc.hf.sources.presets import preset
from posenc.rotary.rope import RoPE

_SMALL = (2048, 3072)  # widths of Llama 3.2
_BASES = {"qwen2": 1e6, "qwen3": 1e6}  # of most releases; a million tokens have ten times that
_SHARES = {"minimax_m2": 0.5}
_RESPELLED = (
    "key-ignored",
    "original-length-ignored",
    "su-fails",
    "alpha-ignored",
    "truncate-ignored",
    "share-ignored",
)


def correction_of(read: RopeConfig, remark: Finding) -> tuple[Config | None, bool]:
    """Keys of the text part to write, and whether they are certain; (None, False) where there are none."""
    if has_remote_code(read.config):  # which may read every key that seems wrong or unread here
        return None, False
    for keys, certain in _candidates(read, remark):
        if keys and _holds(read, keys, remark):
            return keys, certain
    return None, False


def has_remote_code(config: Config) -> bool:
    """Whether a configuration names code of its folder's own, which may read its keys otherwise than transformers."""
    return bool(config.get("auto_map")) and not is_posenc_config(config)


def inside(read: RopeConfig) -> str:
    """The path of the text part; "" where it is the whole."""
    return ".".join(read.section.path)


def merged(read: RopeConfig, keys: Config) -> Config:
    """The whole configuration with these keys in its text part."""
    section = read.section
    text = {key: value for key, value in {**section.config, **keys}.items() if key not in keys or value is not None}
    return with_text_config(read.config, section, text)


def changes(read: RopeConfig, config: Config) -> Config:
    """What another configuration has otherwise in its text part; null for what it lacks."""
    before, after = read.section.config, config
    for name in read.section.path:
        after = after[name]
    new = {key: value for key, value in after.items() if key not in before or before[key] != value}
    return {**new, **{key: None for key in before if key not in after}}


def _holds(read: RopeConfig, keys: Config, remark: Finding) -> bool:
    """Whether with these keys the remark is gone, and no alarm has come."""
    try:
        again = read_rope(merged(read, keys), head_dim=read.reading.head_dim, convention=read.reading.convention)
    except ValueError:
        return False
    left = {one.name for one in again.remarks if one.level != "note" or one.name == remark.name}
    return left <= {one.name for one in read.remarks if one.level != "note"} - {remark.name}


def _candidates(read: RopeConfig, remark: Finding) -> Iterator[tuple[Config | None, bool]]:
    """Keys that may mend it."""
    name = remark.name
    if name in ("base-lost", "linear-over-llama3", "scaling-lost") and is_llama_3(read.section):
        yield _turned(read, _llama_3(read)), True
    elif name == "base-lost" and read.model_type in _BASES:
        yield _turned(read, _like(read, base=_BASES[read.model_type])), False
    elif name == "share-lost":
        rope = single(read)
        if rope is not None:
            yield _turned(read, _like(read, rotary_dim=int(rope.head_dim * _SHARES[read.model_type]))), False
    elif name == "version-5-spelling":
        both = _respelled(read, 4)
        yield both and {key: value for key, value in both.items() if key != "rope_parameters"}, True
    elif name in _RESPELLED:
        for version in (5, 4):
            yield _respelled(read, version), True


def single(read: RopeConfig) -> RoPE | None:
    """The rotation, where all layers that rotate have the same."""
    turning = [rope for rope in read.layers.values() if rope is not None]
    return text_rope(turning[0]) if len(turning) == 1 else None


def _like(read: RopeConfig, *, base: float | None = None, rotary_dim: int | None = None) -> RoPE | None:
    rope = single(read)
    if rope is None:
        return None
    turning = rotary_dim or rope.rotary_dim
    return RoPE(rope.head_dim, base=base or rope.base, layout=rope.layout, rotary_dim=turning, scaling=rope.scaling)


def _llama_3(read: RopeConfig) -> RoPE | None:
    """As Llama 3.1 or 3.2 rotates, which have the same base and another factor."""
    rope = single(read)
    small = read.section.config.get("hidden_size") in _SMALL
    recipe = text_rope(read_rope(preset("llama-3.2" if small else "llama-3.1")).rope)
    return rope and RoPE(rope.head_dim, base=recipe.base, layout=rope.layout, scaling=recipe.scaling)


def _turned(read: RopeConfig, rope: RoPE | None) -> Config | None:
    """Keys with which the layers rotate so."""
    if rope is None:
        return None
    try:
        return changes(read, read.with_rope(rope).to_config())
    except ValueError:
        return None


def _respelled(read: RopeConfig, version: int) -> Config | None:
    """Keys of another version that mean the same."""
    try:
        return changes(read, read.to_config(version=version))
    except ValueError:
        return None
