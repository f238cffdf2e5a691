"""Caches of transformers edited by token: equal to one pass under a mask, and to keys that the model itself rotates."""

from __future__ import annotations

import copy
import random
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("transformers")

from transformers import AttentionInterface, DynamicCache, QuantizedCache, StaticCache

from posenc.hf import CacheEditor
from posenc.hf.attach import attach
from posenc.hf.families import ROTARY
from tests.hf.attach.smallest import built

TOKENS, CLOSE = 15, 1e-6  # routers of experts and complex angles are float32, all else is float64
ROUNDED = 2e-5  # angles of transformers are products in float32
FULL = [
    "llama",
    "qwen2",
    "mixtral",
    "gpt_neox",
    "phi",
    "glm",
    "cohere",
    "deepseek_v2",
    "deepseek_v3",
    "smollm3",
]
WINDOWS = ["mistral", "gemma2", "gemma3_text", "gpt_oss"]
MASKS: dict[int, Tensor] = {}  # bool (rows, heads | 1, queries, keys) of each layer, for `_under_masks`


def _under_masks(
    module: nn.Module, q: Tensor, k: Tensor, v: Tensor, _: object, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """The family's own eager attention under the mask of `MASKS`."""
    mask = torch.zeros(1, dtype=q.dtype).masked_fill(~MASKS[int(module.layer_idx)], -torch.inf)
    eager = vars(sys.modules[type(module).__module__])["eager_attention_forward"]
    result: tuple[Tensor, Tensor | None] = eager(module, q, k, v, mask, **options)
    return result


AttentionInterface.register("under_masks", _under_masks)


def model_of(name: str, **changes: Any) -> Any:
    model = built(name, **{"max_position_embeddings": 64, "num_hidden_layers": 4, **changes}).double()
    model.config._experts_implementation = "eager"  # grouped products know no float64
    return model


def ids_of(rows: int, tokens: int = TOKENS, seed: int = 0) -> Tensor:
    return torch.randint(3, 60, (rows, tokens), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def read(model: Any, ids: Tensor, cache: Any, first: int, **options: Any) -> Tensor:
    """Hidden states of tokens at positions from ``first`` on."""
    places = torch.arange(first, first + ids.shape[1])[None].expand(len(ids), -1)
    out: Tensor = model(input_ids=ids, position_ids=places, past_key_values=cache, use_cache=True, **options)[0]
    return out


@torch.no_grad()
def one_pass(model: Any, ids: Tensor, masks: list[Tensor], places: Tensor | None = None) -> Tensor:
    """Hidden states of all tokens, each layer under its mask."""
    MASKS.update(enumerate(masks))
    config, own = model.config, model.config._attn_implementation
    config._attn_implementation = "under_masks"
    try:
        places = torch.arange(ids.shape[1])[None].expand(len(ids), -1) if places is None else places
        out: Tensor = model(input_ids=ids, position_ids=places, use_cache=False)[0]
    finally:
        config._attn_implementation = own
    return out


def differs(found: Tensor, right: Tensor) -> float:
    return float((found - right).abs().max() / right.abs().max())


def causal(model: Any, editor: CacheEditor, rows: int, heads: int, tokens: int = TOKENS) -> list[Tensor]:
    """The masks of a model's layers before anything is taken out, ``(rows, key heads, tokens, tokens)``."""
    index = torch.arange(tokens)
    age = index[:, None] - index
    masks = []
    for number in range(model.config.num_hidden_layers):
        window = editor.facts.layers[number].window or tokens
        masks.append(((age >= 0) & (age < window)).expand(rows, heads, -1, -1).clone())
    return masks


@pytest.mark.parametrize("name", FULL + WINDOWS)
def test_random_histories_are_one_pass_under_a_mask(name: str) -> None:
    """Rows, layers and key heads lose tokens apart from each other; layers with a window stay whole."""
    model = model_of(name)
    editor, layers = CacheEditor(model), model.config.num_hidden_layers
    for seed in range(6):
        draw, rows, ids = random.Random(seed), 2, ids_of(2, seed=seed)
        cache = DynamicCache(config=model.config)
        read(model, ids[:, :1], cache, 0)
        heads = cache.layers[0].keys.shape[1]
        masks = causal(model, editor, rows, heads)
        whole = [editor.facts.layers[n].window is not None for n in range(layers)]
        held = [[[[0] for _ in range(heads)] for _ in range(rows)] for _ in range(layers)]
        outs, came = [], 1
        while came < TOKENS:
            count = min(TOKENS - came, draw.choice([1, 1, 2, 4]))
            outs.append(read(model, ids[:, came : came + count], cache, came))
            for head in (head for layer in held for row in layer for head in row):
                head.extend(range(came, came + count))
            came += count
            if all(whole) or draw.random() < 0.5:
                continue
            tokens = len(next(layer for layer, w in zip(held, whole, strict=True) if not w)[0][0])
            keeps, dropping = draw.randint(1, tokens), draw.random() < 0.5
            if dropping and keeps == tokens:
                continue
            indices: list[Tensor | None] = []
            for number in range(layers):
                if whole[number]:
                    indices.append(None)
                    continue
                named = [[draw.sample(range(tokens), keeps) for _ in range(heads)] for _ in range(rows)]
                indices.append(torch.tensor(named))
                for row, head in ((row, head) for row in range(rows) for head in range(heads)):
                    before, chosen = held[number][row][head], set(named[row][head])
                    stays = [t for i, t in enumerate(before) if (i in chosen) != dropping]
                    gone = sorted(set(before) - set(stays))
                    masks[number][row, head, came:, gone] = False
                    held[number][row][head] = stays
            (editor.drop if dropping else editor.keep)(cache, indices)
        groups = model.config.num_attention_heads // heads
        right = one_pass(model, ids, [mask.repeat_interleave(groups, 1) for mask in masks])
        assert differs(torch.cat(outs, 1), right[:, 1:]) < CLOSE, seed


def shifted_keys(model: Any, ids: Tensor, old: Tensor, new: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Cached tensors of tokens ``old`` (rows, kept) as the model rotates them at ``new``, of each layer.

    A text moved as a whole has the same hidden states, so each run gives the keys of those tokens that move as far.
    """
    results = None
    for shift in sorted(set((new - old).flatten().tolist())):
        cache = DynamicCache()
        read(model, ids, cache, shift)
        parts = [(layer.keys, layer.values) for layer in cache.layers]
        here = [tuple(torch.take_along_dim(t, old[:, None, :, None], 2) for t in pair) for pair in parts]
        if results is None:
            results = [tuple(torch.zeros_like(t) for t in pair) for pair in here]
        moves = ((new - old) == shift)[:, None, :, None]
        results = [
            tuple(torch.where(moves, t, so_far) for t, so_far in zip(pair, before, strict=True))
            for pair, before in zip(here, results, strict=True)
        ]
    assert results is not None
    return results  # type: ignore[return-value]


def closes_right(name: str, model: Any) -> None:
    """Tokens leave rows apart from each other and close up, with a window not yet full and full."""
    editor = CacheEditor(model)
    for tokens, stays in ((7, [[0, 2, 3, 6], [1, 4, 5, 6]]), (12, [[0, *range(2, 12)], [*range(3), *range(4, 12)]])):
        ids, old = ids_of(2, tokens), torch.tensor(stays)
        new = torch.arange(old.shape[1]).expand_as(old)
        cache = DynamicCache(config=model.config)
        read(model, ids, cache, 0)
        found = editor.keep(cache, old, close_up=True)
        assert torch.equal(found, new[:1])  # type: ignore[arg-type]
        for layer, right in zip(cache.layers, shifted_keys(model, ids, old, new), strict=True):
            for part, expected in zip((layer.keys, layer.values), right, strict=True):
                assert differs(part, expected[:, :, -part.shape[2] :]) < ROUNDED, (name, tokens)
        plain = DynamicCache()  # without forgetting, what the windows of the model's own masks make of these tokens
        for number, pair in enumerate(shifted_keys(model, ids, old, new)):
            plain.update(*pair, number)
        more = ids_of(2, 4, seed=1)
        for first, last in ((0, 3), (3, 4)):
            outs = [read(model, more[:, first:last], c, old.shape[1] + first) for c in (cache, plain)]
            assert differs(*outs) < ROUNDED, (name, tokens)


@pytest.mark.parametrize("name", FULL + WINDOWS)
def test_closed_up_keys_are_those_that_the_model_rotates(name: str) -> None:
    closes_right(name, model_of(name))


def test_one_layer_closed_up_is_the_text_of_the_tokens_that_stay() -> None:
    for name in ("llama", "mistral"):
        model, ids = model_of(name, num_hidden_layers=1), ids_of(2)
        cache, stays = DynamicCache(config=model.config), torch.tensor([0, 1, 5, 6, 7, 8, 9, 10, 11])
        read(model, ids[:, :12], cache, 0)
        CacheEditor(model).keep(cache, stays, close_up=True)
        found = torch.cat([read(model, ids[:, 12:14], cache, 9), read(model, ids[:, 14:], cache, 11)], 1)
        right = read(model, torch.cat([ids[:, stays], ids[:, 12:]], 1), None, 0)[:, -3:]
        assert differs(found, right) < ROUNDED


def test_scaled_rotations_move() -> None:
    block = {"factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 1e4}
    for extra in (
        {"rope_type": "yarn"}, {"rope_type": "linear"},
        {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    ):  # fmt: skip
        closes_right("llama", model_of("llama", rope_parameters={**block, **extra}))


@pytest.mark.parametrize("name", ["llama", "deepseek_v3", "gemma3_text", "mistral"])
@pytest.mark.parametrize("tokens", [3, 10])
def test_a_joined_prefix_is_one_pass_in_which_the_text_has_not_read_it(name: str, tokens: int) -> None:
    model = model_of(name)
    editor, before = CacheEditor(model), 9
    prefix_ids, ids = ids_of(1, before, seed=1), ids_of(2, tokens + 3)
    prefix, cache = (DynamicCache(config=model.config) for _ in "pc")
    read(model, prefix_ids, prefix, 0)
    read(model, ids[:, :tokens], cache, 0)
    held = [layer.keys.clone() for layer in prefix.layers]
    editor.join(cache, prefix)
    assert all(torch.equal(layer.keys, keys) for layer, keys in zip(prefix.layers, held, strict=True))
    first = before + tokens
    found = torch.cat([read(model, ids[:, tokens:-1], cache, first), read(model, ids[:, -1:], cache, first + 2)], 1)
    masks = causal(model, editor, 2, 1, first + 3)
    for mask in masks:
        mask[:, :, before:first, :before] = False
    right = one_pass(model, torch.cat([prefix_ids.expand(2, -1), ids], 1), masks)[:, -3:]
    assert differs(found, right) < ROUNDED


def test_padded_rows_and_an_edit_after_an_edit() -> None:
    model = model_of("llama", num_hidden_layers=1)
    editor, ids = CacheEditor(model), ids_of(2, 9)
    real = torch.tensor([[1] * 7, [0, 0, 1, 1, 1, 1, 1]])
    places = (real.cumsum(-1) - 1).clamp(min=0)
    cache, stays = DynamicCache(), torch.tensor([[0, 1, 4, 6], [1, 2, 5, 6]])
    with torch.no_grad():
        model(input_ids=ids[:, :7], position_ids=places, attention_mask=real, past_key_values=cache)
        with pytest.raises(ValueError, match="positions must be given"):
            editor.keep(cache, stays, attention_mask=real)
        left = editor.keep(cache, stays, positions=places, attention_mask=real)
        assert torch.equal(left, places.gather(1, stays))  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="positions must be given"):
            editor.drop(cache, torch.tensor([2]), close_up=True)
        mask = real.gather(1, stays)
        closed = editor.drop(cache, torch.tensor([2]), positions=left, attention_mask=mask, close_up=True)
        assert closed.tolist() == [[0, 1, 2], [0, 0, 1]]  # type: ignore[union-attr]
        mask = torch.cat([mask[:, [0, 1, 3]], torch.ones(2, 2, dtype=torch.int64)], 1)
        after = torch.tensor([[3, 4], [2, 3]])
        found = model(input_ids=ids[:, 7:], position_ids=after, attention_mask=mask, past_key_values=cache)[0]
        for row, kept in enumerate(([0, 1, 6], [2, 6])):
            text = torch.cat([ids[row, kept], ids[row, 7:]])[None]
            assert differs(found[row : row + 1], read(model, text, None, 0)[:, -2:]) < ROUNDED


def contents(cache: Any) -> list[Any]:
    return [(layer.keys.clone(), layer.values.clone(), layer.get_seq_length()) for layer in cache.layers]


def unchanged(cache: Any, before: list[Any]) -> bool:
    return all(
        torch.equal(a, b) and torch.equal(c, d) and n == m
        for (a, c, n), (b, d, m) in zip(contents(cache), before, strict=True)
    )


def test_windows_refuse_what_they_cannot_do() -> None:
    model = model_of("gemma3_text")  # layers 0 to 3 under a window of 8
    editor, ids = CacheEditor(model), ids_of(1, 12)
    cache = DynamicCache(config=model.config)
    read(model, ids, cache, 0)
    before = contents(cache)
    with pytest.raises(ValueError, match=r"layer \d: its window of 8 counts keys"):
        editor.drop(cache, torch.tensor([10]))
    with pytest.raises(ValueError, match="is forgotten"):  # token 4 would come into the window again
        editor.drop(cache, torch.tensor([10]), close_up=True)
    with pytest.raises(ValueError, match="indices for each"):
        editor.drop(cache, [torch.tensor([1])] + [None] * 3, close_up=True)
    with pytest.raises(ValueError, match="as many tokens"):
        editor.drop(cache, [torch.tensor([1])] + [torch.tensor([1, 2])] * 3, close_up=True)
    whole = DynamicCache()  # made without the configuration: it forgets nothing
    read(model, ids, whole, 0)
    with pytest.raises(ValueError, match="same kind"):
        editor.join(whole, cache)
    assert unchanged(cache, before)
    editor.drop(cache, torch.tensor([0, 3]))  # behind every window
    masks = causal(model, editor, 1, 1, 12 + 2)
    for mask in masks:
        mask[:, :, 12:, [0, 3]] = False
    more = ids_of(1, 2, seed=1)
    right = one_pass(model, torch.cat([ids, more], 1), masks)[:, -2:]
    assert differs(read(model, more, cache, 12), right) < CLOSE


def test_caches_and_models_that_no_token_can_leave() -> None:
    model, ids = model_of("llama"), ids_of(1, 6)
    editor, one = CacheEditor(model), torch.tensor([1])
    with pytest.raises(ValueError, match="empty"):
        editor.keep(DynamicCache(), one)
    for wrong in (None, [(torch.zeros(1), torch.zeros(1))]):
        with pytest.raises(ValueError, match="DynamicCache"):
            editor.keep(wrong, one)  # type: ignore[arg-type]
    static = StaticCache(config=model.config, max_cache_len=8)
    read(model, ids, static, 0)
    with pytest.raises(ValueError, match="StaticLayer"):
        editor.keep(static, one)
    cache = DynamicCache()
    read(model, ids, cache, 0)
    before = contents(cache)
    for wrong_indices in (torch.tensor([6]), torch.tensor([1.0]), torch.tensor([1, 1]), torch.zeros(3, 1).long()):
        with pytest.raises(ValueError, match="indices"):
            editor.keep(cache, wrong_indices)
    with pytest.raises(ValueError, match="one token must stay"):
        editor.drop(cache, torch.arange(6))
    with pytest.raises(ValueError, match="positions"):
        editor.drop(cache, one, positions=torch.arange(5), close_up=True)
    assert unchanged(cache, before)
    editor.drop(cache, [one, None, None, None])
    with pytest.raises(ValueError, match="different numbers"):
        editor.drop(cache, one)
    with pytest.raises(ValueError, match="edit its own caches"):
        CacheEditor(attach(copy.deepcopy(model).float(), "alibi"))
    for other in ("gpt2", "bloom"):
        with pytest.raises(ValueError, match="rotates"):
            CacheEditor(built(other, num_hidden_layers=2))


def test_rotated_quantised_keys_are_refused() -> None:
    pytest.importorskip("optimum.quanto")
    model = model_of("llama").float()
    cache = QuantizedCache("quanto", model.config)
    read(model, ids_of(1, 6), cache, 0)
    with pytest.raises(ValueError, match="QuantoQuantizedLayer"):
        CacheEditor(model).keep(cache, torch.tensor([1]), close_up=True)


@pytest.mark.parametrize(
    "block",
    [
        {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4},
        {
            "rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 16,
            "short_factor": [1.0] * 8, "long_factor": [2.0] * 8, "factor": 4.0,
        },
    ],
)  # fmt: skip
def test_frequencies_that_follow_the_length_refuse_to_move(block: dict[str, Any]) -> None:
    model = model_of("phi3" if block["rope_type"] == "longrope" else "llama", rope_parameters=block)
    editor, cache, ids = CacheEditor(model), DynamicCache(config=model.config), ids_of(1, 6)
    read(model, ids, cache, 0)
    before = contents(cache)
    with pytest.raises(ValueError, match="cannot move"):
        editor.drop(cache, torch.tensor([1]), close_up=True)
    with pytest.raises(ValueError, match="cannot move"):
        editor.join(cache, copy.deepcopy(cache))
    assert unchanged(cache, before)


def test_layers_with_a_running_state_stay_whole() -> None:
    model = model_of("qwen3_next")
    editor, cache, ids = CacheEditor(model), DynamicCache(config=model.config), ids_of(1, 6)
    read(model, ids, cache, 0)
    with pytest.raises(ValueError, match="running state"):
        editor.drop(cache, torch.tensor([1]))
    attends = [layer.attends for layer in editor.facts.layers]
    assert set(attends) == {True, False}
    editor.drop(cache, [torch.tensor([1]) if yes else None for yes in attends])
    held = [layer.keys.shape[2] for layer, yes in zip(cache.layers, attends, strict=True) if yes]
    assert set(held) == {5}


def test_what_does_not_rotate_as_its_configuration_says_refuses() -> None:
    model, ids = model_of("llama"), ids_of(1, 6)
    model.rotary_emb.inv_freq.mul_(0.5)
    cache = DynamicCache()
    read(model, ids, cache, 0)
    with pytest.raises(ValueError, match="do not rotate as its configuration says"):
        CacheEditor(model).drop(cache, torch.tensor([1]), close_up=True)


NOT_COMPARED = {  # a text moved as a whole is another one for them, or their own masks differ from their caches
    "codegen": "takes positions before 0 from the end of its table",
    "ministral3": "its temperature reads positions",
    "mistral4": "its temperature reads positions",
    "moshi": "its cache has a window, its masks have none",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(ROTARY) - set(NOT_COMPARED)))
def test_every_family_moves_right_or_refuses(name: str) -> None:
    try:
        model: Any = built(name)
        model.double().config._experts_implementation = "eager"
        cache = DynamicCache(config=model.config)
        read(model, ids_of(2, 7), cache, -7)
    except Exception as error:
        pytest.skip(f"not a decoder with a cache, or one without positions before 0: {error}")
    if any(getattr(layer, "keys", layer) is None for layer in cache.layers):
        pytest.skip("layers without keys of their own")
    try:
        closes_right(name, model)
    except ValueError as error:
        pytest.skip(f"refused: {error}")
