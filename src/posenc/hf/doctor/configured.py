"""What a configuration shows: the remarks that reading it makes, or the error that stands in their place."""

from __future__ import annotations

from collections.abc import Iterator

from posenc.hf.config import RopeConfig, read_rope
from posenc.hf.doctor.corrections import correction_of, has_remote_code, inside
from posenc.hf.doctor.report import Finding
from posenc.hf.errors import MalformedError, NotReadError
from posenc.hf.formats import loaded
from posenc.hf.remark import Level
from posenc.hf.source import Config, Source
from posenc.input_files import UnreadableFileError

MALFORMED, UNREADABLE, NOT_READ = "malformed", "unreadable", "not-read"
# What the numbers of a file decide by themselves, whoever reads them.
_OF_NUMBERS = {"original-length-not-below", "factor-lists-swapped"}


def read_or_told(source: Source) -> tuple[RopeConfig | None, list[Finding]]:
    """A configuration read, and what is found in it; None where it cannot be.

    Raises:
        UnreadableFileError: for a file that is no configuration at all, which is nothing to judge.
        OSError: for a file that cannot be read.
    """
    config = loaded(source)
    try:
        read = read_rope(source)
    except NotReadError as error:
        return None, [Finding(NOT_READ, "note", "rotation", f"is not read: {error}")]
    except MalformedError as error:
        return None, list(_of_error(error, remote=has_remote_code(config)))
    except UnreadableFileError:
        raise
    except ValueError as error:
        key, _, text = str(error).partition(" ")
        level: Level = "suspicion" if has_remote_code(config) else "fault"
        return None, [Finding(UNREADABLE, level, key, text)]
    return read, list(on_config(read))


def on_config(read: RopeConfig) -> Iterator[Finding]:
    """The remarks on a configuration, each with its correction."""
    remote = has_remote_code(read.config)
    for remark in read.remarks:
        level: Level = remark.level
        if remote and remark.name not in _OF_NUMBERS:  # the folder's code may well read what transformers' does not
            level = "note"
        keys, certain = (None, False) if level == "note" else correction_of(read, remark)
        yield Finding(remark.name, level, remark.key, remark.text, keys, certain, inside=inside(read))
    if remote:
        text = "names code of the folder's own, which was not read: it may use the keys otherwise than transformers' "
        text += "code of this model type, for which everything here is said"
        yield Finding("remote-code", "note", "auto_map", text)
    if "encodings" in (read.config.get("posenc") or {}):
        text = "says that layers have other encodings: load the folder with posenc.hf.attach.load"
        yield Finding("encodings-attached", "note", "posenc", text)


def _of_error(error: MalformedError, *, remote: bool) -> Iterator[Finding]:
    """A finding for each key of a malformed block; the correction of all of them stands with the first."""
    corrected: Config | None = None if remote else error.corrected
    level: Level = "suspicion" if remote else "fault"
    for path, text in error.found.items():
        yield Finding(MALFORMED, level, path.rpartition(".")[2], text, corrected, inside=error.inside)
        corrected = None
