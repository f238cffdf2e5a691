"""A longer context by the config alone: which keys change, what it costs, and how to serve it. No weights are read.

    from posenc.hf.extend import extend_config
    print(extend_config("Qwen/Qwen3-8B", 131072))                          # a diff, its cost, a line for each engine
    extend_config("my-model", 131072, out="my-model-128k")

Only the rope block and the declared length change, in the file's own text (`posenc.hf.json_text`): every other key,
the spelling of version 4 or 5 and the layout of the file stay. A block of version 5 always carries rope_theta, without
which transformers takes the family's default base.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from posenc.arguments import check_flag, check_whole, shown
from posenc.hf.config.config_findings import OTHER_LENGTHS
from posenc.hf.config.layer_kinds import layer_kinds, window_of
from posenc.hf.config.non_rotary import position_schemes
from posenc.hf.config.posenc_config import attached_names, is_posenc_config
from posenc.hf.config.rope_block import ALL, RopeBlock, at
from posenc.hf.config.rope_config import read_rope
from posenc.hf.config.rope_keys import find_rope_blocks
from posenc.hf.config.text_config import TextConfig, find_text_config, layers_without_rope, length_key, max_length
from posenc.hf.config.write import places
from posenc.hf.extend.engine_lines import EngineLine, engine_lines
from posenc.hf.extend.recipes import (
    BlockChange,
    check_method,
    documented_block,
    documented_for,
    grown_scaling,
    new_scaling,
)
from posenc.hf.families.layer_patterns import COMPRESSED, HEAVILY_COMPRESSED, NO_ATTENTION
from posenc.hf.json_text import edited
from posenc.hf.limits import TIMES, TOKENS, is_count
from posenc.hf.sources.config_files import (
    CONFIG,
    ConfigFiles,
    read_files,
    unified_diff,
    write_in_place,
    write_out,
)
from posenc.hf.sources.load import Config, Source, dotted

KeyPath = tuple[str, ...]
_UNSCALED = "default"
_CUTTING = {  # files with a length at which texts are cut, and its key
    "tokenizer_config.json": "model_max_length", "generation_config.json": "max_length",
    "sentence_bert_config.json": "max_seq_length",
}  # fmt: skip
_COMPRESSED = (COMPRESSED, HEAVILY_COMPRESSED)  # kinds that attend to compressed tokens beyond their window
_STUDY = (
    "+0.0117 nats a token (95 % interval +0.0098 to +0.0137) at 2,048 tokens, of SmolLM2-135M under YaRN from 8,192 to "
    "12,288 tokens, 100 documents (docs/results/context-study/likelihood)"
)


@dataclass(frozen=True)
class ConfigExtension:
    """An extension of a config, and what a user has to know of it. Print it.

    Attributes:
        model: the source, as it was given.
        length: new context length, in tokens.
        declared: length that the config declares, in tokens; None: it declares none.
        already: whether the config declares the new length as it is, so that nothing is to be written.
        change: of the rope block; None where nothing is to be written.
        config: the whole config, extended.
        changes: by file and path of the key, the new value.
        files: by name, the new text of each file that changes; empty for a GGUF file.
        diff: of these files, unified.
        costs: what the extension costs, and what it needs.
        notes: what else a reader should know.
        engines: a line for each engine.
        written: the folder or file that was written; None: none was.
    """

    model: str
    length: int
    declared: int | None
    already: bool
    change: BlockChange | None
    config: Config
    changes: Mapping[str, Mapping[KeyPath, Any]]
    files: Mapping[str, str]
    diff: str
    costs: tuple[str, ...]
    notes: tuple[str, ...]
    engines: tuple[EngineLine, ...]
    written: str | None = None

    def record(self) -> dict[str, Any]:
        """As plain data."""
        change = self.change
        recipe = None if change is None else change.documented
        return {
            "model": self.model, "length": self.length, "declared": self.declared, "already": self.already,
            "method": None if change is None else change.method,
            "factor": None if change is None else change.factor,
            "original_length": None if change is None else change.original,
            "documented": None if recipe is None else {"model": recipe.model, "source": recipe.source},
            "changes": {
                file: {dotted(path): value for path, value in keys.items()} for file, keys in self.changes.items()
            },
            "diff": self.diff, "costs": list(self.costs), "notes": list(self.notes),
            "engines": [line._asdict() for line in self.engines], "written": self.written,
        }  # fmt: skip

    def __str__(self) -> str:
        if self.already:
            lines = [f"{self.model} already declares {self.declared:,} tokens: nothing to write for {self.length:,}."]
            return "\n".join([*lines, *(f"{'Note':<12}{note}" for note in self.notes)])
        assert self.change is not None
        lines = [f"{_title(self.change)}   (no weights read)", ""]
        if self.diff:
            lines += [self.diff.rstrip("\n"), "", f"{'Keeps':<12}every other key, and the spelling of the file"]
        lines += [f"{'Costs' if number == 0 else '':<12}{cost}" for number, cost in enumerate(self.costs)]
        lines += [f"{'Note':<12}{note}" for note in self.notes]
        lines += [f"{'Serve with' if number == 0 else '':<12}{line}" for number, line in enumerate(self.engines)]
        if self.written is not None:
            lines.append(f"{'Written':<12}{self.written}")
        elif self.files:
            lines.append(f"{'Write it':<12}add --out DIR or --in-place")
        return "\n".join(lines)


def extend_config(
    source: Source,
    length: int,
    method: str = "auto",
    *,
    original_length: int | None = None,
    out: str | Path | None = None,
    in_place: bool = False,
) -> ConfigExtension:
    """Extend the context of a model in its config, without reading weights.

    Args:
        source: a folder, a config.json, a GGUF file, a model of the Hugging Face Hub (``org/name``) or a mapping.
        length: new context length, in tokens.
        method: "auto": what the model's authors document, else YaRN; for a config that has a scaling its own rope type
            with a larger factor. Or "yarn", "linear", "dynamic", "llama3".
        original_length: training length in tokens, where the config says another.
        out: a new folder to write. From a folder of weights it gets everything: small files copied, large ones linked.
        in_place: change the files of the source; each is kept as NAME.original.

    Raises:
        ValueError: for a model that rotation does not limit (learned tables, biases, windows in every layer), for a
            rope type that no rule extends, for a length that makes no sense, and for what cannot be read.
        OSError: for files that cannot be read or written.

    >>> config = {"model_type": "llama", "head_dim": 64, "rope_theta": 10000.0, "max_position_embeddings": 4096}
    >>> extend_config(config, 16384).config["rope_scaling"]
    {'rope_type': 'yarn', 'factor': 4.0, 'original_max_position_embeddings': 4096}
    """
    check_whole("length", length, most=TOKENS)
    if original_length is not None:
        check_whole("original_length", original_length, most=TOKENS)
    if check_flag("in_place", in_place) and out is not None:
        raise ValueError("out or in_place: give one of the two")
    method = check_method(method)
    files = read_files(source)
    if in_place or out is not None:
        files.check_writable(None if out is None else Path(out))
    folder = str(out) if out is not None else str(files.folder) if in_place and files.folder is not None else "DIR"
    extension = _extended(files, length, method, original_length, folder)
    if extension.already or not (in_place or out is not None):
        return extension
    if out is not None:
        write_out(files, extension.files, Path(out))
        return replace(extension, written=str(out))
    return replace(extension, written=write_in_place(files, extension.files))


def _extended(files: ConfigFiles, length: int, method: str, original: int | None, folder: str) -> ConfigExtension:
    config = files.config
    read_rope(config)  # raises for whatever cannot be understood, and names the key
    text_config = find_text_config(config)
    _check_rotation_limits(config, text_config)
    declared = max_length(text_config)
    blocks = find_rope_blocks(text_config)
    unscaled = all(block.effective.get("rope_type", _UNSCALED) == _UNSCALED for block in _rotating(blocks))
    if declared is not None and length <= declared and not (unscaled and original is not None and length > original):
        notes = _declared_notes(blocks, declared)
        return ConfigExtension(
            files.model, length, declared, True, None, config, {}, {}, "", (), notes, ()
        )  # fmt: skip
    reaching = [block for block in _rotating(blocks) if _reaches(text_config, blocks, block, original or declared)]
    changes = [(block, _change_of(text_config, block, length, method, original, declared)) for block in reaching]
    change = changes[0][1] if changes else _without_rotation(text_config, blocks, declared)
    if change.factor is not None and change.factor > TIMES:
        raise ValueError(f"length: {length:,} is {change.factor:,.0f} times the original length, the most is {TIMES:,}")
    keys: dict[KeyPath, Any] = {}
    for block, block_change in changes:
        keys |= _keys_of(text_config, block, block_change)
    copies, lengths_left = _copied_lengths(text_config, length, declared)
    if change.declares:
        keys |= {(key,): length for key in (length_key(text_config), *copies)}
    changed: dict[str, dict[KeyPath, Any]] = {CONFIG: {(*text_config.path, *path): new for path, new in keys.items()}}
    every_note = [
        *change.notes,
        *_notes(config, text_config, blocks, reaching, [done for _, done in changes], files, length),
        *lengths_left,
    ]
    for name, (key, new, note) in _cutting_lengths(files, length, declared).items():
        if new is not None:
            changed[name] = {(key,): new}
        every_note += [note] if note else []
    if files.is_gguf:
        texts, changed_config, diff = {}, _applied(config, changed[CONFIG]), ""
    else:
        texts = {name: edited(files.texts[name], values) for name, values in changed.items()}
        changed_config, diff = json.loads(texts[CONFIG]), unified_diff(files.texts, texts)
    _check_written(changed_config, text_config, changes)
    lines = engine_lines(changed_config, length, folder, gguf=files.gguf)
    return ConfigExtension(
        files.model, length, declared, False, change, changed_config, changed, texts, diff,
        tuple(_costs(change, declared, length, folder)), tuple(dict.fromkeys(every_note)), lines,
    )  # fmt: skip


def _title(change: BlockChange) -> str:
    if change.factor is None:
        return "Only the declared length changes: rotation does not limit this model."
    if change.documented is not None:
        return f"{change.title}, as documented for {change.documented.model}: {change.documented.source}"
    return f"{change.title}. No source documents this extension for this model."


def _rotating(blocks: list[RopeBlock]) -> list[RopeBlock]:
    return [block for block in blocks if block.values is not None]


def _check_rotation_limits(config: Config, text_config: TextConfig) -> None:
    """Raise a ValueError, with what limits the length, where a model does not rotate queries and keys by its config."""
    if is_posenc_config(config) or attached_names(config) is not None:
        raise ValueError("the encodings of this model are posenc's own: see posenc.hf.attach; no rope block decides")
    schemes = position_schemes(text_config, config)
    if schemes:
        has = "; ".join(scheme.text for scheme in schemes)
        rows = next((scheme.positions for scheme in schemes if scheme.positions), None)
        limit = (
            f". The table ends at {rows:,}; a longer one must be trained (posenc.embedding.grow_table)" if rows else ""
        )
        raise ValueError(f"{text_config.model_type} has no rotation to extend. Its positions: {has}{limit}")
    if text_config.rotation.fixed:
        raise ValueError(f"{text_config.model_type}: its code fixes the frequencies, whatever a config says")
    if text_config.rotation.bases_choose:
        key = text_config.key_path(text_config.rotation.bases_key or "")
        raise ValueError(f"{key} gives each layer a base, and the code reads no scaling next to it: nothing to extend")


def _reaches(text_config: TextConfig, blocks: list[RopeBlock], block: RopeBlock, original: int | None) -> bool:
    """Whether a layer that a block rotates attends to tokens further away than the original length."""
    keys = text_config.rotation.kinds.get(block.kind)
    if keys is not None and not keys.scaled:
        return False
    kinds, unrotated = layer_kinds(text_config), set(layers_without_rope(text_config))
    named = {other.kind for other in blocks if other.kind != ALL and other is not block}
    rotated = {
        kind for layer, kind in enumerate(kinds)
        if kind not in NO_ATTENTION and layer not in unrotated and (kind == block.kind or kind not in named)
        and (block.kind == ALL or kind == block.kind or block.kind not in kinds)
    }  # fmt: skip
    if not kinds:
        rotated = {block.kind}
    windows = [None if kind in _COMPRESSED else window_of(text_config, kind)[0] for kind in rotated]
    return any(window is None or (original is not None and window > original) for window in windows)


def _without_rotation(text_config: TextConfig, blocks: list[RopeBlock], declared: int | None) -> BlockChange:
    """The declared length alone, where layers without rotation reach beyond the windows of the others.

    Raises:
        ValueError: where every layer attends within a window.
    """
    kinds, unrotated = layer_kinds(text_config), set(layers_without_rope(text_config))
    still = {block.kind for block in blocks if block.values is None}
    free = [
        layer for layer, kind in enumerate(kinds)
        if (layer in unrotated or kind in still) and kind not in NO_ATTENTION
        and window_of(text_config, kind)[0] is None
    ]  # fmt: skip
    windows = sorted({size for kind in kinds if (size := window_of(text_config, kind)[0]) is not None})
    widest = f"{windows[-1]:,} tokens" if windows else "its layers' own pattern"
    if not free:
        raise ValueError(
            f"length: rotation does not limit {text_config.model_type}: every layer attends within a window of "
            f"{widest}, so that no distance is new. The window limits what a layer attends to, and widening it needs "
            "training"
        )
    text = f"layers that rotate attend within {widest}, and the {len(free)} layers that attend further have no rotation"
    return BlockChange({}, "none", notes=(f"{text}: the rope block stays as it is",))


def _change_of(
    text_config: TextConfig, block: RopeBlock, length: int, method: str, original: int | None, declared: int | None
) -> BlockChange:
    values = block.effective
    if values.get("rope_type", _UNSCALED) != _UNSCALED:
        if declared is None:
            key = text_config.key_path(length_key(text_config))
            raise ValueError(f"{key} is missing, which says how far the scaling of this config reaches: add it first")
        if original is not None:
            raise ValueError("original_length: the config has a scaling, whose block says from which length it counts")
        recipe = documented_block(text_config.model_type, values, length)
        change = grown_scaling(values, method, length, declared, latent=text_config.rotation.latent)
        return replace(change, documented=recipe)
    if taken := text_config.rotation.rope_types:
        raise ValueError(
            f"method: transformers' code of {text_config.model_type} takes the rope types {' and '.join(taken)} alone, "
            "which --config-only does not write; without it, posenc extend --method yarn writes YaRN's frequencies as "
            "longrope's factors, and --method longrope searches factors on the model"
        )
    recipe = documented_for(text_config.model_type, declared, values["rope_theta"]) if original is None else None
    start = original or (recipe.original if recipe is not None else block.trained or declared)
    if start is None:
        raise ValueError("original_length must be given (--original-length): the config does not say the length")
    if length <= start:
        raise ValueError(f"length must be more than the {start:,} tokens of the original length, got {length:,}")
    return new_scaling(method, length, start, recipe)


def _keys_of(text_config: TextConfig, block: RopeBlock, change: BlockChange) -> dict[KeyPath, Any]:
    """New values by their paths in the text config, where the block has or would have them."""
    family, values = text_config.rotation, block.values or {}
    has_block = bool(at(text_config.config, block.target))
    spells_version_4 = "rope_theta" in block.sources or bool(family.kinds)
    if not has_block and not spells_version_4 and text_config.family.since > 4:
        block = replace(block, target=("rope_parameters",), renames={})
    keys = dict(change.keys)
    if not has_block:  # engines tell M-RoPE by these keys
        keys |= {key: value for key, value in family.section_keys.items() if key not in values}
    if "rope_parameters" in (block.target[0], *(mirror[0] for mirror in block.mirrors)):
        home = next(path for path in (block.target, *block.mirrors) if path[0] == "rope_parameters")
        if at(text_config.config, (*home, "rope_theta")) is None:
            base = {(*home, "rope_theta"): block.effective["rope_theta"]}
        else:
            base = {}
    else:
        base = {}
    paths = {path: value for key, value in keys.items() for path in places(block, key)}
    return {**paths, **base}


def _copied_lengths(text_config: TextConfig, length: int, declared: int | None) -> tuple[list[str], list[str]]:
    """Other keys that repeat the declared length, and notes on those that give another one.

    vLLM 0.33 grants the smallest of these lengths (model_arch_config_convertor.py), so that a copy would undo the new
    one.
    """
    copies, notes = [], []
    for key in OTHER_LENGTHS:
        value = text_config.get(key)
        if not is_count(value, TOKENS) or value >= length or key == length_key(text_config):
            continue
        if value == declared:
            copies.append(key)
        else:
            notes.append(f"{key} {value:,} stays; vLLM grants the smallest length that a config names")
    return copies, notes


def _cutting_lengths(
    files: ConfigFiles, length: int, declared: int | None
) -> dict[str, tuple[str, int | None, str]]:  # fmt: skip
    """By file, its key of a length, the value that no longer cuts texts, and a note."""
    result: dict[str, tuple[str, int | None, str]] = {}
    for name, key in _CUTTING.items():
        value = files.side(name).get(key)
        if not is_count(value, TOKENS) or value >= length:
            continue
        if name == "generation_config.json" and (declared is None or value < declared):
            text = f"{name}: {key} {value:,} is shorter than the model's own length, a choice that stays; it ends texts"
            result[name] = (key, None, text)
        else:
            result[name] = (key, length, "")
    return result


def _notes(
    config: Config, text_config: TextConfig, blocks: list[RopeBlock], reaching: list[RopeBlock],
    changes: list[BlockChange], files: ConfigFiles, length: int,
) -> list[str]:  # fmt: skip
    notes = []
    recipes = [change.documented for change in changes if change.documented is not None]
    model_type = config.get("model_type")
    if recipes and model_type not in (None, *recipes[0].model_types):
        notes.append(
            f"the recipe is for {recipes[0].model}, whose text model {model_type} has; it was not made for this model"
        )
    left = [block.kind for block in _rotating(blocks) if block not in reaching]
    if left and reaching:
        notes.append(f"{' and '.join(left)} keeps its rotation: these layers attend within a window")
    if config.get("auto_map") and not text_config.known:
        notes.append("auto_map: the repository's own code computes the rotation and may read other keys")
    elif config.get("auto_map"):
        notes.append("auto_map: with trust_remote_code the repository's own code runs, which may read other keys")
    elif not text_config.known:
        notes.append(f"model_type {shown(text_config.model_type)} is unknown to posenc: compare the keys with its code")
    limit = files.tokenizer_limit()
    if limit is not None and limit < length:
        notes.append(
            f"tokenizer.json: truncation cuts texts at {limit:,} tokens: set its max_length, or truncation to null"
        )
    if files.of_the_hub:
        name = files.model.partition("@")[0]
        notes.append(
            f"only config files of {name} were read, and --out writes only these; the weights go next to them, or: "
            f"hf download {name} --local-dir WEIGHTS, and posenc extend WEIGHTS links them into a complete folder"
        )
    return notes


def _declared_notes(blocks: list[RopeBlock], declared: int) -> tuple[str, ...]:
    """What the config does to reach the length that it declares."""
    notes = []
    for block in _rotating(blocks):
        values = block.effective
        kind, where = values.get("rope_type", _UNSCALED), "" if block.kind == ALL else f"{block.kind}: "
        if kind == _UNSCALED:
            notes.append(f"{where}no scaling; the config does not say whether the model was trained at this length")
        else:
            factor = "" if values.get("factor") is None else f", factor {values['factor']:g}"
            notes.append(f"{where}its rope type {kind!r}{factor} stays as it is")
    return tuple(notes)


def _costs(change: BlockChange, declared: int | None, length: int, folder: str) -> list[str]:
    """What a change costs at short lengths, and what it needs.

    A block that grows was trained up to the declared length; a new one counts from its original length.
    """
    if change.factor is None:
        return [f"Quality beyond the training length is not known: measure it (posenc evaluate {folder} --tasks "
                f"niah,perplexity --lengths {declared or length},{length})"]  # fmt: skip
    start = (change.original if "rope_type" in change.keys else declared) or length
    costs = []
    if change.method == "yarn":
        costs.append(f"A static factor also changes prompts under {start:,} tokens: serve these with the old config.")
        costs.append(f"Measured: {_STUDY}.")
    elif change.method != "dynamic":
        costs.append(f"The factor acts at every length, also on prompts under {start:,} tokens.")
    if change.method == "linear" and change.documented is None:
        costs.append("Linear scaling slows fast pairs too; it was published with fine-tuning (arXiv 2306.15595).")
    nothing = "Nothing is trained here. " if change.documented is None else ""
    costs.append(
        f"{nothing}Measure before use: posenc evaluate {folder} --tasks niah,perplexity --lengths {start},{length}"
    )
    return costs


def _applied(config: Config, changes: Mapping[KeyPath, Any]) -> Config:
    """A config with other values; what it has in common with the old one is shared."""
    result: Config = json.loads(edited(json.dumps(config), changes))
    return result


def _check_written(config: Config, before: TextConfig, changes: list[tuple[RopeBlock, BlockChange]]) -> None:
    """Read what would be written, and raise a ValueError unless it says what was meant and nothing else changed."""
    read_rope(config)
    after = {block.kind: block for block in find_rope_blocks(find_text_config(config))}
    meant = {block.kind: {**block.effective, **change.keys} for block, change in changes}
    for block in find_rope_blocks(before):
        values, old = after[block.kind].effective, meant.get(block.kind, block.effective)
        wrong = sorted(key for key, value in old.items() if values.get(key) != value)
        follows = block.kind not in meant and wrong == ["original_max_position_embeddings"]  # the declared length
        if block.values is not None and wrong and not follows:
            raise ValueError(
                f"{block.kind}: {', '.join(wrong)} would be read back as {[values.get(key) for key in wrong]}, not as "
                f"{[old[key] for key in wrong]}: the spelling of this file has no room for it"
            )
