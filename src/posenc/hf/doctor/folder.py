"""What lies beside a configuration and says otherwise: the tokenizer, generation, weights and other programs' files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

from posenc.hf.config import RopeConfig, read_rope
from posenc.hf.doctor.corrections import changes, inside, single
from posenc.hf.doctor.report import CONFIG, Finding
from posenc.hf.doctor.saved import on_saved
from posenc.hf.inspect import longest_length
from posenc.hf.mrope import of_text
from posenc.hf.numbers import TOKENS, is_count
from posenc.hf.section import max_length
from posenc.hf.source import load
from posenc.hf.tensor_files import problems_of_weights
from posenc.rotary.rope import RoPE

TOKENIZER, GENERATION = "tokenizer_config.json", "generation_config.json"
PARAMS = "params.json"
_GGUF_TOLERANCE = 1e-4  # of a frequency; GGUF has factors in float32


def on_folder(folder: Path, read: RopeConfig) -> Iterator[Finding]:
    """What files of a folder say otherwise than its config.json."""
    longest = longest_of(read)
    if longest is not None:
        yield from _on_length(folder, TOKENIZER, "model_max_length", longest)
        yield from _on_length(folder, GENERATION, "max_length", longest)
    for name, text in problems_of_weights(folder):
        yield Finding("weights-unreadable", "fault", name, text)
    yield from on_saved(folder, read)
    if (folder / CONFIG).is_file():
        for path in chain([folder / PARAMS], sorted(folder.glob("*.gguf"))[:1]):
            if os.path.lexists(path):
                yield from _on_other(path, read)


def longest_of(read: RopeConfig) -> int | None:
    """Tokens that the model is meant for."""
    found = [longest_length(read, of_text(rope)) for rope in read.layers.values() if rope is not None]
    return max((one for one in found if one is not None), default=max_length(read.section))


def _on_length(folder: Path, file: str, key: str, longest: int) -> Iterator[Finding]:
    path = folder / file
    if not os.path.lexists(path):
        return
    try:
        length = load(path).get(key)
    except (ValueError, OSError) as error:
        yield Finding("other-file-unread", "note", file, f"cannot be compared: {str(error).splitlines()[0]}")
        return
    if not is_count(length, TOKENS) or length == longest:  # tokenizers write 1e30 for none
        return
    if length < longest and file == TOKENIZER:
        text = f"of {file} is {length:,}, and the configuration declares {longest:,} tokens: texts are cut there by "
        text += "truncation=True and by libraries that read this key"
        yield Finding("tokenizer-length-below", "suspicion", key, text, file=file)
    if length < longest:  # generation_config's max_length is a choice of its user
        return
    text = f"of {file} is {length:,}, and the configuration is meant for {longest:,} tokens"
    if file == TOKENIZER:
        yield Finding("tokenizer-length-beyond", "note", key, f"{text}: texts are not cut there", None)
    else:
        text += ": generate goes on past them"
        yield Finding("generation-length-beyond", "suspicion", key, text, {key: longest}, True, file=file)


def _on_other(path: Path, read: RopeConfig) -> Iterator[Finding]:
    """The same model as another program's file describes it."""
    mine = single(read)
    try:
        theirs = single(read_rope(path))
    except (ValueError, OSError) as error:
        yield Finding("other-file-unread", "note", path.name, f"cannot be compared: {str(error).splitlines()[0]}")
        return
    if mine is None or theirs is None or _same(mine, theirs, longest_of(read)):
        return
    text = f"lies in the same folder and turns otherwise: {_words(theirs)}; {CONFIG}: {_words(mine)}"
    keys = None
    if theirs.head_dim == mine.head_dim:
        right = RoPE(
            mine.head_dim, base=theirs.base, layout=mine.layout, rotary_dim=theirs.rotary_dim, scaling=theirs.scaling
        )
        with suppress(ValueError):  # an M-RoPE, whose sections the other file does not have, cannot be written so
            keys = changes(read, read.with_rope(right).to_config())
    yield Finding("other-file-differs", "suspicion", path.name, text, keys, inside=inside(read))


def _same(one: RoPE, other: RoPE, longest: int | None) -> bool:
    """Whether two rotations turn alike, whatever channels are a pair."""
    if (one.head_dim, one.rotary_dim) != (other.head_dim, other.rotary_dim):
        return False
    for length in (1024, longest):
        a, b = one.spectrum(length), other.spectrum(length)
        if bool(((a.theta - b.theta).abs() > _GGUF_TOLERANCE * b.theta).any()) or abs(float(a.gain / b.gain) - 1) > _GGUF_TOLERANCE:
            return False
    return True


def _words(rope: RoPE) -> str:
    scaling = "no scaling" if rope.scaling is None else " ".join(repr(rope.scaling).split())
    return f"base {rope.base:g}, {rope.rotary_dim} of {rope.head_dim} channels, {scaling}"
