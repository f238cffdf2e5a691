"""Models of transformers with any encoding: generation with a cache, padding, beams, saving, training, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("transformers")

from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig, LlamaForCausalLM, StaticCache

from posenc.catalogue import CATALOGUE
from posenc.evaluation.generate import generate
from posenc.hf.modeling import PosencConfig, PosencForCausalLM
from tests.samples import mostly_slow

MIXES = ["nope", "rope+alibi", "sinusoidal+t5", "fox+rope", "path+fox", "rope+cope"]
STATEFUL = ["rope", "xpos", "dynamic_ntk", "learned", "alibi", "fox", "path", "cope", "stick-breaking"]


def for_text(name: str) -> bool:
    """Whether an entry encodes places in a text, each layer by itself."""
    try:
        config(name).encoding_specs()
    except ValueError as error:
        if "positions of" not in str(error) and "layers hand on" not in str(error):
            raise
        return False
    return True


def config(encodings: object, **options: object) -> PosencConfig:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "train_length": 16, "max_position_embeddings": 32}
    return PosencConfig(**{**sizes, "encodings": encodings, "initializer_range": 0.3, **options})


def make(encodings: object, **options: object) -> PosencForCausalLM:
    """A model whose parameters, those of the encodings too, are all drawn at random."""
    torch.manual_seed(0)
    model = PosencForCausalLM(config(encodings, **options)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


def declared(spec: str) -> dict[str, object]:
    """What a model needs for a cache: rotations that depend on the length have to know it."""
    return {"declared_length": 32} if {"dynamic", "longrope", "clex"} & set(spec.split("_")) else {}


def texts() -> tuple[Tensor, Tensor]:
    """Two rows of bytes, the second one padded at its left, and their mask."""
    ids = torch.randint(1, 256, (2, 12), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    ids[1, :5], mask[1, :5] = 0, 0
    return ids, mask


@pytest.fixture(autouse=True)
def no_grad() -> object:
    with torch.no_grad():
        yield


NAMES = [name for name in CATALOGUE if name != "nope" and for_text(name)]


def test_the_catalogue_of_texts_is_covered() -> None:
    assert len(NAMES) >= 35
    assert {"rope", "longrope", "t5", "fox", "path", "dape", "stick-breaking"} <= set(NAMES)


@pytest.mark.parametrize("spec", mostly_slow([*NAMES, *MIXES], *STATEFUL, *MIXES))
def test_generation_with_a_cache_and_padding_equals_whole_forwards(spec: str) -> None:
    model, (ids, mask) = make(spec, **declared(spec)), texts()
    out = model.generate(
        ids, attention_mask=mask, max_new_tokens=6, min_new_tokens=6, do_sample=False, pad_token_id=0,
        output_logits=True, return_dict_in_generate=True,
    )  # fmt: skip
    for row, start in enumerate((0, 5)):
        for step, result in enumerate(out.logits):
            alone = out.sequences[row : row + 1, start : 12 + step]
            expected = model(alone, use_cache=False).logits[0, -1]
            torch.testing.assert_close(result[row], expected, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("spec", mostly_slow([*NAMES, *MIXES], *STATEFUL, *MIXES))
def test_what_is_saved_comes_back(spec: str, tmp_path: Path) -> None:
    model, (ids, _) = make(spec), texts()
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert isinstance(again, PosencForCausalLM)
    assert again.config.encodings == model.config.encodings
    assert {k: v.shape for k, v in again.state_dict().items()} == {k: v.shape for k, v in model.state_dict().items()}
    assert torch.equal(again(ids).logits, model(ids).logits)
    assert (tmp_path / "modeling_posenc.py").exists(), "the file that auto_map names"


@pytest.mark.parametrize("spec", STATEFUL)
def test_beams_reorder_all_that_is_kept(spec: str) -> None:
    model, (ids, mask) = make(spec, **declared(spec)), texts()
    options = {"attention_mask": mask, "max_new_tokens": 5, "num_beams": 3, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(model.generate(ids, **options), model.generate(ids, use_cache=False, **options))


@pytest.mark.parametrize("spec", STATEFUL)
def test_a_cache_can_be_cropped_and_repeated(spec: str) -> None:
    model, (ids, mask) = make(spec, **declared(spec)), texts()
    full = model(ids, attention_mask=mask, use_cache=False).logits
    cache = model(ids[:, :9], attention_mask=mask[:, :9]).past_key_values
    cache.crop(-4)
    assert cache.get_seq_length() == 5
    rest = model(ids[:, 5:], attention_mask=mask, past_key_values=cache).logits
    torch.testing.assert_close(rest, full[:, 5:], atol=1e-4, rtol=1e-5)
    cache = model(ids[:, :-1], attention_mask=mask[:, :-1]).past_key_values
    cache.batch_select_indices(torch.tensor([1, 0]))
    cache.batch_repeat_interleave(2)
    rows = torch.tensor([1, 1, 0, 0])
    last = model(ids[rows, -1:], attention_mask=mask[rows], past_key_values=cache).logits
    torch.testing.assert_close(last[:, 0], full[rows, -1], atol=1e-4, rtol=1e-5)
    cache.reset()
    assert cache.get_seq_length() == 0


@pytest.mark.parametrize("spec", ["rope", "fox", "learned"])
def test_drafts_of_a_smaller_model_change_nothing(spec: str) -> None:
    model, draft, (ids, _) = make(spec), make("nope", num_hidden_layers=1), texts()
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    assisted = model.generate(ids[:1], assistant_model=draft, **options)
    assert torch.equal(assisted, model.generate(ids[:1], **options))


def test_padding_needs_no_positions_and_a_later_call_no_mask() -> None:
    model, (ids, mask) = make("rope+learned"), texts()
    full = model(ids, attention_mask=mask, use_cache=False).logits
    alone = model(ids[1:, 5:], use_cache=False).logits
    torch.testing.assert_close(full[1:, 5:], alone, atol=1e-4, rtol=1e-5)
    cache = model(ids[:, :8], attention_mask=mask[:, :8]).past_key_values
    rest = model(ids[:, 8:], past_key_values=cache).logits
    torch.testing.assert_close(rest, full[:, 8:], atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("spec", ["dynamic_ntk", "longrope", "clex"])
def test_lengths_that_nobody_declared_leave_no_use_for_a_cache(spec: str) -> None:
    model, (ids, _) = make(spec), texts()
    out = model.generate(ids[:1], max_new_tokens=8, min_new_tokens=8, do_sample=False, pad_token_id=0)
    assert torch.equal(out[:, 12:], torch.cat([model(out[:, :n]).logits[:, -1:].argmax(-1) for n in range(12, 20)], 1))
    assert model(ids).past_key_values is None
    for refused in ({"use_cache": True}, {"past_key_values": DynamicCache()}):
        with pytest.raises(ValueError, match="declared_length"):
            model(ids, **refused)


def test_caches_of_another_kind_are_refused() -> None:
    model, (ids, _) = make("rope"), texts()
    llama, offloading = LlamaForCausalLM(LlamaConfig(**LLAMA)), DynamicCache()
    offloading.offloading = True  # the constructor asks for a stream, which PyTorch's CUDA build has not without a GPU
    for cache, words in (
        (StaticCache(model.config, max_cache_len=32), "StaticCache"),
        (offloading, "offload"),
        (llama(ids).past_key_values, "DynamicLayer"),
        (((ids, ids),), "tuple"),
    ):
        with pytest.raises(ValueError, match=words):
            model(ids, past_key_values=cache)
    with pytest.raises(ValueError, match="past_key_values"):
        llama(ids, past_key_values=model(ids).past_key_values)


LLAMA = {
    "vocab_size": 256, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
}  # fmt: skip


def test_options_reach_the_encoding_and_what_is_shared_is_there_once() -> None:
    model = make([{"name": "rope", "options": {"base": 500.0}}, {"name": "t5"}, {"name": "shaw"}])
    rope, bias, _ = model.model.decoder_layers()[1].self_attn.in_order()
    assert rope.base == 500.0
    assert bias is model.model.decoder_layers()[0].self_attn.in_order()[1]
    names = [name for name, _ in model.named_parameters() if "encodings" in name]
    assert sum("model.encodings.1" in name for name in names) == len(list(bias.parameters()))
    assert any("layers.0.self_attn.encodings" in name for name in names)
    apart = make([{"name": "t5", "shared": False}])
    assert len(apart.state_dict()) == len(make("t5").state_dict()) + len(list(bias.parameters()))


@torch.enable_grad()
def test_the_loss_and_its_gradients_with_checkpoints() -> None:
    model, (ids, _) = make("rope+fox").train(), texts()
    out = model(ids, labels=ids)
    expected = nn.functional.cross_entropy(out.logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    torch.testing.assert_close(out.loss, expected)
    assert out.past_key_values is None, "no cache while training"
    out.loss.backward()
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    model.activation_checkpointing_enable()
    model(ids, labels=ids).loss.backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name])


def test_hidden_states_kept_logits_embeddings_and_tuples() -> None:
    model, (ids, _) = make("rope", qk_norm=True, attention_bias=True, num_key_value_heads=2), texts()
    out = model(ids, output_hidden_states=True)
    assert len(out.hidden_states) == 3
    assert torch.equal(model.lm_head(out.hidden_states[-1]), out.logits)
    assert torch.equal(model(ids, logits_to_keep=2).logits, out.logits[:, -2:])
    assert torch.equal(model(ids, logits_to_keep=torch.tensor([0, 3])).logits, out.logits[:, [0, 3]])
    assert torch.equal(model(inputs_embeds=model.get_input_embeddings()(ids)).logits, out.logits)
    assert torch.equal(model(ids, return_dict=False)[0], out.logits)


def test_tied_embeddings_and_low_precision(tmp_path: Path) -> None:
    model, (ids, _) = make("rope+t5", tie_word_embeddings=True), texts()
    assert model.lm_head.weight is model.model.embed_tokens.weight
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16).eval()
    assert again.lm_head.weight is again.model.embed_tokens.weight
    result, expected = again(ids).logits, model(ids).logits
    assert result.dtype == torch.bfloat16
    assert (result - expected).abs().max() < 0.1 * expected.abs().max()


def test_a_fresh_model_draws_its_encodings_as_their_classes_do() -> None:
    model = PosencForCausalLM(config("learned+kerple"))
    rows = model.model.encodings["0"].table
    assert 0.01 < rows.std() < 0.03, "learned draws with 0.02, matrices here with 0.3"
    assert model.model.embed_tokens.weight.std() > 0.2


@pytest.mark.slow
def test_one_graph_without_breaks() -> None:
    model, (ids, mask) = make("rope+alibi"), texts()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    result = compiled(ids, attention_mask=mask, use_cache=False).logits[1, 5:]
    torch.testing.assert_close(result, model(ids, attention_mask=mask).logits[1, 5:], atol=1e-4, rtol=1e-5)


# Ways to go on with a cache, each against one pass over the whole text

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


@pytest.mark.parametrize("spec", ["rope", "alibi", "rope+t5", "stick-breaking"])
def test_a_layer_steps_in_a_static_cache_by_all_its_encodings(spec: str) -> None:
    layer = make(spec).model.decoder_layers()[0].self_attn
    x = torch.randn(1, 9, 32, generator=torch.Generator().manual_seed(2))
    cache = layer.static_cache(1, 16)
    close(torch.cat([layer(x[:, n : n + 1], cache=cache) for n in range(9)], 1), layer(x))


def test_a_static_cache_of_transformers_is_refused_by_name() -> None:
    model, (ids, _) = make("rope"), texts()
    with pytest.raises(ValueError, match="cache"):
        model.generate(ids, max_new_tokens=2, cache_implementation="static", disable_compile=True)
    cache = held(model(ids))
    with pytest.raises(ValueError, match="cache and past_key_values"):
        model(ids, cache=cache, past_key_values=cache)


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


@torch.enable_grad()
def test_activation_checkpointing_keeps_no_token_twice() -> None:
    model, (ids, _) = make("rope").train(), texts()
    model.gradient_checkpointing_enable()
    with pytest.raises(ValueError, match="use_cache"):
        model(ids, labels=ids, use_cache=True)
    model(ids, labels=ids).loss.backward()
    with torch.no_grad():
        assert held(model(ids, use_cache=True)).get_seq_length() == ids.shape[1]
