"""Run the engine commands that posenc prints for published configs through the engines' own code.

    python -m benchmarks.engines.lines vllm      # or sglang, mlx_lm, llama_cpp: appends to results/engine_lines.jsonl
    python -m benchmarks.engines.lines printed   # prints the current lines that are not in the record

The configs are tests/golden/published_configs.jsonl. For each that rotates, the lines come from `posenc serve` (as it
is, by flags that say the same rotation, and with ``--exact``) and from `posenc extend --config-only` to twice the
declared length; SERVING.md prints the lines of both, and `posenc recommend` those of the extension. The record's lines
under "serve-flags" are flags that say the rotation of a config, those under "SERVING.md" had words of their own.

    parsed    the engine's own argument parser accepts the arguments: vLLM's make_arg_parser and EngineArgs, SGLang's
              prepare_server_args, mlx_lm.server's main, llama-server's common_params_parse
    right     the engine's own configuration code reads config.json and the overrides, its model class is built on the
              meta device with few layers (same heads, widths and rope block), and the rotary modules of every kind of
              layers give gain cos and gain sin as posenc and transformers do at positions 0, 1, L/2, L, 2 L and
              4 L - 1, as far as the served length reaches
    wrong     they do not, by how much
    refused   the engine's code raises after parsing
    not built the model class needs compiled kernels or parts that are not installed; parsed only

Float32 loses angle: at position p and frequency w the tolerance is 3e-4 + 16 p w 2^-24 times the gain: four
roundings of float32 in the frequency and four in its product with the position, doubled.
Environment: as CONTRIBUTING.md says for `python -m benchmarks.engines`; one interpreter may have all engines.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import datetime
import importlib.metadata
import json
import math
import os
import platform
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from posenc.hf import extend_config, read_rope
from posenc.hf.config.rope_keys import PRESERVED
from posenc.hf.config.text_config import find_text_config, layers_without_rope, max_length
from posenc.hf.serving.lines import Serving, serving_lines

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "tests" / "golden" / "published_configs.jsonl"
RECORD = Path(__file__).parents[1] / "results" / "engine_lines.jsonl"
ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "llama_cpp": "llama.cpp", "mlx_lm": "mlx-lm"}
_ABSENT = ("does not recognize this architecture", "image processor")  # the repository's own code and files
_COUNTS = ("num_hidden_layers", "n_layer", "num_layers")
TOLERANCE = 3e-4
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
        return self.model, self.command, self.engine, meaning(self.text)


def meaning(text: str) -> str:
    """The words of a line without their order, and of an override what the rotary class reads."""
    words = shlex.split(text)
    return json.dumps(sorted(json.dumps(_read(json.loads(word)), sort_keys=True) if word[0] == "{" else word
                             for word in words if word))  # fmt: skip


def _read(value: Any) -> Any:
    """A block without the keys that say something else than the rotation, which the record does not judge."""
    if isinstance(value, dict):
        return {key: _read(inner) for key, inner in value.items() if key not in PRESERVED or key == "mrope_interleaved"}
    return float(value) if type(value) is int else value


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
    """Lines for the model as it is, and by the flags that say its own rotation."""
    read = read_rope(config)
    declared = max_length(read.text_config)
    ways = {"serve": False, "serve, by flags": True, "serve --exact": True}
    for command, overridden in ways.items():
        serving = Serving(read.facts, declared, overridden=overridden, exact=command.endswith("exact"))
        for line in serving_lines(serving) if declared else ():
            engine = line.engine.replace(".", "_").replace("-", "_")
            if line.command and engine in ENGINES and not (serving.exact and engine == "llama_cpp"):
                yield Line(model, command, engine, line.command, config, config, declared)


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
        engine = line.engine.replace(".", "_").replace("-", "_")
        if line.command and engine in ENGINES:
            yield Line(model, "extend --config-only", engine, line.command, extended, extended, length)


# ----------------------------------------------------------------------------------------------- what engines answer


class NotBuiltError(Exception):
    """Parts of the model class are not here; the text says which. It says nothing about the rotation."""


class Answer(NamedTuple):
    """The result of one printed line in an engine.

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
    """The config with its first layers only: at least two, and as many as have every kind of layers."""
    from posenc.hf.config.layers import layer_kinds

    result = copy.deepcopy(config)
    text_config = find_text_config(result)
    inner = dict(text_config)
    key = next((key for key in _COUNTS if key in inner), None)
    if key is None:
        return result
    kinds = layer_kinds(find_text_config(config))
    unrotated = set(layers_without_rope(find_text_config(config)))
    kinds = [f"{kind} {layer in unrotated}" for layer, kind in enumerate(kinds)]
    count, num_layers = inner[key], max([2, *(kinds.index(kind) + 1 for kind in kinds)])
    for name, value in inner.items():
        if isinstance(value, list) and len(value) == count > num_layers:
            inner[name] = value[:num_layers]
        elif isinstance(value, dict) and value and all(str(layer).isdigit() for layer in value):
            inner[name] = {layer: entry for layer, entry in value.items() if int(layer) < num_layers}
    inner[key] = min(count, num_layers)
    outer = result
    for name in text_config.path[:-1]:
        outer = outer[name]
    if not text_config.path:
        return inner
    outer[text_config.path[-1]] = inner
    return result


def words_of(line: Line, folder: str) -> tuple[list[str], dict[str, str]]:
    """Words behind the program's name, with the folder in place of DIR or ORIGINAL, and variables of the line."""
    words = shlex.split(line.text)
    variables = {}
    while re.fullmatch(r"[A-Z_]+=\S+", words[0]):
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    return [folder if word in ("DIR", "ORIGINAL") else word for word in words], variables


def vllm(line: Line, folder: str) -> tuple[int | None, Callable[[], list[Any]]]:
    """vLLM's ModelConfig, the length that it grants, and a function that builds the rotary modules."""
    from benchmarks.engines.adapters import vllm as adapter

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
    return model_config.max_model_len, lambda: adapter.rotary_modules(model_config)


def sglang(line: Line, folder: str) -> tuple[int | None, Callable[[], list[Any]]]:
    """SGLang's ModelConfig, the length that it grants, and a function that builds the rotary modules."""
    from benchmarks.engines.adapters import sglang as adapter

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
    return model_config.context_len, lambda: adapter.rotary_modules(model_config, _sglang_file(name))


def _sglang_file(architecture: str) -> str:
    import sglang.srt.models

    for path in sorted(Path(sglang.srt.models.__path__[0]).glob("*.py")):
        if re.search(rf"^class {architecture}\b", path.read_text(encoding="utf-8"), re.MULTILINE):
            return path.stem
    raise NotBuiltError(f"SGLang has no model class {architecture}")


def mlx_lm(line: Line, folder: str) -> tuple[int | None, Callable[[], list[Any]]]:
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

    return None, build


def _rope_of(layer: Any) -> Any:
    """The rotation of a layer of mlx-lm, which is a module or a partial function."""
    attention = getattr(layer, "self_attn", None) or getattr(layer, "attention", None)
    return next((getattr(attention, name) for name in ("rope", "rotary_emb") if hasattr(attention, name)), None)


def llama_cpp(line: Line) -> Answer:
    """Whether llama-server's parser, the converter's and posenc's own take the commands of a line."""
    from benchmarks.engines.adapters.llama_cpp_flags import context_parameters

    from posenc_cli import parser_of
    from posenc_cli.parsing import UsageError

    granted = None
    for command in line.text.split("; "):
        words = shlex.split(command)
        try:
            with _parsing():
                if words[0] == "llama-server":
                    parsed = context_parameters(words[1:])
                    granted = parsed["n_ctx"] or None
                    _check_server(read_rope(line.meant), words, parsed)
                elif words[0] == "posenc":
                    parser_of(words[1]).parse_args(words[2:])
                else:
                    assert words[:2] == ["python", "convert_hf_to_gguf.py"]
                    _converter_parser()(words[2:])
        except (ParserExit, RuntimeError, UsageError) as error:
            return Answer("not parsed", text=_short(error))
    return Answer("parsed", granted=granted)


def _check_server(read: Any, words: list[str], parsed: dict[str, Any]) -> None:
    """Raise a RuntimeError where the parameters of the context are not what the rotation says."""
    from posenc.hf.serving.engines.llama_cpp import flags_of

    if "--rope-freq-base" not in words:
        return
    _, block = flags_of(Serving(read.facts, None))
    kinds = {"default": 0, "linear": 1, "yarn": 2}
    expected = {"rope_freq_base": block["rope_theta"], "rope_scaling_type": kinds[block["rope_type"]]}
    if block["rope_type"] != "default":
        expected["rope_freq_scale"] = 1 / block["factor"]
    if block["rope_type"] == "yarn":
        expected["yarn_orig_ctx"] = block["original_max_position_embeddings"]
    for name, value in expected.items():
        if not math.isclose(parsed[name], value, rel_tol=1e-6):
            raise RuntimeError(f"{name} is {parsed[name]:g} where the rotation says {value:g}")


def _converter_parser() -> Callable[[list[str]], Any]:
    """The parser of convert_hf_to_gguf.py, which reads sys.argv."""
    vendor = os.environ["VENDOR"]
    sys.path[:0] = [path for path in (vendor, f"{vendor}/gguf-py") if path not in sys.path]
    import convert_hf_to_gguf

    def parse(words: list[str]) -> Any:
        before, sys.argv = sys.argv, ["convert_hf_to_gguf.py", *words]
        try:
            return convert_hf_to_gguf.parse_args()
        finally:
            sys.argv = before

    return parse


BUILD = {"vllm": vllm, "sglang": sglang, "mlx_lm": mlx_lm}


# ----------------------------------------------------------------------------------------------------------- judging


def positions(original: int, length: int) -> tuple[int, ...]:
    """0, 1, L/2, L, 2 L, 4 L - 1 and the last, within the served length."""
    candidates = {0, 1, original // 2, original, 2 * original, 4 * original - 1, length - 1}
    return tuple(sorted(position for position in candidates if position < length))


def rotations_of_layers(config: Config) -> list[str | None]:
    """The kind of rotation of each layer, first to last; "all" where all rotate alike, None where one does not."""
    from posenc.hf.config.layers import layer_kinds
    from posenc.hf.config.rope_keys import ALL
    from posenc.hf.families.family import NO_ATTENTION

    read = read_rope(config)
    count = next(int(value) for key in _COUNTS if (value := read.text_config.get(key)) is not None)
    kinds = layer_kinds(read.text_config) or [ALL] * count
    without = set(layers_without_rope(read.text_config))
    names = [kind if kind in read.rotations else ALL for kind in kinds]
    return [
        name if kind not in NO_ATTENTION and layer not in without and read.rotations.get(name) is not None else None
        for layer, (kind, name) in enumerate(zip(kinds, names, strict=True))
    ]


def truths(line: Line) -> tuple[dict[str, tuple[list[float], float]], str]:
    """Frequencies and gain by kind of layers at the served length, and why transformers did not confirm them."""
    from benchmarks.engines.check import frequencies

    from posenc.hf.config.rotation import text_rope

    posenc_values = {
        kind: (spectrum.theta.tolist(), float(spectrum.gain))
        for kind, rotation in read_rope(line.meant).rotations.items() if rotation is not None
        for spectrum in (text_rope(rotation).spectrum(line.length),)
    }  # fmt: skip
    fixed = not any(text_rope(r).length_dependent for r in read_rope(line.meant).rotations.values() if r is not None)
    try:
        return frequencies(line.meant, 16 if fixed else line.length), ""
    except Exception as error:  # transformers has no such model, or another opinion: posenc's alone
        return posenc_values, f"{type(error).__name__}: {error}"[:160]


def ratio(rows: Any, theta: list[float], gain: float, at: tuple[int, ...]) -> float:
    """The largest difference over its tolerance; infinite for rows of another width."""
    import torch
    from benchmarks.engines.check import cos_and_sin

    right = cos_and_sin(theta, gain, at)
    actual = torch.tensor(rows, dtype=torch.float64)
    if actual.shape != right.shape:
        return math.inf
    angles = torch.outer(torch.tensor(at, dtype=torch.float64), torch.tensor(theta, dtype=torch.float64))
    allowed = TOLERANCE + 16 * abs(gain) * 2.0**-24 * angles.repeat(1, 2)
    return float(((actual - right).abs() / allowed).max())


def rows(engine: str, rotary: Any, at: tuple[int, ...], config: Config, length: int) -> Any:
    """cos and sin times the gain: the first channel of each pair is one, the second zero, and the engine rotates."""
    from benchmarks.engines.adapters import Question
    from benchmarks.engines.adapters._models import rotated_rows

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


def answer(line: Line) -> Answer:
    """The engine's result for a line: with few layers, or with all where its configuration refuses few."""
    first = _answer(line, few_layers(line.config))
    return first if first.state not in ("refused", "not built") else _answer(line, copy.deepcopy(line.config))


def _answer(line: Line, config: Config) -> Answer:
    with tempfile.TemporaryDirectory(prefix="posenc-lines-") as folder:
        for key in ("quantization_config", "auto_map", "compression_config"):
            config.pop(key, None)
        (Path(folder) / "config.json").write_text(json.dumps({**config, "dtype": "float32", "torch_dtype": "float32"}))
        try:
            granted, build = BUILD[line.engine](line, folder)
        except ParserExit as error:
            return Answer("not parsed", text=str(error))
        except NotBuiltError as error:
            return Answer("not built", text=str(error))
        except Exception as error:  # whatever the engine says of its own configuration
            if any(words in str(error) for words in _ABSENT):
                return Answer("not built", text=_short(error))
            if _refuses_itself(line, folder):
                return Answer("not built", text=f"refuses the config without posenc's words too: {_short(error)}")
            return Answer("refused", text=_short(error))
        try:
            built = build()
            if len(built) < len([kind for kind in rotations_of_layers(config) if kind is not None]):
                built = build()  # the first time imported the file of the text part, whose modules were not kept
        except (Exception, SystemExit) as error:  # kernels, parts of images and packages that are not here
            return Answer("not built", text=_short(error), granted=granted)
        try:
            return _judged(line, built, config)._replace(granted=granted)
        except Exception as error:  # what its rotary class says
            return Answer("refused", text=_short(error), granted=granted)


def _refuses_itself(line: Line, folder: str) -> bool:
    """Whether the engine refuses the config where its command line names nothing but the folder."""
    bare = {"vllm": "vllm serve DIR", "sglang": "python -m sglang.launch_server --model-path DIR"}
    if line.engine not in bare:
        return False
    try:
        BUILD[line.engine](line._replace(text=bare[line.engine]), folder)
    except Exception:  # whatever it says
        return True
    return False


def _judged(line: Line, built: list[Any], config: Config) -> Answer:
    from posenc.hf.config.rotation import text_rope

    layers = rotations_of_layers(config)
    rotating = [kind for kind in layers if kind is not None]
    if line.engine == "mlx_lm" and len(built) == len(layers):  # one in each layer, called where the layer rotates
        rotating = layers
    each, rest = divmod(len(built), len(rotating))
    if not each or (rest and line.engine == "mlx_lm"):
        return Answer("not built", text=f"the class builds {len(built)} rotary modules for {len(rotating)} layers")
    built = built[rest:][::each]  # those of an image part come first; an indexer has one of its own
    read = read_rope(line.meant)
    truth, doubt = truths(line)
    worst, wrong = 0.0, []
    for kind, (theta, gain) in truth.items():
        rope = read.rotations[kind]
        original = (read.facts.trained(text_rope(rope)) if rope else 0) or line.length
        at = positions(min(original, line.length), line.length)
        gap = ratio(rows(line.engine, built[rotating.index(kind)], at, line.meant, line.length), theta, gain, at)
        worst = max(worst, gap)
        wrong += [kind] if gap > 1 else []
    text = f"layers of kind {', '.join(wrong)}" if wrong and len(truth) > 1 else ""
    text += f"; posenc alone: {doubt}" if doubt else ""
    gap = worst * TOLERANCE if math.isfinite(worst) else None
    return Answer("wrong" if wrong else "right", gap, text.removeprefix("; "))


def _short(error: BaseException) -> str:
    words = " ".join(f"{type(error).__name__}: {error}".split())
    return re.sub(r"/tmp/[\w./-]+", "DIR", words)[:200]


# ------------------------------------------------------------------------------------------------------------ record


def read() -> tuple[list[Config], list[Config]]:
    """Heads and lines of the record."""
    entries = [json.loads(line) for line in RECORD.read_text(encoding="utf-8").splitlines()] if RECORD.exists() else []
    return [entry for entry in entries if "model" not in entry], [entry for entry in entries if "model" in entry]


def head(engine: str) -> Config:
    """Versions, machine, date and command of the lines of an engine."""
    import torch
    import transformers

    import posenc

    package = {"llama_cpp": "llama_cpp_python", "mlx_lm": "mlx-lm"}.get(engine, engine)
    return {
        "engine": engine, "version": importlib.metadata.version(package),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "reference": f"posenc {posenc.__version__}, transformers {transformers.__version__}, torch {torch.__version__}",
        "machine": f"{platform.system()} {platform.machine()}, CPU, Python {platform.python_version()}",
        "command": f"python -m benchmarks.engines.lines {engine}",
    }  # fmt: skip


def measure(engine: str) -> None:
    """Ask an engine about every line of today, and write its part of the record anew."""
    heads, lines = read()
    heads = [*(entry for entry in heads if entry["engine"] != engine), head(engine)]
    lines = [entry for entry in lines if entry["engine"] != engine]
    # Before an engine is imported: SGLang registers model types with transformers, for which SERVING.md then has lines.
    today = [line for model, config in published() for line in printed(model, config) if line.engine == engine]
    for line in today:
        result = llama_cpp(line) if engine == "llama_cpp" else answer(line)
        if result.gap is not None:
            result = result._replace(gap=float(f"{result.gap:.2g}"))
        fields = {key: value for key, value in result._asdict().items() if value not in (None, "")}
        lines.append({"model": line.model, "command": line.command, "engine": engine, "line": line.text, **fields})
        sys.stderr.write(f"{line.model}  {line.command}  {engine}  {result}\n")
    order = list(ENGINES)
    entries = sorted(heads, key=lambda entry: order.index(entry["engine"]))
    entries += sorted(lines, key=lambda entry: (order.index(entry["engine"]), entry["model"]))
    RECORD.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "printed":
        known = {(line["model"], line["command"], line["engine"], meaning(line["line"])) for line in read()[1]}
        for model, config in published():
            for line in printed(model, config):
                if line.key not in known:
                    sys.stdout.write(f"{model}\t{line.command}\t{line.text}\n")
    else:
        measure(sys.argv[1])
