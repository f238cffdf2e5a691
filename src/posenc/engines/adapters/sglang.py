"""SGLang: its rotary classes as its models build them, on a CPU.

Source: SGLang 0.5.23, srt/utils/hf_transformers/common.py (get_rope_config), srt/models/llama.py (get_rope).
"""

from __future__ import annotations

import sys
import types
from typing import Any

from posenc.engines.adapters import Adapter, Question, Rows, installed
from posenc.engines.adapters._configs import PLAIN, head_size, loaded
from posenc.engines.adapters.vllm import table_rows


def measure(question: Question) -> Rows:
    """cos and sin of the class that get_rope builds."""
    import torch

    extension = types.ModuleType("vllm._custom_ops")  # imported by name where there is no GPU, and not called here
    extension.rotary_embedding = None  # type: ignore[attr-defined]
    extension.__getattr__ = lambda name: None  # type: ignore[method-assign]
    sys.modules.setdefault("vllm._custom_ops", extension)
    from sglang.srt.layers.rotary_embedding.factory import (  # type: ignore[import-not-found, unused-ignore]
        get_rope,
    )
    from sglang.srt.utils.hf_transformers.common import (  # type: ignore[import-not-found, unused-ignore]
        get_rope_config,
    )

    config, head = loaded(question.config), head_size(question.config)
    base, block = get_rope_config(config)
    share = getattr(config, "partial_rotary_factor", None) or (block or {}).get("partial_rotary_factor") or 1.0
    rotary: Any = get_rope(head, head, config.max_position_embeddings, base, True, block, torch.float32, share)
    return table_rows(rotary, question)


ADAPTER = Adapter(
    "sglang", "pip install --no-deps sglang==0.5.23, and what its imports ask for", installed("sglang"), "cos and sin",
    measure, "get_rope_config and get_rope, native PyTorch", PLAIN,
)  # fmt: skip
