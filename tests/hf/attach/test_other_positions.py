"""Encodings in the place of learned position embeddings and of a layer's own attention, and what they cost."""

from __future__ import annotations

import copy
import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from transformers import AutoConfig, AutoModelForCausalLM

import posenc_cli
from posenc.hf.attach import attach, detach, load
from posenc.hf.attach.other_positions import is_off, position_table
from posenc.hf.evaluate.attachment import attach_and_measure
from tests.hf.attach.smallest import calls_agree, loss_falls, move, randomize, tokens
from tests.hf.extend.extended import saved, small

logging.getLogger("transformers").setLevel(logging.CRITICAL)
SIZES = {"vocab_size": 64, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
ENDS: dict[str, Any] = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 0)
TABLES: dict[str, dict[str, Any]] = {
    "gpt2": {**SIZES, "max_position_embeddings": 24},
    "opt": {**SIZES, "max_position_embeddings": 24, "ffn_dim": 64, "word_embed_proj_dim": 64},
    "biogpt": {**SIZES, "max_position_embeddings": 24, "intermediate_size": 64},
}
INLINE: dict[str, tuple[str, dict[str, Any]]] = {
    "gptj": ("gptj", {**SIZES, "rotary_dim": 8, "max_position_embeddings": 64}),
    "gptj, all channels": ("gptj", {**SIZES, "rotary_dim": 16, "max_position_embeddings": 64}),
    "falcon, one key head": ("falcon", SIZES),
    "falcon, key heads": ("falcon", {**SIZES, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon, as many": ("falcon", {**SIZES, "multi_query": False}),
}
FALCON_ALIBI = {**SIZES, "alibi": True, "multi_query": False}


def model_of(model_type: str, sizes: dict[str, Any]) -> Any:
    config = AutoConfig.for_model(model_type, **sizes, **ENDS)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    randomize(model)
    return model


@torch.no_grad()
@pytest.mark.parametrize("name", TABLES)
def test_a_learned_table_is_switched_off_and_on(name: str, tmp_path: Path) -> None:
    model, ids = model_of(name, TABLES[name]), tokens()
    before, weights = model(ids).logits, copy.deepcopy(model.state_dict())
    table: Any = position_table(model)
    without = copy.deepcopy(model)
    position: Any = position_table(without)
    position.weight.zero_()
    attach(model, "nope")
    assert is_off(table)
    torch.testing.assert_close(model(ids).logits, without(ids).logits, rtol=0, atol=1e-5)  # as a table of zeros
    far = torch.randint(3, 60, (1, 60), generator=torch.Generator().manual_seed(0))
    assert model(far).logits.shape == (1, 60, 64)  # more tokens than the table has rows
    detach(model)
    assert not is_off(table)
    assert torch.equal(model(ids).logits, before)
    attach(model, "own")
    assert not is_off(table)
    torch.testing.assert_close(model(ids).logits, before, rtol=0, atol=1e-5)
    detach(model)
    attach(model, "rope")
    rotated = model(ids).logits
    assert (rotated - before).abs().max() > 0.1
    model.save_pretrained(tmp_path)
    again = load(tmp_path)
    assert torch.equal(again(ids).logits, rotated)
    assert torch.equal(copy.deepcopy(model)(ids).logits, rotated)
    assert all(torch.equal(weight, again.state_dict()[key]) for key, weight in weights.items())


@torch.no_grad()
def test_rotation_in_gpt2_is_that_of_the_definition() -> None:
    """The logits of one layer, by hand, from queries and keys of a model whose table is zero."""
    model, ids = model_of("gpt2", {**TABLES["gpt2"], "num_hidden_layers": 1}), tokens()
    attach(model, "rope")
    inner, layer = model.transformer, model.transformer.h[0]
    x = inner.wte(ids)
    q, k, v = (
        part.unflatten(-1, (4, 16)).transpose(1, 2) for part in layer.attn.c_attn(layer.ln_1(x)).split(64, dim=2)
    )
    angles = torch.arange(12.0)[:, None] * 10000 ** (-torch.arange(8) / 8)
    q, k = (
        torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)
        for a, b in (part.chunk(2, -1) for part in (q, k))
    )
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + layer.attn.c_proj(out.transpose(1, 2).flatten(2))
    x = x + layer.mlp(layer.ln_2(x))
    torch.testing.assert_close(model(ids).logits, model.lm_head(inner.ln_f(x)), rtol=0, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("name", INLINE)
def test_attention_within_a_layer_keeps_its_own_rotation(name: str, tmp_path: Path) -> None:
    model, ids = model_of(*INLINE[name]), tokens()
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    call = {"attention_mask": mask, "max_new_tokens": 6, "do_sample": False, "eos_token_id": None}
    before, padded, generated = model(ids).logits, model(ids, attention_mask=mask).logits, model.generate(ids, **call)
    cls = type(model.get_decoder().h[0]) if hasattr(model, "get_decoder") else None
    attach(model, "own")
    torch.testing.assert_close(model(ids).logits, before, rtol=0, atol=1e-4)
    seen = mask.bool()
    torch.testing.assert_close(model(ids, attention_mask=mask).logits[seen], padded[seen], rtol=0, atol=1e-4)
    assert torch.equal(model.generate(ids, **call), generated)
    detach(model)
    assert torch.equal(model(ids).logits, before)
    assert cls is None or type(model.get_decoder().h[0]) is cls
    attach(model, "fox")
    move(model)
    other = model(ids).logits
    model.save_pretrained(tmp_path)
    assert torch.equal(load(tmp_path)(ids).logits, other)
    assert torch.equal(copy.deepcopy(model)(ids).logits, other)


@pytest.mark.parametrize("name", ["gpt2", "opt", "gptj", "falcon, key heads"])
@pytest.mark.parametrize("encodings", ["alibi", "fox"])
def test_decoding_padding_and_training(name: str, encodings: str) -> None:
    model = model_of(name, TABLES[name]) if name in TABLES else model_of(*INLINE[name])
    attach(model, encodings)
    move(model)
    calls_agree(model, packs=name in ("gpt2", "gptj"))
    loss_falls(model)


@torch.no_grad()
def test_falcon_with_alibi_is_given_a_rotation() -> None:
    """ALiBi is taken out of its mask: the logits equal the same weights' without ALiBi, which rotate."""
    model, ids = model_of("falcon", FALCON_ALIBI), tokens()
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    rotating = model_of("falcon", {**FALCON_ALIBI, "alibi": False})
    assert not rotating.load_state_dict(model.state_dict(), strict=False).missing_keys
    with pytest.raises(ValueError, match="own: this model has ALiBi"):
        attach(model, "own+fox")
    attach(model, "rope")
    for call in ({}, {"attention_mask": mask}):
        expected = rotating(ids, **call).logits[mask.bool()]
        torch.testing.assert_close(model(ids, **call).logits[mask.bool()], expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("model_type", "sizes", "encodings", "layers", "says"),
    [
        ("gpt2", TABLES["gpt2"], "rope", [0], "belongs to all layers"),
        ("gptj", INLINE["gptj"][1], "rope", [0], "all layers change together"),
        ("gpt2", {**TABLES["gpt2"], "add_cross_attention": True}, "rope", None, "cross-attention"),
        ("gpt_bigcode", TABLES["gpt2"], "rope", None, "position_ids do not reach"),
    ],
)
def test_refusals_leave_the_model_as_it_was(
    model_type: str, sizes: dict[str, Any], encodings: str, layers: Any, says: str
) -> None:
    model, ids = model_of(model_type, sizes), tokens()
    before = model(ids).logits
    with pytest.raises(ValueError, match=says):
        attach(model, encodings, layers)
    assert torch.equal(model(ids).logits, before)


def test_own_is_kept_in_some_layers_of_a_model_with_a_table() -> None:
    model, ids = model_of("gpt2", TABLES["gpt2"]), tokens()
    before = model(ids).logits
    attach(model, "own+alibi", [1])
    assert not torch.allclose(model(ids).logits, before, atol=1e-3)


def test_the_cost_is_measured_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved(tmp_path / "model", small())
    (tmp_path / "text").write_text("the position of a token, and its distance from another, " * 60)
    options = ["--measure", "--text", str(tmp_path / "text"), "--windows", "3"]
    command = ["attach", str(tmp_path / "model"), "fox", "--out", str(tmp_path / "new"), *options]
    assert posenc_cli.run(command) == 0
    printed = capsys.readouterr().out
    assert re.search(r"\| fox \| 64 \| [+-]\d\.\d{4} \[[+-].*\| 3 \|", printed)
    assert load(tmp_path / "new") is not None
    cost = attach_and_measure(tmp_path / "model", "own", tmp_path / "same", text=tmp_path / "text", windows=3)
    before, after = (cost.values("perplexity", 64, method) for method in ("as_is", "own"))
    assert after == pytest.approx(before, abs=1e-4)
    assert [contrast.verdict for contrast in cost.contrasts()] == ["equivalent"]
    with pytest.raises(ValueError, match="tokens are needed"):
        attach_and_measure(tmp_path / "model", "own", tmp_path / "third", text=tmp_path / "text", windows=3000)
    assert not (tmp_path / "third").exists()


@pytest.mark.parametrize("name", ["gpt2", "opt", "gptj", "falcon, key heads"])
def test_a_folder_is_explained_and_inspected(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = model_of(name, TABLES[name]) if name in TABLES else model_of(*INLINE[name])
    attach(model, "alibi").save_pretrained(tmp_path)
    assert posenc_cli.run(["explain", str(tmp_path)]) == 0
    assert "alibi" in capsys.readouterr().out
    assert posenc_cli.run(["explain", "--live", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("attached: ALiBi(4") == 2
    assert posenc_cli.run(["doctor", str(tmp_path)]) == 0
    assert "encodings-attached" in capsys.readouterr().out
