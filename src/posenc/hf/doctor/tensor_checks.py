"""Compares the tensors of a folder with its config: names, shapes, sampled values. Only headers and samples are read.

    weight_files         whole, all there, listed once, none left over
    attention_shapes     projections, norms, sinks, latent projections
    layer_counts         layers, norms and biases that are missing or unread
    position_tables      rows, buckets, patches
    quantised_shapes     what GPTQ and AWQ pack
    table_values         NaN, zeros, saved frequencies
    model_parts, head_sizes    which tensors and which numbers of the config belong together

What the numbers of the files decide is a fault; where the folder names code of its own it is a suspicion, and missing
or further names are notes. A model type without a record is left alone, and so are tensors that quantisation packs.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from posenc.hf.config.rope_config import RopeConfig, read_rope
from posenc.hf.doctor.attention_shapes import Mismatch, in_layers, on_attention
from posenc.hf.doctor.corrections import has_remote_code
from posenc.hf.doctor.layer_counts import on_layers
from posenc.hf.doctor.model_parts import Part, Shape, parts_of
from posenc.hf.doctor.position_tables import on_tables
from posenc.hf.doctor.quantised_shapes import on_quantisation, unpacked_shapes
from posenc.hf.doctor.table_values import on_saved_frequencies, on_values
from posenc.hf.doctor.weight_files import Weights, on_adapter, on_weight_files
from posenc.hf.findings import Finding, Level
from posenc.hf.sources.load import Config

_PACKED_TYPES = ("U8", "I8", "I32", "U32", "I64", "F4", "BOOL")
_PACKED = re.compile(r"\.(qweight|qzeros|weight_packed|weight_shape|g_idx|absmax|quant_map|quant_state\..*|SCB)$")
_OF_POSITIONS = re.compile(r"attn|attention|Attention|pos_emb|position_emb|embed_positions|wpe|relative|rotary|sinks")
_NO_PROJECTION = re.compile(
    r"norm|ln_\d|LayerNorm|position_ids|relative_position_index|masked_bias|inv_freq|attn\.bias$|scale|_quant"
)
_OF_NAMES = {"layers-missing", "layers-unread", "biases-missing", "biases-unread", "norms-missing", "norms-unread",
             "projection-missing", "sinks-missing", "sinks-unread", "position-table-missing",
             "layer-kinds-differ"}  # fmt: skip


class TensorReport(NamedTuple):
    """Findings on the tensors of a folder, and what was checked and what not, in words."""

    findings: list[Finding]
    checked: list[str]
    not_checked: list[str]


def on_weights(folder: Path, config: Config, read: RopeConfig | None) -> TensorReport:
    """Check the weight files of a folder, and their tensors against its config.

    Args:
        folder: with weight files, or without.
        config: of the folder, as it was loaded.
        read: the same, parsed; None where it could not be.
    """
    weights = Weights(folder)
    findings = [*on_weight_files(folder, weights), *on_adapter(folder, weights)]
    checked: list[str] = []
    not_checked = [f"names and shapes in {name}, which is no archive of weights alone" for name in weights.unread]
    if not weights.shapes:
        return TensorReport(
            findings, checked, not_checked or ["names and shapes of tensors (no weight files are read)"]
        )
    names = f"{len(weights.shapes):,} tensors in {_files(weights.files)}"
    packed = {name for name in weights.shapes if _is_packed(name, weights)}
    shapes = {name: shape for name, shape in weights.shapes.items() if name not in packed}
    quantisation = config.get("quantization_config")
    unpacked = unpacked_shapes(weights.shapes, quantisation)
    shapes |= unpacked
    packed = {name for name in packed if f"{name.rpartition('.')[0]}.weight" not in unpacked}
    findings += on_quantisation(weights.shapes, quantisation)
    model_type = config.get("model_type")
    reason = (
        f"no rules for model type {model_type!r}" if isinstance(model_type, str) else "the config names no model type"
    )
    try:
        parts = parts_of(config, shapes)
        covered: set[str] = set()
        contradictions = [mismatch for part in parts for mismatch in mismatches(part, covered)]
    except ValueError as error:  # a key of the wrong type, which the checks of the config report
        parts, covered, contradictions = [], set(), []
        reason = f"the config is not understood: {str(error).splitlines()[0]}"
    if any(finding.name in ("weights-unreadable", "shards-missing") for finding in findings):
        contradictions = [item for item in contradictions if item.name not in _OF_NAMES]
        not_checked.append("which tensors are missing, since weight files are")
    known = [part for part in parts if part.known]
    if known:
        checked.append(f"names and shapes of {names} ({len(covered):,} of attention and positions)")
    else:
        not_checked.append(f"names and shapes of {names} ({reason})")
    remote = has_remote_code(config)
    findings += [_finding(mismatch, config, shapes, contradictions, read, remote=remote) for mismatch in contradictions]
    values, looked = on_values(weights.entries, read.model_type if read is not None else "")
    findings += values
    if looked:
        checked.append(f"sampled values of {looked:,} tables and norms")
    if read is not None:
        findings += on_saved_frequencies(weights.entries, read)
    rest = {name for name in shapes if _OF_POSITIONS.search(name) and not _NO_PROJECTION.search(name)} - covered
    if known and rest:
        not_checked.append(f"shapes of {len(rest):,} tensors of attention that no rule covers ({min(rest)[:80]}, …)")
    if packed:
        not_checked.append(f"shapes of {len(packed):,} quantised tensors")
    return TensorReport(findings, checked, not_checked)


def mismatches(part: Part, covered: set[str]) -> Iterator[Mismatch]:
    """Everything in which the tensors of a part contradict its config; adds the tensors looked at to ``covered``."""
    if not part.known:
        return
    yield from on_attention(part, covered)
    yield from on_layers(part, covered)
    yield from on_tables(part, covered)


def _files(files: list[str]) -> str:
    return files[0] if len(files) == 1 else f"{len(files)} shards"


def _is_packed(name: str, weights: Weights) -> bool:
    entry = weights.entries.get(name)
    return bool(_PACKED.search(name)) or (
        entry is not None and entry.dtype in _PACKED_TYPES and not name.endswith(("position_ids", ".bias"))
    )


def _finding(
    mismatch: Mismatch, config: Config, shapes: dict[str, Shape], before: list[Mismatch], read: RopeConfig | None, *,
    remote: bool,
) -> Finding:  # fmt: skip
    """A mismatch as a finding, with the keys that resolve it where there are any."""
    part = mismatch.part
    fact, colon, consequence = mismatch.text.partition(": ")
    text = f"{fact}{in_layers(mismatch.layers)}{colon}{consequence}"
    level: Level = "fault"
    keys: dict[str, Any] | None = None
    certain = False
    if remote:
        level = "note" if mismatch.name in _OF_NAMES else "suspicion"
        text += "; the folder names code of its own (auto_map), which may have other rules"
    else:
        keys, certain = _verified(mismatch, config, shapes, before, read)
    key = (
        part.path_to(mismatch.key)
        if part.path and not re.search(r"\.|sinks|embeddings$", mismatch.key)
        else mismatch.key
    )
    return Finding(key, text, mismatch.name, level, keys, certain, inside=".".join(part.path))


def _verified(
    mismatch: Mismatch, config: Config, shapes: dict[str, Shape], before: list[Mismatch], read: RopeConfig | None
) -> tuple[dict[str, Any] | None, bool]:
    """The first candidate with which the mismatch is gone and nothing new has come, and whether it is certain."""
    names = {(other.name, other.part.role) for other in before} - {(mismatch.name, mismatch.part.role)}
    alarms = set() if read is None else {finding.name for finding in read.findings if finding.alarms}
    for keys, certain in mismatch.candidates:
        changed = copy.deepcopy(config)
        inner = changed
        for name in mismatch.part.path:
            inner = inner[name]
        for key, value in keys.items():
            if "." not in key:
                inner[key] = value
        try:
            after = [other for part in parts_of(changed, shapes) for other in mismatches(part, set())]
            new_alarms = set() if read is None else {item.name for item in read_rope(changed).findings if item.alarms}
        except ValueError:
            continue
        if {(other.name, other.part.role) for other in after} <= names and new_alarms <= alarms:
            return keys, certain
    return None, False
