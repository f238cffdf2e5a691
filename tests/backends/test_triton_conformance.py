"""The kernels in Triton over the conformance cases: every case and situation that they serve, against the definition.

On a GPU they run as they are. Elsewhere they need Triton's interpreter, which must be asked for before Triton is
loaded: `nox -s interpreter`, which continuous integration runs every week, or

    TRITON_INTERPRET=1 pytest tests/backends/test_triton_conformance.py
"""

from __future__ import annotations

import copy
import importlib.util
import os

import pytest
import torch

from posenc.backends import triton as backend
from posenc.backends.rewrites import rewritten
from posenc.backends.triton import launch
from posenc.call import AttentionCall, prepare_call
from posenc.encoding import EmbeddingEncoding
from posenc.testing import Case
from posenc.testing.backends import Call, Situation, call_of, differentiated, situations
from posenc.testing.cases import random
from tests.samples import gap
from tests.test_conformance import CASES

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu"
RUNS = importlib.util.find_spec("triton") is not None and (INTERPRETED or DEVICE == "cuda")
TOLERANCE = 2e-5  # of float32, relative to the largest entry
SHORT = 100  # keys up to which tiles of 16 make several; longer texts have several of 64


def in_float32(call: Call, device: str) -> Call:
    """The same numbers where the kernels run."""
    tensors = tuple(t.detach().to(device, torch.float32).requires_grad_() for t in call.tensors)
    options = {
        name: value.to(device, torch.float32 if value.is_floating_point() else value.dtype)
        if isinstance(value, torch.Tensor)
        else value
        for name, value in call.options.items()
    }
    encodings = [copy.deepcopy(encoding).to(device=device, dtype=torch.float32) for encoding in call.encodings]
    return Call(tensors, encodings, options)  # type: ignore[arg-type]


def prepared(call: Call) -> AttentionCall:
    return rewritten(prepare_call(*call.tensors, call.encodings, token_states=None, scale=None, **call.options))


def supported(case: Case) -> list[Situation]:
    """The situations in which the kernels serve a case."""
    if all(isinstance(encoding, EmbeddingEncoding) for encoding in case.fresh()):
        return []
    return [s for s in situations(case) if backend.unsupported(prepared(in_float32(call_of(case, s), "cpu"))) is None]


PAIRS = [pytest.param(case, s, id=f"{case.name}-{s.name}") for case in CASES for s in (supported(case) if RUNS else ())]


@pytest.mark.skipif(not RUNS, reason="needs Triton, and an NVIDIA GPU or TRITON_INTERPRET=1")
def test_the_kernels_serve_biases_gates_counts_and_sticks() -> None:
    names = {param.values[0].name.split("_")[0].split("+")[-1] for param in PAIRS}
    assert {"alibi", "t5", "cope", "stick-breaking"} <= names
    assert len(PAIRS) > 50


@pytest.mark.skipif(not RUNS, reason="needs Triton, and an NVIDIA GPU or TRITON_INTERPRET=1")
@pytest.mark.parametrize(("case", "situation"), PAIRS)
def test_equals_the_definition(case: Case, situation: Situation, monkeypatch: pytest.MonkeyPatch) -> None:
    if DEVICE == "cpu":
        size = 16 if situation.keys < SHORT else 64
        monkeypatch.setattr(launch, "TILE", size)
        monkeypatch.setattr(launch, "candidates", lambda *args: [launch.Tile(size, size, 4, 1)])
    wide = call_of(case, situation)
    expected = differentiated(wide, "dense")
    call = in_float32(wide, DEVICE)
    out = backend.run(prepared(call))
    learned = [*call.tensors, *(p for e in call.encodings for p in e.parameters() if p.requires_grad)]
    target = random(*out.shape, seed=11).to(DEVICE, torch.float32)
    gradients = torch.autograd.grad(out, learned, target, materialize_grads=True)
    for (name, right), got in zip(expected.items(), (out.detach(), *gradients), strict=True):
        assert gap(got.double().cpu(), right) <= TOLERANCE * max(1.0, float(right.detach().abs().max())), name
