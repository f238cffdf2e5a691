"""Loads and writes folders of transformers models, and opens GGUF files with the rotation that they declare.

A folder may hold code: ``auto_map`` in its config.json, pickled weights, the name of an attention kernel on the Hub.
transformers asks on the terminal whether to run it; here none of it runs without ``trust_remote_code=True``, whatever
stdin says. transformers, tokenizers and pickle raise exceptions of any class for a damaged folder; each becomes one
ValueError that names the folder.
"""

from __future__ import annotations

import importlib
import os
import pickle
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GgufConfig, PreTrainedModel

from posenc.arguments import one_line, shown
from posenc.evaluation.likelihood import device_of
from posenc.hf.atomic_write import write_atomically
from posenc.hf.attach.attachment import attach, block_of, detach, load_with_info, whole_model
from posenc.hf.attach.rotary_modules import RotaryModules
from posenc.hf.config.rope_config import read_rope
from posenc.hf.config.rotation import equivalent, text_rope
from posenc.hf.config.text_config import is_posenc_config
from posenc.hf.sources.load import INDEX, Config, load, missing
from posenc.hf.sources.tensor_files import problems_of_weights
from posenc.input_files import naming, path_text, printable
from posenc.rotary.rope import RoPE

_WEIGHTS = ("*.safetensors", "*.bin")
_TOKENIZER_PREFIXES = ("token", "vocab", "merges", "special", "chat_template", "spiece")
_OPENED_SUFFIXES = (".json", ".safetensors", ".bin", ".model", ".txt", ".jinja", ".py")  # files that transformers opens
TOKENIZERS = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model",
)  # fmt: skip
_MAX_ERROR = 300  # characters of another package's error

_UNTRUSTED = (
    "code of its own, which is not run: read it, then pass trust_remote_code=True (posenc doctor, inspect, attach and "
    "extend: --trust-remote-code)"
)


def load_model(
    folder: Path, dtype: torch.dtype | str = "auto", *, trust_remote_code: bool = False, weights: bool = True,
    complete: bool = True, cls: Any = AutoModelForCausalLM, **options: Any,
) -> nn.Module:  # fmt: skip
    """The model of a folder, on the processor; quantised weights stay as transformers loads them.

    Args:
        folder: of transformers.
        dtype: of the weights in memory.
        trust_remote_code: whether the folder's own code may run.
        weights: whether the folder must have weights; else one without them gives a model with random ones.
        complete: whether a model of which tensors are left out is refused.
        cls: the class that loads the weights.
        options: of ``from_pretrained``.

    Raises:
        ValueError: for what is no folder, for one with code that nobody has allowed, for tensors that would be left
            out of the model, and for whatever transformers cannot load.
    """
    if not folder.is_dir():
        raise ValueError(f"path: {missing(folder) if not folder.exists() else f'{path_text(folder)} is no folder'}")
    has_weights = any(any(folder.glob(pattern)) for pattern in _WEIGHTS)
    if weights and not has_weights:
        raise ValueError(f"path: {path_text(folder)} has no weights ({', '.join(_WEIGHTS)})")
    check_folder(folder, trust_remote_code=trust_remote_code)
    for name, text in problems_of_weights(folder):
        raise ValueError(f"{path_text(folder / name)} {text}")
    trust = {"trust_remote_code": trust_remote_code}
    with loading(folder, "the model"):
        config = AutoConfig.from_pretrained(folder, local_files_only=True, **trust)
        if has_weights:
            options |= {"dtype": dtype, "local_files_only": True, **trust}
            loader = cls.from_pretrained if block_of(config) is None else load_with_info
            model, info = loader(folder, output_loading_info=True, **options)
            if complete:
                whole_model(folder, model, info)
        else:
            _check_memory(config, trust_remote_code)
            model = AutoModelForCausalLM.from_config(config, **trust)
    live: nn.Module = model.eval()
    return live


def check_tokenizer(folder: Path) -> None:
    """Raise a ValueError for a folder without the files of a tokenizer."""
    if folder.is_dir() and not any((folder / name).exists() for name in TOKENIZERS):
        raise ValueError(
            f"{path_text(folder)} has no tokenizer, and a text is to be read: copy tokenizer.json and "
            "tokenizer_config.json from the model that it was made from"
        )


def tokenizer_in(folder: Path, *, trust_remote_code: bool = False) -> Any:
    """The tokenizer of a folder.

    Raises:
        ValueError: for a folder without one, and as `load_model`.
    """
    check_tokenizer(folder)
    check_folder(folder, trust_remote_code=trust_remote_code)
    with loading(folder, "the tokenizer"):
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code, local_files_only=True)


def check_folder(folder: Path, *, trust_remote_code: bool) -> None:
    """Raise a ValueError for files that transformers must not be let open; it names the file.

    A kernel by its name on the Hub is code as well as ``auto_map`` is.
    """
    check_regular(folder)
    config: Config = {}
    for name in ("generation_config.json", "tokenizer_config.json", "adapter_config.json", "config.json"):
        if os.path.lexists(folder / name):
            config = load(folder / name)
    kernel = next(_kernels(config), None)
    if kernel is not None and not trust_remote_code:
        raise ValueError(f"{path_text(folder)}: its config.json names {printable(kernel)[:100]}, {_UNTRUSTED}")
    if is_posenc_config(config):  # a folder that `posenc export` wrote needs no code but posenc's
        importlib.import_module("posenc.hf.modeling")  # which tells transformers of its class


def check_regular(folder: Path) -> None:
    """Raise a ValueError for a named pipe or a device where transformers reads a file: it would block for ever."""
    for path in sorted(folder.iterdir()):
        if (
            path.suffix in _OPENED_SUFFIXES
            and path.exists()
            and not stat.S_ISREG(path.stat().st_mode)
            and not path.is_dir()
        ):
            raise ValueError(f"{path_text(path)} is no regular file")


def _kernels(config: Any) -> Iterator[str]:
    """Attention kernels that a configuration names by their repository on the Hub."""
    entries = config.items() if isinstance(config, dict) else enumerate(config) if isinstance(config, list) else ()
    for key, value in entries:
        if isinstance(value, dict | list):
            yield from _kernels(value)
        elif isinstance(key, str) and "_implementation" in key and isinstance(value, str) and "/" in value:
            yield value


@contextmanager
def loading(source: Path, what: str) -> Iterator[None]:
    """Let whatever another package raises become a ValueError of one line that names the source."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a panic of Rust is no Exception
        text = one_line(error)
        if "trust_remote_code" in text:
            raise ValueError(f"{path_text(source)} has {_UNTRUSTED}") from None
        if isinstance(error, pickle.UnpicklingError) or "weights_only" in text:
            text = "its pickled weights hold more than tensors, which is not opened, as that can run code"
        elif str(source) in text and isinstance(error, ValueError) and len(text) < _MAX_ERROR:
            raise ValueError(printable(text)) from error
        kind = "" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: "
        brief = text if len(text) <= _MAX_ERROR else f"{text[:_MAX_ERROR]} …"
        raise ValueError(f"{path_text(source)}: transformers cannot load {what}: {printable(kind + brief)}") from error


def _check_memory(config: Any, trust_remote_code: bool) -> None:
    """Raise a ValueError for a model that takes more than half of the machine's memory."""
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
    except Exception:
        return  # building it for good says what is wrong, or that only this device is
    needed = sum(tensor.numel() * tensor.element_size() for tensor in (*model.parameters(), *model.buffers()))
    most = _memory() // 2
    if needed > most:
        raise ValueError(f"the model of its config.json takes {needed:,} bytes, and half of the memory is {most:,}")


def _memory() -> int:
    """Bytes of memory that the machine has; 16 GiB where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**34


def attach_to_folder(
    folder: Path, encodings: str, out: Path, layers: Iterable[int] | None = None, *, trust_remote_code: bool = False,
    measure: Callable[[nn.Module], None] | None = None,
) -> None:  # fmt: skip
    """Write a new folder with a model under other encodings, and the tokenizer of the old one.

    Args:
        folder: with a model and its weights.
        encodings, layers: of `posenc.hf.attach.attach`.
        out: the new folder.
        trust_remote_code: whether the folder's own code may run.
        measure: is called with the model before and after the encodings are attached.

    Raises:
        ValueError: as `posenc.hf.attach.attach` and `load_model`, and where ``out`` exists.
    """
    if os.path.lexists(out):
        raise ValueError(f"out: {out} exists; nothing is overwritten")
    model = load_model(folder, trust_remote_code=trust_remote_code)
    assert isinstance(model, PreTrainedModel)
    check_savable(model)
    with naming(folder):
        attach(model, encodings, layers=layers)
        if measure is not None:  # once it is sure that they can be attached
            detach(model)
            measure(model)
            attach(model, encodings, layers=layers)
            measure(model)

    def write(temporary: Path) -> None:
        model.save_pretrained(temporary)
        for path in folder.iterdir():
            if path.is_file() and path.name.startswith(_TOKENIZER_PREFIXES):
                shutil.copy2(path, temporary / path.name)

    write_atomically(out, write)


def check_savable(model: nn.Module) -> None:
    """Raise a ValueError for a model with an adapter, of which ``save_pretrained`` writes the adapter alone."""
    if getattr(model, "_hf_peft_config_loaded", False):
        raise ValueError(
            "model: its folder holds an adapter, and transformers would save the adapter alone: merge it into the "
            "weights first, with merge_and_unload of peft"
        )


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
    file = _gguf_in(path)
    if file is None:
        if reads_text:
            check_tokenizer(path)
        placed: Any = device_map if device_map is not None or device == "cpu" else {"": device}
        model = load_model(path, dtype, trust_remote_code=trust_remote_code, device_map=placed)
        has = any((path / name).exists() for name in TOKENIZERS)
        tokenizer = tokenizer_in(path, trust_remote_code=trust_remote_code) if has else None
        return Loaded(model, tokenizer)
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
        loaded = AutoModelForCausalLM.from_pretrained(
            **source_options, dtype="float32" if dtype == "auto" else dtype, quantization_config=unpacked,
            output_loading_info=True,
        )  # fmt: skip
    model = whole_model(file, *loaded)
    _rotate_as_file(model, file)
    try:
        model = model.to(device).eval()
    except RuntimeError as error:  # out of memory
        raise ValueError(f"device {shown(device)}: {str(error).splitlines()[0]}") from error
    with loading(file, "the tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(**source_options) if has else None
    return Loaded(model, tokenizer)


def opened(model: nn.Module | str | Path, tokenizer: Any, *, reads_text: bool, **options: Any) -> Loaded:
    """A live model as it is, or a loaded one, with the tokenizer that is given or else its own.

    Args:
        model: a live one, or as `load_causal_lm` takes it.
        tokenizer: None: that of the folder.
        reads_text: as `load_causal_lm` has it, where no tokenizer is given.
        options: of `load_causal_lm`.
    """
    if isinstance(model, nn.Module):
        return Loaded(model, tokenizer)
    live, own = load_causal_lm(model, reads_text=reads_text and tokenizer is None, **options)
    return Loaded(live, tokenizer or own)


def chosen_device(device: str) -> str:
    """A device by name, which must exist; "auto": cuda, mps or cpu, the first that torch finds."""
    if device == "auto":
        mps = getattr(torch.backends, "mps", None)
        device = "cuda" if torch.cuda.is_available() else "mps" if mps is not None and mps.is_available() else "cpu"
    try:
        torch.zeros((), device=device).item()
    except (RuntimeError, AssertionError) as error:  # no device of this name, no torch for it, or none with numbers
        raise ValueError(f"device {shown(device)}: {str(error).splitlines()[0]}") from None
    return device


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
    if any((path / name).exists() for name in ("config.json", INDEX)):
        load(path)  # which refuses a pipeline of diffusers and a part of one
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
