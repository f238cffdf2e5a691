"""Caches under random calls against one forward pass over each row's real tokens.

A layer reads tokens with a cache; in between the cache is cropped, reordered, copied, pickled or cleared, a call fails,
and gradients or inference mode come and go. Whatever happened before, a token's result equals what the layer gives at
this token in one pass over the row's real tokens, without a cache.

    pytest tests/fuzz/test_caches.py                                  a hundred runs
    pytest tests/fuzz/test_caches.py -m slow -n 2                     3,000 runs
    POSENC_FUZZ_SEED=31 pytest tests/fuzz/test_caches.py -m slow ...  from run 31 on
"""

from __future__ import annotations

import copy
import os
import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from posenc import ALiBi, AttentionSink, DynamicNTK, ForgetGate, RoPE, T5Bias
from posenc.bias import FIRE
from posenc.layers import KVCache, SelfAttention
from posenc.layers.cache import StaticKVCache
from posenc.score import CoPE
from posenc.weight import StickBreaking

SEED = int(os.environ.get("POSENC_FUZZ_SEED", "0"))
DIM, HEADS, WIDTH = 16, 2, 8
ROOM, MOST, COPIES = 40, 58, 4  # slots of a static cache, tokens of a row, caches of one run
TOLERANCE = 1e-8  # everything is float64
BY_LENGTH = "rope, dynamic_ntk"
ENCODINGS: dict[str, Callable[[], list[nn.Module]]] = {
    "none": list,
    "rope": lambda: [RoPE(WIDTH)],
    "rope + alibi": lambda: [RoPE(WIDTH), ALiBi(HEADS)],
    "t5": lambda: [T5Bias(HEADS, init_std=1.0)],
    "fire": lambda: [FIRE(HEADS)],
    "fox": lambda: [ForgetGate(DIM, num_heads=HEADS, init_std=1.0)],
    "rope + fox": lambda: [RoPE(WIDTH), ForgetGate(DIM, num_heads=HEADS)],
    "stick-breaking": lambda: [StickBreaking()],
    "sink": lambda: [AttentionSink(HEADS)],
    "cope": lambda: [CoPE(WIDTH, max_position=4)],
    BY_LENGTH: lambda: [RoPE(WIDTH, scaling=DynamicNTK(original_length=4))],
}
MODES = {"no_grad": torch.no_grad, "inference": torch.inference_mode, "grad": torch.enable_grad}
ACTIONS = ["read"] * 8 + ["crop"] * 2 + ["reorder", "select", "repeat", "copy", "deepcopy", "pickle", "clear", "fail"]


class Passing(TorchDispatchMode):
    """A mode that changes nothing, under which steps go the ordinary way."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return func(*args, **(kwargs or {}))


@dataclass
class Text:
    """A cache with what it was given: the real tokens of each row, and for all tokens whether they were real."""

    cache: KVCache | StaticKVCache
    rows: list[list[Tensor]]
    real: list[list[bool]]

    def taken(self, indices: list[int]) -> None:
        self.rows, self.real = [list(self.rows[i]) for i in indices], [list(self.real[i]) for i in indices]


@dataclass
class Run:
    """One layer, its options, and the texts that it reads."""

    seed: int
    name: str = field(init=False)
    log: list[tuple[object, ...]] = field(default_factory=list)
    results: list[Tensor] = field(default_factory=list)  # of real tokens, in the order in which they were read

    def __post_init__(self) -> None:
        draw = self.draw = random.Random(self.seed)
        torch.manual_seed(self.seed)
        self.name = draw.choice(list(ENCODINGS))
        self.layer = SelfAttention(
            DIM, HEADS, num_kv_heads=draw.choice([1, 2]), encodings=ENCODINGS[self.name](), qk_norm=draw.random() < 0.2
        )
        self.layer.double().eval().requires_grad_(draw.random() < 0.3)
        self.static = draw.random() < 0.4 and self.name != BY_LENGTH
        self.window = draw.choice([None, None, None, 3, 5])
        self.pads = draw.random() < 0.4
        self.sinks = draw.choice([0, 0, 2]) if self.window and not (self.pads or self.static) else 0
        self.batch = draw.choice([1, 2, 3])
        self.texts = [Text(self._new_cache(), *([[] for _ in range(self.batch)] for _ in "rr"))]

    def _new_cache(self) -> KVCache | StaticKVCache:
        if not self.static:
            slack = self.draw.choice([0, 3]) if self.window else 0
            capacity = self.draw.choice([None, None, 60])
            return KVCache(window=self.window, sinks=self.sinks, slack=slack, capacity=capacity)
        try:
            room = ROOM if self.window is None else self.window + 6
            return self.layer.static_cache(self.batch, room, window=self.window)
        except ValueError:  # a window by which this encoding cannot forget
            self.window = None
            return self.layer.static_cache(self.batch, ROOM)

    def play(self) -> None:
        for _ in range(self.draw.randrange(8, 25)):
            self.step()

    def step(self) -> None:
        text, action, mode = self.draw.choice(self.texts), self.draw.choice(ACTIONS), self.draw.choice(list(MODES))
        if mode == "grad" and self.static and any(p.requires_grad for p in self.layer.parameters()):
            mode = "no_grad"
        if self.static and mode == "inference" and action in ("copy", "deepcopy", "pickle"):
            return  # copies made there are tensors of inference, as those of any module
        self.log.append((self.texts.index(text), action, mode))
        with MODES[mode]():
            getattr(self, f"_{action}")(text)

    def _read(self, text: Text) -> None:
        count, before, rows = self.draw.choice([1, 1, 1, 1, 2, 3, 5]), len(text.real[0]), len(text.rows)
        if before + count > (ROOM if self.static and self.window is None else MOST):
            return
        x, mask = torch.randn(rows, count, DIM, dtype=torch.float64), None
        if self.pads and self.static and self.window:
            if not before and self.draw.random() < 0.5:  # on the left, before all else
                mask = torch.arange(count) >= torch.randint(0, count, (rows, 1))
        elif self.pads and self.draw.random() < 0.4:
            mask = torch.rand(rows, count) < 0.7
        self.log[-1] += (count, None if mask is None else mask.tolist())
        if self.draw.random() < 0.1:
            with Passing():
                out = self.layer(x, cache=text.cache, attention_mask=mask)
        else:
            out = self.layer(x, cache=text.cache, attention_mask=mask)
        for row in range(rows):
            here = [True] * count if mask is None else [bool(m) for m in mask[row]]
            text.real[row] += here
            text.rows[row] += [token for token, real in zip(x[row], here, strict=True) if real]
            self.results.append(out[row].detach()[torch.tensor(here)])
            if not any(here) or (self.name == BY_LENGTH and (count > 1 or not here[-1])):
                continue  # undeclared, all queries of a call span its last key
            expected = self._without_cache(text.rows[row])[-sum(here) :]
            torch.testing.assert_close(self.results[-1], expected, rtol=0, atol=TOLERANCE)

    def _without_cache(self, tokens: list[Tensor]) -> Tensor:
        x = torch.stack(tokens)[None]
        with torch.no_grad():
            if not self.sinks:
                return self.layer(x, window=self.window)[0]
            index = torch.arange(x.shape[1])
            return self.layer(x, mask=(index[:, None] - index < self.window) | (index < self.sinks))[0]

    def _crop(self, text: Text) -> None:
        count = self.draw.randrange(min(len(text.real[0]), 5) + 1)
        self.log[-1] += (count,)
        try:
            text.cache.crop(count)
        except ValueError:
            assert self.window, "what is kept can be cropped"
            return
        for row, real in zip(text.rows, text.real, strict=True):
            for _ in range(count):
                if real.pop():
                    row.pop()

    def _reorder(self, text: Text) -> None:
        if text.real[0]:
            indices = [self.draw.randrange(len(text.rows)) for _ in text.rows]
            text.cache.select(torch.tensor(indices))
            text.taken(indices)

    def _select(self, text: Text) -> None:
        if isinstance(text.cache, KVCache) and text.real[0]:
            indices = [self.draw.randrange(len(text.rows)) for _ in range(self.draw.randrange(1, 4))]
            text.cache.select(torch.tensor(indices))
            text.taken(indices)

    def _repeat(self, text: Text) -> None:
        if isinstance(text.cache, KVCache) and text.real[0] and len(text.rows) <= 2:
            text.cache.repeat(2)
            text.taken([row for row in range(len(text.rows)) for _ in range(2)])

    def _copied(self, text: Text, make: Callable[[KVCache | StaticKVCache], KVCache | StaticKVCache]) -> None:
        if len(self.texts) < COPIES and not any(p.requires_grad for p in self.layer.parameters()):
            self.texts.append(Text(make(text.cache), [list(row) for row in text.rows], [list(r) for r in text.real]))

    def _copy(self, text: Text) -> None:
        self._copied(text, copy.deepcopy if self.static else copy.copy)

    def _deepcopy(self, text: Text) -> None:
        self._copied(text, copy.deepcopy)

    def _pickle(self, text: Text) -> None:
        self._copied(text, lambda cache: pickle.loads(pickle.dumps(cache)))

    def _clear(self, text: Text) -> None:
        text.cache.clear()
        text.rows, text.real = [[] for _ in text.rows], [[] for _ in text.rows]

    def _fail(self, text: Text) -> None:
        """A call that raises leaves the cache as it was; later readings tell."""
        x = torch.randn(len(text.rows), self.draw.choice([1, 2]), DIM, dtype=torch.float64)
        wrong = self.draw.choice(
            [{"mask": torch.ones(1, 77).bool()}, {"attention_mask": torch.ones(9, 9).bool()}, {"length": -1},
             {"window": 0}, {}]
        )  # fmt: skip
        self.log[-1] += (list(wrong),)
        raising = None if wrong else self.layer.o_proj.register_forward_pre_hook(_raise)
        try:
            with pytest.raises(ValueError, match=r"."):
                self.layer(x, cache=text.cache, **wrong)
        finally:
            if raising is not None:
                raising.remove()


def _raise(*_: object) -> None:
    raise ValueError("a hook that raises")


def play(first: int, count: int) -> None:
    for seed in range(first, first + count):
        run = Run(seed)
        try:
            run.play()
        except Exception as error:
            error.add_note(
                f"run {seed}: {run.name}, {'static' if run.static else 'growing'}, window {run.window}, "
                f"sinks {run.sinks}, {run.batch} rows; the last actions: {run.log[-6:]}"
            )
            raise


@pytest.mark.parametrize("part", range(4))
def test_a_cache_gives_what_one_pass_over_the_real_tokens_gives(part: int) -> None:
    play(25 * part, 25)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(30))
def test_many_runs(part: int) -> None:
    play(SEED + 100 * part, 100)
