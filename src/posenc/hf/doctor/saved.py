"""Frequencies that lie among the weights: older checkpoints saved them, and transformers reads them no more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from posenc.hf.config import RopeConfig
from posenc.hf.doctor.corrections import changes, inside, single
from posenc.hf.doctor.report import Finding
from posenc.hf.numbers import BASE
from posenc.hf.section import max_length
from posenc.hf.tensor_files import tensors_in
from posenc.rotary.rope import RoPE

_TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_SAVED_TOLERANCE = 1e-2  # of a frequency; bfloat16 rounds by 4e-3
_STEP = 2.0**-24  # between two float16 numbers below _NORMAL, where rounding is no longer relative
_NORMAL = 2.0**-14
_LONGEST = 1 << 16  # bytes of frequencies
_DIGITS = 6  # of a base


def on_saved(folder: Path, read: RopeConfig) -> Iterator[Finding]:
    """Frequencies of the weights that are not those of the configuration."""
    found, rope = _saved(folder), single(read)
    if found is None or rope is None or rope.length_dependent:
        return
    name, theta = found
    plain = RoPE(rope.head_dim, base=rope.base, rotary_dim=rope.rotary_dim).spectrum().theta
    if any(_alike(theta, one) for one in (plain, rope.spectrum(max_length(read.section)).theta)):
        return
    base = _base_of(theta)
    text = f"of the weights ({name}) has {len(theta)} frequencies from {theta[0]:.4g} to {theta[-1]:.4g} a token, the "
    text += f"configuration means {len(plain)} from {plain[0]:.4g} to {plain[-1]:.4g}, and transformers reads that: "
    text += "the model was saved with another rotation" + ("" if base is None else f", of base {base:g}")
    keys = None
    if base is not None and 2 * len(theta) <= rope.head_dim:
        right = RoPE(rope.head_dim, base=base, layout=rope.layout, rotary_dim=2 * len(theta), scaling=rope.scaling)
        with suppress(ValueError):  # an M-RoPE cannot be written so
            keys = changes(read, read.with_rope(right).to_config())
    yield Finding("saved-frequencies-differ", "fault", "inv_freq", text, keys, True, inside=inside(read))


def _saved(folder: Path) -> tuple[str, Tensor] | None:
    """The first frequencies that a readable safetensors file has, those of a vision tower aside."""
    for path in sorted(folder.glob("*.safetensors")):
        try:
            tensors = tensors_in(path)
        except (ValueError, OSError):
            continue  # `problems_of_weights` tells of it
        for name, entry in tensors.items():
            if not name.endswith("rotary_emb.inv_freq") or "vision" in name or "visual" in name:
                continue
            if entry.dtype in _TYPES and 0 < entry.end - entry.begin <= _LONGEST:
                return name, torch.frombuffer(bytearray(entry.read()), dtype=_TYPES[entry.dtype]).double()
    return None


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool(((one - other).abs() <= _SAVED_TOLERANCE * other + _STEP / 2).all())


def _base_of(theta: Tensor) -> float | None:
    """The base of geometric frequencies, as round as they allow; None for others."""
    pairs = len(theta)
    exactly = int((theta >= _NORMAL).sum())  # frequencies that float16 would hold to its full precision
    if exactly < 2 or not bool((theta >= 0).all()):
        return None
    steps = torch.arange(pairs, dtype=torch.float64) / pairs
    exact = float(theta[exactly - 1] ** (-pairs / (exactly - 1)))  # of a tensor: infinite where a float would raise
    if not exact <= BASE or not _alike(theta, exact**-steps):
        return None
    rounded = (float(f"{exact:.{digits}g}") for digits in range(1, _DIGITS + 1))
    return next(
        (base for base in rounded if bool(((theta - base**-steps).abs() <= _SAVED_TOLERANCE / 2 * theta + _STEP / 2).all())),
        exact,
    )
