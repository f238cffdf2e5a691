"""Checks of a checkpoint's files: its configuration, and other files that contradict it.

Compared with the configuration are the tokenizer, the generation settings and other programs' files (params.json,
GGUF); `tensors` compares the weights.
"""

from __future__ import annotations

import copy
import difflib
import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from posenc.arguments import one_line
from posenc.frequencies.rotation import RoPESpec
from posenc.hf.config.rope_config import RopeConfig, read_rope
from posenc.hf.config.rope_keys import RULES
from posenc.hf.config.rotation import equivalent
from posenc.hf.doctor.corrections import correction_of, keys_for, single, text_path
from posenc.hf.doctor.report import NOT_READ
from posenc.hf.doctor.side_files import on_side_files
from posenc.hf.findings import CONFIG, Finding, Level, MalformedError, NotReadError
from posenc.hf.rules.case import has_remote_code
from posenc.hf.sources.load import Config, Source, load
from posenc.input_files import UnreadableFileError

MALFORMED, UNREADABLE = "malformed", "unreadable"
# Findings that the numbers of a file decide by themselves or by published models, whichever code reads them.
_DECIDED_BY_NUMBERS = {
    "original-length-not-below", "factor-lists-swapped", "original-length-declared", "mscale-missing", "mscale-alone",
    "short-factors-differ", "share-lost",
}  # fmt: skip


def read_or_finding(source: Source) -> tuple[RopeConfig | None, list[Finding]]:
    """A configuration, parsed, and the findings on it; None where it cannot be parsed.

    Raises:
        UnreadableFileError: for a file that is no configuration at all.
        OSError: for a file that cannot be read.
    """
    config = load(source)
    try:
        read = read_rope(config)
    except NotReadError as error:
        return None, [Finding("rotation", f"is not read: {error}", NOT_READ, "note")]
    except MalformedError as error:
        level: Level = "suspicion" if has_remote_code(config) else "fault"
        return None, [
            Finding(path.rpartition(".")[2], text, MALFORMED, level, _renamed(config, path, error), inside=error.inside)
            for path, text in error.problems.items()
        ]
    except UnreadableFileError:
        raise
    except ValueError as error:
        key, _, text = str(error).partition(" ")
        return None, [Finding(key, text, UNREADABLE, "suspicion" if has_remote_code(config) else "fault")]
    return read, list(on_config(read))


def _renamed(config: Config, path: str, error: MalformedError) -> Config | None:
    """The block under the name that an unknown key of it resembles most; None without one, and where that helps not."""
    result, names = copy.deepcopy(config), path.split(".")
    block: Any = result
    for name in names[:-1]:
        block = block.get(name) if isinstance(block, dict) else None
    if not isinstance(block, dict) or len(names) < 2 or names[-1] in RULES:
        return None
    near = difflib.get_close_matches(names[-1], RULES.keys() - block.keys(), n=1, cutoff=_LIKENESS)
    if names[-1] not in block or not near:
        return None
    renamed = {near[0] if key == names[-1] else key: value for key, value in block.items()}
    block.clear()
    block.update(renamed)
    try:
        read_rope(result)
    except MalformedError as again:
        if len(again.problems) >= len(error.problems):
            return None
    except ValueError:
        return None
    part: Any = result
    outer = error.inside.split(".") if error.inside else []
    for name in outer:
        part = part[name]
    return {names[len(outer)]: part[names[len(outer)]]}


_LIKENESS = 0.8  # of two names of one key, by difflib's ratio


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


PARAMS = "params.json"
_GGUF_TOLERANCE = 1e-4  # of a frequency; GGUF has factors in float32


def on_folder(folder: Path, read: RopeConfig) -> Iterator[Finding]:
    """Files of a folder that contradict its config.json."""
    yield from on_side_files(folder, read)
    if (folder / CONFIG).is_file():
        for path in chain([folder / PARAMS], sorted(folder.glob("*.gguf"))[:1]):
            if os.path.lexists(path):
                yield from _on_other_format(path, read)


def _on_other_format(path: Path, read: RopeConfig) -> Iterator[Finding]:
    """Compare the rotation with the one in another program's file, which describes the same model."""
    rope = single(read)
    try:
        other = single(read_rope(path))
    except (ValueError, OSError) as error:
        yield Finding(path.name, f"cannot be compared: {str(error).splitlines()[0]}", "other-file-unread", "note")
        return
    if rope is None or other is None or equivalent(other.replace(layout=rope.layout), rope, _GGUF_TOLERANCE):
        return
    text = f"lies in the same folder and means another rotation: {_words(other)}; {CONFIG}: {_words(rope)}"
    keys = None
    if other.head_dim == rope.head_dim:
        keys = keys_for(read, other.replace(layout=rope.layout))
    yield Finding(path.name, text, "other-file-differs", "suspicion", keys, inside=text_path(read))


def _words(rope: RoPESpec) -> str:
    scaling = "no scaling" if rope.scaling is None else one_line(rope.scaling)
    return f"base {rope.base:g}, {rope.rotary_dim} of {rope.head_dim} channels, {scaling}"
