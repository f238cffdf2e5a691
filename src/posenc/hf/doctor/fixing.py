"""Writes corrections, to a copy or in place with a backup; nothing is overwritten or lost.

Findings are corrected one by one, with a new examination after each, since one correction can resolve or reveal others.
This happens on a stage: a temporary folder with links to large files and copies of the JSON files. Only the corrected
files are then written to the target, atomically.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posenc.hf.atomic_write import replace_with_backup, write_atomically
from posenc.hf.doctor.examine import MOST, examine
from posenc.hf.doctor.report import Report
from posenc.hf.findings import CONFIG, Finding
from posenc.hf.limits import FILE_BYTES
from posenc.hf.sources.formats import translate
from posenc.hf.sources.load import Config, load
from posenc.input_files import path_text

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
    for _ in range(_ROUNDS):
        finding = _next(examine(result), written, guesses)
        if finding is None:
            break
        result = _apply(result, finding)
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
    if path.is_file() and (program := translate(load(path)).program):
        raise ValueError(f"fix: {path} is a file of {program}, which is not written here; the report says what to do")
    if out is not None and os.path.lexists(out):
        raise ValueError(f"out: {out} exists; nothing is overwritten")
    with tempfile.TemporaryDirectory() as name, _named_as(path, Path(name)):
        stage = _stage(path, Path(name))
        written: list[Finding] = []
        for _ in range(_ROUNDS):
            report = examine(
                stage, weights=weights, text=text, tokenizer=tokenizer, most=most, trust_remote_code=trust_remote_code
            )
            finding = _next(report.accepting(set(accept)), written, guesses)
            if finding is None:
                break
            _correct(stage / finding.file, finding)
            written.append(finding)
        if written:
            files = {finding.file: (stage / finding.file).read_text(encoding="utf-8") for finding in written}
            _write(path, None if out is None else Path(out), files)
    return written


def _correct(target: Path, finding: Finding) -> None:
    """Write the correction of a finding into a file of the stage, which may be a link to the source's file."""
    text = _json(_apply(load(target), finding))
    target.unlink()
    target.write_text(text, encoding="utf-8")


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


def _next(report: Report, written: list[Finding], guesses: bool) -> Finding | None:
    """The next finding to correct, none twice."""
    done = {(finding.name, finding.key, finding.file) for finding in written}
    # The configuration first: a limit next to it follows from what it says then.
    for finding in sorted(report.findings, key=lambda finding: finding.file != CONFIG):
        correctable = finding.alarms and finding.corrected is not None and (finding.certain or guesses)
        if correctable and (finding.name, finding.key, finding.file) not in done:
            return finding
    return None


def _apply(config: Config, finding: Finding) -> Config:
    """A file's content with the corrected keys of a finding; null removes a key."""
    inner = config
    for name in finding.inside.split(".") if finding.inside else ():
        inner = inner[name]
    for key, value in (finding.corrected or {}).items():
        if value is None:
            inner.pop(key, None)
        else:
            inner[key] = value
    return config


def _json(config: Config) -> str:
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    if any("\ud800" <= character <= "\udfff" for character in text):  # lone surrogates, which UTF-8 cannot encode
        text = json.dumps(config, indent=2) + "\n"
    return text


def _stage(path: Path, stage: Path) -> Path:
    """Fill a folder with the source's files: JSON copied, so that it can be written, everything else linked."""
    if path.is_file():
        shutil.copyfile(path, stage / CONFIG)
        return stage
    if not (path / CONFIG).is_file():
        raise ValueError(f"fix: {path} has no {CONFIG}, which is what would be written")
    for entry in path.iterdir():
        if entry.suffix == ".json" and entry.is_file() and entry.stat().st_size <= FILE_BYTES:
            shutil.copyfile(entry, stage / entry.name)
        else:
            (stage / entry.name).symlink_to(entry.absolute())
    return stage


def _write(path: Path, out: Path | None, files: dict[str, str]) -> None:
    """Write the corrected files, in place or with a copy of everything else."""
    if out is None:
        for name, text in files.items():
            replace_with_backup(path if path.is_file() else path / name, text)
    elif path.is_file():
        write_atomically(out, lambda temporary: temporary.write_text(files[CONFIG], encoding="utf-8"))
    else:
        _check_room(path, out)

        def copy(temporary: Path) -> None:
            shutil.copytree(path, temporary, copy_function=_copy_regular)
            for name, text in files.items():
                (temporary / name).write_text(text, encoding="utf-8")

        write_atomically(out, copy)


def _check_room(path: Path, out: Path) -> None:
    """Raise a ValueError where a copy of a folder does not fit on the disk of another."""
    where = next(parent for parent in out.absolute().parents if parent.exists())
    needed = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    free = shutil.disk_usage(where).free
    if needed > free:
        raise ValueError(
            f"out: {path_text(out)} needs {needed:,} bytes, and {free:,} are free there; nothing was written"
        )


def _copy_regular(source: str, target: str) -> None:
    """Copy a regular file; a named pipe or a device would be read without end."""
    if not Path(source).is_file():
        raise ValueError(f"fix: {path_text(source)} is no regular file, which cannot be copied")
    try:
        shutil.copy2(source, target)
    except OSError as error:  # copytree would collect these and copy the rest
        reason = error.strerror or str(error)
        raise ValueError(f"fix: {path_text(source)} cannot be copied: {reason}; nothing was written") from error
