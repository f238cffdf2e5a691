"""Which scaling a config needs for a longer context: what a model's authors document, else a rule for its rope type.

A config without a scaling gets one; a config with one keeps its rope type, because the weights were trained under these
frequencies, and only the factor grows. N is the new length, D the length that the config declares, O the original one:

    none          YaRN by default, factor N / O; linear, dynamic or llama3 on request
    yarn          factor N / O, other keys kept; the gain follows the factor
    llama3        factor · N / D: slow pairs N / D times slower than in training, fast pairs as they are
    linear        factor · N / D
    proportional  factor · N / D; transformers divides all rotating frequencies by it
    longrope      refused: its factors were searched for D
    dynamic       refused: its frequencies follow the length already

Source: `DOCUMENTED` names the source of each recipe. transformers 5.23, modeling_rope_utils.py, for what a factor does.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from posenc.arguments import shown
from posenc.hf.config.block_schema import Block

AUTO = "auto"
METHODS = (AUTO, "yarn", "linear", "dynamic", "llama3")
_ALIASES = {"pi": "linear", "dynamic_ntk": "dynamic"}
_MEASURED = ("ntk", "longrope", "longrope2", "progressive", "drope", "self_extend", "rerope", "dual_chunk", "part_ntk")
_NAMES = {"yarn": "YaRN", "linear": "Linear scaling", "dynamic": "Dynamic NTK", "llama3": "Llama 3's scaling"}
_QWEN = "https://huggingface.co/Qwen"


@dataclass(frozen=True)
class Documented:
    """How the authors of a model document a longer context of it without a change of weights.

    Attributes:
        model: that the source is about.
        model_types: of its text config.
        declared: lengths in the configs of released models, in tokens.
        base: in these configs; another base is another model.
        method: rope type.
        original: training length that the factor counts from.
        longest: length that the source names.
        source: URL, or arXiv id with section.
        factors: by length, where the source's factor is not length / original.
        largest: factor that the source does not exceed; None: no such limit.
        note: what the source says besides.
    """

    model: str
    model_types: tuple[str, ...]
    declared: tuple[int, ...]
    base: float
    method: str
    original: int
    longest: int
    source: str
    factors: Mapping[int, float] = field(default_factory=dict)
    largest: float | None = None
    note: str = ""


DOCUMENTED = (
    Documented(
        "Qwen2.5-7B-Instruct", ("qwen2", "qwen2_moe"), (32768,), 1e6, "yarn", 32768, 131072,
        f"{_QWEN}/Qwen2.5-7B-Instruct#processing-long-texts",
    ),
    Documented(
        "Qwen3-8B", ("qwen3", "qwen3_moe"), (40960, 32768), 1e6, "yarn", 32768, 131072,
        f"{_QWEN}/Qwen3-8B#processing-long-texts",
        note="trained at 32,768 tokens; the 40,960 of its config are 32,768 for the answer and 8,192 for the prompt",
    ),
    Documented(
        "Qwen3.5", ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_5", "qwen3_5_moe"), (262144,), 1e7, "yarn", 262144,
        1010000, f"{_QWEN}/Qwen3.5-27B#processing-ultra-long-texts", {1010000: 4.0},
    ),
    Documented(
        "Qwen3-VL", ("qwen3_vl_text", "qwen3_vl_moe_text", "qwen3_vl", "qwen3_vl_moe"), (262144,), 5e6, "yarn", 262144,
        1000000, "https://github.com/QwenLM/Qwen3-VL", {1000000: 3.0}, 3.0,
        "factor 2 or 3 for 1M tokens and not 4, because positions of interleaved M-RoPE grow more slowly than tokens",
    ),
    Documented(
        "Gemma 3", ("gemma3_text", "gemma3"), (32768,), 1e6, "linear", 32768, 131072, "arXiv 2503.19786, section 5.3",
        {131072: 8.0}, None, "its authors trained on under this factor, and report fast degradation beyond this length",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class BlockChange:
    """The change of one rope block.

    Attributes:
        keys: keys of the block to set, ``rope_type`` first; empty: the rotation stays.
        method: rope type.
        factor: of the new block; None where it stays.
        original: tokens that the factor counts from; None where the rope type has no such key.
        declares: whether ``max_position_embeddings`` becomes the new length. Dynamic NTK starts from that key.
        documented: the recipe that was followed; None: no source documents this extension.
        notes: what a reader should know of this change.
    """

    keys: Block
    method: str
    factor: float | None = None
    original: int | None = None
    declares: bool = True
    documented: Documented | None = None
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The change in a clause: method, factor, original length."""
        name = _NAMES.get(self.method, f"Rope type {self.method!r}")
        over = f" over {self.original:,} tokens" if self.original else ""
        return f"{name}, factor {self.factor:.10g}{over}"


def check_method(method: object) -> str:
    """The rope type that a method's name stands for, or "auto"; a ValueError for any other name."""
    name = _ALIASES.get(method, method) if isinstance(method, str) else None
    if name in METHODS:
        return name
    if isinstance(method, str) and method.partition("+")[0] in _MEASURED:
        raise ValueError(
            f"method: {method} needs the model itself; without --config-only, posenc extend applies it and measures it"
        )
    near = difflib.get_close_matches(str(method), METHODS, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ValueError(f"method must be one of {', '.join(METHODS)} for a config alone, got {shown(method)}{hint}")


def documented_for(model_type: str, declared: int | None, base: float) -> Documented | None:
    """The authors' recipe for a config without a scaling; None where none is known here."""
    for recipe in DOCUMENTED:
        if model_type in recipe.model_types and declared in recipe.declared and base == recipe.base:
            return recipe
    return None


def documented_block(model_type: str, block: Block, length: int) -> Documented | None:
    """The authors' recipe that a block follows already, where it names the new length too; else None."""
    for recipe in DOCUMENTED:
        same = (block["rope_type"], block["rope_theta"]) == (recipe.method, recipe.base)
        same = same and block.get("original_max_position_embeddings") == recipe.original
        within = length <= recipe.longest and length / recipe.original <= (recipe.largest or math.inf)
        if model_type in recipe.model_types and same and within:
            return recipe
    return None


def new_scaling(method: str, length: int, original: int, recipe: Documented | None) -> BlockChange:
    """The scaling of a block that has none.

    Args:
        method: "auto" or a rope type of `METHODS`.
        length: new context length, in tokens.
        original: training length, in tokens.
        recipe: of the model's authors.
    """
    followed = recipe if recipe is not None and method in (AUTO, recipe.method) else None
    kind = method if method != AUTO else followed.method if followed is not None else "yarn"
    factor, notes = length / original, []
    if followed is not None:
        factor = followed.factors.get(length, factor)
        if followed.largest is not None and factor > followed.largest:
            if length > 4 * original:
                notes.append(f"the source stops at factor {followed.largest:g}")
            else:
                factor = followed.largest
        if followed.note:
            notes.append(f"{followed.model}: {followed.note}")
        if length > followed.longest:
            notes.append(f"the source names at most {followed.longest:,} tokens, fewer than {length:,}")
    keys: Block = {"rope_type": kind, "factor": float(factor)}
    if kind == "llama3":
        keys |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    if kind in ("yarn", "llama3"):
        keys["original_max_position_embeddings"] = original
    if kind == "yarn":
        notes.append(f"YaRN multiplies rotated queries and keys by {_gain(factor):.5f} (0.1 ln factor + 1)")
    if kind == "dynamic":
        notes.append(
            "max_position_embeddings stays, because transformers starts dynamic NTK from it; the frequencies change as "
            "a text grows, and keys in a cache keep the frequencies of the shorter text"
        )
    return BlockChange(
        keys, kind, float(factor), original, declares=kind != "dynamic", documented=followed, notes=tuple(notes)
    )


def grown_scaling(block: Block, method: str, length: int, declared: int, *, latent: bool = False) -> BlockChange:
    """The block of a config that has a scaling, for a longer context.

    Args:
        block: with its defaults, under the keys of version 5.
        method: "auto", or the rope type that the block has.
        length: new context length, in tokens.
        declared: length that the config declares, in tokens.
        latent: whether the attention is latent, so that mscale_all_dim scales its softmax.

    Raises:
        ValueError: for another method, and for a rope type whose numbers no rule extends.
    """
    kind = block["rope_type"]
    if method not in (AUTO, kind):
        raise ValueError(
            f"method: the config has rope type {kind!r} already, under which the weights were trained; {method} cannot "
            "start from it: use auto, which keeps the rope type"
        )
    if kind == "longrope":
        raise ValueError(
            f"method: rope type 'longrope' has a factor for each pair, searched for {declared:,} tokens, and no "
            "formula gives factors for another length, nor does posenc extend search on top of them; without "
            "--config-only, --method self_extend remaps distances instead"
        )
    if kind not in ("yarn", "llama3", "linear", "proportional"):
        follows = ": its frequencies follow the length of the text already" if kind.startswith("dynamic") else ""
        raise ValueError(f"method: rope type {kind!r} cannot be extended in the config alone{follows}")
    old = block.get("factor") or 1.0
    original = block.get("original_max_position_embeddings") if kind in ("yarn", "llama3") else None
    factor: float = length / original if kind == "yarn" and original else old * (length / declared)
    if isinstance(old, int) and float(factor).is_integer():
        factor = int(factor)  # as the file spells it
    notes = list(_yarn_notes(block, old, factor, latent)) if kind == "yarn" else []
    if kind == "llama3":
        notes.append(f"the factor grows as the length, {length / declared:.6g} times; fast pairs stay as they are")
    if kind == "proportional":
        notes.append("rope type 'proportional' has no YaRN form: all rotating pairs are slowed alike")
    return BlockChange({"factor": factor}, kind, factor, original, notes=tuple(notes))


def _yarn_notes(block: Mapping[str, Any], old: float, new: float, latent: bool) -> list[str]:
    """What a larger factor does to the gain of a YaRN block."""
    if block.get("attention_factor") is not None:
        return [
            f"attention_factor stays {block['attention_factor']:g}; YaRN's formula gives {_gain(new):.5f} for the new "
            "factor"
        ]
    scale, scale_all = block.get("mscale"), block.get("mscale_all_dim")
    if not (scale and scale_all):
        return [f"the gain on rotated queries and keys follows the factor: {_gain(old):.5f} becomes {_gain(new):.5f}"]
    gains = [_gain(factor, scale) / _gain(factor, scale_all) for factor in (old, new)]
    same = f"stays {gains[0]:g}" if gains[0] == gains[1] else f"becomes {gains[1]:.5f} instead of {gains[0]:.5f}"
    notes = [f"the gain on rotated queries and keys {same} (mscale and mscale_all_dim)"]
    if latent:
        scales = [_gain(factor, scale_all) ** 2 for factor in (old, new)]
        notes.append(
            f"mscale_all_dim scales the softmax with the factor: by {scales[1]:.5f} instead of {scales[0]:.5f}"
        )
    return notes


def _gain(factor: float, scale: float = 1.0) -> float:
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0
