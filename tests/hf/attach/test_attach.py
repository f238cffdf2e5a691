"""Encodings attached to live transformers models: a few families here, many in tests/reference/test_attach.py."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from transformers import StaticCache

from posenc import RoPE
from posenc.evaluation.generate import generate
from posenc.hf.attach import attach, detach, load
from posenc.hf.doctor import examine
from tests.hf.attach.smallest import LEARNED, built, calls_agree, decoder, itself, loss_falls, move, tokens
from tests.hf.modeling.test_modeling import MIXES, NAMES
from tests.samples import mostly_slow

logging.getLogger("transformers").setLevel(logging.CRITICAL)
INSIDE = [spec for spec in [*NAMES, *MIXES] if not spec.startswith(("sinusoidal", "learned"))]  # not in embeddings
UNREACHED = ("modernbert", "llama4_text", "qwen2_vl_text", "ernie4_5_vl_moe_text", "doge")
ALIBI = [{"name": "alibi", "options": {}}]
STATIC: dict[str, Any] = {"cache_implementation": "static", "disable_compile": True}
FEW = ("llama", "qwen2", "qwen3", "gpt_neox", "gemma2", "gemma3_text", "gpt_oss")


@pytest.mark.parametrize("name", FEW)
def test_its_own_rotation_changes_nothing(name: str) -> None:
    attached = itself(name)
    assert attached.gap < 1e-5
    assert (attached.back, attached.same) == (True, True)
    assert attached.without > 0.1


@torch.no_grad()
@pytest.mark.parametrize("name", ["llama", "gemma3_text", "gpt_oss"])
@pytest.mark.parametrize(
    "options", [STATIC, {**STATIC, "attention_mask": torch.ones(2, 8, dtype=torch.long)}, {"num_beams": 2}]
)
def test_generates_the_same_tokens_behind_padding(name: str, options: dict[str, Any]) -> None:
    model, ids = decoder(name), tokens(count=8)
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    arguments = {"attention_mask": mask, "max_new_tokens": 10, "do_sample": False, "eos_token_id": None, **options}
    before = model.generate(ids, **arguments)
    assert torch.equal(attach(model, "own").generate(ids, **arguments), before)


@torch.no_grad()
def test_a_static_cache_that_was_allocated_before_its_first_call() -> None:
    model, ids = attach(decoder("llama"), "fox"), tokens()
    cache = StaticCache(model.config, max_cache_len=16)
    cache.early_initialization(2, model.config.num_key_value_heads, model.config.head_dim, torch.float32, "cpu")
    steps = [model(ids[:, part], past_key_values=cache).logits for part in (slice(0, 9), slice(9, 10), slice(10, 12))]
    torch.testing.assert_close(torch.cat(steps, 1), model(ids, use_cache=False).logits, rtol=0, atol=1e-4)


@pytest.mark.parametrize("encodings", LEARNED)
def test_trains_under_checkpointing_with_the_same_gradients(encodings: str) -> None:
    model, ids = attach(decoder("llama"), encodings), tokens()
    move(model)
    model(ids, labels=ids).loss.backward()
    gradients = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    assert all(name in gradients for name, _ in model.named_parameters())
    model.zero_grad()
    model.train().gradient_checkpointing_enable()
    model(ids, labels=ids).loss.backward()
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.grad, gradients[name], rtol=1e-4, atol=1e-6)
    loss_falls(model)


def test_some_layers_and_copies_of_a_list() -> None:
    model = attach(decoder("gpt_oss"), [RoPE(16, base=100.0)], layers=[1])
    assert [hasattr(module, "posenc") for module in model.modules() if hasattr(module, "layer_idx")].count(True) == 1
    assert "RoPE(16, base=100" in model.config.posenc["built_in_python"][0]
    other, ids = decoder("gpt_oss"), tokens()
    assert (model(ids).logits - other(ids).logits).abs().max() > 1e-3
    detach(model)
    assert not hasattr(model.config, "posenc")
    attach(model, "own", layers=[0])
    torch.testing.assert_close(model(ids).logits, other(ids).logits, rtol=0, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize(("name", "encodings"), [("llama", "fox"), ("qwen3", "own+t5"), ("gpt_oss", "cope")])
def test_saved_and_loaded_and_copied(name: str, encodings: str, tmp_path: Path) -> None:
    model, ids = attach(decoder(name), encodings, [1]), tokens()
    move(model)
    before = model(ids).logits
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["_attn_implementation"] == "posenc"
    loaded = load(tmp_path)
    assert type(loaded) is type(model)
    assert torch.equal(loaded(ids).logits, before)
    assert (load(tmp_path, dtype=torch.bfloat16)(ids).logits - before).abs().max() < 0.3
    loaded.save_pretrained(tmp_path / "again")
    assert torch.equal(load(tmp_path / "again")(ids).logits, before)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(ids).logits, before)
        detach(other)
    assert torch.equal(model(ids).logits, before)


def test_a_list_built_in_python_is_not_loaded(tmp_path: Path) -> None:
    attach(decoder("llama"), [RoPE(16, base=100.0)]).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"RoPE\(16, base=100"):
        load(tmp_path)


def test_no_other_model_is_loaded_without_the_loader(tmp_path: Path) -> None:
    """Encodings without parameters leave no weight behind that transformers could miss; nor does importing posenc."""
    attach(decoder("llama"), "alibi").save_pretrained(tmp_path)
    code = (
        "import sys, transformers; before = transformers.PreTrainedModel.post_init; refused = 0\n"
        "def load():\n"
        "    global refused\n"
        "    for one in (transformers.AutoModelForCausalLM, transformers.AutoModel, transformers.LlamaForCausalLM):\n"
        "        try: one.from_pretrained(sys.argv[1])\n"
        "        except ValueError as error: refused += 'posenc' in str(error)\n"
        "load(); import posenc.hf.attach, posenc.hf.modeling, posenc.hf.extend; load()\n"
        "sys.exit(refused != 6 or transformers.PreTrainedModel.post_init is not before)"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@torch.no_grad()
@pytest.mark.parametrize("name", ["sdpa", "eager"])
def test_another_attention_function_is_an_error_and_not_another_model(name: str) -> None:
    model, ids = attach(decoder("llama"), "alibi"), tokens()
    before = model(ids).logits
    model.set_attn_implementation(name)
    with pytest.raises(ValueError, match="attn_implementation"):
        model(ids)
    assert ("attachment-undone", "fault") in {(item.name, item.level) for item in examine(model).findings}
    model.set_attn_implementation("posenc")
    assert torch.equal(model(ids).logits, before)
    assert examine(model).healthy
    model.set_attn_implementation(name)
    detach(model)
    model(ids)


@pytest.mark.slow
def test_loaded_in_a_fresh_process(tmp_path: Path) -> None:
    model, ids = attach(decoder("llama"), "own+fox"), tokens()
    move(model)
    model.save_pretrained(tmp_path)
    code = (
        "import sys, torch; from posenc.hf.attach import load;"
        "from tests.hf.attach.smallest import tokens;"
        "torch.save(load(sys.argv[1])(tokens()).logits.detach(), sys.argv[1] + '/out.pt')"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert torch.equal(torch.load(tmp_path / "out.pt"), model(ids).logits)


@pytest.mark.parametrize(
    ("name", "encodings", "layers", "says"),
    [
        ("llama", "own", [9], "layers"),
        ("llama", "own", [], "layers"),
        ("llama", "foxx", None, "foxx"),
        ("llama", "sinusoidal", None, "(?i)sinusoidal"),
        ("llama", "rope@4/nope:2", None, "window"),
        ("hunyuan_v1_dense", "own", None, "norms"),
        ("qwen2_vl_text", "own", None, "coordinates"),
        ("gpt_oss", "stick-breaking", None, "sink"),
        ("deepseek_v32", "fox", None, "indexer"),
        ("gpt_neox_japanese", "own", None, "GPTNeoXJapaneseAttention"),
        *((name, ALIBI, None, r"reach|must be bool") for name in UNREACHED),  # would fail in a forward alone
    ],
)
def test_what_cannot_be_served_is_refused_and_nothing_changes(
    name: str, encodings: Any, layers: Any, says: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = built(name)
    before, random = model.config._attn_implementation, torch.get_rng_state()
    with pytest.raises(ValueError, match=says):
        attach(model, encodings, layers)
    assert model.config._attn_implementation == before
    assert torch.equal(torch.get_rng_state(), random)
    with pytest.raises(ValueError, match="encodings"):
        detach(model)


@torch.no_grad()
def test_remapped_distances_of_the_rotation_that_a_layer_has(tmp_path: Path) -> None:
    model, ids = decoder("llama"), tokens()
    before = model(ids).logits
    attach(model, [{"name": "rerope", "options": {"rotation": "own", "window": 1000}}])
    torch.testing.assert_close(model(ids).logits, before, rtol=0, atol=1e-5)  # nothing is as far as its window
    detach(model)
    attach(model, [{"name": "rerope", "options": {"rotation": "own", "window": 4}}])
    moved = model(ids).logits
    assert (moved - before).abs().max() > 0.1
    model.save_pretrained(tmp_path)
    assert torch.equal(load(tmp_path)(ids).logits, moved)


@torch.no_grad()
@pytest.mark.parametrize(
    "spec",
    mostly_slow([*INSIDE, "own+fox"], *LEARNED, "own+fox", "rope", "xpos", "yarn", "dynamic_ntk", "path", "rope+cope"),
)
def test_every_encoding_decodes_pads_and_packs_as_one_pass(spec: str) -> None:
    model = attach(decoder("llama"), spec)
    move(model)
    calls_agree(model)
    ids = tokens()[0]
    text = generate(model, ids, 5)
    whole = torch.cat([ids, torch.tensor(text.tokens)])[None]  # dynamic frequencies are those of each length
    after = [model(whole[:, :n], use_cache=False).logits[0, -1].log_softmax(-1) for n in range(12, 17)]
    assert [int(row.argmax()) for row in after] == text.tokens
    likely = torch.stack([row.max() for row in after])
    torch.testing.assert_close(torch.tensor(text.log_probabilities), likely, rtol=0, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("name", ["llama", "gpt2", "gptj", "opt"])
def test_packed_documents_are_apart_where_the_model_keeps_them_so_and_a_warning_says_where_not(name: str) -> None:
    def sees(model: Any, **options: Any) -> bool:
        """Whether the second of two documents changes with the first."""
        places = torch.cat([torch.arange(5), torch.arange(7)])[None]
        ids = tokens(rows=1)
        other = torch.cat([ids[:, :5].flip(1), ids[:, 5:]], 1)
        first, second = (model(row, position_ids=places, **options).logits[:, 5:] for row in (ids, other))
        return bool((first - second).abs().max() > 1e-4)

    plain, model, ones = decoder(name), attach(decoder(name), "fox"), torch.ones(1, 12, dtype=torch.long)
    apart = torch.block_diag(torch.ones(5, 5).tril(), torch.ones(7, 7).tril()).bool()[None, None]
    for options in (
        {}, {"use_cache": False}, {"use_cache": False, "attention_mask": ones}, {"attention_mask": ones},
    ):  # fmt: skip
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            leaks = sees(model, **options)
        assert leaks == sees(plain, **options)
        assert leaks == any("position_ids" in str(entry.message) for entry in caught)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert not sees(model, attention_mask=apart)
        padded, mask = torch.cat([tokens()[:, :3] * 0, tokens()], 1), torch.ones(2, 15, dtype=torch.long)
        for side in (slice(0, 3), slice(12, 15)):  # places of padding are anything
            rows = mask.clone()
            rows[0, side] = 0
            model(padded, attention_mask=rows, position_ids=(rows.cumsum(1) - 1).masked_fill(rows == 0, 1))
