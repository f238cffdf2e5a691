"""What the collators of trainers make of packed samples, by `check_collator` on a tiny Llama.

docs/howto/packed-sequences.md says the same. Each runs where its package is installed, which needs little of the rest.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from posenc.testing import check_collator

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

LENGTHS = (9, 14, 11)


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


def verdicts(collator: Any, given: list[dict[str, list[int]]] | None = None) -> tuple[str, ...]:
    """Of a collator's batch: the model as it is, and with use_cache=False, as under gradient checkpointing."""
    given = samples() if given is None else given
    return tuple(" ".join(check_collator(llama(use_cache=flag), collator, given).verdicts) for flag in (True, False))


def test_trl() -> None:
    sft = pytest.importorskip("trl.trainer.sft_trainer")
    collator = sft.DataCollatorForLanguageModeling
    assert verdicts(collator(pad_token_id=0)) == ("separate", "separate")  # a row for each sample
    assert verdicts(collator(pad_token_id=0, padding_free=True)) == ("leaks", "separate")

    def wrapped(rows: list[dict[str, list[int]]]) -> Any:  # packing_strategy="wrapped": samples joined, nothing said
        joined = {"input_ids": [token for row in rows for token in row["input_ids"]]}
        return collator(pad_token_id=0)([joined])

    assert verdicts(wrapped) == ("leaks labels cross", "leaks labels cross")


def test_axolotl() -> None:
    batching = pytest.importorskip("axolotl.utils.collators.batching")

    def collated(kind: Any) -> Any:
        return lambda rows: dict(kind(tokenizer=tokenizer())([rows]))

    # a mask that numbers the samples, which the patched attention of axolotl reads and transformers does not
    assert verdicts(collated(batching.V2BatchSamplerDataCollatorForSeq2Seq)) == ("leaks", "leaks")
    assert verdicts(collated(batching.BatchSamplerDataCollatorForSeq2Seq)) == ("leaks", "leaks")

    def without_mask(rows: list[dict[str, list[int]]]) -> Any:
        batch = dict(batching.V2BatchSamplerDataCollatorForSeq2Seq(tokenizer=tokenizer())([rows]))
        return {key: value for key, value in batch.items() if key != "attention_mask"}

    assert verdicts(without_mask) == ("leaks", "separate")


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

    assert verdicts(packed(False, False)) == ("leaks", "leaks")  # packing: true
    assert verdicts(packed(True, True)) == ("separate", "separate")  # neat_packing: true
