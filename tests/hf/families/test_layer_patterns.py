"""Which kind of attention each layer has: cycles, periods, keys that list the layers; and windows on both sides."""

from __future__ import annotations

from typing import Any

import pytest

from posenc.hf import model_from_config
from posenc.hf.config.layers import half_counts, layer_kinds, patterned
from posenc.hf.config.text_config import TextConfig, find_text_config
from posenc.hf.families.family import FULL, LINEAR, SLIDING, Family, LayerPattern, Window

F, S, L = FULL, SLIDING, LINEAR


@pytest.mark.parametrize(
    ("pattern", "options", "kinds"),
    [
        (LayerPattern(), {}, [F, F, F, F, F]),
        (LayerPattern((S, F)), {}, [S, F, S, F, S]),
        (LayerPattern((S, S, F), period_key="period"), {"period": 2}, [S, F, S, F, S]),
        (LayerPattern((F, S, S), period_key="period"), {"period": 4}, [F, S, S, S, F]),
        (LayerPattern((F, S, S), anchored_at_end=True), {}, [S, F, S, S, F]),
        (LayerPattern((S,), first_full=True, last_full=True), {}, [F, S, S, S, F]),
        (LayerPattern(window=Window(every_layer=True)), {"sliding_window": 8}, [S] * 5),
        (LayerPattern(window=Window(every_layer=True)), {}, [F] * 5),
        (LayerPattern(sliding_from_key="from", sliding_from=28), {"sliding_window": 8}, [F] * 5),
        (LayerPattern(sliding_from_key="from"), {"sliding_window": 8, "from": 3}, [F, F, F, S, S]),
    ],
)
def test_a_pattern_repeats_its_cycle(pattern: LayerPattern, options: dict[str, Any], kinds: list[str]) -> None:
    text_config = TextConfig(options, (), "", Family(layers=pattern), known=True)
    assert patterned(text_config, 5) == kinds
    assert patterned(text_config, 0) == []


@pytest.mark.parametrize(
    ("config", "kinds"),
    [
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M-*E"}, [L, "mlp", F, "moe"]),
        ({"model_type": "jamba", "num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1}, [L, F, L, F]),
        ({"model_type": "bamba", "num_hidden_layers": 3, "attn_layer_indices": [1], "head_dim": 8}, [L, F, L]),
        (
            {"model_type": "kimi_linear", "num_hidden_layers": 3, "linear_attn_config": {"full_attn_layers": [3]}},
            [L, L, F],
        ),
        ({"model_type": "gpt_neo", "num_layers": 3, "attention_types": [[["global"], 1], [["local"], 2]]}, [F, S, S]),
        ({"model_type": "gpt_neo", "num_layers": 3}, [F, S, F]),
        ({"model_type": "mimo_v2_flash", "num_hidden_layers": 7}, [F, S, S, S, S, F, S]),
    ],
)
def test_families_list_their_layers_by_keys_of_their_own(config: dict[str, Any], kinds: list[str]) -> None:
    assert layer_kinds(find_text_config(config)) == kinds


def test_a_layer_without_attention_among_kinds_with_rotations_of_their_own() -> None:
    config = {"model_type": "lfm3", "num_hidden_layers": 3, "layer_types": ["conv", F, S]}
    assert [layer.rotation is None for layer in model_from_config(config).layers] == [True, False, False]
    with pytest.raises(ValueError, match="layer_types"):
        _ = model_from_config({**config, "layer_types": ["chunked_attention", F, S]}).layers


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "MX"}, "hybrid_override_pattern"),
        ({"model_type": "jamba", "num_hidden_layers": 4, "attn_layer_offset": 9}, "attn_layer_offset"),
        ({"model_type": "bamba", "num_hidden_layers": 3, "attn_layer_indices": [3]}, "attn_layer_indices"),
        ({"model_type": "gpt_neo", "attention_types": [["global", 1]]}, "attention_types"),
        ({"model_type": "deepseek_v4", "num_hidden_layers": 2, "compress_ratios": [0, 5]}, "compress_ratios"),
        ({"model_type": "deepseek_v4", "num_hidden_layers": 2, "compress_ratios": [0, [4]]}, "compress_ratios"),
    ],
)
def test_what_lists_no_layers_is_named(config: dict[str, Any], key: str) -> None:
    with pytest.raises(ValueError, match=key):
        layer_kinds(find_text_config(config))


@pytest.mark.parametrize(
    ("config", "before", "after"),
    [
        ({"model_type": "longformer", "attention_window": [64, 64]}, 33, 32),
        ({"model_type": "longformer", "attention_window": [64, 32]}, None, 0),
        ({"model_type": "longformer"}, 257, 256),
        ({"model_type": "longformer", "attention_window": 64, "is_decoder": True}, 32, 0),
        ({"model_type": "longt5", "local_radius": 3}, 4, 3),
        ({"model_type": "gpt_neo", "num_layers": 2, "window_size": 7}, 7, 0),
    ],
)
def test_windows_of_models_without_rotation(config: dict[str, Any], before: int | None, after: int) -> None:
    windowed = model_from_config({"num_hidden_layers": 2, **config}).distinct_layers[-1]
    assert (windowed.window, windowed.ahead) == (before, after)
    assert (windowed.not_read == "attention_window, which differs between layers") == (before is None)


def test_the_halves_of_an_encoder_and_decoder_have_numbers_of_layers() -> None:
    for config, counts in (
        ({"model_type": "bart", "encoder_layers": 6, "decoder_layers": 12}, (6, 12)),
        ({"model_type": "t5", "num_layers": 6}, (6, 6)),
        ({"model_type": "t5", "num_layers": 12, "num_decoder_layers": 4}, (12, 4)),
        ({"model_type": "moonshine_streaming", "num_hidden_layers": 6, "encoder_config": {"num_hidden_layers": 9}},
         (9, 6)),
        ({"model_type": "bart"}, (None, None)),
    ):  # fmt: skip
        assert half_counts(find_text_config(config)) == counts
