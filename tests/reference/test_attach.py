"""Every family: its own rotation attached changes nothing, or it is refused; others train and decode in many."""

from __future__ import annotations

import logging

import pytest

pytest.importorskip("transformers")

from posenc.hf.attach import attach
from posenc.hf.families import ROTARY
from tests.hf.attach.smallest import LEARNED, calls_agree, decoder, itself, loss_falls, move

pytestmark = pytest.mark.reference
logging.getLogger("transformers").setLevel(logging.CRITICAL)

MANY = (
    "llama", "mistral", "qwen2", "qwen3", "gpt_neox", "gemma2", "gemma3_text", "glm4", "phi3", "olmo2", "starcoder2",
    "smollm3", "deepseek_v3", "cohere2",
)  # fmt: skip
REFUSED = {  # by what the refusal says
    "position_ids do not reach": (
        "blt_patcher lasr_encoder blt_global_transformer modernbert zaya embedding_gemma2_text glmasr_encoder "
        "granitemoehybrid llama4_text"
    ),
    "three coordinates": (
        "qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen2_5_omni_text "
        "qwen3_vl_text qwen3_vl_moe_text qwen3_5_text qwen3_5_moe_text glm4v_text glm_ocr_text "
        "ernie4_5_moe_vl ernie4_5_vl_moe_text cosmos3_edge_text glm4v_moe_text glm_image_text "
        "paddleocr_vl_text qwen3_omni_moe_text cohere_compass_text"
    ),
    "must be bool": ("doge"),
    "no layer whose attention is given position_embeddings": (
        "esmc idefics kyutai_speech_to_text moshi recurrent_gemma codegen esm jina_embeddings_v3 gte "
        "nomic_bert openai_privacy_filter"
    ),
    "written into its forward": ("gpt_neox_japanese"),
    "several parts": ("hrm_text zamba2 moonshine moonshine_streaming"),
    "after its rotation": ("hunyuan_v1_dense hunyuan_v1_moe"),
    "must be a model of transformers": ("mimi mimi_decoder mimi_encoder pocket_tts_audio_tokenizer"),
    "indexer": ("axk2 deepseek_v32 glm_moe_dsa hy_v4 mistral_large4_text qwen4_exp_text"),
    "both directions": ("t5gemma2_text"),
    "position_embeddings do not reach": ("dia_decoder"),
}
# norms after the attention, and multipliers, magnify the rounding of float32
LOOSE = {"muse_spark_text": 5e-4, "dia_encoder": 5e-5, "granite_swa": 5e-5}
_REASONS = {name: says for says, names in REFUSED.items() for name in names.split()}
_NAMES = [name for name, family in ROTARY.items() if not family.not_compared]


@pytest.mark.parametrize("name", [name for name in _NAMES if name not in _REASONS])
def test_a_family_with_its_own_rotation(name: str) -> None:
    first = itself(name)
    assert first.gap < LOOSE.get(name, 1e-5)
    assert first.back
    assert first.same is not False


@pytest.mark.parametrize("name", _REASONS)
def test_a_family_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=_REASONS[name]):
        itself(name)


@pytest.mark.parametrize("name", MANY)
@pytest.mark.parametrize("encodings", LEARNED)
def test_others_in_many_families(name: str, encodings: str) -> None:
    model = attach(decoder(name), encodings)
    move(model)
    calls_agree(model)
    loss_falls(model)
