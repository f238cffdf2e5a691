"""The tensors of a folder: what transformers' loader says of them, and what is lost without its saying so.

    tensors-missing     of attention, positions or a layer: they start at random
    tensors-unread      the file has them, the model does not: they are dropped
    tensors-differ      another shape
    experts-incomplete  the loader cannot join them

`posenc.hf.doctor.loader` asks; this module tells what concerns positions, attention or whole layers, and which key of
the config resolves what the loader drops or starts at random. A correction is one that the loader was asked about
again, and had no complaint left.

Quiet are names that published files have: scales and packed numbers of quantisation, layers that predict further
tokens, masks and indices that older versions saved, heads of other tasks, and the parts of a whole model of which a
class takes one.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from posenc.hf.config.rope_config import RopeConfig, read_rope
from posenc.hf.doctor.loader import CannotAskError, Loaded, Shape, ask_loader, layer_of
from posenc.hf.doctor.weights import Weights, on_adapter, on_saved_frequencies, on_values, on_weight_files
from posenc.hf.explanation.report import ranges
from posenc.hf.families.position_schemes import SWITCHED_OFF
from posenc.hf.findings import Finding, Level
from posenc.hf.limits import is_count
from posenc.hf.rules.case import has_remote_code
from posenc.hf.sources.load import Config
from posenc.input_files import printable

_POSITIONS = re.compile(
    r"attn|attention|pos_?emb|position|wpe|relative|rel_|rotary|sinks|r_[wr]_bias|distance_embedding", re.IGNORECASE
)
_BUFFERS = re.compile(  # masks, indices and frequencies that older versions saved, and classes make anew
    r"inv_freq$|position_ids$|relative_position_index$|masked_bias$|(?:attn|attention)\.bias$|periods$|embed_scale$"
)
_PREDICTION = re.compile(r"(?:^|\.)(?:mtp\w*|nextn\w*|eh_proj|enorm|hnorm|shared_head)(?:\.|$)")
_PUBLISHED_AND_UNUSED = re.compile("packing_position_embedding")  # a table that published files have for nothing
_PACKED_TYPES = ("U8", "I8", "I32", "U32", "I64", "F4", "BOOL")
_PACKED = re.compile(
    r"\.(?:qweight|qzeros|weight_packed|weight_shape|g_idx|absmax|quant_map|quant_state\..*|nested_\w+|SCB)$"
    r"|_blocks$"
)
_SCALES = re.compile(
    r"(?:^|[._])(?:scales?|scale_inv|scale_2|weight_scale\w*|input_scale|activation_scale|[kv]_scale)$"
)


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
    findings = [*on_weight_files(folder, weights), *on_adapter(folder)]
    checked: list[str] = []
    not_checked = [f"names and shapes in {name}" for name in weights.unread]
    if not weights.shapes:
        return TensorReport(findings, checked, not_checked or ["names and shapes of tensors (no weights are loaded)"])
    whole = not any(finding.name == "weights-unreadable" for finding in findings)
    files = weights.files[0] if len(weights.files) == 1 else f"{len(weights.files)} shards"
    count = f"names and shapes of {len(weights.shapes):,} tensors in {files}"
    packed, plain = _without_packing(config, weights)
    try:
        loaded = ask_loader(config, plain)
    except CannotAskError as reason:
        not_checked.append(f"{count} ({reason})")
    else:
        checked.append(f"{count}, as transformers loads them")
        findings += _Told(config, plain, packed, loaded, read).findings(whole=whole)
        if not whole:
            not_checked.append("which tensors are missing, since weight files are")
    values, looked = on_values(weights.entries)
    findings += values
    if looked:
        checked.append(f"sampled values of {looked:,} tables and norms")
    if read is not None:
        findings += on_saved_frequencies(weights.entries, read)
    if packed:
        not_checked.append(f"shapes of {len(packed):,} quantised tensors")
    return TensorReport(findings, checked, not_checked)


def _without_packing(config: Config, weights: Weights) -> tuple[list[str], dict[str, Shape]]:
    """The tensors that a quantisation packs, and the others; its scales, which lie next to either, are in neither."""
    parts = [config, *(part for part in config.values() if isinstance(part, dict))]
    quantised = any("quantization_config" in part or "compression_config" in part for part in parts)
    packed, plain = [], {}
    for name, shape in weights.shapes.items():
        entry = weights.entries.get(name)
        by_type = entry is not None and entry.dtype in _PACKED_TYPES and not _BUFFERS.search(name)
        if _PACKED.search(name) or (by_type and len(shape) > 1):
            packed.append(name)
        elif not (_SCALES.search(name) and (quantised or packed)):
            plain[name] = shape
    return packed, plain


class _Told:
    """The findings on what the loader said."""

    def __init__(
        self, config: Config, shapes: Mapping[str, Shape], packed: list[str], loaded: Loaded, read: RopeConfig | None
    ) -> None:
        self.config, self.shapes, self.loaded, self.read = config, shapes, loaded, read
        self.remote = has_remote_code(config)
        self.places = {_within(name.rpartition(".")[0]) for name in packed}
        self.missing = [name for name in loaded.missing if not self._packed(name)]
        self.unread = [name for name in loaded.unread if not _BUFFERS.search(name)]
        self.modules = {name[: dot.start()] for name in loaded.names for dot in re.finditer(r"\.", name)} | {""}

    def _packed(self, name: str) -> bool:
        """Whether a tensor is missing because its numbers lie packed under other names."""
        place = _within(name.rpartition(".")[0])
        return any(packed.startswith(place) or place.startswith(packed) for packed in self.places)

    def findings(self, *, whole: bool) -> Iterator[Finding]:
        """All of them; of missing tensors only where the files are whole."""
        if self.loaded.error:
            yield self._finding("", f"{self.loaded.error}: the file does not load", "experts-incomplete")
            return
        if self.loaded.differ:
            yield self._on_differ()
        missing = [name for name in self.missing if layer_of(name) or _POSITIONS.search(name)]
        unread = [name for name in self.unread if self._is_lost(name)]
        keys = self._resolving(self._candidates(missing, unread)) if whole and (missing or unread) else None
        if missing and whole:
            text = f"is missing, {len(missing):,} in all: {_names(missing)}; they start at random, and nothing stops"
            yield self._finding(missing[0], text, "tensors-missing", keys)
        if unread:
            text = f"is dropped as the model loads, which has no place for it, {len(unread):,} in all: "
            text += _names(unread)
            yield self._finding(unread[0], text, "tensors-unread", None if missing and whole else keys)
        yield from self._on_silent()

    def _is_lost(self, name: str) -> bool:
        """Whether a tensor without a place belongs to a layer or to positions of a part that the model has."""
        if _PREDICTION.search(name) or self._predicts(name):
            return False
        layer = layer_of(name)
        module = re.sub(r"\.(?:weight|bias)$", "", name)
        around = (layer or module).rpartition(".")[0]
        has_part = any(f".{module}".endswith(f".{around}") for module in self.modules)
        return has_part and (bool(layer) or bool(_POSITIONS.search(name)))

    def _predicts(self, name: str) -> bool:
        """Whether a tensor lies in a layer with tensors of a head that predicts further tokens."""
        layer = layer_of(name)
        return bool(layer) and any(
            other.startswith(f"{layer}.") and _PREDICTION.search(other) for other in (*self.unread, *self.loaded.silent)
        )

    def _on_silent(self) -> Iterator[Finding]:
        """What the class leaves out of its report: a layer behind the last, a table that another scheme replaces."""
        known = {layer_of(name) for name in self.loaded.names}
        layers = [name for name in self.loaded.silent if layer_of(name) not in {"", *known} and self._is_lost(name)]
        if layers:
            text = f"is dropped without a word, since the class takes it for a head of further tokens: {_names(layers)}"
            yield self._finding(layers[0], text, "tensors-unread")
        for name in self.loaded.silent:
            table = not layer_of(name) and self._is_lost(name) and not _BUFFERS.search(name)
            if not table or _PUBLISHED_AND_UNUSED.search(name):
                continue
            if self.read is not None and [scheme.text for scheme in self.read.position_schemes] == [SWITCHED_OFF.text]:
                switches = [key for scheme in self.read.text_config.family.schemes for key in scheme.switched_by]
                text = "is dropped without a word, and with this config the model has no other positions: a switch was "
                text += f"lost, as {', '.join(switches)}"
                keys = self._resolving(({key: True} for key in switches), dropped=self.loaded.silent)
                yield self._finding(name, text, "table-dropped", keys)
            else:
                text = "is dropped without a word: with this config the model has another scheme of positions. Some "
                text += "published files have such a table unused; if this model was trained with it, the config is "
                text += "another model's"
                yield Finding(name, text, "table-dropped")

    def _on_differ(self) -> Finding:
        patterns: dict[str, str] = {}
        for name, shapes in self.loaded.differ.items():
            have, want = (" × ".join(f"{side:,}" for side in shape) for shape in shapes)
            patterns.setdefault(re.sub(r"\d+", "*", name), f"{name} is {have}, the config makes {want}")
        text = "; ".join([*patterns.values()][:3])
        text += f"; {len(self.loaded.differ):,} tensors in all" if len(self.loaded.differ) > 1 else ""
        return self._finding(next(iter(self.loaded.differ)), f"{text}: the file does not load", "tensors-differ")

    def _finding(self, key: str, text: str, name: str, keys: Config | None = None) -> Finding:
        level: Level = "fault"
        if self.remote:
            level, keys = "suspicion" if name == "tensors-differ" else "note", None
            text += "; the folder names code of its own (auto_map), which may have other rules"
        certain = keys is not None and all(isinstance(value, bool) for value in keys.values())  # a switch
        return Finding(printable(key), text, name, level, keys, certain)

    def _candidates(self, missing: list[str], unread: list[str]) -> Iterator[Config]:
        """Keys that may be wrong: a switch whose name fits the tensors, or the number of layers."""
        names = " ".join((*self.missing, *self.unread))
        for word, keys in (("bias", ("attention_bias",)), ("norm", ("use_qk_norm", "qk_layernorm"))):
            yield from ({key: not self.config.get(key, False)} for key in (keys if word in names else ()))
        numbers = {int(layer_of(name).rpartition(".")[2]) for name in (*missing, *unread) if layer_of(name)}
        value = max(numbers) + 1 if numbers and unread else min(numbers, default=0)
        if value and is_count(self.config.get("num_hidden_layers")):
            yield {"num_hidden_layers": value}

    def _resolving(self, candidates: Iterable[Config], dropped: Collection[str] = ()) -> Config | None:
        """The first keys under which the loader neither complains nor drops a tensor, and no new alarm comes."""
        for keys in candidates:
            changed = {**copy.deepcopy(self.config), **keys}
            try:
                again = ask_loader(changed, self.shapes)
                alarms = _alarms(None if self.read is None else read_rope(changed))
            except (CannotAskError, ValueError):
                continue
            left = [name for name in again.missing if not self._packed(name)]
            left += [name for name in again.unread if not _BUFFERS.search(name)]
            left += [name for name in again.silent if name in dropped]
            if not (left or again.differ or again.error) and alarms <= _alarms(self.read):
                return keys
        return None


def _alarms(read: RopeConfig | None) -> set[str]:
    return set() if read is None else {finding.name for finding in read.findings if finding.alarms}


def _within(name: str) -> str:
    """A module's name from its layer on, whatever a file or a class has in front: "3.self_attn.q_proj"."""
    layer = layer_of(f"{name}.")
    return name if not layer else f"{layer.rpartition('.')[2]}{name[len(layer) :]}"


def _names(names: list[str]) -> str:
    """Tensors in words: names with the numbers of their layers put together, the first three of them."""
    groups: dict[str, list[int]] = {}
    for name in names:
        layer = layer_of(name)
        stack, _, number = layer.rpartition(".")
        groups.setdefault(f"{stack}.*{name[len(layer) :]}" if layer else name, []).extend(
            [int(number)] if layer else []
        )
    words = [
        f"{name} (layer{'s' if len(of) > 1 else ''} {ranges(sorted(of))})" if of else name
        for name, of in groups.items()
    ]
    return printable(", ".join(words[:3])) + (f" and {len(words) - 3} more" if len(words) > 3 else "")
