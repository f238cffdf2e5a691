"""What is RoPE alone becomes a plain Llama with the same logits; everything else is refused with a reason."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers")

from transformers import AutoModelForCausalLM, LlamaForCausalLM

from posenc.hf.modeling import PosencForCausalLM
from posenc.hf.modeling.export import plain_llama
from tests.hf.modeling.test_modeling import config, texts

ROTARY = ["rope", "pi", "ntk", "ntk_by_parts", "part_ntk", "yarn", "llama3", "resonance", "proportional"]


def make(encodings: object, **options: object) -> PosencForCausalLM:
    torch.manual_seed(0)
    return PosencForCausalLM(config(encodings, initializer_range=0.1, **options)).eval()


@pytest.mark.parametrize("spec", ROTARY)
@pytest.mark.parametrize("options", [{}, {"num_key_value_heads": 2, "attention_bias": True, "head_dim": 16}])
@torch.no_grad()
def test_the_same_logits(spec: str, options: dict[str, object], tmp_path: object) -> None:
    model, (ids, mask) = make(spec, **options), texts()
    llama = plain_llama(model)
    assert type(llama) is LlamaForCausalLM
    llama.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert type(again) is LlamaForCausalLM
    far = torch.randint(1, 256, (1, 32))
    for arguments in ({"input_ids": ids}, {"input_ids": far}):
        torch.testing.assert_close(again(**arguments).logits, model(**arguments).logits, atol=1e-5, rtol=1e-5)
    result, expected = (m(ids, attention_mask=mask).logits[1, 5:] for m in (again, model))
    torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_generation_is_the_same() -> None:
    model, (ids, mask) = make("rope"), texts()
    options = {"attention_mask": mask, "max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(plain_llama(model).generate(ids, **options), model.generate(ids, **options))


@pytest.mark.parametrize(
    ("encodings", "options", "words"),
    [
        ("rope", {"qk_norm": True}, "qk_norm"),
        ("nope", {}, "nope"),
        ("rope+alibi", {}, "rope\\+alibi"),
        ("t5", {}, "t5"),
        ("xpos", {}, "xpos"),
        ("dynamic_ntk", {}, "length"),
        ("longrope", {}, "length"),
        ("multiscale", {}, "heads"),
        ([{"name": "rope", "options": {"layout": "interleaved"}}], {}, "layout"),
    ],
)
def test_what_llama_cannot_express_is_refused(encodings: object, options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        plain_llama(make(encodings, **options))
