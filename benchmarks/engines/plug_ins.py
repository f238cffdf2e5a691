"""How far the table that posenc's plug-in puts into vLLM's and SGLang's own rotary classes is from posenc's own.

    python -m benchmarks.engines.plug_ins vllm        # or sglang; prints the largest difference for each scaling

On a CPU, in an environment with posenc[all] and the engine: the unpacked wheel of vllm==0.33.0 without its compiled
libraries, or that of sglang==0.5.23, on PYTHONPATH, and what its imports ask for. records/plug_ins.json has the
results, which docs/serving.md quotes.
"""

from __future__ import annotations

import copy
import datetime
import json
import platform
import sys
import types
from importlib.metadata import version
from typing import Any

import torch

from posenc import DynamicNTK, Llama3, RoPE, YaRN
from posenc.hf import plugin_block
from posenc.hf.serving import plugins

Block = dict[str, Any]
HEAD, FACTOR, CONTEXT = 64, 4.0, 4096
PLAIN: Block = {"rope_type": "default", "rope_theta": 1e4}


def vllm_class(block: Block, declared: int) -> Any:
    """vLLM's, without its compiled extension."""
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

    config = VllmConfig(device_config=DeviceConfig(device="cpu"))
    config.model_config = types.SimpleNamespace(max_model_len=declared)
    with set_current_vllm_config(config):
        return get_rope(HEAD, declared, True, copy.deepcopy(block), torch.float32)


def sglang_class(block: Block, declared: int) -> Any:
    """SGLang's."""
    extension = types.ModuleType("vllm._custom_ops")
    extension.rotary_embedding = None  # type: ignore[attr-defined]
    extension.__getattr__ = lambda name: None  # type: ignore[method-assign, assignment]
    sys.modules.setdefault("vllm._custom_ops", extension)
    from sglang.srt.layers.rotary_embedding.factory import (  # type: ignore[import-not-found, unused-ignore]
        get_rope,
    )

    return get_rope(HEAD, HEAD, declared, 1e4, True, copy.deepcopy(block), torch.float32, 1.0)


def gaps(name: str) -> dict[str, float]:
    """How far the table that posenc's plug-in puts into the engine's own class is from posenc's, at every position."""
    engine = {"vllm": vllm_class, "sglang": sglang_class}[name]
    engine(PLAIN, 8)  # which imports it
    if name == "sglang":
        from sglang.srt.plugins.hook_registry import HookRegistry  # type: ignore[import-not-found, unused-ignore]

        plugins.register_sglang()
        HookRegistry.apply_hooks()
    else:
        plugins.register_vllm()
    gaps_by_scaling, tokens = {}, 8 * CONTEXT
    for scaling in (None, YaRN(FACTOR, original_length=CONTEXT), DynamicNTK(FACTOR, original_length=CONTEXT),
                    Llama3(2 * FACTOR, original_length=2 * CONTEXT)):  # fmt: skip
        rope = RoPE(HEAD, scaling=scaling)
        from_engine = (
            engine(plugin_block(rope, length=tokens, tokens=tokens), tokens).cos_sin_cache[:tokens].chunk(2, -1)
        )
        from_posenc = rope.table(torch.arange(tokens), tokens)
        pairs = zip(from_engine, from_posenc, strict=True)
        differences = [float((a.double() - b.double()).abs().max()) for a, b in pairs]
        gaps_by_scaling["default" if scaling is None else type(scaling).__name__] = max(differences)
    return gaps_by_scaling


if __name__ == "__main__":
    if sys.argv[1:] not in (["vllm"], ["sglang"]):
        raise SystemExit("usage: python -m benchmarks.engines.plug_ins vllm|sglang")
    record = {
        "engine": sys.argv[1],
        "version": version(sys.argv[1]),
        "reference": ", ".join(f"{name} {version(name)}" for name in ("posenc", "torch")),
        "machine": f"{platform.system()} {platform.machine()}, CPU, Python {platform.python_version()}",
        "date": datetime.date.today().isoformat(),
        "command": f"python -m benchmarks.engines.plug_ins {sys.argv[1]}",
        "positions": 8 * CONTEXT,
        "largest difference of cos and sin": gaps(sys.argv[1]),
    }
    print(json.dumps(record, indent=1))
