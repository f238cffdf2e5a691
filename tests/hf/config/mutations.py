"""Configurations gone wrong: one to three random changes of a real one, each told in words."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from posenc.hf.config.rope_keys import RULES, TYPES
from posenc.hf.families import NON_ROTARY, ROTARY

Config = dict[str, Any]
Path = tuple[Any, ...]
KEYS = [
    *RULES, "rope_type", "type", "rope_scaling", "rope_parameters", "rotary_emb_base", "rotary_pct", "rope_pct",
    "rope_local_base_freq", "local_rope_theta", "global_rope_theta", "hidden_size", "num_attention_heads", "head_dim",
    "n_embd", "n_head", "n_positions", "n_ctx", "d_model", "n_heads", "kv_channels", "qk_rope_head_dim",
    "global_head_dim", "per_layer_config", "layer_types", "no_rope_layers", "no_rope_layer_interval",
    "num_hidden_layers", "sliding_window", "alibi", "rope_interleave", "model_type", "text_config", "llm_config",
    "language_config", "thinker_config", "full_attention", "sliding_attention", "position_embedding_type", "encodings",
    "train_length", "num_key_value_heads", "relative_attention", "position_biased_input", "dtype", "vendor",
]  # fmt: skip


def deep(depth: int) -> Any:
    """Lists within one another."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 7, 8, 16, 64, 96, 128, 1000, 4096, 4097, 131072, 2**31 - 1, 2**31, 2**32, 10**10,
    10**18, -(10**18), 10**400, -(10**400), 0.0, -0.0, 0.25, 0.5, 0.999, 1.0, 1.5, 4.0, 64.0, 4096.0, -1.0, 1e-9,
    1e-300, 1e9, 1e18, 1e38, 1e300, math.inf, -math.inf, math.nan, "", "4096", "4", "1e6", "x", "default", "linear",
    "dynamic", "yarn", "ntk", "longrope", "su", "llama3", "mrope", "axial", "proportional", "llama", "gpt2", "rope",
    "a" * 10_000, "\ud800", "schön", [], [1], [0], [None], [1.0] * 16, [1.0] * 64, [16, 24, 24], ["full_attention"],
    [{}], {}, {"a": 1}, {"0": {"head_dim": 64}}, {"rope_type": "linear", "factor": 2.0}, {"full_attention": None},
    {"full_attention": {"rope_type": "default"}}, {"rope_type": None}, {"type": "yarn", "rope_type": "linear"},
    {"model_type": "llama"}, deep(40), deep(200),
]  # fmt: skip


_TYPES, _BLOCKS = ("type", "rope_type"), ("rope_scaling", "rope_parameters")


class Mutation(NamedTuple):
    """One change.

    Attributes:
        words: what was done.
        names: keys of which an error about it should name one; empty where any key may be meant.
    """

    words: str
    names: tuple[str, ...] = ()


def mutated(config: Config, rng: random.Random) -> tuple[Config, list[Mutation]]:
    """A copy of a configuration with one to three changes, and what they are."""
    config = copy.deepcopy(config)
    done: list[Mutation] = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        paths = list(_paths(config))
        if not paths:
            break
        change = rng.choice(CHANGES)
        # the deeper, the nearer to the rotation: blocks have few keys among many
        path = rng.choice([path for path in paths for _ in range(len(path) ** 2)])
        done.append(change(config, path, rng))
    return config, done


def _paths(value: Any, path: Path = ()) -> list[Path]:
    """Where every value of a configuration stands; of long lists, the first few."""
    if len(path) > 6 or not isinstance(value, dict | list):
        return []
    items = value.items() if isinstance(value, dict) else list(enumerate(value))[:3]
    return [inner for key, item in items for inner in ((*path, key), *_paths(item, (*path, key)))]


def _home(config: Config, path: Path) -> Any:
    inner: Any = config
    for key in path[:-1]:
        inner = inner[key]
    return inner


def _names(path: Path) -> tuple[str, ...]:
    """The key itself; what stands within a list goes by the key of the list."""
    words = [key for key in path if isinstance(key, str)]
    return () if words[-1] in ("model_type", "layer_types") else (words[-1], *words[-2:-1])


def _replace(config: Config, path: Path, rng: random.Random) -> Mutation:
    value = copy.deepcopy(rng.choice(VALUES))
    _home(config, path)[path[-1]] = value
    return Mutation(f"{path} = {str(value)[:60]}", _names(path))


def _nudge(config: Config, path: Path, rng: random.Random) -> Mutation:
    """A number like the old one, or the old one in other clothes."""
    home, old = _home(config, path), _home(config, path)[path[-1]]
    if isinstance(old, bool) or not isinstance(old, int | float) or not -(2**53) < old < 2**53:
        return _replace(config, path, rng)
    new = rng.choice(
        [old * 2, old / 2, old + 1, old - 1, -old, float(old), int(old), str(old), old * 1024, old * 10**15]
    )
    home[path[-1]] = new
    return Mutation(f"{path} = {new!r}", _names(path))


def _drop(config: Config, path: Path, rng: random.Random) -> Mutation:
    del _home(config, path)[path[-1]]
    return Mutation(f"without {path}")


def _rename(config: Config, path: Path, rng: random.Random) -> Mutation:
    home, old = _home(config, path), path[-1]
    if not isinstance(old, str):
        return _drop(config, path, rng)
    at = rng.randrange(len(old) or 1)
    other = {
        "type": "rope_type",
        "rope_type": "type",
        "rope_scaling": "rope_parameters",
        "rope_parameters": "rope_scaling",
    }
    new = rng.choice([old[:at] + old[at + 1 :], old.upper(), f"{old}s", rng.choice(KEYS), other.get(old, f"my_{old}")])
    home[new] = home.pop(old)
    return Mutation(f"{path} renamed to {new}")


def _copy(config: Config, path: Path, rng: random.Random) -> Mutation:
    """A value a second time, in another object, perhaps changed."""
    objects = [config, *(_at(config, item) for item in _paths(config) if isinstance(_at(config, item), dict))]
    home, value = rng.choice(objects), copy.deepcopy(_at(config, path))
    if rng.random() < 0.5:
        value = copy.deepcopy(rng.choice(VALUES))
    key = next(key for key in reversed(path) if isinstance(key, str))
    home[key] = value
    return Mutation(f"{key} = {str(value)[:60]} in another place")


def _insert(config: Config, path: Path, rng: random.Random) -> Mutation:
    home, key, value = _home(config, path), rng.choice(KEYS), copy.deepcopy(rng.choice(VALUES))
    if not isinstance(home, dict):
        return _replace(config, path, rng)
    home[key] = value
    return Mutation(f"{(*path[:-1], key)} = {str(value)[:60]}")


def _nest(config: Config, path: Path, rng: random.Random) -> Mutation:
    home, old = _home(config, path), _at(config, path)
    home[path[-1]] = rng.choice([[old], {"full_attention": old}, {"value": old}, {path[-1]: old}, [old, old]])
    return Mutation(f"{path} nested in {type(home[path[-1]]).__name__}", _names(path))


def _family(config: Config, path: Path, rng: random.Random) -> Mutation:
    name = rng.choice([*ROTARY, *NON_ROTARY, "posenc", "new"])
    home = next((item for item in map(config.get, ("text_config", "llm_config")) if isinstance(item, dict)), config)
    home["model_type"] = name
    return Mutation(f"model_type = {name}")


def _type(config: Config, path: Path, rng: random.Random) -> Mutation:
    """Another rope type, with or without the keys that it needs."""
    objects = (_at(config, item) for item in _paths(config))
    blocks = [item for item in objects if isinstance(item, dict) and {"type", "rope_type"} & set(item)]
    if not blocks:
        return _insert(config, path, rng)
    block, name = rng.choice(blocks), rng.choice([*TYPES, "su", "mrope"])
    block["rope_type" if "rope_type" in block else "type"] = name
    for key in TYPES.get(name, TYPES["longrope"]).required if rng.random() < 0.7 else ():
        numbers = {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        block.setdefault(key, numbers.get(key) or [1.0 + index for index in range(rng.choice([16, 48, 64]))])
    return Mutation(f"rope type {name}")


def _at(config: Config, path: Path) -> Any:
    return _home(config, path)[path[-1]]


CHANGES: list[Callable[[Config, Path, random.Random], Mutation]] = [
    _replace, _replace, _replace, _nudge, _nudge, _drop, _rename, _copy, _insert, _insert, _nest, _family, _type,
]  # fmt: skip
