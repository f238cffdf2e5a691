"""Fused kernels give what the definition gives, in values and in every gradient."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend

from posenc import ALiBi, RoPE, T5Bias, attention, explain_backend
from posenc.backends import sdpa
from posenc.positions import segments_from_cu_seqlens
from tests.backends.tiles.compare import Largest
from tests.samples import gap, qkv


@pytest.mark.parametrize("wanting", list(itertools.product([False, True], repeat=4)))
def test_any_choice_of_gradients(wanting):
    """q, k, v and the bias want gradients or not, in every combination."""
    bias = T5Bias(4, init_std=1.0, bidirectional=True).double().requires_grad_(wanting[3])
    results = []
    for backend in ("dense", "sdpa"):
        leaves = [t.requires_grad_(w) for t, w in zip(qkv(dtype=torch.float64), wanting[:3], strict=True)]
        out = attention(*leaves, [bias], backend=backend)
        assert out.requires_grad == any(wanting)
        leaves = [t for t in (*leaves, bias.weight) if t.requires_grad]
        results.append([out, *(torch.autograd.grad(out.square().sum(), leaves) if leaves else ())])
    for a, b in zip(*results, strict=True):
        assert gap(a, b) < 1e-11


LONG = 582  # more queries than share one mask


@pytest.mark.parametrize("queries", [LONG, 1])
def test_plain_calls_build_no_mask(queries):
    with Largest() as seen:
        attention(*qkv(1, 1, queries, LONG, 8), [RoPE(8)], backend="sdpa")
    assert seen.elements < LONG * LONG / 2


def test_hidden_keys_must_be_finite():
    """A kernel adds −inf to a hidden score: NaN and infinity stay, every finite number goes."""
    q, k, v = qkv()
    mask = torch.tensor([True] * 5 + [False]).expand(2, 1, 6)
    expected = attention(q, k, v, mask=mask, backend="sdpa")
    spoilt = [t.clone() for t in (k, v)]
    for t in spoilt:
        t[:, :, 5] = 1e30
    assert gap(attention(q, *spoilt, mask=mask, backend="sdpa"), expected) < 1e-6


class TestScalesThatAreNotPositive:
    """Kernels that hide keys before they multiply would give NaN: −inf · 0, or the hidden keys all the weight."""

    def test_compiled(self):
        tensors = qkv(1, 4, 7)
        torch.compiler.reset()
        compiled = torch.compile(lambda *t: attention(*t, scale=-0.5), backend="eager", fullgraph=True)
        assert gap(compiled(*tensors), attention(*tensors, scale=-0.5, backend="dense")) < 1e-6
        torch.compiler.reset()


class TestMasksOfGPUs:
    """Kernels of GPUs other than cuDNN's refuse a mask of another dtype than q's; stood in for on the CPU."""

    @pytest.fixture
    def kernels(self, monkeypatch):
        """What q and mask were of in each call, and which kernel is chosen."""
        right, seen, chosen = F.scaled_dot_product_attention, [], [SDPBackend.EFFICIENT_ATTENTION]

        def strict(q, k, v, mask=None, *rest, **options):
            seen.append((q.dtype, None if mask is None else mask.dtype))
            if mask is not None and mask.dtype not in (torch.bool, q.dtype):
                assert chosen[0] is SDPBackend.CUDNN_ATTENTION, "invalid dtype for bias - should match query's dtype"
                assert not mask.requires_grad, "cuDNN has no gradient of a mask"
                return right(q.float(), k.float(), v.float(), mask, *rest, **options).to(q.dtype)
            return right(q, k, v, mask, *rest, **options)

        monkeypatch.setattr(F, "scaled_dot_product_attention", strict)

        def efficient(q, k, v, mask, scale):
            assert q.shape[1] == k.shape[1], "the memory-efficient kernel has no shared heads"
            return strict(q, k, v, mask, scale=scale)

        monkeypatch.setattr(sdpa, "GPU", "cpu")
        monkeypatch.setattr(sdpa, "_efficient", efficient)
        monkeypatch.setattr(torch, "_fused_sdp_choice", lambda *a, **o: int(chosen[0].value))
        return seen, chosen

    @pytest.mark.parametrize("queries", [1, 30])
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
    @pytest.mark.parametrize("cudnn", [True, False])
    def test_no_bit_of_a_bias_is_lost(self, kernels, cudnn, dtype, queries):
        seen, chosen = kernels
        chosen[0] = SDPBackend.CUDNN_ATTENTION if cudnn else chosen[0]
        q, k, v = (t.to(dtype) for t in qkv(1, 4, queries, 300, 16, num_kv_heads=2))
        k_pos = torch.arange(300) * 7 + 3
        options = {"q_pos": k_pos[-queries:], "k_pos": k_pos}
        with torch.no_grad():
            got = attention(q, k, v, [ALiBi(4)], backend="sdpa", **options)
            right = attention(q.double(), k.double(), v.double(), [ALiBi(4)], backend="dense", **options)
        assert got.dtype == dtype
        assert gap(got.double(), right) < 8 * torch.finfo(dtype).eps
        assert seen == [(dtype if cudnn and queries > sdpa.FEW else torch.float32, torch.float32)]

    def test_a_bias_that_is_trained(self, kernels):
        seen, chosen = kernels
        chosen[0] = SDPBackend.CUDNN_ATTENTION
        bias, places = T5Bias(4, init_std=1.0), torch.arange(40) * 2
        q, k, v = (t.bfloat16() for t in qkv(1, 4, 40, 40, 16))
        gradients = []
        for cast, backend in ((torch.bfloat16, "sdpa"), (torch.float64, "dense")):
            out = attention(q.to(cast), k.to(cast), v.to(cast), [bias], q_pos=places, k_pos=places, backend=backend)
            gradients.append(torch.autograd.grad(out.double().square().sum(), bias.weight)[0])
        assert {of_q for of_q, _ in seen} == {torch.float32}
        assert (gradients[0] - gradients[1]).norm() < 0.02 * gradients[1].norm()

    def test_masks_of_bits_stay_with_16_bits(self, kernels):
        seen, _ = kernels
        q, k, v = (t.bfloat16() for t in qkv(1, 4, 5, 40, 16))
        attention(q, k, v, mask=(torch.arange(40) > 3).expand(5, 40), backend="sdpa")
        assert {of_q for of_q, _ in seen} == {torch.bfloat16}

    @pytest.mark.parametrize("queries", [1, 16, 17])
    def test_few_queries_split_their_keys_and_plan_nothing(self, kernels, monkeypatch, queries):
        """cuDNN plans anew for each number of keys, and rows instead of shared heads are no step to it."""
        to_flash = []

        def flash(q, k, v, dropped, causal, *, scale):
            to_flash.append((q.shape[1], k.shape[1]))
            return (F.scaled_dot_product_attention(q, k, v, None, dropped, causal, scale=scale, enable_gqa=True),)

        monkeypatch.setattr(sdpa, "_flash", flash)
        monkeypatch.setattr(sdpa, "_has_flash", lambda device: True)
        q, k, v = (t.bfloat16() for t in qkv(1, 4, queries, 40, 16, num_kv_heads=2))
        got = attention(q, k, v, causal=False, backend="sdpa")
        assert gap(got.double(), attention(q.double(), k.double(), v.double(), causal=False)) < 0.02
        assert to_flash == ([(4, 2)] if queries <= sdpa.FEW else [])
        masked = attention(q, k, v, mask=torch.arange(40)[None] > 3, causal=False, backend="sdpa")
        right = attention(q.double(), k[:, :, 4:].double(), v[:, :, 4:].double(), causal=False)
        assert gap(masked.double(), right) < 0.02
        assert len(to_flash) == (queries <= sdpa.FEW)

    @pytest.mark.parametrize("options", [{}, {"window": 3}, {"causal": False}, {"causal": False, "window": 2}])
    def test_documents_go_by_their_edges(self, kernels, monkeypatch, options):
        """Where nothing is added: by the function that PyTorch has for them, in its layout and its windows."""
        seen = []

        def varlen(q, k, v, of_q, of_k, most_q, most_k, *, scale, window_size, enable_gqa):
            assert of_q is of_k
            seen.append((of_q.tolist(), most_q, enable_gqa))
            behind, ahead = (len(q) if size < 0 else size for size in window_size)
            document = torch.bucketize(torch.arange(len(q)), of_q[1:], right=True)
            apart = torch.arange(len(q))[:, None] - torch.arange(len(q))
            mask = (document[:, None] == document) & (apart <= behind) & (apart >= -ahead)
            q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
            out = F.scaled_dot_product_attention(q, k, v, mask, scale=scale, enable_gqa=enable_gqa)
            return out[0].transpose(0, 1)

        monkeypatch.setattr(sdpa, "_varlen", lambda: varlen)
        monkeypatch.setattr(sdpa, "_has_flash", lambda device: True)
        q, k, v = (t.bfloat16() for t in qkv(1, 4, 21, 21, 16, num_kv_heads=2))
        segments = segments_from_cu_seqlens(torch.tensor([0, 9, 9, 14]), 21)
        got = attention(q, k, v, [RoPE(16)], segments=segments[None], backend="sdpa", **options)
        right = attention(q, k, v, [RoPE(16)], segments=segments.clone(), backend="dense", **options)
        assert gap(got, right) < 0.02
        assert seen == [([0, 9, 14, 21], 16, True)]
        assert explain_backend(q, k, v, [RoPE(16)], segments=segments, **options).how.startswith("FlashAttention")
        changed = segments_from_cu_seqlens(torch.tensor([0, 9, 21]))
        changed[:4] += 5
        for others in (segments.clone(), changed, (segments, changed)):
            attention(q, k, v, [RoPE(16)], segments=others, backend="sdpa", **options)
        attention(q, k, v, [ALiBi(4)], segments=segments, backend="sdpa", **options)
        assert len(seen) == 1
