"""SGLang: the rotary modules that its own model classes build from a config.json, on a CPU.

SGLang's ModelConfig reads the file and its model class is built on the meta device, so spelling, nesting and the keys
that a model class passes on are handled by SGLang. The modules that ``get_rope`` returns are collected and called.
Source: SGLang 0.5.23, srt/configs/model_config.py, srt/models, srt/layers/rotary_embedding/factory.py.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import types
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.engines.adapters import Adapter, NotRunError, Question, Rows, installed
from benchmarks.engines.adapters._models import architecture, patched, rotary_of_kind, rotated_rows

# Not deepseek_v3, exaone4 and llava: their classes ask for keys and parts that the cases do not have.
_FILES = {
    "llama": "llama", "mistral": "mistral", "qwen2": "qwen2", "qwen3": "qwen3", "phi3": "llama", "stablelm": "stablelm",
    "glm4": "glm4", "cohere": "commandr", "olmo2": "olmo2", "granite": "granite", "gpt_oss": "gpt_oss",
    "gemma3_text": "gemma3_causal", "gemma3": "gemma3_mm", "gemma4_text": "gemma4_causal",
    "qwen2_5_vl": "qwen2_5_vl", "qwen3_vl": "qwen3_vl", "gemma": "gemma", "gemma2": "gemma2", "olmo": "olmo",
    "qwen3_moe": "qwen3_moe",
}  # fmt: skip


def read_config(config: dict[str, Any], overrides: Mapping[str, Any] | None = None) -> Any:
    """SGLang's ModelConfig of a config.json under ``--json-model-override-args overrides``.

    The process is told to be on a CPU and alone.
    """
    import_without_gpu()
    from sglang.srt.configs.model_config import ModelConfig  # type: ignore[import-not-found, unused-ignore]

    with tempfile.TemporaryDirectory() as folder:
        loadable = {**config, "architectures": [architecture(config)], "dtype": "float32", "torch_dtype": "float32"}
        (Path(folder) / "config.json").write_text(json.dumps(loadable))
        result = ModelConfig(model_path=folder, dtype="float32", model_override_args=json.dumps(dict(overrides or {})))
        start_alone(folder)
    return result


def import_without_gpu() -> None:
    """Let SGLang be imported where there is no GPU."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    extension = types.ModuleType("vllm._custom_ops")  # imported by name where there is no GPU, and not called here
    extension.rotary_embedding = None  # type: ignore[attr-defined]
    extension.__getattr__ = lambda name: None  # type: ignore[method-assign]
    sys.modules.setdefault("vllm._custom_ops", extension)


_STARTED: list[bool] = []


def start_alone(folder: str) -> None:
    """Tell SGLang's process groups, once, that this process is alone; ``folder`` has a config.json."""
    if _STARTED:
        return
    _STARTED.append(True)
    from sglang.srt import server_args  # type: ignore[import-not-found, unused-ignore]
    from sglang.srt.distributed import (  # type: ignore[import-not-found, unused-ignore]
        init_distributed_environment,
        initialize_model_parallel,
    )
    from sglang.srt.layers.dp_attention import (  # type: ignore[import-not-found, unused-ignore]
        initialize_dp_attention,
    )
    from sglang.srt.runtime_context import SpawnRanks, publish  # type: ignore[import-not-found, unused-ignore]

    arguments = server_args.ServerArgs(model_path=folder, device="cpu", skip_tokenizer_init=True)
    server_args.set_global_server_args_for_scheduler(arguments)
    publish(arguments, role="scheduler", ranks=SpawnRanks(world_rank=0))
    with tempfile.NamedTemporaryFile(delete=False) as file:
        address = f"file://{file.name}"
    init_distributed_environment(world_size=1, rank=0, local_rank=0, distributed_init_method=address, backend="gloo")
    initialize_model_parallel()
    initialize_dp_attention(arguments)


def measure(question: Question) -> Rows:
    """cos and sin, by rotating ones with the module that the model class builds."""
    if question.config["model_type"] not in _FILES:
        raise NotRunError(f"the adapter does not build SGLang's model class of {question.config['model_type']}")
    options = dict(question.options)
    if options.pop("plugin", False):
        _with_plugin()
    model_config = read_config(question.config, **options)
    built = rotary_modules(model_config, _FILES[question.config["model_type"]])
    return rotated_rows(rotary_of_kind(built, model_config.hf_text_config, question.kind), question)


def rotary_modules(model_config: Any, file: str) -> list[Any]:
    """The rotary modules that the model class builds from SGLang's ModelConfig, in the order of the layers.

    Args:
        model_config: as `read_config` gives it.
        file: of ``srt/models`` with the class, without its ending.
    """
    import torch
    from sglang.srt.layers.rotary_embedding import factory  # type: ignore[import-not-found, unused-ignore]

    module = importlib.import_module(f"sglang.srt.models.{file}")
    classes = module.EntryClass if isinstance(module.EntryClass, list) else [module.EntryClass]
    cls = next(cls for cls in classes if cls.__name__ == model_config.hf_config.architectures[0])
    factories = ("get_rope", "get_rope_wrapper")
    factory._ROPE_DICT.clear()  # of modules that an earlier build may have left on the meta device
    with patched("sglang.srt.models.", factories, ("RadixAttention",)) as built, torch.device("meta"):
        cls(model_config.hf_config)
    return built


@cache
def _with_plugin() -> None:
    """posenc's plug-in, as SGLang loads it: registered, and the hooks applied."""
    from sglang.srt.plugins.hook_registry import (  # type: ignore[import-not-found, unused-ignore]
        HookRegistry,
    )

    from posenc.hf.serving.plugins import register_sglang

    register_sglang()
    HookRegistry.apply_hooks()


ADAPTER = Adapter(
    "sglang", "pip install --no-deps sglang==0.5.23, and what its imports ask for", installed("sglang"), "cos and sin",
    measure, "ModelConfig, the model class and its rotary modules, native PyTorch",
    route="cos and sin are what the module's forward_native makes of ones; attention kernels are not built",
)  # fmt: skip
