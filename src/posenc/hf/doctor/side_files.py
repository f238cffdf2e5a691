"""Limits of length in the files next to a configuration: tokenizer, generation, sentence-transformers.

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
from typing import Any, NamedTuple

from posenc.hf.config.rope_config import RopeConfig
from posenc.hf.config.rotation import text_rope
from posenc.hf.config.text_config import max_length
from posenc.hf.findings import Finding, Level
from posenc.hf.limits import TOKENS, is_count
from posenc.hf.rules.case import has_remote_code
from posenc.hf.sources.config_files import TOKENIZER_JSON, truncation_of
from posenc.hf.sources.load import Config, load

TOKENIZER, GENERATION, SENTENCE = "tokenizer_config.json", "generation_config.json", "sentence_bert_config.json"
SIDE_FILES = (TOKENIZER, TOKENIZER_JSON, GENERATION, SENTENCE)
_FAR_BELOW = 8  # max_seq_length below a limit by more than this factor; published ones have an eighth and more


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
    """Findings on limits of the folder's files that contradict its configuration, each with its correction."""
    certain = not has_remote_code(read.config)  # code of the folder may have another table
    limit = limit_of(read)
    if limit is None:
        return
    found = {file: _contents(folder, file) for file in (TOKENIZER, GENERATION, SENTENCE)}
    yield from (content for content in found.values() if isinstance(content, Finding))
    tokenizer, generation, sentence = (content if isinstance(content, dict) else {} for content in found.values())
    for finding in (
        *_on_tokenizer(tokenizer, read, limit),
        *_on_tokenizer_json(folder, sentence, limit),
        *_on_generation(generation, limit),
        *_on_sentences(sentence, limit),
    ):
        yield finding if certain else finding._replace(certain=False)


def longest_of(read: RopeConfig) -> int | None:
    """The context length that the model is meant for, in tokens."""
    lengths = [read.facts.reachable(text_rope(rope)) for rope in read.rotations.values() if rope is not None]
    return max((length for length in lengths if length is not None), default=max_length(read.text_config))


def limit_of(read: RopeConfig) -> Limit | None:
    """The tokens of text that a model takes; None where its configuration does not say."""
    tables = [
        scheme.positions
        for scheme in read.position_schemes
        if scheme.positions is not None
        and not scheme.text.startswith(("image:", "audio:"))
        and "patches" not in scheme.text
    ]
    if tables:
        longest = max(tables)
        return Limit(longest, True, min(tables), f"the table of positions has {longest:,} for text")
    length = longest_of(read)
    if length is None or _encodes_audio(read):
        return None
    return Limit(length, False, length, f"the configuration declares {length:,} tokens")


def _encodes_audio(read: RopeConfig) -> bool:
    return any(scheme.text.startswith("audio:") for scheme in read.position_schemes)


def limits_in(folder: Path) -> dict[str, dict[str, int | None]]:
    """The limits of tokens in the files of a folder, by file and key; None where a key is absent or stands for none.

    A file that cannot be read is left out.
    """
    limits: dict[str, dict[str, int | None]] = {}
    generation = ("max_length", "max_new_tokens")
    for file, names in ((TOKENIZER, ("model_max_length",)), (GENERATION, generation), (SENTENCE, ("max_seq_length",))):
        content = _contents(folder, file)
        if isinstance(content, dict):
            limits[file] = {name: _count(content.get(name)) for name in names}
    try:
        if (folder / TOKENIZER_JSON).is_file():
            limits[TOKENIZER_JSON] = {"truncation.max_length": truncation_of(folder / TOKENIZER_JSON)}
    except (ValueError, OSError):
        pass
    return limits


def _count(value: Any) -> int | None:
    return value if is_count(value, TOKENS) else None


def _contents(folder: Path, file: str) -> Config | Finding | None:
    """The JSON object of a file, a note where it cannot be read, None where it is not there."""
    path = folder / file
    if not os.path.lexists(path):
        return None
    try:
        return load(path)
    except (ValueError, OSError) as error:
        return _unread(file, error)


def _unread(file: str, error: Exception) -> Finding:
    """A file that cannot be read: a note, but for a pointer, behind which the file was never fetched."""
    text = f"cannot be compared: {str(error).splitlines()[0]}"
    return Finding(file, text, "other-file-unread", "suspicion" if "Git LFS" in text else "note", file=file)


def _on_tokenizer(content: Config, read: RopeConfig, limit: Limit) -> Iterator[Finding]:
    """model_max_length, where truncation=True and serving libraries cut texts; 1e30 stands for none."""
    key = "max_len" if "max_len" in content and "model_max_length" not in content else "model_max_length"
    length = content.get(key)
    if not is_count(length, TOKENS) or length == limit.tokens:
        return
    text = f"of {TOKENIZER} is {length:,}, and {limit.words}: "
    if length < limit.tokens:
        text += "texts are cut there by truncation=True and by libraries that read this key"
        keys: Config | None = {key: limit.tokens}
        yield Finding(key, text, "tokenizer-length-below", "suspicion", keys, file=TOKENIZER)
    elif limit.is_table and not _encodes_audio(read):  # Whisper's published tokenizers say 1,024 for 448 positions
        text += "texts beyond that are not cut and fail, since the table has no row for them"
        keys = {key: limit.tokens}
        yield Finding(key, text, "tokenizer-length-beyond-table", "fault", keys, True, file=TOKENIZER)
    else:
        yield Finding(key, f"{text}texts are not cut there", "tokenizer-length-beyond", "note", file=TOKENIZER)


def _on_tokenizer_json(folder: Path, sentence: Config, limit: Limit) -> Iterator[Finding]:
    """The truncation that tokenizer.json carries; the library tokenizers applies it to every text."""
    path = folder / TOKENIZER_JSON
    if not os.path.lexists(path):
        return
    try:
        cut = truncation_of(path)
    except (ValueError, OSError) as error:
        yield _unread(TOKENIZER_JSON, error)
        return
    if cut is not None and cut < limit.tokens:
        text = f"of {TOKENIZER_JSON} is {cut:,}, and {limit.words}: tokenizers, sentence-transformers and "
        text += "text-embeddings-inference cut every text there"
        level: Level = "note" if sentence.get("max_seq_length") == cut else "suspicion"
        yield Finding("truncation.max_length", text, "tokenizer-length-below", level, file=TOKENIZER_JSON)
    elif cut is not None and cut > limit.tokens and limit.is_table:
        text = f"of {TOKENIZER_JSON} is {cut:,}, and {limit.words}: texts are cut behind the last row, and fail"
        yield Finding("truncation.max_length", text, "tokenizer-length-beyond-table", "fault", file=TOKENIZER_JSON)


def _on_generation(content: Config, limit: Limit) -> Iterator[Finding]:
    """max_length of generate; a smaller value is its user's choice."""
    length = content.get("max_length")
    if is_count(length, TOKENS) and length > limit.decoder:
        text = f"of {GENERATION} is {length:,}, and "
        text += f"the model takes {limit.decoder:,} tokens" if limit.decoder != limit.tokens else limit.words
        text += ": generate goes on past them" + (" and fails there" if limit.is_table else "")
        finding = Finding(
            "max_length", text, "generation-length-beyond", "suspicion", {"max_length": limit.decoder}, True
        )
        yield finding._replace(file=GENERATION, level="fault" if limit.is_table else "suspicion")


def _on_sentences(content: Config, limit: Limit) -> Iterator[Finding]:
    """max_seq_length of sentence-transformers, which overrides the tokenizer's."""
    key, length = "max_seq_length", content.get("max_seq_length")
    if not is_count(length, TOKENS) or length == limit.tokens:
        return
    text = f"of {SENTENCE} is {length:,}, and {limit.words}: "
    finding = Finding(key, text, "sentence-length-beyond", "suspicion", {key: limit.tokens}, True, file=SENTENCE)
    if length > limit.tokens and limit.is_table:
        yield finding._replace(text=f"{text}texts beyond that are not cut and fail", level="fault")
    elif length > limit.tokens:
        yield finding._replace(text=f"{text}texts are embedded beyond the length that the model declares")
    else:
        text += "sentence-transformers cuts texts there"
        far = length * _FAR_BELOW < limit.tokens
        finding = finding._replace(name="sentence-length-below", text=text, certain=False)
        yield finding if far else finding._replace(level="note", corrected=None)
