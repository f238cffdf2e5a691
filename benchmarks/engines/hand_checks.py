"""Cells of the table of engines, at least two of each, recomputed by a route that shares no code with the check.

    python -m benchmarks.engines.hand_checks vllm        # an engine, or all of them; each in its own interpreter

The result replaces that engine's lines in results/engine_hand_checks.json. Configs are written by hand here. Of rotary
classes a query of random numbers is rotated by the engine's class; divided by what went in, as complex numbers, it
gives gain cos and gain sin of each pair. Of whole models a Llama with random weights, written as safetensors by numpy,
runs in the engine and in numpy float64, 40 lines below. The rotation to compare with is this file's own formula, from
the papers, in plain Python. No model code and no rotation of transformers or posenc takes part, except where it is
what is checked: the columns "transformers" and "llama_cpp_gguf" (`posenc gguf`).

Engines as CONTRIBUTING.md installs them; VENDOR is llama.cpp's folder in llama_cpp_python's source distribution.
"""

from __future__ import annotations

import ast
import contextlib
import datetime
import importlib.metadata
import importlib.util
import json
import logging
import math
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RECORD = Path(__file__).parents[1] / "results" / "engine_hand_checks.json"
HEAD, PAIRS, BASE, ORIGINAL, LONGEST = 32, 16, 10_000.0, 256, 1024
POSITIONS = [0, 128, 256, 512, 1023]
RIGHT = {"cos and sin": 3e-4, "logits": 1e-3}
Array = np.ndarray[Any, Any]
Block = dict[str, Any]
Result = tuple[str, Block, str, float | str]  # the cell and its block, how it was measured, and its gap or its refusal

YARN: Block = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256, "rope_theta": 10_000.0}
LINEAR: Block = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0}
DYNAMIC: Block = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10_000.0}
DEFAULT: Block = {"rope_type": "default", "rope_theta": 10_000.0}
LLAMA3: Block = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256, "rope_theta": 10_000.0,
}  # fmt: skip
LONGROPE: Block = {
    "rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 256, "rope_theta": 10_000.0,
    "short_factor": [1 + 0.01 * pair for pair in range(16)], "long_factor": [1 + 3 * pair / 15 for pair in range(16)],
}  # fmt: skip


# ------------------------------------------------------------------------------------------------- the rotation by hand


def waves() -> list[float]:
    """Tokens of a full cycle of each pair: arXiv 2104.09864, eq. 15."""
    return [2 * math.pi * BASE ** (2 * pair / HEAD) for pair in range(PAIRS)]


def by_hand(block: Block) -> tuple[list[float], float]:
    """Radians a token, and the gain, from cycles of a pair in the original length."""
    kind, factor = block["rope_type"], block.get("factor", 1.0)
    unscaled, cycles = [2 * math.pi / wave for wave in waves()], [ORIGINAL / wave for wave in waves()]
    if kind == "default":
        return unscaled, 1.0
    if kind == "linear":  # arXiv 2306.15595, eq. 4
        return [theta / factor for theta in unscaled], 1.0
    if kind == "dynamic":  # arXiv 2309.00071, section 3.3: base (s n/L - s + 1)^(d/(d-2)) for n tokens, L declared
        base = BASE * (factor * LONGEST / ORIGINAL - factor + 1) ** (HEAD / (HEAD - 2))
        return [base ** (-2 * pair / HEAD) for pair in range(PAIRS)], 1.0
    if kind == "llama3":  # linear in cycles between low_freq_factor and high_freq_factor
        low, high = block["low_freq_factor"], block["high_freq_factor"]
        unchanged = [min(max((cycle - low) / (high - low), 0.0), 1.0) for cycle in cycles]
        return [theta * (share + (1 - share) / factor) for theta, share in zip(unscaled, unchanged, strict=True)], 1.0
    if kind == "longrope":  # arXiv 2402.13753, and the gain of its code
        gain = block.get("attention_factor", math.sqrt(1 + math.log(LONGEST / ORIGINAL, ORIGINAL)))
        return [theta / long for theta, long in zip(unscaled, block["long_factor"], strict=True)], gain
    # yarn, arXiv 2309.00071: the pair with `times` cycles is where base^(2j/d) = L / (2 pi times)
    fast, slow = (HEAD / 2 * math.log(ORIGINAL / (2 * math.pi * times), BASE)
                  for times in (block.get("beta_fast", 32), block.get("beta_slow", 1)))  # fmt: skip
    if block.get("truncate", True):
        fast, slow = float(max(math.floor(fast), 0)), float(math.ceil(slow))
    scaled = [min(max((pair - fast) / (slow - fast), 0.0), 1.0) for pair in range(PAIRS)]
    theta = [frequency * (1 - share + share / factor) for frequency, share in zip(unscaled, scaled, strict=True)]
    sharp = {key: 0.1 * block.get(key, default) * math.log(factor) + 1
             for key, default in (("mscale", 1.0), ("mscale_all_dim", 0.0))}  # fmt: skip
    return theta, block.get("attention_factor", sharp["mscale"] / sharp["mscale_all_dim"])


def phasors(block: Block, positions: list[int] | None = None) -> Array:
    """gain exp(i position theta), (positions, pairs)."""
    theta, gain = by_hand(block)
    return gain * np.exp(1j * np.outer(POSITIONS if positions is None else positions, theta))


def gap_of(rows: Array, block: Block, positions: list[int] | None = None) -> float:
    """The largest difference of gain cos and gain sin."""
    difference = rows - phasors(block, positions)
    return float(max(np.abs(difference.real).max(), np.abs(difference.imag).max()))


def rotated(call: Callable[[Any], Any], interleaved: bool = False, positions: list[int] | None = None) -> Array:
    """gain exp(i angle) that an engine's class rotates by: random queries out, divided by queries in.

    Args:
        call: rotates a tensor (positions, HEAD), in float32.
        interleaved: whether channels 2j and 2j + 1 are a pair, and not j and j + PAIRS.
        positions: how many rows there are.
    """
    import torch

    count = len(POSITIONS if positions is None else positions)
    query = torch.randn(count, HEAD, generator=torch.Generator().manual_seed(5)).sign() * 1.25
    answer = call(query.clone()).reshape(count, HEAD)

    def paired(x: Any) -> Array:
        values = x.double().numpy()
        first, second = (values[:, ::2], values[:, 1::2]) if interleaved else (values[:, :PAIRS], values[:, PAIRS:])
        return first + 1j * second

    return paired(answer) / paired(query)


# ----------------------------------------------------------------------------------------------------- rotary classes


def of_transformers() -> list[Result]:
    import torch
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    results: list[Result] = []
    for case, block in (("llama/yarn/v5/256/1024", YARN), ("llama/llama3/v5/256/1024", LLAMA3)):
        rotary = LlamaRotaryEmbedding(LlamaConfig(
            hidden_size=128, num_attention_heads=4, head_dim=HEAD, max_position_embeddings=LONGEST,
            rope_parameters=dict(block),
        ))  # fmt: skip
        cos, sin = rotary(torch.zeros(1), torch.tensor([POSITIONS]))

        def call(query: Any, cos: Any = cos, sin: Any = sin) -> Any:
            return apply_rotary_pos_emb(query[None, None], query[None, None], cos, sin)[0]

        results.append((case, block, "LlamaRotaryEmbedding, then apply_rotary_pos_emb", gap_of(rotated(call), block)))
    return results


def of_vllm() -> list[Result]:
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

    settings = VllmConfig(device_config=DeviceConfig(device="cpu"))
    settings.model_config = types.SimpleNamespace(max_model_len=LONGEST)
    results: list[Result] = []
    with set_current_vllm_config(settings):
        for case, block in {
            "llama/yarn: attention_factor/v5/256/1024": {**YARN, "attention_factor": 1.0},
            "llama/longrope: attention_factor/v5/256/1024": {**LONGROPE, "attention_factor": 1.0},
        }.items():
            rotary = get_rope(HEAD, LONGEST, True, dict(block), torch.float32)
            call = rotary.forward_native if hasattr(rotary, "forward_native") else rotary.forward

            def ask(query: Any, call: Any = call) -> Any:
                return call(torch.tensor(POSITIONS), query, query.clone())[0]

            results.append((case, block, "get_rope, called by hand", gap_of(rotated(ask), block)))
    return results


def of_sglang() -> list[Result]:
    import torch

    extension = types.ModuleType("vllm._custom_ops")  # imported by name where there is no GPU, and not called here
    extension.rotary_embedding = None  # type: ignore[attr-defined]
    extension.__getattr__ = lambda name: None  # type: ignore[method-assign]
    sys.modules["vllm._custom_ops"] = extension
    from sglang.srt import server_args  # type: ignore[import-not-found, unused-ignore]

    arguments = server_args.ServerArgs(model_path="none", device="cpu", skip_tokenizer_init=True)
    server_args.set_global_server_args_for_scheduler(arguments)
    from sglang.srt.layers.rotary_embedding import get_rope  # type: ignore[import-not-found, unused-ignore]

    results: list[Result] = []
    for case, block in (("llama/yarn: betas/v5/256/1024", {**YARN, "beta_fast": 16.0, "beta_slow": 2.0}),
                        ("llama/yarn: attention_factor/v5/256/1024", {**YARN, "attention_factor": 1.0})):  # fmt: skip
        rotary = get_rope(HEAD, HEAD, LONGEST, 10_000, True, dict(block), torch.float32)

        def ask(query: Any, rotary: Any = rotary) -> Any:
            return rotary.forward_native(torch.tensor(POSITIONS), query, query.clone())[0]

        results.append((case, block, "get_rope, called by hand", gap_of(rotated(ask), block)))
    return results


def of_litgpt() -> list[Result]:
    import torch
    from litgpt.model import apply_rope, build_rope_cache  # type: ignore[import-not-found, unused-ignore]

    adjustments = {
        "llama/llama3/v5/256/1024": (LLAMA3, {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                              "original_max_seq_len": 256}),
        "llama/yarn/v5/256/1024": (YARN, {"factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                          "original_max_seq_len": 256}),
    }  # fmt: skip
    results: list[Result] = []
    for case, (block, extra) in adjustments.items():
        cos, sin = build_rope_cache(LONGEST, HEAD, torch.device("cpu"), 10_000, 1, extra)

        def ask(query: Any, cos: Any = cos, sin: Any = sin) -> Any:
            return apply_rope(query[None, None], cos[None, POSITIONS], sin[None, POSITIONS])

        results.append((case, block, "build_rope_cache, then apply_rope", gap_of(rotated(ask), block)))
    return results


def of_torchtitan() -> list[Result]:
    import torch
    from torchtitan.models.common.rope import ComplexRoPE  # type: ignore[import-not-found, unused-ignore]

    scaled = {"scaling": "llama", "scaling_factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 256}  # fmt: skip
    results: list[Result] = []
    for case, block, more, at in (("llama/default/v5/256/1024", DEFAULT, {"scaling": "none"}, [0, 128, 255]),
                                  ("llama/llama3/v5/256/1024", LLAMA3, scaled, POSITIONS)):  # fmt: skip
        rotary = ComplexRoPE(ComplexRoPE.Config(dim=HEAD, max_seq_len=LONGEST, theta=10_000.0, **more))

        def ask(query: Any, rotary: Any = rotary, at: list[int] = at) -> Any:
            wide = query[None, :, None]
            return rotary(wide, wide.clone(), torch.tensor([at]))[0]

        results.append((case, block, "ComplexRoPE rotates a query", gap_of(rotated(ask, True, at), block, at)))
    return results


def of_torchtune() -> list[Result]:
    import torch

    _without_init("torchtune", "torchtune.modules", "torchtune.models", "torchtune.models.llama3_1")
    from torchtune.models.llama3_1._position_embeddings import (  # type: ignore[import-not-found, unused-ignore]
        Llama3ScaledRoPE,
    )
    from torchtune.modules.position_embeddings import (  # type: ignore[import-not-found, unused-ignore]
        RotaryPositionalEmbeddings,
    )

    scaled = Llama3ScaledRoPE(HEAD, LONGEST, 10_000, scale_factor=8, low_freq_factor=1, high_freq_factor=4,
                              old_context_len=256)  # fmt: skip
    unscaled, near = RotaryPositionalEmbeddings(HEAD, LONGEST, 10_000), [0, 128, 255]
    results: list[Result] = []
    for case, rotary, block, at in (("llama/default/v5/256/1024", unscaled, DEFAULT, near),
                                    ("llama/llama3/v5/256/1024", scaled, LLAMA3, POSITIONS)):  # fmt: skip

        def ask(query: Any, rotary: Any = rotary, at: list[int] = at) -> Any:
            return rotary(query[None, :, None], input_pos=torch.tensor([at]))

        results.append((case, block, "the module's own call", gap_of(rotated(ask, True, at), block, at)))
    return results


def of_unsloth() -> list[Result]:
    """By its class LlamaRotaryEmbedding on a CPU, taken out of the file, as importing unsloth needs a GPU."""
    import torch
    from transformers import LlamaConfig

    spec = importlib.util.find_spec("unsloth")
    if spec is None or spec.origin is None:
        raise ImportError("unsloth is not installed")
    path = Path(spec.origin).parent / "models" / "llama.py"
    known: dict[str, Any] = {
        "torch": torch, "math": math, "contextlib": contextlib, "logger": logging.getLogger("unsloth"),
        "DEVICE_TYPE_TORCH": "cpu", "DEVICE_COUNT": 1, "get_current_device": lambda: "cpu",
        "_PerDeviceRopeCache": type("Cache", (), {"_init_rope_cache_state": lambda self, dtype: None}),
    }  # fmt: skip
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        functions = isinstance(node, ast.FunctionDef) and ("rope" in node.name or "inv_freq" in node.name)
        if functions or (isinstance(node, ast.ClassDef) and node.name == "LlamaRotaryEmbedding"):
            with contextlib.suppress(NameError):  # a function whose decorators or defaults belong to other models
                exec(compile(ast.Module([node], []), str(path), "exec"), known)
    results: list[Result] = []
    for case, block in (("llama/yarn: betas/v4/256/1024", {**YARN, "beta_fast": 16.0, "beta_slow": 2.0}),
                        ("llama/longrope/v4/256/1024", LONGROPE)):  # fmt: skip
        config = LlamaConfig(hidden_size=128, num_attention_heads=4, head_dim=HEAD, max_position_embeddings=LONGEST,
                             original_max_position_embeddings=256, **v4(block))  # fmt: skip
        rotary = known["LlamaRotaryEmbedding"](config=config)
        angles = torch.outer(torch.tensor(POSITIONS).float(), rotary.inv_freq).numpy()
        rows = rotary.attention_scaling * np.exp(1j * angles)
        results.append(
            (case, block, "inv_freq and attention_scaling of its class, times positions", gap_of(rows, block))
        )
    return results


def of_exllamav3() -> list[Result]:
    import torch

    _without_init("exllamav3", "exllamav3.util")
    extension = types.ModuleType("exllamav3.ext")
    extension.exllamav3_ext = None  # type: ignore[attr-defined]
    sys.modules["exllamav3.ext"] = extension
    from exllamav3.util.rope import (  # type: ignore[import-not-found, unused-ignore]
        RoPE,
        RopeSettings,
        _apply_rope_embed_q_neox,
    )

    results: list[Result] = []
    for case, block in {
        "llama/yarn/v5/256/1024": YARN,
        "llama/longrope: attention_factor/v5/256/1024": {**LONGROPE, "attention_factor": 1.0},
    }.items():
        rotary = RoPE("cpu", RopeSettings(
            head_dim=HEAD, rope_theta=10_000.0, rope_scaling=dict(block), max_position_embeddings=LONGEST,
            original_max_position_embeddings=256,
        ))  # fmt: skip

        sin, cos = rotary.compute_sincos(torch.tensor(POSITIONS))

        def ask(query: Any, sin: Any = sin, cos: Any = cos) -> Any:
            return _apply_rope_embed_q_neox(query[None, :, None], sin[None], cos[None])

        route = "RoPE.compute_sincos, then its rotation in float32 (apply_torch rounds to float16)"
        results.append((case, block, route, gap_of(rotated(ask), block)))
    return results


def of_lmdeploy() -> list[Result]:
    """By the module that its PyTorch engine builds; its kernel that applies cos and sin is for a GPU."""
    import torch
    from lmdeploy.pytorch.nn import rotary_embedding  # type: ignore[import-not-found, unused-ignore]
    from transformers import LlamaConfig

    route = "the module on a LlamaConfig by hand; cos and sin applied by hand"
    results: list[Result] = []
    for case, block in {
        "llama/yarn/v5/256/1024": YARN,
        "llama/longrope: attention_factor/v5/256/1024": {**LONGROPE, "attention_factor": 1.0},
    }.items():
        rotary = rotary_embedding.build_rotary_embedding_from_config(LlamaConfig(
            hidden_size=128, num_attention_heads=4, head_dim=HEAD, max_position_embeddings=LONGEST,
            rope_parameters=dict(block),
        ))  # fmt: skip
        cos, sin = rotary(torch.zeros(1), torch.tensor([POSITIONS]))

        def ask(query: Any, cos: Any = cos, sin: Any = sin) -> Any:
            return query * cos[0] + torch.cat([-query[:, PAIRS:], query[:, :PAIRS]], -1) * sin[0]

        results.append((case, block, route, gap_of(rotated(ask), block)))
    return results


def _without_init(*packages: str) -> None:
    """Packages whose modules are imported as they are, without running an ``__init__`` that asks for a GPU."""
    spec = importlib.util.find_spec(packages[0])
    if spec is None or spec.origin is None:
        raise ImportError(f"{packages[0]} is not installed")
    for name in packages:
        package = types.ModuleType(name)
        package.__path__ = [str(Path(spec.origin).parents[1].joinpath(*name.split(".")))]
        sys.modules[name] = package


# ------------------------------------------------------------------------------------------------------- whole models

HEADS, KV_HEADS, LAYERS, WIDTH, INNER, VOCABULARY, EPSILON = 4, 2, 2, 128, 256, 300, 1e-6


def weights() -> dict[str, Array]:
    """Of a small Llama, by the names of its checkpoints."""
    draw = np.random.default_rng(3)
    shapes = {"model.embed_tokens": (VOCABULARY, WIDTH), "lm_head": (VOCABULARY, WIDTH)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        shapes |= {f"{at}.self_attn.q_proj": (WIDTH, WIDTH), f"{at}.self_attn.k_proj": (KV_HEADS * HEAD, WIDTH),
                   f"{at}.self_attn.v_proj": (KV_HEADS * HEAD, WIDTH), f"{at}.self_attn.o_proj": (WIDTH, WIDTH),
                   f"{at}.mlp.gate_proj": (INNER, WIDTH), f"{at}.mlp.up_proj": (INNER, WIDTH),
                   f"{at}.mlp.down_proj": (WIDTH, INNER)}  # fmt: skip
    matrices = {}
    for name, shape in shapes.items():
        sharp = 2.0 if "q_proj" in name or "k_proj" in name else 1.0
        matrices[f"{name}.weight"] = (draw.standard_normal(shape) * sharp / math.sqrt(shape[1])).astype(np.float32)
    norms = ["model.norm"] + [f"model.layers.{layer}.{name}_layernorm" for layer in range(LAYERS)
                              for name in ("input", "post_attention")]  # fmt: skip
    return matrices | {f"{name}.weight": np.ones(WIDTH, np.float32) for name in norms}


def words() -> list[int]:
    """The text, 1,024 tokens."""
    return [int(token) for token in np.random.default_rng(4).integers(3, VOCABULARY, LONGEST)]


def logits_by_hand(block: Block) -> Array:
    """The Llama in numpy float64, at POSITIONS: arXiv 2302.13971, with grouped queries."""
    w = {name.removesuffix(".weight"): value.astype(np.float64) for name, value in weights().items()}
    rotation = phasors(block, list(range(LONGEST)))
    future = np.triu(np.full((LONGEST, LONGEST), -np.inf), 1)

    def norm(x: Array) -> Array:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON)

    def heads_of(x: Array, count: int, rotate: bool) -> Array:
        parts = x.reshape(LONGEST, count, HEAD).transpose(1, 0, 2)
        if not rotate:
            return parts
        z = (parts[..., :PAIRS] + 1j * parts[..., PAIRS:]) * rotation
        return np.concatenate([z.real, z.imag], -1)

    x = w["model.embed_tokens"][words()]
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        y = norm(x)
        q = heads_of(y @ w[f"{at}.self_attn.q_proj"].T, HEADS, True)
        k = heads_of(y @ w[f"{at}.self_attn.k_proj"].T, KV_HEADS, True).repeat(HEADS // KV_HEADS, 0)
        v = heads_of(y @ w[f"{at}.self_attn.v_proj"].T, KV_HEADS, False).repeat(HEADS // KV_HEADS, 0)
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(HEAD) + future
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (shares / shares.sum(-1, keepdims=True)) @ v
        x = x + mixed.transpose(1, 0, 2).reshape(LONGEST, WIDTH) @ w[f"{at}.self_attn.o_proj"].T
        y = norm(x)
        gate = y @ w[f"{at}.mlp.gate_proj"].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ w[f"{at}.mlp.up_proj"].T)) @ w[f"{at}.mlp.down_proj"].T
    logits: Array = (norm(x) @ w["lm_head"].T)[POSITIONS]
    return logits


def gap_of_logits(actual: Array, block: Block) -> float:
    """The largest difference over the largest logit."""
    right = logits_by_hand(block)
    return float(np.abs(actual - right).max() / np.abs(right).max())


def config_json(**rope: Any) -> dict[str, Any]:
    """A config.json by hand."""
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": WIDTH,
        "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "head_dim": HEAD,
        "num_key_value_heads": KV_HEADS, "rms_norm_eps": EPSILON, "hidden_act": "silu", "tie_word_embeddings": False,
        "max_position_embeddings": LONGEST, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32", **rope,
    }  # fmt: skip


def v4(block: Block) -> dict[str, Any]:
    """The keys of transformers 4."""
    inner = {key: value for key, value in block.items() if key != "rope_theta"}
    return {"rope_theta": block["rope_theta"], "rope_scaling": {**inner, "type": inner["rope_type"]}}


def of_mlx_lm() -> list[Result]:
    import mlx.core as mx  # type: ignore[import-not-found, unused-ignore]
    from mlx_lm.models.llama import Model, ModelArgs  # type: ignore[import-not-found, unused-ignore]

    results: list[Result] = []
    block = LINEAR
    for case, keys in (
        ("llama/linear/v4/256/1024", v4(block)),
        ("llama/linear/v5/256/1024", {"rope_parameters": block}),
    ):
        model = Model(ModelArgs.from_dict(config_json(**keys)))
        model.load_weights([(name, mx.array(value)) for name, value in weights().items()])
        logits = np.array(model(mx.array([words()])))[0][POSITIONS]
        results.append(
            (case, block, "mlx_lm.models.llama.Model, its weights handed over", gap_of_logits(logits, block))
        )
    return results


def _write_checkpoint(folder: Path, keys: dict[str, Any]) -> None:
    from safetensors.numpy import save_file

    folder.mkdir(exist_ok=True)
    save_file(weights(), folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config_json(**keys)))
    # A byte tokenizer of GPT-2's kind: the printable bytes stand for themselves, the others for letters from 256 on.
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(byte) for byte in printable] + [chr(256 + n) for n in range(256 - len(printable))]
    known = dict.fromkeys(["<pad>", "<s>", "</s>", *letters])
    merges = [(letter, "e") for letter in letters[:VOCABULARY] if f"{letter}e" not in known][: VOCABULARY - len(known)]
    names = [*known, *(first + second for first, second in merges)]
    special = [{"id": n, "content": names[n], "special": True, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False} for n in range(3)]  # fmt: skip
    tokenizer = {
        "version": "1.0", "added_tokens": special, "normalizer": None, "post_processor": None, "truncation": None,
        "padding": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                                           "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {name: n for n, name in enumerate(names)}, "merges": merges,
                  "dropout": None, "unk_token": None, "fuse_unk": False, "byte_fallback": False},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast",
                                                              "bos_token": "<s>", "eos_token": "</s>"}))  # fmt: skip


_CONVERT = (
    "import os, runpy, sys; vendor = os.environ['VENDOR']; sys.path[:0] = [vendor, vendor + '/gguf-py']; "
    "from conversion.base import TextModel; TextModel.get_vocab_base_pre = lambda self, tokenizer: 'gpt-2'; "
    "runpy.run_path(vendor + '/convert_hf_to_gguf.py', run_name='__main__')"
)


def _converted(folder: Path, keys: dict[str, Any], target: Path) -> None:
    _write_checkpoint(folder, keys)
    done = subprocess.run([sys.executable, "-c", _CONVERT, str(folder), "--outfile", str(target), "--outtype", "f32"],
                          capture_output=True, text=True, check=False)  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])


def _llama_cpp_logits(path: Path, **flags: float) -> Array:
    from llama_cpp import Llama  # type: ignore[import-not-found, unused-ignore]

    model = Llama(str(path), n_ctx=LONGEST, n_batch=LONGEST, n_ubatch=LONGEST, logits_all=True, type_k=0, type_v=0,
                  flash_attn=False, n_threads=1, n_threads_batch=1, verbose=False, **flags)  # fmt: skip
    model.eval(words())
    return np.array(model.scores[POSITIONS], dtype=np.float64)


def of_llama_cpp_converter() -> list[Result]:
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as place:
        for case, block in {
            "llama/yarn/v4/256/1024": YARN,
            "llama/yarn: betas/v4/256/1024": {**YARN, "beta_fast": 16.0, "beta_slow": 2.0},
        }.items():
            target = Path(place) / f"{len(results)}.gguf"
            _converted(Path(place) / f"folder{len(results)}", v4(block), target)
            gap = gap_of_logits(_llama_cpp_logits(target), block)
            results.append((case, block, "the script on a folder by hand, then llama_cpp.Llama", gap))
    return results


def of_llama_cpp_gguf() -> list[Result]:
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as place:
        unscaled = Path(place) / "unscaled.gguf"
        _converted(Path(place) / "folder", {"rope_theta": 10_000.0}, unscaled)
        for case, block in (("llama/yarn: betas/v5/256/1024", {**YARN, "beta_fast": 16.0, "beta_slow": 2.0}),
                            ("llama/dynamic/v5/256/1024", DYNAMIC)):  # fmt: skip
            target, route = Path(place) / f"{len(results)}.gguf", "the command posenc gguf, then llama_cpp.Llama"
            command = [sys.executable, "-m", "posenc", "gguf", str(unscaled), str(target), "--rope", json.dumps(block)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                results.append((case, block, route, done.stderr.strip().splitlines()[-1].replace(place, "FOLDER")))
            else:
                results.append((case, block, route, gap_of_logits(_llama_cpp_logits(target), block)))
    return results


def of_llama_cpp_flags() -> list[Result]:
    """The parameters behind --rope-scaling yarn and its like, given to llama_cpp.Llama; the file has no scaling."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as place:
        unscaled = Path(place) / "plain.gguf"
        _converted(Path(place) / "folder", {"rope_theta": 10_000.0}, unscaled)
        for case, block, options in (
            ("llama/yarn/v5/256/1024", YARN, {}),
            ("llama/yarn: betas/v5/256/1024", {**YARN, "beta_fast": 16.0, "beta_slow": 2.0},
             {"yarn_beta_fast": 16.0, "yarn_beta_slow": 2.0}),
        ):  # fmt: skip
            flags = {"rope_scaling_type": 2, "rope_freq_scale": 0.25, "yarn_orig_ctx": ORIGINAL, **options}
            gap = gap_of_logits(_llama_cpp_logits(unscaled, **flags), block)
            results.append((case, block, "llama_cpp.Llama with parameters by hand", gap))
    return results


# ------------------------------------------------------------------------------------------------------------- record

_LLAMA_CPP = ("llama_cpp_converter", "llama_cpp_gguf", "llama_cpp_flags")
_PACKAGES = {"mlx_lm": "mlx-lm", **dict.fromkeys(_LLAMA_CPP, "llama_cpp_python")}
ENGINES: dict[str, Callable[[], list[Result]]] = {
    name.removeprefix("of_"): function for name, function in list(globals().items()) if name.startswith("of_")
}


def lines_of(engine: str) -> list[dict[str, Any]]:
    """What this file finds of one engine."""
    measures = "logits" if engine in ("mlx_lm", *_PACKAGES) else "cos and sin"
    facts = {"engine": engine, "version": importlib.metadata.version(_PACKAGES.get(engine, engine)),
             "date": datetime.datetime.now(datetime.UTC).date().isoformat(), "measures": measures}  # fmt: skip
    lines = []
    for case, block, route, gap in ENGINES[engine]():
        if isinstance(gap, str):
            outcome: dict[str, Any] = {"verdict": "refused", "text": gap}
        else:
            outcome = {"verdict": "right" if gap <= RIGHT[measures] else "wrong", "gap": float(f"{gap:.3g}")}
        lines.append({**facts, "case": case, "route": route, **outcome, "block": block})
    return lines


def main(engines: list[str]) -> None:
    for engine in engines or list(ENGINES):
        if len(engines) != 1:  # engines stub each other's modules
            subprocess.run([sys.executable, __file__, engine], check=True)
            continue
        lines = lines_of(engine)
        before = json.loads(RECORD.read_text()) if RECORD.exists() else []
        content = [line for line in before if line["engine"] != engine] + lines
        order = list(ENGINES)
        content.sort(key=lambda line: order.index(line["engine"]))
        RECORD.write_text("[\n" + ",\n".join(f" {json.dumps(line)}" for line in content) + "\n]\n")
        sys.stdout.write("".join(f"{json.dumps(line)}\n" for line in lines))


if __name__ == "__main__":
    main(sys.argv[1:])
