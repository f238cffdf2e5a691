"""Command lines that serve an extended config, for each engine that was measured to compute its rope blocks right.

A config that is written comes before flags that override it: vLLM does not hand overrides on to a draft model, whose
acceptance then falls to about 0 (vllm-project/vllm#58080).
Neither server needs a variable that lifts its limit, because the written config declares the length.
Source: `posenc.hf.serving.engines` for what each engine computes; vLLM 0.33, config/model.py (_get_and_verify_max_len),
    and SGLang 0.5.23, hf_transformers/common.py (get_context_length), for the length that a server grants;
    ggml-org/llama.cpp#17459 for --override-kv, which lifts the length at which llama-server cuts a context.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from posenc.hf.config.rope_block import RopeBlock
from posenc.hf.config.rope_keys import find_rope_blocks
from posenc.hf.config.text_config import TextConfig, find_text_config
from posenc.hf.serving.engines import (
    CONVERTER,
    MLX_4,
    MLX_5,
    SGLANG,
    VLLM,
    WRITER,
    cases_of_block,
    engine_errors,
    engine_table,
)
from posenc.hf.sources.gguf_metadata import ARCHITECTURES
from posenc.hf.sources.load import Config

_FLAGS_OF_YARN = {"rope_type", "rope_theta", "factor", "original_max_position_embeddings", "beta_fast", "beta_slow"}
_SECTION = "mrope_section"


class EngineLine(NamedTuple):
    """How one engine serves a config.

    Attributes:
        engine: name and the version that was measured.
        command: lines to type; "" where the engine computes the rotation wrong.
        right: whether the engine was measured to compute these blocks right; None: not measured.
        text: what was measured, or what is wrong and what to do instead.
    """

    engine: str
    command: str
    right: bool | None
    text: str

    def __str__(self) -> str:
        if not self.command:
            return f"{self.engine}: no. {self.text}"
        return f"{self.engine}: {self.command}   ({self.text})"


def engine_lines(config: Config, length: int, folder: str, *, gguf: str = "") -> tuple[EngineLine, ...]:
    """A line for each engine.

    Args:
        config: extended, in Hugging Face's keys.
        length: tokens to serve.
        folder: that has the written config and the weights.
        gguf: path of the source where it is a GGUF file, which llama.cpp alone serves.
    """
    text_config = find_text_config(config)
    blocks = [block for block in find_rope_blocks(text_config) if block.values is not None]
    name, kind = shlex.quote(folder), text_config.model_type
    if gguf:
        return (_of_gguf(text_config, blocks, length, shlex.quote(gguf)),)
    sglang = f"python -m sglang.launch_server --model-path {name} --context-length {length}"
    lines = (
        _server(VLLM, f"vllm serve {name} --max-model-len {length}", kind, blocks, length, name),
        _server(SGLANG, sglang, kind, blocks, length, name),
        _llama_cpp(kind, blocks, length, name),
        _mlx(text_config, blocks, length, name),
        EngineLine("transformers", f'from_pretrained("{folder}")', True, "reads the file as it is"),
    )
    return lines if text_config.known else tuple(_unmeasured(line, kind, config) for line in lines)


def _unmeasured(line: EngineLine, model_type: str, config: Config) -> EngineLine:
    """The line for a model type that posenc does not know, whose code may read other keys than a Llama's."""
    if not line.command or not model_type:
        return line
    if line.engine == "transformers" and not config.get("auto_map"):
        return line._replace(right=None)
    code = "the repository's own code" if line.engine == "transformers" else f"the engine's code of {model_type}"
    return line._replace(right=None, text=f"not measured: {code} may not read these keys")


def _version(engine: str) -> str:
    return f"{engine.partition(',')[0]} {engine_table()['engines'][engine]['version']}"


def _wrong(engine: str, model_type: str, blocks: list[RopeBlock], length: int) -> str:
    """What an engine computes wrong of these blocks, in words; "" where nothing is known to be wrong."""
    gaps = engine_table()["gaps"]
    errors = [
        error for block in blocks for error in engine_errors(engine, _values_of(block), length, model_type)
        if engine in gaps[error.case]
    ]  # fmt: skip
    return "; ".join(dict.fromkeys(error.text for error in errors))


def _values_of(block: RopeBlock) -> dict[str, Any]:
    return {key: value for key, value in block.effective.items() if value is not None}


def _measured(engine: str, model_type: str, blocks: list[RopeBlock], length: int) -> tuple[bool | None, str]:
    """What was measured of blocks that an engine has no error with."""
    cases = dict.fromkeys(case for block in blocks for case in cases_of_block(_values_of(block), length, model_type))
    known = engine_table()["gaps"]
    unmeasured = [case for case in cases if engine not in known.get(case, {})]
    if any(_SECTION in (block.values or {}) and block.effective.get("rope_type") != "yarn" for block in blocks):
        unmeasured.append("M-RoPE")
    if unmeasured:
        return None, f"not measured: {', '.join(unmeasured)}"
    return True, f"{', '.join(cases)} measured right ({engine_table()['engines'][engine]['what']})"


def _server(engine: str, command: str, model_type: str, blocks: list[RopeBlock], length: int, name: str) -> EngineLine:
    wrong = _wrong(engine, model_type, blocks, length)
    if wrong:
        multimodal = any(_SECTION in block.effective for block in blocks)  # which the plug-in does not have
        plug_in = f". With posenc's plug-in: posenc serve-flags {name} --exact --length {length}"
        return EngineLine(_version(engine), "", False, wrong if multimodal else f"{wrong}{plug_in}")
    right, text = _measured(engine, model_type, blocks, length)
    return EngineLine(_version(engine), command, right, text)


def _llama_cpp(model_type: str, blocks: list[RopeBlock], length: int, name: str) -> EngineLine:
    engine = f"llama.cpp ({engine_table()['engines'][CONVERTER]['version']})"
    convert = f"python convert_hf_to_gguf.py {name} --outfile"
    lost = _wrong(CONVERTER, model_type, blocks, length)
    if not lost:
        right, text = _measured(CONVERTER, model_type, blocks, length)
        command = f"{convert} extended.gguf; llama-server -m extended.gguf -c {length}"
        return EngineLine(engine, command, right, text)
    unwritable = _wrong(WRITER, model_type, blocks, length)
    if unwritable:
        return EngineLine(engine, "", False, f"no GGUF file is known to hold this rotation: {unwritable}")
    command = f"{convert} plain.gguf; posenc gguf plain.gguf extended.gguf --rope {name}; "
    right, text = _measured(WRITER, model_type, blocks, length)
    command += f"llama-server -m extended.gguf -c {length}"
    return EngineLine(engine, command, right, f"its own converter drops keys: {lost}; posenc gguf: {text}")


def _of_gguf(text_config: TextConfig, blocks: list[RopeBlock], length: int, gguf: str) -> EngineLine:
    engine, model_type = f"llama.cpp ({engine_table()['engines'][WRITER]['version']})", text_config.model_type
    unwritable = _wrong(WRITER, model_type, blocks, length)
    if unwritable or len(blocks) != 1:
        reason = unwritable or "its layers have rotations of several kinds"
        return EngineLine(engine, "", False, f"no GGUF file is known to hold this rotation: {reason}")
    right, text = _measured(WRITER, model_type, blocks, length)
    block = {key: value for key, value in _values_of(blocks[0]).items() if key != _SECTION}
    names = [name for name, (model_type, _) in ARCHITECTURES.items() if model_type == text_config.model_type]
    raised = [f"--override-kv {names[0]}.context_length=int:{length}"] if names else []
    flags = list(_llama_cpp_flags(block))
    if flags:
        command = " ".join([f"llama-server -m {gguf}", *flags, f"-c {length}", *raised])
        return EngineLine(engine, command, right, f"no file is changed; {text}")
    rope = shlex.quote(json.dumps(block))
    command = f"posenc gguf {gguf} extended.gguf --rope {rope}; llama-server -m extended.gguf -c {length}"
    return EngineLine(engine, " ".join([command, *raised]), right, text)


def _llama_cpp_flags(block: Mapping[str, Any]) -> Iterator[str]:
    """Flags of llama-server for a block; none where they cannot say it."""
    kind, base = block.get("rope_type"), f"--rope-freq-base {block['rope_theta']:.10g}"
    if kind == "linear":
        yield from ("--rope-scaling linear", f"--rope-scale {block['factor']:.10g}", base)
    elif kind == "yarn" and set(block) - {"partial_rotary_factor"} <= _FLAGS_OF_YARN:
        yield from ("--rope-scaling yarn", f"--rope-scale {block['factor']:.10g}")
        yield f"--yarn-orig-ctx {block['original_max_position_embeddings']}"
        for key in ("beta_fast", "beta_slow"):
            if key in block:
                yield f"--yarn-{key.replace('_', '-')} {block[key]:.10g}"
        yield base


def _mlx(text_config: TextConfig, blocks: list[RopeBlock], length: int, name: str) -> EngineLine:
    engine, model_type = MLX_4 if text_config.get("rope_scaling") else MLX_5, text_config.model_type
    wrong = _wrong(engine, model_type, blocks, length)
    if wrong and engine == MLX_5 and text_config.family.since < 5 and not _wrong(MLX_4, model_type, blocks, length):
        advice = f"posenc convert {name} --spelling both adds the keys that most of its models read"
        return EngineLine(_version(engine), "", False, f"{wrong}. {advice}")
    if wrong:
        return EngineLine(_version(engine), "", False, wrong)
    right, text = _measured(engine, model_type, blocks, length)
    return EngineLine(_version(engine), f"mlx_lm.server --model {name}", right, text)
