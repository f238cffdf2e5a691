"""Names and shapes of the tensors in torch's own files (pytorch_model.bin), without running what they contain.

Unpickling a file runs whatever functions it names. The unpickler here knows six names, each of which is a stand-in that
keeps a shape or nothing; any other name is an error, and no storage is read. Files older than torch 1.6 are no archive
and are not read.

Source: torch 2.13, serialization.py (the archive's data.pkl, persistent ids) and _utils.py (_rebuild_tensor_v2,
    _rebuild_parameter).
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

from posenc.input_files import UnreadableFileError, open_regular, path_text

_LARGEST = 64 * 2**20  # bytes of data.pkl: 2**18 tensors need some 40 MB
_DEPTH = 4


class _Stored(NamedTuple):
    """A tensor's shape."""

    shape: tuple[int, ...]


def _rebuild_tensor(storage: Any, offset: Any, size: Any, *rest: Any) -> _Stored:
    if not isinstance(size, tuple) or not all(type(side) is int and side >= 0 for side in size):
        raise pickle.UnpicklingError("a tensor whose shape is none")
    return _Stored(size)


def _rebuild_parameter(data: Any, *rest: Any) -> Any:
    return data


class _ShapesOnly(pickle.Unpickler):
    """An unpickler that makes shapes of tensors, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch._utils" and name in ("_rebuild_tensor", "_rebuild_tensor_v2"):
            return _rebuild_tensor
        if module == "torch._utils" and name == "_rebuild_parameter":
            return _rebuild_parameter
        if module in ("torch", "torch.storage") and name.endswith("Storage"):
            return name
        raise pickle.UnpicklingError(f"{module}.{name}, which no file of weights alone needs")

    def persistent_load(self, pid: Any) -> None:
        return None  # the numbers of a tensor stay in the archive


def shapes_in(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors of a torch file, by name.

    Raises:
        UnreadableFileError: for a file that is no archive of torch, is damaged, or names other code than tensors need.
        OSError: as the system says.
    """
    with open_regular(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                (inner,) = (item for item in archive.infolist() if item.filename.endswith("/data.pkl"))
                if inner.file_size > _LARGEST:
                    raise UnreadableFileError(f"{path_text(path)} has {inner.file_size:,} bytes of names and shapes")
                content = archive.read(inner)
        except (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError, EOFError) as error:
            if isinstance(error, UnreadableFileError):
                raise
            raise UnreadableFileError(
                f"{path_text(path)} is no archive that torch 1.6 or later writes: {error}"
            ) from None
    try:
        value = _ShapesOnly(io.BytesIO(content)).load()
    except Exception as error:  # a damaged pickle raises errors of any kind
        raise UnreadableFileError(f"{path_text(path)} is not read, since its pickle has {error}") from None
    shapes: dict[str, tuple[int, ...]] = {}
    _collect(value, "", shapes, 0)
    return shapes


def _collect(value: Any, prefix: str, shapes: dict[str, tuple[int, ...]], depth: int) -> None:
    if isinstance(value, _Stored):
        shapes[prefix] = value.shape
    elif isinstance(value, dict) and depth < _DEPTH:
        for key, inner in value.items():
            _collect(inner, f"{prefix}.{key}" if prefix else str(key), shapes, depth + 1)
