"""The folder of an extended model, and the state of an unfinished extension next to it.

config.json        the rotation under the keys of transformers 5 and also of version 4; LongRoPE's gain also under the
                   keys that vLLM and SGLang read
extension.json     the measurements
SERVING.md         commands for vLLM, SGLang, llama.cpp and mlx-lm

The folder is built in ``OUT.work`` and moved into place when it is complete, so that a killed run leaves nothing
half-written at OUT. Where only the configuration changes, weights are links to the files of the old folder: safetensors
writes a new file and renames it, so that saving a model into the new folder leaves the old weights as they are.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from posenc.arguments import one_line
from posenc.frequencies.modules import LongRoPE
from posenc.hf.atomic_write import naming_target
from posenc.hf.config.convert import convert_config
from posenc.hf.config.rope_config import read_rope
from posenc.hf.config.text_config import find_text_config, with_text_config
from posenc.hf.extend.config_only import cutting_lengths, misread_by_transformers
from posenc.hf.json_text import edited
from posenc.hf.serving.lines import Serving
from posenc.hf.serving.lines import serving_lines as lines_of
from posenc.hf.sources.config_files import Link, link_file, read_files
from posenc.hf.sources.load import Config, load
from posenc.hf.sources.tensor_files import shards_of

RECORD, SERVING = "extension.json", "SERVING.md"


_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


def check_out(out: str | Path | None, *, overwrite: bool) -> None:
    """Raise a ValueError where a folder is in the way that may not be replaced."""
    path = None if out is None else Path(out)
    if path is not None and not overwrite and (path.is_file() or (path.is_dir() and any(path.iterdir()))):
        raise ValueError(f"out: {path} exists: give another folder, or --overwrite")


def write_folder(
    out: Path, model: nn.Module, tokenizer: Any, *, length: int, original_length: int, serving: str, work: Path,
    record: Mapping[str, Any] | None = None, source: Path | None = None,
) -> str:  # fmt: skip
    """Write an extended model, complete or not at all; a folder at ``out`` is replaced.

    Args:
        out: the folder.
        model: the extended model.
        tokenizer: of the model; None: it has none.
        length, original_length: the new context length and the training length, in tokens.
        serving: SERVING.md.
        work: a folder on the same disk, in which it is built.
        record: the measurements; None: there are none.
        source: the folder whose weights are linked instead of written; None: they are written.

    Returns:
        How the weights were linked; "" where they were written.

    Raises:
        OSError: where the folder cannot be written, as on a full disk; nothing of it is left.
    """
    new = work / "folder"
    shutil.rmtree(new, ignore_errors=True)
    try:
        with naming_target(out, outcome=f"what was measured is saved in {work}; the same call continues"):
            new.mkdir(parents=True)
            weights = _save(new, model, source)
            if tokenizer is not None:
                tokenizer.save_pretrained(new)
            _raise_limits(new, length, original_length)
            config_file = new / "config.json"
            config = with_both_versions(with_gains(json.loads(config_file.read_text(encoding="utf-8"))))
            _write(config_file, config, indent=2)
            (new / SERVING).write_text(serving, encoding="utf-8")
            if record is not None:
                _write(new / RECORD, {**record, "weights": weights}, indent=1)
            _move(new, out, work / "replaced")
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    return weights


def _move(new: Path, out: Path, old: Path) -> None:
    """Put a folder in the place of another, which comes back where that fails."""
    if not out.exists():
        new.replace(out)
        return
    shutil.rmtree(old, ignore_errors=True)
    out.replace(old)
    try:
        new.replace(out)
    except BaseException:
        old.replace(out)
        raise


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The files that transformers loads the weights of a folder from, an index included; empty where it has none.

    A folder with an adapter has none: transformers adds the adapter to the weights that it loads.
    """
    if (folder / "adapter_config.json").exists():
        return ()
    first = next((folder / name for name in _WEIGHTS if (folder / name).exists()), None)
    if first is None:
        return ()
    if first.suffix != ".json":
        return (first,)
    return (first, *(folder / name for name in sorted(set(shards_of(first).values()))))


def _write(path: Path, content: Mapping[str, Any], *, indent: int) -> None:
    path.write_text(json.dumps(content, indent=indent) + "\n", encoding="utf-8")


def _save(new: Path, model: Any, source: Path | None) -> str:
    """Save a model, with links to the weights of ``source`` where one is given; returns how they were linked."""
    if source is None:
        try:
            model.save_pretrained(new)
        except ValueError as error:  # generation settings that transformers refuses to save, in many lines
            raise ValueError(f"model: transformers cannot save it: {one_line(error)[:300]}") from error
        return ""
    model.config.save_pretrained(new)
    if (source / "generation_config.json").exists():
        # As it is: transformers opens files with contradictions, such as a temperature without sampling, and refuses to
        # save them.
        shutil.copy2(source / "generation_config.json", new)
    kinds: tuple[Link, ...] = ("hard links", "symbolic links", "copies")
    kind = max((link_file(file, new / file.name) for file in weight_files(source)), key=kinds.index)
    written, original = json.loads((new / "config.json").read_text()), load(source / "config.json")
    # What the config says of the weights is true of the files, not of the model in memory: it may be loaded in another
    # dtype, and by another class.
    for key in ("dtype", "torch_dtype"):
        written.pop(key, None)
    of_weights = ("dtype", "torch_dtype", "architectures", "quantization_config", "auto_map")
    written = {"architectures": [type(model).__name__], **written}
    written |= {key: original[key] for key in of_weights if key in original}
    _write(new / "config.json", written, indent=2)
    if "auto_map" in original:
        for code in source.glob("*.py"):
            shutil.copy2(code, new / code.name)
    return f"{kind} {'of' if kind == 'copies' else 'to'} the files of {source}"


def _raise_limits(folder: Path, length: int, original_length: int) -> None:
    """Raise lengths in the other files of the folder at which texts would be cut below the new context length."""
    files = read_files(folder)
    for name, (key, limit, _) in cutting_lengths(files, length, original_length).items():
        if limit is not None:
            (folder / name).write_text(edited(files.texts[name], {(key,): limit}), encoding="utf-8")
    tokenizer = folder / "tokenizer.json"
    if (files.tokenizer_limit() or length) < length:
        text = tokenizer.read_text(encoding="utf-8")
        tokenizer.write_text(edited(text, {("truncation", "max_length"): length}), encoding="utf-8")


def with_gains(config: Config) -> Config:
    """The configuration with LongRoPE's gain also under the keys of engines, which else compute it from the lengths."""
    text_config, layers = find_text_config(config), read_rope({k: v for k, v in config.items() if k != "posenc"}).layers
    block = text_config.get("rope_parameters")
    if not isinstance(block, dict):
        return config

    def with_gain(kind_block: Any, kind: str) -> Any:
        rope = layers.get(kind)
        if not isinstance(kind_block, dict) or kind_block.get("rope_type") != "longrope" or rope is None:
            return kind_block
        (scaling,) = (part for part in rope.modules() if isinstance(part, LongRoPE))
        short, long = scaling.short_gain, scaling.long_gain
        return {
            **kind_block,
            "attention_factor": kind_block.get("attention_factor", short),
            "short_mscale": short,
            "long_mscale": long,
        }

    if "rope_type" in block:
        changed = with_gain(block, next(iter(layers)))
    else:
        changed = {kind: with_gain(kind_block, kind) for kind, kind_block in block.items()}
    return with_text_config(config, text_config, {**text_config.config, "rope_parameters": changed})


def with_both_versions(config: Config) -> Config:
    """A configuration of version 5 with version 4's keys added; unchanged where some reader would misread both."""
    try:
        both = convert_config(config).config
    except ValueError:
        return config
    return config if misread_by_transformers(both) else both


def serving_lines(config: Config, folder: str, length: int, *, trained: bool = False) -> str:
    """SERVING.md: the lines that serve the folder, and flags for the original weights, in Markdown.

    Args:
        config: of the extended model, with version 5's keys.
        folder: its path, as engines are given it.
        length: tokens.
        trained: whether its weights were changed, so that the original ones are of no use.
    """
    read = read_rope(with_both_versions(with_gains({key: value for key, value in config.items() if key != "posenc"})))
    lines = [f"# Serving {folder} with {length:,} tokens"]
    every = [*lines_of(Serving(read.facts, length, folder))]
    if not trained:
        original = Serving(read.facts, length, "ORIGINAL", overridden=True)
        every += [line._replace(engine=f"{line.engine}, by flags") for line in lines_of(original)]
    for line in every:
        commands = [f"    {command}" for command in line.command.split("; ") if command]
        text = "; ".join([line.text, *line.notes])
        lines += ["", f"{line.name}:", "", *commands, *([""] if commands else []), f"{text[0].upper()}{text[1:]}."]
    if not trained:
        lines += ["", "ORIGINAL is the folder of the original model, whose weights these are."]
    return "\n".join(lines) + "\n"


def serving_lines_of_remapping(folder: str, name: str) -> str:
    """SERVING.md for remapped distances, which no engine and no rope type has."""
    return (
        f"# Serving {folder}\n\nIts layers attend by {name} of the Python package posenc. Load it with\n\n"
        "    from posenc.hf.attach import load\n\n    model = load(FOLDER)\n\nfrom_pretrained refuses it. vLLM, SGLang "
        "and llama.cpp have nothing that does the same; a model for them needs a method of the frequencies.\n"
    )
