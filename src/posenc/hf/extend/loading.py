"""A model from a folder or a GGUF file, with its tokenizer, turning as the file says."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from posenc.hf.config import read_rope
from posenc.hf.extend.rotations import Rotations
from posenc.hf.mrope import of_text
from posenc.hf.same import turns_alike
from posenc.rotary.rope import RoPE


class Loaded(NamedTuple):
    """A live model and its tokenizer, None where the folder has none."""

    model: nn.Module
    tokenizer: Any


def loaded(source: str | Path, *, dtype: str = "auto", device: str = "cpu") -> Loaded:
    """A causal language model of transformers.

    Args:
        source: a folder of transformers, a GGUF file, or a folder with one GGUF file and no config.json. The rotation
            of a GGUF file is that of its metadata and tensors, which transformers drops.
        dtype: of the weights, as from_pretrained takes it; those of GGUF are float32 under "auto".
        device: where to put it.

    Raises:
        ValueError: for a folder that is neither, and for a rotation that the model cannot have.
        OSError: where files cannot be read.
    """
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"model: {path} does not exist; give a folder of transformers or a GGUF file")
    file = _gguf_in(path)
    if file is None:
        model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype)
        has = any((path / name).exists() for name in ("tokenizer.json", "tokenizer_config.json", "tokenizer.model"))
        return Loaded(model.to(device).eval(), AutoTokenizer.from_pretrained(path) if has else None)
    try:
        from posenc.hf.formats.gguf_file import has_tokenizer
    except ModuleNotFoundError as error:
        raise ValueError(f"model: {file} needs the package gguf: pip install 'posenc[gguf]'") from error
    place: dict[str, Any] = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    unpacked = GgufConfig(dequantize=True)  # weights in blocks can neither be trained nor saved
    model = AutoModelForCausalLM.from_pretrained(
        **place, dtype="float32" if dtype == "auto" else dtype, quantization_config=unpacked
    )
    _turn_as(model, file)
    return Loaded(model.to(device).eval(), AutoTokenizer.from_pretrained(**place) if has_tokenizer(file) else None)


def _gguf_in(path: Path) -> Path | None:
    """The GGUF file that is meant; None for a folder of transformers."""
    if path.is_file():
        if path.suffix != ".gguf":
            raise ValueError(f"model must be a folder or a .gguf file, got {path}")
        return path
    if (path / "config.json").exists():
        return None
    files = sorted(path.glob("*.gguf"))
    if len(files) != 1:
        raise ValueError(f"model: {path} has no config.json and {len(files)} .gguf files: give one file")
    return files[0]


def _turn_as(model: nn.Module, file: Path) -> None:
    """Base and scaling of the file, in the layout that the loader has brought the weights to."""
    rotations, said = Rotations(model), read_rope(file)
    ropes = {}
    for kind, rope in rotations.ropes.items():
        found = said.layers.get(kind)
        assert isinstance(rope, RoPE)
        if found is None:
            raise ValueError(f"model: {file} says nothing of the rotation of {kind} layers")
        plain = of_text(found)
        ropes[kind] = RoPE(
            rope.head_dim, base=plain.base, layout=rope.layout, rotary_dim=plain.rotary_dim, scaling=plain.scaling
        )
    if not all(turns_alike(rope, rotations.ropes[kind]) for kind, rope in ropes.items()):
        rotations.put(rotations.read.with_rope({**rotations.read.layers, **ropes}).to_config())
