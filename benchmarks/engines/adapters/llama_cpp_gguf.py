"""llama.cpp on a file that `posenc gguf` writes: whole models, by llama_cpp_python's own build of llama.cpp."""

from __future__ import annotations

from pathlib import Path

from benchmarks.engines.adapters import Adapter, NotRunError, Question, Rows, installed
from benchmarks.engines.adapters._llama_cpp import run_gguf
from benchmarks.engines.adapters.llama_cpp_converter import write_anew


def measure(question: Question) -> Rows:
    """Logits of the whole text, of a converted file whose rotation posenc writes anew."""
    block = question.config.get("rope_parameters")
    if not isinstance(block, dict) or "rope_scaling" in question.config:
        raise NotRunError("posenc gguf reads a block; asked once, by version 5's")
    if question.config["model_type"] != "llama":
        raise NotRunError("asked with Llama alone")
    folder = Path(question.folder)
    target = folder / "posenc.gguf"
    write_anew(folder, target, question.options.get("rope", block))
    return run_gguf(target, question)


ADAPTER = Adapter(
    "llama_cpp_gguf", "pip install llama_cpp_python==0.3.36 (builds llama.cpp)", installed("llama_cpp_python"),
    "logits", measure, "posenc gguf, then llama_decode",
    ("llama",),
    route="logits of the whole model in float32; posenc writes the rotation's keys and tensors, llama.cpp reads them",
)  # fmt: skip
