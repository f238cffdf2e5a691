"""The records of model types: each is whole, and no two of its parts contradict one another."""

from __future__ import annotations

from typing import Any

import pytest

from posenc.hf import convert_config, explain, extend_config, families, read_rope, serve_flags
from posenc.hf.doctor import examine
from posenc.hf.families import FAMILIES, NON_ROTARY, ROTARY, UNSUPPORTED, family_of
from posenc.hf.families.decoders import DECODERS
from posenc.hf.families.family import KINDS, SLIDING, Family, LayerPattern, RotationRules
from posenc.hf.families.listing import every_line
from posenc.hf.findings import NotReadError


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_record_says_one_thing(name: str) -> None:
    family = FAMILIES[name]
    states = [name in ROTARY, name in NON_ROTARY, name in UNSUPPORTED, bool(family.code_of)]
    assert sum(states) == 1 or (not any(states) and family.text_type)
    for other in filter(None, (family.code_of, family.code_if_listed)):
        assert FAMILIES[other].rotation is not None or other in NON_ROTARY
    assert set(family.layers.cycle) <= KINDS
    assert not family.not_compared or name in ROTARY
    if family.text_type:
        assert family.text_type in FAMILIES


def test_the_innermost_model_type_with_a_record_decides() -> None:
    assert family_of(["bert", "llama"], listed=False, latent=False) == (FAMILIES["bert"], False)
    assert family_of(["no_such", "llama"], listed=False, latent=False) == (FAMILIES["llama"], True)
    assert family_of(["qwen3_vl"], listed=False, latent=False) == (FAMILIES["qwen3_vl_text"], True)


def test_a_mistral_that_lists_its_layers_is_a_ministral() -> None:
    """AutoConfig of transformers makes a Ministral of it, whose full layers have no window."""
    assert family_of(["mistral"], listed=True, latent=False) == (FAMILIES["ministral"], True)


def test_without_a_record_the_rotation_is_assumed() -> None:
    for latent in (False, True):
        family, known = family_of(["no_such"], listed=False, latent=latent)
        assert not known
        assert family.rotation is not None
        assert family.rotation.latent == latent
        assert family.rotation.layout == ("interleaved" if latent else "half")


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "chatglm", "rope_ratio": 500, "kv_channels": 128, "hidden_size": 4096},
        {"model_type": "baichuan", "hidden_size": 4096, "num_attention_heads": 32},
        {"model_type": "phi3small", "rope_embedding_base": 1e6, "hidden_size": 4096, "num_attention_heads": 32},
    ],
)
def test_models_of_remote_code_are_refused_without_advice_on_a_base(config: dict[str, Any]) -> None:
    """A base added to such a config would be wrong: the code reads other keys, and rotates other channels."""
    for arguments in (config, {**config, "rope_theta": 1e4}):
        with pytest.raises(NotReadError) as error:
            read_rope(arguments)
        assert config["model_type"] in str(error.value)
        assert "rope_theta" not in str(error.value)
        assert "10000" not in str(error.value)


def test_a_family_is_one_line_that_every_table_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Llama whose every fourth layer does not rotate, and whose others have windows."""
    record = Family(RotationRules(base=5e5, unrotated_every=4), layers=LayerPattern((SLIDING,)))
    monkeypatch.setitem(DECODERS, "sparrow sparrow_moe", record)
    monkeypatch.setattr(families, "_COMPLETED", {})
    sizes = {"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 8}
    for name in ("sparrow", "sparrow_moe"):
        config = {"model_type": name, **sizes, "max_position_embeddings": 8192, "sliding_window": 512}
        config["rope_parameters"] = {"rope_type": "default", "rope_theta": 5e5}
        read = read_rope(config)
        assert [layer.window for layer in read.facts.layers] == [512] * 8
        assert [layer.rotation is None for layer in read.facts.layers] == [False, False, False, True] * 2
        assert explain(config).facts["model_type"] == name
        assert examine(config).healthy
        assert convert_config(config).config["rope_theta"] == 5e5
        assert extend_config({**config, "sliding_window": None}, 32768).plan.factor == 4
        assert "vllm" in {line.engine for line in serve_flags(read)}
        assert [line.state for line in every_line() if line.name == name] == ["read"]
