"""Visibility, range by range, against plain loops; and the window on every backend."""

from __future__ import annotations

import pytest
import torch

from posenc import ALiBi, CoPE, ForgetGate, RoPE, Shaw, StickBreaking, T5Bias, attention
from posenc.backends.inputs.visibility import VisibilityMask
from tests.samples import gap, mostly_slow, qkv

QUERIES, KEYS = 5, 7
Q_POS = torch.tensor([[3, 0, 9, 4, 6], [1, 2, 3, 4, 5]])
K_POS = torch.tensor([[0, 9, 3, 2, 5, 6, 1], [0, 1, 2, 3, 4, 5, 6]])
MASK = torch.rand(2, 3, QUERIES, KEYS, generator=torch.Generator().manual_seed(0)) < 0.7
SEGMENTS = torch.tensor([[0, 0, 1, 1, 1]]), torch.tensor([[0, 0, 0, 0, 1, 1, 1]])


def by_loops(visibility: VisibilityMask, queries: int, keys: int) -> torch.Tensor:
    """One pair at a time, ``(2, 3, queries, keys)``."""
    allowed = torch.zeros(2, 3, queries, keys, dtype=torch.bool)
    for b, h, i, j in torch.ones_like(allowed).nonzero().tolist():
        apart = i + keys - queries - j
        if visibility.causal == "positions":
            of_query, of_key = (p[b] if p.ndim == 2 else p for p in (visibility.q_pos, visibility.k_pos))
            apart = int(of_query[i] - of_key[j])
        ok = apart >= 0 if visibility.causal else True
        ok = ok and (visibility.window is None or abs(apart) < visibility.window)
        if visibility.segments is not None:
            of_query, of_key = (s[b if len(s) > 1 else 0] for s in visibility.segments)
            ok = ok and bool(of_query[i] == of_key[j])
        if visibility.mask is not None:
            ok = ok and bool(visibility.mask.expand(2, 3, queries, keys)[b, h, i, j])
        allowed[b, h, i, j] = ok
    return allowed


CASES = {
    "causal": VisibilityMask(True, None, None, None, Q_POS, K_POS),
    "bidirectional": VisibilityMask(False, None, None, None, Q_POS, K_POS),
    "by positions": VisibilityMask("positions", None, None, None, Q_POS, K_POS),
    "by positions of all rows": VisibilityMask("positions", 4, None, None, Q_POS[0], K_POS[0]),
    "window": VisibilityMask(True, 2, None, None, Q_POS, K_POS),
    "window of one": VisibilityMask(True, 1, None, None, Q_POS, K_POS),
    "window, bidirectional": VisibilityMask(False, 2, None, None, Q_POS, K_POS),
    "window by positions": VisibilityMask("positions", 3, None, None, Q_POS, K_POS),
    "mask": VisibilityMask(True, None, MASK, None, Q_POS, K_POS),
    "mask of keys": VisibilityMask(False, None, MASK[:, :1, :1], None, Q_POS, K_POS),
    "segments": VisibilityMask(False, None, None, SEGMENTS, Q_POS, K_POS),
    "everything": VisibilityMask("positions", 5, MASK[:1], SEGMENTS, Q_POS, K_POS),
}


@pytest.mark.parametrize("case", CASES)
def test_rows(case):
    visibility = CASES[case]
    expected = by_loops(visibility, QUERIES, KEYS)
    actual = visibility.rows(0, QUERIES, QUERIES, KEYS)
    assert actual.ndim == 4
    assert torch.equal(actual.expand(2, 3, -1, -1), expected)
    for start, stop, first, last in ((0, 2, 0, 7), (2, 5, 3, 6), (4, 5, 0, 1), (1, 3, 6, 7)):
        part = visibility.rows(start, stop, QUERIES, KEYS, first, last)
        assert torch.equal(part.expand(2, 3, -1, -1), expected[:, :, start:stop, first:last])


@pytest.mark.parametrize(("queries", "keys"), [(7, 5), (1, 6), (6, 1)])
@pytest.mark.parametrize("window", [None, 2])
def test_lengths_that_differ(queries, keys, window):
    visibility = VisibilityMask(True, window, None, None, torch.arange(queries), torch.arange(keys))
    result = visibility.rows(0, queries, queries, keys)
    assert torch.equal(result.expand(2, 3, -1, -1), by_loops(visibility, queries, keys))


def test_order_only_and_per_key_visibility():
    order_only = {"causal", "bidirectional", "window", "window of one", "window, bidirectional"}
    assert {case for case in CASES if CASES[case].order_only} == order_only
    assert {case for case in CASES if CASES[case].per_key} == {*order_only, "mask of keys"}


LISTS = {
    "nope": list,
    "rope+t5": lambda: [RoPE(8), T5Bias(4, init_std=1.0, bidirectional=True)],
    "shaw": lambda: [Shaw(8, max_distance=4, value_dim=5, init_std=1.0)],
    "fox": lambda: [ForgetGate(8, num_heads=4, kind="bias", decay_time=(2, 30))],
    "cope": lambda: [CoPE(8, max_position=9)],
    "sticks": lambda: [StickBreaking(remainder="own")],
    "alibi+sticks": lambda: [ALiBi(4), StickBreaking()],
}
BY_TOKEN_ORDER = ("fox", "cope", "sticks", "alibi+sticks")  # which refuse keys whose positions do not grow
BACKENDS = ("auto", "dense", "sdpa", "rows", "tiled")


def is_supported(backend: str, name: str, causal: object) -> bool:
    """Kernels look at no scores, rows need the order of indices, tiles need counted positions with a distance."""
    if backend == "sdpa":
        return name in ("nope", "rope+t5")
    if backend == "rows":
        return causal is True
    return backend != "tiled" or causal != "positions" or name not in ("rope+t5", "shaw", "sticks", "alibi+sticks")


class TestWindow:
    """``window`` is a boolean mask, without being one."""

    QUERIES, KEYS = 90, 100

    def results(self, backend: str, name: str, **options: object) -> list[torch.Tensor]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            encodings = [e.double() for e in LISTS[name]()]
        leaves = [
            t.requires_grad_()
            for t in qkv(
                2, 4, self.QUERIES, self.KEYS, num_kv_heads=2, value_dim=5, dtype=torch.float64, transposed=True
            )
        ]
        out = attention(*leaves, encodings, backend=backend, **options)
        parameters = [p for e in encodings for p in e.parameters()]
        target = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)
        return [out, *torch.autograd.grad(out, [*leaves, *parameters], target, materialize_grads=True)]

    @pytest.mark.parametrize("backend", BACKENDS)
    @pytest.mark.parametrize("causal", mostly_slow([True, False], True))
    @pytest.mark.parametrize("name", LISTS)
    def test_equals_a_mask(self, name, causal, backend):
        if not is_supported(backend, name, causal):
            return
        apart = torch.arange(self.QUERIES)[:, None] + self.KEYS - self.QUERIES - torch.arange(self.KEYS)
        for window in (1, 7, 64, 1000):
            expected = self.results("dense", name, causal=causal, mask=apart.abs() < window)
            for a, b in zip(self.results(backend, name, causal=causal, window=window), expected, strict=True):
                assert gap(a, b) < 1e-10

    @pytest.mark.parametrize("backend", BACKENDS)
    @pytest.mark.parametrize("name", LISTS)
    def test_goes_by_positions_where_the_order_does(self, name, backend):
        if not is_supported(backend, name, "positions"):
            return
        source = torch.Generator().manual_seed(3)
        k_pos = torch.stack([torch.randperm(self.KEYS, generator=source) for _ in range(2)])
        if name in BY_TOKEN_ORDER:
            k_pos = k_pos.sort(-1).values
        q_pos = torch.randint(0, self.KEYS, (2, self.QUERIES), generator=source)
        options = {"causal": "positions", "q_pos": q_pos, "k_pos": k_pos}
        apart = q_pos[:, :, None] - k_pos[:, None]
        expected = self.results("dense", name, **options, mask=apart < 12)
        for a, b in zip(self.results(backend, name, **options, window=12), expected, strict=True):
            assert gap(a, b) < 1e-10

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_with_documents_and_a_mask(self, backend):
        segments = torch.arange(self.KEYS) // 23
        mask = torch.rand(2, 1, 1, self.KEYS, generator=torch.Generator().manual_seed(3)) < 0.8
        apart = torch.arange(self.QUERIES)[:, None] + self.KEYS - self.QUERIES - torch.arange(self.KEYS)
        expected = self.results("dense", "nope", segments=segments, mask=mask & (apart < 9))
        for a, b in zip(self.results(backend, "nope", segments=segments, mask=mask, window=9), expected, strict=True):
            assert gap(a, b) < 1e-10

    @pytest.mark.parametrize("window", [0, -3, 2.0, True, "4"])
    def test_refuses_what_is_no_number_of_tokens(self, window):
        with pytest.raises(ValueError, match=r"^window\b"):
            attention(*qkv(), window=window)


def test_a_window_over_fractional_positions_is_not_rounded():
    """10.2 and -3.8 in float32 lie less than 14 apart, but their difference in float32 is 14."""
    q, k, v = qkv(1, 1, 2, head_dim=4)
    places = torch.tensor([-3.8, 10.2])
    apart = places.double().diff()
    assert apart < 14 == places.diff()
    options = {"q_pos": places, "k_pos": places, "causal": "positions"}
    seen, all_of_them = attention(q, k, v, window=14, **options), attention(q, k, v, **options)
    assert torch.equal(seen, all_of_them)
