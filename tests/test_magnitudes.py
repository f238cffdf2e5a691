"""What every encoding holds with scores of any size, and on devices without float64."""

from __future__ import annotations

import pytest
import torch

from posenc import ScoreEncoding, attention
from posenc.backends import Backend
from posenc.catalogue import CATALOGUE
from posenc.frequencies import phase
from posenc.score import grape, remapped, repo, selective_rope, shaw, temperature
from posenc.testing.cases import Case, heads_of, tokens_of
from tests.samples import WithoutFloat64

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


# Devices without float64, as Apple's: what runs there makes no such tensor, forward or backward.


TOKENS = 70  # more than a block of rows


@pytest.mark.parametrize("backend", ["dense", "rows"])
@pytest.mark.parametrize("name", [*NAMES, "rope", "yarn", "xpos", "rope+fox", "data_alibi+rope"])
def test_attention_makes_no_float64(name, backend: Backend, monkeypatch):
    """The backends that serve such devices, on this one."""
    try:
        case = Case.from_catalogue(name)
    except ValueError as error:
        pytest.fail(str(error))
    encodings = case.make(torch.float32)
    for module in (phase, temperature, selective_rope, repo, grape, remapped, shaw):
        monkeypatch.setattr(module, "float64_if_supported", lambda device: torch.float32)
    q, k, v = (t.requires_grad_() for t in heads_of(case, TOKENS, TOKENS, dtype=torch.float32))
    x = torch.randn(2, TOKENS, case.dim)
    positions = case.positions(torch.arange(TOKENS)) if case.axes > 1 else None
    if backend == "rows" and any(isinstance(e, ScoreEncoding) and not e.scope.by_rows for e in encodings):
        backend = "dense"
    with WithoutFloat64():
        out = attention(q, k, v, encodings, x=x, q_pos=positions, k_pos=positions, causal=True, backend=backend)
        gradients = torch.autograd.grad(out.sum(), (q, k, v))
    assert out.isfinite().all()
    assert all(gradient.dtype == torch.float32 and gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("name", ["fox", "data_alibi"])
def test_sums_of_gates_keep_their_digits_without_float64(name):
    """From the newest key back, float32 sums are right where weights are large, 100,000 gates after the first."""
    case = Case.from_catalogue(name)
    (encoding,) = case.make(torch.float32)
    keys = 100_000
    q, k, v = (t.float() for t in heads_of(case, 1, keys, batch=1))
    x = torch.randn(1, keys, case.dim, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        state = encoding.token_state(x)
        narrow = attention(q, k, v, [encoding], token_states=[state], backend="dense")
        wide = attention(q.double(), k.double(), v.double(), [encoding], token_states=[state.double()], backend="dense")
    assert (narrow.double() - wide).abs().max() < 1e-5


def test_backends_that_sum_gates_in_float64_refuse_such_a_device():
    """The meta device stands for it: neither processor nor GPU of NVIDIA."""
    case = Case.from_catalogue("rope+fox")
    encodings = [encoding.to("meta") for encoding in case.make(torch.float32)]
    q, k, v = (t.to("meta").float() for t in heads_of(case, TOKENS, TOKENS))
    x = torch.empty(2, TOKENS, case.dim, device="meta")
    for backend in ("tiled", "flex", "triton"):
        with pytest.raises(ValueError, match=f"backend '{backend}' cannot serve this call"):
            attention(q, k, v, encodings, x=x, backend=backend)
