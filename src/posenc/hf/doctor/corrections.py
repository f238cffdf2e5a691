"""Keys that resolve a finding: the rule's own, or those of a rotation that is known to be right."""

from __future__ import annotations

from collections.abc import Callable

from posenc.frequencies.rotation import RoPESpec
from posenc.hf.config.rope_config import RopeConfig
from posenc.hf.config.rotation import text_rope
from posenc.hf.config.text_config import with_text_config
from posenc.hf.findings import Finding
from posenc.hf.rules.case import LLAMA_32, TYPES, has_remote_code, is_llama_3
from posenc.hf.sources.load import Config
from posenc.hf.sources.presets import preset


def correction_of(read: RopeConfig, finding: Finding) -> tuple[Config | None, bool]:
    """Keys of the text part to write, null to remove one, and whether they are certain; (None, False) without any.

    A correction is accepted only if a second reading no longer reports the finding, and no other alarm.
    """
    if has_remote_code(read.config):  # its code may read every key that seems wrong or unread here
        return None, False
    fix, certain = _FIXES.get(finding.name, (None, False))
    for keys, sure in ((finding.corrected, finding.certain), (fix(read) if fix is not None else None, certain)):
        if keys and _resolves(read, keys, finding):
            return keys, sure
    return None, False


def _resolves(read: RopeConfig, keys: Config, finding: Finding) -> bool:
    """Whether with these keys the finding is gone, and no new alarm has come."""
    text_config = {**read.text_config, **keys}
    text_config = {key: value for key, value in text_config.items() if key not in keys or value is not None}
    try:
        again = read.like(with_text_config(read.config, read.text_config, text_config))
    except ValueError:
        return False
    after = {other.name for other in again.findings if other.alarms or other.name == finding.name}
    return after <= {other.name for other in read.findings if other.alarms} - {finding.name}


def text_path(read: RopeConfig) -> str:
    """The path of the text part in its file; "" where it is the whole."""
    return ".".join(read.text_config.path)


def single(read: RopeConfig) -> RoPESpec | None:
    """The rotation, where all layers that rotate have the same."""
    ropes = [rope for rope in read.rotations.values() if rope is not None]
    return text_rope(ropes[0]) if len(ropes) == 1 else None


def keys_for(read: RopeConfig, rope: RoPESpec) -> Config | None:
    """The keys that give all layers this rotation; None where a configuration cannot say it."""
    try:
        return _changed_keys(read, read.with_rope(rope).to_config())
    except ValueError:
        return None


def _changed_keys(read: RopeConfig, config: Config) -> Config:
    """The keys of the text part that differ in another configuration, with its values; null for those it lacks."""
    before, after = read.text_config, config
    for name in read.text_config.path:
        after = after[name]
    new = {key: value for key, value in after.items() if key not in before or before[key] != value}
    return {**new, **{key: None for key in before if key not in after}}


def _recipe_of_llama_3(read: RopeConfig) -> Config | None:
    """The rotation of Llama 3.1 or 3.2, which share the base and differ in the factor."""
    rope = single(read)
    if not is_llama_3(read.text_config) or rope is None:
        return None
    small = read.text_config.get("hidden_size") in LLAMA_32
    recipe = text_rope(read.like(preset("llama-3.2" if small else "llama-3.1")).rotation)
    return keys_for(read, recipe.replace(head_dim=rope.head_dim, layout=rope.layout, rotary_dim=rope.head_dim))


def _released_share(read: RopeConfig) -> Config | None:
    """The share of a head that all released models of the type rotate."""
    rope, releases = single(read), TYPES.get(read.model_type)
    if rope is None or releases is None or releases.share == 1:
        return None
    return keys_for(read, rope.replace(rotary_dim=int(rope.head_dim * releases.share)))


def _both_spellings(read: RopeConfig) -> Config | None:
    """The keys of version 4, next to those of version 5."""
    both = _one_version(read, 4)
    return both and {key: value for key, value in both.items() if key != "rope_parameters"}


def _one_version(read: RopeConfig, version: int = 5) -> Config | None:
    """Keys that the other version of transformers reads."""
    try:
        return _changed_keys(read, read.to_config(version=version))
    except ValueError:
        return None


_FIXES: dict[str, tuple[Callable[[RopeConfig], Config | None], bool]] = {
    **dict.fromkeys(("base-lost", "linear-over-llama3", "scaling-lost"), (_recipe_of_llama_3, True)),
    "share-lost": (_released_share, False),
    "version-5-spelling": (_both_spellings, True),
    **dict.fromkeys(("key-ignored", "original-length-ignored", "alpha-ignored", "share-ignored"), (_one_version, True)),
}
"""By the name of a finding: the keys that resolve it, and whether they are certain."""
