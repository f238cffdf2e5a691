"""Configurations drawn by hypothesis: every rope type in every spelling."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

PAIRS = 16  # of the 32 channels of a head
LENGTHS = st.sampled_from([128, 2048, 4096, 8192, 32768])
FACTORS = st.floats(1, 64, allow_nan=False) | st.integers(1, 64)
BASES = st.sampled_from([10000, 10000.0, 500000.0, 1e6]) | st.floats(100, 1e8)


@st.composite
def blocks(draw: st.DrawFn, rope_type: str, pairs: int = PAIRS) -> dict[str, Any]:
    """A right block of one rope type, without its base, its share and its name."""
    block: dict[str, Any] = {}
    if rope_type in ("linear", "dynamic", "yarn", "llama3"):
        block["factor"] = draw(FACTORS)
    if rope_type in ("yarn", "llama3", "longrope"):
        block["original_max_position_embeddings"] = draw(LENGTHS)
    if rope_type == "yarn":
        optional = {
            "attention_factor": st.floats(0.5, 2) | st.just(1) | st.none(),
            "beta_fast": st.sampled_from([32, 32.0, 64.0]),
            "beta_slow": st.sampled_from([1, 1.0, 2.5]),
            "mscale": st.sampled_from([0.707, 1, 1.0, 2.0]),
            "mscale_all_dim": st.sampled_from([0, 0.707, 1.0]),
            "truncate": st.booleans(),
            "finetuned": st.booleans(),
        }
        block |= {key: draw(value) for key, value in optional.items() if draw(st.booleans())}
    if rope_type == "llama3":
        block |= {
            "low_freq_factor": draw(st.sampled_from([1, 0.5, 1.0])),
            "high_freq_factor": draw(st.sampled_from([4, 8.5])),
        }
    if rope_type == "longrope":
        factors = st.lists(st.floats(1, 64), min_size=pairs, max_size=pairs)
        block |= {"short_factor": draw(factors), "long_factor": draw(factors)}
        block |= draw(st.sampled_from([{}, {"factor": 8.0}, {"factor": 4, "attention_factor": 1.25}]))
    if rope_type == "proportional" and draw(st.booleans()):
        block["factor"] = draw(FACTORS)
    return block


@st.composite
def configs(
    draw: st.DrawFn, rope_types: str = "default linear dynamic yarn longrope llama3 proportional"
) -> dict[str, Any]:
    """A right configuration of a model like Llama, in the spelling of version 4 or 5."""
    rope_type = draw(st.sampled_from(rope_types.split()))
    share = draw(st.sampled_from([None, 0.25, 0.5, 1, 1.0]))
    pairs = PAIRS if share is None or rope_type == "proportional" else int(32 * share) // 2
    block = draw(blocks(rope_type, pairs))
    name = draw(st.sampled_from(["rope_type", "type"]))
    base = draw(BASES)
    widths = draw(st.sampled_from([{"head_dim": 32}, {"hidden_size": 128, "num_attention_heads": 4}]))
    config = {"model_type": "llama", **widths, "max_position_embeddings": 65536, "vocab_size": 100}
    shares = {} if share is None else {"partial_rotary_factor": share}
    if draw(st.booleans()):
        return {**config, "rope_parameters": {name: rope_type, "rope_theta": base, **shares, **block}}
    scaling = None if rope_type == "default" and not block else {name: rope_type, **block}
    return {**config, "rope_theta": base, **shares, "rope_scaling": scaling}
