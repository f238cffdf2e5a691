"""What a family's code has where a configuration says nothing, and its own spellings; tests/reference compares."""

from __future__ import annotations

import pytest

from posenc.arguments import one_line
from posenc.hf import explain, read_rope
from posenc.hf.config.rotation import text_rope
from posenc.hf.findings import NotReadError
from tests.hf.checkpoints import CHECKPOINTS, FULL, SLIDING

LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 4096}


class TestWhatFamiliesDo:
    """What the code of a family has where the configuration says nothing; tests/reference compares it."""

    def test_width_of_a_head(self) -> None:
        qwen = {"model_type": "qwen3", "hidden_size": 1024, "num_attention_heads": 16}
        assert read_rope({**qwen, "rope_theta": 1e6}).rope.head_dim == 128
        assert read_rope({**qwen, "head_dim": None}).rope.head_dim == 64
        assert read_rope({"model_type": "jetmoe", "kv_channels": 64}).rope.head_dim == 64
        assert read_rope({"model_type": "deepseek_v3", "head_dim": 192}).rope.head_dim == 64

    def test_width_of_full_attention(self) -> None:
        gemma = {"model_type": "gemma4_text", "head_dim": 256, "layer_types": [SLIDING, FULL]}
        assert read_rope(gemma).layers[FULL].head_dim == 512
        assert read_rope({**gemma, "global_head_dim": 128}).layers[FULL].head_dim == 128
        assert read_rope({**gemma, "per_layer_config": {"1": {}}, "global_head_dim": 128}).layers[FULL].head_dim == 256

    def test_longrope_without_a_length(self) -> None:
        config = dict(CHECKPOINTS["phi-3.5-mini"][0])
        del config["max_position_embeddings"]
        assert read_rope(config).to_config() == config

    def test_rope_interleave(self) -> None:
        layouts = {True: "interleaved", False: "half", None: "half"}
        for arguments, layout in layouts.items():
            assert read_rope({"model_type": "deepseek_v3", "rope_interleave": arguments}).rope.layout == layout
        assert read_rope({"model_type": "deepseek_v3"}).rope.layout == "interleaved"
        read = read_rope({"model_type": "deepseek_v2", "rope_interleave": False})
        assert read.rope.layout == "interleaved"
        assert "rope_interleave" in {finding.key for finding in read.findings}

    def test_a_window_of_zero_is_none(self) -> None:
        assert read_rope({**LLAMA, "model_type": "qwen2_moe", "sliding_window": 0}).rope.head_dim == 128


def test_lists_of_bases_and_shares_by_layer_are_kinds_of_layers() -> None:
    """Step 3.5 Flash as published, with three layers at the end that predict further tokens."""
    period = ["full_attention", *3 * ["sliding_attention"]]
    config = {
        "model_type": "step3p5", "head_dim": 128, "hidden_size": 4096, "num_attention_heads": 64, "sliding_window": 512,
        "num_hidden_layers": 8, "num_nextn_predict_layers": 3, "layer_types": (period * 3)[:11],
        "rope_theta": ([5e6, 1e4, 1e4, 1e4] * 3)[:11], "partial_rotary_factors": ([0.5, 1.0, 1.0, 1.0] * 3)[:11],
        "rope_scaling": {"rope_type": "llama3", "factor": 2.0, "original_max_position_embeddings": 131072,
                         "low_freq_factor": 1.0, "high_freq_factor": 32.0},
        "yarn_only_types": ["full_attention"], "max_position_embeddings": 262144,
    }  # fmt: skip
    read = read_rope(config)
    full, sliding = (text_rope(read.rotations[kind]) for kind in ("full_attention", "sliding_attention"))  # type: ignore[arg-type]
    assert (full.base, full.rotary_dim, one_line(full.scaling)) == (
        5e6, 64, "Llama3(2, original_length=131072, low_freq_factor=1, high_freq_factor=32)")  # fmt: skip
    assert (sliding.base, sliding.rotary_dim, sliding.scaling) == (1e4, 128, None)
    assert [layer.window for layer in read.facts.layers] == [None, 512, 512, 512] * 2
    with pytest.raises(NotReadError):
        read_rope({**config, "rope_theta": [5e6] * 2 + [1e4] * 9})


def test_latent_kinds_of_layers_have_bases_and_widths_of_their_own() -> None:
    """Dots 3 Note in the keys of its release, and as transformers 5.23 saves it."""
    released = {
        "model_type": "dots3_note_text", "hidden_size": 5120, "num_attention_heads": 128, "num_hidden_layers": 8,
        "rope_theta": 8e7, "swa_rope_theta": 4e4, "sliding_window_size": 256, "kv_lora_rank": 512,
        "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "max_position_embeddings": 524288,
    }  # fmt: skip
    block = {"rope_type": "default", "partial_rotary_factor": 0.25}
    saved = {
        **{key: value for key, value in released.items() if "rope_theta" not in key and key != "sliding_window_size"},
        "sliding_window": 256,
        "layer_types": [*2 * ["indexed_attention"], *3 * [SLIDING], "indexed_attention", *2 * [SLIDING]],
        "per_layer_config": {str(n): {"head_dim": 256, "qk_rope_head_dim": 32} for n in (2, 3, 4, 6, 7)},
        "rope_parameters": {"indexed_attention": {**block, "rope_theta": 8e7}, SLIDING: {**block, "rope_theta": 4e4}},
    }  # fmt: skip
    wider = {**released, "swa_head_dim": 192, "swa_qk_nope_head_dim": 96}
    for config, width, unrotated in ((released, 64, 192), (saved, 32, 128), (wider, 96, 96),
                                     ({**wider, "swa_head_dim": 144, "swa_qk_rope_head_dim": 48}, 48, 96)):  # fmt: skip
        read = read_rope(config)
        assert explain(read).facts["layers"][SLIDING]["head_width"] == width + unrotated
        ropes = {kind: text_rope(rope) for kind, rope in read.rotations.items() if rope is not None}
        assert {kind: (rope.base, rope.rotary_dim, rope.layout) for kind, rope in ropes.items()} == {
            "indexed_attention": (8e7, 64, "interleaved"), SLIDING: (4e4, width, "interleaved"),
        }  # fmt: skip
        assert [(layer.kind, layer.window, numbers) for layer, numbers in read.facts.kinds] == [
            ("indexed_attention", None, [0, 1, 5]), (SLIDING, 256, [2, 3, 4, 6, 7]),
        ]  # fmt: skip
        assert read.to_config() == config
