"""Writes `authors_rope`: frequencies and gains that the authors' own files of each rope type compute.

    python -m tests.golden.authors_rope FOLDER     # with a clone of each repository as FOLDER/OWNER+NAME (or …/repo)

The functions are run out of the file at the commit that `benchmarks.engines.reference_formulas` names, unchanged but
for casts to float32, which become float64. Sizes as in `benchmarks.engines.cases`: 32 channels, base 10,000, 256
tokens, ×4.
"""

from __future__ import annotations

import ast
import math
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from benchmarks.engines import reference_formulas as authors

from tests.golden import save

HEAD, BASE, ORIGINAL, FACTOR = 32, 10_000.0, 256, 4.0
FACTORS = [1 + 3 * pair / 15 for pair in range(16)]


def names_of(folder: Path, source: authors.Source, *names: str) -> dict[str, Any]:
    """Functions and classes of an authors' file, in float64."""
    repository, commit, lines = source.lines.split(" ")
    clone = folder / repository.replace("/", "+")
    clone = clone / "repo" if (clone / "repo").is_dir() else clone
    show = ["git", "-C", str(clone), "show", f"{commit}:{lines.partition('#')[0]}"]
    text = subprocess.run(show, check=True, capture_output=True, text=True).stdout
    text = re.sub(r"\b(torch|jnp)\.float32\b", r"\1.float64", text.replace(".float()", ".double()"))
    text = text.replace("dtype=torch.float,", "dtype=torch.float64,")
    numpy = SimpleNamespace(**vars(np))
    known: dict[str, Any] = {"torch": torch, "nn": torch.nn, "math": math, "jnp": numpy,
                             "jax": SimpleNamespace(Array=np.ndarray)}  # fmt: skip
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in names:
            exec(compile(ast.Module([node], []), lines, "exec"), known)
    return known


def compute_arrays(folder: Path) -> dict[str, Any]:
    """The arrays by name."""
    torch.set_default_dtype(torch.float64)
    arrays: dict[str, Any] = {}
    meta = names_of(folder, authors.META, "precompute_freqs_cis", "apply_scaling")
    arrays["default"] = meta["precompute_freqs_cis"](HEAD, 2, BASE).angle()[1]
    arrays["llama3_base_500000_original_8192"] = meta["precompute_freqs_cis"](HEAD, 2, 5e5, use_scaled=True).angle()[1]
    linear = names_of(folder, authors.KAIOKENDEV, "DilatedRotaryEmbedding")["DilatedRotaryEmbedding"](HEAD)
    arrays["linear_sin"] = linear.sin_cached[0, 0, 1, : HEAD // 2]
    dynamic = names_of(folder, authors.DYNAMIC, "LlamaDynamicScaledRotaryEmbedding")
    for length in (128, 768, 1024):
        module = dynamic["LlamaDynamicScaledRotaryEmbedding"](HEAD, ORIGINAL, BASE, ntk=FACTOR)
        module(torch.zeros(1), seq_len=length)
        arrays[f"dynamic_{length}"] = module.inv_freq
    yarn = names_of(folder, authors.YARN, "find_correction_dim", "find_correction_range", "linear_ramp_mask",
                    "get_mscale", "LlamaYaRNScaledRotaryEmbedding")["LlamaYaRNScaledRotaryEmbedding"]  # fmt: skip
    for name, width, betas in (("yarn", HEAD, {}), ("yarn_betas", HEAD, {"beta_fast": 16, "beta_slow": 2}),
                               ("yarn_partial", HEAD // 2, {})):  # fmt: skip
        module = yarn(width, 1024, BASE, FACTOR, ORIGINAL, **betas)
        arrays[name], arrays[f"{name}_gain"] = module.inv_freq, module.mscale
    deepseek = names_of(
        folder, authors.DEEPSEEK, "yarn_find_correction_dim", "yarn_find_correction_range", "yarn_get_mscale",
        "yarn_linear_ramp_mask", "DeepseekV2RotaryEmbedding", "DeepseekV2YarnRotaryEmbedding",
    )["DeepseekV2YarnRotaryEmbedding"]  # fmt: skip
    for name, scales in (("deepseek", {}), ("deepseek_pair", {"mscale": 1.0, "mscale_all_dim": 0.5}),
                         ("deepseek_lone", {"mscale": 0.707})):  # fmt: skip
        module = deepseek(HEAD, 1024, BASE, None, FACTOR, ORIGINAL, **scales)
        arrays[name], arrays[f"{name}_gain"] = module.inv_freq, module.cos_cached[0, 0]
    openai = names_of(folder, authors.OPENAI, "RotaryEmbedding")["RotaryEmbedding"]
    module = openai(HEAD, BASE, torch.float64, ORIGINAL, FACTOR)
    arrays["openai_gain"], arrays["openai"] = module._compute_concentration_and_inv_freq()
    microsoft = names_of(folder, authors.MICROSOFT, "LongRoPEScaledRotaryEmbedding")["LongRoPEScaledRotaryEmbedding"]
    module = microsoft(
        HEAD, FACTORS, max_position_embeddings=1024, original_max_position_embeddings=ORIGINAL, base=BASE
    )
    arrays["longrope"], arrays["longrope_gain"] = module._calc_inv_freq(1024, None), module.mscale
    google = names_of(folder, authors.GOOGLE, "apply_rope")["apply_rope"]
    ones = np.concatenate([np.ones((1, 1, 1, HEAD // 2)), np.zeros((1, 1, 1, HEAD // 2))], -1)
    rotated = google(ones, np.ones((1, 1)), base_frequency=1e6, rope_proportion=0.25)[0, 0, 0]
    arrays["proportional_base_1000000"] = np.arctan2(rotated[HEAD // 2 :], rotated[: HEAD // 2])
    return {name: np.asarray(value, dtype=np.float64) for name, value in arrays.items()}


def main(folder: str) -> None:
    told = {"head_dim": HEAD, "base": BASE, "original": ORIGINAL, "factor": FACTOR, "long_factor": FACTORS}
    save("authors_rope", compute_arrays(Path(folder)), told)


if __name__ == "__main__":
    main(sys.argv[1])
