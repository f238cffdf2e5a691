"""Models without a rotation: which encoding they have, and what of posenc builds it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import torch

import posenc
from posenc import RoPE
from posenc.hf import as_text, facts, read_rope, rope_from_config
from posenc.hf.families import NON_ROTARY, ROTARY, UNSUPPORTED
from posenc.hf.findings import NotReadError

PACKAGES = (posenc.embedding, posenc.rotary, posenc.bias, posenc.score, posenc.weight, posenc)
NAMES = {name: getattr(package, name) for package in PACKAGES for name in package.__all__}

DESCRIBED: list[tuple[dict[str, Any], list[str]]] = [
    ({"model_type": "gpt2", "n_positions": 1024}, ["learned", "Learned(dim, max_length=1024)"]),
    ({"model_type": "bert"}, ["learned"]),
    ({"model_type": "roberta"}, ["first two rows", "offset=2"]),
    ({"model_type": "opt"}, ["offset=2"]),
    ({"model_type": "bloom"}, ["ALiBi(num_heads)"]),
    ({"model_type": "mpt"}, ["ALiBi"]),
    ({"model_type": "falcon", "alibi": True}, ["ALiBi(num_heads, bias_scale=head_dim ** -0.5)"]),
    ({"model_type": "t5"}, ["T5Bias(num_heads, num_buckets=32, max_distance=128, bidirectional=True)"]),
    ({"model_type": "umt5"}, ["a table for each layer"]),
    ({"model_type": "mpnet"}, ["Learned", "T5Bias"]),
    ({"model_type": "xlnet"}, ["TransformerXL(dim, num_heads=num_heads)"]),
    ({"model_type": "transfo-xl"}, ["TransformerXL"]),
    ({"model_type": "vit"}, ["LearnedGrid(dim, size=(14, 14), prefix=1)"]),
    ({"model_type": "dinov2"}, ["LearnedGrid", "offset=0.1"]),
    ({"model_type": "dinov2_with_registers"}, ["antialias=True"]),
    ({"model_type": "idefics3_vision"}, ["positions.nearest"]),
    ({"model_type": "sam"}, ["image: learned", "DecomposedRelative(", "prompts: random", "RandomFourier(dim)"]),
    ({"model_type": "sam_vision_model"}, ["LearnedGrid(dim, size=(64, 64))", "DecomposedRelative("]),
    ({"model_type": "vitdet"}, ["prefix=1"]),
    ({"model_type": "vitdet", "use_relative_position_embeddings": True}, ["prefix=1", "DecomposedRelative("]),
    ({"model_type": "layoutlmv2"}, ["on a page", "T5GridBias(num_heads, axes=3, num_buckets=(32, 64, 64)"]),
    ({"model_type": "layoutlmv3"}, ["bias_scale=head_dim**-0.5"]),
    ({"model_type": "udop"}, ["factor=(1, 100, 100)", "decoder: T5's bias"]),
    ({"model_type": "perceiver"}, ["latents", 'family="perceiver"']),
    ({"model_type": "swin"}, ["SwinBias"]),
    ({"model_type": "swinv2"}, ["LogCPB"]),
    ({"model_type": "beit", "use_relative_position_bias": True}, ["BEiTBias"]),
    ({"model_type": "beit", "use_absolute_position_embeddings": True}, ["LearnedGrid"]),
    ({"model_type": "beit"}, ["none: no key"]),
    ({"model_type": "deberta-v2", "relative_attention": True}, ["Learned", "disentangled"]),
    ({"model_type": "deberta", "relative_attention": True, "position_biased_input": False}, ["disentangled"]),
    ({"model_type": "whisper"}, ["audio: sinusoidal", "tensor2tensor", "text: learned"]),
    ({"model_type": "clip", "text_config": {"model_type": "clip_text_model"}}, ["text: learned", "image: learned"]),
    ({"model_type": "clip_text_model"}, ["learned"]),
    ({"model_type": "distilbert", "sinusoidal_pos_embds": True}, ["Sinusoidal(dim)"]),
    ({"model_type": "marian"}, ['Sinusoidal(dim, layout="half")']),
    ({"model_type": "wav2vec2"}, ["convolution"]),
    ({"model_type": "mamba"}, ["none: a recurrence"]),
    ({"model_type": "jamba"}, ["NoPE"]),
    ({"model_type": "granitemoehybrid", "rope_theta": 1e4, "head_dim": 64}, ["NoPE"]),
    ({"model_type": "bert", "position_embedding_type": "relative_key"}, ["Learned("]),
    ({"model_type": "bert", "position_embedding_type": "alibi"}, ["ALiBi"]),
]


@pytest.mark.parametrize(("config", "words"), DESCRIBED, ids=lambda value: str(value)[:50])
def test_explain_says_which_encoding_there_is(config: dict[str, Any], words: list[str]) -> None:
    read = read_rope(config)
    text = as_text(read)
    assert "rotation     none" in text
    assert all(word in text for word in words), text
    assert read.to_config() == read.to_config(version=5) == config
    with pytest.raises(ValueError, match=config["model_type"]) as error:
        rope_from_config(config)
    assert read.position_schemes[0].text in str(error.value)


@pytest.mark.parametrize("name", sorted(NON_ROTARY))
def test_every_family_is_told_in_words_and_data(name: str) -> None:
    read = read_rope({"model_type": name, "hidden_size": 64, "num_attention_heads": 2})
    text = as_text(read)
    assert "rope_parameters" not in text
    assert "encoding     " in text
    reported = json.loads(json.dumps(facts(read)))["encodings"]
    assert reported
    for item in reported:
        for builds in re.findall(r"[A-Z]\w+(?=\()", item["posenc"] or ""):
            assert builds in NAMES, f"{builds} is no class of posenc"


def test_keys_turn_encodings_off():
    encodings = facts(read_rope({"model_type": "vitdet"}))["encodings"]
    assert [item["posenc"] for item in encodings] == ["LearnedGrid(dim, size=(14, 14), prefix=1)"]
    flat = {"model_type": "layoutlmv3", "has_relative_attention_bias": False, "has_spatial_attention_bias": False}
    assert len(facts(read_rope(flat))["encodings"]) == 1
    assert len(facts(read_rope({**flat, "has_spatial_attention_bias": True}))["encodings"]) == 2
    bare = {"model_type": "sam_vision_model", "use_abs_pos": False, "use_rel_pos": False}
    assert "none: no key" in as_text(read_rope(bare))


def test_no_family_both_turns_and_does_not() -> None:
    assert not set(NON_ROTARY) & set(ROTARY)


def test_what_is_built_builds() -> None:
    rooms = {"dim": 64, "num_heads": 4, "window": (4, 4), "head_dim": 16}
    calls = {item["posenc"] for name in NON_ROTARY for item in facts(read_rope({"model_type": name}))["encodings"]}
    for call in filter(None, calls):
        expression = call.split(" in the encoder")[0].replace("window=...", "window=4").replace("...", "8")
        if not expression.startswith("encodings="):
            built = eval(expression, {**NAMES, **rooms})  # the text that a reader would type
            assert isinstance(built, torch.nn.Module)


def test_what_vision_towers_are_said_to_be_builds() -> None:
    calls = {call for reason in UNSUPPORTED.values() for call in re.findall(r"\w*RoPE\(.*\)", reason)}
    assert len(calls) == 10
    for call in calls:
        assert isinstance(eval(call, {**NAMES, "head_dim": 24}), posenc.encoding.RotaryEncoding)


def test_a_rotation_that_is_switched_on_or_stands_there() -> None:
    granite = {"model_type": "granitemoehybrid", "head_dim": 64, "position_embedding_type": "rope"}
    assert read_rope(granite).rope.head_dim == 64
    for name in ("bert", "gpt2", "bloom", "t5", "jamba", "nemotron_h", "kimi_linear", "whisper"):
        for stray in ({"rope_theta": 1e4}, {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}):
            read = read_rope({"model_type": name, "head_dim": 64, **stray})
            assert read.layers == {"all": None}, f"{name}: the code has no rotation, whatever keys a file has"
            assert read.position_schemes
    with pytest.raises(ValueError, match="alibi"):
        read_rope({"model_type": "falcon", "alibi": "yes"})


def test_a_model_without_a_rotation_takes_none() -> None:
    read = read_rope({"model_type": "bert"})
    with pytest.raises(ValueError, match=r"bert|layers"):
        read.with_rope({"all": RoPE(64)}).to_config()


def test_an_unknown_model_is_not_told_to_turn() -> None:
    with pytest.raises(ValueError, match="brand_new"):
        read_rope({"model_type": "brand_new", "hidden_size": 64})
    with pytest.raises(NotReadError) as raised:
        read_rope({"model_type": "brand_new", "hidden_size": 64})
    assert not re.search(r"\d", str(raised.value)), "no base is advised"
