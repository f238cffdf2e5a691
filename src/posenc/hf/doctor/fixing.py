"""Writes corrections, to a copy or in place with a backup; nothing is overwritten or lost.

Findings are corrected one by one, with a new examination after each, since one correction can resolve or reveal others.
This happens on a stage, a temporary folder with links to large files; only the corrected files are then written. Their
keys change in the files' own text.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posenc.hf.atomic_write import write_atomically
from posenc.hf.config.rope_keys import put
from posenc.hf.doctor.examine import MOST, examine
from posenc.hf.doctor.report import Report
from posenc.hf.findings import CONFIG, Finding
from posenc.hf.sources.config_files import REMOVED, edited, read_files, write_in_place, write_out
from posenc.hf.sources.load import Config, load

if TYPE_CHECKING:
    from torch import Tensor

_ROUNDS = 20  # examinations at most, far more than there are kinds of findings with a correction


def corrected(config: Config, *, guesses: bool = False) -> tuple[Config, list[Finding]]:
    """A corrected configuration, and the findings that were corrected.

    Args:
        config: as a dictionary, which is not changed.
        guesses: apply corrections too whose numbers the configuration alone cannot confirm.
    """
    result = load(config)
    written: list[Finding] = []
    for finding in _to_correct(lambda: examine(result), guesses):
        for path, value in _changes(finding).items():
            put(result, path, value)
        written.append(finding)
    return result, written


def fix(
    source: str | Path,
    out: str | Path | None = None,
    *,
    in_place: bool = False,
    guesses: bool = False,
    accept: Collection[str] = (),
    weights: bool = False,
    text: str | Tensor | None = None,
    tokenizer: Any = None,
    most: int = MOST,
    trust_remote_code: bool = False,
) -> list[Finding]:
    """Write a corrected folder, or a corrected config.json.

    Args:
        source: a folder with a config.json, or that file.
        out: a folder (a file) that does not exist; it gets everything in the source.
        in_place: change the source itself instead, and keep each file that changes as ``NAME.original`` beside it.
        guesses: write corrections too whose numbers the files alone cannot confirm.
        accept: names of findings to leave as they are.
        weights, text, tokenizer, most, trust_remote_code: as for `examine`.

    Returns:
        The findings that were corrected; nothing is written where there are none.

    Raises:
        ValueError: unless there is one place to write, for a place that exists, and for another program's file.
        OSError: for files that cannot be read or written.
    """
    path = Path(source)
    if (out is None) == (not in_place):
        raise ValueError("out or in_place: give one of the two")
    if path.suffix == ".gguf":
        raise ValueError(
            f"fix: {path} is a GGUF file, which is not written here; the report says what to give llama.cpp"
        )
    if out is not None and os.path.lexists(out):
        raise ValueError(f"out: {out} exists; nothing is overwritten")
    files = read_files(path)
    texts, written = dict(files.texts), list[Finding]()
    how = {"weights": weights, "text": text, "tokenizer": tokenizer, "most": most}
    with tempfile.TemporaryDirectory() as name, _named_as(path, stage := Path(name) / "stage"):
        write_out(files, texts, stage)

        def look() -> Report:
            return examine(stage, trust_remote_code=trust_remote_code, **how).accepting(set(accept))

        for finding in _to_correct(look, guesses):
            texts[finding.file] = edited(texts[finding.file], _changes(finding))
            (stage / finding.file).write_text(texts[finding.file], encoding="utf-8", newline="")
            written.append(finding)
    changed = {finding.file: texts[finding.file] for finding in written}
    if written and out is None:
        write_in_place(files, changed)
    elif written and files.file is not None:
        write_atomically(Path(str(out)), lambda new: new.write_text(changed[CONFIG], encoding="utf-8", newline=""))
    elif written:
        write_out(files, changed, Path(str(out)))
    return written


@contextmanager
def _named_as(path: Path, stage: Path) -> Iterator[None]:
    """Let errors name the source, of which the stage is a copy that nobody will find."""
    try:
        yield
    except (ValueError, OSError) as error:
        text = str(error)
        if str(stage) not in text:
            raise
        text = text.replace(str(stage / CONFIG), str(path)) if path.is_file() else text
        raise ValueError(text.replace(str(stage), str(path))) from error


def _to_correct(look: Callable[[], Report], guesses: bool) -> Iterator[Finding]:
    """Findings to correct, none twice; the source is looked at anew before each, and corrected after it."""
    done = set()
    for _ in range(_ROUNDS):
        # The configuration first: a limit next to it follows from what it says then.
        for finding in sorted(look().findings, key=lambda finding: finding.file != CONFIG):
            correctable = finding.alarms and finding.corrected is not None and (finding.certain or guesses)
            if correctable and (finding.name, finding.key, finding.file) not in done:
                break
        else:
            return
        done.add((finding.name, finding.key, finding.file))
        yield finding


def _changes(finding: Finding) -> dict[tuple[str, ...], Any]:
    """The corrected keys of a finding by their paths in the file."""
    inside = tuple(finding.inside.split(".")) if finding.inside else ()
    keys = finding.corrected or {}
    return {(*inside, key): REMOVED if value is None else value for key, value in keys.items()}
