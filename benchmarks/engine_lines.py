"""Whether engines take the lines that posenc prints: each line of each published config through the engine's own code.

    python benchmarks/engine_lines.py vllm      # or sglang, mlx_lm, llama_cpp: appends to results/engine_lines.jsonl
    python benchmarks/engine_lines.py printed   # prints the lines of today, without any engine

The configs are tests/golden/published_configs.jsonl. Of each that rotates, the lines of `posenc serve-flags` (also with
``--exact``), of `posenc extend --config-only` to twice the declared length and of the SERVING.md of that extension.
`posenc recommend --engine` prints no command of an engine but names commands of posenc.

    parsed    the engine's own argument parser takes the words: vLLM's make_arg_parser and EngineArgs, SGLang's
              prepare_server_args, mlx_lm.server's main, llama-server's common_params_parse
    right     the engine's own configuration code reads config.json and the overrides, its model class is built on the
              meta device with few layers (same heads, widths and rope block), and the rotary modules of every kind of
              layers give gain cos and gain sin as posenc and transformers do at positions 0, 1, L/2, L, 2 L and
              4 L - 1, as far as the served length reaches
    wrong     they do not, by how much
    refused   the engine's code raises after parsing
    not built the model class needs compiled kernels or parts that are not here; parsed alone

Float32 loses angle: at position p and frequency w the tolerance is 3e-4 + 4 p w 2^-24 times the gain, the rounding of a
float32 frequency and of its product with the position, doubled.
Environment: as CONTRIBUTING.md says for `posenc engines check`; one interpreter may have all engines.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import datetime
import hashlib
import importlib.metadata
import json
import math
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from posenc.hf import extend_config, read_rope
from posenc.hf.config.text_config import find_text_config, max_length
from posenc.hf.serving.flags import serve_flags

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "tests" / "golden" / "published_configs.jsonl"
RECORD = Path(__file__).with_name("results") / "engine_lines.jsonl"
ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "llama_cpp": "llama.cpp", "mlx_lm": "mlx-lm"}
_OF_FLAGS = {"vllm": "vllm serve DIR", "sglang": "python -m sglang.launch_server --model-path DIR",
             "llama.cpp": "llama-server -m ORIGINAL.gguf"}  # fmt: skip
_ABSENT = ("does not recognize this architecture", "image processor")  # the repository's own code and files
LAYERS, TOLERANCE = 8, 3e-4
Config = dict[str, Any]


class Line(NamedTuple):
    """A line that posenc prints.

    Attributes:
        model: name of the published config.
        command: of posenc that prints the line.
        engine: a key of `ENGINES`.
        text: the line; "" where posenc says that there is none.
        config: that the engine reads.
        meant: the config that says what the line means.
        length: tokens to serve.
    """

    model: str
    command: str
    engine: str
    text: str
    config: Config
    meant: Config
    length: int

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What a record of the line is found by."""
        return self.model, self.command, self.engine, self.text


# ------------------------------------------------------------------------------------------------- what posenc prints


def published() -> list[tuple[str, Config]]:
    """Names and configs of the published models that posenc reads and whose layers rotate."""
    result = []
    for line in CONFIGS.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        try:
            rotations = read_rope(entry["config"]).rotations
        except ValueError:
            continue
        if any(rotation is not None for rotation in rotations.values()):
            result.append((entry["model"], entry["config"]))
    return result


def printed(model: str, config: Config) -> Iterator[Line]:
    """The lines of one config, once each."""
    seen = set()
    for line in (*_of_flags(model, config), *_of_extension(model, config)):
        if line.key not in seen:
            seen.add(line.key)
            yield line


def _of_flags(model: str, config: Config) -> Iterator[Line]:
    read = read_rope(config)
    declared = max_length(read.text_config)
    for command, exact in (("serve-flags", False), ("serve-flags --exact", True)):
        for flags in serve_flags(read, exact=exact):
            if flags.words and declared and not (exact and flags.engine == "llama.cpp"):
                text = f"{_OF_FLAGS[flags.engine]} {shlex.join(flags.words)}"
                yield Line(model, command, flags.engine.replace(".", "_"), text, config, config, declared)


def _of_extension(model: str, config: Config) -> Iterator[Line]:
    declared = max_length(find_text_config(config))
    if not declared:
        return
    length = 2 * declared
    try:
        extension = extend_config(config, length)
    except ValueError:  # the config alone cannot extend it, and posenc says why
        return
    extended = dict(extension.config)
    for line in extension.engines:
        engine = next((key for key, name in ENGINES.items() if line.engine.startswith(name)), "")
        if line.command and engine:
            yield Line(model, "extend --config-only", engine, line.command, extended, extended, length)
    yield from _of_serving_file(model, config, extended, length)


def _of_serving_file(model: str, config: Config, extended: Config, length: int) -> Iterator[Line]:
    """Lines of SERVING.md, whose folder has the keys of both versions."""
    from transformers import AutoConfig

    from posenc.hf.extend.folder import serving_lines, with_both_versions, with_gains

    try:
        version_5 = json.loads(json.dumps(AutoConfig.for_model(**copy.deepcopy(extended)).to_dict()))
        text = serving_lines(version_5, "DIR", length, trained=False)
    except (ValueError, KeyError, AttributeError, TypeError):  # a model that transformers or posenc does not load
        return
    written = with_both_versions(with_gains(version_5))
    commands = {"vllm serve": "vllm", "sglang.launch_server": "sglang", "llama": "llama_cpp", "convert_hf": "llama_cpp",
                "posenc gguf": "llama_cpp", "mlx_lm.server": "mlx_lm"}  # fmt: skip
    for line in text.splitlines():
        if line.startswith("    "):
            engine = next(engine for word, engine in commands.items() if word in line)
            original = "ORIGINAL" in line
            yield Line(model, "SERVING.md", engine, line.strip(), config if original else written, extended, length)


# ------------------------------------------------------------------------------------------------ what engines make of it


class NotBuiltError(Exception):
    """Parts of the model class are not here; the text says which. It says nothing about the rotation."""


class Answer(NamedTuple):
    """What an engine makes of a line.

    Attributes:
        state: as the module says.
        gap: the largest difference from gain cos and gain sin, over its tolerance times 3e-4; None without one.
        text: the engine's words, or the kind of layers that is wrong.
        granted: tokens that the engine's configuration code grants.
    """

    state: str
    gap: float | None = None
    text: str = ""
    granted: int | None = None


class ParserExit(Exception):  # noqa: N818
    """An engine's parser ended the process: it does not take the words."""


@contextlib.contextmanager
def _parsing() -> Iterator[None]:
    try:
        yield
    except SystemExit as error:
        raise ParserExit(f"the parser exits with {error.code}") from error


def few_layers(config: Config) -> Config:
    """The config with its first `LAYERS` layers, which have every kind that the model has."""
    result = copy.deepcopy(config)
    inner = find_text_config(result).config
    key = next((key for key in ("num_hidden_layers", "n_layer", "num_layers") if key in inner), None)
    if key is None:
        return result
    count = inner[key]
    for name, value in list(inner.items()):
        if isinstance(value, list) and len(value) == count > LAYERS:
            inner[name] = value[:LAYERS]
        elif isinstance(value, dict) and value and all(str(layer).isdigit() for layer in value):
            inner[name] = {layer: entry for layer, entry in value.items() if int(layer) < LAYERS}
    inner[key] = min(count, LAYERS)
    path, outer = find_text_config(result).path, result
    for name in path[:-1]:
        outer = outer[name]
    if path:
        outer[path[-1]] = inner
        return result
    return dict(inner)


def words_of(line: Line, folder: str) -> tuple[list[str], dict[str, str]]:
    """Words behind the program's name, with the folder in place of DIR or ORIGINAL, and variables of the line."""
    words = shlex.split(line.text)
    variables = {}
    while re.fullmatch(r"[A-Z_]+=\S+", words[0]):
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    return [folder if word in ("DIR", "ORIGINAL") else word for word in words], variables


def vllm(line: Line, folder: str) -> tuple[Any, int, Callable[[], list[Any]]]:
    """vLLM's ModelConfig, the length that it grants, and a function that builds the rotary modules."""
    from posenc.engines.adapters import vllm as adapter

    adapter._engine()
    from vllm.engine.arg_utils import EngineArgs
    from vllm.entrypoints.common.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    words, variables = words_of(line, folder)
    assert words[:2] == ["vllm", "serve"]
    os.environ.update(variables)
    with _parsing():
        parsed = make_arg_parser(FlexibleArgumentParser()).parse_args([*words[2:], "--skip-tokenizer-init"])
    parsed.model = parsed.model_tag  # as vllm serve does, entrypoints/cli/serve.py
    model_config = EngineArgs.from_cli_args(parsed).create_model_config()
    return model_config.hf_text_config, model_config.max_model_len, lambda: adapter.rotary_modules(model_config)


def sglang(line: Line, folder: str) -> tuple[Any, int, Callable[[], list[Any]]]:
    """SGLang's ModelConfig, the length that it grants, and a function that builds the rotary modules."""
    from posenc.engines.adapters import sglang as adapter

    words, variables = words_of(line, folder)
    assert words[:3] == ["python", "-m", "sglang.launch_server"]
    os.environ.pop("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", None)
    os.environ.update(variables)
    adapter.import_without_gpu()
    from sglang.srt.plugins import load_plugins

    load_plugins()  # as launch_server does, so that posenc's plug-in is there
    adapter.start_alone(folder)
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.server_args import prepare_server_args

    with _parsing():
        arguments = prepare_server_args([*words[3:], "--device", "cpu", "--skip-tokenizer-init"])
    model_config = ModelConfig.from_server_args(arguments)
    name = model_config.hf_config.architectures[0]
    return (
        model_config.hf_text_config,
        model_config.context_len,
        lambda: adapter.rotary_modules(model_config, _sglang_file(name)),
    )


def _sglang_file(architecture: str) -> str:
    import sglang.srt.models

    for path in sorted(Path(sglang.srt.models.__path__[0]).glob("*.py")):
        if re.search(rf"^class {architecture}\b", path.read_text(encoding="utf-8"), re.MULTILINE):
            return path.stem
    raise NotBuiltError(f"SGLang has no model class {architecture}")


def mlx_lm(line: Line, folder: str) -> tuple[Any, int, Callable[[], list[Any]]]:
    """The model class of mlx-lm; its server grants whatever is asked."""
    from mlx_lm import server
    from mlx_lm.utils import _get_classes

    words, _ = words_of(line, folder)
    assert words[0] == "mlx_lm.server"
    taken: dict[str, argparse.Namespace] = {}

    def parse(self: argparse.ArgumentParser, *arguments: Any) -> argparse.Namespace:
        taken["arguments"] = before(self, words[1:])
        raise NotBuiltError("parsed")

    before, argparse.ArgumentParser.parse_args = argparse.ArgumentParser.parse_args, parse  # type: ignore[method-assign]
    try:
        with _parsing(), contextlib.suppress(NotBuiltError):
            server.main()
    finally:
        argparse.ArgumentParser.parse_args = before  # type: ignore[method-assign]
    config = json.loads((Path(taken["arguments"].model) / "config.json").read_text(encoding="utf-8"))

    def build() -> list[Any]:
        try:
            cls, arguments = _get_classes(config)
        except ValueError as error:  # a model type that mlx-lm does not have
            raise NotBuiltError(str(error)) from error
        model = cls(arguments.from_dict(config))
        ropes = [_rope_of(layer) for layer in model.layers]
        return [rope for rope in ropes if rope is not None]

    return None, 0, build


def _rope_of(layer: Any) -> Any:
    """The rotation of a layer of mlx-lm, which is a module or a partial function."""
    attention = getattr(layer, "self_attn", None) or getattr(layer, "attention", None)
    return next((getattr(attention, name) for name in ("rope", "rotary_emb") if hasattr(attention, name)), None)


BUILD = {"vllm": vllm, "sglang": sglang, "mlx_lm": mlx_lm}


# ----------------------------------------------------------------------------------------------------------- judging


def positions(original: int, length: int) -> tuple[int, ...]:
    """0, 1, L/2, L, 2 L, 4 L - 1 and the last, within the served length."""
    wanted = {0, 1, original // 2, original, 2 * original, 4 * original - 1, length - 1}
    return tuple(sorted(position for position in wanted if position < length))


def rotating_layers(config: Config) -> list[str]:
    """The kind of rotation of each layer that rotates, first to last; "all" where all rotate alike."""
    from posenc.hf.config.layer_kinds import layer_kinds
    from posenc.hf.config.rope_block import ALL
    from posenc.hf.config.text_config import layers_without_rope
    from posenc.hf.families.layer_patterns import NO_ATTENTION

    read = read_rope(config)
    text_config = read.text_config
    kinds = layer_kinds(text_config) or [ALL] * int(text_config.get("num_hidden_layers") or LAYERS)
    without = set() if "no_rope_layers" not in text_config else set(layers_without_rope(text_config))
    names = [kind if kind in read.rotations else ALL for kind in kinds]
    return [
        name for layer, (kind, name) in enumerate(zip(kinds, names, strict=True))
        if kind not in NO_ATTENTION and layer not in without and read.rotations.get(name) is not None
    ]  # fmt: skip


def truths(line: Line) -> tuple[dict[str, tuple[list[float], float]], str]:
    """Frequencies and gain by kind of layers at the served length, and why transformers did not confirm them."""
    from posenc.engines.check import frequencies
    from posenc.hf.config.rotation import text_rope

    own = {
        kind: (spectrum.theta.tolist(), float(spectrum.gain))
        for kind, rotation in read_rope(line.meant).rotations.items() if rotation is not None
        for spectrum in (text_rope(rotation).spectrum(line.length),)
    }  # fmt: skip
    fixed = not any(text_rope(r).length_dependent for r in read_rope(line.meant).rotations.values() if r is not None)
    try:
        return frequencies(line.meant, 16 if fixed else line.length), ""
    except Exception as error:  # transformers has no such model, or another opinion: posenc's alone
        return own, f"{type(error).__name__}: {error}"[:160]


def ratio(rows: Any, theta: list[float], gain: float, at: tuple[int, ...]) -> float:
    """The largest difference over its tolerance; infinite for rows of another width."""
    import torch

    from posenc.engines.check import cos_and_sin

    right = cos_and_sin(theta, gain, at)
    actual = torch.tensor(rows, dtype=torch.float64)
    if actual.shape != right.shape:
        return math.inf
    angles = torch.outer(torch.tensor(at, dtype=torch.float64), torch.tensor(theta, dtype=torch.float64))
    allowed = TOLERANCE + 4 * abs(gain) * 2.0**-24 * angles.repeat(1, 2)
    return float(((actual - right).abs() / allowed).max())


def rows(engine: str, rotary: Any, at: tuple[int, ...], config: Config, length: int) -> Any:
    """cos and sin times the gain: the first channel of each pair is one, the second zero, and the engine rotates."""
    from posenc.engines.adapters import Question
    from posenc.engines.adapters._models import rotated_rows

    if engine != "mlx_lm":
        return rotated_rows(rotary, Question(config, at, length))
    import mlx.core as mx

    width = getattr(rotary, "dims", None) or rotary.dim
    adjacent = getattr(rotary, "traditional", False)
    first, second = (
        (slice(0, None, 2), slice(1, None, 2)) if adjacent else (slice(0, width // 2), slice(width // 2, None))
    )
    result = []
    for position in at:
        ones = mx.zeros((1, 1, 1, width))
        ones[..., first] = 1.0
        rotated = rotary(ones, offset=position).reshape(-1).tolist()
        result.append(rotated[first] + rotated[second])
    return result


def answer(line: Line, engine: str) -> Answer:
    """What the engine makes of a line."""
    with tempfile.TemporaryDirectory(prefix="posenc-lines-") as folder:
        small = few_layers(line.config)
        for key in ("quantization_config", "auto_map", "compression_config"):
            small.pop(key, None)
        (Path(folder) / "config.json").write_text(json.dumps({**small, "dtype": "float32", "torch_dtype": "float32"}))
        try:
            _, granted, build = BUILD[engine](line, folder)
        except ParserExit as error:
            return Answer("not parsed", text=str(error))
        except NotBuiltError as error:
            return Answer("not built", text=str(error))
        except Exception as error:  # whatever the engine says of its own configuration
            lacks = any(words in str(error) for words in _ABSENT)
            return Answer("not built" if lacks else "refused", text=_short(error))
        try:
            built = build()
        except Exception as error:  # kernels, parts of images and packages that are not here
            return Answer("not built", text=_short(error), granted=granted)
        try:
            return _judged(line, engine, built, small)._replace(granted=granted or None)
        except Exception as error:  # what its rotary class says
            return Answer("refused", text=_short(error), granted=granted)


def _judged(line: Line, engine: str, built: list[Any], small: Config) -> Answer:
    from posenc.hf.config.rotation import text_rope
    from posenc.hf.explanation.report import trained_length

    layers = rotating_layers(few_layers(line.meant))
    each, rest = divmod(len(built), len(layers))
    read = read_rope(line.meant)
    if not each or (rest and engine == "mlx_lm"):
        return Answer("not built", text=f"the class builds {len(built)} rotary modules for {len(layers)} layers")
    built = built[rest:][::each]  # those of an image part come first; an indexer has one of its own
    frequencies, doubt = truths(line)
    worst, wrong = 0.0, []
    for kind, (theta, gain) in frequencies.items():
        rope = read.rotations[kind]
        original = min(trained_length(read, text_rope(rope)) or line.length, line.length) if rope else line.length
        at = positions(original, line.length)
        rotary = built[layers.index(kind)]
        gap = ratio(rows(engine, rotary, at, line.meant, line.length), theta, gain, at)
        worst = max(worst, gap)
        wrong += [kind] if gap > 1 else []
    state = "wrong" if wrong else "right"
    text = f"layers of kind {', '.join(wrong)}" if wrong and len(frequencies) > 1 else ""
    text += f"; posenc alone: {doubt}" if doubt else ""
    return Answer(state, worst * TOLERANCE if math.isfinite(worst) else None, text.removeprefix("; "))


def _short(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:240]


if __name__ == "__main__":
    only = sys.argv[2:]
    for name, config in published():
        if only and name not in only:
            continue
        for line in printed(name, config):
            if line.engine == sys.argv[1]:
                import time
                t = time.time()
                print(name, line.command, line.text[:60], line.length, answer(line, line.engine), f"{time.time()-t:.1f}", flush=True)
