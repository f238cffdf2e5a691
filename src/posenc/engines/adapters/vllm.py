"""vLLM: its rotary classes as its models build them, on a CPU, without its compiled extension.

Source: vLLM 0.33.0, transformers_utils/config.py (patch_rope_parameters), model_executor/models/llama.py (get_rope).
"""

from __future__ import annotations

import types
from typing import Any

from posenc.engines.adapters import Adapter, Question, Rows, installed
from posenc.engines.adapters._configs import PLAIN, head_size, loaded, rows_of


def measure(question: Question) -> Rows:
    """cos and sin from the table of the class that get_rope builds."""
    import torch
    import vllm.platforms  # type: ignore[import-not-found, unused-ignore]
    from vllm.platforms.cpu import CpuPlatform  # type: ignore[import-not-found, unused-ignore]

    vllm.platforms._current_platform = CpuPlatform()
    from vllm.config import (  # type: ignore[import-not-found, unused-ignore]
        DeviceConfig,
        VllmConfig,
        set_current_vllm_config,
    )
    from vllm.model_executor.layers.rotary_embedding import (  # type: ignore[import-not-found, unused-ignore]
        get_rope,
    )
    from vllm.transformers_utils.config import (  # type: ignore[import-not-found, unused-ignore]
        patch_rope_parameters,
    )

    config = loaded(question.config)
    patch_rope_parameters(config)
    declared = config.max_position_embeddings
    engine = VllmConfig(device_config=DeviceConfig(device="cpu"))
    engine.model_config = types.SimpleNamespace(max_model_len=declared)
    with set_current_vllm_config(engine):
        rotary: Any = get_rope(head_size(question.config), declared, True, config.rope_parameters, torch.float32)
    return table_rows(rotary, question)


def table_rows(rotary: Any, question: Question) -> Rows:
    """Rows of a class of vLLM or SGLang, from its table or, where it chooses between two, from rotating ones.

    Raises:
        IndexError: where the table ends before a position.
    """
    import torch

    at = torch.tensor(question.positions)
    table = getattr(rotary, "cos_sin_cache", None)
    if table is not None:
        if int(at.max()) >= len(table):
            raise IndexError(f"its table of cos and sin ends at {len(table)} positions")
        cos, sin = table[at].chunk(2, -1)
        return rows_of(cos, sin)
    head, width = head_size(question.config), rotary.rotary_dim if hasattr(rotary, "rotary_dim") else 0
    width = width or head
    ones = torch.zeros(len(at), head)
    ones[:, : width // 2] = 1  # rotated, the first half becomes cos and the second sin
    call = rotary.forward if type(rotary).__name__.startswith("Phi3") else rotary.forward_native
    rotated = call(at, ones.clone(), ones.clone())[0].reshape(len(at), head)
    return rows_of(rotated[:, : width // 2], rotated[:, width // 2 : width])


ADAPTER = Adapter(
    "vllm", "pip install --no-deps vllm==0.33.0, and what its imports ask for", installed("vllm"), "cos and sin",
    measure, "patch_rope_parameters and get_rope, native PyTorch", PLAIN,
)  # fmt: skip
