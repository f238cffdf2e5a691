"""Calls of attention under every encoding of the catalogue that acts inside it: values and gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from posenc import attention, explain_backend
from posenc.catalogue import CATALOGUE
from posenc.encoding import EmbeddingEncoding, Encoding
from posenc.testing import Case
from posenc.testing.cases import heads_of, random, tokens_of

ENCODINGS = tuple(name for name, entry in CATALOGUE.items() if entry.hook_point != "embedding")
UNLIKE = tuple(  # to a backend: rotations are done before it sees anything
    name for name in ENCODINGS if CATALOGUE[name].hook_point != "rotary" or name in ("rope", "dynamic_ntk", "axial")
)


def case_of(name: str) -> Case:
    return Case.from_catalogue(name)


def encodings_of(name: str, dtype: torch.dtype = torch.float64) -> list[Encoding]:
    return [e for e in case_of(name).make(dtype) if not isinstance(e, EmbeddingEncoding)]


def only_causal(name: str) -> bool:
    """Whether it refuses calls in which keys after the query are seen."""
    return any(e.causal_only for e in encodings_of(name))


def called(name: str, queries: int, keys: int, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """q, k, v, x, and positions where they have several coordinates."""
    case = case_of(name)
    q, k, v = heads_of(case, queries, keys, dtype=dtype)
    options = {"q": q, "k": k, "v": v, "x": tokens_of(case, keys, batch=2, dtype=dtype)}
    if case.axes > 1:
        places = case.positions(torch.arange(keys))
        options |= {"q_pos": places[keys - queries :], "k_pos": places}
    return options


def with_causal(name: str, options: dict[str, object]) -> dict[str, object]:
    """The options of a call, with the order of the tokens stated where positions have several coordinates."""
    return {"causal": True, **options} if case_of(name).axes > 1 else options


def backends_of(name: str, queries: int, keys: int, **options: object) -> list[str]:
    """Names of the backends that serve a trained call, the definition aside."""
    keywords, encodings = called(name, queries, keys), encodings_of(name)
    keywords["q"].requires_grad_()
    refused = explain_backend(**keywords, encodings=encodings, backend="dense", **with_causal(name, options)).refused
    return [backend for backend in ("tiled", "rows", "sdpa") if refused[backend] == "not asked for"]


def differentiated(
    name: str, backend: str, queries: int, keys: int, dtype: torch.dtype = torch.float64, **options: object
) -> list[Tensor]:
    """The result, and the gradients of q, k, v and all parameters; random numbers are drawn after seed 3."""
    encodings, keywords = encodings_of(name, dtype), called(name, queries, keys, dtype)
    for leaf in "qkv":
        keywords[leaf].requires_grad_()
    torch.manual_seed(3)
    out = attention(**keywords, encodings=encodings, backend=backend, **with_causal(name, options))
    leaves = [
        keywords["q"],
        keywords["k"],
        keywords["v"],
        *(p for e in encodings for p in e.parameters() if p.requires_grad),
    ]
    grad = random(*out.shape, dtype=out.dtype, seed=11)
    return [out, *torch.autograd.grad(out, leaves, grad, materialize_grads=True)]
