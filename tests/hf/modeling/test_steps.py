"""Generation with a cache says what one pass over the whole text says, for every encoding and every way to go on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers")

from posenc.evaluation.generate import generate
from posenc.hf.modeling import PosencForCausalLM
from tests.hf.modeling.test_modeling import MIXES, NAMES, STATEFUL, make, texts
from tests.samples import mostly_slow

OWNERS = [
    [{"name": name, "shared": shared}] for name in ("alibi", "t5", "stick-breaking", "rope") for shared in (True, False)
]
ENCODINGS = [*NAMES, *MIXES, "learned+fox", "t5+power_temperature", "rope@6/alibi:2", *OWNERS]


def named(encodings: object) -> str:
    if isinstance(encodings, str):
        return encodings
    ((spec,),) = (encodings,)
    return f"{spec['name']}, {'one for all layers' if spec['shared'] else 'one a layer'}"


def cached(encodings: object) -> PosencForCausalLM:
    """A model whose cache serves: rotations that depend on the length have to know it."""
    model = make(encodings)
    return make(encodings, declared_length=32) if model.model.rotates_cached_keys_anew() else model


def held(out: Any) -> Any:
    """The cache that a call returned."""
    return out.cache if hasattr(out, "cache") else out.past_key_values


def in_parts(model: PosencForCausalLM, ids: Tensor, cuts: list[int], name: str, **first: Tensor) -> Tensor:
    """Logits of calls that go on one after the other, each with no more than its tokens and the cache."""
    cache, logits = None, []
    for start, stop in zip([0, *cuts], [*cuts, ids.shape[1]], strict=True):
        options = {name: cache} if start else first
        out = model(ids[:, start:stop], use_cache=True, **options)
        cache = held(out)
        logits.append(out.logits)
    return torch.cat(logits, 1)


def close(result: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(result, expected, atol=1e-4, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("encodings", [*mostly_slow(ENCODINGS[: -len(OWNERS)], *STATEFUL, *MIXES), *OWNERS], ids=named)
def test_steps_and_chunks_equal_one_pass(encodings: object) -> None:
    model, (ids, mask) = cached(encodings), texts()
    full = model(ids[:1], use_cache=False).logits
    close(in_parts(model, ids[:1], list(range(1, 12)), "cache"), full)
    close(in_parts(model, ids[:1], [5, 6, 9], "past_key_values"), full)
    padded = model(ids, attention_mask=mask, use_cache=False).logits
    behind = in_parts(model, ids, list(range(8, 12)), "cache", attention_mask=mask[:, :8])
    close(behind[0], padded[0])
    close(behind[1, 5:], padded[1, 5:])
    text = generate(model, ids[0], 6)
    alone = model(torch.cat([ids[0], torch.tensor(text.tokens)])[None], use_cache=False).logits[0, 11:-1]
    assert alone.argmax(-1).tolist() == text.tokens
    taken = alone.log_softmax(-1).gather(-1, torch.tensor(text.tokens)[:, None])[:, 0]
    close(torch.tensor(text.log_probabilities), taken)


@torch.no_grad()
@pytest.mark.parametrize("spec", ["rope", "alibi", "rope+t5", "stick-breaking"])
def test_a_layer_steps_in_a_static_cache_by_all_its_encodings(spec: str) -> None:
    layer = make(spec).model.decoder_layers()[0].self_attn
    x = torch.randn(1, 9, 32, generator=torch.Generator().manual_seed(2))
    cache = layer.static_cache(1, 16)
    close(torch.cat([layer(x[:, n : n + 1], cache=cache) for n in range(9)], 1), layer(x))


@torch.no_grad()
def test_a_static_cache_of_transformers_is_refused_by_name() -> None:
    model, (ids, _) = make("rope"), texts()
    with pytest.raises(ValueError, match="cache"):
        model.generate(ids, max_new_tokens=2, cache_implementation="static", disable_compile=True)
    cache = held(model(ids))
    with pytest.raises(ValueError, match="cache and past_key_values"):
        model(ids, cache=cache, past_key_values=cache)


@torch.no_grad()
def test_a_call_that_was_interrupted_between_layers_is_not_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (ids, _) = make("rope"), texts()
    cache = held(model(ids[:1, :6]))
    with monkeypatch.context() as patch:
        patch.setattr(model.model.layers[1], "forward", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            model(ids[:1, 6:7], past_key_values=cache)
    with pytest.raises(ValueError, match="6 to 7 tokens"):
        model(ids[:1, 6:7], past_key_values=cache)
    cache.layers[0].crop(-1)
    close(model(ids[:1, 6:7], past_key_values=cache).logits, model(ids[:1, :7], use_cache=False).logits[:, -1:])


def test_activation_checkpointing_keeps_no_token_twice() -> None:
    model, (ids, _) = make("rope").train(), texts()
    model.gradient_checkpointing_enable()
    with pytest.raises(ValueError, match="use_cache"):
        model(ids, labels=ids, use_cache=True)
    model(ids, labels=ids).loss.backward()
    with torch.no_grad():
        assert held(model(ids, use_cache=True)).get_seq_length() == ids.shape[1]
