"""Constructors and bad numbers: every one of them, every number that it takes, every kind of slip."""

from __future__ import annotations

import inspect
import math
import re

import numpy
import pytest
import torch

import posenc
from posenc import KERPLE, Encoding, RoPE
from posenc.arguments import (
    check_choice,
    check_flag,
    check_heads,
    check_kv_heads,
    check_number,
    check_table,
    check_whole,
)
from posenc.frequencies import Scaling
from posenc.frequencies.host import Formula

VALID: dict[str, dict[str, object]] = {
    "num_heads": 4, "num_kv_heads": 2, "head_dim": 16, "dim": 16, "value_dim": 16, "max_length": 8, "max_position": 4,
    "max_distance": 64, "axes": 2, "window": (3, 3), "size": (3, 3), "pairs": 8, "original_length": 64, "factor": 2.0,
    "factors": [1.0] * 8, "short": [1.0] * 8, "long": [2.0] * 8, "fraction": 0.5, "sections": (4, 4), "hidden": 8,
    "extent": 5, "path_dim": 8, "k": 1, "length": 64, "rotation": RoPE(16), "shift": 256,
}  # fmt: skip
ODD: dict[str, dict[str, object]] = {  # what else a constructor needs so that an argument counts
    "AxialRoPE.min_period": {"min_period": 1.0, "max_period": 100.0, "convention": "dinov3"},
    "AxialRoPE.max_period": {"min_period": 1.0, "max_period": 100.0, "convention": "dinov3"},
    "CoPE.dim": {"gates": "separate"},
    "CoPE.num_kv_heads": {"gates": "separate"},
    "DataDependentALiBi.gate_dim": {"form": "rows"},
    "MHRoPE": {"num_kv_heads": 2, "heads": (1, 1)},
    "MixedRoPE": {"num_kv_heads": 2},
    "Mixture": {"adaptive": True},
    "StickBreaking": {"remainder": "vector"},
    "T5Bias": {"max_distance": 128},
    "TransformerXL.clamp": {},
    "YaRN.mscale_all_dim": {"mscale": 1.0},
    "YaRN.mscale": {"mscale_all_dim": 1.0},
}
SMALL = {"offset", "prefix", "start", "start_tokens", "padding_idx", "STRING.local", "StreamingLLM.sinks"}  # may be 0
WIDTHS = {"dim", "head_dim", "value_dim", "hidden", "rank", "gate_dim", "rotary_dim", "num_heads", "num_kv_heads",
          "axes", "block", "layers", "num_buckets", "conv", "pairs"}  # fmt: skip
NO_NUMBER: list[object] = ["8", True, math.nan, math.inf, -math.inf, [8], 1j, 10**400]
ANYTHING: list[object] = [
    3,
    -1,
    2.5,
    None,
    "x",
    b"x",
    [None],
    [[1]],
    {},
    object(),
    [math.nan],
    [True],
    (),
    torch.ones(()),
    torch.ones(2),
    torch.ones(2, dtype=torch.bool),
]


def classes() -> list[type]:
    places = {posenc.encoding.Encoding, Scaling, *posenc.encoding.HOOK_POINTS.values()}
    packages = (posenc.embedding, posenc.rotary, posenc.bias, posenc.score, posenc.weight, posenc.frequencies)
    public = {name: getattr(package, name) for package in packages for name in package.__all__}
    results = [c for c in public.values() if inspect.isclass(c) and issubclass(c, Encoding | Scaling)]
    formulas = tuple(c for c in dict.fromkeys(results) if issubclass(c, Formula))  # whose constructors are inherited
    return [c for c in dict.fromkeys(results) if c not in places and (c in formulas or "__init__" in vars(c))]


def numbers() -> list[tuple[type, str, str]]:
    """Each constructor with each argument that is a number, and its annotation."""
    results = []
    for kind in classes():
        for name, parameter in inspect.signature(kind).parameters.items():
            words = {word.strip() for word in str(parameter.annotation).split("|")}
            if words & {"int", "float"} and not name.startswith("device"):
                results.append((kind, name, "int" if "int" in words else "float"))
    return results


def valid_arguments(kind: type, name: str) -> dict[str, object]:
    """Arguments with which the constructor is content."""
    parameters = inspect.signature(kind).parameters
    built = {n: VALID[n] for n, p in parameters.items() if p.default is p.empty and n in VALID}
    if "bias" in parameters and kind.__name__ in ("DAPE", "KERPLEWeight"):
        built["bias"] = KERPLE(4)
    if "members" in parameters:
        built["members"] = [RoPE(16), []]
    if kind.__name__ == "StickBreaking":
        built |= {"num_heads": 4, "value_dim": 8}
    if kind.__name__ in ("CoPE", "Mixture"):
        built |= {n: VALID[n] for n in ("dim", "num_kv_heads") if n in parameters}
    if kind.__name__ in ("VJEPARoPE",):
        built["head_dim"] = 48
    if kind.__name__ == "MRoPE":
        built |= {"axes": 2, "sections": (4, 4)}
    if kind.__name__ in ("ComRoPEAP", "ComRoPELD"):
        built |= {"block": 4}
    return built | ODD.get(kind.__name__, {}) | ODD.get(f"{kind.__name__}.{name}", {})


def bad(kind: type, name: str, sort: str) -> list[object]:
    optional = "None" in str(inspect.signature(kind).parameters[name].annotation)
    several = "Sequence" in str(inspect.signature(kind).parameters[name].annotation)
    result = [value for value in NO_NUMBER if not (several and isinstance(value, list))] + ([] if optional else [None])
    if sort == "int":
        result += (
            [2.5, -1, 10**18]
            + ([] if SMALL & {name, f"{kind.__name__}.{name}"} else [0])
            + ([2**31] if name in WIDTHS else [])
        )
    return result


CASES = [pytest.param(k, n, s, id=f"{k.__name__}-{n}") for k, n, s in numbers()]


@pytest.mark.parametrize(("kind", "name", "sort"), CASES)
def test_a_bad_number_is_named(kind, name, sort):
    content = valid_arguments(kind, name)
    kind(**content)
    for value in bad(kind, name, sort):
        with pytest.raises(ValueError) as error:
            kind(**(content | {name: value}))
        assert name in str(error.value), f"{value!r}: {error.value}"


def invalid_values() -> list[object]:
    """Each constructor with each argument that is no number: names, flags, sequences, encodings."""
    numbered = {(kind, name) for kind, name, _ in numbers()}
    return [
        pytest.param(kind, name, id=f"{kind.__name__}-{name}")
        for kind in classes()
        for name in inspect.signature(kind).parameters
        if (kind, name) not in numbered and name not in ("device", "dtype", "kwargs", "args")
    ]


@pytest.mark.parametrize(("kind", "name"), invalid_values())
def test_whatever_is_given_is_taken_or_refused_by_name(kind, name):
    content = valid_arguments(kind, name)
    for value in ANYTHING:
        try:
            kind(**(content | {name: value}))
        except ValueError as error:
            assert re.search(rf"\b{name}\b", str(error)), f"{value!r}: {error}"  # noqa: PT017
        else:
            assert value != "x", "no argument takes any text"


def flags() -> list[object]:
    """Each constructor with each argument that is true or false."""
    return [
        pytest.param(kind, name, id=f"{kind.__name__}-{name}")
        for kind in classes()
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.annotation == "bool"
    ]


@pytest.mark.parametrize(("kind", "name"), flags())
def test_a_flag_is_true_or_false(kind, name):
    content = valid_arguments(kind, name)
    for value in (None, "no", 2, 0.5, [], math.nan, torch.ones(2), torch.ones(()), numpy.ones(2)):
        with pytest.raises(ValueError, match=rf"\b{name}\b"):
            kind(**(content | {name: value}))


def test_every_encoding_and_scaling_is_there():
    assert len(classes()) > 40
    assert len(CASES) > 120
    assert len(flags()) > 15


@pytest.mark.parametrize(("sizes", "call"), [
    ("max_length and dim", lambda: posenc.Learned(2**16, max_length=2**20)),
    ("max_length and dim", lambda: posenc.embedding.Abacus(2**16, max_length=2**20)),
    ("size and dim", lambda: posenc.LearnedGrid(1024, size=(2**13, 2**13))),
    ("max_distance and head_dim", lambda: posenc.Shaw(128, max_distance=2**30)),
    ("max_position and head_dim", lambda: posenc.CoPE(128, max_position=2**30)),
    ("relative and head_dim", lambda: posenc.CoPE(128, max_position=4, relative=2**30)),
    ("num_kv_heads, head_dim and dim",
     lambda: posenc.CoPE(2**14, max_position=4, gates="separate", dim=2**14, num_kv_heads=99)),
    ("num_kv_heads, head_dim and rank", lambda: posenc.PaTH(2**14, head_dim=2**14, num_kv_heads=64, rank=None)),
    ("num_heads and head_dim", lambda: posenc.TransformerXL(2**16, num_heads=4, head_dim=2**17)),
    ("window and num_heads", lambda: posenc.SwinBias(64, (2**14, 2**14))),
    ("window and num_heads", lambda: posenc.BEiTBias(64, (2**14, 2**14))),
    ("layers and hidden", lambda: posenc.bias.DistanceMLP(4, hidden=2**16, layers=64)),
    ("num_kv_heads, head_dim and block", lambda: posenc.rotary.ComRoPEAP(2**16, num_heads=512, block=2**10)),
    ("num_kv_heads, head_dim and block", lambda: posenc.rotary.LieRE(2**16, num_heads=512)),
])  # fmt: skip
def test_tables_that_no_memory_holds(sizes, call):
    with pytest.raises(ValueError, match=sizes):
        call()


def test_what_is_accepted():
    check_heads("n", 96)
    assert check_kv_heads(8, None) == 8
    assert check_kv_heads(8, 2) == 2
    check_number("n", 0.5, above=0, most=1)
    check_number("n", 3)
    check_table("n", 2**33)
    for truth in (True, 1, numpy.True_, numpy.int64(1), numpy.array(True)):
        assert check_flag("n", truth) is True
    for untruth in (False, 0, numpy.False_, numpy.float32(0)):
        assert check_flag("n", untruth) is False


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: check_whole("n", 2.0), "n must be an integer of at least 1, got 2.0"),
        (lambda: check_whole("n", 3, least=4), "n must be at least 4, got 3"),
        (lambda: check_whole("n", 2**40), "n must be at most 131,072, got 1099511627776"),
        (lambda: check_kv_heads(8, 3), "num_kv_heads must divide num_heads = 8, got 3"),
        (lambda: check_number("x", 0.0, above=0), "x must be a finite number above 0, got 0.0"),
        (lambda: check_number("x", 2, least=0, most=1), "x must be a finite number of at least 0 and at most 1, got 2"),
        (lambda: check_number("x", None), "x must be a finite number, got None"),
        (lambda: check_whole("n", 10**5000), "n must be at most 131,072, got an integer of 16610 bits"),
        (lambda: check_whole("n", torch.ones(2, 2)), "got a tensor (2, 2) of torch.float32"),
        (lambda: check_choice("side", "top", ("left", "right")), "side must be one of ('left', 'right'), got 'top'"),
        (lambda: check_flag("x", "no"), "x must be True or False, got 'no'"),
    ],
)
def test_messages(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)
