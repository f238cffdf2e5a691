"""What a checkpoint's files show: its configuration, frequencies among the weights, and files that contradict it.

Contradictions are looked for in the tokenizer, the generation settings, the weights and other programs' files. Older
checkpoints saved frequencies among the weights, and transformers reads them no more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor

from posenc.hf.config.rope_config import RopeConfig, read_rope
from posenc.hf.config.rotation import text_rope
from posenc.hf.config.text_config import max_length
from posenc.hf.doctor.corrections import changes, correction_of, has_remote_code, inside, single
from posenc.hf.explanation.report import longest_length
from posenc.hf.findings import CONFIG, Finding, Level, MalformedError, NotReadError
from posenc.hf.limits import BASE, TOKENS, is_count
from posenc.hf.sources.formats import load_config
from posenc.hf.sources.load import Config, Source, load
from posenc.hf.sources.tensor_files import problems_of_weights, tensors_in
from posenc.input_files import UnreadableFileError
from posenc.rotary.rope import RoPE

MALFORMED, UNREADABLE, NOT_READ = "malformed", "unreadable", "not-read"
# What the numbers of a file decide by themselves, whoever reads them.
_OF_NUMBERS = {"original-length-not-below", "factor-lists-swapped"}


def read_or_finding(source: Source) -> tuple[RopeConfig | None, list[Finding]]:
    """A configuration read, and what is found in it; None where it cannot be.

    Raises:
        UnreadableFileError: for a file that is no configuration at all, which is nothing to judge.
        OSError: for a file that cannot be read.
    """
    config = load_config(source)
    try:
        read = read_rope(source)
    except NotReadError as error:
        return None, [Finding("rotation", f"is not read: {error}", NOT_READ, "note")]
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
    """The remarks on a configuration, each with its correction."""
    remote = has_remote_code(read.config)
    for remark in read.remarks:
        level: Level = remark.level
        if remote and remark.name not in _OF_NUMBERS:  # the folder's code may well read what transformers' does not
            level = "note"
        keys, certain = (None, False) if level == "note" else correction_of(read, remark)
        yield Finding(remark.key, remark.text, remark.name, level, keys, certain, inside=inside(read))
    if remote:
        text = "names code of the folder's own, which was not read: it may use the keys otherwise than transformers' "
        text += "code of this model type, for which everything here is said"
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
    yield Finding("inv_freq", text, "saved-frequencies-differ", "fault", keys, True, inside=inside(read))


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
        (
            base
            for base in rounded
            if bool(((theta - base**-steps).abs() <= _SAVED_TOLERANCE / 2 * theta + _STEP / 2).all())
        ),
        exact,
    )


TOKENIZER, GENERATION = "tokenizer_config.json", "generation_config.json"
PARAMS = "params.json"
_GGUF_TOLERANCE = 1e-4  # of a frequency; GGUF has factors in float32


def on_folder(folder: Path, read: RopeConfig) -> Iterator[Finding]:
    """What files of a folder say otherwise than its config.json."""
    longest = longest_of(read)
    if longest is not None:
        yield from _on_length(folder, TOKENIZER, "model_max_length", longest)
        yield from _on_length(folder, GENERATION, "max_length", longest)
    for name, text in problems_of_weights(folder):
        yield Finding(name, text, "weights-unreadable", "fault")
    yield from on_saved(folder, read)
    if (folder / CONFIG).is_file():
        for path in chain([folder / PARAMS], sorted(folder.glob("*.gguf"))[:1]):
            if os.path.lexists(path):
                yield from _on_other(path, read)


def longest_of(read: RopeConfig) -> int | None:
    """Tokens that the model is meant for."""
    found = [longest_length(read, text_rope(rope)) for rope in read.layers.values() if rope is not None]
    return max((one for one in found if one is not None), default=max_length(read.section))


def _on_length(folder: Path, file: str, key: str, longest: int) -> Iterator[Finding]:
    path = folder / file
    if not os.path.lexists(path):
        return
    try:
        length = load(path).get(key)
    except (ValueError, OSError) as error:
        yield Finding(file, f"cannot be compared: {str(error).splitlines()[0]}", "other-file-unread", "note")
        return
    if not is_count(length, TOKENS) or length == longest:  # tokenizers write 1e30 for none
        return
    if length < longest and file == TOKENIZER:
        text = f"of {file} is {length:,}, and the configuration declares {longest:,} tokens: texts are cut there by "
        text += "truncation=True and by libraries that read this key"
        yield Finding(key, text, "tokenizer-length-below", "suspicion", file=file)
    if length < longest:  # generation_config's max_length is a choice of its user
        return
    text = f"of {file} is {length:,}, and the configuration is meant for {longest:,} tokens"
    if file == TOKENIZER:
        yield Finding(key, f"{text}: texts are not cut there", "tokenizer-length-beyond", "note", None)
    else:
        text += ": generate goes on past them"
        yield Finding(key, text, "generation-length-beyond", "suspicion", {key: longest}, True, file=file)


def _on_other(path: Path, read: RopeConfig) -> Iterator[Finding]:
    """The same model as another program's file describes it."""
    mine = single(read)
    try:
        theirs = single(read_rope(path))
    except (ValueError, OSError) as error:
        yield Finding(path.name, f"cannot be compared: {str(error).splitlines()[0]}", "other-file-unread", "note")
        return
    if mine is None or theirs is None or _same(mine, theirs, longest_of(read)):
        return
    text = f"lies in the same folder and turns otherwise: {_words(theirs)}; {CONFIG}: {_words(mine)}"
    keys = None
    if theirs.head_dim == mine.head_dim:
        right = RoPE(
            mine.head_dim, base=theirs.base, layout=mine.layout, rotary_dim=theirs.rotary_dim, scaling=theirs.scaling
        )
        with suppress(ValueError):  # an M-RoPE, whose sections the other file does not have, cannot be written so
            keys = changes(read, read.with_rope(right).to_config())
    yield Finding(path.name, text, "other-file-differs", "suspicion", keys, inside=inside(read))


def _same(one: RoPE, other: RoPE, longest: int | None) -> bool:
    """Whether two rotations rotate alike, whatever channels are a pair."""
    if (one.head_dim, one.rotary_dim) != (other.head_dim, other.rotary_dim):
        return False
    for length in (1024, longest):
        a, b = one.spectrum(length), other.spectrum(length)
        if (
            bool(((a.theta - b.theta).abs() > _GGUF_TOLERANCE * b.theta).any())
            or abs(float(a.gain / b.gain) - 1) > _GGUF_TOLERANCE
        ):
            return False
    return True


def _words(rope: RoPE) -> str:
    scaling = "no scaling" if rope.scaling is None else " ".join(repr(rope.scaling).split())
    return f"base {rope.base:g}, {rope.rotary_dim} of {rope.head_dim} channels, {scaling}"
