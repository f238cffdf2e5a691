"""What a family's code does beside turning: the order of its layers, their windows, temperatures, sinks and scales.

One line a family; a family that is not here has full attention in every layer, no temperature and no sink, unless its
configuration lists kinds of layers. Read in the modelling and configuration files of transformers 5.23;
`tests/reference/test_families.py` holds the lines against the live modules.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Scale = Literal["head", "attention_multiplier", "query_pre_attn_scalar", "one", "inverse", "half", "other"]
Heat = Literal["llama4", "beta", "beam", "inkling", "learned"]
CHUNKED = "chunked_attention"
LETTERS = {
    "F": "full_attention", "S": "sliding_attention", "C": CHUNKED, "L": "linear_attention",
    "I": "indexed_attention", "W": "hybrid_sliding", "H": "hybrid", "R": "reference_sliding_attention",
}  # fmt: skip
WINDOWED = ("sliding_attention", "hybrid_sliding", "reference_sliding_attention")
CROSS = "cross_attention"  # to an image
NO_ATTENTION = (
    "linear_attention",
    "mamba",
    "conv",
    "recurrent",
    "moe",
    "mlp",
    CROSS,
)  # layers without attention to text

KINDS = {  # of layers, as configurations of transformers 5.23 name them
    *LETTERS.values(), *NO_ATTENTION, *WINDOWED, "attention", "window_attention", "compressed_sparse_attention",
    "heavily_compressed_attention", "minimax_m3_sparse", "hybrid", "sparse", "dense",
}  # fmt: skip


class Beside(NamedTuple):
    """What one or several model types do beside turning.

    Attributes:
        pattern: kinds of layers by `LETTERS`, repeated, where a configuration lists none; "" is full attention.
        every_key: key of the period, whose last layer is a full one.
        from_end: the pattern repeats towards the first layer, and its first letter is the last layer.
        first_full, last_full: that layer is full whatever the pattern says.
        listed: without a list in the configuration the kinds of the layers are not told.
        qwen: layers from ``max_window_layers`` on have the window.
        types_key: key that lists the kinds.
        cross_key: key that lists the layers which attend to an image instead.
        window: tokens where the configuration does not say.
        window_key: key of the window.
        halved: the key counts both sides.
        everywhere: every layer has the window, whatever its kind.
        switch: key without which no layer has one.
        both: tokens see as many behind them as before them, and themselves, unless ``is_decoder`` is true.
        shared: the number of the window is shared out: half before a token, itself included, and half after it.
        chunk: tokens of a chunk that layers of chunked attention see, where the configuration does not say.
        heat: the temperature.
        sinks: kinds of layers with a sink, ("all",) for every one.
        sink_by_token: each token makes its own sink by a projection.
        scale: of the softmax: by the width of a head or of half of one, or a key.
        sees_all: the same without a window.
        normed_after: norms of queries and keys, with weights a channel, follow the rotation.
        softcap: of the scores, where the configuration does not say; None: the code heeds no such key.
    """

    pattern: str = ""
    every_key: str = ""
    from_end: bool = False
    first_full: bool = False
    last_full: bool = False
    listed: bool = False
    qwen: bool = False
    types_key: str = "layer_types"
    cross_key: str = ""
    window: int | None = None
    window_key: str = "sliding_window"
    halved: bool = False
    everywhere: bool = False
    switch: str = ""
    both: bool = False
    shared: bool = False
    chunk: int | None = None
    heat: Heat | None = None
    sinks: tuple[str, ...] = ()
    sink_by_token: bool = False
    scale: Scale = "head"
    sees_all: bool = False
    softcap: float | None = None
    normed_after: bool = False


def _all(names: str, line: Beside) -> dict[str, Beside]:
    return dict.fromkeys(names.split(), line)


PLAIN = Beside()
_EVERY = ("all",)
_ENCODER = Beside(sees_all=True)
_QWEN = Beside(qwen=True, switch="use_sliding_window")
_GEMMA2 = Beside("SF", window=4096, scale="query_pre_attn_scalar", softcap=50.0)
_GEMMA3 = Beside("SSSSSF", "sliding_window_pattern", window=4096, scale="query_pre_attn_scalar")
_GEMMA4 = Beside("SSSSSF", last_full=True, window=512, scale="one")
_GRANITE = Beside(scale="attention_multiplier")
_GRANITE_SWA = Beside("FSSS", window=128, sinks=_EVERY, scale="attention_multiplier")
_MUSE = Beside("FSSS", from_end=True, window=2048)
_INKLING = Beside("WWWWWH", window_key="sliding_window_size", window=512, heat="inkling", scale="inverse")

BESIDE: dict[str, Beside] = {
    **_all("cohere2 cohere2_moe exaone4 exaone_moe", Beside("SSSF", "sliding_window_pattern", window=4096)),
    **_all("diffusion_gemma_text gemma4_text", _GEMMA4),
    **_all("gemma2 vaultgemma", _GEMMA2),
    "t5_gemma_module": _GEMMA2._replace(both=True),
    **_all("gemma3_text t5gemma2_decoder", _GEMMA3),
    "t5gemma2_text": _GEMMA3._replace(both=True, shared=True),
    **_all("doge ministral3 mixtral phi3 phi4_multimodal phimoe starcoder2", Beside(everywhere=True)),
    **_all("mimi mimi_decoder mimi_encoder pocket_tts_audio_tokenizer", Beside(everywhere=True, window=250)),
    "voxtral_realtime_encoder": Beside(everywhere=True, window=750),
    **_all("mistral voxtral_realtime_text", Beside(everywhere=True, window=4096)),
    **_all("qwen2 qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen2_5_omni_text qwen3", _QWEN),
    **_all("granite granite4_vision_text granite_docling_text granitemoe granitemoeshared", _GRANITE),
    **_all("granite_swa granitemoe_swa", _GRANITE_SWA),
    **_all("muse_glimmer_text muse_spark_text", _MUSE),
    **_all("qwen3_next qwen3_5_text qwen3_5_moe_text olmo_hybrid", Beside("LLLF")),
    **_all("axk2 deepseek_v32 glm_moe_dsa", Beside("I")),
    "dia_decoder": Beside(scale="one"),
    "dia_encoder": Beside(scale="one", sees_all=True),
    **_all("bamba jamba kimi_linear lfm2 lfm2_moe lfm3 nemotron_h zaya", Beside(listed=True)),
    "afmoe": Beside("SSSF", "global_attn_every_n_layers", window=1024),
    "bailing_hybrid": Beside("LLLLLF", "layer_group_size"),
    "beam": Beside("SSSSSF", last_full=True, window=512, heat="beam"),
    "blt_patcher": Beside(everywhere=True, window=512),
    "blt_local_encoder": Beside(everywhere=True),
    "cohere_compass_text": Beside(listed=True, window=4096),
    "cwm": Beside("FSSS", window=8192),
    "deepseek_v4": Beside(listed=True, everywhere=True, window=128, sinks=_EVERY),
    "embedding_gemma2_text": _GEMMA4._replace(every_key="sliding_window_pattern", both=True),
    "esm": _ENCODER,
    **_all("esmc eurobert glmasr_encoder gte jina_embeddings_v3 lasr_encoder nomic_bert roformer", _ENCODER),
    "flint": Beside("SFSS", first_full=True, last_full=True, window=513, sinks=_EVERY),
    **_all("hunyuan_v1_dense hunyuan_v1_moe", Beside(normed_after=True)),
    "gemma3n_text": Beside("SSSSF", window=512, scale="one"),
    "gemma4_unified_text": _GEMMA4._replace(window=1024),
    "glm5_next_text": Beside("LLLI"),
    "gpt_oss": Beside("SF", window=128, sinks=_EVERY),
    "hy_v4": Beside("I", sinks=_EVERY),
    "granitemoehybrid": _GRANITE._replace(listed=True),
    "hyperclovax": _GRANITE,
    "inkling_text": _INKLING,
    "inkling2_text": _INKLING._replace(window=1024, sinks=_EVERY, sink_by_token=True, scale="head"),
    "kolibri1": Beside("SSSSF", window=513),
    "laguna": Beside(listed=True, window=512),
    "llama4_text": Beside("CCCF", chunk=8192, heat="llama4"),
    "mellum": Beside(listed=True, window=1024),
    "mimo_v2_flash": Beside(listed=True, window=129, sinks=("sliding_attention",)),
    "minimax": Beside(listed=True, everywhere=True),
    "ministral": Beside("S", window=4096),
    "mistral4": Beside(heat="beta"),
    "mistral_large4_text": Beside("I", heat="learned"),
    "mllama_text_model": Beside(cross_key="cross_attention_layers"),
    "modernbert": Beside(
        "FSS", "global_attn_every_n_layers", window=128, window_key="local_attention", halved=True, both=True
    ),
    "modernbert-decoder": Beside(
        "FSS", "global_attn_every_n_layers", window=128, window_key="local_attention", halved=True
    ),
    "muse_glimmer_assistant": Beside("S", window=2048, both=True),
    "olmo3": Beside("SSSF", window=4096),
    "openai_privacy_filter": Beside(everywhere=True, window=128, both=True, sinks=_EVERY),
    "qwen4_exp_text": Beside("LLLI", "full_attention_interval"),
    "recurrent_gemma": Beside("LLS", window=2048, window_key="attention_window_size"),
    "smollm3": Beside(switch="use_sliding_window"),
    "timesfm2_5": Beside(scale="other", normed_after=True),
    "unlimited_ocr_text": Beside("R", window=128),
    "zamba2": Beside(listed=True, types_key="layers_block_type", scale="half"),
}  # fmt: skip
BESIDE["ministral3"] = BESIDE["ministral3"]._replace(heat="beta")
