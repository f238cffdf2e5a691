"""Folders of checkpoints with one thing damaged: configs, tokenizers, params.json, files that are none.

Each case is drawn from its number alone. It tells which command runs on it, and what stays as it was in spite of the
damage: the rotation where another file is damaged, or where only a key is that has nothing to do with it.
"""

from __future__ import annotations

import functools
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.hf.checkpoints import CHECKPOINTS
from tests.hf.config.mutations import VALUES, mutated

Config = dict[str, Any]
HOSTILE = "x\n\x1b[31mPLANTED\x1b]0;t\x07\u202e\u2066\x9b\x00\r\u2028\ud800"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4" * 64 + b"\nsize 4976698672\n"
PARAMS: list[Config] = [
    {"dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 128256, "multiple_of": 1024,
     "ffn_dim_multiplier": 1.3, "norm_eps": 1e-5, "rope_theta": 500000.0, "use_scaled_rope": True},
    {"dim": 5120, "n_layers": 40, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32, "n_kv_heads": 8,
     "rope_theta": 1000000.0, "norm_eps": 1e-5, "vocab_size": 131072},
    {"dim": 4096, "n_layers": 36, "head_dim": 128, "hidden_dim": 12288, "n_heads": 32, "n_kv_heads": 8,
     "rope_theta": 100000000.0, "vocab_size": 131072, "sliding_window": [None, 32768, 32768, 32768]},
]  # fmt: skip
INSERTED = [
    b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b"9" * 900, b"\xff\xfe", b"\\ud800", b"\\u0000", b'"', b",", b"{",
    b"]", b"//", b"\x00", b"\x1b[31mPLANTED", b"\n\n", b"-", b"1e-999",
]  # fmt: skip


class Case(NamedTuple):
    """One damaged folder.

    Attributes:
        path: what the command is given.
        arguments: of the command, with ``{path}`` and ``{out}``.
        config: the configuration whose rotation must be read where anything is; None where the damage touches it.
        reported: whether posenc must report the damage: a fault, a suspicion, a note or an error that names the file.
        words: what was done.
    """

    path: Path
    arguments: list[str]
    config: Config | None
    reported: bool
    words: str


def draw(seed: int, number: int, folder: Path) -> Case:
    """The case of a number, written into an empty folder."""
    rng = random.Random(f"{seed} {number}")
    return rng.choice(KINDS)(rng, folder)


@functools.cache
def configs() -> list[Config]:
    """As they are in the wild."""
    return [config for config, _ in CHECKPOINTS.values()]


def _write(folder: Path, config: Config) -> None:
    (folder / "config.json").write_text(json.dumps(config))


def _command(rng: random.Random, path: str = "{path}") -> list[str]:
    """A command that reads a folder or a config."""
    command = rng.choice(["explain", "doctor", "doctor", "layers", "serve-flags", "fix", "in-place"])
    if command == "fix":
        return ["doctor", path, "--fix", "{out}", *rng.choice([[], ["--guesses"]])]
    if command == "in-place":
        return ["doctor", path, "--in-place", *rng.choice([[], ["--guesses"]]), *rng.choice([[], ["--json"]])]
    words = ["explain", path, "--layers"] if command == "layers" else [command, path]
    return [*words, *rng.choice([[], ["--json"]])]


def values(rng: random.Random, folder: Path) -> Case:
    """A config with one to three keys, types or values changed."""
    config, done = mutated(rng.choice(configs()), rng)
    _write(folder, config)
    return Case(folder, _command(rng), None, False, "; ".join(item.words for item in done))


def stranger(rng: random.Random, folder: Path) -> Case:
    """A config with a key that has nothing to do with positions, whatever its value."""
    config = dict(rng.choice(configs()))
    key = rng.choice(["vendor", "label_note", "card", "note\n\x1b[31mPLANTED", "\u202enote", "é\ud800", "a.b", "", "0"])
    value = rng.choice([*VALUES[:-1], HOSTILE, [HOSTILE], {HOSTILE: HOSTILE}, {"a": {"b": [1, {"c": HOSTILE}]}}])
    config[key] = None if isinstance(value, int) and abs(value) > 2**64 else value
    _write(folder, config)
    return Case(folder, _command(rng), {k: v for k, v in config.items() if k != key}, False, f"{key!r} = {value!r:.60}")


def hostile(rng: random.Random, folder: Path) -> Case:
    """A config with signs that steer a terminal in a key or a value."""
    config = json.loads(json.dumps(rng.choice(configs())))
    homes = [config, *(item for item in config.values() if isinstance(item, dict))]
    home = rng.choice(homes)
    key = rng.choice(list(home))
    if rng.random() < 0.5:
        home[key + HOSTILE] = home.pop(key)
    else:
        home[key] = HOSTILE if not isinstance(home[key], list) else [HOSTILE, *home[key][1:]]
    _write(folder, config)
    return Case(folder, _command(rng), None, False, f"terminal signs at {key}")


def spelled(rng: random.Random, folder: Path) -> Case:
    """The bytes of a config damaged: cut, flipped, in another encoding, nested, endless, twice."""
    content = json.dumps(rng.choice(configs()), indent=rng.choice([None, 2])).encode()
    damaged, words = damaged_text(rng, content)
    (folder / "config.json").write_bytes(damaged)
    return Case(folder, _command(rng), None, False, words)


def damaged_text(rng: random.Random, content: bytes) -> tuple[bytes, str]:
    at = rng.randrange(len(content))
    deep = rng.choice([10, 70, 1000, 40_000, 200_000])
    left, right = rng.choice([(b"[", b"]"), (b'{"a":', b"}")])
    full = content.decode("utf-8", "replace")
    insert = rng.choice(INSERTED)
    damages: list[tuple[bytes, str]] = [
        (content[:at], f"cut at {at}"),
        (content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :], f"byte {at} changed"),
        (content[:at] + insert + content[at:], f"{insert[:12]!r} at {at}"),
        (content[:at] + content[at + rng.randrange(1, 40) :], f"bytes lost at {at}"),
        (rng.choice(["utf-16", "utf-32", "utf-16-be", "latin-1", "utf-8-sig"]), "recoded"),  # type: ignore[list-item]
        (b"", "no bytes"), (bytes(len(content)), "zeros"), (POINTER, "pointer"), (b"null", "null"), (b"[]", "a list"),
        (b"\xef\xbb\xbf" * 2 + content, "two marks"), (content + content, "twice"),
        (content[:-1].rstrip(b" \n") + b', "z": ' + left * deep + b"1" + right * deep + b"}", f"{deep} deep"),
        (content[:-1] + b', "z": [' + b"[]," * rng.choice([100, 600_000]) + b"0]}", "many lists"),
        (content[:-1] + b', "z": [' + b"0," * rng.choice([100, 2_200_000]) + b"0]}", "many numbers"),
        (content[:-1] + b"".join(b', "k%d": %d' % (n, n) for n in range(rng.choice([100, 5000]))) + b"}", "many keys"),
        (content[:-1] + b', "head_dim": 64, "head_dim": 96}', "a key twice"),
        (content[:-1] + b', "' + b"k" * 10**6 + b'": "' + b"v" * 10**6 + b'"}', "long texts"),
        (bytes(rng.randrange(256) for _ in range(200)), "noise"),
    ]  # fmt: skip
    damaged, words = rng.choice(damages)
    if isinstance(damaged, str):
        return full.encode(damaged, "replace"), f"in {damaged}"
    return damaged, words


def strange_file(rng: random.Random, folder: Path) -> Case:
    """A pipe, a device, a folder, a lost or circular link, or a huge file in the place of one of the files."""
    _write(folder, rng.choice(configs()))
    name = rng.choice(
        ["config.json", "model.safetensors", "tokenizer_config.json", "generation_config.json", "params.json", "a.gguf",
         "model.safetensors.index.json", "pytorch_model.bin", "tokenizer.json"]
    )  # fmt: skip
    path = folder / name
    path.unlink(missing_ok=True)
    kind = rng.choice(["pipe", "zero", "random", "folder", "lost", "circle", "huge"])
    if kind == "pipe":
        os.mkfifo(path)
    elif kind in ("zero", "random"):
        path.symlink_to(f"/dev/{kind}")
    elif kind == "folder":
        path.mkdir()
    elif kind == "lost":
        path.symlink_to(folder / "nowhere")
    elif kind == "circle":
        path.symlink_to(path)
    else:
        with path.open("wb") as file:
            file.truncate(2**40)  # of holes
    return Case(folder, _command(rng), None, name == "config.json", f"{name} is {kind}")


def side_file(rng: random.Random, folder: Path) -> Case:
    """A damaged tokenizer_config.json, generation_config.json, tokenizer.json or params.json with a sound config."""
    config = rng.choice(configs())
    _write(folder, config)
    name = rng.choice(
        ["tokenizer_config.json", "generation_config.json", "tokenizer.json", "special_tokens_map.json", "params.json"]
    )
    sound: Config = {
        "tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer", "model_max_length": 4096, "bos_token": "<s>"},
        "generation_config.json": {"max_length": 4096, "eos_token_id": 2, "do_sample": True},
        "params.json": rng.choice(PARAMS),
    }.get(name, {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})
    if rng.random() < 0.5:
        changed, done = mutated(sound, rng)
        content, words = json.dumps(changed).encode(), "; ".join(item.words for item in done)
    else:
        content, words = damaged_text(rng, json.dumps(sound).encode())
    (folder / name).write_bytes(content)
    return Case(folder, _command(rng), config, False, f"{name}: {words}")


def params(rng: random.Random, folder: Path) -> Case:
    """A params.json alone, damaged."""
    sound = rng.choice(PARAMS)
    if rng.random() < 0.7:
        changed, done = mutated(sound, rng)
        content, words = json.dumps(changed).encode(), "; ".join(item.words for item in done)
    else:
        content, words = damaged_text(rng, json.dumps(sound).encode())
    (folder / "params.json").write_bytes(content)
    return Case(folder, _command(rng), None, False, words)


KINDS: list[Callable[[random.Random, Path], Case]] = [
    *[values] * 6, *[stranger] * 2, *[hostile] * 2, *[spelled] * 4, strange_file, *[side_file] * 3, *[params] * 2,
]  # fmt: skip
