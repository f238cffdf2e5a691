"""What engines must be told to rotate as an extended model does, as lines to paste.

No line is given that an engine was measured to compute wrong (`posenc.hf.engine_table`): what does the same stands in
its place, or that nothing does.
Source: vLLM's documentation, features/context_extension (--hf-overrides); SGLang, server_args.py (--context-length,
    --json-model-override-args); llama.cpp, common/arg.cpp, and ggml-org/llama.cpp#17459: its server cuts the context at
    the file's own length, which --override-kv raises.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from posenc.hf.config import RopeConfig, read_rope
from posenc.hf.engine_table import CONVERTER, MLX_4, MLX_5, SGLANG, VLLM, WRITER, Cell, table, wrong
from posenc.hf.extend.folder import spelled_twice, with_gains
from posenc.hf.flags import Flags, serve_flags
from posenc.hf.formats.architectures import ARCHITECTURES
from posenc.hf.section import section_of

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
    found += ["", *_of_llama_cpp(section_of(written).model_type, blocks, flags["llama.cpp"], folder, length, trained)]
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
    """Of every kind of layers that turns."""
    block = section_of(dict(config)).config["rope_parameters"]
    return [block] if "rope_type" in block else [one for one in block.values() if one]


def _found(engine: str, blocks: list[Mapping[str, Any]], length: int) -> list[Cell]:
    """What the engine computes wrong of these blocks."""
    return [cell for block in blocks for cell in wrong(engine, dict(block), length)]


def _version(engine: str) -> str:
    return f"{engine.partition(',')[0]} {table()['engines'][engine]['version']}"


def _why(cells: list[Cell]) -> str:
    return "; ".join(dict.fromkeys(cell.text for cell in cells))


def _of_server(
    engine: str, command: str, read: RopeConfig, blocks: list[Mapping[str, Any]], flags: Flags, folder: str,
    length: int, trained: bool,
) -> Iterator[str]:  # fmt: skip
    """vLLM or SGLang: from the folder, from the original weights, or through posenc's plug-in."""
    name, mistakes = shlex.quote(folder), _found(engine, blocks, length)
    yield f"{_version(engine)}:"
    yield ""
    if not mistakes:
        yield f"    {command.format(name)}"
    else:
        (exact,) = (one for one in serve_flags(read, exact=True, length=length) if one.engine == engine.lower())
        yield f"The folder alone is not served right: {_why(mistakes)}."
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
    yield f"llama.cpp ({table()['engines'][CONVERTER]['version']}, where a Llama was measured):"
    yield ""
    convert = f"    python convert_hf_to_gguf.py {shlex.quote(folder)} --outfile"
    lost, unsaid = _found(CONVERTER, blocks, length), _found(WRITER, blocks, length)
    if not lost:
        yield f"{convert} extended.gguf"
        yield f"    llama-server -m extended.gguf -c {length}"
    elif not unsaid:
        yield f"Its converter drops this rotation ({_why(lost)}), and posenc writes it:"
        yield f"\n{convert} plain.gguf"
        yield f"    posenc gguf plain.gguf extended.gguf --rope {shlex.quote(folder)}"
        yield f"    llama-server -m extended.gguf -c {length}"
    else:
        yield f"No file is known to say this rotation: {_why(unsaid)}."
    if trained or not flags.words:
        return
    names = [name for name, (theirs, _) in ARCHITECTURES.items() if theirs == model_type]
    raised = f" --override-kv {names[0]}.context_length=int:{length}" if names else ""
    yield f"\nOr with the original file:\n\n    llama-server -m ORIGINAL.gguf {shlex.join(flags.words)}{raised}"


def _of_mlx(config: Mapping[str, Any], blocks: list[Mapping[str, Any]], folder: str, length: int) -> Iterator[str]:
    """mlx-lm, which reads version 4's keys in most families and version 5's in some."""
    engine = MLX_4 if section_of(dict(config)).config.get("rope_scaling") else MLX_5
    mistakes = _found(engine, blocks, length)
    yield f"{_version(engine)}:"
    yield ""
    if mistakes:
        yield f"Not from this folder: {_why(mistakes)}."
    else:
        yield f"    mlx_lm.server --model {shlex.quote(folder)}"
