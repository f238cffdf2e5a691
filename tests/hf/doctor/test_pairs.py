"""Two programs, or two models, of one rotation: trainer and engine, draft and target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import posenc_cli
from posenc.hf import extend_config, read_rope
from posenc.hf.doctor.pairs import AGREEING_TRAINERS, examine_agreement, examine_draft
from posenc.hf.serving.lines import ENGINES
from tests.hf.extend.ten_models import PUBLISHED

LLAMA = {"model_type": "llama", "head_dim": 128, "num_hidden_layers": 2, "rope_theta": 5e5,
         "max_position_embeddings": 131072}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096}
LLAMA3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 4096}  # fmt: skip
HEAD = {**LLAMA, "num_hidden_layers": 1, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 32000}


def scaled(config: dict[str, Any], block: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A config with a block in version 5's spelling."""
    rest = {key: value for key, value in config.items() if key != "rope_theta"}
    return {**rest, "rope_parameters": {"rope_theta": config["rope_theta"], **block}, **more}


@pytest.mark.parametrize(
    ("config", "trainer", "engine", "names"),
    [
        (LLAMA, "transformers", "vllm", set()),
        (scaled(LLAMA, YARN), "transformers", "vllm", set()),
        (scaled(LLAMA, YARN), "trl", "sglang", set()),
        # SGLang leaves out attention_factor: what is sampled has another gain than what is trained.
        (scaled(LLAMA, {**YARN, "attention_factor": 1.0}), "transformers", "sglang", {"rotation-differs"}),
        (scaled(LLAMA, {**YARN, "attention_factor": 1.0}), "transformers", "vllm", set()),
        (scaled(LLAMA, {**YARN, "attention_factor": 1.0}), "transformers", "transformers", set()),
        # vLLM gives short texts the long factors, too, where more than the original length is served.
        (PUBLISHED["microsoft/Phi-3-mini-128k-instruct"], "transformers", "vllm", {"rotation-differs"}),
        (PUBLISHED["XiaomiMiMo/MiMo-V2-Flash"], "transformers", "vllm", set()),
        # vLLM's class of MiMo-V2 hands the base alone on.
        (
            extend_config(PUBLISHED["XiaomiMiMo/MiMo-V2-Flash"], 2**20).config,
            "trl",
            "vllm",
            {"rotation-differs", "not-measured"},
        ),
        (PUBLISHED["mistralai/Ministral-3-14B-Instruct-2512"], "transformers", "vllm", {"read-otherwise"}),
        (scaled(LLAMA, LLAMA3), "torchtitan", "vllm", set()),
        (scaled(LLAMA, YARN), "litgpt", "vllm", {"rotation-differs"}),
        (scaled(LLAMA, YARN), "torchtitan", "vllm", {"not-measured"}),
        (scaled(LLAMA, {**LLAMA3, "low_freq_factor": 2.0}), "megatron", "vllm", {"rotation-differs"}),
        (scaled(LLAMA, YARN), "megatron", "vllm", set()),
        ({**LLAMA, "model_type": "sparrow"}, "transformers", "vllm", {"not-measured"}),
    ],
)
def test_trainer_and_engine(config: dict[str, Any], trainer: str, engine: str, names: set[str]) -> None:
    report = examine_agreement(read_rope(config), trainer, engine)
    assert report.names() == names
    assert report.exit_code() == (1 if "rotation-differs" in names else 3 if names else 0)
    assert ("same-rotation" in {finding.name for finding in report.findings}) == (not names)


@pytest.mark.parametrize("trainer", AGREEING_TRAINERS)
@pytest.mark.parametrize("engine", ENGINES)
def test_every_pair_has_an_answer(trainer: str, engine: str) -> None:
    assert examine_agreement(read_rope(LLAMA), trainer, engine).findings
    for wrong in ((engine, "vllm", "trainer"), ("trl", trainer, "engine")):
        if wrong[0] not in AGREEING_TRAINERS or wrong[1] not in ENGINES:
            with pytest.raises(ValueError, match=f"{wrong[2]} must be one of"):
                examine_agreement(read_rope(LLAMA), *wrong[:2])


@pytest.mark.parametrize(
    ("draft", "target", "names"),
    [
        (HEAD, LLAMA, set()),
        (scaled(HEAD, YARN), scaled(LLAMA, YARN), set()),
        ({**HEAD, "max_position_embeddings": 2048}, LLAMA, {"draft-too-short"}),
        ({**LLAMA, "max_position_embeddings": 2048}, LLAMA, {"draft-too-short"}),
        ({**HEAD, "rope_theta": 1e4}, LLAMA, {"draft-base-differs"}),
        ({**LLAMA, "rope_theta": 1e4}, LLAMA, set()),  # a model of its own has a base of its own
        (HEAD, scaled(LLAMA, YARN), {"draft-scaling-lost"}),
        (scaled(HEAD, {**YARN, "factor": 64.0}), scaled(LLAMA, YARN), {"draft-scaling-differs"}),
        (scaled(HEAD, LLAMA3), scaled(LLAMA, YARN), {"draft-scaling-differs"}),
        ({**HEAD, "rope_theta": 1e4, "max_position_embeddings": 2048}, scaled(LLAMA, YARN),
         {"draft-too-short", "draft-base-differs", "draft-scaling-lost"}),
        (HEAD, {**LLAMA, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "model_type": "qwen2_vl"},
         {"draft-sections-differ"}),
        ({key: value for key, value in HEAD.items() if key != "max_position_embeddings"}, LLAMA,
         {"draft-length-unknown"}),
    ],
)  # fmt: skip
def test_draft_and_target(draft: dict[str, Any], target: dict[str, Any], names: set[str]) -> None:
    report = examine_draft(read_rope(draft), read_rope(target))
    assert report.names() == names
    assert report.exit_code() == (1 if "draft-too-short" in names else 3 if names else 0)
    fits = {finding.name for finding in report.findings} & {"draft-length-fits"}
    assert bool(fits) == (not names & {"draft-too-short", "draft-length-unknown"})


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for name, config in (("target", scaled(LLAMA, YARN)), ("draft", {**HEAD, "max_position_embeddings": 2048})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
        paths.append(str(tmp_path / name))
    target, draft = paths
    assert posenc_cli.run(["doctor", target, "--draft", draft, "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert {finding["name"] for finding in record["findings"]} == {"draft-too-short", "draft-scaling-lost"}
    assert record["subject"] == "a draft head for llama"
    assert posenc_cli.run(["doctor", target, "--draft", draft, "--accept", "draft-too-short"]) == 3
    capsys.readouterr()
    assert posenc_cli.run(["doctor", target, "--trainer", "trl", "--engine", "vllm", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["healthy"]
    for words in ([target, "--trainer", "trl"], [target, "--draft", draft, "--engine", "vllm"], ["--draft", draft]):
        assert posenc_cli.run(["doctor", *words]) == 2
