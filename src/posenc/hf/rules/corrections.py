"""Corrections of findings: keys to write, accepted only if a second reading no longer reports the finding."""

from __future__ import annotations

from posenc.frequencies.rotation import RoPESpec
from posenc.hf.config.posenc_config import is_posenc_config
from posenc.hf.config.rotation import text_rope
from posenc.hf.config.text_config import with_text_config
from posenc.hf.findings import Finding
from posenc.hf.rules.case import FIXES, Read
from posenc.hf.sources.load import Config


def correction_of(read: Read, finding: Finding) -> tuple[Config | None, bool]:
    """Keys of the text part to write, and whether they are certain; (None, False) where there are none."""
    if has_remote_code(read.config):  # its code may read every key that seems wrong or unread here
        return None, False
    fix, certain = FIXES.get(finding.name, (None, False))
    for keys, sure in ((finding.corrected, finding.certain), (fix(read) if fix is not None else None, certain)):
        if keys and _resolves(read, keys, finding):
            return keys, sure
    return None, False


def has_remote_code(config: Config) -> bool:
    """Whether a configuration names code in its folder, which may read the keys in another way than transformers."""
    return bool(config.get("auto_map")) and not is_posenc_config(config)


def text_path(read: Read) -> str:
    """The path of the text part in its file; "" where it is the whole."""
    return ".".join(read.text_config.path)


def with_keys(read: Read, keys: Config) -> Config:
    """The whole configuration with these keys in its text part; null removes one."""
    text_config = read.text_config
    text = {key: value for key, value in {**text_config.config, **keys}.items() if key not in keys or value is not None}
    return with_text_config(read.config, text_config, text)


def changed_keys(read: Read, config: Config) -> Config:
    """The keys of the text part that differ in another configuration, with its values; null for those it lacks."""
    before, after = read.text_config.config, config
    for name in read.text_config.path:
        after = after[name]
    new = {key: value for key, value in after.items() if key not in before or before[key] != value}
    return {**new, **{key: None for key in before if key not in after}}


def _resolves(read: Read, keys: Config, finding: Finding) -> bool:
    """Whether with these keys the finding is gone, and no new alarm has come."""
    try:
        again = read.like(with_keys(read, keys))
    except ValueError:
        return False
    after = {other.name for other in again.findings if other.alarms or other.name == finding.name}
    return after <= {other.name for other in read.findings if other.alarms} - {finding.name}


def single(read: Read) -> RoPESpec | None:
    """The rotation, where all layers that rotate have the same."""
    ropes = [rope for rope in read.rotations.values() if rope is not None]
    return text_rope(ropes[0]) if len(ropes) == 1 else None


def keys_for(read: Read, rope: RoPESpec | None) -> Config | None:
    """The keys that give all layers this rotation; None where a configuration cannot say it."""
    if rope is None:
        return None
    try:
        return changed_keys(read, read.with_rope(rope).to_config())
    except ValueError:
        return None
