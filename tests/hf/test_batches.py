"""posenc.hf.batches: a Trainer's first batch is checked, and twins of large models answer for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from posenc.testing import BatchError, check_batch
from posenc_cli import run

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
from posenc.hf.batches import PARAMETERS, CheckBatch, twin_of  # noqa: E402

LENGTHS = (9, 14, 11)
PAGE = Path(__file__).parents[2] / "docs/howto/packed-sequences.md"
OPTIONS: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},  # these two have no attention by default
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 16},
    "llama": {"vocab_size": 100},  # and of these a twin keeps up to half a billion numbers of embeddings
    "bloom": {"vocab_size": 100},
    "qwen3_5_text": {"vocab_size": 100},
}


def packed() -> dict[str, torch.Tensor]:
    ids = torch.randint(5, 90, (1, sum(LENGTHS)), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids, "position_ids": torch.cat([torch.arange(n) for n in LENGTHS])[None]}


def verdicts(model_type: str) -> tuple[str, ...]:
    """What a twin of a model type makes of packed rows: as they are, without a cache, with a mask of ones."""
    config = transformers.CONFIG_MAPPING[model_type](**OPTIONS.get(model_type, {}))
    model, batch = twin_of(config), packed()
    ones = {"attention_mask": torch.ones_like(batch["input_ids"])}
    ways: list[dict[str, Any]] = [{}, {"use_cache": False}, {"use_cache": False, **ones}]
    return tuple(" ".join(check_batch(model, batch | way).verdicts) for way in ways)


def table() -> dict[str, tuple[str, ...]]:
    """The page's table: model type to the verdicts of its three columns."""
    rows = [line.strip("| ").split("|") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    cells_by_name = {name.strip(" `"): tuple(cell.strip() for cell in cells) for name, *cells in rows}
    return {name: cells for name, cells in cells_by_name.items() if name in transformers.CONFIG_MAPPING}


@pytest.mark.parametrize("model_type", ["llama", "qwen3_5_text", "bloom"])
def test_the_page_says_which_model_types_leak(model_type: str) -> None:
    assert verdicts(model_type) == table()[model_type]


@pytest.mark.slow
def test_the_whole_table_of_the_page() -> None:
    assert {name: verdicts(name) for name in table()} == table()


def trainer(folder: Path, model: Any, collator: Any, **options: Any) -> Any:
    data = [{"input_ids": torch.randint(5, 90, (n,)).tolist()} for n in LENGTHS * 4]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=2,
        per_device_train_batch_size=3,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
    )
    return transformers.Trainer(
        model, arguments, train_dataset=data, data_collator=collator, callbacks=[CheckBatch(**options)]
    )


def test_a_run_with_a_leaking_collator_stops_before_its_first_step(tmp_path: Path) -> None:
    model = twin_of(transformers.LlamaConfig())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    flattening = transformers.DataCollatorWithFlattening()

    def leaking(samples: list[Any]) -> dict[str, torch.Tensor]:  # a mask of ones hides nothing and tells nothing apart
        batch = dict(flattening(samples))
        return batch | {"attention_mask": torch.ones_like(batch["input_ids"])}

    with pytest.raises(BatchError, match="Leave attention_mask out"):
        trainer(tmp_path, model, leaking).train()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    result = trainer(tmp_path, model, flattening, every=1).train()
    assert result.global_step == 2


def test_the_command_asks_a_twin_or_the_model_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = transformers.Qwen3NextConfig(vocab_size=1000, architectures=["Qwen3NextForCausalLM"])
    config.save_pretrained(tmp_path / "large")
    transformers.LlamaForCausalLM(
        transformers.LlamaConfig(vocab_size=100, hidden_size=32, num_hidden_layers=1, num_attention_heads=2)
    ).save_pretrained(tmp_path / "small")
    batch = packed()
    torch.save(batch, tmp_path / "batch.pt")
    lists = {key: value.tolist() for key, value in batch.items()}
    numbered = lists | {"use_cache": False, "document": ((batch["position_ids"] == 0).cumsum(-1) - 1).tolist()}
    (tmp_path / "batch.json").write_text(json.dumps(numbered))
    command = ["check-batch", str(tmp_path / "batch.pt"), "--json"]

    assert run([*command, "--config", str(tmp_path / "large")]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["verdicts"], told["twin"]) == (["leaks"], True)
    assert {"causal-conv1d", "fla", "flash-attn"} >= set(told["kernels_not_run"]) != set()
    assert run([*command, "--model", str(tmp_path / "small")]) == 1
    assert run([*command, "--model", str(tmp_path / "small"), "--no-cache", "--attention", "eager"]) == 0
    assert "eager" in json.loads(capsys.readouterr().out.split("}\n")[-2] + "}")["condition"]
    command[1] = str(tmp_path / "batch.json")
    assert run([*command, "--model", str(tmp_path / "small"), "--documents", "document"]) == 0
    assert json.loads(capsys.readouterr().out)["documents_by"] == "the argument documents"
    for wrong in ([*command, "--model", str(tmp_path / "none")], [*command, "--model", "x", "--documents", "no"]):
        assert run(wrong) == 2


def test_twins_are_small_and_of_the_models_class() -> None:
    llama = transformers.LlamaConfig(
        hidden_size=8192, num_hidden_layers=80, num_attention_heads=64, num_key_value_heads=8, intermediate_size=28672
    )
    twin = twin_of(llama)
    assert type(twin).__name__ == "LlamaForCausalLM"
    assert twin.config.num_hidden_layers == 2
    assert twin.config.head_dim == llama.head_dim == 128
    assert llama.num_hidden_layers == 80
    assert sum(parameter.numel() for parameter in twin.parameters()) < PARAMETERS / 40
    hybrid = twin_of(transformers.Qwen3NextConfig())
    assert sorted(hybrid.config.layer_types) == ["full_attention", "linear_attention"]
    with pytest.raises(ValueError, match="every"):
        CheckBatch(every=0)
