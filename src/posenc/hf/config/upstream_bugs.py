"""Known upstream bugs: configurations that lost a value between versions, spellings or engines.

Each says what is wrong, what it cost where that was measured, and what to write instead. What cannot be seen in a
configuration (a block set after the model was made, an attention function without its mask) is not here.

Source: threads on GitHub: Open-Athena/MarinFold#184 (version 5 read by version 4), unslothai/unsloth#7028 (linear
    scaling in the place of llama3's, and a lost base), huggingface/transformers#48241 (a lost rotary_dim),
    vllm-project/vllm#18728 and sgl-project/sglang#6030 (YaRN on short prompts), Blaizzy/mlx-vlm#1710 (llama3's recipe
    left out).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from posenc.hf.config.rope_block import ALL, OUTSIDE, SCALED_FROM, RopeBlock
from posenc.hf.config.rotation import Rotation, text_rope
from posenc.hf.config.text_config import TextConfig, max_length
from posenc.hf.families.layer_patterns import FULL, SLIDING
from posenc.hf.findings import Finding
from posenc.hf.limits import TOKENS, is_count
from posenc.hf.sources.load import Config

_LLAMA_3 = {"model_type": "llama", "vocab_size": 128256}  # with a length of 131,072: 3.1, 3.2 and 3.3
_LLAMA_3_BASE = 5e5
_LONG = 131072
_SHARES = {"minimax_m2": 64}  # channels of 128 that all released models of a family rotate
_SHORTEST_RELEASE = 65_536  # tokens
_CARDS = ("qwen2", "qwen3")  # families whose model cards tell users to add YaRN for long texts


def on_upstream_bugs(
    config: Config, text_config: TextConfig, rope_block: RopeBlock, rope: Rotation
) -> Iterator[Finding]:
    """The known faults of one kind of layers."""
    yield from _on_spelling(config, text_config, rope_block)
    yield from _on_base(text_config, rope_block, rope)
    yield from _on_llama_3(text_config, rope_block)
    yield from _on_reach(text_config, rope_block, rope)
    yield from _on_share(text_config, rope_block, rope)
    yield from _on_short_prompts(text_config, rope_block)


def _on_spelling(config: Config, text_config: TextConfig, rope_block: RopeBlock) -> Iterator[Finding]:
    """A block of version 5 without what version 4 reads."""
    values, family = rope_block.effective, text_config.rotation
    outside = any(text_config.get(name) is not None for name in (*OUTSIDE["rope_theta"], "rope_scaling"))
    lost = values["rope_theta"] != family.base or values.get("rope_type", "default") != "default"
    other = not text_config.known or family.nested or bool(family.kinds) or text_config.family.since > 4
    if "rope_parameters" not in text_config or outside or not lost or other:
        return
    version = config.get("transformers_version")
    written = isinstance(version, str) and version.startswith("4.")
    text = "is the spelling of transformers 5, and version 4 reads nothing of it: "
    if written:
        text = (
            f"is the spelling of transformers 5, and transformers_version says {version}, which reads nothing of it: "
        )
    losses = []
    if values["rope_theta"] != family.base:
        losses.append(f"its base would be {family.base:g}, not {values['rope_theta']:g}")
    if values.get("rope_type", "default") != "default":
        losses.append(f"the scaling {values['rope_type']!r} would be lost")
    text += f"{' and '.join(losses)}; posenc convert --spelling both writes the keys of both versions"
    yield Finding("rope_parameters", text, "version-5-spelling", "fault" if written else "note")


def _on_base(text_config: TextConfig, rope_block: RopeBlock, rope: Rotation) -> Iterator[Finding]:
    """No base, and a default too small for the length."""
    values, block, family = rope_block.effective, rope_block.values or {}, text_config.rotation
    length = rope_block.longest
    if values.get("rope_type") in SCALED_FROM:
        length = values.get("original_max_position_embeddings", length)
    elif values.get("rope_type") == "linear" and length is not None:
        length = int(length / values["factor"])
    if "rope_theta" in block or length is None or family.fixed or family.bases_key or rope_block.kind == SLIDING:
        return
    if not text_config.known:  # its code may have another default, or another key
        return
    base = values["rope_theta"]
    slowest = _slowest(base, rope)
    if slowest >= length and is_llama_3(text_config):
        length = max_length(text_config) or length
    if slowest < length:
        text = f"is not given, and with {base:g}, this family's default, the slowest pair completes one rotation in "
        text += f"{slowest:,.0f} tokens; the file declares {length:,}. A base may have been lost between spellings: "
        text += "compare with rope_theta of the original checkpoint (Llama 3: 500000, Qwen 2.5: 1000000)"
        yield Finding("rope_theta", text, "base-lost", "fault" if is_llama_3(text_config) else "suspicion")


def is_llama_3(text_config: TextConfig) -> bool:
    """Whether this is a Llama whose context was extended to 131,072 tokens by its own recipe: 3.1, 3.2 or 3.3."""
    length = max_length(text_config) or 0
    return length >= _LONG and {key: text_config.get(key) for key in _LLAMA_3} == _LLAMA_3


def _on_llama_3(text_config: TextConfig, rope_block: RopeBlock) -> Iterator[Finding]:
    """Linear scaling, or none, of a model that has Llama 3's recipe."""
    rope_type = rope_block.effective.get("rope_type", "default")
    if not is_llama_3(text_config) or rope_type not in ("default", "linear"):
        return
    if rope_type == "linear":
        text = (
            "'linear' stands where Llama 3.1 and later have 'llama3', and slows the fast pairs too, which that recipe "
        )
        text += "leaves alone: perplexity went from 10 to 166 at position 65,000; keep the llama3 block of the "
        text += "checkpoint (preset('llama-3.1')) and raise max_position_embeddings alone"
        yield Finding("rope_type", text, "linear-over-llama3", "fault")
    elif rope_block.effective["rope_theta"] == _LLAMA_3_BASE and "rope_theta" in (rope_block.values or {}):
        text = (
            f"is {rope_block.longest:,}, which Llama 3.1 and later reach by rope type 'llama3' alone, and no scaling "
        )
        text += (
            "is given: the queries that transformers rotates then have a cosine of 0.76 with the trained ones at 8,192 "
        )
        text += "tokens, 0.50 at 60,000; write the llama3 block of the checkpoint (preset('llama-3.1'))"
        yield Finding("max_position_embeddings", text, "scaling-lost", "fault")


def _on_reach(text_config: TextConfig, rope_block: RopeBlock, rope: Rotation) -> Iterator[Finding]:
    """A base whose slowest pair completes a rotation within the length, and no scaling."""
    block = rope_block.values or {}
    if (
        "rope_theta" not in block
        or rope_block.longest is None
        or rope_block.effective.get("rope_type", "default") != "default"
    ):
        return
    slowest = _slowest(block["rope_theta"], rope)
    windowed = is_count(text_config.get("sliding_window"), TOKENS)
    if slowest < rope_block.longest and rope_block.kind in (ALL, FULL) and not windowed:
        text = (
            f"is {rope_block.longest:,}, and with base {block['rope_theta']:g} the slowest pair completes a rotation "
        )
        text += f"in {slowest:,.0f} tokens, without any scaling: the configuration does not say whether the model was "
        text += "trained at that length; "
        text += "compare its loss at both lengths (posenc doctor --weights)"
        yield Finding("max_position_embeddings", text, "length-beyond-base")


def _slowest(base: float, rope: Rotation) -> float:
    """Tokens in which the slowest pair rotates once."""
    channels = text_rope(rope).rotary_dim
    return float(2 * math.pi * base ** ((channels - 2) / channels))


def _on_share(text_config: TextConfig, rope_block: RopeBlock, rope: Rotation) -> Iterator[Finding]:
    """All channels rotate in a family whose released models rotate some."""
    released, head_dim = _SHARES.get(text_config.model_type), text_rope(rope).head_dim
    small = rope_block.longest is not None and rope_block.longest < _SHORTEST_RELEASE  # a model of other weights
    if (
        released is not None
        and not small
        and not {"rotary_dim", "partial_rotary_factor"} & set(rope_block.values or {})
    ):
        text = f"is not given, so that all {head_dim} channels of a head rotate; released models of this family "
        text += (
            f"rotate {released} of 128, and a model that lost the key when it was saved wrote gibberish (13.1 nats of "
        )
        text += f"divergence a token); write rotary_dim: {released}, or partial_rotary_factor: {released / 128:g}"
        yield Finding("rotary_dim", text, "share-lost", "suspicion")


def _on_short_prompts(text_config: TextConfig, rope_block: RopeBlock) -> Iterator[Finding]:
    """YaRN added to a model that was trained without."""
    values, name = rope_block.effective, text_config.model_type
    if not name.startswith(_CARDS) or values.get("rope_type") != "yarn" or values["factor"] <= 1:
        return
    original = values["original_max_position_embeddings"]
    text = f"'yarn' acts at every length, so it also changes prompts of fewer than {original:,} tokens; remove the "
    text += f"block if no text is longer, else set factor to the longest text / {original:,} and no more"
    yield Finding("rope_type", text, "yarn-on-short-prompts")
