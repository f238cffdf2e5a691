"""Arguments of other kinds and wrong ones: equal values agree, wrong ones are a ValueError that names the argument."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import posenc
from posenc import attention
from tests.fuzz.draw import Draw, Spec
from tests.fuzz.modes import definition_result, float64_leaves
from tests.fuzz.oracle import DisagreementError, judge
from tests.fuzz.random_call import MOVED, RandomCall

ALSO = {  # other words by which a message may name an argument
    "q": ["k", "v", "heads", "batch"],
    "k": ["q", "v", "heads", "batch"],
    "v": ["q", "k", "heads", "value_dim", "batch"],
    "segments": ["queries", "keys"],
    "x": ["dim", "token_states"],
    "token_states": ["x", "num_kv_heads"],
    "encodings": ["num_heads", "head_dim"],
    "q_pos": ["k_pos", "positions"],
    "k_pos": ["q_pos", "positions"],
}


@dataclass(frozen=True)
class Fault:
    """One argument with a value that must be refused, or that says the same as another."""

    argument: str
    value: object
    what: str


def call_with(call: RandomCall, fault: Fault, function: Callable[..., object] = attention) -> object:
    """The call's call with one argument replaced."""
    tensors: dict[str, object] = {n: getattr(call, n) for n in "qkv"}
    options: dict[str, object] = {"encodings": call.encodings, "x": call.x, **call.options}
    if fault.argument in tensors:
        tensors[fault.argument] = fault.value
    else:
        options[fault.argument] = fault.value
    if fault.argument == "token_states":
        options.pop("x")
    encodings = options.pop("encodings")
    return function(tensors["q"], tensors["k"], tensors["v"], encodings, **options)


def named(error: ValueError, argument: str) -> bool:
    """Whether a message names the argument, or a part of it by its own word."""
    return any(re.search(rf"\b{re.escape(word)}\b", str(error)) for word in [argument, *ALSO.get(argument, [])])


def equivalent_values(call: RandomCall, draw: Draw) -> float:
    """An option of an equal value in another kind: taken by its value, or refused by name."""
    fault = draw.choice(spellings(call, draw))
    call.notes.append(f"{fault.argument} as {fault.what}")
    try:
        got = call_with(call, fault)
    except ValueError as error:
        if named(error, fault.argument) or legitimate(error, call):
            return 0.0
        raise DisagreementError(f"the message does not name {fault.argument}: {error}") from error
    assert isinstance(got, Tensor)
    leaves = float64_leaves(call)
    return judge({"result": got}, lambda r: {"result": definition_result(call, leaves, r)}, call.dtype)


def spellings(call: RandomCall, draw: Draw) -> list[Fault]:
    """Other kinds of the values that the call has."""
    options = call.options
    causal = options.get("causal", True)
    faults = [Fault("encodings", tuple(call.encodings), "tuple")]
    faults.append(Fault("encodings", nn.ModuleList(call.encodings), "ModuleList"))
    faults.append(Fault("encodings", iter(call.encodings), "iterator"))
    faults.append(Fault("tolerance", draw.choice([0, np.float32(0), torch.tensor(0.0), False]), "zero of another kind"))
    faults.append(Fault("backend", np.str_("auto"), "numpy string"))
    if isinstance(causal, bool):
        kinds = [int(causal), float(causal), np.bool_(causal), torch.tensor(causal), np.int64(causal), np.array(causal)]
        value = draw.choice(kinds)
        faults += [Fault("causal", value, f"{type(value).__name__} {value!r}")] * 3
    else:
        faults.append(Fault("causal", np.str_(causal), "numpy string"))
    scale = options.get("scale")
    if scale is not None:
        number = float(scale)  # type: ignore[arg-type]
        value = draw.choice([np.float64(number), torch.tensor(number, dtype=torch.float64), np.array(number)])
        faults += [Fault("scale", value, type(value).__name__)] * 3
    for name in ("window", "length"):
        full = options.get(name)
        if full is not None:
            value = draw.choice([np.int64(full), float(full), torch.tensor(full), np.array(full), str(full)])  # type: ignore[call-overload, arg-type]
            faults += [Fault(name, value, type(value).__name__)] * 2
    segments = options.get("segments")
    if isinstance(segments, tuple):
        faults.append(Fault("segments", list(segments), "list of two"))
    mask = options.get("mask")
    if isinstance(mask, Tensor):
        faults.append(Fault("mask", mask.clone().expand_as(mask), "copy"))
    return faults


class Refusal(NamedTuple):
    """One thing that the library does not serve, by what its docs say."""

    text: str  # a regular expression of the message
    concerns: Callable[[RandomCall], bool]
    reason: str
    always: bool = False


def inside(spec: Spec) -> list[Spec]:
    """A spec and all that it holds."""
    specs = [spec]

    def collect(value: object) -> None:
        if isinstance(value, Spec):
            specs.extend(inside(value))
        elif isinstance(value, list):
            for item in value:
                collect(item)

    for value in spec.options.values():
        collect(value)
    return specs


def causal_only(spec: Spec) -> bool:
    """Whether it has no meaning for keys after the query."""
    if spec.kind == "T5Bias":
        return not spec.options.get("bidirectional")
    if spec.kind == "DataDependentALiBi":
        return spec.options.get("form") == "rows"
    return spec.kind in ("GRAPEAP", *MOVED)


LEGITIMATE = (
    Refusal(
        r"q must have no more tokens than k where causal=True",
        lambda s: s.options.get("causal", True) is True and s.q.shape[2] > s.k.shape[2],
        "queries are the last of the keys, and here cannot be (Args of attention: causal)",
        always=True,
    ),
    Refusal(
        r"k_pos must lie less than .* tokens after the query that attends to them.* xPos grows with such distances",
        lambda s: any(e.kind == "XPos" for e in s.specs) and "k_pos" in s.options and s.options["causal"] is True,
        "a key that lies after its query grows with the distance, beyond what the dtype holds (docstring of XPos)",
    ),
    Refusal(
        r"k_pos must grow with the index|k_pos of the last \d+ keys must be q_pos",
        lambda s: (
            s.options.get("causal") == "positions"
            and ("q_pos" in s.options or "k_pos" in s.options or s.q.shape[2] > s.k.shape[2])
        ),
        "what goes by the order of tokens refuses shuffled keys, and queries that are no keys (docs of causal)",
    ),
    Refusal(
        r"encodings must not hold GRAPEAP with",
        lambda s: any(e.kind in MOVED for e in s.specs) and any(e.options.get("tie") == "key" for e in s.specs),
        "it reads keys as one rotation leaves them, and there are several (Scope.replaces)",
        always=True,
    ),
    Refusal(
        r"q must have no more tokens than k under GRAPEAP|k_pos of the last \d+ keys must be q_pos",
        lambda s: s.q.shape[2] > s.k.shape[2] and any(e.kind == "GRAPEAP" for p in s.specs for e in inside(p)),
        "queries are tokens of the keys, whose p they have (docstring of GRAPEAP)",
        always=True,
    ),
    Refusal(
        r"causal",
        lambda s: s.options.get("causal", True) is False and any(causal_only(e) for p in s.specs for e in inside(p)),
        "no meaning for keys after the query (docstrings of T5Bias, XPos, DataDependentALiBi, remapped distances)",
        always=True,
    ),
)


def legitimate(error: ValueError, call: RandomCall) -> bool:
    """Whether a call may be refused with these words."""
    return any(re.search(refusal.text, str(error)) and refusal.concerns(call) for refusal in LEGITIMATE)


def must_refuse(call: RandomCall) -> Refusal | None:
    """What the docs say of a call that is served nowhere; None for others."""
    return next((refusal for refusal in LEGITIMATE if refusal.always and refusal.concerns(call)), None)


NOT_TENSORS: Mapping[str, object] = {
    "list": [[1.0, 2.0]], "string": "abc", "dict": {}, "number": 3.0, "numpy": np.zeros((2, 3)), "object": object()
}  # fmt: skip
NAN, INF = float("nan"), float("inf")
WRONG_VALUES: Mapping[str, list[object]] = {
    "scale": ["1", "auto", [1.0], {}, NAN, INF, -INF, 1j, torch.tensor([1.0, 2.0]), object()],
    "length": [0, -1, 2.5, "8", NAN, INF, [8], True, object(), torch.tensor([1, 2])],
    "window": [0, -3, 2.5, "8", NAN, INF, [8], True, object(), torch.tensor([1, 2])],
    "tolerance": [-0.1, 1, 1.5, "0", None, NAN, [0.0], object(), 1j],
    "softcap": [0, -1.0, "50", NAN, INF, [50.0], True, object(), 1j, torch.tensor([1.0, 2.0])],
    "dropout": [-0.1, 1.5, "0.1", None, NAN, INF, [0.1], True, object(), 1j],
    "backend": ["best", "", None, 3, ["dense"], object(), "Dense"],
    "causal": [
        "yes", 2, -1, "position", [True], (True,), {}, 0.5, torch.tensor([True, False]), torch.tensor(2), object()
    ],
}  # fmt: skip


def _all(argument: str, values: Mapping[str, object]) -> list[Fault]:
    return [Fault(argument, value, what) for what, value in values.items()]


def _tensors(call: RandomCall) -> list[Fault]:
    """q, k and v of wrong kinds, or that do not fit each other."""
    faults = []
    q, k, v = call.q, call.k, call.v
    for name, value in (("q", q), ("k", k), ("v", v)):
        other = torch.float32 if value.dtype != torch.float32 else torch.float64
        faults += _all(name, {**NOT_TENSORS, "None": None})
        faults += _all(
            name,
            {
                "three axes": value[0],
                "five axes": value[None],
                "a number's tensor": torch.tensor(1.0),
                "integers": value.long(),
                "bool": value.bool(),
                "complex": value.to(torch.complex64),
                "another dtype": value.to(other),
                "another batch": torch.cat([value] * 2),
            },
        )
    faults += _all(
        "q", {"a wider head": torch.cat([q, q[..., :1]], -1), "no channels": q[..., :0], "no heads": q[:, :0]}
    )
    faults += _all("k", {"no keys": k[:, :, :0], "no heads": k[:, :0], "more keys": torch.cat([k, k[:, :, :1]], 2)})
    faults += _all("v", {"more heads": torch.cat([v, v[:, :1]], 1), "fewer keys": v[:, :, 1:]})
    if q.shape[1] > 1:
        faults.append(Fault("k", torch.cat([k] * (q.shape[1] + 1), 1)[:, : q.shape[1] + 1], "more heads than q"))
    return faults


def _encodings(call: RandomCall) -> list[Fault]:
    """Lists of encodings that are none, or hold what is none, or what does not fit."""
    heads, width = call.q.shape[1], call.q.shape[3]
    if call.axes > 1:  # which the encodings in their place do not read
        call.options = {n: v for n, v in call.options.items() if n not in ("q_pos", "k_pos")}
    alibi = posenc.ALiBi(heads)
    kinds = {what: value for what, value in NOT_TENSORS.items() if what not in ("dict", "numpy")}
    return _all(
        "encodings",
        {
            **kinds,
            "None": None,
            "[None]": [None],
            "a name": ["rope"],
            "a class": [posenc.ALiBi],
            "one encoding": alibi,
            "a dict of them": {"rope": alibi},
            "a list in a list": [[alibi]],
            "a layer": [nn.Linear(2, 2)],
            "other heads": [posenc.ALiBi(heads + 1)],
            "a wider rotation": [posenc.RoPE(2 * width + 2)],
            "an embedding": [posenc.Sinusoidal(8)],
            "two in the place of softmax": [posenc.weight.StickBreaking(), posenc.weight.StickBreaking()],
        },
    )


def _positions(call: RandomCall) -> list[Fault]:
    """Positions that cannot count, or are not one a token; with an encoding that reads them."""
    (batch, heads, queries, _), keys, axes = call.q.shape, call.k.shape[2], call.axes
    call.options = {n: v for n, v in call.options.items() if n not in ("q_pos", "k_pos")}
    if axes == 1:
        call.encodings = [*call.encodings, posenc.ALiBi(heads)]
    faults = []
    for name, tokens in (("q_pos", queries), ("k_pos", keys)):
        at = torch.arange(tokens) if axes == 1 else torch.zeros(tokens, axes, dtype=torch.long)
        call.options[name] = at
        faults += _all(name, NOT_TENSORS)
        faults += _all(
            name,
            {
                "bool": at.bool(),
                "bfloat16": at.bfloat16(),
                "float16": at.half(),
                "complex": at.to(torch.complex64),
                "a token more": torch.cat([at, at[:1]]),
                "no token": at[:0],
                "a row more": torch.stack([at] * (batch + 1)),
                "one number": torch.tensor(3),
                "axes in front": at.view(1, 1, 1, *at.shape),
            },
        )
    return faults


def _visible(call: RandomCall) -> list[Fault]:
    """Masks and documents."""
    (batch, heads, queries, _), keys = call.q.shape, call.k.shape[2]
    seen = torch.ones(queries, keys, dtype=torch.bool)
    documents, of_queries = torch.zeros(keys, dtype=torch.long), torch.zeros(queries, dtype=torch.long)
    faults = _all("mask", NOT_TENSORS) + _all("segments", NOT_TENSORS)
    faults += _all(
        "mask",
        {
            "float": seen.float(),
            "integers": seen.long(),
            "no keys": seen[:, :0],
            "more keys": torch.cat([seen, seen], 1),
            "more queries": torch.cat([seen, seen, seen[:1]]),
            "a row more": seen.expand(batch + 1, 1, queries, keys),
            "a head more": seen.expand(batch, heads + 1, queries, keys),
            "one axis": seen[0],
            "one value": torch.tensor(True),
            "five axes": seen[None, None, None],
        },
    )
    return faults + _all(
        "segments",
        {
            "a key more": torch.zeros(keys + 1, dtype=torch.long),
            "a row more": documents.expand(batch + 1, keys),
            "a number's tensor": torch.tensor(1),
            "four axes": documents.view(1, 1, 1, keys),
            "one of two": (of_queries,),
            "three": (of_queries,) * 3,
            "a pair with None": (None, documents),
            "a pair of lists": ([0] * queries, [0] * keys),
        },
    )


def _numbers(call: RandomCall) -> list[Fault]:
    return [Fault(name, value, repr(value)) for name, values in WRONG_VALUES.items() for value in values]


def _token_states(call: RandomCall) -> list[Fault]:
    """Tokens and what was remembered of them, with an encoding that reads these."""
    (batch, heads, _, _), keys, x = call.q.shape, call.k.shape[2], call.x
    call.encodings = [posenc.ForgetGate(call.sizes.dim, num_heads=heads).to(call.dtype)]
    if call.axes > 1:
        call.options = {n: v for n, v in call.options.items() if n not in ("q_pos", "k_pos")}
    gates = torch.zeros(batch, heads, keys)
    faults = _all("x", {**NOT_TENSORS, "None": None}) + _all("token_states", NOT_TENSORS)
    faults += _all(
        "x",
        {
            "two axes": x[0],
            "no tokens": x[:, :0],
            "a token more": torch.cat([x, x[:, :1]], 1),
            "wider": torch.cat([x, x[..., :1]], -1),
            "more rows": torch.cat([x] * 2),
        },
    )
    return faults + _all(
        "token_states",
        {
            "none": [],
            "two": [gates, gates],
            "[None]": [None],
            "a string": ["gates"],
            "lists": [[0.0]],
            "no keys": [gates[..., :0]],
            "four axes": [gates[:, :, None]],
            "a head more": [torch.zeros(batch, heads + 1, keys)],
        },
    )


FAULTS = (_tensors, _encodings, _positions, _visible, _numbers, _token_states)
