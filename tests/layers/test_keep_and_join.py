"""Caches edited by token: under random histories each call equals one pass with a mask that hides what is gone."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from posenc import ALiBi, ForgetGate, RoPE, Sinusoidal, list_encodings
from posenc.encoding import Encoding
from posenc.layers import FoXPro, KVCache, SelfAttention, StaticKVCache
from posenc.layers.cache.rerotation import check_movable
from posenc.testing import Case
from tests.layers.contents import contents, same

HEADS, KV_HEADS, WIDTH = 4, 2, 8
DIM = HEADS * WIDTH
LENGTH = 40  # declared for rotations that span a length
CLOSE = 1e-9


def layer_of(recipe: str) -> SelfAttention:
    torch.manual_seed(0)
    return SelfAttention(
        DIM, HEADS, num_kv_heads=KV_HEADS, encodings=Case.from_catalogue(recipe).make(torch.float64)
    ).double()


def editable(recipe: str) -> bool:
    """Whether a cache under this encoding can lose tokens, by its definition."""
    case = Case.from_catalogue(recipe)
    return case.axes == 1 and "embedding" not in case.hook_points and recipe not in REFUSED


REFUSED = {"path", "grape_context", "selective_rope"}  # what they keep of a token is read beside its neighbours
RECIPES = [name for name in list_encodings() if name != "nope" and editable(name)] + ["rope+alibi+fox", "t5+cope"]


def declared(recipe: str) -> int | None:
    return LENGTH if Case.from_catalogue(recipe).length_dependent else None


def cache_of(layer: SelfAttention, recipe: str, rows: int, *, static: bool) -> KVCache | StaticKVCache:
    return layer.static_cache(rows, 20, length=declared(recipe)) if static else KVCache()


def tokens_in(cache: KVCache | StaticKVCache) -> int:
    return len(cache) if isinstance(cache, KVCache) else int(cache.seen)


def differs(result: Tensor, right: Tensor) -> float:
    return float((result - right).abs().max())


class History:
    """One cache through random calls and edits, beside the mask that says the same."""

    def __init__(self, recipe: str, seed: int, static: bool = False) -> None:
        self.draw = random.Random(f"{recipe} {seed}")
        self.layer = layer_of(recipe)
        self.rows = self.draw.randint(1, 3)
        self.x = torch.randn(self.rows, 18, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        self.per_head = all(hook == "rotary" for hook in Case.from_catalogue(recipe).hook_points)
        heads = KV_HEADS if self.per_head else 1
        self.mask = torch.ones(self.rows, heads, 18, 18, dtype=torch.bool).tril()
        self.held: list[list[list[int]]] = [[[] for _ in range(heads)] for _ in range(self.rows)]  # tokens, as ordered
        self.length = declared(recipe)
        self.cache = cache_of(self.layer, recipe, self.rows, static=static)
        self.named: str | None = None  # how the first edit named tokens

    def run(self) -> float:
        """The largest difference of any call."""
        came, outs = 0, []
        with torch.no_grad():
            while came < 18:
                chunk = min(18 - came, self.draw.choice([1, 1, 2, 4]))
                outs.append(self.layer(self.x[:, came : came + chunk], cache=self.cache, length=self.length))
                for row in self.held:
                    for head in row:
                        head.extend(range(came, came + chunk))
                came += chunk
                if self.draw.random() < 0.5:
                    self.edit(came)
            wide = self.mask.repeat_interleave(HEADS // self.mask.shape[1], 1)
            right = self.layer(self.x, mask=wide, length=self.length)
        assert tokens_in(self.cache) == len(self.held[0][0])
        return differs(torch.cat(outs, 1), right)

    def edit(self, came: int) -> None:
        tokens = tokens_in(self.cache)
        keeps, dropping = self.draw.randint(1, tokens), self.draw.random() < 0.5
        how = self.draw.choice(
            ["all", "rows", "heads"]
            if self.per_head and self.cache.rotated and self.named in (None, "heads")
            else ["all", "rows"]
        )
        heads = len(self.held[0])

        def random_indices() -> list[int]:
            return self.draw.sample(range(tokens), keeps)

        if how == "all":
            chosen = [[random_indices()] * heads] * self.rows
            indices = torch.tensor(chosen[0][0])
        elif how == "rows":
            chosen = [[random_indices()] * heads for _ in range(self.rows)]
            indices = torch.tensor([row[0] for row in chosen])
        else:
            chosen = [[random_indices() for _ in range(heads)] for _ in range(self.rows)]
            indices = torch.tensor(chosen)
        if dropping and keeps == tokens:
            return
        self.named = self.named or how
        (self.layer.drop if dropping else self.layer.keep)(self.cache, indices)
        for row, of_row in enumerate(chosen):
            for head, named in enumerate(of_row):
                held = self.held[row][head]
                stays = sorted(set(range(tokens)) - set(named) if dropping else named)
                gone = sorted(set(held) - {held[i] for i in stays})
                self.mask[row, head, came:, gone] = False
                self.held[row][head] = [held[i] for i in stays]


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("recipe", RECIPES)
def test_histories(recipe: str, static: bool) -> None:
    for seed in range(3):
        assert History(recipe, seed, static).run() < CLOSE, seed


@pytest.mark.slow
def test_ten_thousand_histories() -> None:
    for seed in range(-(-10_000 // len(RECIPES))):
        for recipe in RECIPES:
            assert History(recipe, 100 + seed, static=seed % 2 == 1).run() < CLOSE, (recipe, seed)


def movable(recipe: str) -> bool:
    try:
        check_movable(layer_of(recipe)._all_encodings(), LENGTH)
    except ValueError:
        return False
    return True


MOVABLE = [recipe for recipe in RECIPES if movable(recipe)]


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("recipe", MOVABLE)
def test_closed_up_is_the_text_of_the_tokens_that_stay(recipe: str, static: bool) -> None:
    layer, length = layer_of(recipe), declared(recipe)
    x = torch.randn(2, 12, DIM, dtype=torch.float64)
    stays = torch.tensor([[0, 3, 4, 7], [2, 5, 6, 1]])
    with torch.no_grad():
        cache = cache_of(layer, recipe, 2, static=static)
        layer(x[:, :9], cache=cache, length=length)
        layer.keep(cache, stays, close_up=True)
        out = torch.cat([layer(x[:, t : t + 1], cache=cache, length=length) for t in range(9, 12)], 1)
        remaining = torch.take_along_dim(x, stays.sort(-1).values.unsqueeze(-1), 1)
        right = layer(torch.cat([remaining, x[:, 9:]], 1), length=length)[:, -3:]
    assert differs(out, right) < CLOSE
    assert tokens_in(cache) == 7


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("recipe", MOVABLE)
@pytest.mark.parametrize("rows", [1, 2])
def test_a_joined_prefix_is_one_text(recipe: str, rows: int, static: bool) -> None:
    layer, length = layer_of(recipe), declared(recipe)
    prefix_x, x = (torch.randn(n, 6, DIM, dtype=torch.float64) for n in (rows, 2))
    with torch.no_grad():
        prefix, cache = KVCache(), cache_of(layer, recipe, 2, static=static)
        layer(prefix_x, cache=prefix, length=length)
        layer(x[:, :4], cache=cache, length=length)
        before = contents(prefix)
        layer.join(cache, prefix)
        out = torch.cat([layer(x[:, t : t + 1], cache=cache, length=length) for t in (4, 5)], 1)
        right = layer(torch.cat([prefix_x.expand(2, -1, -1), x], 1), length=length)[:, -2:]
    assert same(contents(prefix), before)
    assert differs(out, right) < CLOSE
    assert tokens_in(cache) == 12


@pytest.mark.parametrize("static", [False, True])
def test_joined_caches_with_gaps_and_padding(static: bool) -> None:
    """A prefix of which tokens were taken out, before padded rows: positions go on as a mask has them."""
    layer = layer_of("rope+alibi+fox")
    prefix_x, x = torch.randn(1, 6, DIM, dtype=torch.float64), torch.randn(2, 5, DIM, dtype=torch.float64)
    padding = torch.tensor([[True, True, True], [False, True, True]])
    with torch.no_grad():
        prefix, cache = KVCache(), cache_of(layer, "rope", 2, static=static)
        layer(prefix_x, cache=prefix)
        layer.drop(prefix, torch.tensor([1, 2, 5]))
        layer(x[:, :3], cache=cache, attention_mask=padding)
        layer.join(cache, prefix)
        out = torch.cat([layer(x[:, t : t + 1], cache=cache) for t in (3, 4)], 1)
        for row in range(2):
            text = torch.cat([prefix_x, x[row : row + 1, 0 if row == 0 else 1 :]], 1)
            mask = torch.ones(text.shape[1], text.shape[1], dtype=torch.bool).tril()
            mask[6:, [1, 2, 5]] = False
            right = layer(text, mask=mask)[:, -2:]
            assert differs(out[row : row + 1], right) < CLOSE, row


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("close_up", [False, True])
def test_padded_rows(static: bool, close_up: bool) -> None:
    layer = layer_of("rope+alibi+fox")
    x = torch.randn(2, 8, DIM, dtype=torch.float64)
    real = torch.tensor([[True] * 6, [False, False, True, True, True, True]])
    stays = torch.tensor([[0, 1, 4], [1, 2, 5]])  # of the second row padding, and its real 0 and 3
    with torch.no_grad():
        cache = cache_of(layer, "rope", 2, static=static)
        layer(x[:, :6], cache=cache, attention_mask=real)
        layer.keep(cache, stays, close_up=close_up)
        out = torch.cat([layer(x[:, t : t + 1], cache=cache) for t in (6, 7)], 1)
        mask = torch.ones(2, 8, 8, dtype=torch.bool).tril()
        for row, gone in ((0, [2, 3, 5]), (1, [0, 1, 3, 4])):
            mask[row, 6:, gone] = False
        if close_up:
            text = torch.cat([torch.take_along_dim(x, stays[:, :, None], 1), x[:, 6:]], 1)
            right = layer(text, attention_mask=torch.cat([real.gather(1, stays), real.new_ones(2, 2)], 1))[:, -2:]
        else:
            right = layer(x, mask=mask, attention_mask=torch.cat([real, real.new_ones(2, 2)], 1))[:, -2:]
    assert differs(out, right) < CLOSE


@pytest.mark.parametrize("static", [False, True])
def test_heads_closed_up_apart(static: bool) -> None:
    """Each key head is that of a text of its own tokens; heads that were left apart do not move any more."""
    layer = layer_of("rope")
    x = torch.randn(1, 8, DIM, dtype=torch.float64)
    stays = torch.tensor([[[0, 2, 5], [1, 4, 6]]])
    with torch.no_grad():
        cache = cache_of(layer, "rope", 1, static=static)
        layer(x[:, :7], cache=cache)
        layer.keep(cache, stays, close_up=True)
        assert cache.k is not None
        for head in range(KV_HEADS):
            alone = KVCache()
            layer(x[:, stays[0, head]], cache=alone)
            assert alone.k is not None
            assert differs(cache.k[:, head, :3], alone.k[:, head]) < CLOSE
        layer(x[:, 7:], cache=cache)
        assert cache.next == 4 if isinstance(cache, KVCache) else int(cache.count) == 4
        layer.keep(cache, torch.tensor([[[0, 1], [1, 3]]]))
        for shared in (torch.tensor([0, 1]), torch.tensor([[[0, 1], [1, 0]]])):
            with pytest.raises(ValueError, match="heads hold different tokens"):
                layer.keep(cache, shared, close_up=True)
            layer.keep(cache, shared)
        with pytest.raises(ValueError, match="heads hold different tokens"):
            layer.join(cache, filled(layer, x))


def test_the_memory_is_that_of_the_kept_tokens() -> None:
    layer, cache = layer_of("rope+fox"), KVCache()
    with torch.no_grad():
        layer(torch.randn(1, 1000, DIM, dtype=torch.float64), cache=cache)
        layer.keep(cache, torch.arange(0, 1000, 100))
    held = sum(t.untyped_storage().nbytes() for t in cache._buffers.held if t is not None)
    each = 8 * (2 * KV_HEADS * WIDTH + HEADS + 1)  # keys, values, log gates, positions
    assert held == 10 * each


def test_what_is_refused_leaves_the_cache_as_it_was() -> None:
    layer, x = layer_of("rope+alibi+fox"), torch.randn(2, 6, DIM, dtype=torch.float64)
    cache = KVCache()
    layer(x, cache=cache)
    before = contents(cache)
    wrong = (
        torch.tensor([6]), torch.tensor([-1]), torch.tensor([1, 1]), torch.tensor([0.0]), torch.tensor([True]),
        torch.zeros(3, 1, dtype=torch.int64), torch.zeros(2, KV_HEADS, 1, dtype=torch.int64),
    )  # fmt: skip
    for indices in wrong:
        with pytest.raises(ValueError, match="indices"):
            layer.keep(cache, indices)
    with pytest.raises(ValueError, match="at least one token"):
        layer.drop(cache, torch.arange(6))
    with pytest.raises(ValueError, match="empty"):
        layer.keep(KVCache(), torch.tensor([0]))
    with pytest.raises(ValueError, match="window"):
        layer.keep(filled(layer, x, window=4), torch.tensor([0]))
    assert same(contents(cache), before)


def filled(layer: SelfAttention, x: Tensor, **options: int) -> KVCache:
    cache = KVCache(**options)  # type: ignore[arg-type]
    layer(x, cache=cache)
    return cache


def test_static_caches_refuse() -> None:
    layer, x = layer_of("rope"), torch.randn(1, 6, DIM, dtype=torch.float64)
    windowed, cache = layer.static_cache(1, 8, window=3), layer.static_cache(1, 8)
    with torch.no_grad():
        with pytest.raises(ValueError, match="empty"):
            layer.keep(cache, torch.tensor([0]))
        layer(x[:, :2], cache=windowed)
        with pytest.raises(ValueError, match="window"):
            layer.keep(windowed, torch.tensor([0]))
        layer(x[:, :4], torch.arange(3, 7), cache=cache)
        with pytest.raises(ValueError, match="positions of your own"):
            layer.join(cache, filled(layer, x))
        cache.clear()
        layer(x[:, :4], cache=cache)
        with pytest.raises(ValueError, match="capacity"):
            layer.join(cache, filled(layer, x))
        layer.drop(cache, torch.tensor([2]))
        with pytest.raises(ValueError, match="cropped"):
            cache.crop(1)
        layer(x[:, :1], cache=cache)
        cache.crop(1)
        assert (int(cache.seen), int(cache.count)) == (3, 4)


def test_what_cannot_go_on_after_an_edit() -> None:
    layer, x = layer_of("rope+alibi"), torch.randn(1, 6, DIM, dtype=torch.float64)
    with torch.no_grad():
        cache = filled(layer, x)
        layer.drop(cache, torch.tensor([2]))
        with pytest.raises(ValueError, match="window"):
            layer(x[:, :1], cache=cache, window=3)
        with pytest.raises(ValueError, match="cropped"):
            cache.crop(1)
        with pytest.raises(ValueError, match="mask must be over the keys that are kept"):
            layer(x[:, :1], cache=cache, mask=torch.ones(1, 7, dtype=torch.bool))
        layer(x[:, :1], cache=cache)
        cache.crop(1)
        assert len(cache) == 5


@pytest.mark.parametrize("recipe", sorted(REFUSED))
def test_encodings_that_read_neighbours_refuse(recipe: str) -> None:
    layer = layer_of(recipe)
    cache = filled(layer, torch.randn(1, 6, DIM, dtype=torch.float64))
    with pytest.raises(ValueError, match="cannot be dropped under"):
        layer.keep(cache, torch.tensor([0, 2]))


@pytest.mark.parametrize("encoding", [Sinusoidal(DIM), Case.from_catalogue("fope").make()[0]])
def test_keys_that_cannot_move_refuse(encoding: Encoding) -> None:
    layer = SelfAttention(DIM, HEADS, num_kv_heads=KV_HEADS, encodings=[encoding])
    x = torch.randn(1, 6, DIM)
    cache = filled(layer, x)
    with pytest.raises(ValueError, match="keys cannot"):
        layer.keep(cache, torch.tensor([0, 2]), close_up=True)
    with pytest.raises(ValueError, match="keys cannot"):
        layer.join(cache, filled(layer, x))


def test_layers_that_keep_more_of_the_newest_token() -> None:
    layer = FoXPro(DIM, HEADS)
    x = torch.randn(1, 6, DIM)
    with pytest.raises(ValueError, match="newest"):
        layer.join(filled(layer, x), filled(layer, x))


def test_copies_and_rows_of_edited_caches() -> None:
    layer = SelfAttention(DIM, HEADS, encodings=[RoPE(8), ALiBi(HEADS), ForgetGate(DIM, num_heads=HEADS)])
    x = torch.randn(2, 8, DIM)
    with torch.no_grad():
        cache = filled(layer, x[:, :6])
        layer.keep(cache, torch.tensor([[0, 1, 2], [1, 3, 4]]))  # the newest token goes
        cache.select(torch.tensor([1, 0]))
        out = layer(x[[1, 0], 6:7], cache=cache)
        mask = torch.ones(2, 7, 7, dtype=torch.bool).tril()
        mask[0, 6:, [3, 4, 5]] = False
        mask[1, 6:, [0, 2, 5]] = False
        right = layer(x[:, :7], mask=mask)[:, -1:]
    assert differs(out, right[[1, 0]]) < 1e-5
