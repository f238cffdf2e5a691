"""The folder of an extended model, written beside what is there and put in its place in one step.

config.json        the rotation in the spelling of transformers 5, and in that of version 4 beside it; LongRoPE's gain
                   also under the keys that vLLM and SGLang read
extension.json     what was asked for and what was measured
SERVING.md         lines to paste for vLLM, SGLang and llama.cpp
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn
from transformers import AutoConfig

from posenc.arguments import shown
from posenc.frequencies.longrope import LongRoPE
from posenc.hf.config import read_rope
from posenc.hf.extend.book import write_atomically
from posenc.hf.numbers import FILE_BYTES
from posenc.hf.same import turns_alike
from posenc.hf.section import replaced, section_of
from posenc.hf.source import Config
from posenc.hf.whole import writing
from posenc.input_files import read_json, told

RECORD, SERVING = "extension.json", "SERVING.md"


class Work:
    """Where an extension leaves its state until its folder is whole.

    Args:
        out: the folder to be made; None: nothing is left.
        request: plain data, all that decides the outcome.
        overwrite: whether a folder that is there may go.

    Attributes:
        path: of the state, beside ``out``.
        finished: the record of ``out`` where it is the outcome of the same request.

    Raises:
        ValueError: for a folder that is there and is something else.
    """

    def __init__(self, out: str | Path | None, request: Mapping[str, Any], *, overwrite: bool) -> None:
        self.out = None if out is None else Path(out)
        self.path: Path | None = None
        self.finished: dict[str, Any] | None = None
        if self.out is None:
            return
        self.overwrite, asked = overwrite, json.loads(json.dumps(request))
        if self.out.exists():
            found = self._recorded()
            if found is not None and found.get("request") == asked:
                self.finished = found
                shutil.rmtree(self.out.with_name(f"{self.out.name}.work"), ignore_errors=True)  # killed at the end
                return
            if not overwrite and (self.out.is_file() or any(self.out.iterdir())):
                raise ValueError(
                    f"out: {self.out} is there, and is not what this call makes: give another, or overwrite"
                )
        self.path = self.out.with_name(f"{self.out.name}.work")
        self.path.mkdir(parents=True, exist_ok=True)
        said = self.path / "request.json"
        if not said.exists():
            write_atomically(said, json.dumps(asked, indent=1) + "\n")
        before = _object_in(said)
        if before != asked:
            other = next(key for key in {**before, **asked} if before.get(key) != asked.get(key))
            raise ValueError(
                f"out: {self.path} holds the state of another call, with {other} = {shown(before.get(other))}, not "
                f"{shown(asked.get(other))}; it was left as it is: repeat that call, or move it away"
            )

    def file(self, name: str) -> Path | None:
        """A file of the state."""
        return None if self.path is None else self.path / name

    def _recorded(self) -> dict[str, Any] | None:
        record = Path(str(self.out)) / RECORD
        if not record.is_file():
            return None
        return _object_in(record)

    def finish(self, model: nn.Module, tokenizer: Any, record: Mapping[str, Any], serving: str) -> None:
        """Write the folder, put it in its place, and let the state go."""
        assert self.out is not None
        assert self.path is not None
        made = self.path / "folder"
        shutil.rmtree(made, ignore_errors=True)
        saved: Any = model
        with writing(self.out):
            saved.save_pretrained(made)
            if tokenizer is not None:
                tokenizer.save_pretrained(made)
        config = made / "config.json"
        both = spelled_twice(with_gains(json.loads(config.read_text(encoding="utf-8"))))
        config.write_text(json.dumps(both, indent=2) + "\n", encoding="utf-8")
        (made / SERVING).write_text(serving, encoding="utf-8")
        (made / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        if self.out.exists():
            old = self.path / "replaced"
            shutil.rmtree(old, ignore_errors=True)
            self.out.replace(old)
        made.replace(self.out)
        shutil.rmtree(self.path)


def _object_in(path: Path) -> dict[str, Any]:
    """The object that a file in JSON holds; a ValueError that names it for anything else."""
    known = read_json(path, FILE_BYTES)
    if not isinstance(known, dict):
        raise ValueError(f"{told(path)} was not written by posenc extend; it was left as it is: move it away")
    return known


def with_gains(config: Config) -> Config:
    """The same with LongRoPE's gain under the keys that engines read: else they make one of the lengths."""
    section, layers = section_of(config), read_rope({k: v for k, v in config.items() if k != "posenc"}).layers
    block = section.config.get("rope_parameters")
    if not isinstance(block, dict):
        return config

    def told_gain(one: Any, kind: str) -> Any:
        rope = layers.get(kind)
        if not isinstance(one, dict) or one.get("rope_type") != "longrope" or rope is None:
            return one
        (scaling,) = (part for part in rope.modules() if isinstance(part, LongRoPE))
        short, long = scaling.short_gain, scaling.long_gain
        return {
            **one,
            "attention_factor": one.get("attention_factor", short),
            "short_mscale": short,
            "long_mscale": long,
        }

    if "rope_type" in block:
        changed = told_gain(block, next(iter(layers)))
    else:
        changed = {kind: told_gain(one, kind) for kind, one in block.items()}
    return replaced(config, section, {**section.config, "rope_parameters": changed})


def spelled_twice(config: Config) -> Config:
    """A configuration of version 5 with what version 4 reads beside it; as it is where version 4 cannot say it."""
    read = read_rope({key: value for key, value in config.items() if key != "posenc"})
    try:
        older = section_of(read.to_config(version=4)).config
    except ValueError:
        return config
    section = section_of(config)
    added = {key: value for key, value in older.items() if key not in section.config}
    both = replaced(config, section, {**section.config, **added})
    return both if _means_the_same(both, config) else config


def _means_the_same(both: Config, config: Config) -> bool:
    """To the reader here and to the installed transformers, some of whose families take one spelling for the other."""
    try:
        one, other = read_rope(both), read_rope(config)
        theirs = [_theirs(each) for each in (both, config)]
    except ValueError:
        return False
    return theirs[0] == theirs[1] and all(turns_alike(one.layers[kind], other.layers[kind]) for kind in other.layers)


def _theirs(config: Config) -> Any:
    plain = {key: value for key, value in config.items() if key != "posenc"}
    made = AutoConfig.for_model(**json.loads(json.dumps(plain)))
    return section_of(made.to_dict()).config.get("rope_parameters")
