"""Command lines that serve an extended config, for each engine that was measured to compute its rope blocks right.

A written config is preferred to flags that override it: vLLM does not hand overrides on to a draft model, whose
acceptance then falls to about 0 (vllm-project/vllm#58080). Neither server needs an environment variable that lifts its
limit, because the written config declares the length.
Source: `posenc.hf.serving.engines` for what each engine computes; vLLM 0.33, config/model.py (_get_and_verify_max_len),
    and SGLang 0.5.23, hf_transformers/common.py (get_context_length), for the length that a server grants;
    ggml-org/llama.cpp#17459 for --override-kv, which lifts the length at which llama-server cuts a context.
"""

from __future__ import annotations

import json
import shlex
from typing import Any, NamedTuple

from posenc.hf.config.block_schema import Block
from posenc.hf.config.rope_config import read_rope
from posenc.hf.config.text_config import TextConfig
from posenc.hf.serving.beyond import beyond_rotation, engine_notes
from posenc.hf.serving.engines import (
    CONVERTER,
    FLAGS,
    MLX,
    SGLANG,
    UNKNOWN,
    VLLM,
    WRITER,
    Verdict,
    newest,
    spelling_of,
    title,
    verdict,
)
from posenc.hf.serving.flags import words_of_block
from posenc.hf.sources.gguf_metadata import ARCHITECTURES
from posenc.hf.sources.load import Config

_SECTION = "mrope_section"


class EngineLine(NamedTuple):
    """How one engine serves a config.

    Attributes:
        engine: name and the version that was measured.
        command: lines to type; "" where the engine computes the rotation wrong.
        right: whether that version was measured to compute these blocks right; None: not measured.
        text: what was measured, or what is wrong and what to do instead.
    """

    engine: str
    command: str
    right: bool | None
    text: str

    def __str__(self) -> str:
        if not self.command:
            return f"{self.engine}: {'no. ' if self.right is False else ''}{self.text}"
        return f"{self.engine}: {self.command}   ({self.text})"


class _ServedConfig(NamedTuple):
    """The config that engines are given.

    Attributes:
        blocks: one for each kind of layers, None for layers that do not rotate.
        spelling: its keys.
        model_type: of the text model; `UNKNOWN` where posenc does not know it.
        length: tokens to serve.
        beyond: parts of its attention that no rotary class computes.
    """

    blocks: tuple[Block | None, ...]
    spelling: str
    model_type: str
    length: int
    beyond: tuple[str, ...] = ()

    def verdict(self, engine: str, **changed: Any) -> Verdict:
        """What was measured of this config in an engine."""
        serving = self._replace(**changed)
        return verdict(
            engine, serving.blocks, spelling=serving.spelling, model_type=serving.model_type, length=serving.length,
            beyond=serving.beyond,
        )  # fmt: skip


def engine_lines(config: Config, length: int, folder: str, *, gguf: str = "") -> tuple[EngineLine, ...]:
    """A line for each engine.

    Args:
        config: extended, in Hugging Face's keys.
        length: tokens to serve.
        folder: that has the written config and the weights.
        gguf: path of the source where it is a GGUF file, which llama.cpp alone serves.
    """
    read = read_rope(config)
    text_config = read.text_config
    blocks = tuple(
        None if block.values is None else {key: value for key, value in block.effective.items() if value is not None}
        for block in read.parsed.rope_blocks
    )
    model_type = text_config.model_type if text_config.known else UNKNOWN
    serving = _ServedConfig(blocks, spelling_of(text_config), model_type, length, beyond_rotation(read))
    name = shlex.quote(folder)
    if gguf:
        return (_of_gguf(text_config, serving, shlex.quote(gguf)),)
    sglang = f"python -m sglang.launch_server --model-path {name} --context-length {length}"
    lines = (
        _server(VLLM, f"vllm serve {name} --max-model-len {length}", serving, name, engine_notes(read, VLLM, length)),
        _server(SGLANG, sglang, serving, name, engine_notes(read, SGLANG, length)),
        _llama_cpp(serving, name),
        _mlx(text_config, serving, name),
        EngineLine("transformers", f'from_pretrained("{folder}")', True, "reads the file as it is"),
    )
    return lines if text_config.known else tuple(_unmeasured(line, text_config.model_type, config) for line in lines)


def _unmeasured(line: EngineLine, model_type: str, config: Config) -> EngineLine:
    """The line for a model type that posenc does not know, whose code may read other keys than a Llama's."""
    if not line.command or not model_type:
        return line
    if line.engine == "transformers" and not config.get("auto_map"):
        return line._replace(right=None)
    code = "the repository's own code" if line.engine == "transformers" else f"the engine's code of {model_type}"
    return line._replace(right=None, text=f"not measured: {code} may not read these keys")


def _named(engine: str) -> str:
    version = newest(engine)
    return f"llama.cpp (llama_cpp_python {version})" if engine in (CONVERTER, WRITER, FLAGS) else (
        f"{title(engine)} {version}".rstrip()
    )  # fmt: skip


def _server(engine: str, command: str, serving: _ServedConfig, name: str, notes: tuple[str, ...]) -> EngineLine:
    checked = serving.verdict(engine)
    if checked.wrong:
        multimodal = any(_SECTION in block for block in serving.blocks if block)  # which the plug-in does not have
        plug_in = f"; or posenc's plug-in: posenc serve-flags {name} --exact --length {serving.length}"
        no_plug_in = multimodal or checked.plug_in_failed
        return EngineLine(_named(engine), "", False, str(checked) if no_plug_in else f"{checked}{plug_in}")
    return EngineLine(_named(engine), command, checked.right, "; ".join([str(checked), *notes]))


def _llama_cpp(serving: _ServedConfig, name: str) -> EngineLine:
    engine, lost = _named(CONVERTER), serving.verdict(CONVERTER)
    convert = f"python convert_hf_to_gguf.py {name} --outfile"
    if not lost.wrong:
        command = f"{convert} extended.gguf; llama-server -m extended.gguf -c {serving.length}"
        return EngineLine(engine, command, lost.right, str(lost))
    written = serving.verdict(WRITER, spelling="v5")
    if written.wrong:
        return EngineLine(engine, "", False, f"no GGUF file is known to hold this rotation: {written}")
    command = f"{convert} plain.gguf; posenc gguf plain.gguf extended.gguf --rope {name}; "
    command += f"llama-server -m extended.gguf -c {serving.length}"
    rows = ", ".join(dict.fromkeys(result.row for result in lost.wrong))
    return EngineLine(engine, command, written.right, f"its own converter is wrong in {rows}; posenc gguf: {written}")


def _of_gguf(text_config: TextConfig, serving: _ServedConfig, gguf: str) -> EngineLine:
    engine, checked = _named(WRITER), serving.verdict(WRITER, spelling="v5")
    if checked.wrong or len(serving.blocks) != 1 or serving.blocks[0] is None:
        reason = str(checked) if checked.wrong else "its layers have rotations of several kinds"
        return EngineLine(engine, "", False, f"no GGUF file is known to hold this rotation: {reason}")
    block = {key: value for key, value in serving.blocks[0].items() if key != _SECTION}
    raised = context_words(text_config.model_type, serving.length)
    by_flags = serving.verdict(FLAGS, spelling="v5")
    try:
        words = words_of_block(block)
    except ValueError:  # the file must say it
        words = []
    if words and not by_flags.wrong:
        command = " ".join([f"llama-server -m {gguf}", *words, f"-c {serving.length}", *raised])
        return EngineLine(engine, command, by_flags.right, f"no file is changed; {by_flags}")
    rope = shlex.quote(json.dumps(block))
    command = f"posenc gguf {gguf} extended.gguf --rope {rope}; llama-server -m extended.gguf -c {serving.length}"
    return EngineLine(engine, " ".join([command, *raised]), checked.right, str(checked))


def context_words(model_type: str, length: int) -> list[str]:
    """Words with which llama-server grants more tokens than a file declares; none for a model type without a name."""
    name = next((name for name, (served_type, _) in ARCHITECTURES.items() if served_type == model_type), None)
    return [] if name is None else ["--override-kv", f"{name}.context_length=int:{length}"]


def _mlx(text_config: TextConfig, serving: _ServedConfig, name: str) -> EngineLine:
    engine, checked = _named(MLX), serving.verdict(MLX)
    if checked.wrong:
        both = serving.verdict(MLX, spelling="both")
        older = serving.spelling.endswith("v5") and text_config.family.since < 5 and both.right
        advice = f". posenc convert {name} --spelling both adds the keys that it reads: {both}" if older else ""
        return EngineLine(engine, "", False, f"{checked}{advice}")
    if checked.right is None:  # mlx-lm's model classes read other keys each: Gemma's reads no scaling
        return EngineLine(engine, "", None, str(checked))
    return EngineLine(engine, f"mlx_lm.server --model {name}", checked.right, str(checked))
