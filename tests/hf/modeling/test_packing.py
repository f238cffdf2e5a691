"""Documents packed in a row give what each gives alone, in whatever way a collator tells them apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("transformers")

from transformers import DataCollatorWithFlattening, Trainer, TrainingArguments

from posenc.hf.modeling import PosencForCausalLM
from tests.hf.modeling.test_modeling import ENCODINGS, MIXES, STATEFUL, cached, close, held, in_parts, make
from tests.samples import mostly_slow

NAMED = [encodings for encodings in ENCODINGS if isinstance(encodings, str)]
LENGTHS = (7, 1, 5)
FEATURES = [
    {"input_ids": torch.randint(1, 256, (n,), generator=torch.Generator().manual_seed(n)).tolist()} for n in LENGTHS
]
TEXTS = [torch.tensor([feature["input_ids"]]) for feature in FEATURES]
FLAT, STARTS = torch.cat(TEXTS, 1), torch.tensor([0, 7, 8, 13], dtype=torch.int32)
PLACES = torch.cat([torch.arange(n) for n in LENGTHS])[None]
DOCUMENTS = torch.repeat_interleave(torch.arange(3), torch.tensor(LENGTHS))[None]


def of_trl(padded_to: int = 0) -> dict[str, Any]:
    """What trl's padding-free collator returns; a row that is filled up ends in documents of one token."""
    more = max(padded_to - 13, 0)
    places, ids = (nn.functional.pad(part, (0, more)) for part in (PLACES, FLAT))
    starts = torch.cat([(places[0] == 0).nonzero().flatten(), torch.tensor([places.shape[1]])]).int()
    labels = torch.where(places == 0, -100, ids)
    return {
        "input_ids": ids, "labels": labels, "position_ids": places, "cu_seq_lens_q": starts, "cu_seq_lens_k": starts,
        "max_length_q": 7, "max_length_k": 7, "seq_idx": ((places == 0).cumsum(1) - 1).int(),
    }  # fmt: skip


def alone(model: PosencForCausalLM, texts: list[Tensor] = TEXTS) -> Tensor:
    """Logits of the documents, each called by itself, in one row."""
    return torch.cat([model(ids, use_cache=False).logits for ids in texts], 1)


@torch.no_grad()
@pytest.mark.parametrize("encodings", mostly_slow(NAMED, *STATEFUL, *MIXES))
def test_documents_of_a_row_are_apart(encodings: str) -> None:
    model = make(encodings)
    expected, ones = alone(model), torch.ones(1, 13, dtype=torch.long)
    cache = {"use_cache": True} if not model.model.rotates_cached_keys_anew() else {}
    for batch in (
        DataCollatorWithFlattening()(FEATURES),
        {"input_ids": FLAT, "position_ids": PLACES, "attention_mask": ones},
        {"input_ids": FLAT, "position_ids": PLACES, **cache},
        DataCollatorWithFlattening(return_position_ids=False, return_flash_attn_kwargs=True)(FEATURES),
        DataCollatorWithFlattening(return_position_ids=False, return_seq_idx=True)(FEATURES),
        of_trl(),
    ):
        close(model(**batch).logits, expected)
    close(model(**of_trl(padded_to=16)).logits[:, :13], expected)


@torch.no_grad()
@pytest.mark.parametrize("encodings", mostly_slow(NAMED, *STATEFUL, *MIXES))
def test_a_row_goes_on_with_its_last_document(encodings: str) -> None:
    model = cached(encodings)
    expected = alone(model)
    for first in ({"position_ids": PLACES[:, :10]}, {"seq_idx": DOCUMENTS[:, :10]}):
        close(in_parts(model, FLAT, [10, 11, 12], "cache", **first), expected)
    cache = held(model(FLAT[:, :8], position_ids=PLACES[:, :8], use_cache=True))
    rest = model(FLAT[:, 8:], position_ids=PLACES[:, 8:], past_key_values=cache)
    close(rest.logits, expected[:, 8:])  # a document of its own behind the two of the cache


@torch.no_grad()
@pytest.mark.parametrize("encodings", ["rope", "alibi", "fox", "learned", "t5+rope", "path", "rope@6/alibi:2"])
def test_padding_and_rows_with_documents_of_their_own(encodings: str) -> None:
    model = make(encodings)
    rows = torch.cat([FLAT, FLAT.flip(1)])
    places = torch.cat([PLACES, torch.cat([torch.arange(9), torch.arange(4)])[None]])
    reversed_texts = [FLAT.flip(1)[:, :9], FLAT.flip(1)[:, 9:]]
    expected = torch.cat([alone(model), alone(model, reversed_texts)])
    close(model(rows, position_ids=places).logits, expected)
    pads = torch.zeros(2, 3, dtype=torch.long)
    mask = torch.cat([pads, torch.ones_like(rows)], 1)
    for fill in (0, 1):
        behind = torch.cat([pads + fill, places], 1)
        result = model(torch.cat([pads, rows], 1), attention_mask=mask, position_ids=behind).logits
        close(result[:, 3:], expected)
    between = torch.cat([rows[:, :3], pads, rows[:, 3:]], 1), torch.cat([places[:, :3], pads, places[:, 3:]], 1)
    mask = torch.cat([torch.ones(2, 3), pads, torch.ones(2, 10)], 1)
    result = model(between[0], attention_mask=mask, position_ids=between[1]).logits
    close(torch.cat([result[:, :3], result[:, 6:]], 1), expected)


@torch.no_grad()
def test_a_document_rotates_by_its_own_length() -> None:
    model = make("dynamic_ntk", max_position_embeddings=64)
    ids = torch.randint(1, 256, (1, 36), generator=torch.Generator().manual_seed(7))
    places = torch.cat([torch.arange(24), torch.arange(12)])[None]
    close(model(ids, position_ids=places).logits, alone(model, [ids[:, :24], ids[:, 24:]]))


@torch.no_grad()
def test_gaps_between_positions_begin_no_document() -> None:
    model, drawn = make("rope"), torch.tensor([[0, 3, 4, 9, 20, 21, 30, 31, 33, 40, 41, 50, 60]])
    changed = torch.cat([FLAT[:, :1] ^ 1, FLAT[:, 1:]], 1)
    before, after = (model(ids, position_ids=drawn).logits[:, -1] for ids in (FLAT, changed))
    assert (after - before).abs().max() > 1e-2, "the last token sees the first"


@torch.no_grad()
def test_what_does_not_tell_documents_apart_is_refused() -> None:
    model, pairs = make("rope"), torch.block_diag(*(torch.ones(n, n).tril() for n in LENGTHS)).bool()[None, None]
    with pytest.raises(ValueError, match=r"attention_mask.*seq_idx"):
        model(FLAT, attention_mask=pairs)
    cache = held(model(FLAT[:, :7]))
    with pytest.raises(ValueError, match="position_ids start again"):
        model(FLAT[:, 7:], position_ids=PLACES[:, 7:], past_key_values=cache)
    with pytest.raises(ValueError, match="one call"):
        model(FLAT[:, 7:], seq_idx=DOCUMENTS[:, 7:], past_key_values=cache)
    for name, wrong in {
        "seq_idx": DOCUMENTS[:, 1:],
        "cu_seq_lens_q": STARTS,  # alone
        "cu_seq_lens_k": torch.tensor([0.0, 13.0]),
    }.items():
        with pytest.raises(ValueError, match=name):
            model(FLAT, **{name: wrong})
    for starts in (STARTS[1:], STARTS + 1, STARTS[[0, 2, 1, 3]], torch.tensor([0, 14])):
        with pytest.raises(ValueError, match="cu_seq_lens_q"):
            model(FLAT, cu_seq_lens_q=starts, cu_seq_lens_k=starts)
    with pytest.raises(ValueError, match="cu_seq_lens_k"):
        model(FLAT, cu_seq_lens_q=STARTS, cu_seq_lens_k=STARTS[[0, 3]])


@pytest.mark.parametrize("checkpoints", mostly_slow([False, True], False))
def test_trained_on_packed_rows_it_generates(checkpoints: bool, tmp_path: Path) -> None:
    model = make("rope+fox")
    expected = torch.cat([model(ids).logits[:, :-1] for ids in TEXTS if ids.shape[1] > 1], 1)
    batch = DataCollatorWithFlattening(return_flash_attn_kwargs=True, return_seq_idx=True)(FEATURES)
    labels = torch.cat([ids[:, 1:] for ids in TEXTS if ids.shape[1] > 1], 1)
    loss = nn.functional.cross_entropy(expected[0], labels[0])
    torch.testing.assert_close(model(**batch).loss, loss)
    arguments = TrainingArguments(
        output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=3, report_to=[], use_cpu=True,
        disable_tqdm=True, gradient_checkpointing=checkpoints, remove_unused_columns=False, seed=0,
    )  # fmt: skip
    collator = DataCollatorWithFlattening()
    trainer = Trainer(model=model, args=arguments, train_dataset=FEATURES, data_collator=collator)
    trainer.train()
    losses = [entry["train_loss"] for entry in trainer.state.log_history if "train_loss" in entry]
    torch.testing.assert_close(losses[0], loss.item(), rtol=0.05, atol=0)
    model.eval()
    out = model.generate(TEXTS[0], max_new_tokens=5, min_new_tokens=5, do_sample=False, pad_token_id=0)
    with torch.no_grad():
        assert torch.equal(out[:, 7:], model(out, use_cache=False).logits[:, 6:-1].argmax(-1))


def test_the_batch_of_trl_is_the_one_tried_above() -> None:
    trl = pytest.importorskip("trl.trainer.sft_trainer")
    for padded_to in (0, 16):
        collator = trl.DataCollatorForLanguageModeling(
            pad_token_id=0, padding_free=True, pad_to_multiple_of=padded_to or None
        )
        batch = collator(FEATURES)
        assert set(batch) == set(of_trl())
        for name, value in of_trl(padded_to).items():
            if name != "labels":
                assert torch.equal(torch.as_tensor(batch[name]), torch.as_tensor(value)), name
        close(make("rope+alibi")(**batch).logits[:, :13], alone(make("rope+alibi")))
