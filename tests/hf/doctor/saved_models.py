"""Small models of many families, saved by transformers: healthy folders, in which faults can be planted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tests.hf.sizes import MORE, TINY

_BERT: dict[str, Any] = {
    "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 48, "vocab_size": 64,
    "max_position_embeddings": 40, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
}  # fmt: skip
_BART: dict[str, Any] = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "vocab_size": 64, "max_position_embeddings": 40, "pad_token_id": 1,
    "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2, "scale_embedding": False,
}  # fmt: skip
_T5: dict[str, Any] = {
    "d_model": 32, "d_kv": 12, "num_heads": 4, "num_layers": 2, "num_decoder_layers": 3, "d_ff": 48, "vocab_size": 64,
    "relative_attention_num_buckets": 16, "decoder_start_token_id": 0,
}  # fmt: skip
_GPT2: dict[str, Any] = {"n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 40, "vocab_size": 64}
_VIT: dict[str, Any] = {
    "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 48, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
_TOWERS: dict[str, Any] = {
    "text_config": {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 48,
                    "vocab_size": 64, "max_position_embeddings": 20},
    "vision_config": {**_VIT, "num_hidden_layers": 3},
}  # fmt: skip
_ROTATING = (  # with the sizes of tests/hf/sizes.py
    "afmoe arcee bamba bitnet codegen cohere cohere2 dbrx deepseek_v2 diffllama dots1 ernie4_5 eurobert exaone4 "
    "falcon_h1 gemma gemma2 gemma3_text gemma3n_text glm glm4 glm4_moe gptj granite granitemoe granitemoehybrid helium "
    "hunyuan_v1_dense jais2 lfm2 llama llama4_text ministral3 mistral mixtral modernbert nemotron olmo olmo2 olmo3 "
    "olmoe persimmon phi phi3 phimoe qwen2 qwen2_moe qwen3 qwen3_5_text qwen3_moe qwen3_next seed_oss smollm3 stablelm "
    "starcoder2"
)
FAMILIES: dict[str, dict[str, Any]] = {
    **{name: {**TINY, **MORE.get(name, {})} for name in _ROTATING.split()},
    "deepseek_v3": {**TINY, **MORE["deepseek_v3"], "head_dim": 8},
    "apertus": {**TINY, "max_position_embeddings": 65536},
    "gpt_oss": {**TINY, "max_position_embeddings": 131072},
    "gemma4_text": {**{key: value for key, value in TINY.items() if key != "attention_chunk_size"},
                    **MORE["gemma4_text"]},
    **dict.fromkeys(("albert", "bert", "electra", "ernie", "convbert", "megatron-bert"), _BERT),
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert", "mpnet", "longformer", "data2vec-text"), _BERT),
    "esm": {**_BERT, "mask_token_id": 4, "position_embedding_type": "rotary"},
    "deberta-v2": {**_BERT, "relative_attention": True, "position_buckets": 8, "max_relative_positions": 20,
                   "pos_att_type": ["p2c", "c2p"]},
    "deberta": {**_BERT, "relative_attention": True, "max_relative_positions": 12, "pos_att_type": ["p2c", "c2p"]},
    "distilbert": {"dim": 32, "n_heads": 4, "n_layers": 2, "hidden_dim": 48, "vocab_size": 64,
                   "max_position_embeddings": 40},
    **dict.fromkeys(("bart", "mbart", "marian", "pegasus", "blenderbot", "plbart"), _BART),
    "led": {**_BART, "max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 32,
            "attention_window": [8, 8]},
    "whisper": {**_BART, "max_source_positions": 50, "max_target_positions": 30, "num_mel_bins": 8,
                "suppress_tokens": None, "begin_suppress_tokens": None},
    **dict.fromkeys(("t5", "mt5", "umt5", "longt5"), _T5),
    **dict.fromkeys(("gpt2", "gpt_bigcode", "openai-gpt", "imagegpt"), _GPT2),
    "gpt_neox": {**TINY, "rotary_pct": 0.25},
    "gpt_neo": {"hidden_size": 32, "num_heads": 4, "num_layers": 2, "attention_types": [[["global", "local"], 1]],
                "vocab_size": 64, "max_position_embeddings": 40, "intermediate_size": 48},
    "opt": {**_BERT, "ffn_dim": 48, "word_embed_proj_dim": 32},
    "bloom": {"hidden_size": 32, "n_head": 4, "n_layer": 2, "vocab_size": 64},
    "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 2, "vocab_size": 64, "max_seq_len": 40},
    "falcon": {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 64},
    "mamba": {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 64, "state_size": 8},
    **dict.fromkeys(("vit", "deit", "dinov2", "ijepa", "vit_mae"), _VIT),
    "beit": {**_VIT, "use_relative_position_bias": True, "use_absolute_position_embeddings": True},
    "swin": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4, "image_size": 32,
             "patch_size": 4},
    **dict.fromkeys(("clip", "siglip"), _TOWERS),
    "wav2vec2-bert": {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 48,
                      "vocab_size": 64, "left_max_position_embeddings": 6, "right_max_position_embeddings": 3},
    "llava": {
        "text_config": {**TINY, "model_type": "llama"}, "image_token_id": 5,
        "vision_config": {**_VIT, "model_type": "clip_vision_model"},
    },
    "qwen2_vl": {
        "text_config": {**TINY, **MORE["qwen2_vl_text"]}, "image_token_id": 5, "video_token_id": 6,
        "vision_start_token_id": 7, "vision_end_token_id": 8,
        "vision_config": {"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 4, "patch_size": 8},
    },
}  # fmt: skip
_CLASSES = (AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForMaskedLM, AutoModel)


def saved(model_type: str, path: Path, **more: Any) -> Path:
    """A folder with a random model of a family, as `save_pretrained` writes it.

    Args:
        model_type: one of `FAMILIES`, or any that is given its sizes.
        path: where.
        **more: keys of the config; ``max_shard_size`` goes to `save_pretrained`.
    """
    options = {"max_shard_size": more.pop("max_shard_size")} if "max_shard_size" in more else {}
    config = CONFIG_MAPPING[model_type](**{**FAMILIES.get(model_type, {}), **more})
    torch.manual_seed(0)
    cls = next(cls for cls in _CLASSES if type(config) in cls._model_mapping)
    cls.from_config(config).save_pretrained(path, **options)
    return path


def change_config(folder: Path, *inside: str, **keys: Any) -> None:
    """Write keys into a folder's config; None removes one."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    part = config
    for name in inside:
        part = part[name]
    part.update(keys)
    for key in [key for key, value in keys.items() if value is None]:
        del part[key]
    path.write_text(json.dumps(config))
