"""RePo's keys of a config: layers whose tokens choose positions in the authors' class, and its misspelt keys."""

from __future__ import annotations

import pytest

from posenc.hf import read_rope

SIZES = {
    "model_type": "olmo2", "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 16,
    "num_hidden_layers": 16, "max_position_embeddings": 4096, "rope_theta": 500_000,
}  # fmt: skip
RELEASED = {  # as SakanaAI/repo's convert_olmo2_to_hf.py writes it
    "dynamic_pe_mode": "swigluex_multihead", "dynmaic_pe_start_layer": 5, "dynamic_pe_start_layer": 5,
    "dynamic_pe_layer_ids": "", "dynmaic_pe_layer_ids": "",
}  # fmt: skip


def findings(**block):
    rope = read_rope(SIZES | {"pe_config": block})
    return {finding.name: finding for finding in rope.findings if finding.key == "pe_config"}


def test_layers_of_the_released_model():
    by_name = findings(**RELEASED)
    assert list(by_name) == ["repo-positions"]
    assert "11 of 16 layers: 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15." in by_name["repo-positions"].text
    assert by_name["repo-positions"].level == "note"


def test_listed_layers_count_from_the_start_layer():
    by_name = findings(**RELEASED | {"dynmaic_pe_layer_ids": "2,7, 12,40"})
    assert "2 of 16 layers: 7, 12." in by_name["repo-positions"].text


def test_the_right_spelling_alone_puts_it_everywhere():
    by_name = findings(dynamic_pe_mode="swigluex_multihead", dynamic_pe_start_layer=5)
    assert "16 of 16 layers: 0, 1," in by_name["repo-positions"].text
    assert "dynmaic_pe_start_layer" in by_name["repo-key-misspelt"].text
    assert by_name["repo-key-misspelt"].level == "suspicion"


def test_other_modes_and_no_mode():
    assert list(findings(dynamic_pe_mode="swigluex")) == ["repo-mode-unread"]
    assert findings(dynamic_pe_mode="none") == {}
    assert findings() == {}
    rope = read_rope(SIZES | {"model_type": "olmo3", "pe_config": RELEASED})
    assert not [finding for finding in rope.findings if finding.key == "pe_config"]


@pytest.mark.parametrize("broken", [{"dynmaic_pe_start_layer": "5"}, {"dynmaic_pe_layer_ids": "a,b"},
                                    {"dynmaic_pe_layer_ids": [5]}, {"dynmaic_pe_layer_ids": "1,,2"}])  # fmt: skip
def test_layers_that_cannot_be_read(broken):
    assert list(findings(**RELEASED | broken)) == ["repo-layers-unread"]


@pytest.mark.parametrize("block", [[], "x", 3, None, {"dynamic_pe_mode": ["swigluex_multihead"]}])
def test_malformed_blocks_raise_nothing(block):
    names = [finding.name for finding in read_rope(SIZES | {"pe_config": block}).findings if finding.key == "pe_config"]
    assert names == (["repo-mode-unread"] if isinstance(block, dict) else [])
