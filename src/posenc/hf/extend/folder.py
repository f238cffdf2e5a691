"""The folder of an extended model, complete or not at all.

config.json        the rotation under the keys of transformers 5 and also of version 4; LongRoPE's gain also under the
                   keys that vLLM and SGLang read
other files        as --config-only writes them (`posenc.hf.extend.config_only.lengthened`)
extension.json     the measurements
SERVING.md         commands for vLLM, SGLang, llama.cpp and mlx-lm

Where only the config changes, the folder is the source's, with links to its weights: safetensors writes a new file and
renames it, so that saving a model into the new folder leaves the old weights as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posenc.arguments import one_line
from posenc.frequencies.host import steps_of
from posenc.frequencies.longrope import LongRoPE
from posenc.hf.atomic_write import write_atomically
from posenc.hf.config.convert import convert_config
from posenc.hf.config.rope_config import read_rope
from posenc.hf.config.rotation import text_rope
from posenc.hf.config.text_config import attached_names, find_text_config, with_text_config
from posenc.hf.config.write import check_meaning, without_rope
from posenc.hf.extend.config_only import lengthened, misread_by_transformers
from posenc.hf.serving.lines import Serving, serving_lines
from posenc.hf.sources.config_files import CONFIG, REMOVED, TOKENIZER_JSON, copy_folder, edited, read_files, write_texts
from posenc.hf.sources.load import Config

if TYPE_CHECKING:
    from torch import nn

RECORD, SERVING = "extension.json", "SERVING.md"


def check_out(out: str | Path | None, source: object = None, *, overwrite: bool) -> None:
    """Raise a ValueError where a folder is in the way that may not be replaced, or one of the two lies in the other."""
    if out is None:
        return
    path = Path(out)
    if not overwrite and (path.is_file() or (path.is_dir() and any(path.iterdir()))):
        raise ValueError(f"out: {path} exists: give another folder, or --overwrite")
    if isinstance(source, str | Path) and Path(source).is_dir():  # else a name on the Hub
        one, other = path.resolve(), Path(source).resolve()
        if one in other.parents or other in one.parents:
            raise ValueError(f"out: {path} and {source} lie in one another: give a folder outside of the model's")


def write_folder(
    out: Path, model: nn.Module, tokenizer: Any, *, length: int, original_length: int, work: Path,
    record: Mapping[str, Any] | None = None, source: Path | None = None, trained: bool = False,
) -> str:  # fmt: skip
    """Write an extended model, complete or not at all; a folder at ``out`` is replaced.

    Args:
        out: the folder.
        model: the extended model.
        tokenizer: of the model; None: it has none.
        length, original_length: the new context length and the training length, in tokens.
        work: where measurements are kept, for an error to name.
        record: the measurements; None: there are none.
        source: the folder that has the weights, which are linked; None: they are written.
        trained: whether the weights were changed, so that the original ones are of no use.

    Returns:
        How the weights were linked, as `copy_folder` says it; "" where they were written.

    Raises:
        OSError: where the folder cannot be written, as on a full disk; nothing of it is left.
    """
    live: Any = model
    config: Config = json.loads(json.dumps(live.config.to_dict(), default=str))

    def make(new: Path) -> str:
        weights = _save(new, live, tokenizer) if source is None else copy_folder(source, new)
        files = read_files(new)
        before, after = (find_text_config(each) for each in (files.config, written_config(files.config, config)))
        keys = {
            (*before.path, key): after.get(key, REMOVED)
            for key in {**before, **after} if before.get(key, REMOVED) != after.get(key, REMOVED)
        }  # fmt: skip
        _, texts, _ = lengthened(files, keys, length, original_length)
        texts[SERVING] = serving_page(json.loads(texts[CONFIG]), str(out), length, trained=trained)
        if (files.tokenizer_limit() or length) < length:
            text = (new / TOKENIZER_JSON).read_text(encoding="utf-8")
            texts[TOKENIZER_JSON] = edited(text, {("truncation", "max_length"): length})
        if record is not None:
            texts[RECORD] = json.dumps({**record, "weights": weights}, indent=1) + "\n"
        write_texts(new, texts)
        return weights

    outcome = f"what was measured is saved in {work}; the same call continues"
    return write_atomically(out, make, replace=True, outcome=outcome)


def _save(new: Path, model: Any, tokenizer: Any) -> str:
    try:
        model.save_pretrained(new)
    except ValueError as error:  # generation settings that transformers refuses to save, in many lines
        raise ValueError(f"model: transformers cannot save it: {one_line(error)[:300]}") from error
    if tokenizer is not None:
        tokenizer.save_pretrained(new)
    return ""


def written_config(config: Config, live: Config) -> Config:
    """A file's configuration with the rotation and length of a live one, for readers of both versions and engines.

    Raises:
        ValueError: where it would be read back with another rotation.
    """
    if attached_names(live) is not None:  # whose layers attend by posenc's encodings
        return config
    facts, text = read_rope(config).facts, find_text_config(live)
    rotation = {key: text[key] for key in ("rope_parameters", "max_position_embeddings") if key in text}
    result = with_text_config(config, facts.text, {**without_rope(facts.text, facts.blocks), **rotation})
    check_meaning(result, read_rope(live).rotations, facts.reading)
    return with_both_versions(with_gains(result))


def with_gains(config: Config) -> Config:
    """The configuration with LongRoPE's gain also under the keys of engines, which else compute it from the lengths."""
    text_config, rotations = find_text_config(config), read_rope(config).rotations
    block = text_config.get("rope_parameters")
    if not isinstance(block, dict):
        return config

    def with_gain(kind_block: Any, kind: str) -> Any:
        rope = rotations.get(kind)
        if not isinstance(kind_block, dict) or kind_block.get("rope_type") != "longrope" or rope is None:
            return kind_block
        (scaling,) = (step for step in steps_of(text_rope(rope).scaling) if isinstance(step, LongRoPE))
        short, long = scaling.short_gain, scaling.long_gain
        gain = kind_block.get("attention_factor", short)
        return {**kind_block, "attention_factor": gain, "short_mscale": short, "long_mscale": long}

    if "rope_type" in block:
        changed = with_gain(block, next(iter(rotations)))
    else:
        changed = {kind: with_gain(kind_block, kind) for kind, kind_block in block.items()}
    return with_text_config(config, text_config, {**text_config, "rope_parameters": changed})


def with_both_versions(config: Config) -> Config:
    """A configuration of version 5 with version 4's keys added; unchanged where some reader would misread both."""
    try:
        both = convert_config(config).config
    except ValueError:
        return config
    return config if misread_by_transformers(both) else both


def serving_page(config: Config, folder: str, length: int, *, trained: bool = False) -> str:
    """SERVING.md: the lines that serve a folder, and flags for the original weights, in Markdown.

    Args:
        config: as it is written.
        folder: its path, as engines are given it.
        length: tokens.
        trained: whether its weights were changed, so that the original ones are of no use.
    """
    title = f"# Serving {folder}"
    if (attached := attached_names(config)) is not None:
        return (
            f"{title}\n\nIts layers attend by {attached.words} of the Python package posenc. Load it with\n\n    from "
            "posenc.hf.attach import load\n\n    model = load(FOLDER)\n\nfrom_pretrained refuses it. vLLM, SGLang and "
            "llama.cpp have nothing that does the same; a model for them needs a method of the frequencies.\n"
        )
    lines, facts = [f"{title} with {length:,} tokens"], read_rope(config).facts
    every = [(line.name, line) for line in serving_lines(Serving(facts, length, folder))]
    if not trained:
        original = Serving(facts, length, "ORIGINAL", overridden=True)
        every += [(f"{line.name}, by flags", line) for line in serving_lines(original)]
    for name, line in every:
        commands = [f"    {command}" for command in line.command.split("; ") if command]
        text = "; ".join([line.text, *line.notes])
        lines += ["", f"{name}:", "", *commands, *([""] if commands else []), f"{text[0].upper()}{text[1:]}."]
    if not trained:
        lines += ["", "ORIGINAL is the folder of the original model, whose weights these are."]
    return "\n".join(lines) + "\n"
