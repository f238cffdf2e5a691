"""What a configuration shows: the remarks that reading it makes, or the error that stands in their place."""

from __future__ import annotations

from collections.abc import Iterator

from posenc.hf.config import RopeConfig, read_rope
from posenc.hf.doctor.corrections import correction_of, inside
from posenc.hf.doctor.report import Finding
from posenc.hf.mend import MalformedError
from posenc.hf.source import Config, Source
from posenc.input_files import UnreadableFileError

MALFORMED, UNREADABLE = "malformed", "unreadable"


def read_or_told(source: Source) -> tuple[RopeConfig | None, list[Finding]]:
    """A configuration read, and what is found in it; None where it cannot be.

    Raises:
        UnreadableFileError: for a file that is none, of which nothing can be judged.
    """
    try:
        read = read_rope(source)
    except MalformedError as error:
        return None, list(_of_error(error))
    except UnreadableFileError:
        raise
    except ValueError as error:
        key, _, text = str(error).partition(" ")
        return None, [Finding(UNREADABLE, "fault", key, text)]
    return read, list(on_config(read))


def on_config(read: RopeConfig) -> Iterator[Finding]:
    """The remarks on a configuration, each with its correction."""
    for remark in read.remarks:
        keys, certain = correction_of(read, remark)
        yield Finding(remark.name, remark.level, remark.key, remark.text, keys, certain, inside=inside(read))
    if read.config.get("auto_map"):
        text = "names code of the folder's own, which decides by itself; here transformers' code of the family is meant"
        yield Finding("remote-code", "note", "auto_map", text)
    if "encodings" in (read.config.get("posenc") or {}):
        text = "says that layers have other encodings: import posenc.hf.attach before from_pretrained, or transformers "
        text += "loads the original rotation"
        yield Finding("encodings-attached", "note", "posenc", text)


def _of_error(error: MalformedError) -> Iterator[Finding]:
    """A finding for each key of a malformed block; the correction of all of them stands with the first."""
    corrected: Config | None = error.corrected
    for path, text in error.found.items():
        yield Finding(MALFORMED, "fault", path.rpartition(".")[2], text, corrected, inside=error.inside)
        corrected = None
