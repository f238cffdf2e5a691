"""Rules: each planted fault is alarmed by its name and nothing else is, published files are quiet, corrections mend."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path

import pytest

from posenc.hf import read_rope
from posenc.hf.config.rotation import equivalent
from posenc.hf.config.text_config import find_text_config
from posenc.hf.doctor import corrected, examine
from posenc.hf.findings import NotReadError
from posenc.hf.rules.case import RELEASES, release_like
from tests.golden import configs
from tests.hf.doctor.planted import (
    DEEPSEEK,
    FULL,
    HEALTHY,
    LLAMA_4,
    MENDED,
    NOTED,
    PLANTED,
    QWEN,
    QWEN_3,
    SILENT,
    SLIDING,
    YARN,
    Config,
    block_of,
    misspelt,
)  # fmt: skip
from tests.hf.doctor.reported import REPORTED, Reported, config_of, planted

OF_REPORTED = (  # the one alarm on each reported fault
    "base-lost", "base-below-releases", "base-below-releases", "base-below-releases", "version-5-spelling",
    "linear-over-llama3", "scaling-lost", "scaling-lost", "rotation-of-windows", "rotation-of-windows",
    "original-length-declared", "original-length-missing", "original-length-below-releases",
    "declared-beyond-releases", "recipe-differs", "mscale-missing", "mscale-alone", "key-of-an-engine",
    "short-factors-differ", "share-lost", "share-lost", "malformed", "share-lost", "sections-lost",
    "nope-layers-inverted", "nope-layers-lost", "unreadable", "layer-kinds-exchanged", "layer-orders-differ",
    "window-of-no-layer", "layer-orders-differ", "softmax-scale", "softmax-scale", "head-width-of-releases",
    "scaling-unread", "gguf-base-lost", "gguf-scaling-lost", "gguf-scaling-lost", "gguf-ext-factor",
    "original-length-declared",
)  # fmt: skip


@pytest.mark.parametrize(("names", "what", "config"), PLANTED, ids=[what for _, what, _ in PLANTED])
def test_planted_faults_are_found_and_nothing_else(names: set[str], what: str, config: Config) -> None:
    report = examine(config)
    assert report.names() == names, str(report)
    assert all(item.name in str(report) and item.text for item in report.findings)


@pytest.mark.parametrize(("fault", "name"), [*zip(REPORTED, OF_REPORTED, strict=True)], ids=OF_REPORTED)
def test_reported_faults_are_found_by_one_alarm_on_their_key(fault: Reported, name: str) -> None:
    report = examine(planted(fault))
    (alarm,) = [finding for finding in report.findings if finding.alarms]
    assert alarm.name == name
    assert alarm.key.rpartition(".")[2] in {key.rpartition(".")[2] for key in fault.keys}


def test_forty_faults_were_reported() -> None:
    assert len({fault.thread for fault in REPORTED}) == len(REPORTED) == 40


@pytest.mark.parametrize("model", sorted({fault.model for fault in REPORTED}))
def test_the_config_without_the_fault_is_quiet(model: str) -> None:
    report = examine(config_of(model))
    assert report.healthy, str(report)


@pytest.mark.parametrize("what", HEALTHY)
def test_what_decides_nothing_is_no_alarm(what: str) -> None:
    assert examine(HEALTHY[what]).names() == set(), str(examine(HEALTHY[what]))


@pytest.mark.parametrize(("name", "config"), SILENT, ids=[f"{name}-{i}" for i, (name, _) in enumerate(SILENT)])
def test_what_releases_have_is_no_finding(name: str, config: Config) -> None:
    report = examine(config)
    assert report.healthy, str(report)
    assert name not in {item.name for item in report.findings}


@pytest.mark.parametrize(("name", "config"), NOTED, ids=[name for name, _ in NOTED])
def test_notes_are_no_alarm(name: str, config: Config) -> None:
    report = examine(config)
    assert report.healthy, str(report)
    assert name in {item.name for item in report.findings}


@pytest.mark.parametrize("what", MENDED)
def test_what_can_be_mended_is(what: str) -> None:
    (config,) = [item for _, name, item in PLANTED if name == what]
    before = copy.deepcopy(config)
    mended, written = corrected(config)
    assert config == before
    assert written
    assert examine(mended).healthy
    assert equivalent(read_rope(mended).rope, read_rope(MENDED[what]).rope)


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
