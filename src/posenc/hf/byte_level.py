"""Bytes as letters: how byte-level tokenizers, GPT-2's and those after it, write each byte in their files."""

from __future__ import annotations


def byte_letters() -> list[str]:
    """The letter of each byte: itself where it can be seen, else one from 256 on.

    >>> byte_letters()[0], byte_letters()[65], byte_letters()[32]
    ('Ā', 'A', 'Ġ')
    """
    seen = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = [byte for byte in range(256) if byte not in seen]
    return [chr(byte) if byte in seen else chr(256 + hidden.index(byte)) for byte in range(256)]
