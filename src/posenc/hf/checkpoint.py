"""Folders of transformers models: opened, and written whole or not at all. Needs the package transformers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from posenc.hf.attach import attach
from posenc.hf.whole import whole

_WEIGHTS = ("*.safetensors", "*.bin")
_BESIDE = ("token", "vocab", "merges", "special", "chat_template", "spiece")  # begins of files that a tokenizer has


def has_weights(folder: Path) -> bool:
    """Whether a folder holds a model's weights."""
    return any(any(folder.glob(pattern)) for pattern in _WEIGHTS)


def built(folder: Path) -> nn.Module:
    """The model of a folder; with random weights where it has none, as its configuration alone says.

    Raises:
        ValueError: for what is no folder.
    """
    if not folder.is_dir():
        raise ValueError(f"path: {folder} is no folder, of which a model can be built")
    if has_weights(folder):
        return opened(folder)
    model: nn.Module = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    return model.eval()


def opened(folder: Path, dtype: torch.dtype | str = "auto") -> nn.Module:
    """The model of a folder with its weights, on the processor.

    Raises:
        ValueError: for a folder without any.
    """
    if not has_weights(folder):
        raise ValueError(f"path: {folder} has no weights ({', '.join(_WEIGHTS)})")
    model: nn.Module = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    return model.eval()


def attach_to_folder(folder: Path, encodings: str, out: Path, layers: Iterable[int] | None = None) -> None:
    """A new folder with a model under other encodings, and the tokenizer of the old one.

    Raises:
        ValueError: as `posenc.hf.attach.attach`, for a folder without weights, and where ``out`` exists.
    """
    if os.path.lexists(out):
        raise ValueError(f"out: {out} exists; nothing is overwritten")
    model = opened(folder)
    assert isinstance(model, PreTrainedModel)
    attach(model, encodings, layers=layers)

    def write(temporary: Path) -> None:
        model.save_pretrained(temporary)
        for path in folder.iterdir():
            if path.is_file() and path.name.startswith(_BESIDE):
                shutil.copy2(path, temporary / path.name)

    whole(out, write)
