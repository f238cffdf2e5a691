"""What a token is: a byte, or a byte pair of a vocabulary that is trained on the training text.

Byte-pair encoding as GPT-2 has it: words are cut by its regular expression, and the most frequent pair of neighbours is
merged until the vocabulary is full. Tokens 0 to 255 are the bytes, so that token 0 separates documents in either case,
and merges follow in the order of their training. Encoding loses nothing: the bytes of a text's tokens are the text.

The tokenizer is trained by the library ``tokenizers`` on the training split alone, which is deterministic, and is
stored as tokenizer.json with the data of a run.

Source: R. Sennrich, B. Haddow and A. Birch, Neural Machine Translation of Rare Words with Subword Units,
arXiv:1508.07909, section 3.2; over bytes: A. Radford et al., Language Models are Unsupervised Multitask Learners
(2019), section 2.2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from posenc.hf.byte_level import byte_letters

BYTES = "bytes"
LEAST_VOCABULARY, MOST_VOCABULARY = 257, 2**17
EXPECTED_BYTES = 4  # of a token; decides which documents are held out before there is a tokenizer, and nothing else
_AT_ONCE = 32  # documents encoded together: the library needs a hundred bytes for each token

Tokens = NDArray[np.int32]


def vocabulary_of(tokens: str) -> int:
    """The size of the vocabulary that ``--tokens`` names: ``bytes`` or ``bpe:N``; a ValueError for anything else."""
    size = re.fullmatch(r"bpe:([0-9]{1,7})", tokens)
    if tokens == BYTES:
        return 256
    if size is None or not LEAST_VOCABULARY <= int(size[1]) <= MOST_VOCABULARY:
        raise ValueError(
            f"--tokens {tokens}: bytes is needed, or bpe:N for byte pairs of a vocabulary of N, "
            f"{LEAST_VOCABULARY} to {MOST_VOCABULARY}"
        )
    return int(size[1])


def train_tokenizer(vocabulary: int, texts: Iterable[bytes]) -> bytes:
    """A byte-pair tokenizer trained on texts in UTF-8, as tokenizer.json.

    Raises:
        ValueError: where the text has too few pairs for such a vocabulary.
    """
    letters, trained = byte_letters(), _byte_level(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=letters, show_progress=False)
    trained.train_from_iterator((text.decode() for text in texts), trainer)
    merges = [tuple(pair) for pair in json.loads(trained.to_str())["model"]["merges"]]
    ids = {letter: byte for byte, letter in enumerate(letters)}
    for first, second in merges:
        ids.setdefault(first + second, len(ids))
    if len(ids) != vocabulary:
        raise ValueError(
            f"--tokens bpe:{vocabulary}: the training text has pairs for a vocabulary of {len(ids)} alone: "
            f"give more text, or at most bpe:{len(ids)}"
        )
    return _byte_level(models.BPE(ids, merges)).to_str().encode()


def encode_texts(tokenizer: bytes, texts: Sequence[bytes]) -> Iterator[Tokens]:
    """The tokens of each text in UTF-8.

    Args:
        tokenizer: content of a tokenizer.json from `train_tokenizer`.
        texts: without byte 0.
    """
    sizes = token_bytes(tokenizer)
    loaded = Tokenizer.from_str(tokenizer.decode())
    for start in range(0, len(texts), _AT_ONCE):
        part = texts[start : start + _AT_ONCE]
        for text, encoding in zip(part, loaded.encode_batch([text.decode() for text in part]), strict=True):
            tokens = np.array(encoding.ids, np.int32)
            if sizes[tokens].sum() != len(text):
                raise ValueError("tokenizer.json loses bytes of a text, so no bits per byte can be computed")
            yield tokens


def token_bytes(tokenizer: bytes) -> NDArray[np.int64]:
    """How many bytes each token has, by its number. Without a tokenizer, tokens are bytes."""
    if not tokenizer:
        return np.ones(256, np.int64)
    ids: dict[str, int] = json.loads(tokenizer)["model"]["vocab"]
    sizes = np.zeros(len(ids), np.int64)
    sizes[list(ids.values())] = [len(letters) for letters in ids]  # one letter stands for one byte
    return sizes


class Encoded(NamedTuple):
    """A stream of documents as tokens, separated by token 0."""

    tokens: Tokens
    offsets: NDArray[np.int64]  # where each token begins in the stream of bytes, and where the last one ends


def encode_stream(tokenizer: bytes, texts: Sequence[bytes]) -> Encoded:
    """Documents as one stream of tokens."""
    parts = list[Tokens]()
    for tokens in encode_texts(tokenizer, texts):
        parts += [np.zeros(1, np.int32), tokens] if parts else [tokens]
    stream = np.concatenate(parts) if parts else np.empty(0, np.int32)
    return Encoded(stream, np.concatenate([[0], np.cumsum(token_bytes(tokenizer)[stream])]))


def _byte_level(model: models.BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
