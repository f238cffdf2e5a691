"""llama.cpp on what `posenc gguf` writes: whole models, by llama_cpp_python's own build of llama.cpp."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from posenc.engines.adapters import Adapter, NotRunError, Question, Rows, installed
from posenc.engines.adapters._llama_cpp import run_gguf
from posenc.engines.adapters.llama_cpp_converter import convert


def measure(question: Question) -> Rows:
    """Logits of the whole text, of a converted file whose rotation posenc writes anew."""
    from posenc.hf import write_gguf
    from posenc.hf.config.rope_argument import parse_rope_argument

    block = question.config.get("rope_parameters")
    if not isinstance(block, dict) or "rope_scaling" in question.config:
        raise NotRunError("posenc gguf reads a block; asked once, by version 5's")
    if question.config["model_type"] != "llama":
        raise NotRunError("asked with Llama alone")
    folder = Path(question.folder)
    config = json.loads((folder / "config.json").read_text())
    bare = {**config, "rope_parameters": {"rope_type": "default", "rope_theta": block["rope_theta"]}}
    (folder / "config.json").write_text(json.dumps(bare))
    unscaled, target = folder / "unscaled.gguf", folder / "posenc.gguf"
    convert(folder, unscaled)
    target.unlink(missing_ok=True)
    write_gguf(unscaled, target, partial(parse_rope_argument, json.dumps(block)))
    return run_gguf(target, question)


ADAPTER = Adapter(
    "llama_cpp_gguf", "pip install llama_cpp_python==0.3.36 (builds llama.cpp)", installed("llama_cpp_python"),
    "logits", measure, "posenc gguf, then llama_decode",
    ("llama",),
    route="logits of the whole model in float32; posenc writes the rotation's keys and tensors, llama.cpp reads them",
)  # fmt: skip
