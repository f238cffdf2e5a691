"""A Trainer's first batch is checked, of sharded models too; twins of large models answer for them; collators.

docs/howto/packed-sequences.md says the same of collators as is found here where their packages are installed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from posenc.testing import BatchError, check_batch, check_collator
from posenc_cli import run

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
from posenc.hf.batches import PARAMETERS, CheckBatch, batch_of_all, twin_of  # noqa: E402

LENGTHS = (9, 14, 11)
PAGE = Path(__file__).parents[2] / "docs/howto/packed-sequences.md"
OPTIONS: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},  # these two have no attention by default
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 16},
    "llama": {"vocab_size": 100},  # and of these a twin keeps up to half a billion numbers of embeddings
    "bloom": {"vocab_size": 100},
    "qwen3_5_text": {"vocab_size": 100},
}


def packed(seed: int = 0) -> dict[str, torch.Tensor]:
    ids = torch.randint(5, 90, (1, sum(LENGTHS)), generator=torch.Generator().manual_seed(seed))
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


def samples() -> list[dict[str, list[int]]]:
    """Tokenized samples with the labels that a trainer would give them."""
    generator = torch.Generator().manual_seed(0)
    ids = [torch.randint(5, 90, (n,), generator=generator).tolist() for n in LENGTHS]
    return [
        {"input_ids": i, "labels": [-100, *i[1:]], "attention_mask": [1] * len(i), "position_ids": [*range(len(i))]}
        for i in ids
    ]


def llama(**options: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=97, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, **options
    )
    return transformers.LlamaForCausalLM(config).train()


def tokenizer() -> Any:
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<pad>": 0, "<unk>": 1}, unk_token="<unk>"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=model, pad_token="<pad>", padding_side="right")


def verdicts_of(collator: Any) -> tuple[str, ...]:
    """Of a collator's batch: the model as it is, and with use_cache=False, as under gradient checkpointing."""
    reports = (check_collator(llama(use_cache=flag), collator, samples()) for flag in (True, False))
    return tuple(" ".join(report.verdicts) for report in reports)


@pytest.mark.slow
def test_trl() -> None:
    sft = pytest.importorskip("trl.trainer.sft_trainer")
    collator = sft.DataCollatorForLanguageModeling
    assert verdicts_of(collator(pad_token_id=0)) == ("separate", "separate")  # a row for each sample
    assert verdicts_of(collator(pad_token_id=0, padding_free=True)) == ("leaks", "separate")

    def wrapped(rows: list[dict[str, list[int]]]) -> Any:  # packing_strategy="wrapped": samples joined, nothing said
        joined = {"input_ids": [token for row in rows for token in row["input_ids"]]}
        return collator(pad_token_id=0)([joined])

    assert verdicts_of(wrapped) == ("leaks labels cross", "leaks labels cross")


@pytest.mark.slow
def test_axolotl() -> None:
    batching = pytest.importorskip("axolotl.utils.collators.batching")

    def collated(kind: Any) -> Any:
        return lambda rows: dict(kind(tokenizer=tokenizer())([rows]))

    # a mask that numbers the samples, which the patched attention of axolotl reads and transformers does not
    assert verdicts_of(collated(batching.V2BatchSamplerDataCollatorForSeq2Seq)) == ("leaks", "leaks")
    assert verdicts_of(collated(batching.BatchSamplerDataCollatorForSeq2Seq)) == ("leaks", "leaks")

    def without_mask(rows: list[dict[str, list[int]]]) -> Any:
        batch = dict(batching.V2BatchSamplerDataCollatorForSeq2Seq(tokenizer=tokenizer())([rows]))
        return {key: value for key, value in batch.items() if key != "attention_mask"}

    assert verdicts_of(without_mask) == ("leaks", "separate")


@pytest.mark.slow
def test_llama_factory() -> None:
    module = pytest.importorskip("llamafactory.data.collator")

    def packed(numbered: bool, mask_by_samples: bool) -> Any:
        def collate(rows: list[dict[str, list[int]]]) -> Any:
            mask = [(i + 1 if numbered else 1) for i, row in enumerate(rows) for _ in row["input_ids"]]
            joined = {key: [n for row in rows for n in row[key]] for key in ("input_ids", "labels", "position_ids")}
            batch = {key: torch.tensor([value]) for key, value in (joined | {"attention_mask": mask}).items()}
            if mask_by_samples:
                batch["attention_mask"] = module.prepare_4d_attention_mask(batch["attention_mask"], torch.float32)
            return batch

        return collate

    assert verdicts_of(packed(False, False)) == ("leaks", "leaks")  # packing: true
    assert verdicts_of(packed(True, True)) == ("separate", "separate")  # neat_packing: true


def tell(rank: int, folder: str) -> None:
    from torch.distributed.fsdp import fully_shard

    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="0")
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    model = llama()
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    told = []
    for options in ({}, {"use_cache": False}):
        batch = batch_of_all(model, packed(seed=rank) | options)  # each process has documents of its own
        report = check_batch(model, batch)
        told.append([list(report.verdicts), batch["input_ids"].tolist(), list(report.checked)])
    (Path(folder) / f"{rank}.json").write_text(json.dumps(told))
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="needs torch.distributed, gloo")
def test_two_processes_with_half_the_parameters_each(tmp_path: Path) -> None:
    mp.spawn(tell, args=(str(tmp_path),), nprocs=2)  # type: ignore[no-untyped-call]
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first == second  # the batch of the first process, and what is told of it
    assert [verdicts for verdicts, *_ in first] == [["leaks"], ["separate"]]
    assert all(any("gradients" in said for said in checked) for *_, checked in first)
