"""The config files of a model: read as text, edited, and written to a new folder or in place, without the weights.

An edit keeps what its author wrote: the order of keys, the spelling of numbers (1e-6 would become 1e-06) and of
letters, the indentation. Published files are laid out as json.dumps does; a file that somebody laid out by hand gets
that layout.

A new folder made from a folder of weights is complete: files over `LINKED_FROM` bytes and weight files are hard links
(symbolic links on another disk), so that nothing is copied twice; small files and JSON are copies, so that an editor
cannot change the source through them.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from posenc.hf.atomic_write import replace_with_backup, write_atomically
from posenc.hf.limits import FILE_BYTES, is_count
from posenc.hf.sources.load import SIDE_FILES, Config, Source, hub_id, load, local_source, translate
from posenc.input_files import (
    UnreadableFileError,
    is_lfs_pointer,
    lfs_text,
    open_regular,
    parse_json,
    path_text,
    read_text,
)

Link = Literal["hard links", "symbolic links", "copies"]
CONFIG, TOKENIZER_JSON = "config.json", "tokenizer.json"
LINKED_FROM = 2**20  # bytes
_WEIGHTS = {".safetensors", ".bin", ".gguf", ".pt", ".pth", ".h5", ".msgpack", ".onnx"}
_HEAD = 4096  # bytes of tokenizer.json
_LEFT = {".git", ".cache"}
REMOVED = object()
"""The value of a key that is to go."""
_BEGIN = re.compile(r'\s*\{(\s*)(?:"(?:[^"\\]|\\.)*"\s*:(\s*))?')  # the spaces before and behind the first key


@dataclass(frozen=True)
class ConfigFiles:
    """The config of a model, and the files next to it.

    Attributes:
        model: the source in words.
        config: in Hugging Face's keys.
        texts: by name, the text of each file that was read; empty for a GGUF file.
        folder: that has the files; None where the source is a mapping or one file.
        file: the source where it is one file.
        gguf: path of a GGUF file, which has no config.json; "" for any other source.
        of_the_hub: whether the files lie in the cache of the Hugging Face Hub.
    """

    model: str
    config: Config
    texts: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    file: Path | None = None
    gguf: str = ""
    of_the_hub: bool = False

    def side(self, name: str) -> Config:
        """The content of a file next to config.json; empty where there is none that holds an object."""
        if name not in self.texts:
            return {}
        content = parse_json(Path(name), self.texts[name])
        return content if isinstance(content, dict) else {}

    def tokenizer_limit(self) -> int | None:
        """The length at which tokenizer.json truncates texts; None where it does not, or there is no such file."""
        path = None if self.folder is None else self.folder / TOKENIZER_JSON
        return truncation_of(path) if path is not None and path.is_file() else None

    def check_writable(self, out: Path | None) -> None:
        """Raise a ValueError where the files cannot be written, in place or to ``out``, before anything is computed."""
        if self.gguf:
            raise ValueError(
                f"{self.model} is a GGUF file, which has no config.json to write: serve it by the flags that are "
                "printed without --out, or write a copy of it with other keys: posenc gguf SOURCE TARGET --rope BLOCK"
            )
        if out is not None:
            if os.path.lexists(out):
                raise ValueError(f"out: {path_text(out)} exists; nothing is overwritten: give another folder")
            if self.folder is not None and self.folder.resolve() in out.resolve().parents:
                raise ValueError(
                    f"out: {path_text(out)} lies in the folder that is copied: give a folder outside of it"
                )
        elif self.of_the_hub:
            raise ValueError(f"{self.model} lies in the cache of the Hub, which is not written to: give --out DIR")
        elif self.folder is None and self.file is None:
            raise ValueError("in_place: the source is no file")


def truncation_of(path: Path) -> int | None:
    """The length at which a tokenizer.json truncates texts; None where it does not.

    Its first keys are version and truncation, so that its vocabulary of up to 35 MB is not read.

    Raises:
        UnreadableFileError: for what is no JSON object; it names the path.
        OSError: where the file cannot be read.
    """
    with open_regular(path) as file:
        head = file.read(_HEAD)
    if is_lfs_pointer(head):
        raise UnreadableFileError(lfs_text(path))
    if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        raise UnreadableFileError(f"{path_text(path)} must hold a JSON object")
    match = re.search(r'"truncation"\s*:\s*\{[^{}]*"max_length"\s*:\s*(\d{1,12})\b', head.decode(errors="replace"))
    return int(match[1]) if match is not None and is_count(int(match[1])) else None


def read_files(source: Source) -> ConfigFiles:
    """The config files of a source; weights are not opened.

    Raises:
        ValueError: for what cannot be read, and for another program's file (params.json).
        OSError: where a file cannot be read.
    """
    if not isinstance(source, str | Path):
        config = load(source)
        form = translate(config)
        model = str(config.get("_name_or_path") or config.get("model_type") or "the config")
        if form.program:
            raise ValueError(f"the config is one of {form.program}; a config in Hugging Face's keys is needed")
        return ConfigFiles(model, config, {CONFIG: json.dumps(config, indent=2) + "\n"})
    path = local_source(source)
    if path.suffix == ".gguf" and path.exists():
        return ConfigFiles(str(source), translate(load(path)).config, gguf=str(path))
    config = load(path)  # which says what is wrong with a path
    if (program := translate(config).program) or (path.is_dir() and not (path / CONFIG).exists()):
        raise ValueError(f"{path_text(path)} is a file of {program or 'another program'}; a config.json is needed")
    if not path.is_dir():
        return ConfigFiles(str(source), config, {CONFIG: read_text(path, FILE_BYTES)}, file=path)
    names = [name for name in (CONFIG, *SIDE_FILES) if (path / name).is_file()]
    texts = {name: read_text(path / name, FILE_BYTES) for name in names}
    return ConfigFiles(str(source), config, texts, folder=path, of_the_hub=hub_id(source) is not None)


def edited(text: str, changes: Mapping[tuple[str, ...], Any]) -> str:
    """The text of a JSON object with other values at some paths.

    Args:
        text: of the file; a byte order mark must be gone.
        changes: by path, the new value, or `REMOVED`. A key that is missing is added behind the last key of its
            object, and objects that are missing on the way to it are made.

    Raises:
        ValueError: for a path that leads through something else than an object, and for a text that holds none.

    >>> edited('{"a": 1e-6, "b": {"c": 2}}', {("b", "c"): 3, ("d",): [1, 2]})
    '{"a": 1e-6, "b": {"c": 3}, "d": [1, 2]}'
    """
    mark = "\0"  # before each number with a point or an exponent, which is carried as a text
    while json.dumps(mark)[1:-1] in text:
        mark += "\0"
    content = json.loads(text, parse_float=lambda number: mark + number)
    if not isinstance(content, dict):
        raise ValueError("the text must hold a JSON object")
    for (*outer, key), value in changes.items():
        inside = content
        for name in outer:
            if not isinstance(inside.get(name), dict):
                if value is REMOVED:
                    break  # there is nothing to remove
                if inside.get(name) is not None:
                    raise ValueError(f"{name} must be an object to hold {key}")
                inside[name] = {}
            inside = inside[name]
        else:
            inside[key] = value
            if value is REMOVED:
                del inside[key]
    begin = _BEGIN.match(text)
    assert begin is not None
    indent = (begin[1].rpartition("\n")[2] or "  ") if "\n" in begin[1] else None
    separators = (",", ":") if indent is None and begin[2] == "" else None
    result = json.dumps(content, indent=indent, separators=separators, ensure_ascii=text.isascii())
    result = re.sub(rf'"{re.escape(json.dumps(mark)[1:-1])}([^"]*)"', r"\1", result)
    return (result.replace("\n", "\r\n") if "\r\n" in text else result) + text[len(text.rstrip()) :]


def write_out(files: ConfigFiles, texts: Mapping[str, str], out: Path) -> None:
    """A new folder with the changed files, and everything else of the source's folder; complete or not there.

    From one config.json, a mapping or the cache of the Hub only config files are written.

    Raises:
        ValueError: where something is at ``out``.
        OSError: where it cannot be written.
    """

    def make(temporary: Path) -> None:
        if files.folder is not None and not files.of_the_hub:
            copy_folder(files.folder, temporary)
        else:
            temporary.mkdir()
        write_texts(temporary, {**(files.texts if files.of_the_hub else {}), **texts})

    write_atomically(out, make)


def write_texts(folder: Path, texts: Mapping[str, str]) -> None:
    """Write files of a new folder, by name; none through a link to a file of the source."""
    for name, text in texts.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_text(text, encoding="utf-8", newline="")


def write_in_place(files: ConfigFiles, texts: Mapping[str, str]) -> str:
    """Replace the changed files, config.json last, each with a backup; returns what was written, in words."""
    names = sorted(texts, key=lambda name: name == CONFIG)
    written = []
    for name in names:
        path = files.file if files.folder is None else files.folder / name
        assert path is not None
        backup = replace_with_backup(path, texts[name])
        written.append(f"{path} (before: {backup.name})")
    return ", ".join(written)


def unified_diff(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """A unified diff of the files that changed, by name."""
    parts: list[str] = []
    for name, text in after.items():
        old, new = before[name].splitlines(), text.splitlines()
        parts += difflib.unified_diff(old, new, name, name, n=1, lineterm="")
    return "\n".join(parts)


def copy_folder(source: Path, target: Path) -> str:
    """Everything of a folder in a new one: weights and large files linked, small ones and JSON copied.

    Returns:
        How the weights were linked, in words; "copies" where no link can be made.
    """
    kinds: tuple[Link, ...] = ("hard links", "symbolic links", "copies")
    worst = 0
    target.mkdir()
    for entry in sorted(source.iterdir()):
        if entry.name in _LEFT or ".original" in entry.name:  # a backup of another run
            continue
        if entry.is_dir():
            copy_folder(entry, target / entry.name)
        elif entry.suffix in _WEIGHTS:
            worst = max(worst, kinds.index(link_file(entry, target / entry.name)))
        elif entry.is_file():
            large = entry.stat().st_size > LINKED_FROM and entry.suffix != ".json"
            (link_file if large else shutil.copyfile)(entry, target / entry.name)
    return f"{kinds[worst]} {'of' if kinds[worst] == 'copies' else 'to'} the files of {source}"


def link_file(source: Path, target: Path) -> Link:
    """A link to a file; returns which kind there is now.

    A hard link takes no space and outlives the source; on another disk it is a symbolic link, and where the system has
    neither, a copy.
    """
    real = source.resolve(strict=True)  # the Hub's cache has symbolic links, and a hard link to one of them breaks
    try:
        os.link(real, target)
    except (OSError, NotImplementedError):
        try:
            target.symlink_to(real)
        except (OSError, NotImplementedError):
            shutil.copy2(real, target)
            return "copies"
        return "symbolic links"
    return "hard links"
