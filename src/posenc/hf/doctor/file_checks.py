"""Checks of a checkpoint's files: its configuration, and other files that contradict it.

Compared with the configuration are the tokenizer, the generation settings and other programs' files (params.json,
GGUF); `tensor_checks` compares the weights.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from posenc.arguments import one_line
from posenc.hf.config.rope_config import RopeConfig, read_rope
from posenc.hf.config.rotation import text_rope
from posenc.hf.config.text_config import max_length
from posenc.hf.doctor.corrections import correction_of, has_remote_code, keys_for, single, text_path
from posenc.hf.explanation.report import longest_length
from posenc.hf.findings import CONFIG, Finding, Level, MalformedError, NotReadError
from posenc.hf.limits import TOKENS, is_count
from posenc.hf.sources.formats import load_config
from posenc.hf.sources.load import Config, Source, load
from posenc.input_files import UnreadableFileError

if TYPE_CHECKING:
    from posenc.rotary.rope import RoPE

MALFORMED, UNREADABLE, NOT_READ = "malformed", "unreadable", "not-read"
# Findings that the numbers of a file decide by themselves, whichever code reads them.
_DECIDED_BY_NUMBERS = {"original-length-not-below", "factor-lists-swapped"}


def read_or_finding(source: Source) -> tuple[RopeConfig | None, list[Finding]]:
    """A configuration, parsed, and the findings on it; None where it cannot be parsed.

    Raises:
        UnreadableFileError: for a file that is no configuration at all.
        OSError: for a file that cannot be read.
    """
    config = load_config(source)
    try:
        read = read_rope(source)
    except NotReadError as error:
        return None, [Finding("rotation", f"is not read: {error}", NOT_READ, "note")]
    except MalformedError as error:
        return None, list(_of_error(error, remote=has_remote_code(config)))
    except UnreadableFileError:
        raise
    except ValueError as error:
        key, _, text = str(error).partition(" ")
        level: Level = "suspicion" if has_remote_code(config) else "fault"
        return None, [Finding(key, text, UNREADABLE, level)]
    return read, list(on_config(read))


def on_config(read: RopeConfig) -> Iterator[Finding]:
    """The findings on a configuration, each with its correction."""
    remote = has_remote_code(read.config)
    for finding in read.findings:
        level: Level = finding.level
        if remote and finding.name not in _DECIDED_BY_NUMBERS:  # the folder's code may read what transformers' does not
            level = "note"
        keys, certain = (None, False) if level == "note" else correction_of(read, finding)
        yield finding._replace(level=level, corrected=keys, certain=certain, inside=text_path(read))
    if remote:
        text = "names code in the folder, which was not read: it may use the keys in another way than transformers' "
        text += "code of this model type, for which all findings hold"
        yield Finding("auto_map", text, "remote-code", "note")
    if "encodings" in (read.config.get("posenc") or {}):
        text = "says that layers have other encodings: load the folder with posenc.hf.attach.load"
        yield Finding("posenc", text, "encodings-attached", "note")


def _of_error(error: MalformedError, *, remote: bool) -> Iterator[Finding]:
    """A finding for each key of a malformed block; the correction of all of them stands with the first."""
    corrected: Config | None = None if remote else error.corrected
    level: Level = "suspicion" if remote else "fault"
    for path, text in error.problems.items():
        yield Finding(path.rpartition(".")[2], text, MALFORMED, level, corrected, inside=error.inside)
        corrected = None


TOKENIZER, GENERATION = "tokenizer_config.json", "generation_config.json"
PARAMS = "params.json"
_GGUF_TOLERANCE = 1e-4  # of a frequency; GGUF has factors in float32


def on_folder(folder: Path, read: RopeConfig) -> Iterator[Finding]:
    """Files of a folder that contradict its config.json."""
    longest = longest_of(read)
    if longest is not None:
        yield from _on_length(folder, TOKENIZER, "model_max_length", longest)
        yield from _on_length(folder, GENERATION, "max_length", longest)
    if (folder / CONFIG).is_file():
        for path in chain([folder / PARAMS], sorted(folder.glob("*.gguf"))[:1]):
            if os.path.lexists(path):
                yield from _on_other_format(path, read)


def longest_of(read: RopeConfig) -> int | None:
    """The context length that the model is meant for, in tokens."""
    lengths = [longest_length(read, text_rope(rope)) for rope in read.layers.values() if rope is not None]
    return max((length for length in lengths if length is not None), default=max_length(read.text_config))


def _on_length(folder: Path, file: str, key: str, longest: int) -> Iterator[Finding]:
    path = folder / file
    if not os.path.lexists(path):
        return
    try:
        length = load(path).get(key)
    except (ValueError, OSError) as error:
        yield Finding(file, f"cannot be compared: {str(error).splitlines()[0]}", "other-file-unread", "note")
        return
    if not is_count(length, TOKENS) or length == longest:  # tokenizers write 1e30 for none
        return
    if length < longest and file == TOKENIZER:
        text = f"of {file} is {length:,}, and the configuration declares {longest:,} tokens: texts are cut there by "
        text += "truncation=True and by libraries that read this key"
        yield Finding(key, text, "tokenizer-length-below", "suspicion", file=file)
    if length < longest:  # generation_config's max_length is a choice of its user
        return
    text = f"of {file} is {length:,}, and the configuration is meant for {longest:,} tokens"
    if file == TOKENIZER:
        yield Finding(key, f"{text}: texts are not cut there", "tokenizer-length-beyond", "note", None)
    else:
        text += ": generate goes on past them"
        yield Finding(key, text, "generation-length-beyond", "suspicion", {key: longest}, True, file=file)


def _on_other_format(path: Path, read: RopeConfig) -> Iterator[Finding]:
    """Compare the rotation with the one in another program's file, which describes the same model."""
    rope = single(read)
    try:
        other = single(read_rope(path))
    except (ValueError, OSError) as error:
        yield Finding(path.name, f"cannot be compared: {str(error).splitlines()[0]}", "other-file-unread", "note")
        return
    if rope is None or other is None or _same_spectrum(rope, other, longest_of(read)):
        return
    text = f"lies in the same folder and means another rotation: {_words(other)}; {CONFIG}: {_words(rope)}"
    keys = None
    if other.head_dim == rope.head_dim:
        keys = keys_for(read, other.replace(layout=rope.layout))
    yield Finding(path.name, text, "other-file-differs", "suspicion", keys, inside=text_path(read))


def _same_spectrum(first: RoPE, second: RoPE, longest: int | None) -> bool:
    """Whether two rotations have the same frequencies and gain, whatever their layouts."""
    if (first.head_dim, first.rotary_dim) != (second.head_dim, second.rotary_dim):
        return False
    for length in (1024, longest):
        a, b = first.spectrum(length), second.spectrum(length)
        if (
            bool(((a.theta - b.theta).abs() > _GGUF_TOLERANCE * b.theta).any())
            or abs(float(a.gain / b.gain) - 1) > _GGUF_TOLERANCE
        ):
            return False
    return True


def _words(rope: RoPE) -> str:
    scaling = "no scaling" if rope.scaling is None else one_line(rope.scaling)
    return f"base {rope.base:g}, {rope.rotary_dim} of {rope.head_dim} channels, {scaling}"
