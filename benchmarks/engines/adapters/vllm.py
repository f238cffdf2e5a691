"""vLLM: the rotary modules that its own model classes build from a config.json, on a CPU, without compiled extensions.

vLLM's ModelConfig reads the file and its model class is built on the meta device, so spelling, nesting and the keys
that a model class passes on are handled by vLLM. The modules that ``get_rope`` returns are collected and called.
Source: vLLM 0.33.0, config/model.py (ModelConfig), model_executor/models, model_executor/layers/rotary_embedding.
"""

from __future__ import annotations

import importlib
import json
import os
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.engines.adapters import Adapter, NotRunError, Question, Rows, installed
from benchmarks.engines.adapters._models import architecture, patched, rotary_of_kind, rotated_rows


@cache
def _engine() -> Any:
    """vLLM's modules, told to be on a CPU and alone."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import vllm.platforms  # type: ignore[import-not-found, unused-ignore]
    from vllm.platforms.cpu import CpuPlatform  # type: ignore[import-not-found, unused-ignore]

    vllm.platforms._current_platform = CpuPlatform()
    from vllm.model_executor.models import registry  # type: ignore[import-not-found, unused-ignore]

    registry._run_in_subprocess = lambda function: function()  # it starts an interpreter for each model class otherwise
    return registry


def read_config(config: dict[str, Any], length: int | None = None, overrides: Mapping[str, Any] | None = None) -> Any:
    """vLLM's ModelConfig of a config.json, served with ``--max-model-len length`` and ``--hf-overrides overrides``."""
    _engine()
    from vllm.config import ModelConfig  # type: ignore[import-not-found, unused-ignore]

    folder = _folder().name
    loadable = {**config, "architectures": [architecture(config)], "dtype": "float32", "torch_dtype": "float32"}
    (Path(folder) / "config.json").write_text(json.dumps(loadable))
    return ModelConfig(
        model=folder, tokenizer=folder, skip_tokenizer_init=True, dtype="float32", seed=0, max_model_len=length,
        hf_overrides=dict(overrides or {}),
    )  # fmt: skip


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Of the config.json, which model classes of images read again."""
    return tempfile.TemporaryDirectory(prefix="posenc-vllm-")


def measure(question: Question) -> Rows:
    """cos and sin, by rotating ones with the module that the model class builds."""
    text = question.config.get("text_config", question.config)
    # Without a length vLLM serves LongRoPE at the original length alone, and refuses longer ones than are declared.
    options = {"length": max(max(question.positions) + 1, text["max_position_embeddings"]), **question.options}
    if options.pop("plugin", False):
        from posenc.hf.serving.plugins import register_vllm

        register_vllm()
    model_config = read_config(question.config, **options)
    rotary = rotary_of_kind(rotary_modules(model_config), model_config.hf_text_config, question.kind)
    return rotated_rows(rotary, question)


def rotary_modules(model_config: Any) -> list[Any]:
    """The rotary modules that the model class builds from vLLM's ModelConfig, in the order of the layers.

    Raises:
        NotRunError: for an architecture of which vLLM has no model class.
    """
    import torch

    registry = _engine()
    known = {**registry._TEXT_GENERATION_MODELS, **registry._MULTIMODAL_MODELS}
    name = model_config.architectures[0]
    if name not in known:
        raise NotRunError(f"vLLM serves {name} by transformers' own model class")
    from vllm.config import (  # type: ignore[import-not-found, unused-ignore]
        DeviceConfig,
        VllmConfig,
        set_current_vllm_config,
    )
    from vllm.model_executor.layers import rotary_embedding  # type: ignore[import-not-found, unused-ignore]

    device = DeviceConfig(device="cpu")
    with set_current_vllm_config(VllmConfig(device_config=device)):  # without a model, for which all groups are made
        _alone()
    engine = VllmConfig(model_config=model_config, device_config=device)
    with set_current_vllm_config(engine):
        file, cls = known[name]
        module = importlib.import_module(file if "." in file else f"vllm.model_executor.models.{file}")
        rotary_embedding._ROPE_DICT.clear()  # its key has neither the device nor the served length
        with patched("vllm.model_executor.models.", ("get_rope",), ("Attention",)) as built, torch.device("meta"):
            getattr(module, cls)(vllm_config=engine)
    return built


@cache
def _alone() -> None:
    from vllm.distributed import parallel_state  # type: ignore[import-not-found, unused-ignore]

    with tempfile.NamedTemporaryFile(delete=False) as file:
        address = f"file://{file.name}"
    parallel_state.init_distributed_environment(
        world_size=1, rank=0, local_rank=0, distributed_init_method=address, backend="gloo"
    )
    parallel_state.initialize_model_parallel()


ADAPTER = Adapter(
    "vllm", "pip install --no-deps vllm==0.33.0, and what its imports ask for", installed("vllm"), "cos and sin",
    measure, "ModelConfig, the model class and its rotary modules, native PyTorch",
    route="cos and sin are what the module's forward_native makes of ones; attention kernels are not built",
)  # fmt: skip
