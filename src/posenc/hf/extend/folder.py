"""The folder of an extended model, written beside what is there and put in its place in one step.

config.json        the rotation in the spelling of transformers 5, and in that of version 4 beside it; LongRoPE's gain
                   also under the keys that vLLM and SGLang read
extension.json     what was asked for and what was measured
SERVING.md         lines to paste for vLLM, SGLang and llama.cpp

No line is given that an engine was measured to compute wrong (`posenc.hf.serving.flags`): what does the same
stands in its place, or that nothing does.
Source: vLLM's documentation, features/context_extension (--hf-overrides); SGLang, server_args.py (--context-length,
    --json-model-override-args); llama.cpp, common/arg.cpp, and ggml-org/llama.cpp#17459: its server cuts the context at
    the file's own length, which --override-kv raises.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import nn
from transformers import AutoConfig

from posenc.arguments import shown
from posenc.frequencies.longrope import LongRoPE
from posenc.hf.atomic_write import naming_target, write_atomically
from posenc.hf.config.rope_config import RopeConfig, read_rope
from posenc.hf.config.rotation import equivalent
from posenc.hf.config.text_config import find_text_config, with_text_config
from posenc.hf.limits import FILE_BYTES
from posenc.hf.serving.flags import (
    CONVERTER,
    MLX_4,
    MLX_5,
    SGLANG,
    VLLM,
    WRITER,
    EngineResult,
    Flags,
    engine_errors,
    engine_table,
    serve_flags,
)
from posenc.hf.sources.gguf_metadata import ARCHITECTURES
from posenc.hf.sources.load import Config
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
            content = json.dumps(asked, indent=1) + "\n"
            write_atomically(said, lambda temporary: temporary.write_text(content, encoding="utf-8"))
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
        with naming_target(self.out):
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
    text_config, layers = find_text_config(config), read_rope({k: v for k, v in config.items() if k != "posenc"}).layers
    block = text_config.get("rope_parameters")
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
    return with_text_config(config, text_config, {**text_config.config, "rope_parameters": changed})


def spelled_twice(config: Config) -> Config:
    """A configuration of version 5 with what version 4 reads beside it; as it is where version 4 cannot say it."""
    read = read_rope({key: value for key, value in config.items() if key != "posenc"})
    try:
        older = find_text_config(read.to_config(version=4)).config
    except ValueError:
        return config
    text_config = find_text_config(config)
    added = {key: value for key, value in older.items() if key not in text_config}
    both = with_text_config(config, text_config, {**text_config.config, **added})
    return both if _means_the_same(both, config) else config


def _means_the_same(both: Config, config: Config) -> bool:
    """To the reader here and to the installed transformers, some of whose families take one spelling for the other."""
    try:
        one, other = read_rope(both), read_rope(config)
        theirs = [_theirs(each) for each in (both, config)]
    except ValueError:
        return False
    return theirs[0] == theirs[1] and all(equivalent(one.layers[kind], other.layers[kind]) for kind in other.layers)


def _theirs(config: Config) -> Any:
    plain = {key: value for key, value in config.items() if key != "posenc"}
    made = AutoConfig.for_model(**json.loads(json.dumps(plain)))
    return find_text_config(made.to_dict()).config.get("rope_parameters")


_ALLOWED = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1"


def lines_for(config: Mapping[str, Any], folder: str, length: int, *, trained: bool) -> str:
    """A text in Markdown.

    Args:
        config: of the extended model, in the spelling of version 5.
        folder: where it will lie, as engines are given it.
        length: tokens.
        trained: whether its weights were changed, so that the original ones are of no use.
    """
    plain = {key: value for key, value in config.items() if key != "posenc"}
    written = spelled_twice(with_gains(plain))
    read, blocks = read_rope(written), _blocks(written)
    flags = {one.engine: one for one in serve_flags(read, length=length)}
    found = [f"# Serving {folder} with {length:,} tokens", "", "transformers needs nothing but the folder."]
    for engine, command in (
        (VLLM, f"vllm serve {{}} --max-model-len {length}"),
        (SGLANG, f"{_ALLOWED} python -m sglang.launch_server --model-path {{}} --context-length {length}"),
    ):
        found += ["", *_of_server(engine, command, read, blocks, flags[engine.lower()], folder, length, trained)]
    found += [
        "",
        *_of_llama_cpp(find_text_config(written).model_type, blocks, flags["llama.cpp"], folder, length, trained),
    ]
    found += ["", *_of_mlx(written, blocks, folder, length)]
    return "\n".join(found) + "\n"


def of_distances(folder: str, name: str) -> str:
    """The same for distances that are moved, which no engine and no rope type knows."""
    return (
        f"# Serving {folder}\n\nIts layers attend by {name} of the Python package posenc. Load it with\n\n"
        "    from posenc.hf.attach import load\n\n    model = load(FOLDER)\n\nfrom_pretrained refuses it. vLLM, SGLang "
        "and llama.cpp have nothing that does the same; a model for them needs a method of the frequencies.\n"
    )


def _blocks(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Of every kind of layers that rotates."""
    block = find_text_config(dict(config)).config["rope_parameters"]
    return [block] if "rope_type" in block else [one for one in block.values() if one]


def _errors(engine: str, blocks: list[Mapping[str, Any]], length: int) -> list[EngineResult]:
    """What the engine computes wrong of these blocks."""
    return [error for block in blocks for error in engine_errors(engine, dict(block), length)]


def _version(engine: str) -> str:
    return f"{engine.partition(',')[0]} {engine_table()['engines'][engine]['version']}"


def _reasons(errors: list[EngineResult]) -> str:
    return "; ".join(dict.fromkeys(error.text for error in errors))


def _of_server(
    engine: str, command: str, read: RopeConfig, blocks: list[Mapping[str, Any]], flags: Flags, folder: str,
    length: int, trained: bool,
) -> Iterator[str]:  # fmt: skip
    """vLLM or SGLang: from the folder, from the original weights, or through posenc's plug-in."""
    name, mistakes = shlex.quote(folder), _errors(engine, blocks, length)
    yield f"{_version(engine)}:"
    yield ""
    if not mistakes:
        yield f"    {command.format(name)}"
    else:
        (exact,) = (one for one in serve_flags(read, exact=True, length=length) if one.engine == engine.lower())
        yield f"The folder alone is not served right: {_reasons(mistakes)}."
        if flags.words:
            yield f"\n    {command.format(name)} {shlex.join(flags.words[:2])}"
        if exact.words:
            yield f"\nWith posenc installed beside it:\n\n    {command.format(name)} {shlex.join(exact.words[:2])}"
        elif not flags.words:
            yield f"\nNothing else is known that does the same: {exact.reason}."
    if flags.words and not trained:
        yield "\nThe weights are the original ones. With those, ORIGINAL their folder, the same is:"
        yield f"\n    {command.format('ORIGINAL')} {shlex.join(flags.words[:2])}"
    if flags.note and (not mistakes or flags.words):
        yield f"\nBeware: {flags.note}."


def _of_llama_cpp(
    model_type: str, blocks: list[Mapping[str, Any]], flags: Flags, folder: str, length: int, trained: bool
) -> Iterator[str]:
    """Converted where the converter writes the rotation, else written by posenc; flags for the original file."""
    yield f"llama.cpp ({engine_table()['engines'][CONVERTER]['version']}, where a Llama was measured):"
    yield ""
    convert = f"    python convert_hf_to_gguf.py {shlex.quote(folder)} --outfile"
    lost, unsaid = _errors(CONVERTER, blocks, length), _errors(WRITER, blocks, length)
    if not lost:
        yield f"{convert} extended.gguf"
        yield f"    llama-server -m extended.gguf -c {length}"
    elif not unsaid:
        yield f"Its converter drops this rotation ({_reasons(lost)}), and posenc writes it:"
        yield f"\n{convert} plain.gguf"
        yield f"    posenc gguf plain.gguf extended.gguf --rope {shlex.quote(folder)}"
        yield f"    llama-server -m extended.gguf -c {length}"
    else:
        yield f"No file is known to say this rotation: {_reasons(unsaid)}."
    if trained or not flags.words:
        return
    names = [name for name, (theirs, _) in ARCHITECTURES.items() if theirs == model_type]
    raised = f" --override-kv {names[0]}.context_length=int:{length}" if names else ""
    yield f"\nOr with the original file:\n\n    llama-server -m ORIGINAL.gguf {shlex.join(flags.words)}{raised}"


def _of_mlx(config: Mapping[str, Any], blocks: list[Mapping[str, Any]], folder: str, length: int) -> Iterator[str]:
    """mlx-lm, which reads version 4's keys in most families and version 5's in some."""
    engine = MLX_4 if find_text_config(dict(config)).config.get("rope_scaling") else MLX_5
    mistakes = _errors(engine, blocks, length)
    yield f"{_version(engine)}:"
    yield ""
    if mistakes:
        yield f"Not from this folder: {_reasons(mistakes)}."
    else:
        yield f"    mlx_lm.server --model {shlex.quote(folder)}"
