"""Tensors of GGUF files against their keys: sound files raise no alarm, planted faults are found by name."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gguf")

from posenc.hf.doctor import examine
from posenc.hf.doctor.gguf_tensors import _on_heads, _on_layers
from tests.hf.gguf.files import RawTensor, gguf_bytes

Keys = dict[str, Any]
Shapes = dict[str, tuple[int, ...]]

LLAMA: Keys = {
    "context_length": 8192, "embedding_length": 64, "block_count": 2, "attention.head_count": 4,
    "attention.head_count_kv": 2, "rope.dimension_count": 16, "rope.freq_base": 10000.0, "vocab_size": 8,
}  # fmt: skip
ATTENTION: Shapes = {
    "attn_q.weight": (64, 64), "attn_k.weight": (64, 32), "attn_v.weight": (64, 32), "attn_output.weight": (64, 64),
}  # fmt: skip
GPT_OSS: Keys = {
    **LLAMA, "attention.key_length": 32, "attention.value_length": 32, "attention.sliding_window": 128,
    "rope.dimension_count": 32, "rope.freq_base": 150000.0, "rope.scaling.type": "yarn", "rope.scaling.factor": 32.0,
    "rope.scaling.original_context_length": 4096, "context_length": 131072,
}  # fmt: skip
WIDE: Shapes = {
    "attn_q.weight": (64, 128), "attn_k.weight": (64, 64), "attn_v.weight": (64, 64), "attn_output.weight": (128, 64),
    "attn_sinks.weight": (4,),
}  # fmt: skip
QWEN3: Keys = {**GPT_OSS, "rope.freq_base": 1e6, "context_length": 32768, "rope.scaling.type": "none"}
NORMS: Shapes = {"attn_q_norm.weight": (32,), "attn_k_norm.weight": (32,)}
GPT2: Keys = {
    "context_length": 40,
    "embedding_length": 64,
    "block_count": 2,
    "attention.head_count": 4,
    "vocab_size": 8,
}
FUSED: Shapes = {"attn_qkv.weight": (64, 192), "attn_output.weight": (64, 64)}
LATENT: Keys = {
    **LLAMA, "attention.kv_lora_rank": 16, "attention.key_length": 24, "attention.value_length": 16,
    "attention.key_length_mla": 24, "attention.value_length_mla": 16, "rope.dimension_count": 8,
    "attention.head_count_kv": 1,
}  # fmt: skip
KV_A: Shapes = {"attn_q.weight": (64, 96), "attn_kv_a_mqa.weight": (64, 24), "attn_kv_b.weight": (16, 128),
                "attn_output.weight": (64, 64)}  # fmt: skip
PHI3: Keys = {**LLAMA, "context_length": 131072, "attention.head_count_kv": 4, "attention.sliding_window": 131072,
              "rope.scaling.original_context_length": 4096}  # fmt: skip
SOUND: dict[str, tuple[Keys, Shapes, Shapes]] = {
    "llama": (LLAMA, ATTENTION, {"rope_freqs.weight": (8,)}),
    "gpt-oss": (GPT_OSS, WIDE, {}),
    "qwen3": (QWEN3, {**{name: shape for name, shape in WIDE.items() if "sinks" not in name}, **NORMS}, {}),
    "gpt2": (GPT2, FUSED, {"position_embd.weight": (64, 40)}),
    "deepseek2": (LATENT, KV_A, {}),
    "phi3": (PHI3, FUSED, {"rope_factors_long.weight": (8,), "rope_factors_short.weight": (8,)}),
}


def write(path: Path, arch: str, keys: Keys, block: Shapes, rest: Shapes, blocks: int | None = None) -> Path:
    """A file whose numbers are all 1."""
    shapes = {f"blk.{number}.{name}": shape for number in range(blocks or keys["block_count"])
              for name, shape in block.items()}  # fmt: skip
    tensors, at, data = [], 0, b""
    for name, shape in {**shapes, **rest}.items():
        count = 1
        for side in shape:
            count *= side
        tensors.append(RawTensor(name.encode(), shape, 0, at))
        content = struct.pack(f"<{count}f", *[1.0] * count)
        content += bytes(-len(content) % 32)
        data, at = data + content, at + len(content)
    named = [(f"{arch}.{key}".encode(), value) for key, value in keys.items()]
    path.write_bytes(gguf_bytes([(b"general.architecture", arch), *named], tensors, data))
    return path


@pytest.mark.parametrize("arch", SOUND)
def test_sound_files_raise_no_alarm(arch: str, tmp_path: Path) -> None:
    report = examine(write(tmp_path / "model.gguf", arch, *SOUND[arch]))
    assert report.healthy, str(report)
    assert any("names and shapes of" in line for line in report.checked), report.checked
    assert "config.json" not in str(report)


PLANTED: list[tuple[str, Keys, Shapes, Shapes, str, tuple[str, ...]]] = [  # what is other than in the sound file
    (
        "llama",
        {"attention.head_count_kv": 4},
        {},
        {},
        "key-value-heads-differ",
        ("llama.attention.head_count_kv", "2 heads of 16", "blk.0-1"),
    ),
    ("llama", {"attention.key_length": 32}, {}, {}, "heads-differ", ("llama.attention.key_length", "64 rows")),
    ("llama", {"block_count": 3}, {}, {}, "layers-missing", ("llama.block_count", "blk.2")),
    ("llama", {"attention.value_length": 8}, {}, {}, "projection-differs", ("attn_output reads 64",)),
    ("gpt-oss", {}, {"attn_sinks.weight": (8,)}, {}, "sinks-differ", ("gpt-oss.attention.head_count", "8 numbers")),
    (
        "qwen3",
        {},
        {"attn_q_norm.weight": (64,)},
        {},
        "norm-width-differs",
        ("qwen3.attention.key_length", "64 numbers"),
    ),
    ("gpt2", {"context_length": 80}, {}, {}, "position-table-differs", ("gpt2.context_length", "40 rows")),
    ("gpt2", {"attention.head_count_kv": 2}, {}, {}, "key-value-heads-differ", ("192",)),
    (
        "deepseek2",
        {"attention.kv_lora_rank": 32},
        {},
        {},
        "latent-width-differs",
        ("deepseek2.attention.kv_lora_rank", "24 rows"),
    ),
]


@pytest.mark.parametrize("case", PLANTED, ids=[f"{case[0]}-{case[4]}-{'-'.join(case[1])}" for case in PLANTED])
def test_keys_that_contradict_the_tensors(case: Any, tmp_path: Path) -> None:
    arch, keys, block, rest, name, words = case
    sound = SOUND[arch]
    blocks = sound[0]["block_count"]
    changed = {**sound[0], **keys}, {**sound[1], **block}, {**sound[2], **rest}
    report = examine(write(tmp_path / "model.gguf", arch, *changed, blocks=blocks))
    assert report.names() == {name}, str(report)
    finding = next(finding for finding in report.findings if finding.alarms)
    assert all(word in f"{finding.key} {finding.text}" for word in words), finding
    assert (finding.level, finding.corrected) == ("fault", None)
    assert "config.json" not in str(report)


LOST: list[tuple[str, str, str]] = [  # a key or tensor that is not there, and the alarm
    ("gpt-oss", "attn_sinks.weight", "sinks-missing"),
    ("gpt-oss", "attention.sliding_window", "gguf-window-lost"),
    ("gpt-oss", "rope.freq_base", "gguf-base-lost"),
    ("gpt-oss", "rope.scaling.original_context_length", "original-length-missing"),
    ("phi3", "rope_factors_", "gguf-factors-lost"),
]


@pytest.mark.parametrize(("arch", "lost", "name"), LOST)
def test_what_was_lost_in_conversion(arch: str, lost: str, name: str, tmp_path: Path) -> None:
    keys, block, rest = ({key: value for key, value in part.items() if lost not in key} for part in SOUND[arch])
    report = examine(write(tmp_path / "model.gguf", arch, keys, block, rest))
    assert report.names() == {name}, str(report)


def test_blocks_that_the_keys_do_not_count(tmp_path: Path) -> None:
    report = examine(write(tmp_path / "model.gguf", "llama", *SOUND["llama"], blocks=3))
    assert report.names() == {"layers-unread"}, str(report)


def test_findings_name_the_keys_of_the_file(tmp_path: Path) -> None:
    scaled = {"vocab_size": 128256, "context_length": 131072, "rope.scaling.type": "linear", "rope.scaling.factor": 2.0}
    keys = {**LLAMA, **scaled, "rope.freq_base": 500000.0}
    report = examine(write(tmp_path / "model.gguf", "llama", keys, ATTENTION, {}))
    assert report.names() == {"linear-over-llama3"}
    assert "posenc gguf" in str(report)
    assert not any(word in str(report) for word in ("config.json", "max_position_embeddings alone", "--fix")), str(
        report
    )
    shrunk = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 16384}
    report = examine(write(tmp_path / "model.gguf", "llama", {**LLAMA, **shrunk}, ATTENTION, {}))
    assert report.names() == {"original-length-not-below"}
    assert "llama.rope.scaling.original_context_length" in str(report)


def test_an_architecture_without_rules_is_no_fault(tmp_path: Path) -> None:
    report = examine(write(tmp_path / "model.gguf", "nobody_knows", *SOUND["llama"]))
    assert report.healthy, str(report)
    assert any("no rules for architecture 'nobody_knows'" in line for line in report.not_checked), report.not_checked


@pytest.mark.parametrize("count", [2**31, 2**70, -1, 0.5, "x", [2, 2], True])
def test_numbers_that_no_file_has_end_at_once(count: object) -> None:
    arch_keys, block, _ = SOUND["gpt-oss"]
    shapes = {f"blk.{number}.{name}": shape for number in range(2) for name, shape in block.items()}
    for key in ("block_count", "attention.head_count", "attention.key_length", "embedding_length"):
        keys = {**arch_keys, key: count}
        assert isinstance([*_on_layers("gpt-oss", keys, shapes), *_on_heads("gpt-oss", keys, shapes)], list)
    assert isinstance([*_on_heads("gpt-oss", arch_keys, {**shapes, "blk.0.attn_sinks.weight": ()})], list)
