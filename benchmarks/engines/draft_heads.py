"""Whether draft models and heads of speculative decoding get the rope block of the model that they draft for.

    python -m benchmarks.engines.draft_heads vllm      # or sglang; writes its part of results/draft_heads.json

The engine's own configuration code reads tiny configs: a separate draft model, an EAGLE head, and the multi-token
prediction layers of a DeepSeek-V3 checkpoint, which stand in the model's own folder. Each is asked twice with YaRN for
four times the original length: written in the files of model and draft, and as an override of the command line, whose
files have no scaling. Recorded is the block that the draft's config object holds afterwards, and the length that the
draft is granted. No draft is built and no token drafted.
Source: vLLM 0.33.0, engine/arg_utils.py (create_speculative_config), config/speculative.py; SGLang 0.5.23,
managers/tp_worker.py, which makes a draft's config by ModelConfig.from_server_args with is_draft_model.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.engines.cases import cases

RECORD = Path(__file__).parents[1] / "results" / "draft_heads.json"
Config = dict[str, Any]
ORIGINAL, LENGTH = 256, 1024
BLOCK: Config = {
    "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL, "rope_theta": 10_000.0,
}  # fmt: skip
OVERRIDES: Config = {"rope_parameters": BLOCK, "max_position_embeddings": LENGTH}
KINDS = {"a separate draft model": "llama", "an EAGLE head": "llama", "multi-token prediction layers": "deepseek_v3"}


def configs(kind: str) -> tuple[Config, Config]:
    """Configs of the model and its draft, without a scaling."""
    name = KINDS[kind]
    case = next(case for case in cases() if (case.model, case.row, case.spelling) == (name, "default", "v5"))
    classes = {"llama": "LlamaForCausalLM", "deepseek_v3": "DeepseekV3ForCausalLM"}
    config = {**case.config, "architectures": [classes[name]], "dtype": "float32", "torch_dtype": "float32"}
    if name == "deepseek_v3":
        return {**config, "num_nextn_predict_layers": 1}, {**config, "num_nextn_predict_layers": 1}
    return config, {**config, "num_hidden_layers": 1}


def vllm(kind: str, model: str, draft: str, overrides: Config) -> tuple[Any, int]:
    """The draft's config object and granted length in vLLM."""
    from benchmarks.engines.adapters import vllm as adapter

    adapter._engine()
    from vllm.config import ParallelConfig
    from vllm.engine.arg_utils import EngineArgs

    speculative: Config = {"num_speculative_tokens": 1, "model": draft}
    if kind == "multi-token prediction layers":
        speculative = {"num_speculative_tokens": 1, "method": "mtp"}
    elif kind == "an EAGLE head":
        speculative["method"] = "eagle"
    arguments = EngineArgs(
        model=model, skip_tokenizer_init=True, dtype="float32", max_model_len=LENGTH, hf_overrides=overrides,
        speculative_config=speculative,
    )  # fmt: skip
    parsed = arguments.create_speculative_config(arguments.create_model_config(), ParallelConfig())
    return parsed.draft_model_config.hf_text_config, parsed.draft_model_config.max_model_len


def sglang(kind: str, model: str, draft: str, overrides: Config) -> tuple[Any, int]:
    """The draft's config object and granted length in SGLang."""
    import os

    from benchmarks.engines.adapters import sglang as adapter

    adapter.import_without_gpu()
    os.environ["SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"] = "1"
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.server_args import prepare_server_args

    words = ["--model-path", model, "--context-length", str(LENGTH), "--device", "cpu", "--skip-tokenizer-init"]
    words += ["--json-model-override-args", json.dumps(overrides)]
    arguments = prepare_server_args(words)
    path = model if kind == "multi-token prediction layers" else draft
    parsed = ModelConfig.from_server_args(arguments, model_path=path, is_draft_model=True)
    return parsed.hf_text_config, parsed.context_len


ASK: dict[str, Callable[[str, str, str, Config], tuple[Any, int]]] = {"vllm": vllm, "sglang": sglang}


def measure(engine: str) -> Config:
    """What the engine gives each kind of draft."""
    seen: Config = {}
    for kind in KINDS:
        seen[kind] = {}
        for way in ("in the files", "by override"):
            model, draft = configs(kind)
            if way == "in the files":
                model, draft = {**model, **OVERRIDES}, {**draft, **OVERRIDES}
            with tempfile.TemporaryDirectory() as folder:
                paths = [Path(folder, name) for name in ("model", "draft")]
                for path, config in zip(paths, (model, draft), strict=True):
                    path.mkdir()
                    (path / "config.json").write_text(json.dumps(config))
                try:
                    config, length = ASK[engine](
                        kind, str(paths[0]), str(paths[1]), OVERRIDES if way == "by override" else {}
                    )
                except Exception as error:  # the engine's own words
                    words = " ".join(f"{type(error).__name__}: {error}".split()).replace(folder, "DIR")
                    seen[kind][way] = {"refused": words[:200]}
                    continue
            block = dict(config.rope_parameters)
            seen[kind][way] = {
                "rope_type": block.get("rope_type"), "factor": block.get("factor"), "granted": length,
                "same": all(block.get(key) == value for key, value in BLOCK.items()),
            }  # fmt: skip
    return seen


if __name__ == "__main__":
    engine = sys.argv[1]
    content = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    content[engine] = {
        "version": importlib.metadata.version(engine), "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": f"python -m benchmarks.engines.draft_heads {engine}", "drafts": measure(engine),
    }  # fmt: skip
    RECORD.write_text(json.dumps({key: content[key] for key in sorted(content)}, indent=1) + "\n", encoding="utf-8")
