"""llama.cpp on a plain GGUF file and the flags that posenc prints: whole models, by llama_cpp_python's own build of it.

llama.cpp's converter writes the file from the checkpoint without its scaling. `posenc serve` gives the flags, and
llama-server's own parser turns them into context parameters. The parser is llama_server_arguments.cpp next to this
file, which says how it is built; the environment variable LLAMA_SERVER_ARGUMENTS has its path.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.engines.adapters import Adapter, NotRunError, Question, Rows, installed
from benchmarks.engines.adapters._llama_cpp import run_gguf
from benchmarks.engines.adapters.llama_cpp_converter import convert

_UNSCALED = ("rope_theta", "partial_rotary_factor")


def measure(question: Question) -> Rows:
    """Logits of the whole text, of a file without a scaling, under the flags."""
    from posenc.hf import read_rope
    from posenc.hf.serving.engines.llama_cpp import flags_of
    from posenc.hf.serving.lines import Serving

    block = question.config.get("rope_parameters")
    if not isinstance(block, dict) or "rope_scaling" in question.config:
        raise NotRunError("posenc serve reads a block; asked once, by version 5's")
    try:
        facts = read_rope(question.config).facts
        words, _ = flags_of(Serving(facts, question.config["max_position_embeddings"]))
    except ValueError as error:
        raise NotRunError(f"posenc prints no flags: {error}") from error
    folder = Path(question.folder)
    config = json.loads((folder / "config.json").read_text())
    unscaled = {"rope_type": "default", **{key: block[key] for key in _UNSCALED if key in block}}
    (folder / "config.json").write_text(json.dumps({**config, "rope_parameters": unscaled}))
    target = folder / "plain.gguf"
    convert(folder, target)
    flags = context_parameters(["-m", str(target), *words])
    return run_gguf(target, question, {key: value for key, value in flags.items() if key.startswith(("rope", "yarn"))})


def context_parameters(words: Sequence[str]) -> dict[str, Any]:
    """The context parameters that llama-server's parser sets from command-line arguments.

    Raises:
        RuntimeError: with its parser's words, where it does not take them.
        ValueError: where LLAMA_SERVER_ARGUMENTS is not set.
    """
    program = os.environ.get("LLAMA_SERVER_ARGUMENTS", "")
    if not Path(program).is_file():
        raise ValueError("LLAMA_SERVER_ARGUMENTS must be the program that llama_server_arguments.cpp builds")
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr.strip() or done.stdout.strip()).splitlines()[-1])
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


ADAPTER = Adapter(
    "llama_cpp_flags", "pip install llama_cpp_python==0.3.36 (builds llama.cpp), and the parser of its server",
    installed("llama_cpp_python"), "logits", measure, "llama-server's common_params_parse, then llama_decode",
    ("llama", "qwen3", "mistral", "stablelm", "olmo2", "granite"),  # whose tiny checkpoints the converter takes
    route="logits of the whole model in float32, of a file without a scaling under the flags that posenc prints",
)  # fmt: skip
