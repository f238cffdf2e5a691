"""A GGUF file under another rotation (reading one is in `posenc.hf.sources`).

keys   what a GGUF file must say so that llama.cpp rotates as a rotation does
write  copies a file with these keys; needs the package gguf
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from posenc.hf.gguf.write import Rewritten, RotationChange


def write_gguf(source: str | Path, target: str | Path, rope: RotationChange, *, replace: bool = False) -> Rewritten:
    """Copy a GGUF file under another rotation: ``rope.*`` keys, temperature and factors change, and nothing else.

    What was written is read back before it takes its name: every other key, every byte of every other tensor, and
    the rotation, up to the float32 numbers of the format.

    Args:
        source: a GGUF file.
        target: where the copy goes.
        rope: what it is to say: one rotation for all layers that rotate, one by kind of layers, a whole configuration
            as `read_rope` gives it, or a function of the file's own. The pairs stay as in the file's
            weights, whatever their layout.
        replace: whether ``target`` may be overwritten; it may then be ``source``.

    Raises:
        ValueError: for what GGUF or llama.cpp's code of this model cannot say (which layers rotate, a frequency that
            follows the length or the head, factors where the model reads none), for a target that exists, for one
            part of several, and without the package gguf.
        OSError: where a file cannot be read or written.
    """
    try:
        from posenc.hf.gguf.write import rewrite
    except ModuleNotFoundError as error:
        raise ValueError(
            "writing a GGUF file needs the package gguf: pip install 'posenc[gguf]', in a clone '.[gguf]'"
        ) from error
    return rewrite(Path(source), Path(target), rope, replace=replace)
