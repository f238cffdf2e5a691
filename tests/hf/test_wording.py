"""One snapshot of what the commands for checkpoints print: wording.txt, where a reworded line shows as a diff.

    python -m tests.hf.test_wording          # writes the snapshot anew; read its diff

No other test has to name a sentence of these outputs. The engines' versions in it come from the table of engines.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
from pathlib import Path

import posenc_cli
from tests.golden import configs

SNAPSHOT = Path(__file__).parent / "wording.txt"
MODELS = {
    "qwen3": "Qwen/Qwen3-8B", "gemma3": "google/gemma-3-1b-it", "llama31": "meta-llama/Llama-3.1-8B",
    "deepseek": "deepseek-ai/DeepSeek-V3", "exaone4": "LGAI-EXAONE/EXAONE-4.0-32B", "gpt2": "openai-community/gpt2",
    "mistral": "mistralai/Mistral-7B-v0.1", "hunyuan": "tencent/Hunyuan-7B-Instruct",
}  # fmt: skip
COMMANDS = (
    "extend qwen3 --length 128k --config-only", "extend qwen3 --length 40960 --config-only",
    "extend gemma3 --length 128k --config-only", "extend deepseek --length 327680 --config-only",
    "extend exaone4 --length 256k --config-only", "extend gpt2 --length 4096 --config-only",
    "extend mistral --length 128k --config-only", "extend hunyuan --length 1M --config-only",
    "serve qwen3", "serve qwen3 --length 128k", "serve deepseek", "serve exaone4", "serve qwen3 --for megatron",
    "serve llama31 --for litgpt", "serve qwen3 --exact", "convert qwen3", "explain qwen3", "explain gemma3 --layers",
    "doctor qwen3", "doctor deepseek --trainer verl --engine vllm", "engines check --checkpoint qwen3 --engine vllm",
    "recommend qwen3 --length 128k", "recommend qwen3 --length 128k --tune --tune-tokens 500M --engine vllm",
    "recommend --length 128k --memory 8", "recommend --kind video",
)  # fmt: skip


def printed() -> str:
    """The outputs of all commands, each under its words."""
    published = {line["model"]: line["config"] for line in configs("published_configs")}
    before, parts = Path.cwd(), []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for name, model in MODELS.items():
                Path(name).mkdir()
                Path(name, "config.json").write_text(json.dumps(published[model], indent=2))
            for command in COMMANDS:
                out = io.StringIO()
                with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                    code = posenc_cli.run(command.split())
                parts.append(f"$ posenc {command}     # exit code {code}\n{out.getvalue()}")
        finally:
            os.chdir(before)
    return "\n".join(parts)


def test_the_outputs_are_those_of_the_snapshot() -> None:
    assert printed() == SNAPSHOT.read_text(encoding="utf-8"), "python -m tests.hf.test_wording writes it: read the diff"


if __name__ == "__main__":
    SNAPSHOT.write_text(printed(), encoding="utf-8")
