"""Folders of checkpoints with one thing damaged: configs, weights, GGUF, tokenizers, params.json.

Each case is drawn from its number alone. It tells which command runs on it, and what stays as it was in spite of the
damage: the rotation where another file is damaged, or where only a key is that has nothing to do with it.
"""

from __future__ import annotations

import functools
import json
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tests.hf.checkpoints import CHECKPOINTS
from tests.hf.config.mutations import VALUES, mutated
from tests.hf.gguf.files import Raw, RawTensor, gguf_bytes, raw, text

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
GGUF_KEYS: list[tuple[bytes, Any]] = [
    (b"general.architecture", "llama"), (b"general.name", "small"), (b"llama.context_length", 131072),
    (b"llama.embedding_length", 4096), (b"llama.block_count", 32), (b"llama.attention.head_count", 32),
    (b"llama.attention.head_count_kv", 8), (b"llama.rope.dimension_count", 128), (b"llama.rope.freq_base", 500000.0),
    (b"llama.vocab_size", 4), (b"tokenizer.ggml.model", "gpt2"), (b"tokenizer.ggml.tokens", ["a", "b", "c", "d"]),
    (b"tokenizer.ggml.scores", [0.0, 1.0, 2.0, 3.0]),
]  # fmt: skip
GGUF_MORE: list[list[tuple[bytes, Any]]] = [
    [], [(b"llama.rope.scaling.type", "yarn"), (b"llama.rope.scaling.factor", 4.0),
         (b"llama.rope.scaling.original_context_length", 32768)],
    [(b"llama.rope.scaling.type", "linear"), (b"llama.rope.scaling.factor", 2.0)],
    [(b"llama.rope.dimension_sections", [16, 24, 24, 0]),
     (b"llama.attention.sliding_window_pattern", [1, 1, 0, 0] * 8)],
    [(b"llama.attention.temperature_scale", 0.1), (b"llama.attention.temperature_length", 8192),
     (b"llama.attention.sliding_window", 4096), (b"llama.attention.key_length", 128)],
]  # fmt: skip
FREQS, WEIGHT = RawTensor(b"rope_freqs.weight", [64], 0, 0), RawTensor(b"output.weight", [64, 2], 8, 256)
GGUF_DATA = struct.pack("<64f", *[2.0] * 64) + bytes(2 * 2 * 34 + 24)


INSERTED = [
    b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b"9" * 900, b"\xff\xfe", b"\\ud800", b"\\u0000", b'"', b",", b"{",
    b"]", b"//", b"\x00", b"\x1b[31mPLANTED", b"\n\n", b"-", b"1e-999",
]  # fmt: skip
GGUF_VALUES: list[Any] = [
    0, 1, 2**31, 2**32 - 1, 0.0, -1.0, float("nan"), float("inf"), 1e30, 1e-30, "", "yarn", b"\xff\xfe", True, [],
    HOSTILE.encode("utf-8", "replace"), [1, 2], ["a"], [0.5] * 64, [1] * 70_000,
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


def _header(rng: random.Random) -> tuple[Config, bytes]:
    """The header of a sound file with a few tensors, and their bytes."""
    theta = 1e4 ** -(torch.arange(32, dtype=torch.float32) / 32)
    data, header = theta.numpy().tobytes(), {}
    header["model.layers.0.self_attn.rotary_emb.inv_freq"] = {
        "dtype": "F32", "shape": [32], "data_offsets": [0, len(data)]
    }  # fmt: skip
    for n in range(rng.randrange(1, 5)):
        shape = [rng.randrange(1, 9) for _ in range(rng.randrange(3))]
        size = 2 * functools.reduce(lambda a, b: a * b, shape, 1)
        header[f"model.layers.{n}.weight"] = {
            "dtype": "BF16", "shape": shape, "data_offsets": [len(data), len(data) + size]
        }  # fmt: skip
        data += bytes(size)
    return header, data


LLAMA: Config = {
    "model_type": "llama", "head_dim": 64, "hidden_size": 128, "num_attention_heads": 2, "num_hidden_layers": 2,
    "max_position_embeddings": 4096, "rope_theta": 10000.0,
}  # fmt: skip


def weights(rng: random.Random, folder: Path) -> Case:
    """A safetensors file with a damaged header, or with bytes lost or changed."""
    _write(folder, LLAMA)
    header, data = _header(rng)
    sound = True
    entry = header[rng.choice(list(header))]
    junk = rng.choice(
        [*VALUES[:60], [0, 2**62], ["0", "8"], [0.0, 8.0], [8, 0], [-8, 0], [], {}, HOSTILE, [True, False]]
    )
    kind = rng.choice(["sound", "entry", "whole", "name", "metadata", "size", "cut", "longer", "gap", "text", "byte"])
    if kind == "entry":
        key = rng.choice(list(entry))
        sound, entry[key] = entry[key] != junk, junk
        if key == "dtype" and isinstance(junk, str):
            sound = False  # a type that nobody knows yet
    elif kind == "whole":
        header[rng.choice(list(header))] = junk
    elif kind == "name":
        header[HOSTILE] = header.pop(rng.choice(list(header)))
        sound = False
    elif kind == "metadata":
        header["__metadata__"] = rng.choice([{"format": "pt"}, {HOSTILE: HOSTILE}, {}])
        sound = False
    elif kind == "sound":
        sound = False
    elif kind == "gap":
        for item in header.values():
            item["data_offsets"] = [x + 8 for x in item["data_offsets"]]
        data += bytes(8)
    content = json.dumps(header).encode()
    size = len(content)
    if kind == "text":
        content, _ = damaged_text(rng, content)
        size, sound = len(content), False
    elif kind == "size":
        size = rng.choice([0, 1, size - 1, size + 1, 10**6, 2**31, 2**60, 2**63, 2**64 - 1])
    full = size.to_bytes(8, "little") + content + data
    if kind == "cut":
        full = full[: rng.randrange(len(full))]
    elif kind == "longer":
        full += bytes(rng.choice([1, 7, 4096]))
    elif kind == "byte":
        at = rng.randrange(len(full))
        full, sound = full[:at] + bytes([rng.randrange(256)]) + full[at + 1 :], False
    name = rng.choice(["model.safetensors", "model-00001-of-00002.safetensors", "a\n\x1b[31mPLANTED.safetensors"])
    (folder / name).write_bytes(full)
    command = rng.choice([["doctor", "{path}", "--json"], ["doctor", "{path}"], ["doctor", "{path}", "--fix", "{out}"]])
    return Case(folder, command, LLAMA, sound, f"{kind} of {name!r} {junk!r:.40}")


def shards(rng: random.Random, folder: Path) -> Case:
    """An index of shards that is damaged, or names what is not there."""
    _write(folder, LLAMA)
    header, data = _header(rng)
    content = json.dumps(header).encode()
    (folder / "s1.safetensors").write_bytes(len(content).to_bytes(8, "little") + content + data)
    names: dict[str, Any] = dict.fromkeys(header, "s1.safetensors")
    kind = rng.choice(["sound", "lost", "missing", "elsewhere", "value", "map", "text"])
    first = rng.choice(list(names))
    if kind == "lost":
        names["model.lost"] = "s1.safetensors"
    elif kind in ("missing", "elsewhere"):
        rest = ["s2.safetensors"] if kind == "missing" else ["../s1.safetensors", "/etc/passwd", "..", HOSTILE, "a/b"]
        names[first] = rng.choice(rest)
    elif kind == "value":
        names[first] = rng.choice([None, 1, [], {}, "", 2.5, True])
    known: Any = {"metadata": {"total_size": len(data)}, "weight_map": names}
    if kind == "map":
        known["weight_map"] = rng.choice([None, [], "x", 3, list(names)])
    sound, index = kind != "sound", json.dumps(known).encode()
    if kind == "text":
        index, _ = damaged_text(rng, index)
        sound = False
    (folder / "model.safetensors.index.json").write_bytes(index)
    return Case(folder, ["doctor", "{path}", *rng.choice([[], ["--json"]])], LLAMA, sound, f"index: {kind} {first}")


def gguf(rng: random.Random, folder: Path) -> Case:
    """A GGUF file with a damaged key, type, length, tensor or byte."""
    keys = [*GGUF_KEYS, *rng.choice(GGUF_MORE)]
    arch = rng.choice([b"llama", b"llama", b"qwen2vl", b"gemma3", b"gpt-oss", b"deepseek2", b"mistral3", b"phi3"])
    keys = [(name.replace(b"llama", arch), arch if value == "llama" else value) for name, value in keys]
    tensors, counts, version = [FREQS, WEIGHT], None, 3
    data = GGUF_DATA
    kind = rng.choice(["value", "value", "type", "key", "stranger", "twice", "counts", "version", "tensor", "array",
                       "text", "cut", "byte", "byte", "lost", "noise"])  # fmt: skip
    at = rng.randrange(len(keys))
    name, value = keys[at]
    junk = rng.choice(GGUF_VALUES)
    if kind == "value":
        keys[at] = (name, junk)
    elif kind == "type":
        keys[at] = (name, raw(value)._replace(kind=rng.randrange(256)))
    elif kind == "key":
        keys[at] = (rng.choice([b"", b"\xff", HOSTILE.encode("utf-8", "replace"), name[:-1], b"x" * 70_000]), value)
    elif kind == "stranger":
        keys.insert(at, (rng.choice([b"general.note", b"llama.note", b"x"]), junk))
    elif kind == "twice":
        keys.append((name, rng.choice([value, junk])))
    elif kind == "counts":
        many = rng.choice([0, 1, 100, 2**20, 2**40, 2**63])
        counts = rng.choice([(many, len(keys)), (len(tensors), many)])
    elif kind == "version":
        version = rng.choice([0, 1, 2, 4, 99, 2**16, 2**31, 3 << 24])
    elif kind == "tensor":
        tensor = rng.randrange(2)
        changes: dict[str, Any] = rng.choice(
            [{"shape": [2**62, 2]}, {"shape": []}, {"shape": [0]}, {"shape": [1] * 9}, {"shape": [63]}, {"kind": 8},
             {"kind": 99}, {"kind": 1}, {"offset": 1}, {"offset": 32}, {"offset": 2**60}, {"name": b"\xff"},
             {"name": HOSTILE.encode("utf-8", "replace")}, {"name": WEIGHT.name}]
        )  # fmt: skip
        tensors[tensor] = tensors[tensor]._replace(**changes)
    elif kind == "array":
        inner, count = rng.choice([4, 6, 8, 9, 77]), rng.choice([0, 1, 9, 2**20, 2**33, 2**62])
        keys.append((b"x", Raw(9, struct.pack("<IQ", inner, count) + struct.pack("<IQ", 9, 2**33) * 40)))
    elif kind == "text":
        keys.append((b"x", Raw(8, text(b"x", rng.choice([2, 2**31, 2**63])))))
    elif kind == "lost":
        del keys[at]
    full = gguf_bytes(keys, tensors, data, counts=counts, version=version % 2**32)
    if kind == "cut":
        full = full[: rng.randrange(len(full))]
    elif kind == "byte":
        at = rng.randrange(len(full))
        full = full[:at] + bytes([rng.randrange(256)]) + full[at + 1 :]
    elif kind == "noise":
        full = rng.choice([b"", b"GGUF", POINTER, bytes(999), bytes(rng.randrange(256) for _ in range(300))])
    path = folder / "small.gguf"
    path.write_bytes(full)
    block = '{"rope_type": "linear", "factor": 2.0}'
    command = rng.choice(
        [["explain", "{path}"], ["explain", "{path}", "--json"], ["doctor", "{path}"],
         ["explain", "{path}", "--layers"], ["doctor", "{path}", "--json"], ["serve-flags", "{path}"],
         ["gguf", "{path}", "{out}", "--rope", block]]
    )  # fmt: skip
    sound = kind in ("twice", "noise") or (counts is not None and counts > (len(tensors), len(keys)))
    return Case(path, command, None, sound, f"{kind} of {name!r} {junk!r:.40}")


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
    *[values] * 6, *[stranger] * 2, *[hostile] * 2, *[spelled] * 4, strange_file, *[weights] * 4, shards, *[gguf] * 5,
    *[side_file] * 3, *[params] * 2,
]  # fmt: skip
