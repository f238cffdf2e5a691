"""Folders of posenc's own models: what they hold, and what they may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

from posenc import RoPE
from posenc.hf import as_text, facts, read_rope
from posenc.hf.config.encoding_spec import DEFAULTS
from posenc.hf.modeling.model_config import PosencConfig

CONFIG = {"model_type": "posenc", "hidden_size": 64, "num_attention_heads": 2, "train_length": 128}


@pytest.mark.parametrize("name", ["rope+alibi", "t5", "nope", "yarn", "fox+rope", "xpos"])
def test_a_saved_folder_is_explained(tmp_path: Path, name: str) -> None:
    config = PosencConfig(encodings=name, hidden_size=64, num_attention_heads=2, train_length=128)
    config.save_pretrained(tmp_path)
    read = read_rope(tmp_path)
    names = [item["text"].split(":")[0] for item in facts(read)["encodings"]]
    assert names == [line["name"] for line in config.encoding_specs()]
    text = as_text(read)
    assert text.startswith("model type   posenc\n")
    assert ("rotation     none" in text) == (name in ("t5", "nope", "xpos"))
    assert ("encoding     none (NoPE)" in text) == (name == "nope")
    assert read.to_config() == read.config


def test_its_rope_is_told_as_any_other() -> None:
    read = read_rope({**CONFIG, "encodings": [{"name": "rope", "options": {"base": 5e5}}, {"name": "alibi"}]})
    assert (read.rope.head_dim, read.rope.base) == (32, 5e5)
    assert facts(read)["layers"]["all"]["trained_length"] == 128
    assert "posenc    RoPE(base=500000.0)" in as_text(read)
    with pytest.raises(ValueError, match="encodings"):
        read.with_rope(RoPE(32)).to_config()


def test_defaults_are_those_of_the_model() -> None:
    config = PosencConfig()
    assert {key: getattr(config, key) for key in DEFAULTS} == DEFAULTS
    assert read_rope({"model_type": "posenc"}).rope.head_dim == config.head_dim


MALFORMED: list[tuple[dict[str, Any], list[str]]] = [
    ({"hidden_size": 0}, ["hidden_size", "1..32768", "found 0"]),
    ({"hidden_size": "64"}, ["hidden_size", "'64'"]),
    ({"hidden_size": 2**31}, ["hidden_size"]),
    ({"num_attention_heads": True}, ["num_attention_heads", "True"]),
    ({"num_attention_heads": 10**18}, ["num_attention_heads"]),
    ({"num_hidden_layers": 10**18}, ["num_hidden_layers", "1..16384"]),
    ({"head_dim": 10**10}, ["head_dim", "1..4096"]),
    ({"train_length": -1}, ["train_length"]),
    ({"train_length": None}, ["train_length", "None"]),
    ({"max_position_embeddings": 10**18}, ["max_position_embeddings"]),
    ({"declared_length": 2.5}, ["declared_length"]),
    ({"qk_norm": "no"}, ["qk_norm", "true or false"]),
    ({"rms_norm_eps": float("nan")}, ["rms_norm_eps"]),
    ({"encodings": 5}, ["encodings", "5"]),
    ({"encodings": {"name": "rope"}}, ["encodings", "a list of objects"]),
    ({"encodings": [{"name": 5}]}, ["encodings: name is needed"]),
    ({"encodings": [{"nam": "rope"}]}, ["encodings: name is needed"]),
    ({"encodings": "ropee"}, ["encodings:", "'ropee'", "rope"]),
    ({"encodings": "axial"}, ["axial"]),
    ({"encodings": "my_module:MyClass"}, ["my_module"]),
    ({"encodings": [{"name": "rope", "shared": 1}]}, ["encodings: shared of rope"]),
    ({"encodings": [{"name": "rope", "options": [1]}]}, ["encodings: options of rope"]),
    ({"encodings": [{"name": "rope", "options": {"base": "x"}}]}, ["encodings: rope with options", "'x'"]),
    ({"encodings": [{"name": "rope", "options": {"base": 10**30}}]}, ["encodings: option base of rope"]),
    ({"encodings": [{"name": "t5", "options": {"num_buckets": 10**9}}]}, ["encodings: option num_buckets of t5"]),
    ({"encodings": [{"name": "rope", "options": {"bas": 1e4}}]}, ["encodings: rope", "did you mean 'base'"]),
]


@pytest.mark.parametrize(("change", "words"), MALFORMED, ids=lambda value: str(value)[:40])
def test_what_cannot_be_is_refused_by_name(change: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError) as error:
        read_rope({**CONFIG, **change})
    assert all(word in str(error.value) for word in words), str(error.value)
    sizes = {key: value for key, value in CONFIG.items() if key != "model_type"}
    with pytest.raises(ValueError) as error:
        PosencConfig(**{**sizes, **change}).encoding_specs()
    assert all(word in str(error.value) for word in words), str(error.value)


@pytest.mark.parametrize(
    "change", [{"num_attention_heads": 3}, {"num_key_value_heads": 3}, {"hidden_size": 2**15}], ids=str
)
def test_sizes_that_do_not_fit(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="num_attention_heads"):
        read_rope({**CONFIG, "num_attention_heads": 4, **change})
    sizes = {key: value for key, value in CONFIG.items() if key != "model_type"}
    with pytest.raises(Exception, match="num_attention_heads"):  # transformers wraps what is found between keys
        PosencConfig(**{**sizes, "num_attention_heads": 4, **change})


def test_a_long_table_is_described_without_being_made() -> None:
    words = {"encodings": "learned", "max_position_embeddings": 2**18, "hidden_size": 2**14}  # 16 GiB
    assert [line["name"] for line in PosencConfig(**words).encoding_specs()] == ["learned"]
    assert facts(read_rope({"model_type": "posenc", **words}))
