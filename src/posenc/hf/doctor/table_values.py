"""Looks into tables of positions: numbers that are none, and frequencies of another base.

Of each tensor a bounded number of rows is read: the first, the last and some between. What is said of values is said of
this sample.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from posenc.hf.config.rope_config import RopeConfig
from posenc.hf.config.text_config import max_length
from posenc.hf.doctor.corrections import keys_for, single, text_path
from posenc.hf.findings import Finding
from posenc.hf.limits import BASE
from posenc.hf.sources.tensor_files import Entry

TABLE = re.compile(r"(?:^|\.)(wpe|positions_embed|position_embeddings?|embed_positions|pos_embed)(\.weight)?$")
_TYPES = ("F64", "F32", "F16", "BF16")
_ROWS, _FEW_ROWS = 256, 24  # of one tensor, until `_BUDGET` is spent, and from then on
_BUDGET = 1 << 22  # bytes
_ROW = 1 << 12  # numbers of a row
_TENSORS = 1024
_OF_POSITIONS = re.compile(  # what else has numbers by positions or distances, or scales the logits of a head
    r"(?:^|[._])(?:pos|rel|relative|distance)_[a-z_]*(?:embed|bias|table|key|query|proj|[hwuv]$)|position"
    r"|rotary|sinks?$|attention_sink_bias$|[qk]_(?:norm|layernorm)\.weight$|r_[wr]_bias$"
)
_INDICES = ("position_ids", "relative_position_index")


class _Reader:
    """Reads rows of the tensors of safetensors files; each file is opened once, until ``files`` ends."""

    def __init__(self, files: ExitStack) -> None:
        self._files = files
        self._opened: dict[Path, Any] = {}

    def rows(self, name: str, entry: Entry, most: int) -> list[list[float]]:
        """A sample of some ``most`` rows; empty for a type without plain numbers and a file larger than the memory."""
        if entry.dtype not in _TYPES or not entry.shape or math.prod(entry.shape) == 0:
            return []
        if entry.file not in self._opened:
            from safetensors import safe_open

            try:
                self._opened[entry.file] = self._files.enter_context(safe_open(entry.file, framework="pt"))
            except RuntimeError:  # torch cannot map it
                self._opened[entry.file] = None
        if self._opened[entry.file] is None:
            return []
        part, rows = self._opened[entry.file].get_slice(name), entry.shape[0]
        if len(entry.shape) == 1:
            return [part[:_ROW].double().tolist()]
        picked = sorted({*range(min(4, rows)), *(i * rows // most for i in range(most)), rows - 1})
        return [part[row : row + 1].flatten()[:_ROW].double().tolist() for row in picked]


def _has_positions(name: str) -> bool:
    """Whether values of a tensor are sampled."""
    return bool(TABLE.search(name) or _OF_POSITIONS.search(name)) and not name.endswith(_INDICES)


def on_values(entries: Mapping[str, Entry]) -> tuple[list[Finding], int]:
    """Findings on sampled values, and of how many tensors values were looked at."""
    names = [name for name in entries if _has_positions(name)][:_TENSORS]
    broken: list[str] = []
    looked = spent = 0
    with ExitStack() as files:
        reader = _Reader(files)
        for name in names:
            rows = reader.rows(name, entries[name], _ROWS if spent < _BUDGET else _FEW_ROWS)
            looked += bool(rows)
            spent += 4 * sum(map(len, rows))
            if any(not math.isfinite(number) for row in rows for number in row):
                broken.append(name)
    if not broken:
        return [], looked
    more = f", as {len(broken) - 1} more tensors have," if len(broken) > 1 else ""
    text = f"has NaN or infinity among the values that were sampled{more}: every output is NaN or wrong; save "
    return [Finding(broken[0], f"{text}the weights again", "values-not-finite", "fault")], looked


_SAVED_TOLERANCE = 1e-2  # of a frequency; bfloat16 rounds by 4e-3
_STEP = 2.0**-24  # between two float16 numbers below _NORMAL, where rounding is no longer relative
_NORMAL = 2.0**-14
_DIGITS = 6  # of a base


def on_saved_frequencies(entries: Mapping[str, Entry], read: RopeConfig) -> Iterator[Finding]:
    """Compare frequencies saved with the weights with the configuration's; transformers no longer reads them."""
    rope = single(read)
    saved = {} if rope is None or rope.length_dependent else _saved_frequencies(entries)
    if rope is None or not saved:
        return
    unscaled = rope.replace(scaling=None).spectrum().theta.tolist()
    scaled = rope.spectrum(max_length(read.text_config)).theta.tolist()
    differing = (item for item in saved.items() if not _close(item[0], unscaled) and not _close(item[0], scaled))
    frequencies, name = next(differing, ((), ""))
    theta = list(frequencies)
    if not theta:
        return
    base = _base_of(theta)
    means = "no geometric series" if base is None else f"a rotation of base {base:g}"
    text = f"of the weights ({name}, in {entries[name].file.name}) has {len(theta)} frequencies from {theta[0]:.4g} to "
    text += f"{theta[-1]:.4g} a token, {means}; the configuration means {len(unscaled)} from {unscaled[0]:.4g} to "
    text += f"{unscaled[-1]:.4g}, which transformers uses: the model was saved with another rotation"
    keys = None
    if base is not None and 2 * len(theta) <= rope.head_dim:
        keys = keys_for(read, rope.replace(base=base, rotary_dim=2 * len(theta)))
    yield Finding("inv_freq", text, "saved-frequencies-differ", "fault", keys, True, inside=text_path(read))


def _saved_frequencies(entries: Mapping[str, Entry]) -> dict[tuple[float, ...], str]:
    """The frequencies among the weights, a vision tower's aside, and of which tensor; equal ones once."""
    saved: dict[tuple[float, ...], str] = {}
    names = [name for name in entries if name.endswith(("rotary_emb.inv_freq", "rotary_embeddings.inv_freq"))]
    with ExitStack() as files:
        reader = _Reader(files)
        for name in names[:_TENSORS]:
            if not ("vision" in name or "visual" in name or len(entries[name].shape) != 1):
                saved.update((tuple(row), name) for row in reader.rows(name, entries[name], 1))
    return saved


def _close(saved: Sequence[float], theta: Sequence[float]) -> bool:
    return len(saved) == len(theta) and all(
        abs(a - b) <= _SAVED_TOLERANCE * b + _STEP / 2 for a, b in zip(saved, theta, strict=True)
    )


def _base_of(theta: list[float]) -> float | None:
    """The base of geometric frequencies, as round as they allow; None for others."""
    pairs = len(theta)
    exactly = sum(number >= _NORMAL for number in theta)  # frequencies that float16 would hold to its full precision
    if exactly < 2 or not all(number >= 0 for number in theta) or not theta[exactly - 1] > 0:
        return None
    steps = [pair / pairs for pair in range(pairs)]
    logarithm = -pairs / (exactly - 1) * math.log(theta[exactly - 1])
    if not 0 < logarithm <= math.log(BASE):
        return None
    exact = math.exp(logarithm)
    if not _close(theta, [exact**-step for step in steps]):
        return None
    rounded = (float(f"{exact:.{digits}g}") for digits in range(1, _DIGITS + 1))
    for base in rounded:  # the roundest within half the tolerance
        if all(
            abs(a - base**-step) <= _SAVED_TOLERANCE / 2 * a + _STEP / 2 for a, step in zip(theta, steps, strict=True)
        ):
            return base
    return exact
