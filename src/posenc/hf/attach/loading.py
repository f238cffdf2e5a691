"""Loads a model and its tokenizer from a folder or a GGUF file, with the rotation that the file declares."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from posenc.arguments import shown
from posenc.evaluation.likelihood import device_of
from posenc.hf.attach.checkpoint import TOKENIZERS, check_regular, check_tokenizer, load_model, loading, tokenizer_in
from posenc.hf.attach.rotary_modules import RotaryModules
from posenc.hf.config.rope_config import read_rope
from posenc.hf.config.rotation import equivalent, text_rope
from posenc.hf.config.text_config import find_text_config
from posenc.hf.sources.load import load, missing, refuse_diffusers
from posenc.rotary.rope import RoPE

_DTYPES = ("auto", "float32", "float16", "bfloat16", "float64")
_DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")  # of accelerate


class Loaded(NamedTuple):
    """A live model and its tokenizer, None where the folder has none."""

    model: nn.Module
    tokenizer: Any


def load_causal_lm(
    source: str | Path, *, dtype: str = "auto", device: str = "cpu", device_map: str | None = None,
    trust_remote_code: bool = False, reads_text: bool = False,
) -> Loaded:  # fmt: skip
    """A causal language model of transformers.

    Args:
        source: a folder of transformers, a GGUF file, or a folder with one GGUF file and no config.json. The rotation
            of a GGUF file is that of its metadata and tensors, which transformers drops.
        dtype: of the weights, as from_pretrained takes it; weights of GGUF are float32 under "auto".
        device: where to put it; "auto": cuda, mps or cpu, the first there is.
        device_map: "auto": accelerate spreads the weights over all devices and the memory of the processor.
        trust_remote_code: whether code of the folder may run.
        reads_text: whether a folder without a tokenizer is refused, before its weights are loaded.

    Raises:
        ValueError: for another kind of folder, for one with code that is not allowed to run, for a device that does not
            exist, and for a rotation that the model cannot have.
        OSError: where files cannot be read.
    """
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"model: {missing(path)}; give a folder of transformers or a GGUF file")
    device = chosen_device(device)
    check_dtype(dtype)
    check_device_map(device_map)
    file = _gguf_in(path)
    if file is None:
        if reads_text:
            check_tokenizer(path)
        placed: Any = device_map
        if placed is None and device != "cpu" and _is_quantized(path):
            placed = {"": device}  # quantised weights are put on their device while they are loaded, and stay there
        model = load_model(path, dtype, trust_remote_code=trust_remote_code, device_map=placed)
        has = any((path / name).exists() for name in TOKENIZERS)
        tokenizer = tokenizer_in(path, trust_remote_code=trust_remote_code) if has else None
        return Loaded(model if placed is not None else to_device(model, device), tokenizer)
    if device_map is not None:
        raise ValueError(f"device_map: {file} is a GGUF file, which one device gets: use --device")
    try:
        from posenc.hf.sources.gguf_file import has_tokenizer
    except ModuleNotFoundError as error:
        raise ValueError(
            f"model: {file} needs the package gguf: pip install 'posenc[gguf]', in a clone '.[gguf]'"
        ) from error
    has = has_tokenizer(file)  # also checks that the file is complete, which transformers does not
    check_regular(file.parent)  # transformers also reads a tokenizer_config.json there
    source_options: dict[str, Any] = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    source_options |= {"trust_remote_code": False, "local_files_only": True}
    unpacked = GgufConfig(dequantize=True)  # weights in blocks can neither be trained nor saved
    with loading(file, "the model"):
        model = AutoModelForCausalLM.from_pretrained(
            **source_options, dtype="float32" if dtype == "auto" else dtype, quantization_config=unpacked
        )
    _rotate_as_file(model, file)
    with loading(file, "the tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(**source_options) if has else None
    return Loaded(to_device(model, device).eval(), tokenizer)


def check_device(device: str) -> None:
    """Raise a ValueError for a device that does not exist."""
    try:
        kind = torch.device(device).type
    except RuntimeError:
        raise ValueError(f"device must be auto, cpu, cuda, cuda:1, mps, ..., got {shown(device)}") from None
    module = getattr(torch, kind, None)
    if kind == "meta" or (kind not in ("cpu", "mps") and module is not None and not module.is_available()):
        raise ValueError(
            f"device {shown(device)} does not exist: torch {torch.__version__} finds no {kind}; --device cpu"
        )


def chosen_device(device: str) -> str:
    """A device by name; "auto": cuda, mps or cpu, the first that torch finds."""
    if device == "auto":
        mps = getattr(torch.backends, "mps", None)
        device = "cuda" if torch.cuda.is_available() else "mps" if mps is not None and mps.is_available() else "cpu"
    check_device(device)
    return device


def check_dtype(dtype: str) -> None:
    """Raise a ValueError for a name that is no floating-point type of weights."""
    if dtype not in _DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(_DTYPES)}, got {shown(dtype)}")


def check_device_map(device_map: str | None) -> None:
    """Raise a ValueError for a device map that is none, or without accelerate, which places the weights."""
    if device_map is None:
        return
    if device_map not in _DEVICE_MAPS:
        raise ValueError(f"device_map must be one of {', '.join(_DEVICE_MAPS)}, got {shown(device_map)}")
    if importlib.util.find_spec("accelerate") is None:
        raise ValueError("device_map needs accelerate: pip install 'posenc[extend]', in a clone '.[extend]'")


def is_folder_of_transformers(path: Path, model: nn.Module) -> bool:
    """Whether a path is a folder whose weight files hold the model's tensors under the same names."""
    if not (path / "config.json").is_file():
        return False
    config: Any = model.config
    model_type: str = config.model_type
    return load(path / "config.json").get("model_type") == model_type


def _is_quantized(folder: Path) -> bool:
    config = load(folder / "config.json")
    return any("quantization_config" in part for part in (config, find_text_config(config).config))


def to_device(model: nn.Module, device: str) -> nn.Module:
    """Move a model to a device; a ValueError where it does not fit."""
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as error:  # out of memory, or no such device number
        raise ValueError(f"device {shown(device)}: {str(error).splitlines()[0]}") from error


@contextmanager
def within_memory(model: nn.Module, tokens: int) -> Iterator[None]:
    """Let a lack of memory become a ValueError of one line, which says at how many tokens and what to do.

    Args:
        model: on its device.
        tokens: of the text that is read.
    """
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        # RuntimeError is that of the processor's allocator, and of MPS
        lacks = not isinstance(error, RuntimeError) or isinstance(error, torch.OutOfMemoryError)
        if not lacks and "can't allocate memory" not in str(error) and "out of memory" not in str(error):
            raise
        raise ValueError(
            f"device {device_of(model)}: its memory does not suffice for {tokens:,} tokens: use shorter texts, a "
            "smaller --dtype, another --device or --device-map auto"
        ) from error


def _gguf_in(path: Path) -> Path | None:
    """The GGUF file at or in a path; None for a folder of transformers."""
    if path.is_file():
        if path.suffix != ".gguf":
            raise ValueError(f"model must be a folder or a .gguf file, got {path}")
        return path
    refuse_diffusers(path)
    if (path / "config.json").exists():
        return None
    files = sorted(path.glob("*.gguf"))
    if len(files) != 1:
        raise ValueError(f"model: {path} has no config.json and {len(files)} .gguf files: give one file")
    return files[0]


def _rotate_as_file(model: nn.Module, file: Path) -> None:
    """Give the model the file's base and scaling, in the layout into which the loader has brought the weights."""
    rotations, read = RotaryModules(model), read_rope(file)
    ropes = {}
    for kind, rope in rotations.ropes.items():
        declared = read.layers.get(kind)
        assert isinstance(rope, RoPE)
        if declared is None:
            raise ValueError(f"model: {file} does not declare the rotation of {kind} layers")
        target = text_rope(declared)
        ropes[kind] = rope.replace(base=target.base, rotary_dim=target.rotary_dim, scaling=target.scaling)
    if not all(equivalent(rope, rotations.ropes[kind]) for kind, rope in ropes.items()):
        rotations.rebuild(rotations.read.with_rope({**rotations.read.layers, **ropes}).to_config())
