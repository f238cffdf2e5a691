"""Files next to a config.json that contradict it: limits of length, and another program's config.

A model with a table of positions has no row past its end, so a limit above it lets texts through that fail. A model
with a rotation computes at any length, so there a limit above is a note or a suspicion. A limit below cuts texts: a
suspicion, since its author may have wanted it.

Source: transformers 5.23, `model_max_length` (tokenization_utils_base.py); tokenizers, the "truncation" of
    tokenizer.json, which a correction leaves alone; sentence-transformers, `max_seq_length`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from posenc.arguments import one_line
from posenc.frequencies.rotation import RoPESpec
from posenc.hf.config.rope_config import RopeConfig, read_rope
from posenc.hf.config.rotation import equivalent, text_rope
from posenc.hf.config.text_config import max_length
from posenc.hf.doctor.corrections import keys_for, single, text_path
from posenc.hf.findings import CONFIG, Finding, Level
from posenc.hf.limits import TOKENS, is_count
from posenc.hf.rules.case import has_remote_code
from posenc.hf.sources.config_files import TOKENIZER_JSON, truncation_of
from posenc.hf.sources.load import load

TOKENIZER, GENERATION, SENTENCE = "tokenizer_config.json", "generation_config.json", "sentence_bert_config.json"
SIDE_FILES, PARAMS = (TOKENIZER, TOKENIZER_JSON, GENERATION, SENTENCE), "params.json"
_KEYS = {  # limits of tokens, by file; GPT-2's first tokenizers have the second name
    TOKENIZER: ("model_max_length", "max_len"), GENERATION: ("max_length", "max_new_tokens"),
    SENTENCE: ("max_seq_length",),
}  # fmt: skip
_TRUNCATION = "truncation.max_length"
_FAR_BELOW = 8  # max_seq_length below a limit by more than this factor; published ones have an eighth and more
_OTHER_PROGRAM = 1e-4  # of a frequency; GGUF has factors in float32


class Limit(NamedTuple):
    """How many tokens of text a model takes.

    Attributes:
        tokens: the number.
        is_table: whether a table of positions ends there, so that more tokens fail.
        decoder: the number in the half that generates, of a model with an encoder and a decoder.
        words: where the number comes from.
    """

    tokens: int
    is_table: bool
    decoder: int
    words: str


def on_side_files(folder: Path, read: RopeConfig) -> Iterator[Finding]:
    """Findings on files of the folder that contradict its configuration, each with its correction."""
    limit = _limit_of(read)
    if limit is not None:
        limits, unread = limits_in(folder)
        yield from unread
        certain = not has_remote_code(read.config)  # code of the folder may have another table
        for finding in (
            *_on_tokenizer(limits, read, limit), *_on_generation(limits, limit), *_on_sentences(limits, limit)
        ):  # fmt: skip
            yield finding if certain else finding._replace(certain=False)
    if (folder / CONFIG).is_file():
        for path in (folder / PARAMS, *sorted(folder.glob("*.gguf"))[:1]):
            if os.path.lexists(path):
                yield from _on_other_format(path, read)


def longest_of(read: RopeConfig) -> int | None:
    """The context length that the model is meant for, in tokens."""
    lengths = [read.facts.reachable(text_rope(rope)) for rope in read.rotations.values() if rope is not None]
    return max((length for length in lengths if length is not None), default=max_length(read.text_config))


def _limit_of(read: RopeConfig) -> Limit | None:
    """The tokens of text that a model takes; None where its configuration does not say."""
    schemes = [scheme for scheme in read.position_schemes if scheme.positions is not None]
    tables = [
        scheme.positions or 0 for scheme in schemes
        if not scheme.text.startswith(("image:", "audio:")) and "patches" not in scheme.text
    ]  # fmt: skip
    if tables:
        return Limit(max(tables), True, min(tables), f"the table of positions has {max(tables):,} for text")
    length = longest_of(read)
    if length is None or _encodes_audio(read):
        return None
    return Limit(length, False, length, f"the configuration declares {length:,} tokens")


def _encodes_audio(read: RopeConfig) -> bool:
    return any(scheme.text.startswith("audio:") for scheme in read.position_schemes)


def limits_in(folder: Path) -> tuple[dict[str, dict[str, int | None]], list[Finding]]:
    """The limits of tokens in the files of a folder, by file and key, and findings on files that cannot be read.

    None stands for a key that is absent or means no limit, as 1e30 does.
    """
    limits: dict[str, dict[str, int | None]] = {}
    unread = []
    for file in SIDE_FILES:
        path = folder / file
        if not os.path.lexists(path):
            continue
        try:
            if file == TOKENIZER_JSON:
                limits[file] = {_TRUNCATION: truncation_of(path)}
            else:
                content = load(path)
                limits[file] = {
                    key: content[key] if is_count(content.get(key), TOKENS) else None for key in _KEYS[file]
                }
        except (ValueError, OSError) as error:
            text = f"cannot be compared: {str(error).splitlines()[0]}"
            level: Level = "suspicion" if "Git LFS" in text else "note"  # behind a pointer is a file to be fetched
            unread.append(Finding(file, text, "other-file-unread", level, file=file))
    return limits, unread


_Limits = dict[str, dict[str, int | None]]


def _on_tokenizer(limits: _Limits, read: RopeConfig, limit: Limit) -> Iterator[Finding]:
    """Where truncation=True and serving libraries cut texts, and the library tokenizers every text."""
    given = [(key, length) for key, length in limits.get(TOKENIZER, {}).items() if length is not None]
    for key, length in given[:1]:
        text, keys = f"of {TOKENIZER} is {length:,}, and {limit.words}: ", {key: limit.tokens}
        if length < limit.tokens:
            text += "texts are cut there by truncation=True and by libraries that read this key"
            yield Finding(key, text, "tokenizer-length-below", "suspicion", keys, file=TOKENIZER)
        elif length > limit.tokens and limit.is_table and not _encodes_audio(read):
            # Whisper's published tokenizers say 1,024 for 448 positions
            text += "texts beyond that are not cut and fail, since the table has no row for them"
            yield Finding(key, text, "tokenizer-length-beyond-table", "fault", keys, True, file=TOKENIZER)
        elif length > limit.tokens:
            yield Finding(key, f"{text}texts are not cut there", "tokenizer-length-beyond", "note", file=TOKENIZER)
    cut = limits.get(TOKENIZER_JSON, {}).get(_TRUNCATION)
    if cut is None:
        return
    text = f"of {TOKENIZER_JSON} is {cut:,}, and {limit.words}: "
    if cut < limit.tokens:
        text += "tokenizers, sentence-transformers and text-embeddings-inference cut every text there"
        level: Level = "note" if limits.get(SENTENCE, {}).get("max_seq_length") == cut else "suspicion"
        yield Finding(_TRUNCATION, text, "tokenizer-length-below", level, file=TOKENIZER_JSON)
    elif cut > limit.tokens and limit.is_table:
        text += "texts are cut behind the last row, and fail"
        yield Finding(_TRUNCATION, text, "tokenizer-length-beyond-table", "fault", file=TOKENIZER_JSON)


def _on_generation(limits: _Limits, limit: Limit) -> Iterator[Finding]:
    """max_length of generate; a smaller value is its user's choice."""
    length = limits.get(GENERATION, {}).get("max_length")
    if length is not None and length > limit.decoder:
        takes = f"the model takes {limit.decoder:,} tokens" if limit.decoder != limit.tokens else limit.words
        text = f"of {GENERATION} is {length:,}, and {takes}: generate goes on past them"
        text += " and fails there" if limit.is_table else ""
        level: Level = "fault" if limit.is_table else "suspicion"
        yield Finding(
            "max_length", text, "generation-length-beyond", level, {"max_length": limit.decoder}, True, GENERATION
        )


def _on_sentences(limits: _Limits, limit: Limit) -> Iterator[Finding]:
    """max_seq_length of sentence-transformers, which overrides the tokenizer's."""
    key, length = "max_seq_length", limits.get(SENTENCE, {}).get("max_seq_length")
    if length is None or length == limit.tokens:
        return
    text, keys = f"of {SENTENCE} is {length:,}, and {limit.words}: ", {key: limit.tokens}
    beyond = "sentence-length-beyond"
    if length < limit.tokens:
        far = length * _FAR_BELOW < limit.tokens
        text += "sentence-transformers cuts texts there"
        level: Level = "suspicion" if far else "note"
        yield Finding(key, text, "sentence-length-below", level, keys if far else None, file=SENTENCE)
    elif limit.is_table:
        yield Finding(key, f"{text}texts beyond that are not cut and fail", beyond, "fault", keys, True, SENTENCE)
    else:
        text += "texts are embedded beyond the length that the model declares"
        yield Finding(key, text, beyond, "suspicion", keys, True, SENTENCE)


def _on_other_format(path: Path, read: RopeConfig) -> Iterator[Finding]:
    """Compare the rotation with the one in another program's file, which describes the same model."""
    rope = single(read)
    try:
        other = single(read_rope(path))
    except (ValueError, OSError) as error:
        yield Finding(path.name, f"cannot be compared: {str(error).splitlines()[0]}", "other-file-unread", "note")
        return
    if rope is None or other is None or equivalent(other.replace(layout=rope.layout), rope, _OTHER_PROGRAM):
        return
    text = f"lies in the same folder and means another rotation: {_words(other)}; {CONFIG}: {_words(rope)}"
    keys = keys_for(read, other.replace(layout=rope.layout)) if other.head_dim == rope.head_dim else None
    yield Finding(path.name, text, "other-file-differs", "suspicion", keys, inside=text_path(read))


def _words(rope: RoPESpec) -> str:
    scaling = "no scaling" if rope.scaling is None else one_line(rope.scaling)
    return f"base {rope.base:g}, {rope.rotary_dim} of {rope.head_dim} channels, {scaling}"
