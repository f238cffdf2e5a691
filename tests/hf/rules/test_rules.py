"""Keys that contradict one another: each planted contradiction is alarmed by its name, and published files are not."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from posenc.hf import read_rope
from posenc.hf.config.text_config import find_text_config
from posenc.hf.doctor import corrected, examine
from posenc.hf.findings import NotReadError
from posenc.hf.rules.case import RELEASES, release_like
from tests.golden import configs
from tests.hf.doctor.planted import FACTORS, GEMMA_3, LLAMA_3, LLAMA_31, PHI, QWEN, YARN, Config

QWEN_3: Config = {
    **QWEN, "vocab_size": 151936, "hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32,
    "num_key_value_heads": 8, "max_position_embeddings": 40960,
}  # fmt: skip
GEMMA: Config = {
    **GEMMA_3, "num_hidden_layers": 6, "rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window": 1024,
}  # fmt: skip
LLAMA_4: Config = {
    "model_type": "llama4_text", "head_dim": 128, "num_attention_heads": 40, "num_key_value_heads": 8,
    "num_hidden_layers": 8, "rope_theta": 5e5, "max_position_embeddings": 8192, "attention_chunk_size": 8192,
}  # fmt: skip
DEEPSEEK: Config = {
    "model_type": "deepseek_v3", "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "kv_lora_rank": 512,
    "rope_theta": 1e4, "hidden_size": 7168, "num_hidden_layers": 61, "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
                     "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0},
}  # fmt: skip
GPT_OSS: Config = {
    "model_type": "gpt_oss", "head_dim": 64, "hidden_size": 2880, "num_hidden_layers": 36, "vocab_size": 201088,
    "num_attention_heads": 64, "num_key_value_heads": 8, "rope_theta": 150000, "max_position_embeddings": 131072,
    "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "beta_fast": 32.0,
                     "beta_slow": 1.0, "truncate": False},
}  # fmt: skip
VISION: Config = {
    "model_type": "qwen2_vl",
    "text_config": {
        "model_type": "qwen2_vl_text", "hidden_size": 1536, "num_attention_heads": 12, "rope_theta": 1e6,
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "max_position_embeddings": 32768,
    },
}  # fmt: skip
HEALTHY: dict[str, Config] = {
    "qwen3": QWEN_3, "gemma3": GEMMA, "llama4": LLAMA_4, "deepseek": DEEPSEEK, "gpt-oss": GPT_OSS, "qwen2-vl": VISION,
    "llama-3.1": {**LLAMA_31, "rope_theta": 5e5, "rope_scaling": LLAMA_3},
}  # fmt: skip


def without(config: Config, *keys: str) -> Config:
    return {key: value for key, value in config.items() if key not in keys}


def block_of(config: Config, **changes: Any) -> Config:
    """The config with changed keys in its block; None removes one."""
    block = {key: value for key, value in {**config["rope_scaling"], **changes}.items() if value is not None}
    return {**config, "rope_scaling": block}


def misspelt(config: Config, key: str, wrong: str) -> Config:
    return {**without(config, key), wrong: config[key]}


MISTRAL: Config = {
    "model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "vocab_size": 32000, "max_position_embeddings": 32768, "rope_theta": 1e4, "sliding_window": None,
}  # fmt: skip
GRANITE: Config = {"model_type": "granite", "head_dim": 64, "rope_theta": 1e6, "max_position_embeddings": 131072}
SLIDING, FULL, CHUNKED = "sliding_attention", "full_attention", "chunked_attention"
WINDOWED: Config = {**QWEN_3, "num_hidden_layers": 4, "use_sliding_window": True, "sliding_window": 4096}
PLANTED: list[tuple[set[str], str, Config]] = [  # names of the alarms, what was planted, where
    ({"key-misspelt", "base-below-releases"}, "rope_thta", misspelt(QWEN_3, "rope_theta", "rope_thta")),
    ({"key-misspelt"}, "max_position_embedings",
     misspelt(QWEN_3, "max_position_embeddings", "max_position_embedings")),
    ({"key-misspelt"}, "rope_scalling", {**QWEN_3, "rope_scalling": YARN}),
    ({"key-misspelt"}, "use_sliding_windows", misspelt(WINDOWED, "use_sliding_window", "use_sliding_windows")),
    ({"key-misspelt"}, "a misspelt key next to the right one", {**QWEN_3, "rope_thetas": 1e4}),
    ({"declared-beyond-scaling"}, "factor 2 for four times the length",
     {**QWEN, "rope_scaling": {**YARN, "factor": 2.0}}),
    ({"original-length-not-below"}, "a declared length lowered to a quarter of the original one",
     {**QWEN, "max_position_embeddings": 8192, "rope_scaling": YARN}),
    ({"base-below-releases"}, "a version-4 file without a base",
     {**without(QWEN_3, "rope_theta"), "transformers_version": "4.51.0"}),
    ({"base-lost"}, "a version-5 block without a base",
     {**without(QWEN, "rope_theta"), "rope_parameters": YARN}),
    ({"rotation-of-windows"}, "blocks of layers exchanged",
     {**without(GEMMA, "rope_theta", "rope_local_base_freq"),
      "rope_parameters": {FULL: {"rope_type": "default", "rope_theta": 1e4},
                          SLIDING: {"rope_type": "default", "rope_theta": 1e6}}}),
    ({"mscale-missing"}, "mscale_all_dim lost", block_of(DEEPSEEK, mscale_all_dim=None)),
    ({"layer-orders-differ"}, "LLLG against layer_types",
     {"model_type": "exaone4", "num_hidden_layers": 4, "sliding_window": 4096, "sliding_window_pattern": "LLLG",
      "layer_types": [FULL] + [SLIDING] * 3, "head_dim": 128, "rope_theta": 1e6, "max_position_embeddings": 8192}),
    ({"layer-kinds-exchanged"}, "global and local layers exchanged", {**GEMMA, "layer_types": [FULL] * 5 + [SLIDING]}),
    ({"layers-unread"}, "an offset beyond the period",
     {"model_type": "jamba", "num_hidden_layers": 8, "attn_layer_period": 4, "attn_layer_offset": 4}),
    ({"window-of-no-layer"}, "a window that starts behind the last layer", {**WINDOWED, "max_window_layers": 28}),
    ({"nope-layers-inverted"}, "no layer rotates", {**LLAMA_4, "no_rope_layers": [0] * 8}),
    ({"scaling-beyond-declared"}, "factor 40 for 4", {**QWEN, "rope_scaling": {**YARN, "factor": 40.0}}),
    ({"window-of-no-layer"}, "use_sliding_window without a window", {**WINDOWED, "sliding_window": None}),
    ({"layers-unread"}, "a window as a string", {**GEMMA, "sliding_window": "1024"}),
    ({"sliding-layers-lost"}, "full attention in all layers of gpt-oss", {**GPT_OSS, "layer_types": [FULL] * 36}),
    ({"recipe-differs"}, "factor 4 in Llama 3.1",
     {**LLAMA_31, "rope_theta": 5e5, "rope_scaling": {**LLAMA_3, "factor": 4.0}}),
    ({"key-misspelt"}, "a misspelt key of BERT", {"model_type": "bert", "max_position_embedings": 4096}),
    ({"levels-differ"}, "a longer length next to the text part", {**VISION, "max_position_embeddings": 131072}),
    ({"levels-differ"}, "a scaling next to the text part",
     {"model_type": "gemma3", "text_config": GEMMA, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    ({"position-padding"}, "another padding id in RoBERTa", {"model_type": "roberta", "pad_token_id": 3}),
    ({"original-length-declared"}, "131,072 over 131,072 in Phi 3",
     {**PHI, "original_max_position_embeddings": 131072, "rope_scaling": FACTORS}),
    ({"original-length-below-releases"}, "a shorter original length (agentscope-ai/Trinity-RFT#389)",
     {"model_type": "qwen2", "hidden_size": 1536, "num_attention_heads": 12, "vocab_size": 151936, "rope_theta": 1e4,
      "max_position_embeddings": 32768,
      "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16384}}),
    ({"key-of-an-engine"}, "attn_factor in a released file (deepseek-ai/DeepSeek-R1#684)",
     {**QWEN, "rope_scaling": {**YARN, "attn_factor": 0.8782488562869419}}),
    ({"layer-orders-differ"}, "letters without a list (vllm-project/vllm-metal#676)",
     {"model_type": "exaone4", "num_hidden_layers": 8, "sliding_window": 4096, "sliding_window_pattern": "LLLG",
      "head_dim": 128, "rope_theta": 1e6, "max_position_embeddings": 8192}),
    ({"nope-layers-lost"}, "all layers rotate",
     {"model_type": "smollm3", "head_dim": 64, "num_hidden_layers": 4, "rope_theta": 5e6,
      "max_position_embeddings": 65536, "no_rope_layers": [1] * 4}),
    ({"share-lost"}, "the share of Gemma 4 lost",
     {"model_type": "gemma4_text", "max_position_embeddings": 131072,
      "rope_parameters": {FULL: {"rope_type": "proportional", "rope_theta": 1e6},
                          SLIDING: {"rope_type": "default", "rope_theta": 1e4}}}),
    ({"softmax-scale"}, "the multiplier of Granite lost", GRANITE),
    ({"scaling-lost"}, "longrope lost, its length kept", PHI),
    ({"scaling-lost"}, "yarn lost, its length kept",
     {**without(GPT_OSS, "rope_scaling"), "vocab_size": 128, "initial_context_length": 4096,
      "rope_parameters": {"rope_type": "default", "rope_theta": 150000.0}}),
    ({"layout-inverted"}, "the layout of DeepSeek-V3 inverted", {**DEEPSEEK, "rope_interleave": False}),
    ({"windows-differ"}, "two windows in ModernBERT",
     {"model_type": "modernbert", "hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 6,
      "local_attention": 128, "sliding_window": 32, "max_position_embeddings": 8192}),
    ({"layers-unread"}, "a window with a point",
     {"model_type": "mistral", "head_dim": 64, "num_hidden_layers": 4, "rope_theta": 1e4, "sliding_window": 512.0}),
    ({"version-5-spelling"}, "a base inside rope_scaling, read by version 4",
     {**without(QWEN, "rope_theta"), "transformers_version": "4.51.0", "rope_scaling": {**YARN, "rope_theta": 1e6}}),
    ({"key-misspelt"}, "the local base without its last word",
     misspelt(GEMMA, "rope_local_base_freq", "rope_local_base")),
]  # fmt: skip
CERTAIN = {"layer-orders-differ", "version-5-spelling"}  # whose correction the file decides
NOTED: list[tuple[str, Config]] = [  # a note, and no alarm
    ("version-5-spelling", {**without(QWEN, "rope_theta"), "rope_scaling": {**YARN, "rope_theta": 1e6}}),
    ("window-of-no-layer", {**QWEN, "num_hidden_layers": 5, "sliding_window": 2048}),
    ("key-of-an-engine", {**QWEN, "rope_scaling": {**YARN, "extrapolation_factor": 1.0}}),
    ("original-length-not-below", {**GPT_OSS, "max_position_embeddings": 512}),
]
SILENT: dict[str, Config] = {
    "a longer base than released": {**QWEN_3, "rope_theta": 5e6},
    "sizes of no release": {**QWEN_3, "num_hidden_layers": 4, "rope_theta": 1e4},
    "the text part of another model": {"model_type": "fun_asr_nano", "text_config": {**QWEN_3, "rope_theta": 1e4}},
    "AFM's factor of 20 over 16": {**QWEN, "rope_scaling": {**YARN, "factor": 5.0}},
    "a misspelt key with the value that is read": {**QWEN_3, "rope_thetas": 1e6},
    "the default of max_window_layers next to a list":
        {**WINDOWED, "max_window_layers": 28, "layer_types": [SLIDING, FULL] * 2},
    "the default interval next to other layers":
        {**LLAMA_4, "no_rope_layers": [1, 0] * 4, "no_rope_layer_interval": 4},
    "128,000 and 131,072 as in Qwen2.5-VL":
        {**VISION, "max_position_embeddings": 32000, "rope_theta": 1e6},
    "RoBERTa's 514": {"model_type": "roberta", "max_position_embeddings": 514},
    "2,050 rows": {"model_type": "llama", "head_dim": 64, "max_position_embeddings": 2050},
    "a name of its own": {"model_type": "layoutlm", "max_2d_position_embeddings": 1024},
    "Qwen 3 with factor 4": {**QWEN_3, "rope_scaling": YARN},
    "a decoder by itself": {"model_type": "bert", "is_decoder": True, "architectures": ["BertLMHeadModel"]},
    "the window of Mistral 0.1": {**MISTRAL, "sliding_window": 4096},
    "the block of Qwen 2.5's card":
        {**QWEN, "model_type": "qwen2", "max_position_embeddings": 32768, "rope_scaling": YARN},
    "MiniCPM's equal lists over the declared length":
        {"model_type": "minicpm3", "qk_rope_head_dim": 32, "qk_nope_head_dim": 64, "max_position_embeddings": 32768,
         "rope_theta": 1e4, "rope_scaling": {"type": "longrope", "short_factor": [1.5] * 16, "long_factor": [1.5] * 16,
                                             "original_max_position_embeddings": 32768}},
    "a switch that is off, as in Qwen 2.5": {**QWEN, "use_sliding_window": False, "sliding_window": 4096},
    "ModernBERT's window under both of its keys":
        {"model_type": "modernbert", "hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 6,
         "local_attention": 128, "sliding_window": 64, "max_position_embeddings": 8192},
    "Granite Docling's multiplier, which its class has":
        {"model_type": "granite_docling_text", "head_dim": 64, "rope_theta": 1e6, "max_position_embeddings": 32768},
    "a million, of a model of other sizes": {**QWEN, "max_position_embeddings": 1010000},
}  # fmt: skip


@pytest.mark.parametrize(("names", "what", "config"), PLANTED, ids=[what for _, what, _ in PLANTED])
def test_planted_contradictions_are_found_and_nothing_else(names: set[str], what: str, config: Config) -> None:
    report = examine(config)
    assert report.names() == names, str(report)
    uncertain = [finding for finding in report.findings if finding.name not in CERTAIN]
    assert not any(finding.certain for finding in uncertain), "the file does not say which key is right"


@pytest.mark.parametrize("name", HEALTHY)
def test_what_they_were_planted_in_is_healthy(name: str) -> None:
    assert examine(HEALTHY[name]).names() == set(), str(examine(HEALTHY[name]))


@pytest.mark.parametrize(("name", "config"), NOTED, ids=[name for name, _ in NOTED])
def test_notes_are_no_alarm(name: str, config: Config) -> None:
    report = examine(config)
    assert report.healthy, str(report)
    assert name in {finding.name for finding in report.findings}


@pytest.mark.parametrize("what", SILENT)
def test_what_decides_nothing_is_no_alarm(what: str) -> None:
    assert examine(SILENT[what]).names() == set(), str(examine(SILENT[what]))


def of_original(config: Config, original: int) -> Config:
    return {**config, "rope_scaling": {**config["rope_scaling"], "original_max_position_embeddings": original}}


QWEN_3_LONGER = {**QWEN_3, "max_position_embeddings": 131072, "rope_scaling": YARN}


@pytest.mark.parametrize(
    ("config", "right"),
    [
        (of_original(DEEPSEEK, 163840), DEEPSEEK),  # NVIDIA/Megatron-LM#1418
        (of_original(QWEN_3_LONGER, 131072), QWEN_3_LONGER),
        (
            of_original({**QWEN, "model_type": "qwen2", "rope_scaling": YARN}, 131072),
            {**QWEN, "model_type": "qwen2", "rope_scaling": YARN},
        ),
        (misspelt(QWEN_3, "rope_theta", "rope_thta"), QWEN_3),
        (misspelt(QWEN_3, "max_position_embeddings", "max_position_embedings"), QWEN_3),
        (
            {
                **QWEN,
                "rope_scaling": misspelt(YARN, "original_max_position_embeddings", "orignal_max_position_embeddings"),
            },
            {**QWEN, "rope_scaling": YARN},
        ),
        (
            {**LLAMA_4, "no_rope_layers": [0, 0, 0, 1] * 2},
            {**LLAMA_4, "no_rope_layers": [1, 1, 1, 0] * 2},
        ),
    ],
)
def test_guesses_are_offered_and_written_only_on_request(config: Config, right: Config) -> None:
    assert corrected(config) == (config, [])
    mended, _ = corrected(config, guesses=True)
    assert mended == right
    assert examine(mended).healthy


OLMO_3: Config = {
    "model_type": "olmo3", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "sliding_window": 8,
    "layer_types": [SLIDING, FULL], "max_position_embeddings": 65536,
}  # fmt: skip
FLAT = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192, "rope_theta": 5e5}


def test_a_flat_block_of_kinds_of_layers_is_dropped_by_its_class() -> None:
    read = read_rope({**OLMO_3, "rope_parameters": FLAT})
    assert all(rope.scaling is None and rope.base == 5e5 for rope in read.rotations.values())
    (finding,) = [each for each in examine(read.config).findings if each.name == "flat-block-dropped"]
    assert finding.level == "fault"
    mended, _ = corrected(read.config, guesses=True)
    assert mended["rope_parameters"][FULL] == FLAT
    assert read_rope(mended).rotations[FULL].scaling.factor == 8
    assert read_rope(mended).rotations[SLIDING].scaling is None
    default = examine({**OLMO_3, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}})
    assert default.healthy
    assert "flat-block-dropped" in {each.name for each in default.findings}


def test_versions_of_transformers_that_take_another_factor_are_named() -> None:
    """QwenLM/Qwen3#1424: 4.51 to 4.55 compute the factor from the two lengths, and the gain from that."""
    (text,) = [
        f.text for f in examine({**QWEN_3, "rope_scaling": YARN}).findings if f.name == "factor-and-lengths-differ"
    ]
    assert all(part in text for part in ("4.51 to 4.55", "1.25", "1.022", "131,072"))


def test_a_finding_of_remote_code_is_a_note() -> None:
    config = {**QWEN_3, "rope_theta": 1e4, "auto_map": {"AutoModelForCausalLM": "modeling.Mine"}}
    assert examine(config).healthy


def test_what_the_numbers_decide_is_an_alarm_under_remote_code_too() -> None:
    config = block_of(DEEPSEEK, mscale_all_dim=None)
    assert examine({**config, "auto_map": {"AutoConfig": "configuration.Mine"}}).names() == {"mscale-missing"}


def test_published_files_agree_with_the_table_of_releases() -> None:
    golden = json.loads(gzip.decompress((Path(__file__).parents[2] / "golden" / "config_corpus.json.gz").read_bytes()))
    published = [*golden, *(line["config"] for line in configs("published_configs"))]
    met = set()
    for config in published:
        try:
            text_config = find_text_config(config)
            read = read_rope(config)
        except (NotReadError, ValueError):
            continue
        release = release_like(text_config)
        if release is not None:
            met.add(text_config.model_type)
            names = {finding.name for finding in examine(read.config).findings}
            assert not names & {"base-below-releases", "scaling-lost", "original-length-below-releases"}, (
                text_config.model_type
            )
    assert len(met) >= len(RELEASES) * 2 // 3, set(RELEASES) - met


TRUE_OF_DEFAULTS = {"minimax_m2": {"share-lost"}}  # a class without the share of its releases


@pytest.mark.slow
def test_default_configurations_of_transformers_raise_no_alarm() -> None:
    auto = pytest.importorskip("transformers.models.auto.configuration_auto")
    examined, alarms = 0, {}
    for name in auto.CONFIG_MAPPING_NAMES:
        try:
            config = json.loads(auto.CONFIG_MAPPING[name]().to_json_string())
        except Exception:  # a class without defaults
            continue
        examined += 1
        names = examine(config).names()
        if names:
            alarms[name] = names
    assert examined > 300
    assert alarms == {name: names for name, names in TRUE_OF_DEFAULTS.items() if name in auto.CONFIG_MAPPING_NAMES}
