"""What a model family's own code decides and no configuration says: layout, default base, default share of the head.

Read in the modelling and configuration files of transformers 5.23; `tests/reference/test_hf_config.py` holds every
line of the table against the code. A family that is not here is read like Llama, with a remark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from posenc.rotary._rotate import Layout

FULL, SLIDING = "full_attention", "sliding_attention"
Order = Literal["chunked", "interleaved", "time last"]


class Kind(NamedTuple):
    """How a flat configuration spells one of several kinds of layers.

    Attributes:
        theta_key: key of its base, beside the block.
        base: where that key is missing.
        scaled: whether ``rope_scaling`` is for it.
    """

    theta_key: str
    base: float
    scaled: bool


class Family(NamedTuple):
    """One or several model types that share their code for rotation.

    Attributes:
        base: where a configuration has none.
        share: part of the head that turns, where a configuration has none.
        layout: pairs of channels.
        theta_key, share_key: names of both beside the block, in version 4.
        default_share: whether the rope type "default" heeds the share too (most families ignore it there).
        trailing: the last channels of a head turn, not the first.
        latent: multi-head latent attention: ``qk_rope_head_dim`` channels turn, and the softmax scale has
            YaRN's factor of ``mscale_all_dim``.
        layout_key: ``rope_interleave`` decides the layout; null means no.
        turns_if: a key and its value without which the layers do not turn.
        kinds: kinds of layers that a flat configuration spells in one go, or empty.
        nested: there are several kinds of layers, and only a nested block can tell them apart.
        plain: kinds of layers that never turn, under a sliding window.
        plain_every: every so many layers one does not turn, where a configuration does not say.
        block: the block of a configuration that has none.
        original: trained length of a configuration that has none.
        head_dim: width of a head that turns, where a configuration has no such key; None: the stream's over the heads'.
        head_key: the key of that width.
        full_head_dim: width of full attention's heads, where it has its own and a configuration does not say.
        fixed: no configuration can change the base or scale the frequencies.
        sections: of M-RoPE, where a configuration has none: pairs that read time, row, column; None: the code of the
            family turns all pairs by one position.
        order: how M-RoPE deals out the pairs; with time last, sections are row, column, time.
    """

    base: float = 10_000.0
    share: float = 1.0
    layout: Layout = "half"
    theta_key: str = "rope_theta"
    share_key: str = "partial_rotary_factor"
    default_share: bool = False
    trailing: bool = False
    latent: bool = False
    layout_key: bool = False
    turns_if: tuple[str, str] | None = None
    kinds: Mapping[str, Kind] = {}
    nested: bool = False
    plain: tuple[str, ...] = ()
    plain_every: int | None = None
    block: Mapping[str, Any] | None = None
    original: int | None = None
    head_dim: int | None = None
    head_key: str = "head_dim"
    full_head_dim: int | None = None
    fixed: bool = False
    sections: tuple[int, ...] | None = None
    order: Order = "chunked"

    @property
    def shares(self) -> dict[str, Any]:
        """What its code says of M-RoPE, as keys of a block."""
        if self.sections is None:
            return {}
        order = {"mrope_interleaved": True} if self.order == "interleaved" else {}
        return {"mrope_section": list(self.sections), **order}


_LLAMA = Family()
_HALF_SHARE = Family(share=0.5, default_share=True)
_QUARTER = Family(share=0.25, default_share=True)
_INTERLEAVED = Family(layout="interleaved")
_LATENT = Family(layout="interleaved", latent=True)
_CHOSEN = _LATENT._replace(layout_key=True)
_PHI3 = Family(default_share=True, original=4096)
_NEOX = Family(share=0.25, default_share=True, theta_key="rotary_emb_base", share_key="rotary_pct")
_GPTJ = Family(layout="interleaved", share_key="rotary_dim", default_share=True, fixed=True)
_GLM = Family(share=0.5, layout="interleaved", default_share=True)
_GLM_V = Family(default_share=True, sections=(8, 12, 12))
_QWEN_2_VL = Family(base=1e6, sections=(16, 24, 24))
_QWEN_3_VL = Family(base=5e5, sections=(24, 20, 20), order="interleaved")
_ERNIE_VL = Family(base=5e5, layout="interleaved", sections=(22, 22, 20), order="time last")
_GEMMA3 = Family(kinds={FULL: Kind("rope_theta", 1e6, True), SLIDING: Kind("rope_local_base_freq", 1e4, False)})
_MODERNBERT = Family(kinds={FULL: Kind("global_rope_theta", 1.6e5, True), SLIDING: Kind("local_rope_theta", 1e4, True)})
_OLMO3 = Family(base=5e5, kinds={FULL: Kind("rope_theta", 5e5, True), SLIDING: Kind("rope_theta", 5e5, False)})
_GEMMA4 = Family(
    nested=True,
    full_head_dim=512,
    block={
        SLIDING: {"rope_type": "default", "rope_theta": 1e4},
        FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
    },
)
_GPT_OSS = Family(
    base=1.5e5,
    block={
        "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
        "original_max_position_embeddings": 4096,
    },
)  # fmt: skip


def _all(names: str, family: Family) -> dict[str, Family]:
    return dict.fromkeys(names.split(), family)


_FAMILIES: dict[str, Family] = {
    **_all(
        "afmoe arcee aria_text chameleon dbrx diffllama doge dots1 eurobert exaone_moe falcon falcon_h1 gemma gemma2 "
        "granite granitemoe granitemoeshared hunyuan_v1_dense hunyuan_v1_moe jais2 llama "
        "ministral mistral olmo olmo2 olmoe qwen2 qwen2_moe qwen3 qwen3_moe seed_oss starcoder2 vaultgemma",
        _LLAMA,
    ),
    **_all("bitnet csm flex_olmo mllama_text_model", Family(base=5e5)),
    **_all("emu3_text_model lfm2 lfm2_moe minimax mixtral phimoe", Family(base=1e6)),
    **_all("qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen2_5_omni_text", _QWEN_2_VL),
    **_all("qwen3_vl_text qwen3_vl_moe_text", _QWEN_3_VL),
    **_all("qwen3_5_text qwen3_5_moe_text", _QUARTER._replace(sections=(11, 11, 10), order="interleaved")),
    **_all("glm4v_text glm_ocr_text", _GLM_V._replace(layout="interleaved")),
    **_all("ernie4_5_moe_vl ernie4_5_vl_moe_text", _ERNIE_VL),
    **_all("glm4_moe nemotron persimmon phi recurrent_gemma bamba", _HALF_SHARE),
    **_all("qwen3_next stablelm", _QUARTER),
    **_all("phi3 phi4_multimodal", _PHI3),
    **_all("glm glm4", _GLM),
    **_all("cohere", _INTERLEAVED._replace(base=5e5)),
    **_all("cohere2 cohere2_moe", _INTERLEAVED._replace(plain=(FULL,))),
    **_all("ernie4_5 ernie4_5_moe", _INTERLEAVED._replace(base=5e5)),
    **_all("codegen gptj", _GPTJ),
    **_all("deepseek_v2 deepseek_v32 glm_moe_dsa", _LATENT),
    **_all("axk1 deepseek_v3 glm4_moe_lite youtu", _CHOSEN),
    **_all("gemma3_text gemma3n_text t5gemma2_text t5gemma2_decoder", _GEMMA3),
    **_all("modernbert modernbert-decoder", _MODERNBERT),
    **_all("gemma4_text gemma4_unified_text", _GEMMA4),
    **_all("laguna mellum mimo_v2_flash zaya", Family(nested=True, default_share=True)),
    "cosmos3_edge_text": _QWEN_3_VL._replace(base=1e8),
    "deepseek_v4": Family(layout="interleaved", nested=True, default_share=True, trailing=True),
    "exaone4": Family(plain=(FULL,)),
    "glm4v_moe_text": _GLM_V._replace(share=0.5),
    "glm_image_text": _GLM_V,
    "gpt_neox": _NEOX,
    "gpt_neox_japanese": _NEOX._replace(share=1.0),
    "gpt_oss": _GPT_OSS,
    "granitemoehybrid": Family(turns_if=("position_embedding_type", "rope")),
    "gte": Family(base=1.6e5),
    "jetmoe": Family(head_key="kv_channels"),
    "helium": _INTERLEAVED._replace(base=1e5),
    "lfm3": Family(base=1e6, nested=True),
    "llama4_text": _INTERLEAVED._replace(base=5e5, plain_every=4),
    "longcat_flash": _LATENT._replace(base=1e7),
    "minicpm3": Family(latent=True),
    "minimax_m2": Family(base=5e6, default_share=True, share_key="rotary_dim"),
    "nomic_bert": Family(base=1e3),
    "olmo3": _OLMO3,
    "paddleocr_vl_text": _QWEN_2_VL._replace(base=5e5),
    "qwen3_omni_moe_text": _QWEN_3_VL._replace(base=1e6),
    "smollm3": Family(base=2e6, plain_every=4),
    "solar_open": Family(base=1e6, default_share=True),
}

_HEADS = {  # widths that the code has where a configuration has none, whatever its stream and heads
    32: "minicpm3",
    64: "axk1 deepseek_v2 deepseek_v3 deepseek_v32 glm4_moe_lite glm_moe_dsa gpt_oss longcat_flash youtu",
    128: "afmoe cohere2_moe cosmos3_edge_text ernie4_5 glm glm4 helium jetmoe laguna lfm3 llama4_text mellum "
    "minimax_m2 paddleocr_vl_text qwen3 qwen3_vl_text seed_oss solar_open zaya",
    192: "mimo_v2_flash",
    256: "gemma gemma2 gemma3_text gemma3n_text gemma4_text gemma4_unified_text qwen3_5_moe_text qwen3_5_text "
    "qwen3_next t5gemma2_decoder t5gemma2_text vaultgemma",
    512: "deepseek_v4",
}
_HEAD_DIM = {name: width for width, names in _HEADS.items() for name in names.split()}
FAMILIES = {name: family._replace(head_dim=_HEAD_DIM.get(name)) for name, family in _FAMILIES.items()}

_OWN_KEYS = "reads a base for each layer from keys of its own"
_OWN_PAIRS = "turns the two channels of a pair by different axes"
FOREIGN: dict[str, str] = {  # model types that no `RoPE` can stand for, and why
    **dict.fromkeys(
        ["dots3_note_text", "granite_swa", "granitemoe_swa", "muse_glimmer_text", "muse_spark_text"], _OWN_KEYS
    ),
    **dict.fromkeys(["neomme", "step3p5", "ultrabert"], _OWN_KEYS),
    **dict.fromkeys(["hunyuan_vl", "hunyuan_vl_text"], _OWN_PAIRS),
    "nanochat": "turns every pair the other way round",
}


def family_of(model_types: list[str], *, latent: bool) -> tuple[Family, bool]:
    """The family of the first of ``model_types`` that is known, and True; else one to assume, and False.

    Args:
        model_types: of the text part, and of the whole.
        latent: whether the configuration has ``qk_rope_head_dim``.
    """
    names = [name for given in model_types for name in (given, f"{given}_text")]
    known = next((name for name in names if name in FAMILIES), None)
    if known is not None:
        return FAMILIES[known], True
    return (_LATENT if latent else _LLAMA), False
