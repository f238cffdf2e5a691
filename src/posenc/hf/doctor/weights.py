"""The weight files of a folder: what a loader takes of them, what is wrong with them as files, and sampled values.

Which file counts is transformers' choice: ``model.safetensors`` where it is there, else the shards of the index, else
``pytorch_model.bin``. Of each table of positions a bounded number of rows is read: the first, the last and some
between. What is said of values is said of this sample.

Source: transformers 5.23, modeling_utils.py (_get_resolved_checkpoint_files).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from posenc.hf.config.rope_config import RopeConfig
from posenc.hf.config.text_config import max_length
from posenc.hf.doctor.corrections import keys_for, single, text_path
from posenc.hf.findings import Finding
from posenc.hf.limits import BASE
from posenc.hf.sources.tensor_files import INDEX_BYTES, Entry, loaded_files, problems_of_weights, tensors_in
from posenc.input_files import printable, read_json

ADAPTER = "adapter_config.json"
_TYPES = ("F64", "F32", "F16", "BF16")
_ROWS, _ROW = 64, 1 << 12  # rows of a tensor, and numbers of a row
_TENSORS = 1024
_OF_POSITIONS = re.compile(  # tables by positions or distances, and what else scales the logits of a head
    r"(?:^|\.)wpe(?:\.weight)?$|(?:^|[._])(?:pos|rel|relative|distance)_[a-z_]*(?:embed|bias|table|key|query|proj|[hwuv]$)"
    r"|position|rotary|sinks?$|attention_sink_bias$|[qk]_(?:norm|layernorm)\.weight$|r_[wr]_bias$"
)
_INDICES = ("position_ids", "relative_position_index")
_SAVED_TOLERANCE = 1e-2  # of a frequency; bfloat16 rounds by 4e-3
_STEP = 2.0**-24  # between two float16 numbers below _NORMAL, where rounding is no longer relative
_NORMAL = 2.0**-14
_DIGITS = 6  # of a base


class Weights:
    """The tensors of a folder that a loader takes.

    Attributes:
        entries: by name, of safetensors files only.
        shapes: by name; of pickled files too.
        files: the files that were read.
        unread: pickled files that were not, each with the reason.
    """

    def __init__(self, folder: Path) -> None:
        self.entries: dict[str, Entry] = {}
        self.files: list[str] = []
        self.unread: list[str] = []
        self.by_file: dict[str, dict[str, Entry]] = {}
        for path in loaded_files(folder):
            try:
                tensors = tensors_in(path)
            except (ValueError, OSError):
                continue  # reported by `problems_of_weights`
            except ModuleNotFoundError as error:
                self.unread.append(f"{path.name} ({error.name} is not installed)")
                continue
            self.files.append(path.name)
            self.by_file[path.name] = tensors
            self.entries |= tensors
        self.shapes: dict[str, tuple[int, ...]] = {name: entry.shape for name, entry in self.entries.items()}
        single_file = folder / "pytorch_model.bin"
        pickled = [single_file] if single_file.exists() else sorted(folder.glob("pytorch_model-*.bin"))
        for path in [] if self.files else pickled:
            try:
                self.shapes |= _shapes_in(path)
                self.files.append(path.name)
            except Exception as error:  # an archive of torch can be damaged in any way
                self.unread.append(f"{path.name} ({printable(str(error).splitlines()[0])[:100]})")


def _shapes_in(path: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes in an archive of torch: no code of it is run and no number read."""
    import torch

    tensors = torch.load(path, map_location="meta", weights_only=True, mmap=True)
    return {name: tuple(tensor.shape) for name, tensor in tensors.items() if isinstance(tensor, torch.Tensor)}


def on_weight_files(folder: Path, weights: Weights) -> Iterator[Finding]:
    """Weight files that are damaged, truncated, missing or pointers of Git LFS."""
    for name, text in problems_of_weights(folder, weights.by_file):
        yield Finding(name, text, "weights-unreadable", "fault")


def on_adapter(folder: Path) -> Iterator[Finding]:
    """A folder of an adapter: what its base is."""
    if not (folder / ADAPTER).is_file():
        return
    try:
        known = read_json(folder / ADAPTER, INDEX_BYTES)
    except (ValueError, OSError) as error:
        yield Finding(ADAPTER, f"cannot be read: {str(error).splitlines()[0]}", "other-file-unread", "note")
        return
    base = known.get("base_model_name_or_path") if isinstance(known, dict) else None
    text = f"makes this folder an adapter ({printable(str(known.get('peft_type', 'PEFT')))}) of "
    text += f"{printable(str(base))[:100]}: the base's config decides its positions"
    yield Finding(ADAPTER, text, "adapter", "note")


def _sampled(entries: Mapping[str, Entry], names: list[str]) -> Iterator[tuple[str, list[list[float]]]]:
    """Tensors with a sample of their rows, but for types without plain numbers and files larger than the memory."""
    by_file: dict[Path, list[str]] = {}
    for name in names[:_TENSORS]:
        if entries[name].dtype in _TYPES and entries[name].shape and all(entries[name].shape):
            by_file.setdefault(entries[name].file, []).append(name)
    for path, of_file in by_file.items():
        from safetensors import safe_open

        try:
            opened = safe_open(path, framework="pt")
        except RuntimeError:  # torch cannot map it
            continue
        with opened as file:
            for name in of_file:
                part, rows = file.get_slice(name), entries[name].shape[0]
                if len(entries[name].shape) == 1:
                    yield name, [part[:_ROW].double().tolist()]
                else:
                    picked = sorted({*range(min(4, rows)), *(i * rows // _ROWS for i in range(_ROWS)), rows - 1})
                    yield name, [part[row : row + 1].flatten()[:_ROW].double().tolist() for row in picked]


def on_values(entries: Mapping[str, Entry]) -> tuple[list[Finding], int]:
    """Findings on sampled values, and of how many tensors values were looked at."""
    names = [name for name in entries if _OF_POSITIONS.search(name) and not name.endswith(_INDICES)]
    broken, looked = [], 0
    for name, rows in _sampled(entries, names):
        looked += 1
        if any(not math.isfinite(number) for row in rows for number in row):
            broken.append(name)
    if not broken:
        return [], looked
    more = f", as {len(broken) - 1} more tensors have," if len(broken) > 1 else ""
    text = f"has NaN or infinity among the values that were sampled{more}: every output is NaN or wrong; save "
    return [Finding(broken[0], f"{text}the weights again", "values-not-finite", "fault")], looked


def on_saved_frequencies(entries: Mapping[str, Entry], read: RopeConfig) -> Iterator[Finding]:
    """Compare frequencies saved with the weights with the configuration's; transformers no longer reads them."""
    rope = single(read)
    if rope is None or rope.length_dependent:
        return
    unscaled = rope.replace(scaling=None).spectrum().theta.tolist()
    scaled = rope.spectrum(max_length(read.text_config)).theta.tolist()
    names = [name for name in entries if name.endswith(("rotary_emb.inv_freq", "rotary_embeddings.inv_freq"))]
    names = [name for name in names if len(entries[name].shape) == 1 and not re.search("vision|visual", name)]
    for name, (theta, *_) in _sampled(entries, names):
        if _close(theta, unscaled) or _close(theta, scaled):
            continue
        base, keys = _base_of(theta), None
        means = "no geometric series" if base is None else f"a rotation of base {base:g}"
        text = (
            f"of the weights ({name}, in {entries[name].file.name}) has {len(theta)} frequencies from {theta[0]:.4g} "
            f"to {theta[-1]:.4g} a token, {means}; the configuration means {len(unscaled)} from {unscaled[0]:.4g} to "
            f"{unscaled[-1]:.4g}, which transformers uses: the model was saved with another rotation"
        )
        if base is not None and 2 * len(theta) <= rope.head_dim:
            keys = keys_for(read, rope.replace(base=base, rotary_dim=2 * len(theta)))
        yield Finding("inv_freq", text, "saved-frequencies-differ", "fault", keys, True, inside=text_path(read))
        return


def _close(saved: Sequence[float], theta: Sequence[float], tolerance: float = _SAVED_TOLERANCE) -> bool:
    return len(saved) == len(theta) and all(
        abs(a - b) <= tolerance * b + _STEP / 2 for a, b in zip(saved, theta, strict=True)
    )


def _base_of(theta: list[float]) -> float | None:
    """The base of geometric frequencies, as round as they allow; None for others."""
    pairs = len(theta)
    exactly = sum(number >= _NORMAL for number in theta)  # frequencies that float16 would hold to its full precision
    if exactly < 2 or not theta[exactly - 1] > 0:
        return None
    logarithm = -pairs / (exactly - 1) * math.log(theta[exactly - 1])
    if not 0 < logarithm <= math.log(BASE):
        return None
    exact = math.exp(logarithm)
    for digits in range(1, _DIGITS + 1):  # the roundest within half the tolerance
        base = float(f"{exact:.{digits}g}")
        if _close([base ** -(pair / pairs) for pair in range(pairs)], theta, _SAVED_TOLERANCE / 2):
            return base
    return exact if _close(theta, [exact ** -(pair / pairs) for pair in range(pairs)]) else None
