"""Steps that are interrupted: a cache then goes on rightly, or refuses everything until it is cleared.

Ctrl-C, an error of a hook, memory that runs out: whatever ends a call ends it between two lines of it. Here every line
of the library that a call comes by is such a place. What the cache says afterwards is believed: ``seen`` tells whether
the tokens were taken, and everything that is read next is compared with one pass over the row's tokens.

    pytest tests/fuzz/test_interrupted.py                                  every line of a step in the caches' own code
    pytest tests/fuzz/test_interrupted.py -m slow -n 2                     10,000 calls, and every line of a step
    POSENC_FUZZ_SEED=31 pytest tests/fuzz/test_interrupted.py -m slow ...  from run 31 on
"""

from __future__ import annotations

import copy
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor

import posenc
from posenc import ForgetGate, RoPE
from posenc.layers import FoXPro, KVCache, SelfAttention
from posenc.layers.cache import StaticKVCache
from tests.fuzz.test_caches import MODES, TOLERANCE, Run, Text

SEED = int(os.environ.get("POSENC_FUZZ_SEED", "0"))
LIBRARY = str(Path(posenc.__file__).parent)
CACHES = str(Path(posenc.__file__).parent / "layers" / "cache")
DIM, HEADS, WIDTH = 16, 2, 8
Cache = KVCache | StaticKVCache


class Interrupt(BaseException):
    """As Ctrl-C is: no `except Exception` sees it."""


def cut_off(call: Callable[[], object], line: int, under: str = LIBRARY) -> tuple[bool, int]:
    """Run a call that ends before its ``line``-th line of files under a folder.

    Returns:
        Whether it was interrupted, and the lines that it came by.
    """
    count = 0

    def inside(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if event == "line":
            count += 1
            if count == line:
                raise Interrupt
        return inside

    def entered(frame: FrameType, event: str, _: object) -> Any:
        return inside if frame.f_code.co_filename.startswith(under) else None

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        call()
    except Interrupt:
        return True, count
    finally:
        sys.settrace(before)
    return False, count


def is_torn(cache: Cache) -> bool:
    """Whether the cache refuses to go on, and says what to do."""
    try:
        cache.crop(0)
    except RuntimeError:
        with pytest.raises(RuntimeError, match="clear"):
            cache.crop(0)
        return True
    return False


class InterruptedRun(Run):
    """A run whose calls are interrupted half of the time."""

    def __init__(self, seed: int) -> None:
        self.ends: Counter[str] = Counter()
        self.lines: Counter[tuple[str, str]] = Counter()  # that a call comes by
        super().__init__(seed)

    def step(self) -> None:
        if self.draw.random() < 0.5:
            super().step()
            return
        text = self.draw.choice(self.texts)
        action = self.draw.choice(["read"] * 5 + ["crop", "rows", "clear"])
        mode = self.draw.choice(["no_grad", "inference"] if self.static else list(MODES))
        self.log.append((self.texts.index(text), "interrupted", action, mode))
        with MODES[mode]():
            getattr(self, f"_interrupted_{action}")(text)

    def _cut_off(self, action: str, call: Callable[[], object]) -> bool:
        under = self.draw.choice([LIBRARY, CACHES])
        usual = max(self.lines[action, under], 40)
        cut, lines = cut_off(call, self.draw.randint(1, usual), under)
        self.lines[action, under] = max(usual, lines + 1)
        self.ends["interrupted" if cut else "ended"] += 1
        return cut

    def _again(self, text: Text) -> bool:
        """Whether the cache refuses to go on; then it begins anew."""
        if not is_torn(text.cache):
            return False
        self.ends["torn"] += 1
        self._clear(text)
        return True

    def _interrupted_read(self, text: Text) -> None:
        count, before, rows = self.draw.choice([1, 1, 1, 2, 4]), len(text.real[0]), len(text.rows)
        if before + count > (40 if self.static and self.window is None else 58):
            return
        x = torch.randn(rows, count, DIM, dtype=torch.float64)
        mask = torch.rand(rows, count) < 0.7 if self.pads and not (self.static and self.window) else None
        self._cut_off("read", lambda: self.layer(x, cache=text.cache, attention_mask=mask))
        if self._again(text):
            return
        seen = int(text.cache.seen)
        assert seen in (before, before + count)
        for row in range(rows if seen > before else 0):
            here = [True] * count if mask is None else [bool(m) for m in mask[row]]
            text.real[row] += here
            text.rows[row] += [token for token, real in zip(x[row], here, strict=True) if real]

    def _interrupted_crop(self, text: Text) -> None:
        before, count = len(text.real[0]), self.draw.randrange(min(len(text.real[0]), 5) + 1)
        try:
            self._cut_off("crop", lambda: text.cache.crop(count))
        except ValueError:
            return
        if self._again(text):
            return
        seen = int(text.cache.seen)
        assert seen in (before, before - count)
        for row, real in zip(text.rows, text.real, strict=True):
            for _ in range(before - seen):
                if real.pop():
                    row.pop()

    def _interrupted_rows(self, text: Text) -> None:
        if not text.real[0]:
            return
        indices = [self.draw.randrange(len(text.rows)) for _ in text.rows]
        version = getattr(text.cache, "version", None)
        held = text.cache.k[:, :, : len(text.real[0])].detach().clone()
        self._cut_off("rows", lambda: text.cache.select(torch.tensor(indices)))
        if self._again(text):
            return
        done = text.cache.version != version if version is not None else not torch.equal(
            text.cache.k[:, :, : len(text.real[0])], held
        )  # fmt: skip
        if done:
            text.taken(indices)

    def _interrupted_clear(self, text: Text) -> None:
        self._cut_off("clear", text.cache.clear)
        if not self._again(text) and int(text.cache.seen) == 0:
            text.rows, text.real = [[] for _ in text.rows], [[] for _ in text.rows]


def series(seed: int, steps: int) -> Counter[str]:
    ends: Counter[str] = Counter()
    while sum(ends.values()) < steps:
        run = InterruptedRun(seed)
        try:
            for _ in range(run.draw.randrange(8, 25)):
                run.step()
        except Exception as error:
            error.add_note(
                f"run {seed}: {run.name}, {'static' if run.static else 'growing'}, window {run.window}, sinks "
                f"{run.sinks}, pads {run.pads}, {run.batch} rows; the last actions: {run.log[-6:]}"
            )
            raise
        ends += run.ends
        seed += 1
    return ends


def test_interrupted_calls():
    ends = series(10_000_000, 200)
    assert ends["interrupted"] > 100
    assert ends["torn"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_many_interrupted_calls(part):
    ends = series(SEED + 1000 * part, 500)
    assert ends["interrupted"] > 300


# One step each, to whose every line the situation before it is brought anew.


def _growing(**options: int) -> Callable[[SelfAttention], Cache]:
    return lambda layer: KVCache(**options)


SITUATIONS: dict[str, tuple[Callable[[SelfAttention], Cache], int, bool]] = {  # cache, tokens before, padding
    "one more": (_growing(), 10, False),
    "memory doubles": (_growing(), 64, False),
    "memory is used up": (_growing(window=6, capacity=9), 14, False),
    "a window moves": (_growing(window=6), 9, False),
    "sinks move": (_growing(window=6, sinks=2), 9, False),
    "sinks move far": (_growing(window=6, sinks=2), 12, False),
    "rows are put together": (_growing(window=4), 7, True),
    "slots": (lambda layer: layer.static_cache(2, 24), 10, False),
    "padded slots": (lambda layer: layer.static_cache(2, 24), 10, True),
    "slots used again": (lambda layer: layer.static_cache(2, 8, window=6), 13, False),
}


def every_line(name: str, under: str, layer: SelfAttention) -> Counter[str]:
    make, before, padded = SITUATIONS[name]
    torch.manual_seed(1)
    layer, x = layer.double().eval(), torch.randn(2, before + 4, DIM, dtype=torch.float64)
    mask = torch.rand(2, before + 4) < 0.8 if padded else torch.ones(2, before + 4, dtype=torch.bool)

    def read(cache: Cache, first: int, last: int) -> Tensor:
        return layer(x[:, first:last], cache=cache, attention_mask=mask[:, first:last] if padded else None)

    with torch.no_grad():
        start = make(layer)
        for at in range(before):
            read(start, at, at + 1)
        whole = copy.deepcopy(start)
        expected = torch.cat([read(whole, at, at + 1) for at in range(before, before + 4)], 1)
        ends, line = Counter[str](), 0
        while not ends["ended"]:
            line += 1
            cache = copy.deepcopy(start)
            cut, _ = cut_off(lambda cache=cache: read(cache, before, before + 1), line, under)
            ends["interrupted" if cut else "ended"] += 1
            if is_torn(cache):
                ends["torn"] += 1
                cache.clear()
                for at in range(before):
                    read(cache, at, at + 1)
            done = int(cache.seen) - before
            assert done in (0, 1)
            out = torch.cat([read(cache, at, at + 1) for at in range(before + done, before + 4)], 1)
            torch.testing.assert_close(out, expected[:, done:], rtol=0, atol=TOLERANCE, msg=f"{name}, line {line}")
    return ends


@pytest.mark.parametrize("name", SITUATIONS)
def test_every_line_of_the_caches_code(name):
    assert every_line(name, CACHES, SelfAttention(DIM, HEADS, encodings=[RoPE(WIDTH)]))["interrupted"] > 10


@pytest.mark.slow
@pytest.mark.parametrize("name", SITUATIONS)
@pytest.mark.parametrize("kind", ["rope", "fox", "fox_pro"])
def test_every_line(name, kind):
    if kind == "fox_pro":
        if "slots" in name:
            return  # which it refuses
        layer: SelfAttention = FoXPro(DIM, HEADS)
    else:
        layer = SelfAttention(
            DIM, HEADS, encodings=[RoPE(WIDTH)] if kind == "rope" else [ForgetGate(DIM, num_heads=HEADS)]
        )
    assert every_line(name, LIBRARY, layer)["interrupted"] > 100


@pytest.mark.parametrize("static", [False, True])
def test_a_cache_is_of_one_thread_at_a_time(static):
    layer, x = SelfAttention(DIM, HEADS, encodings=[RoPE(WIDTH)]).eval(), torch.randn(1, 6, DIM)
    cache = layer.static_cache(1, 8) if static else KVCache()
    inside, go_on, outs = threading.Event(), threading.Event(), list[Tensor]()

    def wait(*_: object) -> None:
        inside.set()
        assert go_on.wait(30)

    def call() -> None:
        with torch.no_grad():
            outs.append(layer(x[:, 3:4], cache=cache))

    with torch.no_grad():
        layer(x[:, :3], cache=cache)
        handle = layer.o_proj.register_forward_pre_hook(wait)
        thread = threading.Thread(target=call)
        thread.start()
        assert inside.wait(30)
        handle.remove()
        for use in (lambda: layer(x[:, 3:4], cache=cache), lambda: cache.crop(1), cache.clear):
            with pytest.raises(RuntimeError, match="thread"):
                use()
        go_on.set()
        thread.join()
        rest = layer(x[:, 4:], cache=cache)  # one thread after another is no misuse
        torch.testing.assert_close(torch.cat([*outs, rest], 1), layer(x)[:, 3:])
