"""Any JSON value in any key: a right answer, or a ValueError that names the key where it stands, and soon."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from posenc.arguments import one_line
from posenc.hf import explain, read_rope
from posenc.hf.config.rotation import text_rope
from posenc.hf.findings import NotReadError
from posenc.hf.limits import CHANNELS, LAYERS, TOKENS
from tests.hf.checkpoints import CHECKPOINTS, FULL, SLIDING

LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 4096}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
HUGE = [2**31 + 1, 10**10, 10**18, 10**300, 1e300, float("inf"), float("nan"), -(10**18)]
COUNTS = [True, "4096", 4096.0, 0, -1, [4096], {"a": 1}, *HUGE]


@pytest.fixture(autouse=True)
def _guard() -> Iterator[None]:
    """Ends a test that would not end; errors take milliseconds."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise AssertionError("no answer within 20 s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def refusal(config: dict[str, Any]) -> str:
    with pytest.raises(ValueError) as error:
        read_rope(config)
    return str(error.value)


@pytest.mark.parametrize("value", COUNTS, ids=str)
@pytest.mark.parametrize("key", ["max_position_embeddings", "hidden_size", "num_attention_heads", "sliding_window"])
def test_sizes_are_counts(key: str, value: Any) -> None:
    config = {**LLAMA, "model_type": "cohere2" if key == "sliding_window" else "llama", key: value}
    assert refusal(config).startswith(f"{key} ")


@pytest.mark.parametrize("value", [*COUNTS[:1], *COUNTS[3:], "128", 128.0, 127, CHANNELS + 2], ids=str)
@pytest.mark.parametrize("key", ["head_dim", "qk_rope_head_dim", "global_head_dim"])
def test_widths_of_heads_are_even_counts(key: str, value: Any) -> None:
    model = {"head_dim": "llama", "qk_rope_head_dim": "deepseek_v3", "global_head_dim": "gemma4_text"}[key]
    text = refusal({**LLAMA, "model_type": model, key: value})
    assert text.startswith(f"{key} ")
    assert str(CHANNELS) in text


def test_a_width_that_the_heads_do_not_divide() -> None:
    text = refusal({**LLAMA, "hidden_size": 4100})
    assert all(part in text for part in ("hidden_size = 4100", "num_attention_heads = 32"))


@pytest.mark.parametrize("value", ["x", 4, 2.5, True, [1], 0, False, ""], ids=str)
@pytest.mark.parametrize("key", ["rope_parameters", "rope_scaling", "per_layer_config", "text_config"])
def test_objects_are_objects(key: str, value: Any) -> None:
    assert refusal({**LLAMA, key: value}).startswith(key)


def test_what_stands_in_per_layer_config() -> None:
    gemma = {"model_type": "gemma4_text", "layer_types": [SLIDING, FULL]}
    assert "per_layer_config.1 " in refusal({**gemma, "per_layer_config": {"1": "x"}})
    text = refusal({**gemma, "per_layer_config": {"1": {"head_dim": 10**10}}})
    assert text.startswith("per_layer_config.1.head_dim ")
    assert read_rope({**gemma, "per_layer_config": {"²": {"head_dim": 1}, "9" * 5000: {}}}).layers[FULL] is not None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": 5}, "model_type"),
        ({"model_type": ["llama"]}, "model_type"),
        ({"alibi": 1}, "alibi"),
        ({"layer_types": "full_attention"}, "layer_types"),
        ({"layer_types": [1]}, "layer_types"),
        ({"layer_types": [FULL] * 3, "num_hidden_layers": 2}, "layer_types"),
        ({"no_rope_layers": 4}, "no_rope_layers"),
        ({"no_rope_layers": [2]}, "no_rope_layers"),
        ({"no_rope_layers": ["1"]}, "no_rope_layers"),
        ({"no_rope_layers": [1], "num_hidden_layers": 2}, "no_rope_layers"),
        ({"no_rope_layers": [1] * (LAYERS + 1)}, "no_rope_layers"),
        ({"num_hidden_layers": 10**18, "no_rope_layer_interval": 4}, "num_hidden_layers"),
        ({"num_hidden_layers": 2**31, "model_type": "smollm3"}, "num_hidden_layers"),
        ({"no_rope_layer_interval": 0}, "no_rope_layer_interval"),
        ({"no_rope_layer_interval": "4"}, "no_rope_layer_interval"),
        ({"rope_interleave": "yes"}, "rope_interleave"),
        ({"rope_parameters": {1: 2}}, "rope_parameters"),
        ({"rope_theta": 10**400}, "rope_theta"),
        ({"rope_theta": 10**200}, "rope_theta"),
        ({"rope_theta": True}, "rope_theta"),
        ({"rope_scaling": {"type": {"a": 1}}}, "rope_scaling.type"),
        ({"rope_scaling": {**YARN, "factor": 10**18}}, "rope_scaling.factor"),
        ({"rope_scaling": {**YARN, "beta_fast": 1e-320}}, "rope_scaling.beta_fast"),
        ({"rope_scaling": {**YARN, "vendor": {"a": 1}}}, "rope_scaling.vendor"),
        ({"rope_scaling": {"type": "longrope", "short_factor": [1e-320] * 64, "long_factor": [1.0] * 64}},
         "rope_scaling.short_factor"),
        ({"rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}, "head_dim": 64},
         "64"),
        ({"rope_scaling": {**{str(number): 0 for number in range(10_000)}, "type": "linear", "factor": 2.0}},
         "9979"),
        ({"rotary_dim": 1e9}, "rotary_dim"),
        ({"rotary_dim": 2 * 10**9}, "rotary_dim"),
        ({"rope_scaling": {"type": "longrope", "short_factor": [1.0] * 64, "long_factor": [1.0] * 64},
          "original_max_position_embeddings": 1}, "original_max_position_embeddings"),
        ({"rope_scaling": {"type": "longrope", "short_factor": [1.0] * 64, "long_factor": [1.0] * 64},
          "original_max_position_embeddings": 8192}, "max_position_embeddings = 4096"),
    ],
    ids=lambda value: str(value)[:50],
)  # fmt: skip
def test_the_key_is_named(change: dict[str, Any], words: str) -> None:
    text = refusal({**LLAMA, **change})
    assert words in text
    assert "\nTraceback" not in text


def test_lengths_up_to_the_bound_are_read() -> None:
    block = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": TOKENS // 2}
    read = read_rope({**LLAMA, "max_position_embeddings": TOKENS, "rope_scaling": block})
    assert read.rope.scaling.original_length == TOKENS // 2


def test_the_path_leads_to_the_key() -> None:
    config = json.loads(json.dumps(CHECKPOINTS["gemma-3-4b"][0]))
    config["text_config"]["rope_scaling"]["factor"] = 0.5
    text = refusal(config)
    assert text.startswith("text_config.rope_scaling.factor ")
    del config["text_config"]["rope_scaling"]
    config["text_config"]["rope_local_base_freq"] = 1
    text = refusal(config)
    assert text.startswith("text_config.rope_local_base_freq ")
    assert refusal({**LLAMA, "text_config": {"model_type": "llama", "head_dim": 0}}).startswith("text_config.head_dim")
    assert refusal({"model_type": "gpt_neox", "head_dim": 64, "rotary_pct": 2}).startswith("rotary_pct ")


class TestWhatTransformersObeys:
    """Where two keys differ, the correction is the one that transformers 5.23 takes: tests/reference holds it."""

    @pytest.mark.parametrize("reverse", [False, True])
    def test_rope_type_over_type(self, reverse: bool) -> None:
        keys = {"type": "yarn", "rope_type": "linear"}
        block = {**dict(sorted(keys.items(), reverse=reverse)), "factor": 4.0}
        text = refusal({**LLAMA, "rope_scaling": block})
        assert "obeys rope_scaling.rope_type" in text

    def test_the_block_over_a_base_beside_it(self) -> None:
        text = refusal({**LLAMA, "rope_theta": 1e6, "rope_parameters": {"rope_type": "default", "rope_theta": 1e5}})
        assert "obeys rope_parameters.rope_theta" in text

    def test_an_original_length_beside_the_block_over_the_block(self) -> None:
        text = refusal({**LLAMA, "original_max_position_embeddings": 1024, "rope_scaling": YARN})
        assert "obeys original_max_position_embeddings" in text

    def test_rope_scaling_over_rope_parameters(self) -> None:
        text = refusal({**LLAMA, "rope_scaling": YARN, "rope_parameters": {**YARN, "factor": 8.0}})
        assert all(key in text for key in ("rope_scaling", "rope_parameters"))


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


@pytest.mark.parametrize("model_type", ["llama", "solar_open", "qwen3"])
def test_keys_of_another_family_are_reported(model_type):
    """transformers reads them in GPT-NeoX alone."""
    config = {
        "model_type": model_type, "hidden_size": 256, "num_attention_heads": 4, "max_position_embeddings": 512,
        "rotary_pct": 0.25, "rotary_emb_base": 20000,
    }  # fmt: skip
    result = {finding.key: (finding.name, finding.level) for finding in read_rope(config).findings}
    assert result["rotary_emb_base"] == result["rotary_pct"] == ("key-ignored", "fault")
    assert not {"rotary_pct", "rotary_emb_base"} & {
        finding.key for finding in read_rope({**config, "model_type": "gpt_neox"}).findings
    }


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
