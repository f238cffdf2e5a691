"""litgpt: GPT.rope_cache with the block's numbers under litgpt's names; it reads no config.json.

Source: litgpt 0.5.13, model.py (GPT.rope_cache and build_rope_cache), config.py (rope_adjustments).
"""

from __future__ import annotations

from typing import Any

from benchmarks.engines.adapters import Adapter, NotRunError, Question, Rows, installed
from benchmarks.engines.adapters._configs import head_size, rows_of, version_5_block

_KEYS = {
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),
}


def measure(question: Question) -> Rows:
    """cos and sin of the cache of a GPT."""
    import torch
    from litgpt import GPT, Config  # type: ignore[import-not-found, unused-ignore]

    block = version_5_block(question.config)
    kind, settings = block["rope_type"], dict[str, Any]()
    if kind == "linear":
        settings["rope_condense_ratio"] = block["factor"]
    elif kind in _KEYS:
        unknown = set(block) - {*_KEYS[kind], "rope_type", "rope_theta", "original_max_position_embeddings"}
        if unknown:
            raise NotRunError(f"rope_adjustments has no key for {', '.join(sorted(unknown))}")
        adjustments = {key: block[key] for key in _KEYS[kind] if key in block}
        defaults = {"beta_fast": 32.0, "beta_slow": 1.0} if kind == "yarn" else {}
        original = block["original_max_position_embeddings"]
        settings["rope_adjustments"] = {**defaults, **adjustments, "original_max_seq_len": original}
    elif kind != "default":
        raise NotRunError(f"rope_adjustments has no such scaling as {kind}")
    with torch.device("meta"):
        model = GPT(Config(
            block_size=question.length, n_layer=1, n_head=4, n_embd=4 * head_size(question.config), vocab_size=300,
            padded_vocab_size=300, rotary_percentage=block.get("partial_rotary_factor", 1.0),
            rope_base=block["rope_theta"], **{**settings, **question.options},
        ))  # fmt: skip
    cos, sin = model.rope_cache(device=torch.device("cpu"))
    at, half = torch.tensor(question.positions), cos.shape[-1] // 2
    return rows_of(cos[at, :half], sin[at, :half])


ADAPTER = Adapter(
    "litgpt", "pip install --no-deps litgpt==0.5.13", installed("litgpt"), "cos and sin", measure,
    "GPT.rope_cache, the block's numbers under litgpt's names",
    route="rows of the model's own cache; the adapter translates the block's keys, as litgpt reads no config.json",
)  # fmt: skip
