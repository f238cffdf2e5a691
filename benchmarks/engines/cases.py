"""Test configurations for readers of RoPE settings: every rope type, its keys, and every spelling.

A row is a kind of block ("yarn: attention_factor"), a model gives it a layout, a head and a place in the config, and a
spelling writes it as transformers 4 (``rope_theta`` and ``rope_scaling``), 5 (``rope_parameters``) or both. Sizes are
those of models that a CPU runs in a second.

Source: transformers 5.23, modeling_rope_utils.py and the families' own files.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

Block = dict[str, Any]
Spelling = Literal["v4", "v5", "both", "nested v4", "nested v5", "nested both"]
SPELLINGS: tuple[Spelling, ...] = ("v4", "v5", "both")
BASE, FACTOR, GAIN, TOKENS = 10_000.0, 4.0, 1.2, 300
HEAD, HEADS, KV_HEADS, LAYERS, ORIGINAL = 32, 4, 2, 2, 256


class Case(NamedTuple):
    """One configuration and how it is to be read.

    Attributes:
        row: the kind of block.
        model: the model type.
        spelling: of the block; "nested" where it stands in the ``text_config`` of a model of images and text.
        config: the whole config.json.
        original: tokens of the trained length.
        length: tokens of the text whose rotation is asked for; it decides where the frequencies follow the length.
    """

    row: str
    model: str
    spelling: Spelling
    config: Block
    original: int
    length: int

    @property
    def name(self) -> str:
        """Unique among cases."""
        return f"{self.model}/{self.row}/{self.spelling}/{self.original}/{self.length}"


def rope_blocks(original: int = ORIGINAL, pairs: int = HEAD // 2, base: float = BASE) -> dict[str, Block]:
    """A version-5 block for each row.

    Args:
        original: tokens of the trained length.
        pairs: that rotate.
        base: ``rope_theta``.
    """
    scaled: Block = {"factor": FACTOR, "original_max_position_embeddings": original, "rope_theta": base}
    yarn, lists = {"rope_type": "yarn", **scaled}, {"rope_type": "longrope", **scaled}
    lists["short_factor"] = [1 + 0.01 * pair for pair in range(pairs)]
    lists["long_factor"] = [1 + 3 * pair / (pairs - 1) for pair in range(pairs)]
    return {
        "default": {"rope_type": "default", "rope_theta": base},
        "linear": {"rope_type": "linear", "factor": FACTOR, "rope_theta": base},
        "dynamic": {"rope_type": "dynamic", "factor": FACTOR, "rope_theta": base},
        "llama3": {**scaled, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        "yarn": yarn,
        "yarn: attention_factor": {**yarn, "attention_factor": 1.0},
        "yarn: mscale and mscale_all_dim": {**yarn, "mscale": 1.0, "mscale_all_dim": 0.5},
        "yarn: one of mscale and mscale_all_dim": {**yarn, "mscale": 0.707},
        "yarn: betas": {**yarn, "beta_fast": 16.0, "beta_slow": 2.0},
        "yarn: truncate false": {**yarn, "truncate": False},
        "longrope": lists,
        "longrope: attention_factor": {**lists, "attention_factor": 1.0},
        "partial": {"rope_type": "default", "rope_theta": base, "partial_rotary_factor": 0.5},
        "partial: yarn": {**yarn, "partial_rotary_factor": 0.5},
    }


class Model(NamedTuple):
    """A model type, and what of it is not as Llama's.

    Attributes:
        keys: of its configuration.
        rows: the kinds of blocks that it is asked with; empty: all that its rotated channels allow.
        spellings: in which released configurations of this type are written.
        share_key: name of the share of rotated channels outside the block.
        share: of rotated channels, where it is not 1 in the model type's released configurations, which all say it.
    """

    keys: Mapping[str, Any] = MappingProxyType({})
    rows: tuple[str, ...] = ()
    spellings: tuple[Spelling, ...] = SPELLINGS
    share_key: str = "partial_rotary_factor"
    share: float | None = None


_PARTIAL = ("partial", "partial: yarn")
_ALL = tuple(row for row in rope_blocks() if row not in _PARTIAL)
_MLA = {"kv_lora_rank": 64, "q_lora_rank": 64,
        "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "n_shared_experts": 1,
        "moe_intermediate_size": 64, "first_k_dense_replace": LAYERS}  # fmt: skip
MODELS: dict[str, Model] = {
    "llama": Model(rows=_ALL),
    "qwen2": Model(rows=("default", "linear", "yarn", "yarn: attention_factor", "llama3")),
    "qwen3": Model(rows=_ALL),
    "mistral": Model({"sliding_window": None}, ("default", "yarn", "yarn: betas", "llama3")),
    "phi3": Model({"pad_token_id": 0}, ("default", "longrope", "longrope: attention_factor", "partial")),
    "stablelm": Model(rows=("default", "linear", "yarn", *_PARTIAL), share=0.25),
    "gpt_neox": Model(rows=("default", "linear", "dynamic", "yarn", *_PARTIAL), share_key="rotary_pct"),
    "glm4": Model(rows=("default", "yarn", *_PARTIAL), share=0.5),
    "cohere": Model(rows=("default", "linear", "yarn", "llama3")),
    "olmo2": Model(rows=("default", "linear", "yarn")),
    "granite": Model(rows=("default", "linear", "yarn", "llama3")),
    "deepseek_v3": Model(_MLA, ("default", "yarn", "yarn: mscale and mscale_all_dim")),
    "gpt_oss": Model({"num_local_experts": 4, "num_experts_per_tok": 2,
                      "layer_types": ["sliding_attention", "full_attention"]},
                     ("yarn", "yarn: truncate false")),
}  # fmt: skip


def cases(original: int = ORIGINAL, head_dim: int = HEAD) -> Iterator[Case]:
    """All cases of one head and one trained length."""
    yield from map(_with_share, vector_cases(original, head_dim))
    yield from _between_cases(original, head_dim)
    yield from _nested_cases(original, head_dim)
    yield from _later_cases(original, head_dim)


def _with_share(case: Case) -> Case:
    """The case with the share of rotated channels that released configurations of its model type say.

    The vectors leave it to transformers' default, and an engine without that default refuses such a config, which
    nobody publishes.
    """
    share = MODELS[case.model].share if case.model in MODELS else None
    if share is None or case.row in _PARTIAL:
        return case
    config = copy.deepcopy(case.config)
    if case.spelling != "v4":
        config["rope_parameters"]["partial_rotary_factor"] = share
    if case.spelling != "v5":
        config["partial_rotary_factor"] = share
    return case._replace(config=config)


def vector_cases(original: int = ORIGINAL, head_dim: int = HEAD) -> Iterator[Case]:
    """The cases of the published test vectors, ``examples/vectors/rope-v1.json``, which does not change."""
    for model, known in MODELS.items():
        for row in known.rows:
            share = 0.5 if row in _PARTIAL else 1.0
            block = rope_blocks(original, int(head_dim * share) // 2)[row]
            for spelling in known.spellings:
                yield from _of_lengths(row, model, spelling, block, original, head_dim)
    yield from _per_layer_cases(original, head_dim)
    yield from _sectioned_cases(original, head_dim)


def _of_lengths(row: str, model: str, spelling: Spelling, block: Block, original: int, head_dim: int) -> Iterator[Case]:
    factor = 1.0 if row in ("default", "dynamic", "partial") else FACTOR
    declared = round(original * factor)
    config = {**_sizes(head_dim), **MODELS[model].keys, "model_type": model, "max_position_embeddings": declared}
    if model == "deepseek_v3":
        config |= dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"), head_dim)
    both = block["rope_type"] in ("dynamic", "longrope")
    for length in (original // 2, original * 4) if both else (original * 4,):
        yield Case(row, model, spelling, spelled(config, block, spelling), original, length)


def _sizes(head_dim: int) -> Block:
    return {
        "vocab_size": TOKENS, "hidden_size": HEADS * head_dim, "intermediate_size": 2 * HEADS * head_dim,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
        "head_dim": head_dim, "tie_word_embeddings": False,
    }  # fmt: skip


def spelled(config: Block, block: Block, spelling: Spelling) -> Block:
    """A configuration with a block in a spelling; LongRoPE's original length stands outside too, as for Phi-3."""
    result = copy.deepcopy(config)
    if spelling in ("v5", "both"):
        result["rope_parameters"] = copy.deepcopy(block)
    if spelling in ("v4", "both"):
        inner = {key: copy.deepcopy(value) for key, value in block.items()
                 if key not in ("rope_theta", "partial_rotary_factor")}  # fmt: skip
        result["rope_theta"] = block["rope_theta"]
        result["rope_scaling"] = None if inner["rope_type"] == "default" else {**inner, "type": inner["rope_type"]}
    known = MODELS.get(config["model_type"], Model())
    if known.share_key == "rotary_pct" or ("partial_rotary_factor" in block and spelling != "v5"):
        result[known.share_key] = block.get("partial_rotary_factor", 1.0)
    if block["rope_type"] == "longrope":  # transformers 5.23 takes a default of Phi-3's class where it is not outside
        result["original_max_position_embeddings"] = block["original_max_position_embeddings"]
    return result


def _per_layer_cases(original: int, head_dim: int) -> Iterator[Case]:
    """Kinds of layers with a rotation each, as Gemma 3 and 4 and as EXAONE 4's and Cohere 2's layers without one."""
    kinds = ["sliding_attention", "full_attention"]
    base = {**_sizes(head_dim), "layer_types": kinds, "sliding_window": original // 4,
            "max_position_embeddings": round(original * FACTOR)}  # fmt: skip
    linear = {"rope_type": "linear", "factor": FACTOR, "rope_theta": 1e6}
    local = {"rope_type": "default", "rope_theta": BASE}
    gemma = {**base, "model_type": "gemma3_text", "query_pre_attn_scalar": head_dim}
    nested = {**gemma, "rope_parameters": {kinds[0]: local, kinds[1]: linear}}
    old = {
        **gemma,
        "rope_theta": 1e6,
        "rope_local_base_freq": BASE,
        "rope_scaling": {"rope_type": "linear", "factor": FACTOR},
    }
    yield Case("per layer: linear", "gemma3_text", "v5", nested, original, original * 4)
    yield Case("per layer: linear", "gemma3_text", "v4", old, original, original * 4)
    wide = {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6}
    gemma4 = {**base, "model_type": "gemma4_text", "global_head_dim": head_dim, "num_kv_shared_layers": 0,
              "rope_parameters": {kinds[0]: local, kinds[1]: wide}}  # fmt: skip
    yield Case("per layer: proportional", "gemma4_text", "v5", gemma4, original, original * 4)
    block = rope_blocks(original, head_dim // 2)["llama3"]
    exaone = {**base, "model_type": "exaone4"}
    for spelling in SPELLINGS:
        yield Case("per layer: none in full attention", "exaone4", spelling, spelled(exaone, block, spelling), original,
                   original * 4)  # fmt: skip


def _sectioned_cases(original: int, head_dim: int) -> Iterator[Case]:
    """M-RoPE on text, where all three coordinates are equal."""
    pairs = head_dim // 2
    third = pairs // 4
    sections = [pairs - 2 * third, third, third]
    for model, interleaved in (("qwen2_5_vl_text", False), ("qwen3_vl_text", True)):
        for row in ("default", "yarn"):
            block = {**rope_blocks(original, pairs, 1e6)[row], "mrope_section": sections}
            block |= {"mrope_interleaved": True} if interleaved else {}
            factor = FACTOR if row == "yarn" else 1.0
            config = {**_sizes(head_dim), "model_type": model, "max_position_embeddings": round(original * factor)}
            yield Case(f"M-RoPE on text: {row}", model, "v5", spelled(config, block, "v5"), original, original * 4)


def _between_cases(original: int, head_dim: int) -> Iterator[Case]:
    """Dynamic scaling between the original and four times its length.

    A base that is frozen for ``factor`` times the original length is right there and nowhere else.
    """
    for case in vector_cases(original, head_dim):
        if case.row == "dynamic" and case.length > original:
            yield case._replace(length=original * 3)


_SCALED = ("linear", "llama3", "yarn")
_GEMMA: Block = {"tie_word_embeddings": True, "hidden_act": "gelu_pytorch_tanh"}  # as released; SGLang reads the second
_LATER = {  # model types whose classes in some engine hand no block on, though the engine's rotary class would read it
    "gemma": Model(_GEMMA, _SCALED),
    "gemma2": Model({**_GEMMA, "query_pre_attn_scalar": HEAD, "sliding_window": 4096}, _SCALED),
    "olmo": Model(rows=_SCALED),
    "qwen3_moe": Model({"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}, _SCALED),
}  # fmt: skip


def _later_cases(original: int, head_dim: int) -> Iterator[Case]:
    """What came after the published vectors: more model types, and a factor next to Gemma 4's share."""
    for model, known in _LATER.items():
        for row in known.rows:
            block = rope_blocks(original, head_dim // 2)[row]
            config = {**_sizes(head_dim), **known.keys, "model_type": model}
            config["max_position_embeddings"] = round(original * FACTOR)
            for spelling in known.spellings:
                yield Case(row, model, spelling, spelled(config, block, spelling), original, original * 4)
    for case in _per_layer_cases(original, head_dim):
        if case.model == "gemma4_text":
            config = copy.deepcopy(case.config)
            config["rope_parameters"]["full_attention"]["factor"] = FACTOR
            yield case._replace(row="proportional: factor", config=config)


def _nested_cases(original: int, head_dim: int) -> Iterator[Case]:
    """Text models inside a config of images and text."""
    inside = {"llama": "llava", "gemma3_text": "gemma3", "qwen2_5_vl_text": "qwen2_5_vl", "qwen3_vl_text": "qwen3_vl"}
    spellings: dict[Spelling, Spelling] = {"v4": "nested v4", "v5": "nested v5", "both": "nested both"}
    rows = ("linear", "llama3", "yarn", "per layer: linear", "M-RoPE on text: default", "M-RoPE on text: yarn")
    for case in vector_cases(original, head_dim):
        if case.model in inside and case.row in rows:
            outer = inside[case.model]
            config = {"model_type": outer, "text_config": case.config}
            if outer == "llava":
                config["vision_config"] = {"hidden_act": "gelu"}  # CLIP's default is a compiled kernel in vLLM
            yield case._replace(model=outer, spelling=spellings[case.spelling], config=config)
