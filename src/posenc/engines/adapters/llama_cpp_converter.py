"""llama.cpp on what its convert_hf_to_gguf.py makes of the checkpoint: whole models.

The script is in the folder vendor/llama.cpp of llama_cpp_python's source distribution, whose path stands in the
environment variable VENDOR; it runs in a process of its own.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

from posenc.engines.adapters import Adapter, Question, Rows, installed
from posenc.engines.adapters._llama_cpp import run_gguf


def measure(question: Question) -> Rows:
    """Logits of the whole text, of the converted file."""
    target = Path(question.folder) / "converted.gguf"
    convert(Path(question.folder), target)
    return run_gguf(target, question)


def convert(folder: Path, target: Path) -> None:
    """Run the script.

    Raises:
        RuntimeError: with the last line that it prints, where it fails.
        ImportError: where it lacks a package.
        ValueError: where VENDOR is not set.
    """
    vendor = os.environ.get("VENDOR", "")
    if not (Path(vendor) / "convert_hf_to_gguf.py").is_file():
        raise ValueError("VENDOR must be the folder vendor/llama.cpp of llama_cpp_python's source distribution")
    target.unlink(missing_ok=True)
    command = [sys.executable, "-m", __name__, str(folder), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1]
        raise ImportError(last) if "ModuleNotFoundError" in last else RuntimeError(last)


def _script(folder: str, target: str) -> None:
    vendor = os.environ["VENDOR"]
    sys.path[:0] = [vendor, f"{vendor}/gguf-py"]
    sys.argv = ["convert_hf_to_gguf.py", folder, "--outfile", target, "--outtype", "f32"]
    from conversion.base import TextModel  # type: ignore[import-not-found, unused-ignore]

    # The script knows tokenizers by a hash of released ones; the tiny one is a GPT-2's by kind.
    TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
    runpy.run_path(f"{vendor}/convert_hf_to_gguf.py", run_name="__main__")


ADAPTER = Adapter(
    "llama_cpp_converter", "pip install llama_cpp_python==0.3.36 (builds llama.cpp)", installed("llama_cpp_python"),
    "logits", measure, "convert_hf_to_gguf.py, then llama_decode",
    ("llama", "qwen3", "mistral", "stablelm", "olmo2", "granite"),  # whose tiny checkpoints the script converts
    route="logits of the whole model in float32; the script's check of the tokenizer's hash is answered with gpt-2",
)  # fmt: skip

if __name__ == "__main__":
    _script(*sys.argv[1:])
