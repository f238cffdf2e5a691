"""Corrections of findings: keys to write, accepted only if a second reading no longer reports the finding."""

from __future__ import annotations

from collections.abc import Iterator

from posenc.frequencies.rotation import RoPESpec
from posenc.hf.config.posenc_config import is_posenc_config
from posenc.hf.config.rope_config import RopeConfig, read_rope
from posenc.hf.config.rotation import text_rope
from posenc.hf.config.text_config import with_text_config
from posenc.hf.config.upstream_bugs import is_llama_3
from posenc.hf.doctor.config_checks import on_contradictions
from posenc.hf.findings import Finding
from posenc.hf.sources.load import Config
from posenc.hf.sources.presets import preset

_LLAMA_3_2_WIDTHS = (2048, 3072)
_BASES = {"qwen2": 1e6, "qwen3": 1e6}  # of most releases; those for a million tokens have ten times that
_SHARES = {"minimax_m2": 0.5}
_WRONG_VERSION = (  # findings on keys that the other version of transformers reads
    "key-ignored",
    "original-length-ignored",
    "su-fails",
    "alpha-ignored",
    "truncate-ignored",
    "share-ignored",
)


def correction_of(read: RopeConfig, finding: Finding) -> tuple[Config | None, bool]:
    """Keys of the text part to write, and whether they are certain; (None, False) where there are none."""
    if has_remote_code(read.config):  # its code may read every key that seems wrong or unread here
        return None, False
    for keys, certain in _candidates(read, finding):
        if keys and _resolves(read, keys, finding):
            return keys, certain
    return None, False


def has_remote_code(config: Config) -> bool:
    """Whether a configuration names code in its folder, which may read the keys in another way than transformers."""
    return bool(config.get("auto_map")) and not is_posenc_config(config)


def text_path(read: RopeConfig) -> str:
    """The path of the text part in its file; "" where it is the whole."""
    return ".".join(read.text_config.path)


def with_keys(read: RopeConfig, keys: Config) -> Config:
    """The whole configuration with these keys in its text part; null removes one."""
    text_config = read.text_config
    text = {key: value for key, value in {**text_config.config, **keys}.items() if key not in keys or value is not None}
    return with_text_config(read.config, text_config, text)


def changed_keys(read: RopeConfig, config: Config) -> Config:
    """The keys of the text part that differ in another configuration, with its values; null for those it lacks."""
    before, after = read.text_config.config, config
    for name in read.text_config.path:
        after = after[name]
    new = {key: value for key, value in after.items() if key not in before or before[key] != value}
    return {**new, **{key: None for key in before if key not in after}}


def _resolves(read: RopeConfig, keys: Config, finding: Finding) -> bool:
    """Whether with these keys the finding is gone, and no new alarm has come."""
    try:
        again = read_rope(with_keys(read, keys), head_dim=read.reading.head_dim, convention=read.reading.convention)
    except ValueError:
        return False
    after = {other.name for other in _all_findings(again) if other.alarms or other.name == finding.name}
    return after <= {other.name for other in _all_findings(read) if other.alarms} - {finding.name}


def _all_findings(read: RopeConfig) -> Iterator[Finding]:
    yield from read.findings
    yield from on_contradictions(read)


def _candidates(read: RopeConfig, finding: Finding) -> Iterator[tuple[Config | None, bool]]:
    """Keys that may correct a finding, the best first, and whether they are certain."""
    name, rope = finding.name, single(read)
    if finding.corrected is not None:  # the check knows the keys, and somebody must confirm them
        yield finding.corrected, finding.certain
    elif name in ("base-lost", "linear-over-llama3", "scaling-lost") and is_llama_3(read.text_config):
        yield keys_for(read, _llama_3(read)), True
    elif name == "base-lost" and read.model_type in _BASES and rope is not None:
        yield keys_for(read, rope.replace(base=_BASES[read.model_type])), False
    elif name == "share-lost" and rope is not None:
        yield keys_for(read, rope.replace(rotary_dim=int(rope.head_dim * _SHARES[read.model_type]))), False
    elif name == "version-5-spelling":
        both = _keys_of_version(read, 4)
        yield both and {key: value for key, value in both.items() if key != "rope_parameters"}, True
    elif name in _WRONG_VERSION:
        for version in (5, 4):
            yield _keys_of_version(read, version), True


def single(read: RopeConfig) -> RoPESpec | None:
    """The rotation, where all layers that rotate have the same."""
    ropes = [rope for rope in read.rotations.values() if rope is not None]
    return text_rope(ropes[0]) if len(ropes) == 1 else None


def _llama_3(read: RopeConfig) -> RoPESpec | None:
    """The rotation of Llama 3.1 or 3.2, which share the base and differ in the factor."""
    rope = single(read)
    small = read.text_config.get("hidden_size") in _LLAMA_3_2_WIDTHS
    recipe = text_rope(read_rope(preset("llama-3.2" if small else "llama-3.1")).rotation)
    return rope and recipe.replace(head_dim=rope.head_dim, layout=rope.layout, rotary_dim=rope.head_dim)


def keys_for(read: RopeConfig, rope: RoPESpec | None) -> Config | None:
    """The keys that give all layers this rotation; None where a configuration cannot say it."""
    if rope is None:
        return None
    try:
        return changed_keys(read, read.with_rope(rope).to_config())
    except ValueError:
        return None


def _keys_of_version(read: RopeConfig, version: int) -> Config | None:
    """Keys of another version of transformers that mean the same."""
    try:
        return changed_keys(read, read.to_config(version=version))
    except ValueError:
        return None
