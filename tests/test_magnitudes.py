"""Scores of zero and of any size, and lengths around the sizes of blocks: finite everywhere, and as the definition."""

from __future__ import annotations

import pytest
import torch

from posenc import attention
from posenc.catalogue import CATALOGUE
from posenc.testing.cases import Case, heads_of, tokens_of

NAMES = [name for name, entry in CATALOGUE.items() if entry.hook_point in ("bias", "score", "weight")]
# which PyTorch's kernel serves: it has NaN gradients from 1e10 on
BARE = {"ssmax", "log_n", "step_temperature", "power_temperature", "sink", "selective_rope", "repo", "grape_context"}
BARE |= {"dual_chunk", "leaky_rerope", "lm_infinite", "rerope", "self_extend", "streaming_llm", "string", "xpos"}


def gradients(
    name: str, backend: str, *, tokens: int, size: float = 1.0, scale: float | None = None
) -> list[torch.Tensor]:
    """The result, and the gradients of q, k and v for a gradient of order one."""
    case = Case.from_catalogue(name)
    encodings = case.make(torch.float32)
    q, k, v = ((t * size).requires_grad_() for t in heads_of(case, tokens, tokens, batch=1, dtype=torch.float32))
    positions = case.positions(torch.arange(tokens)) if case.axes > 1 else None
    x = tokens_of(case, tokens, dtype=torch.float32)
    out = attention(
        q, k, v, encodings, x=x, q_pos=positions, k_pos=positions, causal=True, scale=scale, backend=backend
    )
    return [out.detach(), *torch.autograd.grad(out.sum(), (q, k, v))]


@pytest.mark.parametrize("name", NAMES)
def test_any_magnitude(name):
    for size, scale in ((0.0, None), (1.0, 0.0), (1e-30, None), (1e4, None), (1e15, None))[: 4 if name in BARE else 5]:
        for backend in ("dense", "auto"):
            assert all(t.isfinite().all() for t in gradients(name, backend, tokens=40, size=size, scale=scale)), (
                size,
                scale,
            )
