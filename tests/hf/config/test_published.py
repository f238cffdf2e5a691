"""Configurations as people publish them: what is told of them, and no alarm that the file does not deserve."""

from __future__ import annotations

import gzip
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from posenc import RoPE
from posenc.hf import read_rope
from posenc.hf.config.rotation import text_rope
from posenc.hf.doctor import examine
from posenc.hf.explanation.report import as_text, explain, facts
from posenc.hf.findings import NotReadError
from tests.golden import configs

GOLDEN = Path(__file__).parents[2] / "golden"
PUBLISHED = configs("published_configs")
UNUSUAL = {line["name"]: line["config"] for line in configs("unusual_configs")}
CODE_OF_THEIR_OWN = {"THUDM/glm-4-9b-chat", "baichuan-inc/Baichuan2-7B", "microsoft/Phi-3-small"}  # no key is read
SCALINGS = {"yarn": "YaRN", "llama3": "Llama3", "longrope": "LongRoPE", "proportional": "Proportional",
            "dynamic": "DynamicNTK", "hunyuan": "NTKAware"}  # fmt: skip
KEYS = {"original": "original_length", "original_max_position_embeddings": "original_length"}
ATTENDING = ("window", "softmax_scale")
# Files in which something is wrong, which was looked at: a model type whose code rotates all channels of a head though
# the model rotates half of them, a sentence in the place of a list; a base that is missing, a length with two digits
# exchanged.
ALARMS = {
    "mixtral: MiniMax-M2-AWQ": (1, {"share-ignored"}),
    "gemma2: layer_types in words": (1, {"unreadable"}),
    "qwen3_5: without a base": (3, {"base-lost"}),
    "minicpmv: MiniCPM-V-4": (3, {"original-length-not-below"}),
}
NOT_READ = {
    "llava: v1.5-7b", "csm: thomasgauthier/csm-1b-hf", "qwen2_vl: GOT-OCR2 mirror", "informer: tourism-monthly",
    "seamless_m4t: medium", "blt: itazap/blt-1b-hf", "deepseek_v2: tiny-random",
}  # fmt: skip


def cases() -> list[Any]:
    return [pytest.param(line["config"], line["facts"], id=line["model"]) for line in PUBLISHED]


def kinds_named(name: str | None, kinds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The kinds of layers that a line of the facts is about; without a name of one: all that attend."""
    named = [kind for kind in kinds if kind["kind"] == name]
    assert named or name in (None, "all", "full_attention", "main", "compress"), f"no layers of {name}"
    return named or [kind for kind in kinds if kind["attends"] and (kind["rotates"] or name == "all")]


def check_rotation(fact: dict[str, Any], rope: RoPE, true: dict[str, Any], *, known: bool) -> None:
    for key, name in (("base", "base"), ("rotary_channels", "rotary_dim"), ("head_dim", "head_dim"), ("gain", "gain")):
        if key in true:
            assert math.isclose(fact[name], true[key], rel_tol=1e-5), key
    assert fact["layout"] == true.get("layout", fact["layout"])
    sections = fact["sections"] and sorted(axis["pairs"] for axis in fact["sections"]["axes"].values())
    if true.get("mrope_section") is not None:
        assert sections == sorted(true["mrope_section"])
    scaling = true.get("scaling")
    if not known and isinstance(scaling, str):  # a key that the model's own code reads
        return
    assert (scaling is None) == (rope.scaling is None)
    if scaling is not None:
        name = "hunyuan" if "alpha" in scaling else scaling.get("rope_type", scaling.get("type"))
        assert type(rope.scaling).__name__ == SCALINGS[name]
        for key, value in scaling.items():
            number = getattr(rope.scaling, KEYS.get(key, key), None)
            if isinstance(number, int | float) and isinstance(value, int | float) and name != "hunyuan":
                assert math.isclose(number, value, rel_tol=1e-6), key


def check_layers(kinds: list[dict[str, Any]], true: dict[str, Any]) -> None:
    for key in ATTENDING:
        for name, value in true.get(key, {}).items():
            for kind in kinds_named(name, kinds):
                if isinstance(value, str):  # "512 = 256 before and 256 after (attention_window)"
                    before, after = map(int, re.findall(r"(\d+) (?:before|after)", value))
                    assert (kind["window"], kind["ahead"]) == (before + 1, after)
                elif kind[key] is None or value is None:
                    assert kind[key] is None or key == "window", (key, name)
                    assert value is None or key == "softmax_scale", (key, name)
                else:
                    assert math.isclose(kind[key], value, rel_tol=1e-4), (key, name)

    def numbers(has: Any) -> list[int]:
        return sorted(n for kind in kinds if has(kind) for n in kind["layers"])

    both = true["bidirectional"]
    if isinstance(both, dict):  # encoder and decoder, each numbered from 0; the label counts the encoder's layers
        counts = {half: len(kinds_named(half, kinds)[0]["layers"]) for half in both}
        assert counts == {"encoder": true["layers"], "decoder": true.get("layers_of_decoder", true["layers"])}
    count = len(numbers(lambda kind: not isinstance(both, dict)))
    if count:  # files without a count are not told by number
        assert count == (true.get("layers") or count)
        for key, has in (
            ("layers_without_attention", lambda kind: not kind["attends"]),
            ("attention_layers", lambda kind: kind["attends"]),
            ("cross_attention_layers", lambda kind: kind["kind"] == "cross_attention"),
        ):
            assert numbers(has) == true.get(key, numbers(has)), key
        still = numbers(lambda kind: not kind["rotates"])
        assert still == true.get("no_rotation", still)
    for kind in kinds:
        if kind["attends"] and kind["causal"] is not None:
            assert kind["causal"] is not (both[kind["kind"]] if isinstance(both, dict) else both)


def check_encodings(fact: dict[str, Any], true: dict[str, Any]) -> None:
    """Learned tables with their rows, T5's buckets, temperatures, the keys that an indexer picks."""
    encodings, kinds = fact["encodings"], fact["schedule"]["kinds"]
    if "table_length" in true:
        table = true["table_length"]
        rows = table if isinstance(table, dict) else {"rows": table, "usable": table}
        assert [(item["rows"], item["positions"]) for item in encodings] == [(rows["rows"], rows["usable"])]
    if "other_encoding" in true:
        name, *numbers = re.split(r" in attention|,| bias", true["other_encoding"])
        assert any(name.lower() in item["text"].lower() for item in encodings)
        if name == "T5":
            buckets, distance = map(int, re.findall(r"\d+", " ".join(numbers)))
            assert [(item["buckets"], item["max_distance"]) for item in encodings] == [(buckets, distance)]
    texts = {kind["temperature"]["text"] for kind in kinds if kind["temperature"] is not None}
    assert texts == ({true["temperature"]} if "temperature" in true else set())
    picked = re.findall(r"index_topk (\d+)", true.get("other", ""))
    assert not picked or {kind["index_topk"] for kind in kinds} == {int(picked[0])}


@pytest.mark.parametrize(("config", "true"), cases())
def test_what_is_told_is_what_the_code_computes(
    config: dict[str, Any], true: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    if any(f"[{name}]" in request.node.name for name in CODE_OF_THEIR_OWN):
        with pytest.raises(NotReadError):
            read_rope(config)
        return
    read = read_rope(config)
    described = facts(read)
    known = "unknown-family" not in {finding["name"] for finding in described["findings"]}
    kinds = described["schedule"]["kinds"]
    assert described["schedule"]["problem"] is None
    for line in true["rotation"]:
        kind = line.get("kind")
        named = (
            [kind]
            if kind in described["layers"]
            else [name for name, item in described["layers"].items() if item is not None]
        )
        if not line["rotates"]:
            assert described["layers"].get(kind) is None
            assert not any(item["rotates"] for item in kinds_named(kind, kinds))
            continue
        assert any(item["rotates"] for item in kinds_named(kind, kinds))
        for name in named:
            check_rotation(described["layers"][name], text_rope(read.layers[name]), line, known=known)
    if not true["rotation"]:
        assert not any(item["rotates"] for item in kinds)
        assert all(item is None for item in described["layers"].values())
    if "layout" in true:
        assert {item["layout"] for item in described["layers"].values() if item is not None} <= {true["layout"]}
    check_layers(kinds, true)
    check_encodings(described, true)


@pytest.mark.parametrize(("config", "true"), cases())
def test_a_healthy_model_raises_no_alarm(config: dict[str, Any], true: dict[str, Any]) -> None:
    report = examine(config)
    assert report.exit_code() == (0 if report.is_read else 3), report
    assert not any(finding.certain for finding in report.findings)


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_files_are_read_or_refused_in_a_line(name: str) -> None:
    report = examine(UNUSUAL[name])
    code, names = ALARMS.get(name, (0 if report.is_read else 3, set()))
    assert report.exit_code() == code, report
    assert {finding.name for finding in report.findings if finding.level != "note"} == names
    assert all(finding.corrected is None for finding in report.findings)  # an advised base, above all
    if name in NOT_READ:
        with pytest.raises(NotReadError) as error:
            read_rope(UNUSUAL[name])
        assert "\n" not in str(error.value)
    elif names == {"unreadable"}:
        with pytest.raises(ValueError, match=r"^layer_types .*$"):
            read_rope(UNUSUAL[name])
    else:
        assert as_text(read_rope(UNUSUAL[name]))


def test_models_without_attention_attend_to_nothing() -> None:
    for name, count in (("mamba: 130m", 24), ("efficientnet: b7", 0)):
        kinds = facts(read_rope(UNUSUAL[name]))["schedule"]["kinds"]
        assert not any(kind["attends"] for kind in kinds)
        assert sum(len(kind["layers"]) for kind in kinds) == count


@pytest.mark.parametrize("name", ["led", "longt5", "bigbird_pegasus"])
def test_sparse_attention_is_the_encoders(name: str) -> None:
    config = {"model_type": name, "hidden_size": 64, "num_attention_heads": 4}
    kinds = facts(read_rope({**config, "encoder_attention_type": "transient-global"}))["schedule"]["kinds"]
    assert {kind["kind"]: kind["not_read"] is not None for kind in kinds} == {"encoder": True, "decoder": False}
    windows = {"led": (257, 256), "longt5": (128, 127), "bigbird_pegasus": (None, 0)}
    assert [(kind["window"], kind["ahead"]) for kind in kinds] == [windows[name], (None, 0)]


def test_numbers_for_each_stage_are_no_fault_of_the_schedule() -> None:
    for name in ("pvt: tiny-224", "lxmert: vqa-uncased"):
        assert facts(read_rope(UNUSUAL[name]))["schedule"]["problem"] is None


def test_a_stray_base_rotates_nothing() -> None:
    for name, layers in (("nemotron_h: 4B-Base-8K", [7, 18, 29, 40]), ("nemotron_h: with a rope_theta", None)):
        described = facts(read_rope(UNUSUAL[name]))
        kinds = [kind for kind in described["schedule"]["kinds"] if kind["attends"]]
        assert not any(kind["rotates"] for kind in kinds)
        if layers is not None:
            assert [kind["layers"] for kind in kinds] == [layers]
            assert kinds[0]["softmax_scale"] == pytest.approx(128**-0.5)


@pytest.mark.parametrize(
    ("model", "kind", "window"),
    [
        ("mistralai/Mistral-7B-v0.1", "all", 4096), ("google/embeddinggemma-300m", "sliding_attention", 257),
        ("answerdotai/ModernBERT-base", "sliding_attention", 65), ("google/gemma-2-9b", "all", None),
        ("XiaomiMiMo/MiMo-V2-Flash", "sliding_attention", 129), ("deepseek-ai/DeepSeek-V4-Flash", "main", 128),
        ("deepseek-ai/DeepSeek-V4-Flash", "compress", None),
    ],
)  # fmt: skip
def test_the_window_of_a_rotation_is_that_of_its_layers(model: str, kind: str, window: int | None) -> None:
    config = next(line["config"] for line in PUBLISHED if line["model"] == model)
    assert facts(read_rope(config))["layers"][kind]["window"] == window


def test_a_second_length_of_an_unknown_family_is_named() -> None:
    (config,) = (line["config"] for line in PUBLISHED if line["model"] == "Qwen/Qwen-7B")
    text = " ".join(as_text(read_rope(config)).split())
    assert "seq_length = 8,192 is not read, and max_position_embeddings = 32,768 is" in text
    same = as_text(read_rope({**config, "seq_length": config["max_position_embeddings"]}))
    assert "seq_length" not in same


# One published config.json of each of some 300 model types

CORPUS: list[dict[str, Any]] = json.loads(gzip.decompress((GOLDEN / "config_corpus.json.gz").read_bytes()))
# A configuration whose layer_types is a sentence, and one of another family under the name "mixtral".
TRUE_FAULTS = {"gemma2": "unreadable", "mixtral": "share-ignored"}


def test_every_model_type_is_read_or_refused_in_one_line() -> None:
    assert len(CORPUS) > 250
    for config in CORPUS:
        model_type = str(config.get("model_type"))
        report = examine(config)
        faults = {finding.name for finding in report.findings if finding.level == "fault"}
        assert faults <= {TRUE_FAULTS.get(model_type)}, (model_type, faults)
        text = read_or_refused(config)
        assert text, model_type
        assert not re.search(r"(add|write|give) rope_theta", text), (
            f"{model_type}: no base is advised of what is unknown"
        )


def read_or_refused(config: dict[str, Any]) -> str:
    """What is explained of a configuration, or the one line of its refusal."""
    try:
        read = read_rope(config)
        json.loads(explain(read).json())
    except ValueError as error:
        return "" if "\n" in str(error) else str(error)
    return as_text(read)
