"""The folder of an extended model, and the state of an unfinished extension next to it.

config.json        the rotation under the keys of transformers 5 and also of version 4; LongRoPE's gain also under the
                   keys that vLLM and SGLang read
extension.json     the request and the measurements
SERVING.md         commands for vLLM, SGLang, llama.cpp and mlx-lm

An extension takes hours and may be killed at any moment. Its state lives in ``OUT.work`` until the folder is complete
there; then two renames put it in place, and the state is removed. So a killed run leaves nothing half-written at OUT,
and the same call resumes; a call with another request refuses the state of the first.

No command is given that an engine was measured to compute wrong (`posenc.hf.serving.engines`): an alternative is given
instead, or the statement that there is none.
Source: vLLM's documentation, features/context_extension (--hf-overrides); SGLang, server_args.py (--context-length,
    --json-model-override-args); llama.cpp, common/arg.cpp, and ggml-org/llama.cpp#17459: its server cuts the context at
    the file's own length, which --override-kv raises.
"""

from __future__ import annotations

import json
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from torch import nn
from transformers import AutoConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from posenc.arguments import one_line, shown
from posenc.evaluation.log import locked
from posenc.frequencies.modules import LongRoPE
from posenc.hf.atomic_write import naming_target, write_atomically
from posenc.hf.config.rope_config import read_rope
from posenc.hf.config.rotation import equivalent
from posenc.hf.config.text_config import find_text_config, with_text_config
from posenc.hf.config.version_keys import changes_to
from posenc.hf.extend.engine_lines import context_words, engine_lines
from posenc.hf.extend.weight_files import link_files, weight_files
from posenc.hf.limits import FILE_BYTES
from posenc.hf.serving.flags import serve_flags
from posenc.hf.sources.load import Config
from posenc.input_files import path_text, read_json

RECORD, SERVING = "extension.json", "SERVING.md"


class OutputFolder:
    """The folder that an extension writes, and the folder of its state.

    Args:
        path: of the folder; None: nothing is written.
        request: plain data, everything that decides the outcome.
        overwrite: whether an existing folder may be replaced.

    Attributes:
        state: the folder of the state, beside ``path``.
        finished: the record in ``path`` where that is the outcome of the same request.

    Raises:
        ValueError: for a folder that exists and is something else, and for a state that another process works on.
    """

    def __init__(self, path: str | Path | None, request: Mapping[str, Any], *, overwrite: bool) -> None:
        self.path = None if path is None else Path(path)
        self.state: Path | None = None
        self.finished: dict[str, Any] | None = None
        self._lock: TextIO | None = None
        if self.path is None:
            return
        canonical_request, state = json.loads(json.dumps(request)), self.path.with_name(f"{self.path.name}.work")
        if self.path.exists():
            record = _read_object(self.path / RECORD) if (self.path / RECORD).is_file() else {}
            if record.get("request") == canonical_request:
                self.finished = record
                shutil.rmtree(state, ignore_errors=True)  # left where the process was killed at the very end
                return
            if not overwrite and (self.path.is_file() or any(self.path.iterdir())):
                raise ValueError(
                    f"out: {self.path} exists, and is not the result of this call: give another, or overwrite"
                )
        self.state = state
        state.mkdir(parents=True, exist_ok=True)
        request_file = state / "request.json"
        if not request_file.exists():
            content = json.dumps(canonical_request, indent=1) + "\n"
            write_atomically(request_file, lambda temporary: temporary.write_text(content, encoding="utf-8"))
        before = _read_object(request_file)
        if before != canonical_request:
            key = next(key for key in {**before, **canonical_request} if before.get(key) != canonical_request.get(key))
            raise ValueError(
                f"out: {state} holds the state of another call, with {key} = {shown(before.get(key))}, not "
                f"{shown(canonical_request.get(key))}; it was left as it is: repeat that call, or move it away"
            )
        self._lock = locked(request_file)  # two processes would train and search over each other's results

    def close(self) -> None:
        """Let another process work on the state."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def file(self, name: str) -> Path | None:
        """The path of a file of the state; None where nothing is written."""
        return None if self.state is None else self.state / name

    def check_writable(self, model: Any, source: Path | None) -> str:
        """How many bytes the folder needs on its disk, in words.

        Args:
            model: whose weights are written.
            source: the folder whose weights are linked instead; None: they are written.

        Raises:
            ValueError: where the disk has less free, and for generation settings that transformers refuses to save.
        """
        assert self.state is not None
        if source is not None:
            return f"no space for weights, which are linked to the files of {source}"
        settings = getattr(model, "generation_config", None)
        try:
            if settings is not None:  # which of them transformers refuses to save differs between its versions
                with tempfile.TemporaryDirectory(dir=self.state) as trial:
                    settings.save_pretrained(trial)
        except ValueError as error:
            raise ValueError(
                f"model: transformers cannot save its generation settings: {one_line(error)[:300]}; correct "
                "generation_config.json or model.generation_config"
            ) from error
        weights = {**dict(model.named_parameters()), **dict(model.named_buffers())}.values()
        needed, free = sum(weight.numel() * weight.element_size() for weight in weights), _free_space(self.state)
        if needed > free:
            raise ValueError(
                f"out: the folder needs {needed:,} bytes for weights, and the disk of {self.path} has {free:,} free: "
                "give a folder on another disk"
            )
        return f"{needed / 1e9:.3g} GB for weights, of {free / 1e9:.3g} GB that are free"

    def finish(
        self, model: nn.Module, tokenizer: Any, record: Mapping[str, Any], serving: str, *, length: int,
        original_length: int, source: Path | None,
    ) -> str:  # fmt: skip
        """Write the folder in the state, move it to its place, and remove the state.

        Args:
            model: the extended model.
            tokenizer: of the model; None: it has none.
            record: the request and the measurements.
            serving: SERVING.md.
            length, original_length: the new context length and the training length, in tokens.
            source: the folder whose weights are linked instead of written; None: they are written.

        Returns:
            How the weights were linked; "" where they were written.

        Raises:
            OSError: where the folder cannot be written, as on a full disk; nothing of it is left, and the state stays.
        """
        assert self.path is not None
        assert self.state is not None
        new = self.state / "folder"
        shutil.rmtree(new, ignore_errors=True)
        try:
            with naming_target(
                self.path, outcome=f"the measurements are saved in {self.state}; the same call continues"
            ):
                weights = _save(new, model, source)
                if tokenizer is not None:
                    tokenizer.save_pretrained(new)
                _raise_limits(new, length, original_length)
                config_file = new / "config.json"
                config = with_both_versions(with_gains(json.loads(config_file.read_text(encoding="utf-8"))))
                _write(config_file, config, indent=2)
                (new / SERVING).write_text(serving, encoding="utf-8")
                _write(new / RECORD, {**record, "weights": weights}, indent=1)
                self._move_into_place(new)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        self.close()  # Windows removes no open file
        shutil.rmtree(self.state)
        return weights

    def _move_into_place(self, new: Path) -> None:
        assert self.path is not None
        assert self.state is not None
        if not self.path.exists():
            new.replace(self.path)
            return
        old = self.state / "replaced"
        shutil.rmtree(old, ignore_errors=True)
        self.path.replace(old)
        try:
            new.replace(self.path)
        except BaseException:
            old.replace(self.path)
            raise


def _free_space(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _write(path: Path, content: Mapping[str, Any], *, indent: int) -> None:
    path.write_text(json.dumps(content, indent=indent) + "\n", encoding="utf-8")


def _save(new: Path, model: Any, source: Path | None) -> str:
    """Save a model, with links to the weights of ``source`` where one is given; returns how they were linked."""
    if source is None:
        model.save_pretrained(new)
        return ""
    model.config.save_pretrained(new)
    if (source / "generation_config.json").exists():
        # As it is: transformers opens files with contradictions, such as a temperature without sampling, and refuses to
        # save them.
        shutil.copy2(source / "generation_config.json", new)
    files = weight_files(source)
    kind = link_files(files, new)
    written, original = _read_object(new / "config.json"), _read_object(source / "config.json")
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
    """Raise lengths in the other files of the folder at which texts would be cut below the new context length.

    ``model_max_length`` and ``truncation`` cut what the tokenizer reads. ``max_length`` of the generation settings ends
    prompt and answer together; below the training length it is a limit that somebody chose, and stays.
    """
    for name, path, least in (
        ("tokenizer_config.json", ("model_max_length",), 0),
        ("tokenizer.json", ("truncation", "max_length"), 0),
        ("generation_config.json", ("max_length",), original_length),
    ):
        file = folder / name
        if not file.exists():
            continue
        content = json.loads(file.read_text(encoding="utf-8"))
        block = content
        for key in path[:-1]:
            block = block.get(key) or {}
        limit = block.get(path[-1])
        if isinstance(limit, int) and not isinstance(limit, bool) and least <= limit < length:
            block[path[-1]] = length
            file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; a ValueError that names the file for anything else."""
    content = read_json(path, FILE_BYTES)
    if not isinstance(content, dict):
        raise ValueError(f"{path_text(path)} was not written by posenc extend; it was left as it is: move it away")
    return content


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
    """A configuration of version 5 with version 4's keys added; unchanged where version 4 cannot express it."""
    text_config = find_text_config(config)
    try:
        added = changes_to("both", text_config)
    except ValueError:
        return config
    both = with_text_config(config, text_config, {**text_config.config, **added})
    return both if _means_the_same(both, config) else config


def _means_the_same(both: Config, config: Config) -> bool:
    """Whether posenc and the installed transformers read both alike: some families misread the other version's keys."""
    try:
        rotations = [read_rope(each).layers for each in (both, config)]
        alike = all(equivalent(rotations[0][kind], rotations[1][kind]) for kind in rotations[1])
        if not alike or find_text_config(config).model_type not in CONFIG_MAPPING:  # which only posenc can read then
            return alike
        transformers_blocks = [_as_transformers_reads(each) for each in (both, config)]
    except ValueError:
        return False
    return bool(transformers_blocks[0] == transformers_blocks[1])


def _as_transformers_reads(config: Config) -> Any:
    without_posenc = {key: value for key, value in config.items() if key != "posenc"}
    parsed = AutoConfig.for_model(**json.loads(json.dumps(without_posenc)))
    return find_text_config(parsed.to_dict()).config.get("rope_parameters")


def serving_lines(config: Config, folder: str, length: int, *, trained: bool) -> str:
    """SERVING.md: the lines of `engine_lines`, and flags for the original weights, in Markdown.

    Args:
        config: of the extended model, with version 5's keys.
        folder: its path, as engines are given it.
        length: tokens.
        trained: whether its weights were changed, so that the original ones are of no use.
    """
    written = with_both_versions(with_gains({key: value for key, value in config.items() if key != "posenc"}))
    lines = [f"# Serving {folder} with {length:,} tokens"]
    for line in engine_lines(written, length, folder):
        commands = [f"    {command}" for command in line.command.split("; ") if command]
        lines += ["", f"{line.engine}:", "", *commands, *([""] if commands else []), _sentence(line.text)]
    if not trained:
        lines += ["", "The weights are those of the original model, ORIGINAL, so that flags say the same:"]
        read = read_rope(written)
        for flags in serve_flags(read, length=length):
            raised = context_words(read.model_type, length) if flags.engine == "llama.cpp" else []
            command = f"{_OF_ORIGINAL[flags.engine]} {shlex.join([*flags.words, *raised])}"
            lines += ["", f"    {command}" if flags.words else f"{flags.engine}: {flags.reason}."]
    return "\n".join(lines) + "\n"


_OF_ORIGINAL = {
    "vllm": "vllm serve ORIGINAL", "sglang": "python -m sglang.launch_server --model-path ORIGINAL",
    "llama.cpp": "llama-server -m ORIGINAL.gguf",
}  # fmt: skip


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def serving_lines_of_remapping(folder: str, name: str) -> str:
    """SERVING.md for remapped distances, which no engine and no rope type has."""
    return (
        f"# Serving {folder}\n\nIts layers attend by {name} of the Python package posenc. Load it with\n\n"
        "    from posenc.hf.attach import load\n\n    model = load(FOLDER)\n\nfrom_pretrained refuses it. vLLM, SGLang "
        "and llama.cpp have nothing that does the same; a model for them needs a method of the frequencies.\n"
    )
