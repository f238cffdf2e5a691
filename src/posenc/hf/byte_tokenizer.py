"""Bytes as tokens: 256 of them, the number of a token is the byte, and nothing is added, merged or cleaned up.

Byte 0 stands between documents and is the padding; it is a token like any other where it occurs in a text.
"""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

SEPARATOR = 0


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Text to its UTF-8 bytes and back: ``decode(encode(text)) == text``.

    >>> byte_tokenizer()("Añ")["input_ids"]
    [65, 195, 177]
    """
    vocabulary = {letter: byte for byte, letter in enumerate(byte_letters())}
    tokenizer = Tokenizer(BPE(vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    letter = byte_letters()[SEPARATOR]
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=letter, eos_token=letter, pad_token=letter,
        # Otherwise the letter that stands for byte 0 would be taken for it in texts, and spaces would get lost.
        split_special_tokens=True, clean_up_tokenization_spaces=False,
        padding_side="left", model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip


def byte_letters() -> list[str]:
    """The letter by which `tokenizers` writes each byte: itself where it can be seen, else one from 256 on.

    >>> byte_letters()[0], byte_letters()[65], byte_letters()[32]
    ('Ā', 'A', 'Ġ')
    """
    seen = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = [byte for byte in range(256) if byte not in seen]
    return [chr(byte) if byte in seen else chr(256 + hidden.index(byte)) for byte in range(256)]
