"""A GGUF file, as the package gguf writes it, and what is said without that package."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from posenc.hf import read_rope

gguf = pytest.importorskip("gguf")
np = pytest.importorskip("numpy")


def written(path: Path, factors: list[float] | None) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(131072)
    writer.add_embedding_length(4096)
    writer.add_block_count(32)
    writer.add_head_count(32)
    writer.add_rope_dimension_count(128)
    writer.add_rope_freq_base(500000.0)
    if factors is None:
        writer.add_vocab_size(128256)
    writer.add_token_list(["a"] * 300)
    writer.add_tensor("token_embd.weight", np.zeros((2, 4), dtype=np.float32))
    if factors is not None:
        writer.add_tensor("rope_freqs.weight", np.array(factors, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_file_with_factors_and_one_that_lost_them(tmp_path: Path) -> None:
    factors = [1.0] * 20 + [8.0] * 44
    read = read_rope(written(tmp_path / "whole.gguf", factors))
    assert (read.rope.head_dim, read.rope.base, read.rope.layout) == (128, 500000.0, "interleaved")
    assert list(read.rope.scaling.short) == factors
    assert [remark.name for remark in read.remarks] == ["gguf-scaling-dropped"]
    found = importlib.import_module("posenc.hf.formats.gguf_file").metadata_of(tmp_path / "whole.gguf")
    assert found["llama.vocab_size"] == 300, "where it is not stated, tokens are counted"
    lost = read_rope(written(tmp_path / "lost.gguf", None))
    assert lost.rope.scaling is None
    assert [(remark.name, remark.level) for remark in lost.remarks] == [("gguf-scaling-lost", "fault")]


def test_no_gguf(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"no such thing" * 100)
    with pytest.raises(ValueError, match="is no GGUF"):
        read_rope(tmp_path / "x.gguf")


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.delitem(sys.modules, "posenc.hf.formats.gguf_file", raising=False)
    with pytest.raises(ValueError, match=r"pip install 'posenc\[gguf\]'"):
        read_rope(tmp_path / "x.gguf")
