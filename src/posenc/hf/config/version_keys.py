"""One rotation under the keys of transformers 4, of transformers 5, or of both; from what a config says, without torch.

Version 4: ``rope_theta`` and a share of the head next to ``rope_scaling``. Version 5: all of it in ``rope_parameters``,
one block for each kind of layers where they differ. A config with both is read alike by old and new readers:
transformers 5 takes ``rope_scaling`` and the keys next to it where they stand.
`posenc.hf.config.compose` writes the keys of a rotation that no config has yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, nextafter
from typing import Any, Literal

from posenc.arguments import shown
from posenc.hf.config.block_schema import WITH_ALPHA, Block
from posenc.hf.config.rope_block import ALL, RopeBlock, at
from posenc.hf.config.rope_keys import find_rope_blocks
from posenc.hf.config.text_config import TextConfig, head_dim
from posenc.hf.json_text import REMOVED
from posenc.hf.sources.load import Config

Spelling = Literal["both", "v4", "v5"]
SPELLINGS: tuple[Spelling, ...] = ("both", "v4", "v5")
_SHARES = ("partial_rotary_factor", "rotary_dim")
_ORIGINAL = "original_max_position_embeddings"
_UNSCALED: Block = {"rope_type": "default"}


class NoOldFormError(ValueError):
    """Version 4 has no keys for a rotation; the text says why."""


def check_spelling(spelling: object) -> Spelling:
    """The name of a spelling; a ValueError for any other."""
    for known in SPELLINGS:
        if spelling == known:
            return known
    raise ValueError(f"spelling must be one of {', '.join(SPELLINGS)}, got {shown(spelling)}")


def changes_to(spelling: Spelling, text_config: TextConfig) -> dict[str, Any]:
    """Keys of the text config to set, or to remove (`posenc.hf.json_text.REMOVED`), for a spelling.

    Raises:
        NoOldFormError: for "v4" and "both", where version 4 has no keys for the rotation.
        ValueError: for a model that does not rotate.
    """
    blocks = find_rope_blocks(text_config)
    if all(block.values is None for block in blocks):
        raise ValueError(f"{text_config.model_type or 'the config'}: no layer rotates, so there is nothing to convert")
    if text_config.rotation.fixed:
        raise ValueError(f"{text_config.model_type}: its code reads no rope block, so there is nothing to convert")
    changes: dict[str, Any] = {}
    if spelling != "v4":
        block = block_of_version_5(text_config, blocks)
        if not _has_bases(text_config.get("rope_parameters"), block):
            changes["rope_parameters"] = block
    if spelling != "v5":  # keys that stand stay as they are
        old = keys_of_version_4(text_config, blocks)
        changes |= {
            key: value for key, value in old.items()
            if key not in text_config or (text_config[key] is None and value is not None)
        }  # fmt: skip
    removed: set[str] = set()
    if spelling == "v5":
        outside = {path[0] for block in blocks for key, paths in block.sources.items() for path in paths
                   if len(path) == 1 and key != _ORIGINAL}  # fmt: skip
        removed = {"rope_scaling", *outside, *(keys.theta_key for keys in text_config.rotation.kinds.values())}
    elif spelling == "v4":
        removed = {"rope_parameters"}
    return {**changes, **{key: REMOVED for key in sorted(removed) if key in text_config}}


def block_to_add(text_config: TextConfig) -> dict[str, Any]:
    """The keys of version 5 where they are missing, next to whatever a config has."""
    block = block_of_version_5(text_config, find_rope_blocks(text_config))
    return {} if _has_bases(text_config.get("rope_parameters"), block) else {"rope_parameters": block}


def _has_bases(present: Any, target: Block) -> bool:
    """Whether ``rope_parameters`` is there, with a base in each block."""
    if not isinstance(present, dict) or not present:
        return False
    if "rope_theta" in target:
        return present.get("rope_theta") is not None
    inner = [present.get(kind) for kind, block in target.items() if block is not None]
    return all(isinstance(block, dict) and block.get("rope_theta") is not None for block in inner)


def block_of_version_5(text_config: TextConfig, blocks: list[RopeBlock]) -> Block:
    """The value of ``rope_parameters``: a block with its base, or one for each kind of layers."""
    family = text_config.rotation
    by_kind = {
        block.kind: None if block.values is None else _with_base(text_config, block)
        for block in blocks
        if block.kind not in family.unrotated_kinds
    }
    rotating = [kind for kind, block in by_kind.items() if block is not None]
    flat = list(by_kind) == [ALL] or (bool(family.unrotated_kinds) and len(rotating) == 1)
    return (by_kind[rotating[0]] or {}) if flat else by_kind


def _with_base(text_config: TextConfig, block: RopeBlock) -> Block:
    """One block with rope type, base and share, and every other key as the config gives it."""
    keys_of_block, effective = _block_keys(block), block.effective
    rotated = keys_of_block.pop("rotary_dim", None)
    keys_of_block["rope_type"] = _written_type(text_config, block)
    result: Block = {"rope_type": keys_of_block["rope_type"], "rope_theta": effective["rope_theta"], **keys_of_block}
    if text_config.rotation.kinds and result["rope_type"] == "yarn":
        result = {**text_config.rotation.scaled, **result}
    if rotated is not None:
        result["partial_rotary_factor"] = _share(rotated, head_dim(text_config, block.kind, None))
    elif text_config.rotation.share != 1:
        result.setdefault("partial_rotary_factor", effective["partial_rotary_factor"])
    return result


def _block_keys(block: RopeBlock) -> Block:
    """What a config gives for a block, without a training length outside of it (Phi-3), which both versions read."""
    keys_of_block = dict(block.values or {})
    places = block.sources.get(_ORIGINAL, ())
    if places and all(len(path) == 1 for path in places):
        keys_of_block.pop(_ORIGINAL, None)
    return keys_of_block


def _written_type(text_config: TextConfig, block: RopeBlock) -> str:
    """The rope type as the config spells it: what it is called here may be a name of posenc's own ("with alpha")."""
    rope_type = block.effective.get("rope_type", "default")
    written = [at(text_config.config, path) for path in block.sources.get("rope_type", ())]
    return next((name for name in written if isinstance(name, str) and rope_type == WITH_ALPHA), rope_type)


def _share(rotated: int, head: int) -> float:
    """The share of a head such that int(head · share) is exactly the number of rotated channels."""
    share = rotated / head
    return share if int(head * share) == rotated else nextafter(share, inf)


def keys_of_version_4(text_config: TextConfig, blocks: list[RopeBlock]) -> Config:
    """The keys of version 4 next to each other in the text config.

    Raises:
        NoOldFormError: where version 4 has none.
    """
    family = text_config.rotation
    rotating = {block.kind: block for block in blocks if block.values is not None}
    if text_config.known and text_config.family.since > 4:
        raise NoOldFormError(f"version 4 of transformers does not have model_type {text_config.model_type!r}")
    for kind, block in rotating.items():
        if block.effective.get("rope_type") == "proportional":
            raise NoOldFormError(f"{kind}: version 4 of transformers does not have rope type 'proportional'")
    if family.kinds:
        return _of_kinds(text_config, rotating)
    if len(rotating) > 1 or family.nested:
        raise NoOldFormError(f"version 4 has no keys for layers of several kinds: {', '.join(rotating)}")
    (block,) = rotating.values()
    keys_of_block, effective = _block_keys(block), block.effective
    keys: Config = {family.theta_key: effective["rope_theta"]}
    share = {key: keys_of_block.pop(key) for key in _SHARES if key in keys_of_block}
    if not share and family.share != 1:
        share = {"partial_rotary_factor": effective["partial_rotary_factor"]}
    if share:
        keys[family.share_key] = _in_key(family.share_key, share, head_dim(text_config, block.kind, None))
    return {**keys, "rope_scaling": _old_block(keys_of_block, _written_type(text_config, block))}


def _in_key(key: str, share: Mapping[str, Any], head: int) -> Any:
    """A share of the head in the form that a key of version 4 has: channels, or a number up to 1."""
    if key == "rotary_dim":
        return share.get("rotary_dim", int(head * share.get("partial_rotary_factor", 1.0)))
    return share.get("partial_rotary_factor", _share(share.get("rotary_dim", head), head))


def _old_block(keys_of_block: Block, rope_type: str) -> Block | None:
    """The value of ``rope_scaling``: the block without its base; null where nothing is scaled."""
    rest = {key: value for key, value in keys_of_block.items() if key not in ("rope_theta", "rope_type")}
    block = {"rope_type": rope_type, **rest}
    return None if block == _UNSCALED else block


def _of_kinds(text_config: TextConfig, rotating: Mapping[str, RopeBlock]) -> Config:
    """Keys of a family whose flat config spells several kinds of layers side by side."""
    result: Config = {}
    for kind, keys in text_config.rotation.kinds.items():
        block = rotating.get(kind)
        keys_of_block = {} if block is None else _block_keys(block)
        effective = {"rope_theta": keys.base} if block is None else block.effective
        rope_type = "default" if block is None else _written_type(text_config, block)
        old = _old_block({key: value for key, value in keys_of_block.items() if key not in _SHARES}, rope_type)
        if old is not None and not keys.scaled:
            raise NoOldFormError(f"rope_scaling of version 4 is not for {kind}")
        values = {keys.theta_key: effective["rope_theta"], **({"rope_scaling": old} if keys.scaled else {})}
        for key, value in values.items():
            if result.setdefault(key, value) != value:
                raise NoOldFormError(f"{key} of version 4 stands for all kinds of layers, and these differ")
    return result
