"""How far four engines are from transformers, by a script that shares no code with `python -m benchmarks.engines`.

The table that posenc carries, src/posenc/hf/serving/engine_table.json, is made from the check's records, not from this
script; docs/serving.md quotes its plug-in runs.

    python -m benchmarks.engines.four_engines vllm        # or sglang, llama.cpp, mlx-lm; prints one JSON object
    python -m benchmarks.engines.four_engines vllm-plug-in    # or sglang-plug-in: posenc's table in the engine's class

Each engine's own code runs, on a CPU; the reference is transformers in the same process. Installed by hand, each into
an environment of its own with posenc[all]:

    vllm         the unpacked source distribution of vllm==0.33.0 on PYTHONPATH, and what its imports ask for
    sglang       the unpacked wheel of sglang==0.5.23 on PYTHONPATH, and what its imports ask for
    llama.cpp    pip install llama_cpp_python==0.3.36; VENDOR=its source distribution's vendor/llama.cpp
    mlx-lm       pip install mlx-lm==0.32.2 "mlx[cpu]"

Of vLLM and SGLang the rotary classes: the largest difference of gain times cos and sin at one position. Of llama.cpp
and mlx-lm whole models with random weights (seeds 0 to 2): the largest difference of logits over the largest logit.
"""

from __future__ import annotations

import copy
import ctypes
import json
import math
import os
import runpy
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

Block = dict[str, Any]
HEAD, FACTOR, POSITION = 64, 4.0, 10_000
PAIRS, VOCABULARY, TOKENS, SHORT_CONTEXT, LONG_CONTEXT = HEAD // 2, 300, 700, 256, 4096
GAIN = 1.2
SECTIONS: Block = {"mrope_section": [12, 10, 10], "mrope_interleaved": True}


def cases(original: int) -> dict[str, Block]:
    """The blocks of the table's rows."""
    scaled: Block = {"factor": FACTOR, "original_max_position_embeddings": original, "rope_theta": 1e4}
    yarn, lists = {"rope_type": "yarn", **scaled}, {"rope_type": "longrope", **scaled}
    lists["short_factor"] = [1 + 0.01 * pair for pair in range(PAIRS)]
    lists["long_factor"] = [1 + 3 * pair / (PAIRS - 1) for pair in range(PAIRS)]
    gains = {"short_mscale": GAIN, "long_mscale": GAIN}
    return {
        "default": {"rope_type": "default", "rope_theta": 1e4},
        "linear": {"rope_type": "linear", "factor": FACTOR, "rope_theta": 1e4},
        "dynamic": {"rope_type": "dynamic", "factor": FACTOR, "rope_theta": 1e4},
        "llama3": {**scaled, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        "yarn": yarn,
        "yarn: attention_factor": {**yarn, "attention_factor": 1.0},
        "yarn: mscale and mscale_all_dim": {**yarn, "mscale": 1.0, "mscale_all_dim": 0.5},
        "yarn: one of mscale and mscale_all_dim": {**yarn, "mscale": 0.707},
        "yarn: betas": {**yarn, "beta_fast": 16.0, "beta_slow": 2.0},
        "yarn: truncate false": {**yarn, "truncate": False},
        "longrope": lists,
        "longrope: attention_factor": {**lists, "attention_factor": 1.0},
        "longrope: short_mscale and long_mscale": {**lists, **gains, "attention_factor": GAIN},
        "partial": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
        "proportional": {"rope_type": "proportional", "rope_theta": 1e4, "partial_rotary_factor": 0.25},
    }


def mrope_cases() -> dict[str, Block]:
    """The rows of M-RoPE, of rotary classes alone: at a text's positions, equal on all axes, its angles are RoPE's."""
    block = {**cases(LONG_CONTEXT)["yarn"], **SECTIONS}
    return {"yarn: M-RoPE": block, "yarn: M-RoPE, Qwen3-VL and Qwen3.5": {**block, "mrope_positions_factor": 1}}


def longest(case: str, original: int) -> int:
    """What the configuration declares."""
    return original if case == "dynamic" else round(original * FACTOR)


def without_gains(block: Block) -> Block:
    """What transformers knows of a block."""
    return {
        key: copy.deepcopy(value)
        for key, value in block.items()
        if not key.endswith("_mscale") and not key.startswith("mrope")
    }


# ---------------------------------------------------------------------------------------------------- rotary classes


def angles(block: Block, declared: int, position: int) -> tuple[Tensor, Tensor]:
    """gain cos and gain sin of one position in transformers."""
    block = without_gains(block)
    config = transformers.LlamaConfig(
        hidden_size=4 * HEAD, num_attention_heads=4, head_dim=HEAD, max_position_embeddings=declared,
        rope_parameters=block,
    )  # fmt: skip
    if block["rope_type"] == "default":
        width = round(HEAD * block.get("partial_rotary_factor", 1.0))
        theta, gain = 1e4 ** (-torch.arange(0, width, 2).float() / width), 1.0
    else:
        theta, gain = ROPE_INIT_FUNCTIONS[block["rope_type"]](config, "cpu", seq_len=position + 1)
    angle = position * theta.double()
    return gain * angle.cos(), gain * angle.sin()


def of_module(rotary: Any, position: int, width: int) -> tuple[Tensor, Tensor]:
    """cos and sin of an engine's module: from its table, or from rotating unit vectors of all first channels."""
    at = torch.tensor([position])
    if hasattr(rotary, "cos_sin_cache"):
        if position >= len(rotary.cos_sin_cache):
            raise IndexError(f"its table ends at {len(rotary.cos_sin_cache)}")
        cos, sin = rotary.cos_sin_cache[position].double().chunk(2)
        return cos, sin
    x = torch.zeros(1, HEAD)
    x[:, : width // 2] = 1
    call = rotary.forward if type(rotary).__name__.startswith("Phi3") else rotary.forward_native
    y = call(at, x.clone(), x.clone())[0][0].flatten().double()
    return y[: width // 2], y[width // 2 : width]


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
        block = copy.deepcopy(block)
        factor = block.pop("mrope_positions_factor", 4)  # 4 is get_rope's default; Qwen3-VL and Qwen3.5 pass 1
        return get_rope(HEAD, declared, True, block, torch.float32, mrope_positions_factor=factor)


def sglang_class(block: Block, declared: int) -> Any:
    """SGLang's."""
    extension = types.ModuleType("vllm._custom_ops")
    extension.rotary_embedding = None  # type: ignore[attr-defined]
    extension.__getattr__ = lambda name: None  # type: ignore[method-assign, assignment]
    sys.modules.setdefault("vllm._custom_ops", extension)
    from sglang.srt.layers.rotary_embedding.factory import (  # type: ignore[import-not-found, unused-ignore]
        get_rope,
    )

    block = {key: value for key, value in block.items() if key != "mrope_positions_factor"}
    share = block.get("partial_rotary_factor", 1.0)
    return get_rope(HEAD, HEAD, declared, 1e4, True, copy.deepcopy(block), torch.float32, share)


def of_plug_in(name: str, engine: Callable[[Block, int], Any]) -> dict[str, float]:
    """How far the table that posenc's plug-in puts into the engine's own class is from posenc's, at every position."""
    from posenc import DynamicNTK, Llama3, RoPE, YaRN
    from posenc.hf import plugin_block

    if name == "sglang":
        sglang_class({"rope_type": "default", "rope_theta": 1e4}, 8)  # which imports it
        from sglang.srt.plugins.hook_registry import HookRegistry  # type: ignore[import-not-found, unused-ignore]

        from posenc.hf.serving import sglang_plugin

        sglang_plugin.register()
        HookRegistry.apply_hooks()
    else:
        vllm_class({"rope_type": "default", "rope_theta": 1e4}, 8)
        from posenc.hf.serving import vllm_plugin

        vllm_plugin.register()
    gaps_by_scaling, tokens = {}, 8 * LONG_CONTEXT
    for scaling in (None, YaRN(FACTOR, original_length=LONG_CONTEXT), DynamicNTK(FACTOR, original_length=LONG_CONTEXT),
                    Llama3(2 * FACTOR, original_length=2 * LONG_CONTEXT)):  # fmt: skip
        rope = RoPE(HEAD, scaling=scaling)
        from_engine = (
            engine(plugin_block(rope, length=tokens, tokens=tokens), tokens).cos_sin_cache[:tokens].chunk(2, -1)
        )
        from_posenc = rope.table(torch.arange(tokens), tokens)
        gaps = [float((a.double() - b.double()).abs().max()) for a, b in zip(from_engine, from_posenc, strict=True)]
        gaps_by_scaling["default" if scaling is None else type(scaling).__name__] = max(gaps)
    return gaps_by_scaling


def of_classes(engine: Callable[[Block, int], Any]) -> dict[str, float | str]:
    """A column of rotary classes."""
    column: dict[str, float | str] = {}
    rows = [(case, block, POSITION) for case, block in {**cases(LONG_CONTEXT), **mrope_cases()}.items()]
    within = cases(LONG_CONTEXT)["longrope"]
    for case, block, position in [*rows, ("longrope: within the original length", within, 1000)]:
        declared = longest(case, LONG_CONTEXT)
        right = angles(block, declared, position)
        try:
            from_engine = of_module(engine(block, declared), position, 2 * len(right[0]))
        except Exception as error:  # whatever an engine raises is a cell of the table
            column[case] = f"{type(error).__name__}: {error}"
            continue
        column[case] = max(float((a[: len(b)] - b).abs().max()) for a, b in zip(from_engine, right, strict=True))
    return column


# ------------------------------------------------------------------------------------------------------ whole models


def small(block: Block, declared: int) -> Any:
    """A Llama of two layers with random weights."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=4 * HEAD, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=HEAD, max_position_embeddings=declared, tie_word_embeddings=False,
        bos_token_id=1, eos_token_id=2, pad_token_id=0, rope_parameters=without_gains(block),
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval().float()
    draw = torch.Generator().manual_seed(2)
    for name, weight in model.named_parameters():
        if "norm" not in name:
            sharp = 2.0 if "q_proj" in name or "k_proj" in name else 1.0
            weight.data = torch.randn(weight.shape, generator=draw) * sharp / math.sqrt(weight.shape[-1])
    return model


def text() -> Tensor:
    return torch.randint(3, VOCABULARY, (1, TOKENS), generator=torch.Generator().manual_seed(1))


def gap(actual: Tensor, right: Tensor) -> float:
    return float((actual - right).abs().max() / right.abs().max())


def llama_cpp_logits(path: Path, context: int) -> Tensor:
    """Of all tokens, by llama.cpp."""
    import llama_cpp as engine  # type: ignore[import-not-found, unused-ignore]
    import numpy as np

    engine.llama_log_set(engine.llama_log_callback(lambda *a: None), ctypes.c_void_p(0))
    model = engine.llama_model_load_from_file(str(path).encode(), engine.llama_model_default_params())
    parameters = engine.llama_context_default_params()
    parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = context
    parameters.type_k = parameters.type_v = parameters.flash_attn_type = 0  # float32, and no flash attention
    ids, running = text()[0].tolist(), engine.llama_init_from_model(model, parameters)
    batch = engine.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for place, token in enumerate(ids):
        batch.token[place], batch.pos[place], batch.n_seq_id[place] = token, place, 1
        batch.seq_id[place][0], batch.logits[place] = 0, 1
    if engine.llama_decode(running, batch) != 0:
        raise RuntimeError("llama_decode failed")
    count = engine.llama_vocab_n_tokens(engine.llama_model_get_vocab(model))
    logits = np.ctypeslib.as_array(engine.llama_get_logits(running), shape=(len(ids) * count,)).copy()
    engine.llama_free(running)
    engine.llama_model_free(model)
    return torch.from_numpy(logits).view(len(ids), count)


def save(model: Any, folder: Path, block: Block) -> None:
    """A checkpoint with a byte tokenizer, whose configuration has the whole block."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    from posenc.hf.modeling.export import byte_letters

    model.save_pretrained(folder)
    letters = list(byte_letters())
    known = {"<pad>": 0, "<s>": 1, "</s>": 2, **{letter: 3 + place for place, letter in enumerate(letters)}}
    pairs = [(letter, "e") for letter in letters[33 : 33 + VOCABULARY - len(known)]]
    known |= {a + b: len(known) + place for place, (a, b) in enumerate(pairs)}
    tokenizer = Tokenizer(models.BPE(known, pairs))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    ).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"] = block
    (folder / "config.json").write_text(json.dumps(config))


def convert(folder: Path, target: Path) -> None:
    """By llama.cpp's script in VENDOR, in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--convert", str(folder), str(target)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])


def run_converter(folder: str, target: str) -> None:
    vendor = os.environ["VENDOR"]
    sys.path[:0] = [vendor, f"{vendor}/gguf-py"]
    sys.argv = ["convert_hf_to_gguf.py", folder, "--outfile", target, "--outtype", "f32"]
    from conversion.base import TextModel  # type: ignore[import-not-found, unused-ignore]

    TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
    runpy.run_path(f"{vendor}/convert_hf_to_gguf.py", run_name="__main__")


def of_llama_cpp() -> dict[str, dict[str, float | str]]:
    """Two columns: converted by its own script, and written by posenc."""
    from posenc.hf import write_gguf
    from posenc.hf.config.rope_argument import parse_rope_argument

    converted: dict[str, float | str] = {}
    written: dict[str, float | str] = {}
    with tempfile.TemporaryDirectory() as place:
        unscaled = Path(place) / "plain.gguf"
        for case, block in cases(SHORT_CONTEXT).items():
            if case in ("partial", "proportional"):
                continue
            model = small(block, longest(case, SHORT_CONTEXT))
            with torch.no_grad():
                right = model(text()).logits[0]
            folder = Path(place) / "folder"
            save(model, folder, block)
            for column, target in ((converted, folder / "own.gguf"), (written, folder / "posenc.gguf")):
                target.unlink(missing_ok=True)
                try:
                    if column is converted:
                        convert(folder, target)
                    else:
                        write_gguf(unscaled, target, partial(parse_rope_argument, json.dumps(block)))
                    column[case] = gap(llama_cpp_logits(target, 1024), right)
                except (ValueError, RuntimeError) as error:
                    column[case] = str(error)
                if case == "default" and column is converted:
                    unscaled.write_bytes(target.read_bytes())
    return {"llama.cpp's converter": converted, "llama.cpp, posenc gguf": written}


def of_mlx() -> dict[str, dict[str, float | str]]:
    """Two columns: by version 4's keys (next to version 5's), and by version 5's alone."""
    import mlx.core as mx  # type: ignore[import-not-found, unused-ignore]
    import numpy as np
    from mlx_lm.utils import load_model  # type: ignore[import-not-found, unused-ignore]

    columns: dict[str, dict[str, float | str]] = {"mlx-lm, version-4 keys": {}, "mlx-lm, version-5 keys": {}}
    with tempfile.TemporaryDirectory() as place:
        for case, block in cases(SHORT_CONTEXT).items():
            if case in ("partial", "proportional", "dynamic"):
                continue
            model = small(block, longest(case, SHORT_CONTEXT))
            with torch.no_grad():
                right = model(text()).logits[0]
            for column, older in zip(columns, (True, False), strict=True):
                save(model, folder := Path(place) / "folder", block)
                config = json.loads((folder / "config.json").read_text()) | {"dtype": "float32"}
                if older:
                    scaling = {key: value for key, value in block.items() if key != "rope_theta"}
                    config |= {"rope_theta": 1e4, "rope_scaling": {**scaling, "type": block["rope_type"]}}
                    config["rope_scaling"] = None if case == "default" else config["rope_scaling"]
                (folder / "config.json").write_text(json.dumps(config))
                loaded, _ = load_model(folder)
                logits = np.array(loaded(mx.array(text().numpy())).astype(mx.float32))
                columns[column][case] = gap(torch.tensor(logits)[0], right)
    return columns


def main() -> None:
    if sys.argv[1] == "--convert":
        return run_converter(*sys.argv[2:])
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    columns: dict[str, Callable[[], dict[str, Any]]] = {
        "vllm": lambda: {"vLLM": of_classes(vllm_class)},
        "sglang": lambda: {"SGLang": of_classes(sglang_class)},
        "vllm-plug-in": lambda: of_plug_in("vllm", vllm_class),
        "sglang-plug-in": lambda: of_plug_in("sglang", sglang_class),
        "llama.cpp": of_llama_cpp,
        "mlx-lm": of_mlx,
    }
    print(json.dumps(columns[sys.argv[1]](), indent=1))
    return None


if __name__ == "__main__":
    main()
