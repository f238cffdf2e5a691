"""Limits in the files next to a configuration: above a table, below the context, and their correction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from posenc.hf.doctor import examine, fix
from tests.hf.doctor.planted import Config, llama

LLAMA: Config = {**llama({}, rope_scaling=None), "max_position_embeddings": 131072}
BERT: Config = {"model_type": "bert", "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 512}
ROBERTA: Config = {**BERT, "model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}
GPT2: Config = {"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_positions": 1024}
OPT: Config = {"model_type": "opt", "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 2048}
LED: Config = {
    "model_type": "led", "d_model": 64, "max_encoder_position_embeddings": 16384,
    "max_decoder_position_embeddings": 1024,
}  # fmt: skip
WHISPER: Config = {
    "model_type": "whisper", "d_model": 64, "max_source_positions": 1500, "max_target_positions": 448,
}  # fmt: skip
TOKENIZER, GENERATION, SENTENCE = "tokenizer_config.json", "generation_config.json", "sentence_bert_config.json"


def truncation(length: int) -> Config:
    return {"direction": "Right", "max_length": length, "strategy": "LongestFirst", "stride": 0}


def tokenizer(**settings: Any) -> Config:
    return {"version": "1.0", "truncation": None, "padding": None, **settings, "model": {"vocab": {"a": 0}}}


def folder(path: Path, config: Config, **files: Any) -> Path:
    path.mkdir()
    for name, content in {"config": config, **files}.items():
        (path / f"{name.removesuffix('.json')}.json").write_text(json.dumps(content))
    return path


Planted = tuple[str, str, Config, str, Config, str]
PLANTED: list[Planted] = [  # finding, level, configuration, file, its content, what it is
    ("tokenizer-length-beyond-table", "fault", BERT, TOKENIZER, {"model_max_length": 1024}, "BERT's 512 rows"),
    ("tokenizer-length-beyond-table", "fault", ROBERTA, TOKENIZER, {"model_max_length": 514}, "RoBERTa's 514 rows"),
    ("tokenizer-length-beyond-table", "fault", OPT, TOKENIZER, {"model_max_length": 2050}, "OPT's 2,050 rows"),
    ("tokenizer-length-beyond-table", "fault", GPT2, TOKENIZER, {"max_len": 2048}, "GPT-2's 1,024 rows, an old key"),
    ("tokenizer-length-below", "suspicion", LLAMA, TOKENIZER, {"model_max_length": 8192}, "below the context"),
    ("tokenizer-length-beyond", "note", LLAMA, TOKENIZER, {"model_max_length": 262144}, "beyond the context"),
    ("tokenizer-length-beyond", "note", WHISPER, TOKENIZER, {"model_max_length": 1024}, "Whisper as published"),
    ("tokenizer-length-below", "suspicion", LLAMA, "tokenizer.json", tokenizer(truncation=truncation(512)), "cut"),
    ("tokenizer-length-beyond-table", "fault", BERT, "tokenizer.json", tokenizer(truncation=truncation(1024)), "cut"),
    ("generation-length-beyond", "suspicion", LLAMA, GENERATION, {"max_length": 262144}, "beyond the context"),
    ("generation-length-beyond", "fault", WHISPER, GENERATION, {"max_length": 512}, "Whisper's 448 positions"),
    ("generation-length-beyond", "fault", LED, GENERATION, {"max_length": 16384}, "the decoder's table"),
    ("sentence-length-beyond", "fault", ROBERTA, SENTENCE, {"max_seq_length": 514}, "RoBERTa's 514 rows"),
    ("sentence-length-beyond", "suspicion", LLAMA, SENTENCE, {"max_seq_length": 262144}, "beyond the context"),
    ("sentence-length-below", "suspicion", LLAMA, SENTENCE, {"max_seq_length": 512}, "far below"),
    ("sentence-length-below", "note", BERT, SENTENCE, {"max_seq_length": 256}, "all-MiniLM-L6-v2 as published"),
]  # fmt: skip
HEALTHY: list[tuple[str, Config, str, Config]] = [
    ("no limit", LLAMA, TOKENIZER, {"model_max_length": int(1e30)}),
    ("RoBERTa as published", ROBERTA, TOKENIZER, {"model_max_length": 512}),
    ("OPT's positions", OPT, TOKENIZER, {"model_max_length": 2048}),
    ("LED's encoder", LED, TOKENIZER, {"model_max_length": 16384}),
    ("T5 has no table", {"model_type": "t5", "d_model": 64}, TOKENIZER, {"model_max_length": 512}),
    ("nothing in tokenizer.json", BERT, "tokenizer.json", tokenizer()),
    ("truncation at the table", BERT, "tokenizer.json", tokenizer(truncation=truncation(512))),
    ("no limit as a float", LLAMA, TOKENIZER, {"model_max_length": 1e30}),
    ("a short generation", LLAMA, GENERATION, {"max_length": 4096, "max_new_tokens": 2048}),
    ("Whisper's own", WHISPER, GENERATION, {"max_length": 448}),
    ("no max_seq_length", BERT, SENTENCE, {"max_seq_length": None}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "level", "config", "file", "content", "what"), PLANTED, ids=[f"{line[0]}: {line[-1]}" for line in PLANTED]
)
def test_limits_that_contradict_the_configuration(
    name: str, level: str, config: Config, file: str, content: Config, what: str, tmp_path: Path
) -> None:
    report = examine(folder(tmp_path / "model", config, **{file: content}))
    findings = {finding.name: finding for finding in report.findings if finding.alarms or finding.name == name}
    assert {*findings} == {name}, str(report)
    assert findings[name].level == level
    assert file in findings[name].text, "the finding says in which file the key stands"
    assert file in " ".join(report.checked)


@pytest.mark.parametrize(("what", "config", "file", "content"), HEALTHY, ids=[line[0] for line in HEALTHY])
def test_what_agrees_is_no_finding(what: str, config: Config, file: str, content: Config, tmp_path: Path) -> None:
    report = examine(folder(tmp_path / "model", config, **{file: content}))
    assert report.healthy, str(report)


@pytest.mark.parametrize(
    ("config", "file", "content", "right"),
    [
        (ROBERTA, TOKENIZER, {"model_max_length": 514, "do_lower_case": False},
         {"model_max_length": 512, "do_lower_case": False}),
        (WHISPER, GENERATION, {"max_length": 512, "num_beams": 5}, {"max_length": 448, "num_beams": 5}),
        (ROBERTA, SENTENCE, {"max_seq_length": 514, "do_lower_case": True},
         {"max_seq_length": 512, "do_lower_case": True}),
    ],
)  # fmt: skip
def test_fix_writes_what_the_table_decides(
    config: Config, file: str, content: Config, right: Config, tmp_path: Path
) -> None:
    source = folder(tmp_path / "model", config, **{file: content})
    assert fix(source, tmp_path / "fixed")
    assert json.loads((tmp_path / "fixed" / file).read_text()) == right
    assert json.loads((source / file).read_text()) == content, "the original stays"
    assert examine(tmp_path / "fixed").healthy


def test_a_limit_below_is_raised_on_request(tmp_path: Path) -> None:
    source = folder(tmp_path / "model", LLAMA, **{TOKENIZER: {"model_max_length": 8192}})
    assert fix(source, tmp_path / "fixed") == []
    fix(source, tmp_path / "fixed", guesses=True)
    assert json.loads((tmp_path / "fixed" / TOKENIZER).read_text()) == {"model_max_length": 131072}


def test_the_configuration_is_corrected_before_its_side_files(tmp_path: Path) -> None:
    """A table's limit follows from the corrected length, so the tokenizer's then agrees and stays."""
    config = {"model_type": "llama", "head_dim": 64, "max_position_embedings": 131072, "rope_theta": 1e6,
              "max_position_embeddings": None}  # fmt: skip
    source = folder(tmp_path / "model", config, **{GENERATION: {"max_length": 131072}})
    fix(source, tmp_path / "fixed", guesses=True)
    assert json.loads((tmp_path / "fixed" / "config.json").read_text())["max_position_embeddings"] == 131072
    assert json.loads((tmp_path / "fixed" / GENERATION).read_text()) == {"max_length": 131072}


def test_nothing_is_certain_beside_code_of_the_folder(tmp_path: Path) -> None:
    config = {**BERT, "auto_map": {"AutoModel": "modeling.Mine"}}
    source = folder(tmp_path / "model", config, **{TOKENIZER: {"model_max_length": 1024}})
    assert not any(finding.certain for finding in examine(source).findings)


@pytest.mark.parametrize("content", ["", "[1]", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"])
def test_files_that_cannot_be_read_are_noted_and_pointers_alarmed(content: str, tmp_path: Path) -> None:
    source = folder(tmp_path / "model", BERT)
    for file in ("tokenizer.json", TOKENIZER):
        (source / file).write_text(content)
    report = examine(source)
    assert report.healthy == (not content.startswith("version")), "behind a pointer is a file that was not fetched"
    assert {finding.name for finding in report.findings} == {"other-file-unread"}
    assert {finding.key for finding in report.findings} == {"tokenizer.json", TOKENIZER}
