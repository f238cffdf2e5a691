"""Bytes as tokens: whatever a text holds comes back, and the numbers are its bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")

from transformers import AutoTokenizer

from posenc.hf.byte_level import byte_letters
from posenc.hf.modeling.export import byte_tokenizer

TEXTS = [
    "", " ", "  a  b , c 's n't .", "Ā", "Āb\x00c", "<pad></s><|endoftext|>", "ñ漢字🎉\r\n\t", "\x00\x00", " Ġ ",
    "".join(map(chr, range(0x180))), "def f(x):\n    return x\n",
]  # fmt: skip
TOKENIZER = byte_tokenizer()


def test_every_byte_has_a_letter_of_its_own() -> None:
    assert len(set(byte_letters())) == 256
    assert TOKENIZER.convert_ids_to_tokens(list(range(256))) == byte_letters()
    assert len(TOKENIZER) == 256


@pytest.mark.parametrize("text", TEXTS)
def test_texts_come_back_after_saving(text: str, tmp_path: Path) -> None:
    TOKENIZER.save_pretrained(tmp_path)
    for tokenizer in (TOKENIZER, AutoTokenizer.from_pretrained(tmp_path)):
        assert tokenizer.encode(text) == tokenizer(text)["input_ids"] == list(text.encode())
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_batches_are_padded_at_the_left_with_byte_0() -> None:
    batch = TOKENIZER(["ab", "abcd"], padding=True)
    assert batch["input_ids"] == [[0, 0, 97, 98], [97, 98, 99, 100]]
    assert batch["attention_mask"] == [[0, 0, 1, 1], [1, 1, 1, 1]]
    assert set(batch) == {"input_ids", "attention_mask"}
    assert TOKENIZER.batch_decode(batch["input_ids"], skip_special_tokens=True) == ["ab", "abcd"]
    assert TOKENIZER.bos_token_id == TOKENIZER.eos_token_id == TOKENIZER.pad_token_id == 0
