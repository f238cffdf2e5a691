"""llama.cpp on the file that its convert_hf_to_gguf.py writes from the checkpoint: whole models.

The script is in the folder vendor/llama.cpp of llama_cpp_python's source distribution; the environment variable VENDOR
has its path. It runs in a process of its own.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import multiprocessing.context
import os
import runpy
import shutil
import sys
import tempfile
from functools import cache, partial
from pathlib import Path
from typing import Any

from benchmarks.engines.adapters import Adapter, Question, Rows, installed
from benchmarks.engines.adapters._llama_cpp import run_gguf


def measure(question: Question) -> Rows:
    """Logits of the whole text, of the converted file; under the option "rope" of what posenc writes of it."""
    folder, options = Path(question.folder), dict(question.options)
    target = folder / "converted.gguf"
    rope, overrides = options.pop("rope", None), options.pop("kv_overrides", None)
    if rope is not None:
        write_anew(folder, target, rope)
    else:
        convert(folder, target)
    return run_gguf(target, question, options, overrides)


def write_anew(folder: Path, target: Path, rope: dict[str, Any]) -> None:
    """Convert the checkpoint without its scaling, and write the rotation as `posenc gguf` does.

    Args:
        folder: of the checkpoint, whose config.json is replaced.
        target: where the file goes.
        rope: the block to write.
    """
    from posenc.hf import write_gguf
    from posenc.hf.config.convert import parse_rope_argument

    saved = json.loads((folder / "config.json").read_text())
    for key in ("rope_parameters", "rope_scaling", "rope_theta"):
        saved.pop(key, None)
    share = {key: rope[key] for key in ("partial_rotary_factor",) if key in rope}
    bare = {"rope_type": "default", "rope_theta": 10_000.0, **share}  # one conversion for all: write_gguf has the base
    (folder / "config.json").write_text(json.dumps({**saved, "rope_parameters": bare}, sort_keys=True))
    unscaled = folder / "unscaled.gguf"
    convert(folder, unscaled)
    target.unlink(missing_ok=True)
    write_gguf(unscaled, target, partial(parse_rope_argument, json.dumps(rope)))


def convert(folder: Path, target: Path) -> None:
    """Run the script, once for each checkpoint of this process: remedies ask about the same ones again.

    Raises:
        RuntimeError: with the last line that it prints, where it fails.
        ImportError: where it lacks a package.
        ValueError: where VENDOR is not set.
    """
    vendor = os.environ.get("VENDOR", "")
    if not (Path(vendor) / "convert_hf_to_gguf.py").is_file():
        raise ValueError("VENDOR must be the folder vendor/llama.cpp of llama_cpp_python's source distribution")
    content = b"".join((folder / name).read_bytes() for name in ("config.json", "model.safetensors"))
    converted = Path(_converted_files().name) / f"{hashlib.sha256(content).hexdigest()}.gguf"
    if not converted.is_file():
        errors = converted.with_suffix(".txt")
        process = _imported().Process(target=_script, args=(str(folder), str(converted), str(errors)))
        process.start()
        process.join()
        if process.exitcode:
            converted.unlink(missing_ok=True)
            last = errors.read_text(encoding="utf-8").strip().splitlines()[-1]
            raise ImportError(last) if "ModuleNotFoundError" in last else RuntimeError(last)
    shutil.copyfile(converted, target)


@cache
def _converted_files() -> tempfile.TemporaryDirectory[str]:
    """Of converted files."""
    return tempfile.TemporaryDirectory(prefix="posenc-gguf-")


@cache
def _imported() -> multiprocessing.context.ForkServerContext:
    """Processes that start with what the script imports, which takes longer than a conversion."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "transformers.models.auto.tokenization_auto", __name__])
    return context


def _script(folder: str, target: str, errors: str) -> None:
    vendor = os.environ["VENDOR"]
    sys.path[:0] = [vendor, f"{vendor}/gguf-py"]
    sys.argv = ["convert_hf_to_gguf.py", folder, "--outfile", target, "--outtype", "f32"]
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
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
