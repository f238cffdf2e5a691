"""A longer context by the config alone: which keys change, what it costs, and how to serve it. No weights are read.

    from posenc.hf.extend import extend_config
    print(extend_config("Qwen/Qwen3-8B", 131072))                          # a diff, its cost, a line for each engine
    extend_config("my-model", 131072, out="my-model-128k")

Only the RoPE block and the declared length are edited, in the file's own text (`posenc.hf.sources.config_files`): every
other key, the spelling of version 4 or 5 and the layout of the file stay, unless it cannot say what is meant.
A block of version 5 always carries rope_theta, without which transformers takes the family's default base. What is
written is read again, by posenc and, where it is installed, by transformers.
"""

from __future__ import annotations

import copy
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from posenc.arguments import check_flag, one_line, shown
from posenc.hf.config.facts import read_facts
from posenc.hf.config.rope_config import read_rope
from posenc.hf.config.rotation import equivalent
from posenc.hf.findings import NotReadError
from posenc.hf.limits import TOKENS, is_count
from posenc.hf.plan.plan import KeyPath, Plan, Refused, check_method, plan_extension, start_of
from posenc.hf.serving.lines import Line, Serving, serving_lines
from posenc.hf.serving.table import spelling_of
from posenc.hf.sources.config_files import (
    CONFIG,
    ConfigFiles,
    edited,
    read_files,
    unified_diff,
    write_in_place,
    write_out,
)
from posenc.hf.sources.load import Config, Source, dotted
from posenc.published import page_address

_METHODS = {"yarn": "yarn", "linear": "pi", "dynamic": "dynamic_ntk", "llama3": "llama3"}  # as posenc evaluate names
_CUTTING = {  # files with a length at which texts are cut, and its key
    "tokenizer_config.json": "model_max_length", "generation_config.json": "max_length",
    "sentence_bert_config.json": "max_seq_length",
}  # fmt: skip
Changes = dict[str, dict[KeyPath, Any]]  # by file, new values by their paths
_STUDY = (
    "Measured at factor 1.5 alone: YaRN from 8,192 to 12,288 tokens costs SmolLM2-135M +0.0117 nats a token (95 % "
    "interval +0.0098 to +0.0137) at 2,048, and at 12,288 it is no better than cutting the text (-0.0007, -0.0072 to "
    f"+0.0058; 100 documents; {page_address('docs/results/context-study/likelihood/table.md')})."
)
_MOST = 4.0  # times the length before, that a model card documents without training


@dataclass(frozen=True)
class ConfigExtension:
    """An extended config, with its diff, its costs and how to serve it. Print it.

    Attributes:
        model: the source, as it was given.
        length: new context length, in tokens.
        declared: length that the config declares, in tokens; None: it declares none.
        plan: type, factor, original length and source.
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
    plan: Plan
    config: Config
    changes: Mapping[str, Mapping[KeyPath, Any]]
    files: Mapping[str, str]
    diff: str
    costs: tuple[str, ...]
    notes: tuple[str, ...]
    engines: tuple[Line, ...]
    written: str | None = None

    @property
    def already(self) -> bool:
        """Whether the config declares the new length as it is, so that nothing is to be written."""
        return self.plan.method is None

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "model": self.model, "length": self.length, "declared": self.declared, "already": self.already,
            **self.plan.record(),
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
        lines = [f"{self.plan.title}   (no weights loaded)", ""]
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
    """Extend the context length of a model by its config alone, without loading weights.

    Args:
        source: a folder, a config.json, a GGUF file, a model of the Hugging Face Hub (``org/name``) or a mapping.
        length: new context length, in tokens.
        method: "auto": what the model's authors document, else YaRN; for a config that has a scaling its own rope type
            with a larger factor. Or "yarn", "linear", "dynamic", "llama3".
        original_length: training length in tokens, where the config says another.
        out: a new folder to write. From a folder of weights it gets everything: small files copied, large ones linked.
        in_place: change the files of the source; each is kept as NAME.original.

    Raises:
        Refused: a ValueError with the reason and the next step, as `plan_extension`.
        ValueError: for a length that makes no sense, and for what cannot be read.
        OSError: for files that cannot be read or written.

    >>> config = {"model_type": "llama", "head_dim": 64, "rope_theta": 10000.0, "max_position_embeddings": 4096}
    >>> extend_config(config, 16384).config["rope_scaling"]
    {'rope_type': 'yarn', 'factor': 4.0, 'original_max_position_embeddings': 4096}
    """
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
    if misread := misread_by_transformers(extension.config):
        model_type = extension.config.get("model_type")
        reason = f"transformers would read the written config of {model_type} otherwise: {misread}"
        raise Refused("read otherwise", reason, "nothing is written; leave --out out to see the keys")
    if out is not None:
        write_out(files, extension.files, Path(out))
        return replace(extension, written=str(out))
    return replace(extension, written=write_in_place(files, extension.files))


def _extended(files: ConfigFiles, length: int, method: str, original: int | None, folder: str) -> ConfigExtension:
    config = files.config
    facts = read_facts(config)  # raises for whatever cannot be understood, and names the key
    plan = plan_extension(facts, length, method, original)
    text_config, declared = facts.text, facts.declared
    if plan.after is None:
        return ConfigExtension(files.model, length, declared, plan, config, {}, {}, "", (), plan.notes, ())
    keys = {(*text_config.path, *path): new for path, new in plan.keys.items()}
    changed, texts, lengths = lengthened(files, keys, length, declared)
    every_note = [*plan.notes, *_notes(config, plan, files), *lengths]
    changed_config = plan.after.config if files.gguf else json.loads(texts[CONFIG])
    lines = serving_lines(Serving(plan.after, length, folder, gguf=files.gguf))
    return ConfigExtension(
        files.model, length, declared, plan, changed_config, changed, texts, unified_diff(files.texts, texts),
        tuple(_costs(plan, files)),
        tuple(dict.fromkeys(every_note)), lines,
    )  # fmt: skip


def lengthened(
    files: ConfigFiles, keys: Mapping[KeyPath, Any], length: int, declared: int | None
) -> tuple[Changes, dict[str, str], list[str]]:
    """New values of config.json, and lengths in the files next to it at which texts would be cut.

    ``max_length`` of the generation settings ends prompt and answer together; below the declared length it is a limit
    that somebody chose, and stays.

    Args:
        files: of the model.
        keys: new values of config.json.
        length: new context length, in tokens.
        declared: length that the config declares, in tokens; None: it declares none.

    Returns:
        By file, the new values by their paths; the new text of each, in its own layout, none of a GGUF file's config;
        notes on lengths that stay.
    """
    changes: Changes = {CONFIG: dict(keys)}
    notes = []
    for name, key in _CUTTING.items():
        value = files.side(name).get(key)
        if not is_count(value, TOKENS) or value >= length:
            continue
        if name == "generation_config.json" and (declared is None or value < declared):
            notes.append(
                f"{name}: {key} {value:,} is shorter than the model's own length, a choice that stays; it ends texts"
            )
        else:
            changes[name] = {(key,): length}
    texts = {name: edited(files.texts[name], values) for name, values in changes.items() if name in files.texts}
    return changes, texts, notes


def _notes(config: Config, plan: Plan, files: ConfigFiles) -> list[str]:
    notes, text_config = [], plan.facts.text
    recipe, model_type = plan.documented, config.get("model_type")
    if recipe is not None and model_type not in (None, *recipe.model_types):
        notes.append(
            f"the recipe is for {recipe.model}, whose text model {model_type} has; it was not made for this model"
        )
    if config.get("auto_map") and not text_config.known:
        notes.append("auto_map: the repository's own code computes the rotation and may read other keys")
    elif config.get("auto_map"):
        notes.append("auto_map: with trust_remote_code the repository's own code runs, which may read other keys")
    elif not text_config.known:
        notes.append(f"model_type {shown(text_config.model_type)} is unknown to posenc: compare the keys with its code")
    if plan.after is not None and spelling_of(plan.after.text).endswith("v5"):
        notes.append("transformers 4 does not read rope_parameters: posenc convert --spelling both adds its keys")
    limit = files.tokenizer_limit()
    if limit is not None and limit < plan.length:
        notes.append(
            f"tokenizer.json: truncation cuts texts at {limit:,} tokens: set its max_length, or truncation to null"
        )
    if files.of_the_hub:
        name = files.model.partition("@")[0]
        notes.append(
            f"only config files of {name} were downloaded, and --out writes only these; put the weights next to them, "
            f"or: hf download {name} --local-dir WEIGHTS, and posenc extend WEIGHTS links them into a complete folder"
        )
    return notes


def _costs(plan: Plan, files: ConfigFiles) -> list[str]:
    """What a change costs at short lengths, and what it needs; last the command that measures it.

    It compares the model before with the cut text and with what was planned, at each length.
    """
    start = plan.start or plan.length
    model = files.gguf or ("ORIGINAL" if files.folder is None or files.of_the_hub else shlex.quote(str(files.folder)))
    lengths = sorted({plan.original or start, start, plan.length})
    methods = ["as_is", "cut", *([_METHODS[plan.method]] if plan.method in _METHODS else [])]
    trained = "" if start_of(plan.facts) == start else f" --trained-length {start}"
    measure = (
        f"posenc evaluate {model} --tasks niah,perplexity --methods {','.join(methods)} --lengths "
        f"{','.join(map(str, lengths))}{trained}"
    )
    if plan.factor is None:
        return [f"Quality beyond the training length is not known: measure it ({measure})"]
    costs = []
    if plan.method == "yarn":
        costs.append(f"A static factor also changes prompts under {start:,} tokens: serve these with the old config.")
        costs.append(_STUDY)
    elif plan.method != "dynamic":
        costs.append(f"The factor acts at every length, also on prompts under {start:,} tokens.")
    if plan.method == "linear":
        costs.append("Linear scaling slows fast pairs too; it was published with fine-tuning (arXiv 2306.15595).")
    times = plan.factor if plan.method == "yarn" else plan.length / start
    if plan.documented is None and plan.method != "dynamic" and times > _MOST:
        costs.append(f"No model card known here documents more than {_MOST:g} times without training: fine-tune it.")
    nothing = "Nothing is trained here. " if plan.documented is None else ""
    return [*costs, f"{nothing}Measure before use: {measure}"]


def misread_by_transformers(config: Config) -> str:
    """How the installed transformers reads a config otherwise than posenc; "" where both agree.

    "" too where nothing can be asked: without transformers, for a model type that it does not have, for a repository's
    own code (auto_map), and where its class adds sizes that posenc does not read.
    """
    if config.get("auto_map") or find_spec("transformers") is None:
        return ""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    model_type = config.get("model_type")
    if model_type not in CONFIG_MAPPING:
        return ""
    try:
        keys = {key: value for key, value in copy.deepcopy(config).items() if key not in ("model_type", "posenc")}
        converted = CONFIG_MAPPING[model_type](**keys).to_dict()
        theirs, ours = read_rope(converted).rotations, read_rope(config).rotations
    except NotReadError:
        return ""
    except Exception as error:  # config classes raise what they like: KeyError, their own validation errors
        return f"{type(error).__name__}: {one_line(error)[:200]}"
    wrong = [kind for kind in {**ours, **theirs} if not equivalent(ours.get(kind), theirs.get(kind))]
    return f"another rotation in {', '.join(wrong)}" if wrong else ""
