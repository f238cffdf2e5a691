"""Checks of a checkpoint's files: its configuration, and other files that contradict it.

Compared with the configuration are the tokenizer, the generation settings, saved frequencies and other programs' files
(params.json, GGUF). Older checkpoints saved frequencies with the weights; transformers no longer reads them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from posenc.arguments import one_line
from posenc.frequencies.rotation import RoPESpec
from posenc.hf.config.rope_config import RopeConfig, read_rope
from posenc.hf.config.text_config import max_length
from posenc.hf.doctor.config_checks import on_contradictions, on_width
from posenc.hf.doctor.corrections import correction_of, has_remote_code, keys_for, single, text_path
from posenc.hf.doctor.side_files import longest_of, on_side_files
from posenc.hf.findings import CONFIG, Finding, Level, MalformedError, NotReadError
from posenc.hf.limits import BASE
from posenc.hf.sources.formats import load_config
from posenc.hf.sources.load import Config, Source
from posenc.hf.sources.tensor_files import problems_of_weights, tensors_in
from posenc.input_files import UnreadableFileError

if TYPE_CHECKING:
    from torch import Tensor

MALFORMED, UNREADABLE, NOT_READ = "malformed", "unreadable", "not-read"
# Findings that the numbers of a file decide by themselves, whichever code reads them.
_DECIDED_BY_NUMBERS = {"original-length-not-below", "factor-lists-swapped"}


def read_or_finding(source: Source) -> tuple[RopeConfig | None, list[Finding]]:
    """A configuration, parsed, and the findings on it; None where it cannot be parsed.

    Raises:
        UnreadableFileError: for a file that is no configuration at all.
        OSError: for a file that cannot be read.
    """
    config = load_config(source)
    try:
        read = read_rope(source)
    except NotReadError as error:
        doubts = [] if has_remote_code(config) else list(on_width(config))
        return None, [*doubts, Finding("rotation", f"is not read: {error}", NOT_READ, "note")]
    except MalformedError as error:
        return None, list(_of_error(error, remote=has_remote_code(config)))
    except UnreadableFileError:
        raise
    except ValueError as error:
        key, _, text = str(error).partition(" ")
        level: Level = "suspicion" if has_remote_code(config) else "fault"
        return None, [Finding(key, text, UNREADABLE, level)]
    return read, list(on_config(read))


def on_config(read: RopeConfig) -> Iterator[Finding]:
    """The findings on a configuration, each with its correction."""
    remote = has_remote_code(read.config)
    for finding in chain(read.findings, on_contradictions(read)):
        level: Level = finding.level
        if remote and finding.name not in _DECIDED_BY_NUMBERS:  # the folder's code may read what transformers' does not
            level = "note"
        keys, certain = (None, False) if level == "note" else correction_of(read, finding)
        yield finding._replace(level=level, corrected=keys, certain=certain, inside=text_path(read))
    if remote:
        text = "names code in the folder, which was not read: it may use the keys in another way than transformers' "
        text += "code of this model type, for which all findings hold"
        yield Finding("auto_map", text, "remote-code", "note")
    if "encodings" in (read.config.get("posenc") or {}):
        text = "says that layers have other encodings: load the folder with posenc.hf.attach.load"
        yield Finding("posenc", text, "encodings-attached", "note")


def _of_error(error: MalformedError, *, remote: bool) -> Iterator[Finding]:
    """A finding for each key of a malformed block; the correction of all of them stands with the first."""
    corrected: Config | None = None if remote else error.corrected
    level: Level = "suspicion" if remote else "fault"
    for path, text in error.problems.items():
        yield Finding(path.rpartition(".")[2], text, MALFORMED, level, corrected, inside=error.inside)
        corrected = None


_TYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_SAVED_TOLERANCE = 1e-2  # of a frequency; bfloat16 rounds by 4e-3
_STEP = 2.0**-24  # between two float16 numbers below _NORMAL, where rounding is no longer relative
_NORMAL = 2.0**-14
_LONGEST = 1 << 16  # bytes of frequencies
_DIGITS = 6  # of a base


def _on_saved_frequencies(folder: Path, read: RopeConfig) -> Iterator[Finding]:
    """Compare frequencies saved with the weights with the configuration's."""
    saved, rope = _saved_frequencies(folder), single(read)
    if saved is None or rope is None or rope.length_dependent:
        return
    import torch

    name, theta = saved
    unscaled, scaled = (
        torch.tensor(each.theta.tolist(), dtype=torch.float64)
        for each in (rope.replace(scaling=None).spectrum(), rope.spectrum(max_length(read.text_config)))
    )
    if _close(theta, unscaled) or _close(theta, scaled):
        return
    base = _base_of(theta)
    text = f"of the weights ({name}) has {len(theta)} frequencies from {theta[0]:.4g} to {theta[-1]:.4g} a token, the "
    text += f"configuration means {len(unscaled)} from {unscaled[0]:.4g} to {unscaled[-1]:.4g}, "
    text += "which transformers uses: "
    text += "the model was saved with another rotation" + ("" if base is None else f", of base {base:g}")
    keys = None
    if base is not None and 2 * len(theta) <= rope.head_dim:
        keys = keys_for(read, rope.replace(base=base, rotary_dim=2 * len(theta)))
    yield Finding("inv_freq", text, "saved-frequencies-differ", "fault", keys, True, inside=text_path(read))


def _saved_frequencies(folder: Path) -> tuple[str, Tensor] | None:
    """The first frequencies that a readable safetensors file has, a vision tower's aside."""
    for path in sorted(folder.glob("*.safetensors")):
        try:
            tensors = tensors_in(path)
        except (ValueError, OSError):
            continue  # reported by `problems_of_weights`
        for name, entry in tensors.items():
            if not name.endswith("rotary_emb.inv_freq") or "vision" in name or "visual" in name:
                continue
            if entry.dtype in _TYPES and 0 < entry.end - entry.begin <= _LONGEST:
                import torch

                dtype = getattr(torch, _TYPES[entry.dtype])
                return name, torch.frombuffer(bytearray(entry.read()), dtype=dtype).double()
    return None


def _close(saved: Tensor, theta: Tensor) -> bool:
    return saved.shape == theta.shape and bool(((saved - theta).abs() <= _SAVED_TOLERANCE * theta + _STEP / 2).all())


def _base_of(theta: Tensor) -> float | None:
    """The base of geometric frequencies, as round as they allow; None for others."""
    pairs = len(theta)
    exactly = int((theta >= _NORMAL).sum())  # frequencies that float16 would hold to its full precision
    if exactly < 2 or not bool((theta >= 0).all()):
        return None
    import torch

    steps = torch.arange(pairs, dtype=torch.float64) / pairs
    exact = float(theta[exactly - 1] ** (-pairs / (exactly - 1)))  # of a tensor: infinite where a float would raise
    if not exact <= BASE or not _close(theta, exact**-steps):
        return None
    rounded = (float(f"{exact:.{digits}g}") for digits in range(1, _DIGITS + 1))
    return next(
        (
            base
            for base in rounded
            if bool(((theta - base**-steps).abs() <= _SAVED_TOLERANCE / 2 * theta + _STEP / 2).all())
        ),
        exact,
    )


PARAMS = "params.json"
_GGUF_TOLERANCE = 1e-4  # of a frequency; GGUF has factors in float32


def on_folder(folder: Path, read: RopeConfig) -> Iterator[Finding]:
    """Files of a folder that contradict its config.json."""
    yield from on_side_files(folder, read)
    for name, text in problems_of_weights(folder):
        yield Finding(name, text, "weights-unreadable", "fault")
    yield from _on_saved_frequencies(folder, read)
    if (folder / CONFIG).is_file():
        for path in chain([folder / PARAMS], sorted(folder.glob("*.gguf"))[:1]):
            if os.path.lexists(path):
                yield from _on_other_format(path, read)


def _on_other_format(path: Path, read: RopeConfig) -> Iterator[Finding]:
    """Compare the rotation with the one in another program's file, which describes the same model."""
    rope = single(read)
    try:
        other = single(read_rope(path))
    except (ValueError, OSError) as error:
        yield Finding(path.name, f"cannot be compared: {str(error).splitlines()[0]}", "other-file-unread", "note")
        return
    if rope is None or other is None or _same_spectrum(rope, other, longest_of(read)):
        return
    text = f"lies in the same folder and means another rotation: {_words(other)}; {CONFIG}: {_words(rope)}"
    keys = None
    if other.head_dim == rope.head_dim:
        keys = keys_for(read, other.replace(layout=rope.layout))
    yield Finding(path.name, text, "other-file-differs", "suspicion", keys, inside=text_path(read))


def _same_spectrum(first: RoPESpec, second: RoPESpec, longest: int | None) -> bool:
    """Whether two rotations have the same frequencies and gain, whatever their layouts."""
    if (first.head_dim, first.rotary_dim) != (second.head_dim, second.rotary_dim):
        return False
    for length in (1024, longest):
        a, b = first.spectrum(length), second.spectrum(length)
        if (
            any(abs(x - y) > _GGUF_TOLERANCE * y for x, y in zip(a.theta.tolist(), b.theta.tolist(), strict=True))
            or abs(float(a.gain) / float(b.gain) - 1) > _GGUF_TOLERANCE
        ):
            return False
    return True


def _words(rope: RoPESpec) -> str:
    scaling = "no scaling" if rope.scaling is None else one_line(rope.scaling)
    return f"base {rope.base:g}, {rope.rotary_dim} of {rope.head_dim} channels, {scaling}"
