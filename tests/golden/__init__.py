"""Numbers that other people's code produced; `README.md` next to this file says which code, and how close to come.

Files of one family lie in one archive, ``bias.npz`` or ``vision.npz``, whose members are ``FILE/ARRAY.npy``, and
``manifest.json`` with what each file was made with. Files are called ``alibi_causal_h8_l19``, ``vision/…``; the first
word, or the folder, says which archive has them (`FAMILIES`).
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

HERE = Path(__file__).parent
MANIFEST = "manifest.json"


FAMILIES = {  # archives by the first words of their files' names; a word that stands nowhere is an archive itself
    "embedding": "abacus learned sinusoidal",
    "rotary": "drope fope grape pope repo rope ropepp rotary selrope xpos",
    "frequencies": "authors clex clipped dynamic linear llama3 longrope multiscale ntk part proportional resonance "
    "yarn",
    "bias": "alibi bam distance fire kerple nope sandwich swinv2 t5",
    "score": "cable cope dape dca ddalibi fox foxlayer leaky lminf logn path rerope sb selfextend shaw sinks softmax1 "
    "ssmax streaming string temp xl xlnet",
    "positions": "multimodal multimodal_authors multimodal_positions pose",
}
_ARCHIVE_OF = {word: archive for archive, words in FAMILIES.items() for word in words.split()}


def archive_of(name: str) -> str:
    """The archive of a file."""
    word = name.partition("/" if "/" in name else "_")[0]
    return _ARCHIVE_OF.get(word, word)


@cache
def _archive(family: str) -> tuple[Any, dict[str, Any]]:
    """An archive, open for reading, and its manifest: the settings of each file under the file's full name."""
    archive = np.load(HERE / f"{family}.npz")
    return archive, json.loads(archive[MANIFEST])


@cache
def files() -> list[str]:
    """The names of all files."""
    return sorted(name for path in HERE.glob("*.npz") for name in _archive(path.stem)[1])


def names(pattern: str) -> list[str]:
    """The files that match; a pattern that none matches would be a test of nothing."""
    found = [name for name in files() if fnmatchcase(name, pattern) and name.count("/") == pattern.count("/")]
    if not found:
        raise ValueError(f"pattern must match a file of {HERE.name}, got {pattern!r}")
    return found


def load(name: str, dtype: torch.dtype | None = torch.float64) -> dict[str, Tensor]:
    """The arrays of one file; those of floating point in ``dtype``, or as they were stored."""
    archive, _ = _archive(archive_of(name))
    members = [key for key in archive.files if key.startswith(f"{name}/")]
    tensors = {key.removeprefix(f"{name}/"): torch.from_numpy(archive[key]) for key in members}
    return {key: t.to(dtype or t.dtype) if t.is_floating_point() else t for key, t in tensors.items()}


def config(name: str) -> dict[str, Any]:
    """What the file was made with."""
    return dict(_archive(archive_of(name))[1][name])


def save(name: str, arrays: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Write a file into the archive of its family, in the place of one of that name."""
    path, members, manifest = HERE / f"{archive_of(name)}.npz", {}, {}
    if path.exists():
        with zipfile.ZipFile(path) as archive:
            members = {member: archive.read(member) for member in archive.namelist()}
        manifest = json.loads(members.pop(MANIFEST))
    members = {member: content for member, content in members.items() if not member.startswith(f"{name}/")}
    for key, array in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, np.asarray(array), allow_pickle=False)
        members[f"{name}/{key}.npy"] = buffer.getvalue()
    manifest = dict(sorted({**manifest, name: dict(settings)}.items()))
    members[MANIFEST] = json.dumps(manifest, indent=1, ensure_ascii=False).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member in sorted(members):
            entry = zipfile.ZipInfo(member, (1980, 1, 1, 0, 0, 0))  # the same bytes whenever it is written
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, members[member], compresslevel=9)


def configs(name: str) -> list[dict[str, Any]]:
    """The lines of a file of configurations that other people published."""
    return [json.loads(line) for line in (HERE / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
